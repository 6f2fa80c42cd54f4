"""Reads which skills or files an agent reports as missing, and adds them to the request for a restart.

Used by runner and by runtime/agent. Only the last lines of the answer outside fences count, and only existing items
that the agent may access are added; for the others it says why.
"""

import html
import re
from typing import Final, NamedTuple

import msgspec

from kitbag.assembly.skill_loading import find_denial
from kitbag.errors import InvalidError, KitbagError
from kitbag.packing.session_skills import SessionSkills
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
_MAX_BLOCKED_LINES: Final = 5
"""A longer answer is a result, whatever it says is missing."""

# Texts, which `re` compiles on first use: most answers need none of them.
_LIST_MARKER: Final = r"(?:[-+*>]\s+|\|\s*|\d{1,3}[.)]\s+)+"
_HEADING: Final = r"#{1,6}\s+"
_MARKUP: Final = r"[`\"*]+|(?<!\w)'|'(?!\w)"
_NAME: Final = r"[^\s`\"'*,;()<>]*[^\s`\"'*,;()<>.:]"
_REASON: Final = r"(?:\s*[.,;:(\u2013\u2014-].*|\s+(?:for|to|because|in order|so that)\b.*)?"
"""What may follow a name."""
_NAMES: Final = rf"@?{_NAME}(?:(?:,\s*|\s+and\s+)@?{_NAME})*"
_ASKED_SKILL: Final = rf"(?i)(?:I |we )?needs?(?: the)? skills?:\s*(?P<names>{_NAMES}){_REASON}"
_ASKED_FILE: Final = rf"(?i)(?:I |we )?needs? (?:file|context):\s*@?(?P<name>{_NAME}){_REASON}"
_UNRESOLVED: Final = rf"(?i)unresolved(?: reference)?:?\s*@(?P<name>{_NAME}){_REASON}"
_ABSENT_SKILL: Final = rf"(?i)(?:missing|unknown)(?: the)? skills?:\s*(?P<names>{_NAMES}){_REASON}"
_ABSENT_FILE: Final = (
    rf"(?i)(?:unresolved(?: reference)?:?|missing (?:context|file|reference):)\s*@?(?P<name>{_NAME}){_REASON}"
)
_CANNOT: Final = r"(?:can\s?not|can['’]t|could not|couldn['’]t|(?:(?:am|was|were|are) )?(?:unable|not able) to)"
_I: Final = r"(?:I|we)"
_GO_ON: Final = r"(?:continue|proceed|go on|complete|finish|start|begin|do)\b"
_CANNOT_GO_ON: Final = rf"(?:{_I} )?{_CANNOT}\s+{_GO_ON}"
_STATUS: Final = r"(?:status:\s*|(?:the )?task(?: is| has)?\s+)?(?:failed|blocked)\b[\s.:,\u2013\u2014-]*"
_ABSENT: Final = (
    r"(?:is|was)\s+(?:unavailable|unknown|missing(?=\s*(?:[.,;:!)]|$))"
    r"|not\s+(?:found|available|loaded|provided|in\s+(?:my|this|the)\s+(?:context|prompt)))"
)
_SKILL_NAMED: Final = (
    rf"(?i)\b(?:no|missing|unknown|without|lacks?)(?: the| a)? skill(?: named| called)?:?\s+(?P<name>@?{_NAME})",
    rf"(?i)\bskill\s+(?P<name>@?{_NAME})\s+{_ABSENT}",
    rf"(?i)\b(?:the|a)\s+(?P<name>@?{_NAME})\s+skill\s+{_ABSENT}",
    rf"(?i)\b(?:without|lacks?)(?: the| a)?\s+(?!(?:the|a|any|this)\b)(?P<name>@?{_NAME})\s+skill\b",
)
_CLAUSE: Final = (
    rf"(?:(?:no|missing|unknown) (?:the )?skill\b|missing (?:context|file|reference):|unresolved\b"
    rf"|(?:the )?(?:skill\s+@?{_NAME}|@?{_NAME}\s+skill)\s+{_ABSENT})"
)
"""Something is missing; after a statement that the agent can't go on."""
_BLOCKED: Final = (
    rf"(?i)^(?:{_STATUS}|{_CANNOT_GO_ON}[^.:]{{0,60}}[.:]\s*){_CLAUSE}"
    rf"|^{_CANNOT_GO_ON}[^.]{{0,60}}\b(?:without|because)\b"
    rf"|^(?:{_I} )?{_CANNOT}\s[^.]{{1,80}}\bskill\b[^.]{{0,60}}\bnot (?:provided|in (?:my|this) (?:context|prompt))\b"
    rf"|^the (?:skill|\S+ skill)\b[^.]{{0,80}}(?:, so|[.;]) {_I} (?:had to )?stop(?:ped)?(?: here)?\.?$"
)
"""How an answer starts that reports nothing but that the agent itself can't go on. A verdict of a review may name a
missing skill in all other words: "we cannot merge this", "failed: the check of a.md"."""
_PLACEHOLDERS: Final = ("NAME", "PATH")
"""In an answer that quotes the convention."""


