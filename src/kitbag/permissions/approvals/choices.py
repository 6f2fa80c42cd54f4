"""The answers a person can choose from, with the same labels everywhere, and the check of rules they write.

Used by the terminal and the chat, which render them in their own way.
"""

from typing import NamedTuple

from kitbag.errors import UsageError
from kitbag.permissions.approvals.approval import ApprovalRequest
from kitbag.permissions.approvals.question_view import MAX_ARGUMENT_CHARACTERS, render_approval

RULE_PROMPT = "rule to add to your settings"
RULE_EXAMPLE = "Bash(make test:*)"


class AnswerOption(NamedTuple):
    key: str
    label: str


def answer_options(request: ApprovalRequest) -> list[AnswerOption]:
    """In display order. Rules are untrusted text: escape them before printing."""
    rule = request.suggestion
    exactly = f"what `{rule}` matches" if rule else "exactly this"
    return [
        AnswerOption("y", "allow it once"),
        AnswerOption("s", f"allow {exactly} until this session ends"),
        AnswerOption("r", "allow it, and write a rule" + (f" such as `{rule}`" if rule else "")),
        AnswerOption("n", "no"),
    ]


def is_truncated(request: ApprovalRequest) -> bool:
    """Whether the default view hides part of the request."""
    return render_approval(request, max_characters=None) != render_approval(
        request, max_characters=MAX_ARGUMENT_CHARACTERS
    )


def rule_problem(text: str) -> str:
    """What is wrong with a rule that a person wrote, and the fix; empty if it is valid."""
    from kitbag.permissions.rules.rule import parse_rule

    try:
        parse_rule(text, "allow", "", "user", "/")
    except UsageError as error:
        return f"{error.problem}; {error.fix}" if error.fix else error.problem
    return ""
