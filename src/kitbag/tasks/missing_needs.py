"""Reads which skill or file an agent reports as missing, and adds it to the request for a restart.

Used by runner. Only the last line of the answer counts, and only existing items that the agent may access are added.
"""

import html
import re
from typing import Final

import msgspec

from kitbag.errors import KitbagError
from kitbag.permissions.paths import examine_path
from kitbag.permissions.safe_open import open_for_reading
from kitbag.tasks.subagent import Subagent
from kitbag.tasks.task import TaskRequest, TaskResult

MAX_FILE_BYTES: Final = 60_000
_SKILL_NEED = re.compile(r"need skill:\s*`?([^\s`]+)`?\s*", re.IGNORECASE)
_FILE_NEED = re.compile(
    r"(?:need (?:file|context):|unresolved (?:reference)?:?|missing (?:context|file|reference):)"
    r"\s*`?@?([^\s`]+)`?\s*",
    re.IGNORECASE,
)


def request_with_missing_needs(result: TaskResult, request: TaskRequest, agent: Subagent) -> TaskRequest | None:
    """The request with the missing skill or file; None if nothing can be added."""
    if result.status not in ("completed", "failed"):
        return None
    last = (result.text.strip().splitlines() or [""])[-1].strip()
    skill, file = _SKILL_NEED.fullmatch(last), _FILE_NEED.fullmatch(last)
    if skill is not None:
        return _add_skill(request, skill[1], agent)
    return _add_file(request, file[1].rstrip("."), agent) if file is not None else None


def _add_skill(request: TaskRequest, name: str, agent: Subagent) -> TaskRequest | None:
    try:
        skill = agent.skills.find(name)
    except KitbagError:
        return None
    loaded = agent.definition.skills if agent.definition is not None else ()
    return (
        None
        if skill.full_name in loaded
        else msgspec.structs.replace(request, skills=(*request.skills, skill.full_name))
    )


def _add_file(request: TaskRequest, path: str, agent: Subagent) -> TaskRequest | None:
    context = agent.context
    decision = agent.permissions.decide("Read", {"file_path": path}, context.directory)
    tag = f'<file path="{html.escape(path)}">'
    if decision.effect != "allow" or tag in request.prompt:
        return None
    try:
        facts = examine_path(path, context.workspace, context.directory)
        descriptor = open_for_reading(facts.resolved, context.workspace, expected_resolved=facts.resolved)
        with open(descriptor, "rb") as file:
            text = file.read(MAX_FILE_BYTES).decode("utf-8", "replace")
    except (KitbagError, OSError):
        return None
    escaped = text.replace("</file", "<\\/file")
    return msgspec.structs.replace(request, prompt=f"{request.prompt}\n\n{tag}\n{escaped}\n</file>")
