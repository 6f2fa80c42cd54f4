"""Asks the user of the chat the model's questions (tool AskUser), one after another.

Used by start. The model's text gets a block of its own, so that it can't pass for ours. Canceling a question skips the
rest; earlier answers count.
"""

from typing import Final

from kitbag.chat.ui import ChatUI, FlushEvents, no_flush
from kitbag.dialogs.form import Form, FormAnswer, FormOption
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.tools.base import UserQuestion
from kitbag.tools.question_text import question_heading, selected_labels
from kitbag.views.blocks import VerbatimBlock, text_block

_FREE_TEXT_HINT: Final = "words of your own"


class ChatAsker:
    """Implements UserAsker."""

    def __init__(self, ui: ChatUI, flush: FlushEvents = no_flush) -> None:
        self._ui = ui
        self._flush = flush

    async def ask(self, questions: tuple[UserQuestion, ...]) -> tuple[str, ...]:
        await self._flush()
        answers: list[str] = []
        for number, question in enumerate(questions, 1):
            form_answer = await self._ui.ask(question_form(question, number, len(questions)))
            if form_answer is None:
                break
            answers.append(format_answer(question, form_answer))
        return (*answers, *[""] * (len(questions) - len(answers)))


def question_form(question: UserQuestion, number: int = 1, count: int = 1) -> Form:
    options = tuple(
        FormOption(str(index), collapse_whitespace(label), collapse_whitespace(description))
        for index, (label, description) in enumerate(question.options, 1)
    )
    above = (text_block(question_heading(question, number, count), "strong"), VerbatimBlock(question.text.strip()))
    multiple = question.multi_select and bool(options)
    prompt = "Your answer, one or several:" if multiple else "Your answer:"
    return Form(
        prompt=prompt,
        options=options,
        above=above,
        free_text_hint=_FREE_TEXT_HINT,
        multiple=multiple,
        cancel_effect="gives no answer",
    )


def format_answer(question: UserQuestion, form_answer: FormAnswer) -> str:
    """The labels of the selected options and the free text."""
    labels = selected_labels(question, (int(key) for key in form_answer.keys))
    return "; ".join(part for part in (labels, form_answer.text.strip()) if part)
