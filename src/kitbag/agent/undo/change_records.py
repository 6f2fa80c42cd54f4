"""What is written down about a change of files: what was at a place before, and what is there after it.

Values, and their form in the journal. Used by changes, which writes them, and by undo, which reads them.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

from kitbag.store.content_store import KeptFiles
from kitbag.store.journal import Journal

CHANGE: Final = "change"
"""A call changed files."""
UNDOING: Final = "undoing"
"""Files are about to be restored; `undone` follows when all of them are."""
UNDONE: Final = "undone"
REDONE: Final = "redone"

Kind = Literal["file", "link", "folder"]
_KINDS: Final = ("file", "link", "folder")
_MOST_IN_RECORD = 500
UNKEPT: Final = "~"
"""A digest that begins so only tells one content from another: the bytes are not kept."""
UNKNOWN: Final = -1
"""The permission bits that are not known, or that there are none of."""


class State(NamedTuple):
    """What is at a place; None stands for nothing."""

    kind: Kind
    digest: str = ""
    """Of a file's bytes or of where a link leads; empty for a folder."""
    mode: int = UNKNOWN
    """Its permission bits."""


class Change(NamedTuple):
    path: str
    """Absolute, with all links followed but for its last part."""
    before: State | None
    after: State | None
    older: bool = False
    """It appeared during a command and is older than it: perhaps it was moved here from where nobody looks."""


class Body(NamedTuple):
    """Of a record."""

    files: tuple[Change, ...]
    call: str = ""
    by: str = ""
    """The tool."""
    turn: int = 0
    interrupted: bool = False
    """The command ended with its session, so all that changed since is counted as its."""
    told: str = ""
    """For the model, when it is asked the next time."""
    problem: str = ""
    """Why `files` can't be read any more."""


def to_body(made: Body, journal: Journal, kept: KeptFiles) -> dict[str, Any]:
    """A path that looks like a secret would be redacted in the journal, so such a list is kept beside it; so is a
    long one."""
    files = [_to_list(change) for change in made.files]
    named = {"call": made.call, "by": made.by, "turn": made.turn, "interrupted": made.interrupted, "told": made.told}
    body: dict[str, Any] = {name: value for name, value in named.items() if value}
    if len(files) > _MOST_IN_RECORD or journal.redactor.value(files) != files:
        return {**body, "count": len(files), "kept": kept.put(json.dumps(files).encode("ascii"))}
    return {**body, "files": files}


def from_body(body: dict[str, Any], kept: KeptFiles) -> Body:
    """Never raises for what is in the journal; what can't be read is said in `problem`."""
    problem = ""
    files: list[Change] = []
    try:
        written: Any = body.get("files")
        if written is None:
            data = kept.get(str(body["kept"]))
            problem = "" if data is not None else "the list of its files is no longer kept"
            written = json.loads(data) if data is not None else []
        files = [_from_list(one) for one in written]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError):
        problem = "its record is damaged"
    return Body(
        tuple(files),
        str(body.get("call", "")),
        str(body.get("by", "")),
        body["turn"] if isinstance(body.get("turn"), int) else 0,
        body.get("interrupted") is True,
        str(body.get("told", "")),
        problem,
    )


def _to_list(change: Change) -> list[Any]:
    states = [list(state) if state is not None else None for state in (change.before, change.after)]
    return [change.path, *states, change.older]


def _from_list(written: Any) -> Change:
    path, before, after, older = written
    if not isinstance(path, str) or not path.startswith("/"):
        raise ValueError("it is no path")
    return Change(path, _state(before), _state(after), older is True)


def _state(written: Iterable[Any] | None) -> State | None:
    if written is None:
        return None
    kind, digest, mode = written
    if kind not in _KINDS or not isinstance(digest, str) or not isinstance(mode, int):
        raise ValueError("it is no state of a file")
    return State(kind, digest, mode if mode == UNKNOWN else mode & 0o7777)
