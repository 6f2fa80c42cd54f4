"""Authorizes a tool's path again when the tool uses it, and formats paths for the model.

Used by the file tools. A user or a rule allowed a path, but a link may have been replaced since. So the target of a
path must be allowed itself, and is then opened without following links.
"""

import os
from collections.abc import Mapping
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
    """What the user was asked and approved: (reason, rule, the rule's source)."""
    read_tool: str = "Read"
    """The tool whose rules apply to files found below the path: the search tool itself for an agent without Read."""


def authorize_path(context: ToolContext, tool: str, arguments: Mapping[str, Any], path: str) -> AuthorizedPath:
    """Raises InvalidError. An `ask` counts as approved: a call that was denied does not get here."""
    facts = examine_path(path, context.workspace, context.directory)
    decision = context.permissions.decide(tool, arguments, context.directory)
    if decision.effect == "deny" or facts.special_reason:
        raise InvalidError(f"cannot use {path}: {facts.special_reason or decision.reason}")
    if facts.requested != facts.resolved:
        decision = _decide(context, tool, facts.resolved)
        approved = decision.effect == "ask" and (
            _approved_link_target(context, tool, facts) or _approved_inside_workspace(context, tool, facts)
        )
        if decision.effect != "allow" and not approved:
            problem = f"{path} resolves to {facts.resolved}, which was not approved: {decision.reason}"
            raise InvalidError(problem, f"Use {facts.resolved} directly.")
    return AuthorizedPath(facts, _reasons_to_ask(decision), "Read" if context.permissions.has_tool("Read") else tool)


def _approved_link_target(context: ToolContext, tool: str, facts: PathFacts) -> bool:
    """Whether the user was shown the link's target when asked, and it still has that target."""
    decision = context.decision
    if decision is None or decision.effect != "ask" or tool not in ("Read", *EDIT_TOOLS):
        return False
    shown_targets = [part.reason.partition(", to /")[2] for part in decision.parts if part.effect != "allow"]
    return all(target == facts.resolved[1:] for target in shown_targets)


def _approved_inside_workspace(context: ToolContext, tool: str, facts: PathFacts) -> bool:
    """Whether a user who approved an edit would be asked nothing else about the link's target: an ordinary file of the
    workspace."""
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
    """Whether a file found below the path may be shown. The user's approval of the path covers asking for exactly the
    same reasons and nothing more: not a key file in an outside folder that they opened."""
    decision = _decide(context, authorized.read_tool, path)
    if decision.effect == "ask":
        return _reasons_to_ask(decision) <= authorized.approved_reasons
    return decision.effect == "allow"


def _decide(context: ToolContext, tool: str, path: str) -> PermissionDecision:
    return context.permissions.decide(tool, {"file_path" if tool == "Read" else "path": path}, context.directory)


def _reasons_to_ask(decision: PermissionDecision) -> frozenset[tuple[str, str, str]]:
    return frozenset((part.reason, part.rule, part.source) for part in decision.parts if part.effect != "allow")


def display_path(path: str, context: ToolContext) -> str:
    """As the model can use it: relative to the working directory if inside it, and always on one line."""
    if is_inside(path, context.directory):
        path = os.path.relpath(path, context.directory)
    return visible_line(path)


def visible_line(text: str) -> str:
    """Text for one line: makes hidden characters and line breaks visible."""
    return reveal_hidden(text).replace("\n", "[U+000A]").replace("\t", "[U+0009]")


def error_to_output(error: InvalidError) -> ToolOutput:
    return error_output(visible_line(error.problem), visible_line(error.fix))


def missing_path_output(context: ToolContext, facts: PathFacts) -> ToolOutput:
    """For a path that does not exist: suggests similar names in the same folder."""
    close = [display_path(path, context) for path in _similar_paths(context, facts)]
    fix = f"Did you mean {' or '.join(close)}?" if close else "Use Glob to find it."
    return error_output(f"{display_path(facts.requested, context)} does not exist", fix)


def _similar_paths(context: ToolContext, facts: PathFacts) -> list[str]:
    from difflib import get_close_matches

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
    authorized = AuthorizedPath(facts, frozenset())
    found = [f"{folder}/{names[close]}" for close in get_close_matches(name.casefold(), names, _MAX_SUGGESTIONS, 0.6)]
    return [path for path in found if can_read(context, path, authorized)]
