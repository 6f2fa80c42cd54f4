"""Journal records of file changes: what each path was before and what it is after.

Written by session_changes, read by plan.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

import msgspec

from kitbag.store.content_store import ContentStore
from kitbag.store.journal import Journal

CHANGE: Final = "change"
"""A call changed files."""
UNDOING: Final = "undoing"
"""Files are about to be restored; `undone` follows when all of them are."""
UNDONE: Final = "undone"
REDOING: Final = "redoing"
"""What was undone is about to be re-applied; `redone` follows."""
REDONE: Final = "redone"

FileKind = Literal["file", "link", "folder"]
_FILE_KINDS: Final = ("file", "link", "folder")
_MAX_CHANGES_IN_RECORD = 500
NOT_STORED_PREFIX: Final = "~"
"""A digest with this prefix identifies content whose bytes are not stored."""
UNKNOWN_MODE: Final = -1
"""Permission bits that are unknown or don't exist."""


class FileState(NamedTuple):
    """What is at a path; None: nothing."""

    kind: FileKind
    digest: str = ""
    """Of a file's bytes or a link's target; empty for a folder."""
    mode: int = UNKNOWN_MODE
    """Permission bits."""


class PathChange(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    """Absolute; links are resolved except in the last component."""
    before: FileState | None
    after: FileState | None
    predates_command: bool = False
    """The file appeared during a command but is older than it: it may have been moved from outside the workspace."""
    call: str = ""
    """Of the record."""
    happened: bool = False
    """Known to have happened: a tool that edits files records a change before it makes it. Not stored."""


class ChangeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The body of one record."""

    files: tuple[PathChange, ...]
    call: str = ""
    by: str = ""
    """The tool."""
    message: int = 0
    """For a background command: the message that started it, if its call is not in the session."""
    through: int = 0
    """A rewind undoes all messages from `message` to this one together; 0: only `message`."""
    interrupted: bool = False
    """The command was killed with its session; all changes since then are attributed to it."""
    model_notice: str = ""
    """A notice for the model, sent with its next request."""
    problem: str = ""
    """Why `files` can't be read."""


def encode_change_record(record: ChangeRecord, journal: Journal, content_store: ContentStore) -> dict[str, Any]:
    """A list with a path that the journal would redact is stored beside the journal, and so is a long list."""
    files = [_encode_change(change) for change in record.files]
    named = {
        "call": record.call,
        "by": record.by,
        "turn": record.message,
        "through": record.through,
        "interrupted": record.interrupted,
        "told": record.model_notice,
    }
    body: dict[str, Any] = {name: value for name, value in named.items() if value}
    if len(files) > _MAX_CHANGES_IN_RECORD or journal.redactor.redact_value(files) != files:
        return {**body, "count": len(files), "kept": content_store.put(json.dumps(files).encode("ascii"))}
    return {**body, "files": files}


def decode_change_record(body: dict[str, Any], content_store: ContentStore) -> ChangeRecord:
    """Never raises for a damaged record; `problem` says what is wrong."""
    problem = ""
    files: list[PathChange] = []
    try:
        encoded: Any = body.get("files")
        if encoded is None:
            data = content_store.get(str(body["kept"]))
            problem = "" if data is not None else "the list of changed files is no longer stored"
            encoded = json.loads(data) if data is not None else []
        files = [_decode_change(item) for item in encoded]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError):
        problem = "the record is damaged"
    return ChangeRecord(
        files=tuple(files),
        call=str(body.get("call", "")),
        by=str(body.get("by", "")),
        message=body["turn"] if isinstance(body.get("turn"), int) else 0,
        through=body["through"] if isinstance(body.get("through"), int) else 0,
        interrupted=body.get("interrupted") is True,
        model_notice=str(body.get("told", "")),
        problem=problem,
    )


def _encode_change(change: PathChange) -> list[Any]:
    return [change.path, _encode_state(change.before), _encode_state(change.after), change.predates_command]


def _encode_state(state: FileState | None) -> list[Any] | None:
    return None if state is None else [state.kind, state.digest, state.mode]


def _decode_change(encoded: Any) -> PathChange:
    path, before, after, older = encoded
    if not isinstance(path, str) or not path.startswith("/"):
        raise ValueError("not a path")
    return PathChange(
        path=path, before=_decode_state(before), after=_decode_state(after), predates_command=older is True
    )


def _decode_state(encoded: Iterable[Any] | None) -> FileState | None:
    if encoded is None:
        return None
    kind, digest, mode = encoded
    if kind not in _FILE_KINDS or not isinstance(digest, str) or not isinstance(mode, int):
        raise ValueError("not a file state")
    return FileState(kind, digest, mode if mode == UNKNOWN_MODE else mode & 0o7777)
