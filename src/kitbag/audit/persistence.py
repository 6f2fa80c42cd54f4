"""Detects writes to start-up files, schedules, hooks, agent settings and agent memory.

Finds a target by name; it counts if the command or statement around it writes there. Used by examine_item; uses
patterns.
"""

import re
from typing import Final

import msgspec

from kitbag.audit.expressions import load_expression, load_words
from kitbag.audit.findings import Severity
from kitbag.audit.patterns import LineMatches, RuleHit, ScanResult, command_window
from kitbag.audit.prose_facts import load_facts, mark_sentences
from kitbag.audit.regions import PROSE_ROLES, AuditedText, RegionRole
from kitbag.audit.secret_places import PATH_SEPARATOR


class _WriteTarget(msgspec.Struct, frozen=True, kw_only=True):
    rule: str
    words: tuple[str, ...]
    regex: "re.Pattern[str]"
    is_strong: bool
    """Rarely a legitimate target."""
    max_example_severity: Severity
    """The maximum severity in an example."""


_SLASH = re.compile(r"\[[^\]]*\]|/")


def _across_joins(regex: "re.Pattern[str]") -> "re.Pattern[str]":
    """Also matches a path that code joins from parts: `home / ".claude" / "settings.json"`."""
    return re.compile(
        _SLASH.sub(lambda found: PATH_SEPARATOR if found[0] == "/" else found[0], regex.pattern), regex.flags
    )


def _target(rule: str, name: str, strong: bool = False, example: Severity = "high") -> _WriteTarget:
    return _WriteTarget(
        rule=rule,
        words=load_words(f"persistence.{name}"),
        regex=_across_joins(load_expression(f"persistence.{name}")),
        is_strong=strong,
        max_example_severity=example,
    )


_TARGETS: Final = (
    _target("startup-write", "startup_files"),
    _target("startup-write", "start_places", strong=True),
    _target("startup-write", "services", example="medium"),
    _target("git-hook-write", "git_hooks", example="medium"),
    _target("agent-config-write", "agent_settings", example="medium"),
    _target("agent-memory-write", "agent_memory"),
)
_NEAR: Final = 400
_MAX_MATCHES: Final = 200
_REDIRECT = re.compile(r"(?<![-=<])>>?\|?\s*[\"']?[^\s\"'|;&<>`]*$")
_TEE = re.compile(r"\btee\s+(?:-a\s+|--append\s+)?[\"']?[^\s\"'|;&]*$")
_COPIES = re.compile(r"\b(?:cp|mv|ln|install|rsync|copy-item|move-item|scp)\s[^\n;|&]*$", re.IGNORECASE)
_IN_PLACE = load_expression("persistence.in_place")
_ENDS = re.compile(r"[\"']?\s*(?:$|[;|&)`#]|\\$|[\"'])")
_CODE_WRITES = load_expression("persistence.code_writes")
_ASSIGNED = re.compile(r"(?:^|[;\s])(?:export |local |const |let |var )?\$?([A-Za-z_]\w{0,40})\s?=(?!=)[^=\n]{0,200}$")
_TELLS = re.compile(
    r"\b(?:append|add|write|insert|put|save|copy|symlink|install|register|inject|modify|edit|update)\b[^.\n]{0,160}$",
    re.IGNORECASE,
)
_PLANTED = re.compile(
    r"\b(?:do\s+not|don'?t|never)\s+(?:mention|tell|explain|reveal|show)\b|\b(?:before|after)\s+(?:each|every)\s+(?:answer|message|reply)"
    r"|\balways\s+(?:add|install|send|run|include|approve|use)\b[^\n]{0,80}(?:https?://|password|\bfrom\b)|\bsend\b[^\n]{0,80}https?://",
    re.IGNORECASE,
)
"""Instructions that a script writes for later sessions and that work against the user."""
_PHONES_HOME = re.compile(
    r"(?:\b(?:echo|printf|cat|tee)\b|<<)[^>]{0,400}(?:(?:\b|\\n)(?:curl|wget|nc|ncat)\s|/dev/tcp/|\|\s*(?:ba|z)?sh\b)",
    re.IGNORECASE,
)
"""What is written reaches out when it runs."""
_REACHES_OUT = re.compile(r"\b(?:curl|wget|iwr)\s|\|\s*(?:ba|z)?sh\b|_BASE_URL\b|_PROXY\b|apiKeyHelper")
_WEAKENS = load_facts()["weakens_agent"].regex
_WRITES = re.compile(r">>|\.write\(|write_(?:text|bytes)\(|(?:append|write)File|\.open\(\s*[\"']a")
_ORDINARY = load_expression("persistence.ordinary")
_NOT_ORDINARY = re.compile(
    r"curl|wget|base64|/dev/tcp|\bnc\s|https?://|\bpython\d?\s+-c|ANTHROPIC_|OPENAI_|_PROXY|LD_PRELOAD|PROMPT_COMMAND",
    re.I,
)


