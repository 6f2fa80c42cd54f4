"""Puts the questions of a model to the person at the terminal.

Used by headless where somebody sits at one; uses terminal_dialog. What the model wrote stands behind a bar, so that it
can't be taken for words of ours. Enter alone is no answer, and leaving a question leaves those behind it, too.
"""

import re
from typing import Final

from kitbag.cli.terminal_dialog import TERMINAL, Dialog, LeftError, at_terminal, is_there
from kitbag.permissions.approvals.question_view import GUTTER
from kitbag.text.hidden_characters import for_terminal, one_line
from kitbag.tools.base import PersonQuestion
from kitbag.tools.question_text import chosen, heading

_NUMBERS: Final = re.compile(r"[\d\s,;]+")


class TerminalAsker:
    """A PersonAsker."""

    def __init__(self, terminal: str = TERMINAL) -> None:
        self._terminal = terminal

    def is_there(self) -> bool:
        return is_there(self._terminal)

    async def ask(self, questions: tuple[PersonQuestion, ...]) -> tuple[str, ...]:
        """Raises KitbagError when nobody can be asked."""
        answers: list[str] = []
        try:
            await at_terminal(self._terminal, lambda dialog: _ask(dialog, questions, answers))
        except LeftError:
            answers += [""] * (len(questions) - len(answers))
        return tuple(answers)


def _ask(dialog: Dialog, questions: tuple[PersonQuestion, ...], answers: list[str]) -> None:
    for number, question in enumerate(questions, 1):
        dialog.show(_shown(question, heading(question, number, len(questions))))
        with dialog.listening():
            answer = None
            while answer is None:
                answer = _read(dialog, question)
        answers.append(answer)


def _shown(question: PersonQuestion, head: str) -> list[str]:
    lines = ["", for_terminal(head), *_behind_bar(question.text)]
    for number, (label, meaning) in enumerate(question.options, 1):
        lines += _behind_bar(f"{number}  {one_line(label)}{f': {meaning}' if meaning.strip() else ''}")
    if not question.options:
        return [*lines, "Type your answer, then Enter. Enter alone: no answer."]
    numbers = "Type numbers such as 1,2" if question.several else "Type a number"
    return [*lines, f"{numbers}, or words of your own, then Enter. Enter alone: no answer."]


def _behind_bar(text: str) -> list[str]:
    return [GUTTER + for_terminal(line).replace("\t", " ") for line in text.strip().splitlines() or [""]]


def _read(dialog: Dialog, question: PersonQuestion) -> str | None:
    """None: what was typed is no answer, and was said to be none."""
    typed = dialog.line("> ").strip()
    if not typed or not question.options or not _NUMBERS.fullmatch(typed):
        return typed
    numbers = list(dict.fromkeys(int(number) for number in re.findall(r"\d{1,9}", typed)))
    wrong = next((number for number in numbers if not 1 <= number <= len(question.options)), None)
    if wrong is not None or not numbers:
        dialog.show([f"there are options 1 to {len(question.options)}; for a number of your own, add a word to it"])
        return None
    if len(numbers) > 1 and not question.several:
        dialog.show(["choose one of them, or answer in words of your own"])
        return None
    return chosen(question, numbers)
