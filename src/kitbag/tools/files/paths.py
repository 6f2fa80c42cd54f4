"""The place that a tool was allowed to use, looked at once more when it is used, and how places are shown.

Used by the tools for files. What a person or a rule allowed was a path; between that and now a link may have been
exchanged. So whatever a path leads to has to be allowed by itself, and it is then opened without following a link.
"""

import os
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from kitbag.errors import InvalidError
from kitbag.permissions.model import PermissionDecision, is_inside
from kitbag.permissions.paths import PathFacts, examine_path
from kitbag.permissions.rules.rule import EDIT_TOOLS
from kitbag.text.hidden_characters import reveal_hidden
from kitbag.tools.base import ToolContext, ToolOutput, error_output

_MAX_NAMES = 5_000
_MAX_SUGGESTIONS = 3


class AuthorizedPath(NamedTuple):
    facts: PathFacts
    approved_reasons: frozenset[tuple[str, str, str]]
    """What a person was asked and said yes to: (reason, rule, where the rule stands)."""
    read_tool: str = "Read"
    """The tool whose rules count for what is found there: the searching one itself for an agent without Read."""


def authorize_path(context: ToolContext, tool: str, arguments: Mapping[str, Any], path: str) -> AuthorizedPath:
    """Raises InvalidError. An `ask` counts as answered: a call that was not allowed does not come here."""
    facts = examine_path(path, context.workspace, context.directory)
    judgement = context.permissions.decide(tool, arguments, context.directory)
    if judgement.effect == "deny" or facts.special_reason:
        raise InvalidError(f"{path} can't be used: {facts.special_reason or judgement.reason}")
    if facts.requested != facts.resolved:
        judgement = _decide(context, tool, facts.resolved)
        agreed = judgement.effect == "ask" and (
            _approved_link_target(context, tool, facts) or _approved_inside_workspace(context, tool, facts)
        )
        if judgement.effect != "allow" and not agreed:
            problem = f"{path} leads to {facts.resolved}, which is not allowed with it: {judgement.reason}"
            raise InvalidError(problem, f"Use {facts.resolved} itself.")
    return AuthorizedPath(facts, _reasons_to_ask(judgement), "Read" if context.permissions.has_tool("Read") else tool)


def _approved_link_target(context: ToolContext, tool: str, facts: PathFacts) -> bool:
    """Whether the person who was asked about a link was told where it leads, and it still leads there."""
    judgement = context.decision
    if judgement is None or judgement.effect != "ask" or tool not in ("Read", *EDIT_TOOLS):
        return False
    told = [part.reason.partition(", to /")[2] for part in judgement.parts if part.effect != "allow"]
    return all(place == facts.resolved[1:] for place in told)


def _approved_inside_workspace(context: ToolContext, tool: str, facts: PathFacts) -> bool:
    """Whether the person who agreed to a change would be asked nothing else about what the link leads to: a file of
    the workspace that is like any other."""
    if (
        context.decision is None
        or tool not in EDIT_TOOLS
        or not facts.writable
        or facts.control_reason
        or facts.private_reason
    ):
        return False
    return _reasons_to_ask(_decide(context, tool, facts.resolved)) <= _reasons_to_ask(context.decision)


def can_read(context: ToolContext, path: str, authorized: AuthorizedPath) -> bool:
    """Whether a file that was found below a place may be shown. A person's answer about the place covers what is
    asked for the very same reason, and no more: not a key file in a folder outside that they opened.
    """
    judgement = _decide(context, authorized.read_tool, path)
    if judgement.effect == "ask":
        return _reasons_to_ask(judgement) <= authorized.approved_reasons
    return judgement.effect == "allow"


def _decide(context: ToolContext, tool: str, path: str) -> PermissionDecision:
    return context.permissions.decide(tool, {"file_path" if tool == "Read" else "path": path}, context.directory)


def _reasons_to_ask(judgement: PermissionDecision) -> frozenset[tuple[str, str, str]]:
    return frozenset((part.reason, part.rule, part.source) for part in judgement.parts if part.effect != "allow")


def display_path(path: str, context: ToolContext) -> str:
    """As a model can use it: relative to where it works when it is inside, and on one line whatever it is called."""
    if is_inside(path, context.directory):
        path = os.path.relpath(path, context.directory)
    return visible_line(path)


def visible_line(text: str) -> str:
    """Of something that stands in a line: hidden characters and line breaks can be seen."""
    return reveal_hidden(text).replace("\n", "[U+000A]").replace("\t", "[U+0009]")


def number_of(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def error_to_output(error: InvalidError) -> ToolOutput:
    return error_output(visible_line(error.problem), visible_line(error.fix))


def missing_path_output(context: ToolContext, facts: PathFacts) -> ToolOutput:
    """For a path that does not exist: names in the same folder that are close to it."""
    close = [display_path(path, context) for path in _similar_paths(context, facts)]
    fix = f"Did you mean {' or '.join(close)}?" if close else "Use Glob to find it."
    return error_output(f"{display_path(facts.requested, context)} does not exist", fix)


def _similar_paths(context: ToolContext, facts: PathFacts) -> list[str]:
    folder, name = os.path.split(facts.resolved)
    if not examine_path(folder, context.workspace).readable:
        return []
    names: dict[str, str] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                names.setdefault(entry.name.casefold(), entry.name)
                if len(names) >= _MAX_NAMES:
                    break
    except OSError:
        return []
    place = AuthorizedPath(facts, frozenset())
    found = [f"{folder}/{names[close]}" for close in get_close_matches(name.casefold(), names, _MAX_SUGGESTIONS, 0.6)]
    return [path for path in found if can_read(context, path, place)]
