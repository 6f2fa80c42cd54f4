"""Asks the user at the terminal for approval.

Used by commands that run something; uses terminal_dialog. An answer needs a letter and Enter, to prevent accidents.
Leaving the question denies.
"""

from typing import Final

from kitbag.cli.terminal_dialog import TERMINAL_PATH, DialogLeftError, TerminalDialog, is_available, run_dialog
from kitbag.permissions.approvals.approval import ApprovalAnswer, ApprovalRequest
from kitbag.permissions.approvals.choices import RULE_EXAMPLE, RULE_PROMPT, answer_options, is_truncated, rule_problem
from kitbag.permissions.approvals.question_view import render_approval
from kitbag.text.hidden_characters import escape_for_terminal

_UNANSWERED: Final = ApprovalAnswer("deny", reason="the question was left without an answer")
_HELP: Final = "answer with one of the letters, then Enter"


class TerminalApprover:
    one_at_a_time = True

    def __init__(self, terminal: str = TERMINAL_PATH) -> None:
        self._terminal = terminal

    def is_available(self) -> bool:
        return is_available(self._terminal)

    async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
        """Raises KitbagError if there is no terminal."""
        try:
            return await run_dialog(self._terminal, lambda dialog: _ApprovalDialog(dialog).ask(question))
        except DialogLeftError:
            return _UNANSWERED


class _ApprovalDialog:
    def __init__(self, dialog: TerminalDialog) -> None:
        self._dialog = dialog

    def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
        self._dialog.show(render_approval(question))
        with self._dialog.reading_keys():
            answer = None
            while answer is None:
                answer = self._read_choice(question)
        return answer

    def _read_choice(self, question: ApprovalRequest) -> ApprovalAnswer | None:
        self._dialog.show(_menu_lines(question))
        letter = self._dialog.read_line("> ").strip().lower()
        if letter in ("y", "yes"):
            return ApprovalAnswer("allow")
        if letter == "s":
            return ApprovalAnswer("allow", "session", question.suggestion)
        if letter == "r":
            return self._read_rule(question.suggestion)
        if letter in ("n", "no"):
            return ApprovalAnswer("deny", reason=self._dialog.read_line("why (Enter for no reason): ").strip())
        self._dialog.show(render_approval(question, max_characters=None) if letter == "e" else [_HELP])
        return None

    def _read_rule(self, suggestion: str) -> ApprovalAnswer | None:
        """None: back to the question."""
        like = "" if suggestion else f", such as `{RULE_EXAMPLE}`; Enter alone goes back"
        text = self._dialog.read_line(f"{RULE_PROMPT}{like}: ", suggestion).strip()
        if not text:
            return None
        if problem := rule_problem(text):
            self._dialog.show([escape_for_terminal(problem)])
            return self._read_rule(text)
        return ApprovalAnswer("allow", "rule", text)


def _menu_lines(question: ApprovalRequest) -> list[str]:
    lines = ["", *(f"  {key}  {escape_for_terminal(words)}" for key, words in answer_options(question))]
    return [*lines, "  e  show all of it"] if is_truncated(question) else lines
