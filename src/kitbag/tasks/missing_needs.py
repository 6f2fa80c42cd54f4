"""Reads which skills or files an agent reports as missing, and adds them to the request for a restart.

Used by runner. Only the last lines of the answer outside fences count, and only existing items that the agent may
access are added; for the others it says why.
"""

import html
import re
from typing import Final, NamedTuple

import msgspec

from kitbag.assembly.skill_loading import find_denial
from kitbag.errors import InvalidError, KitbagError
from kitbag.permissions.paths import examine_path
from kitbag.permissions.safe_open import open_for_reading
from kitbag.tasks.subagent import Subagent
from kitbag.tasks.task import TaskRequest, TaskResult

MAX_LINES: Final = 10
"""Non-empty lines at the end of an answer that can report a need."""
MAX_NEEDS: Final = 5
MAX_FILE_BYTES: Final = 60_000
_MAX_LINE_CHARS: Final = 1_000
_FENCE: Final = re.compile(r"\s{0,3}(`{3,}|~{3,})")
_HINTS: Final = ("skill", "file:", "context:", "reference:", "unresolved")
"""One of them is in every line that reports a need."""

# Texts, which `re` compiles on first use: most answers need none of them.
_LIST_MARKER: Final = r"^(?:[-+*>]\s+|\d{1,3}[.)]\s+|#{1,6}\s+)+"
_MARKUP: Final = r"[`\"*]+|(?<!\w)'|'(?!\w)"
_NAME: Final = r"[^\s`\"'*,;()<>]*[^\s`\"'*,;()<>.:]"
_REASON: Final = r"(?:\s*[.,;:(\u2013\u2014-].*|\s+(?:for|to|because|in order|so that)\b.*)?"
"""What may follow a name."""
_NAMES: Final = rf"@?{_NAME}(?:(?:,\s*|\s+and\s+)@?{_NAME})*"
_SKILL_NEED: Final = rf"(?i)(?:I |we )?(?:needs?|missing|unknown)(?: the)? skills?:\s*(?P<names>{_NAMES}){_REASON}"
_FILE_NEED: Final = (
    r"(?i)(?:(?P<asked>needs? (?:file|context):)|unresolved(?: reference)?:?|missing (?:context|file|reference):)"
    rf"\s*@?(?P<name>{_NAME}){_REASON}"
)
_FAILURE: Final = (
    r"(?i)(?:status:\s*|the task\s+|task\s+|I\s+|we\s+|is\s+)*"
    r"(?:fail(?:ed|ure)?|blocked|error|cannot|can't|could not|couldn't|unable|stopped)\b"
)
"""The start of a line that reports a failure."""
_ABSENT: Final = (
    r"(?:is|was)\s+(?:unavailable|unknown|missing(?=\s*(?:[.,;:!)]|$))"
    r"|not\s+(?:found|available|loaded|provided|in\s+(?:my|this|the)\s+(?:context|prompt)))"
)
_SKILL_NAMED: Final = (
    rf"(?i)\b(?:no|missing|unknown|without|lacks?)(?: the| a)? skill(?: named| called)?:?\s+(?P<name>@?{_NAME})",
    rf"(?i)\bskill\s+(?P<name>@?{_NAME})\s+{_ABSENT}",
    rf"(?i)\bthe\s+(?P<name>@?{_NAME})\s+skill\s+{_ABSENT}",
)
_PLACEHOLDERS: Final = ("NAME", "PATH")
"""In an answer that quotes the convention."""


class Need(NamedTuple):
    kind: str
    """`skill` or `file`."""
    name: str
    is_asked: bool
    """The agent asks for it in the form it was told, so without it the task is not done."""


class ResolvedNeeds(msgspec.Struct, frozen=True, kw_only=True):
    restart: TaskRequest | None = None
    """The request with what was missing; None: the agent asks for nothing, or nothing can be added."""
    unmet: tuple[str, ...] = ()
    """Why the others can't be added."""
    is_blocked: bool = False
    """The agent asks for something that its task needs."""


def reported_needs(result: TaskResult) -> list[Need]:
    """Empty unless the agent has come to an end by itself."""
    if result.status not in ("completed", "failed"):
        return []
    return find_needs(result.text, result.error if result.status == "failed" else "")


def resolve_needs(needs: list[Need], request: TaskRequest, agent: Subagent) -> ResolvedNeeds:
    """Reads files."""
    completed, unmet, is_blocked = request, list[str](), False
    for need in needs:
        add = _add_skill if need.kind == "skill" else _add_file
        try:
            completed = add(completed, need.name, agent)
        except KitbagError as error:
            # A skill that prose mentions may be no skill at all; a reported reference is always meant.
            if need.is_asked or need.kind == "file":
                unmet.append(f"{error.problem}{'; ' if error.fix else ''}{error.fix}")
        is_blocked = is_blocked or need.is_asked
    restart = completed if completed is not request else None
    return ResolvedNeeds(restart=restart, unmet=tuple(unmet), is_blocked=is_blocked)


