"""How skills were used in a workspace: suggested, loaded, found by search, invoked; read from the records of sessions.

Used by `kitbag skills usage` and, through library/routing/usage_prior, by the ranking. Deleting a session deletes its
part; `reset_usage` starts over without touching sessions.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from kitbag.agent.session_table import SESSION_TABLE, STREAM_PREFIX
from kitbag.errors import KitbagError
from kitbag.library.registry import Registry
from kitbag.library.routing.usage_prior import has_load_counter, set_load_counter
from kitbag.store.journal import Journal

_STREAM: Final = "skill-usage"
_MAX_SESSIONS: Final = 200
"""The newest ones count."""
_SESSIONS: Final = (
    "SELECT id FROM session_states WHERE directory = ? OR substr(directory, 1, ?) = ? ORDER BY last DESC LIMIT ?"
)
# Only the needed fields of each body: some hold whole skills or images.
_LOADED: Final = (
    "SELECT at, json_extract(body, '$.name'), json_extract(body, '$.by'), json_extract(body, '$.found') FROM records"
    " WHERE stream = ? AND seq > ? AND kind = 'skill' AND json_valid(body)"
)
_SUGGESTED_AND_INVOKED: Final = (
    "SELECT at, json_extract(body, '$.suggested'), json_extract(body, '$.one_turn') FROM records"
    " WHERE stream = ? AND seq > ? AND kind IN ('user', 'result') AND json_valid(body)"
)


class SkillUsage(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    suggested: int = 0
    """Number of messages and files it was suggested for."""
    loaded: int = 0
    """By the model."""
    loaded_after_suggestion: int = 0
    loaded_after_search: int = 0
    invoked: int = 0
    """By the user, as `/name`."""
    last: str = ""

    @property
    def score(self) -> int:
        """What counts for the ranking: the skill was needed, no matter who noticed."""
        return self.loaded + self.invoked

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "suggested": self.suggested,
            "loaded": self.loaded,
            "loaded_after_suggestion": self.loaded_after_suggestion,
            "loaded_after_search": self.loaded_after_search,
            "invoked": self.invoked,
            "last": self.last,
        }


def read_usage(journal: Journal, workspace: str) -> list[SkillUsage]:
    """Most used first. `workspace`: its root; sessions in directories below it count."""
    journal.ensure_table(SESSION_TABLE)
    since = _reset_at(journal, workspace)
    below = os.path.join(workspace, "")
    counts: dict[str, dict[str, int]] = {}
    last: dict[str, str] = {}
    for (session_id,) in journal.select(_SESSIONS, workspace, len(below), below, _MAX_SESSIONS):
        for name, at, kinds in _read_events(journal, f"{STREAM_PREFIX}{session_id}", since):
            of_skill = counts.setdefault(name, {})
            for kind in kinds:
                of_skill[kind] = of_skill.get(kind, 0) + 1
            last[name] = max(last.get(name, ""), at)
    found = [SkillUsage(name=name, last=last[name], **of_skill) for name, of_skill in counts.items()]
    return sorted(found, key=lambda one: (-one.score, -one.suggested, one.name.lower()))


def _read_events(journal: Journal, stream: str, since: int) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """(skill, time, what happened)"""
    for at, name, by, found in journal.select(_LOADED, stream, since):
        if isinstance(name, str) and by == "model":
            how = {"suggestion": ("loaded_after_suggestion",), "search": ("loaded_after_search",)}
            yield name, str(at), ("loaded", *how.get(str(found), ()))
    for at, suggested, one_turn in journal.select(_SUGGESTED_AND_INVOKED, stream, since):
        for name in _decode(suggested, list[str]) or ():
            yield name, str(at), ("suggested",)
        for _, name in _decode(one_turn, list[tuple[int, str]]) or ():
            yield name, str(at), ("invoked",)


T = TypeVar("T")


def _decode(text: object, kind: type[T]) -> T | None:
    with contextlib.suppress(msgspec.MsgspecError, RecursionError):  # a record of another version
        return msgspec.json.decode(text, type=kind) if isinstance(text, str) else None
    return None


def reset_usage(journal: Journal, workspace: str) -> None:
    """What was used before this no longer counts; the sessions stay."""
    journal.append(_STREAM, "reset", {"workspace": workspace})


def _reset_at(journal: Journal, workspace: str) -> int:
    resets = [record.seq for record in journal.read(_STREAM) if record.body.get("workspace") == workspace]
    return max(resets, default=0)


def learn_from_sessions(library: Registry, journal: Journal) -> None:
    """Lets the ranking of this library use the counts, which are read at the first search."""
    if not has_load_counter(library):
        set_load_counter(library, lambda: count_loads(journal, library.places.project))


def count_loads(journal: Journal, workspace: str) -> Mapping[str, int]:
    """How often each skill was needed. Never raises for a damaged journal: the ranking works without."""
    with contextlib.suppress(KitbagError, sqlite3.Error):
        return {usage.name: usage.score for usage in read_usage(journal, workspace)}
    return {}
