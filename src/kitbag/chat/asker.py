"""Puts the questions of a model to the person in the chat, one after another.

Used by start. What the model wrote stands in a block of its own, so that it can't be taken for words of ours. To leave
a question leaves those behind it, too: what was answered before counts.
"""

from typing import Final

from kitbag.chat.ui import Face, Filled, Form, Option, Shown, at_once
from kitbag.text.hidden_characters import one_line
from kitbag.tools.base import PersonQuestion
from kitbag.tools.question_text import chosen, heading
from kitbag.views.blocks import Verbatim, words

_OWN_WORDS: Final = "words of your own"


class ChatAsker:
    """A PersonAsker."""

    def __init__(self, face: Face, shown: Shown = at_once) -> None:
        self._face = face
        self._shown = shown

    async def ask(self, questions: tuple[PersonQuestion, ...]) -> tuple[str, ...]:
        await self._shown()
        answers: list[str] = []
        for number, question in enumerate(questions, 1):
            filled = await self._face.ask(question_form(question, number, len(questions)))
            if filled is None:
                break
            answers.append(answer_to(question, filled))
        return (*answers, *[""] * (len(questions) - len(answers)))


def question_form(question: PersonQuestion, number: int = 1, count: int = 1) -> Form:
    options = tuple(
        Option(str(at), one_line(label), one_line(meaning)) for at, (label, meaning) in enumerate(question.options, 1)
    )
    above = (words(heading(question, number, count), "strong"), Verbatim(question.text.strip()))
    several = question.several and bool(options)
    prompt = "Your answer, one or several:" if several else "Your answer:"
    return Form(prompt, options, above, free=_OWN_WORDS, several=several, leaving="gives no answer")


def answer_to(question: PersonQuestion, filled: Filled) -> str:
    """The options that were chosen, by their names, and what was said besides."""
    labels = chosen(question, (int(key) for key in filled.keys))
    return "; ".join(part for part in (labels, filled.text.strip()) if part)
