"""What is written down about a change of files: what was at a place before, and what is there after it.

Values, and their form in the journal. Used by changes, which writes them, and by undo, which reads them.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

from kitbag.store.content_store import ContentStore
from kitbag.store.journal import Journal

CHANGE: Final = "change"
"""A call changed files."""
UNDOING: Final = "undoing"
"""Files are about to be restored; `undone` follows when all of them are."""
UNDONE: Final = "undone"
REDONE: Final = "redone"

FileKind = Literal["file", "link", "folder"]
_FILE_KINDS: Final = ("file", "link", "folder")
_MAX_CHANGES_IN_RECORD = 500
NOT_STORED_PREFIX: Final = "~"
"""A digest that begins so only tells one content from another: the bytes are not kept."""
UNKNOWN_MODE: Final = -1
"""The permission bits that are not known, or that there are none of."""


class FileState(NamedTuple):
    """What is at a place; None stands for nothing."""

    kind: FileKind
    digest: str = ""
    """Of a file's bytes or of where a link leads; empty for a folder."""
    mode: int = UNKNOWN_MODE
    """Its permission bits."""


class FileChange(NamedTuple):
    path: str
    """Absolute, with all links followed but for its last part."""
    before: FileState | None
    after: FileState | None
    predates_command: bool = False
    """It appeared during a command and is older than it: perhaps it was moved here from where nobody looks."""


class ChangeRecord(NamedTuple):
    """Of a record."""

    files: tuple[FileChange, ...]
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


def encode_change_record(record: ChangeRecord, journal: Journal, content_store: ContentStore) -> dict[str, Any]:
    """A path that looks like a secret would be redacted in the journal, so such a list is kept beside it; so is a
    long one."""
    files = [_encode_change(change) for change in record.files]
    named = {
        "call": record.call,
        "by": record.by,
        "turn": record.turn,
        "interrupted": record.interrupted,
        "told": record.told,
    }
    body: dict[str, Any] = {name: value for name, value in named.items() if value}
    if len(files) > _MAX_CHANGES_IN_RECORD or journal.redactor.redact_value(files) != files:
        return {**body, "count": len(files), "kept": content_store.put(json.dumps(files).encode("ascii"))}
    return {**body, "files": files}


def decode_change_record(body: dict[str, Any], content_store: ContentStore) -> ChangeRecord:
    """Never raises for what is in the journal; what can't be read is said in `problem`."""
    problem = ""
    files: list[FileChange] = []
    try:
        written: Any = body.get("files")
        if written is None:
            data = content_store.get(str(body["kept"]))
            problem = "" if data is not None else "the list of its files is no longer kept"
            written = json.loads(data) if data is not None else []
        files = [_decode_change(one) for one in written]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError):
        problem = "its record is damaged"
    return ChangeRecord(
        tuple(files),
        str(body.get("call", "")),
        str(body.get("by", "")),
        body["turn"] if isinstance(body.get("turn"), int) else 0,
        body.get("interrupted") is True,
        str(body.get("told", "")),
        problem,
    )


def _encode_change(change: FileChange) -> list[Any]:
    states = [list(state) if state is not None else None for state in (change.before, change.after)]
    return [change.path, *states, change.predates_command]


def _decode_change(encoded: Any) -> FileChange:
    path, before, after, older = encoded
    if not isinstance(path, str) or not path.startswith("/"):
        raise ValueError("it is no path")
    return FileChange(path, _decode_state(before), _decode_state(after), older is True)


def _decode_state(encoded: Iterable[Any] | None) -> FileState | None:
    if encoded is None:
        return None
    kind, digest, mode = encoded
    if kind not in _FILE_KINDS or not isinstance(digest, str) or not isinstance(mode, int):
        raise ValueError("it is no state of a file")
    return FileState(kind, digest, mode if mode == UNKNOWN_MODE else mode & 0o7777)