class Need(NamedTuple):
    kind: str
    """`skill` or `file`."""
    name: str
    is_asked: bool
    """The agent asks for it in the agreed form, so without it the task is not done."""


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


def describe_needs(text: str, skills: SessionSkills) -> list[InvalidError]:
    """What an answer asks for in the agreed form, where the agent is not restarted with it."""
    described: list[InvalidError] = []
    for need in (need for need in find_needs(text) if need.is_asked):
        problem = f"the agent needs the {need.kind} {need.name!r}"
        if need.kind == "file":
            described.append(InvalidError(problem, f"mention it in your message: @{need.name}"))
            continue
        try:
            name = skills.find(need.name.removeprefix("@")).full_name
            described.append(InvalidError(problem, f"invoke it with /{name}, or add it to `skills:` of the agent"))
        except KitbagError as error:
            described.append(InvalidError(f"{problem}: {error.problem}", error.fix))
    return described


def find_needs(text: str, error: str = "") -> list[Need]:
    """`error`: of a run that failed."""
    lines = _last_lines(text)
    needs: dict[tuple[str, str], Need] = {}
    reported = [(line, _is_blocked(lines, line)) for line in lines if _is_candidate(line)]
    reported += [(line, True) for line in _last_lines(error) if _is_candidate(line)]
    for line, is_failure in reported:
        for need in _needs_of_line(line, is_failure):
            known = needs.setdefault((need.kind, need.name), need)
            if need.is_asked and not known.is_asked:
                needs[need.kind, need.name] = need
    return list(needs.values())[:MAX_NEEDS]


def _is_candidate(line: str) -> bool:
    return len(line) <= _MAX_LINE_CHARS and any(hint in line.lower() for hint in _HINTS)


def _is_blocked(lines: list[str], line: str) -> bool:
    """Whether a line that names something missing says that the agent can't go on. A finding of a review does not: it
    stands in a list or in an answer that is about other things, too."""
    if _is_listed(line):
        return False
    if len(lines) == 1 and re.fullmatch(_ABSENT_SKILL, _plain(line)) is not None:
        return True
    is_short = len(lines) <= _MAX_BLOCKED_LINES and not any(map(_is_listed, lines))
    if not is_short and (line is not lines[-1] or _plain(line).lower().startswith("failed")):
        return False
    text = " ".join(map(_plain, lines)) if is_short else _plain(line)
    return re.search(_BLOCKED, text) is not None


def _is_listed(line: str) -> bool:
    return re.match(_LIST_MARKER, line.strip()) is not None


def _plain(line: str) -> str:
    """Without markers at the start, and markup."""
    text = re.sub(rf"^(?:{_HEADING})?(?:{_LIST_MARKER})?", "", line.strip())
    return re.sub(_MARKUP, "", text).strip()


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
    plain = _plain(line)
    skills = re.fullmatch(_ASKED_SKILL, plain) or (re.fullmatch(_ABSENT_SKILL, plain) if is_failure else None)
    if skills is not None:
        names = re.split(r",\s*|\s+and\s+", skills["names"])
        return [Need("skill", name, is_asked=True) for name in names if name not in _PLACEHOLDERS]
    asked = re.fullmatch(_ASKED_FILE, plain)
    file = asked or re.fullmatch(_ABSENT_FILE if is_failure else _UNRESOLVED, plain)
    if file is not None and (asked or is_failure or not _is_listed(line)):
        return [Need("file", file["name"], asked is not None)] if file["name"] not in _PLACEHOLDERS else []
    if not is_failure:
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
