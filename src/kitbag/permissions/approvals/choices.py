"""What a person can say to a question, in words that are the same wherever it is put, and what a rule must look like.

Used by the terminal and the chat, each of which shows them in its own way.
"""

from typing import NamedTuple

from kitbag.errors import UsageError
from kitbag.permissions.approvals.approval import Question
from kitbag.permissions.approvals.question_view import MOST, shown

RULE_PROMPT = "rule to add to your settings"
RULE_EXAMPLE = "Bash(make test:*)"


class Choice(NamedTuple):
    key: str
    words: str


def choices(question: Question) -> list[Choice]:
    """In the order in which they are shown. Rules are texts that still have to be made safe to show."""
    rule = question.suggestion
    exactly = f"what `{rule}` matches" if rule else "exactly this"
    return [
        Choice("y", "allow it once"),
        Choice("s", f"allow {exactly} until this session ends"),
        Choice("r", "allow it, and write a rule" + (f" such as `{rule}`" if rule else "")),
        Choice("n", "no"),
    ]


def is_cut(question: Question) -> bool:
    """Whether there is more to see than is shown at first."""
    return shown(question, most=None) != shown(question, most=MOST)


def rule_problem(text: str) -> str:
    """What is wrong with a rule that a person wrote, and what to do; empty: nothing."""
    from kitbag.permissions.rules.rule import parse_rule

    try:
        parse_rule(text, "allow", "", "user", "/")
    except UsageError as error:
        return f"{error.problem}; {error.fix}" if error.fix else error.problem
    return ""
