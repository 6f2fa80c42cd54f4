"""From a hit to a finding: how serious it is at the place where it stands, and how it is shown.

Milder where a text only warns of the thing, quotes it, or where code merely holds it as a text. Used by examine.
"""

import re
from typing import Final, Literal, NamedTuple

from kitbag.audit.expressions import expression, words
from kitbag.audit.findings import EXCERPT, Confidence, Finding, Severity, at_most
from kitbag.audit.patterns import Hit, command_window
from kitbag.audit.printed_text import is_printed
from kitbag.audit.regions import Source, Spot
from kitbag.audit.rules import rules
from kitbag.audit.urls import only_known_installers
from kitbag.audit.warning_context import ORDERS, is_warned_of
from kitbag.text.hidden_characters import for_terminal, one_line

TEXT_RULES: Final = frozenset(
    ("concealment", "instruction-override", "unasked-action", "remote-instructions", "hidden-comment")
)
_SHELL_RULES: Final = frozenset(words("judge.shell_rules"))
_RUNS_TEXT = expression("judge.runs_text")
_RUN_WORDS: Final = ("system(", "popen", "subprocess", "exec", "spawn", "check_output", "shell=true", "run(")
_EXPRESSION = re.compile(r"\\s|\\b|\\\||\.\*|\[\^|\(\?:|re\.compile|\\S|\.\+|regex", re.IGNORECASE)
_NEGATED = re.compile(
    r"\b(?:never|not|don'?t|don’t|cannot|can'?t|mustn'?t|shouldn'?t|refuse\w*|rather than|instead of)\b[^.!?]*$",
    re.IGNORECASE,
)
_STARTS_NEGATED = re.compile(r"do\s+not|don|never|must|avoid|refrain|no\s", re.IGNORECASE)
_RUNS_ITSELF = re.compile(r"\b(?:exec|eval)\s*\(|new\s+Function|\batob\(|vm\.run|dup2|pty\.spawn|rmtree|b64decode|_0x")
_QUOTED = re.compile(r"[\"'`“‘«][^\"'`“”‘’«»\n]{0,40}$")


class Judged(NamedTuple):
    finding: Finding
    spot: Spot
    offset: int


def judge(source: Source, hit: Hit, file: str) -> Judged | None:
    """None when the place says the opposite of what the rule is about."""
    rule = rules()[hit.rule]
    spot = source.spot(hit.start)
    begin, _ = source.row_at(hit.start)
    severity: Severity = hit.severity or rule.severity
    confidence: Confidence = hit.confidence or rule.confidence
    note = hit.note
    if not hit.settled:
        milder = _milder(source, hit, spot, hit.start - begin)
        if milder == "none":
            return None
        if milder:
            limit, reason = milder
            if at_most(severity, limit) != severity:
                severity, confidence, note = at_most(severity, limit), "low", "; ".join(filter(None, (note, reason)))
        elif spot.role == "comment" and hit.rule in TEXT_RULES:
            hit, severity, note = hit._replace(rule="hidden-comment"), "high", f"{hit.rule}, in a comment"
    excerpt = excerpt_of(spot.row, hit.start - begin)
    same = one_line(source.text[hit.start : min(hit.end, hit.start + 1000)])
    finding = Finding(
        hit.rule, severity, confidence, file, spot.line, excerpt, for_terminal(one_line(note)), fingerprint=same
    )
    return Judged(finding, spot, hit.start)


_Milder = tuple[Severity, str] | Literal["", "none"]


def _milder(source: Source, hit: Hit, spot: Spot, column: int) -> _Milder:
    """The most that it can be here and why; "" when nothing speaks for it."""
    row = spot.row
    if hit.rule in TEXT_RULES:
        if not _STARTS_NEGATED.match(source.text, hit.start) and _NEGATED.search(_same_clause(source, hit.start)):
            return ("low", "spoken of as something bad") if hit.rule == "instruction-override" else "none"
        if spot.role == "remark":
            return "medium", "in a comment of a script"
        if spot.role not in ("comment", "config") and (_QUOTED.search(row[:column]) or spot.role == "code"):
            return ("low" if is_warned_of(spot, column) else "medium"), "quoted"
    if is_warned_of(spot, column):
        return "low", "spoken of as something bad"
    if hit.rule == "pipe-to-shell" and only_known_installers(command_window(source, hit.start)[1]):
        return "medium", "the installer of a well-known project; what it runs can still change at any time"
    if hit.rule in _SHELL_RULES and spot.language == "shell" and is_printed(source, hit.start):
        return "low", "printed or searched for, not run"
    if (
        spot.role in ("script", "code")
        and hit.rule in _SHELL_RULES
        and spot.language not in ("shell", "powershell", "")
    ):
        return _as_text_in_code(source, hit)
    if spot.role == "config" and source.content.kind == "config" and hit.rule in _SHELL_RULES and _is_listing(row):
        return "medium", "in a data file"
    return ""


def _as_text_in_code(source: Source, hit: Hit) -> _Milder:
    """A command line inside a program is a text until something runs it."""
    start = max(0, hit.start - 300)
    near = source.text[start : hit.end + 300]
    runs_itself = _RUNS_ITSELF.search(source.text[hit.start : hit.end])
    if _EXPRESSION.search(source.text[hit.start if runs_itself else max(0, hit.start - 40) : hit.end]):
        return "low", "an expression that searches for it"
    if hit.rule in ("startup-write", "agent-config-write", "git-hook-write", "drop-host"):
        return ""
    if runs_itself:
        return ""
    if _RUNS_TEXT.search(near):
        return ""
    if any(source.has(word) for word in _RUN_WORDS):
        return "medium", "a text in a program"
    return "low", "a text in a program that runs no commands"


def _is_listing(row: str) -> bool:
    """Not the value of something that is run."""
    return (
        re.search(
            r"\"(?:command|args|run|script|hooks?|exec|postinstall|preinstall|install|prepare|start|test|build|cmd|statusLine)\"",
            row,
        )
        is None
    )


def _same_clause(source: Source, start: int) -> str:
    """`Never delete anything without asking`, but not `do not worry, and run it without asking`."""
    before = ORDERS.sub(" ", source.text[max(0, start - 120) : start])
    return re.split(r"[.!?,;:]\s|\n\s*\n|\n\s*[-*|#\d]|\b(?:and|then|but|just)\b", before)[-1]


def excerpt_of(row: str, column: int) -> str:
    """One safe line around a place."""
    start = max(0, column - 50) if len(row) > EXCERPT else 0
    part = row[start : start + 4 * EXCERPT]
    shown = for_terminal(one_line(part))
    if len(shown) > EXCERPT:
        shown = shown[: EXCERPT - 1] + "…"
    return ("…" if start else "") + shown
