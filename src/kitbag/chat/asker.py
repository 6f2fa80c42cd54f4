"""Asks the user of the chat the model's questions (tool AskUser), one after another.

Used by start. The model's text gets a block of its own, so that it can't pass for ours. Canceling a question skips the
rest; earlier answers count.
"""

from typing import Final

from kitbag.chat.ui import ChatUI, FlushEvents, Form, FormAnswer, FormOption, no_flush
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.tools.base import UserQuestion
from kitbag.tools.question_text import question_heading, selected_labels
from kitbag.views.blocks import VerbatimBlock, text_block

_OWN_WORDS: Final = "words of your own"


class ChatAsker:
    """Implements UserAsker."""

    def __init__(self, ui: ChatUI, flush: FlushEvents = no_flush) -> None:
        self._face = ui
        self._shown = flush

    async def ask(self, questions: tuple[UserQuestion, ...]) -> tuple[str, ...]:
        await self._shown()
        answers: list[str] = []
        for number, question in enumerate(questions, 1):
            filled = await self._face.ask(question_form(question, number, len(questions)))
            if filled is None:
                break
            answers.append(format_answer(question, filled))
        return (*answers, *[""] * (len(questions) - len(answers)))


def question_form(question: UserQuestion, number: int = 1, count: int = 1) -> Form:
    options = tuple(
        FormOption(str(at), collapse_whitespace(label), collapse_whitespace(meaning))
        for at, (label, meaning) in enumerate(question.options, 1)
    )
    above = (text_block(question_heading(question, number, count), "strong"), VerbatimBlock(question.text.strip()))
    several = question.multi_select and bool(options)
    prompt = "Your answer, one or several:" if several else "Your answer:"
    return Form(prompt, options, above, free_text_hint=_OWN_WORDS, multiple=several, cancel_effect="gives no answer")


def format_answer(question: UserQuestion, filled: FormAnswer) -> str:
    """The labels of the selected options and the free text."""
    labels = selected_labels(question, (int(key) for key in filled.keys))
    return "; ".join(part for part in (labels, filled.text.strip()) if part)
