"""Asks the person at the terminal whether something may be done.

Used by commands that run something; uses terminal_dialog. An answer is a letter and Enter, so that nobody answers by
accident. Leaving the question is no.
"""

from typing import Final

from kitbag.cli.terminal_dialog import TERMINAL, Dialog, LeftError, at_terminal, is_there
from kitbag.permissions.approvals.approval import Answer, Question
from kitbag.permissions.approvals.choices import RULE_EXAMPLE, RULE_PROMPT, choices, is_cut, rule_problem
from kitbag.permissions.approvals.question_view import shown
from kitbag.text.hidden_characters import for_terminal

_LEFT: Final = Answer("deny", reason="the question was left without an answer")
_HELP: Final = "answer with one of the letters, then Enter"


class TerminalApprover:
    one_at_a_time = True

    def __init__(self, terminal: str = TERMINAL) -> None:
        self._terminal = terminal

    def is_there(self) -> bool:
        return is_there(self._terminal)

    async def ask(self, question: Question) -> Answer:
        """Raises KitbagError when nobody can be asked."""
        try:
            return await at_terminal(self._terminal, lambda dialog: _Asking(dialog).ask(question))
        except LeftError:
            return _LEFT


class _Asking:
    def __init__(self, dialog: Dialog) -> None:
        self._dialog = dialog

    def ask(self, question: Question) -> Answer:
        self._dialog.show(shown(question))
        with self._dialog.listening():
            answer = None
            while answer is None:
                answer = self._choose(question)
        return answer

    def _choose(self, question: Question) -> Answer | None:
        self._dialog.show(_menu(question))
        letter = self._dialog.line("> ").strip().lower()
        if letter in ("y", "yes"):
            return Answer("allow")
        if letter == "s":
            return Answer("allow", "session", question.suggestion)
        if letter == "r":
            return self._rule(question.suggestion)
        if letter in ("n", "no"):
            return Answer("deny", reason=self._dialog.line("why (Enter for no reason): ").strip())
        self._dialog.show(shown(question, most=None) if letter == "e" else [_HELP])
        return None

    def _rule(self, suggestion: str) -> Answer | None:
        """None: back to the question."""
        like = "" if suggestion else f", such as `{RULE_EXAMPLE}`; Enter alone goes back"
        text = self._dialog.line(f"{RULE_PROMPT}{like}: ", suggestion).strip()
        if not text:
            return None
        if problem := rule_problem(text):
            self._dialog.show([for_terminal(problem)])
            return self._rule(text)
        return Answer("allow", "rule", text)


def _menu(question: Question) -> list[str]:
    lines = ["", *(f"  {key}  {for_terminal(words)}" for key, words in choices(question))]
    return [*lines, "  e  show all of it"] if is_cut(question) else lines
