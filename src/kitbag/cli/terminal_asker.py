"""Asks the user at the terminal a model's questions.

Used by headless on an interactive terminal; uses terminal_dialog. The model's text is shown behind a gutter, so that it
can't imitate Kitbag's. Enter alone is no answer; leaving a question leaves the remaining ones too.
"""

import re
from typing import Final

from kitbag.cli.terminal_dialog import TERMINAL_PATH, DialogLeftError, TerminalDialog, is_available, run_dialog
from kitbag.permissions.approvals.question_view import GUTTER
from kitbag.text.hidden_characters import collapse_whitespace, escape_for_terminal
from kitbag.tools.base import UserQuestion
from kitbag.tools.question_text import question_heading, selected_labels

_NUMBERS: Final = re.compile(r"[\d\s,;]+")


class TerminalAsker:
    """A UserAsker."""

    def __init__(self, terminal: str = TERMINAL_PATH) -> None:
        self._terminal = terminal

    def is_available(self) -> bool:
        return is_available(self._terminal)

    async def ask(self, questions: tuple[UserQuestion, ...]) -> tuple[str, ...]:
        """Raises KitbagError if there is no terminal."""
        answers: list[str] = []
        try:
            await run_dialog(self._terminal, lambda dialog: _ask(dialog, questions, answers))
        except DialogLeftError:
            answers += [""] * (len(questions) - len(answers))
        return tuple(answers)


def _ask(dialog: TerminalDialog, questions: tuple[UserQuestion, ...], answers: list[str]) -> None:
    for number, question in enumerate(questions, 1):
        dialog.show(_question_lines(question, question_heading(question, number, len(questions))))
        with dialog.reading_keys():
            answer = None
            while answer is None:
                answer = _read_answer(dialog, question)
        answers.append(answer)


def _question_lines(question: UserQuestion, heading_text: str) -> list[str]:
    lines = ["", escape_for_terminal(heading_text), *_quote_lines(question.text)]
    for number, (label, meaning) in enumerate(question.options, 1):
        lines += _quote_lines(f"{number}  {collapse_whitespace(label)}{f': {meaning}' if meaning.strip() else ''}")
    if not question.options:
        return [*lines, "Type your answer, then Enter. Enter alone: no answer."]
    numbers = "Type numbers such as 1,2" if question.multi_select else "Type a number"
    return [*lines, f"{numbers}, or words of your own, then Enter. Enter alone: no answer."]


def _quote_lines(text: str) -> list[str]:
    return [GUTTER + escape_for_terminal(line).replace("\t", " ") for line in text.strip().splitlines() or [""]]


def _read_answer(dialog: TerminalDialog, question: UserQuestion) -> str | None:
    """None: the input was invalid, and the user was told why."""
    typed = dialog.read_line("> ").strip()
    if not typed or not question.options or not _NUMBERS.fullmatch(typed):
        return typed
    numbers = list(dict.fromkeys(int(number) for number in re.findall(r"\d{1,9}", typed)))
    wrong = next((number for number in numbers if not 1 <= number <= len(question.options)), None)
    if wrong is not None or not numbers:
        dialog.show([f"there are options 1 to {len(question.options)}; for a number of your own, add a word to it"])
        return None
    if len(numbers) > 1 and not question.multi_select:
        dialog.show(["choose one of them, or answer in words of your own"])
        return None
    return selected_labels(question, numbers)
