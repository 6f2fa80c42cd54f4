"""Patches of tasks that work in a clone, in the journal: what the submitter had not committed, and what runs returned.

Used by the board, the worker, runner and `kitbag tasks apply`. They are in streams of their own, so that only machines
that need a patch fetch it. Before reading in an event loop, call `Journal.fetch_async` with the stream.
"""

import hashlib
import os
from typing import Any, Final, Literal

from kitbag.errors import InvalidError
from kitbag.store.briefs import register_briefs
from kitbag.store.journal import Journal, JournalEntry
from kitbag.tasks.owner import this_process

PATCH_STREAM_PREFIX: Final = "patch/"
PatchKind = Literal["uncommitted", "returned"]
_CHUNK_CHARACTERS: Final = 500_000


def patch_hash(patch: bytes) -> str:
    return hashlib.sha256(patch).hexdigest()


def patch_entries(task_id: str, kind: PatchKind, name: str, patch: bytes) -> list[JournalEntry]:
    """`name` ends with its hash. Files may have any encoding: their bytes become half characters, which the journal
    stores."""
    text = patch.decode("utf-8", "surrogateescape")
    chunks = [text[start : start + _CHUNK_CHARACTERS] for start in range(0, len(text), _CHUNK_CHARACTERS)] or [""]
    return [JournalEntry(PATCH_STREAM_PREFIX + task_id, kind, {"name": name, "text": chunk}) for chunk in chunks]


async def store_returned_patch(journal: Journal, task_id: str, patch: bytes) -> str:
    """Also an empty one, which says that nothing changed. Returns its name."""
    name = f"{os.urandom(4).hex()}-{patch_hash(patch)}"
    await journal.write_all(patch_entries(task_id, "returned", name, patch))
    return name


def read_patch(journal: Journal, task_id: str, kind: PatchKind, name: str) -> bytes:
    """Raises InvalidError if it is not what was written: a secret in it was redacted."""
    chunks = [
        str(record.body["text"])
        for record in journal.read(PATCH_STREAM_PREFIX + task_id, kind=kind)
        if record.body["name"] == name
    ]
    patch = "".join(chunks).encode("utf-8", "surrogateescape")
    if patch_hash(patch) != name.rpartition("-")[2]:
        found = last_checkout(journal, task_id)
        place = f"{found[1]} on {found[0]} has them" if found is not None else "commit and push them instead"
        problem = f"the changes of task {task_id} contain a secret, which the journal does not store"
        raise InvalidError(problem, place)
    return patch


def last_returned_patch(journal: Journal, task_id: str) -> bytes | None:
    """What the last run that ended in a clone changed; None: no run did. Raises InvalidError."""
    records = journal.read(PATCH_STREAM_PREFIX + task_id, kind="returned")
    names = [str(record.body["name"]) for record in records]
    return read_patch(journal, task_id, "returned", names[-1]) if names else None


def last_checkout(journal: Journal, task_id: str) -> tuple[str, str] | None:
    """(machine, path) of the clone in which it ran last."""
    found = [record.body for record in journal.read(PATCH_STREAM_PREFIX + task_id, kind="checkout")]
    return (str(found[-1]["machine"]), str(found[-1]["path"])) if found else None


async def record_checkout(journal: Journal, task_id: str, path: str) -> None:
    body = {"machine": this_process().machine.partition("/")[0], "path": path}
    if last_checkout(journal, task_id) != (body["machine"], path):
        await journal.write(PATCH_STREAM_PREFIX + task_id, "checkout", body)


def _shorten(kind: str, body: dict[str, Any]) -> dict[str, Any] | None:
    return None if kind == "checkout" else {"name": body["name"], "text": ""}


register_briefs(PATCH_STREAM_PREFIX, _shorten)