def find_persistent_writes(source: AuditedText) -> ScanResult:
    hits: list[RuleHit] = []
    exhausted: list[str] = []
    for target in _TARGETS:
        matches = LineMatches(source, target.regex, target.words)
        for start, end, _ in matches.found[:_MAX_MATCHES]:
            hits += _check_match(source, target, start, end)
        if matches.exhausted or len(matches.found) > _MAX_MATCHES:
            exhausted.append(target.rule)
    return ScanResult(hits, exhausted)


def _check_match(source: AuditedText, target: _WriteTarget, start: int, end: int) -> list[RuleHit]:
    begin, window = command_window(source, start)
    at = start - begin
    role, language = source.role_at(start)
    if role in PROSE_ROLES:
        instruction = _TELLS.search(window[max(0, at - _NEAR) : at])
        how = "instructed" if instruction else "written" if _shell_writes(window, at, end - begin) else ""
    elif _shell_writes(window, at, end - begin) or (language != "shell" and _CODE_WRITES.search(window)):
        how = "written"
    else:
        how = "written" if _is_written_later(source, window[:at]) else ""
    nearby = source.text[max(0, start - _NEAR) : end + _NEAR]
    if not how and role == "script" and target.rule == "agent-memory-write" and _WRITES.search(nearby):
        how = "written" if _PLANTED.search(nearby) else ""  # through the variable of a loop
    severity = _severity(target, role, how, window, nearby) if how else None
    return [RuleHit(rule=target.rule, start=start, end=end, severity=severity)] if severity is not None else []


def _shell_writes(window: str, start: int, end: int) -> bool:
    before = window[max(0, start - _NEAR) : start]
    if _REDIRECT.search(before) or _TEE.search(before):
        return True
    # A copy writes to its last argument.
    if _COPIES.search(before) and _ENDS.match(window[end:].lstrip("/.*\"'")):
        return True
    return _IN_PLACE.search(before) is not None


def _is_written_later(source: AuditedText, before: str) -> bool:
    """`rc = Path.home() / ".bashrc"`, and later `rc.write_text(...)` or `>> "$rc"`."""
    assigned = _ASSIGNED.search(before[-260:])
    if assigned is None:
        return False
    name = re.escape(assigned[1])
    later = re.compile(
        rf">>?\s*[\"']?\$\{{?{name}\b|\btee\s+(?:-a\s+)?[\"']?\$\{{?{name}\b|\b{name}\.(?:write_text|write_bytes|open\([\"'][aw])"
        rf"|\bopen\(\s*{name}\s*,\s*[\"'][awx]|(?:write|append)File(?:Sync)?\(\s*{name}\b|\bwith\s+{name}\.open\([\"'][awx]"
        rf"|\(\s*{name}\s*/[^\n)]{{1,80}}\)\.(?:write_text|write_bytes|symlink_to|open)\("
        rf"|\b(?:copy\w*|rename\w*|replace|move|symlink\w*|dump)\([^\n]{{0,120}},\s*{name}\s*\)"
    )
    return later.search(source.text) is not None


def _severity(target: _WriteTarget, role: RegionRole, how: str, window: str, nearby: str) -> Severity | None:
    runs = role in ("command", "script", "config")
    if target.rule == "agent-memory-write":
        if how == "instructed" or role in ("prose", "inline", "table"):
            return None
        if runs and _PLANTED.search(nearby):
            return "high"
        return "medium" if runs else "low"
    if how == "instructed":
        return "medium" if target.is_strong else "low"
    if (
        target.rule == "startup-write"
        and not target.is_strong
        and _ORDINARY.search(window)
        and not _NOT_ORDINARY.search(window)
    ):
        return "medium" if runs else "low"
    phones_home = _PHONES_HOME.search(window) or ("<<" in window and _PHONES_HOME.search(nearby))
    weakens = target.rule == "agent-config-write" and (
        _WEAKENS.search(mark_sentences(nearby)) or _REACHES_OUT.search(nearby)
    )
    if target.rule == "agent-config-write" and role != "command" and not (phones_home or weakens):
        return "medium"
    return "high" if runs or phones_home or weakens else target.max_example_severity
