"""The place that a tool was allowed to use, looked at once more when it is used, and how places are shown.

Used by the tools for files. What a person or a rule allowed was a path; between that and now a link may have been
exchanged. So whatever a path leads to has to be allowed by itself, and it is then opened without following a link.
"""

import os
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from kitbag.errors import InvalidError
from kitbag.permissions.model import Judgement, is_inside
from kitbag.permissions.paths import Facts, examine
from kitbag.permissions.rules.rule import EDIT_TOOLS
from kitbag.text.hidden_characters import reveal_hidden
from kitbag.tools.base import Context, Outcome, failure

_MOST_NAMES = 5_000
_CLOSE_NAMES = 3


class Place(NamedTuple):
    facts: Facts
    answered: frozenset[tuple[str, str, str]]
    """What a person was asked and said yes to: (reason, rule, where the rule stands)."""
    reader: str = "Read"
    """The tool whose rules count for what is found there: the searching one itself for an agent without Read."""


def settle(context: Context, tool: str, arguments: Mapping[str, Any], path: str) -> Place:
    """Raises InvalidError. An `ask` counts as answered: a call that was not allowed does not come here."""
    facts = examine(path, context.workspace, context.directory)
    judgement = context.permissions.decide(tool, arguments, context.directory)
    if judgement.effect == "deny" or facts.special:
        raise InvalidError(f"{path} can't be used: {facts.special or judgement.reason}")
    if facts.requested != facts.resolved:
        judgement = _decide(context, tool, facts.resolved)
        agreed = judgement.effect == "ask" and (_agreed(context, tool, facts) or _agreed_inside(context, tool, facts))
        if judgement.effect != "allow" and not agreed:
            problem = f"{path} leads to {facts.resolved}, which is not allowed with it: {judgement.reason}"
            raise InvalidError(problem, f"Use {facts.resolved} itself.")
    return Place(facts, _asked(judgement), "Read" if context.permissions.has("Read") else tool)


def _agreed(context: Context, tool: str, facts: Facts) -> bool:
    """Whether the person who was asked about a link was told where it leads, and it still leads there."""
    judgement = context.judgement
    if judgement is None or judgement.effect != "ask" or tool not in ("Read", *EDIT_TOOLS):
        return False
    told = [part.reason.partition(", to /")[2] for part in judgement.parts if part.effect != "allow"]
    return all(place == facts.resolved[1:] for place in told)


def _agreed_inside(context: Context, tool: str, facts: Facts) -> bool:
    """Whether the person who agreed to a change would be asked nothing else about what the link leads to: a file of
    the workspace that is like any other."""
    if context.judgement is None or tool not in EDIT_TOOLS or not facts.writable or facts.control or facts.private:
        return False
    return _asked(_decide(context, tool, facts.resolved)) <= _asked(context.judgement)


def may_read(context: Context, path: str, place: Place) -> bool:
    """Whether a file that was found below a place may be shown. A person's answer about the place covers what is
    asked for the very same reason, and no more: not a key file in a folder outside that they opened.
    """
    judgement = _decide(context, place.reader, path)
    if judgement.effect == "ask":
        return _asked(judgement) <= place.answered
    return judgement.effect == "allow"


def _decide(context: Context, tool: str, path: str) -> Judgement:
    return context.permissions.decide(tool, {"file_path" if tool == "Read" else "path": path}, context.directory)


def _asked(judgement: Judgement) -> frozenset[tuple[str, str, str]]:
    return frozenset((part.reason, part.rule, part.source) for part in judgement.parts if part.effect != "allow")


def shown(path: str, context: Context) -> str:
    """As a model can use it: relative to where it works when it is inside, and on one line whatever it is called."""
    if is_inside(path, context.directory):
        path = os.path.relpath(path, context.directory)
    return visible(path)


def visible(text: str) -> str:
    """Of something that stands in a line: hidden characters and line breaks can be seen."""
    return reveal_hidden(text).replace("\n", "[U+000A]").replace("\t", "[U+0009]")


def number_of(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def refused(error: InvalidError) -> Outcome:
    return failure(visible(error.problem), visible(error.fix))


def missing(context: Context, facts: Facts) -> Outcome:
    """For a path that does not exist: names in the same folder that are close to it."""
    close = [shown(path, context) for path in _close_paths(context, facts)]
    fix = f"Did you mean {' or '.join(close)}?" if close else "Use Glob to find it."
    return failure(f"{shown(facts.requested, context)} does not exist", fix)


def _close_paths(context: Context, facts: Facts) -> list[str]:
    folder, name = os.path.split(facts.resolved)
    if not examine(folder, context.workspace).readable:
        return []
    names: dict[str, str] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                names.setdefault(entry.name.casefold(), entry.name)
                if len(names) >= _MOST_NAMES:
                    break
    except OSError:
        return []
    place = Place(facts, frozenset())
    found = [f"{folder}/{names[close]}" for close in get_close_matches(name.casefold(), names, _CLOSE_NAMES, 0.6)]
    return [path for path in found if may_read(context, path, place)]