def find_needs(text: str, error: str = "") -> list[Need]:
    """`error`: of a run that failed."""
    needs: dict[tuple[str, str], Need] = {}
    for line in (*_last_lines(text), *_last_lines(error)):
        if len(line) > _MAX_LINE_CHARS or not any(hint in line.lower() for hint in _HINTS):
            continue
        for need in _needs_of_line(re.sub(_LIST_MARKER, "", line.strip()), is_failure=bool(error)):
            known = needs.setdefault((need.kind, need.name), need)
            if need.is_asked and not known.is_asked:
                needs[need.kind, need.name] = need
    return list(needs.values())[:MAX_NEEDS]


def _last_lines(text: str) -> list[str]:
    lines: list[str] = []
    fence = ""
    for line in text.splitlines():
        marker = _FENCE.match(line)
        if fence:
            if marker is not None and marker[1].startswith(fence) and not line.strip(" `~"):
                fence = ""
        elif marker is not None:
            fence = marker[1]
        elif line.strip():
            lines.append(line)
    return lines[-MAX_LINES:]


def _needs_of_line(line: str, is_failure: bool) -> list[Need]:
    plain = re.sub(_MARKUP, "", line).strip()
    if (match := re.fullmatch(_SKILL_NEED, plain)) is not None:
        names = re.split(r",\s*|\s+and\s+", match["names"])
        return [Need("skill", name, is_asked=True) for name in names if name not in _PLACEHOLDERS]
    if (match := re.fullmatch(_FILE_NEED, plain)) is not None:
        is_asked = match["asked"] is not None
        return [Need("file", match["name"], is_asked)] if match["name"] not in _PLACEHOLDERS else []
    if not is_failure and re.match(_FAILURE, plain) is None:
        return []
    names = [match["name"] for pattern in _SKILL_NAMED for match in re.finditer(pattern, plain)]
    return [Need("skill", name, any(f"{quote}{name}{quote}" in line for quote in "`'\"")) for name in names]


def _add_skill(request: TaskRequest, name: str, agent: Subagent) -> TaskRequest:
    """`@name`: a skill, else a file. Raises KitbagError."""
    try:
        skill = agent.skills.find(name.removeprefix("@"))
    except KitbagError as error:
        if name.startswith("@"):
            try:
                return _add_file(request, name[1:], agent)
            except KitbagError:
                if "/" in name or "." in name:
                    raise
        raise InvalidError(f"the agent needs the skill {name!r}: {error.problem}", error.fix) from error
    problem = f"the agent needs the skill {skill.full_name!r}"
    entries = [entry for entry in agent.session.prompt if (entry["kind"], entry["source"]) == ("preload", skill.path)]
    if any(entry["status"] == "omitted" for entry in entries):
        raise InvalidError(f"{problem}, which does not fit", "raise budget.skills, or shorten the skill")
    if entries or skill.full_name in request.skills:
        raise InvalidError(f"{problem}, which it was already started with")
    if denial := find_denial(agent.environment, skill):
        raise InvalidError(f"{problem}, which your rules deny: {denial}")
    verdict = agent.environment.library.evaluate(skill)
    if not verdict.preload:
        raise InvalidError(f"{problem}, which agents can't preload: {verdict.reason}")
    return msgspec.structs.replace(request, skills=(*request.skills, skill.full_name))


def _add_file(request: TaskRequest, path: str, agent: Subagent) -> TaskRequest:
    """Raises KitbagError."""
    context = agent.context
    problem = f"the agent needs the file {path!r}"
    tag = f'<file path="{html.escape(path)}">'
    if tag in request.prompt:
        raise InvalidError(f"{problem}, which its prompt already has")
    decision = agent.permissions.decide("Read", {"file_path": path}, context.directory)
    if decision.effect != "allow":
        raise InvalidError(f"{problem}, which it may not read: {decision.reason}")
    try:
        facts = examine_path(path, context.workspace, context.directory)
        descriptor = open_for_reading(facts.resolved, context.workspace, expected_resolved=facts.resolved)
        with open(descriptor, "rb") as file:
            text = file.read(MAX_FILE_BYTES).decode("utf-8", "replace")
    except KitbagError as error:
        raise InvalidError(f"{problem}: {error.problem}", error.fix) from error
    except OSError as error:
        raise InvalidError(f"{problem}: {error.strerror or error}", "add the file, or correct the path") from error
    escaped = text.replace("</file", "<\\/file")
    return msgspec.structs.replace(request, prompt=f"{request.prompt}\n\n{tag}\n{escaped}\n</file>")
