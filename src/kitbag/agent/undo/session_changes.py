"""Keeps what the tools of a session are about to change, so that `kitbag undo` can take it back.

Given to tools as their Context's `changes`. Bytes go to store/kept_files, what happened to the session's stream in the
journal. A tool that knows what it changes says so beforehand; round a command the workspace is looked at twice. An
edit by somebody else while a command runs can't be told from the command's.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Final

from kitbag.agent.session import PREFIX, Session
from kitbag.agent.shield import to_its_end
from kitbag.agent.undo.change_records import CHANGE, UNKNOWN, Body, Change, State, to_body
from kitbag.agent.undo.snapshot import Limits, Look, TooMuchError, differences, look_at
from kitbag.agent.undo.snapshot_cache import LookFiles
from kitbag.errors import KitbagError
from kitbag.events import Notice
from kitbag.permissions.model import Workspace
from kitbag.permissions.paths import follow
from kitbag.processes.run_process import in_thread
from kitbag.store.content_store import KeptFiles, digest_of
from kitbag.store.journal import Journal

Tell = Callable[[Notice], None]
_SECONDS_AFTER: Final = 15.0
"""A look after a command may take longer than the one before it: it decides whether that can be undone at all."""
_TRIES = 3
_CANT: Final = "what commands change in this workspace can't be undone"
_FAILURES = (KitbagError, OSError, ValueError, RecursionError)
_BEFORE = Limits()


class SessionChanges:
    """One of these for a session that runs. `tell` may be exchanged: whoever watches hears what can't be undone."""

    def __init__(
        self, session: Session, workspace: Workspace, tell: Tell, *, record_in: str = "", limits: Limits = _BEFORE
    ) -> None:
        """`record_in` is the session whose turn this belongs to, where that is another one: of an agent that an agent
        started, the one that a person talks to."""
        self.tell = tell
        self._session = session
        self._record_in = record_in
        self._stream = PREFIX + (record_in or session.id)
        self._kept = KeptFiles(workspace.kitbag_home)
        self._looks = Looks(workspace, session.id, self._kept, limits)
        self._off = ""
        """Why commands can't be undone here; then nobody looks any more."""
        self._failed = 0
        self._pruned = False

    async def keep(self, call_id: str, path: str, before: bytes | None, after: bytes | None) -> None:
        """Raises StoreError: then nothing may be changed."""
        await to_its_end(self._keep(call_id, path, before, after))

    async def _keep(self, call_id: str, path: str, before: bytes | None, after: bytes | None) -> None:
        changes = await asyncio.to_thread(_change_of, self._kept, path, before, after)
        await self._record(call_id, changes)
        await self._prune()

    @contextlib.asynccontextmanager
    async def around_command(self, call_id: str) -> AsyncGenerator[None, None]:
        """Never fails: where it can't look, the person is told once and the command runs."""
        before = await self._before(call_id)
        try:
            yield
        finally:
            if before is not None:
                await to_its_end(self._after(call_id, before))

    async def _before(self, call_id: str) -> Look | None:
        if self._off:
            return None
        try:
            cut_off = await asyncio.to_thread(self._looks.recover)
            if cut_off is not None:
                await self._record(cut_off[0], cut_off[1], interrupted=True)
                self._looks.recovered()
            return await in_thread(lambda stop: self._looks.before(call_id, stop))
        except asyncio.CancelledError:
            self._looks.done()  # the command will not run
            raise
        except TooMuchError as error:
            self._failed += 1
            # What was read is known now, so the next try comes further.
            if error.far is None or self._failed >= _TRIES:
                self._off = error.why
            if self._failed == 1 or (self._off and self._failed == _TRIES):
                again = "" if self._off else "; the next command tries again"
                self.tell(Notice("warning", f"{_CANT}: {error.why}{again}", "commit, or keep a copy, before you start"))
        except _FAILURES as error:
            self._off = _words(error)
            self.tell(Notice("warning", f"{_CANT}: {self._off}", getattr(error, "fix", "")))
        return None

    async def _after(self, call_id: str, before: Look) -> None:
        try:
            changes = await asyncio.to_thread(self._looks.after, before)
            if changes:
                await self._record(call_id, changes)
        except TooMuchError as error:
            self.tell(Notice("warning", f"what this command changed can't be undone: {error.why}"))
        except _FAILURES as error:
            self.tell(Notice("warning", f"what this command changed can't be undone: {_words(error)}"))
        finally:
            self._looks.done()
        await self._prune()

    async def _record(self, call_id: str, changes: Iterable[Change], interrupted: bool = False) -> None:
        call = self._session.called.get(call_id)
        known_as = _known_as(call_id, self._session.id, self._record_in)
        made = Body(tuple(changes), known_as, call.name if call is not None else "", interrupted=interrupted)
        journal = self._session.journal
        body = await asyncio.to_thread(to_body, made, journal, self._kept)
        await journal.write(self._stream, CHANGE, body)

    async def _prune(self) -> None:
        if self._pruned:
            return
        self._pruned = True
        with contextlib.suppress(*_FAILURES):
            gone = await asyncio.to_thread(self._kept.prune_if_due)
            await asyncio.to_thread(self._looks.prune)
            if gone is not None and gone.files:
                what = f"{gone.files:,} kept files ({gone.bytes / 1e6:,.1f} MB) that were long unused have been removed"
                self.tell(Notice("info", f"{what}; what needs them can't be undone any more"))


class Looks:
    """The looks of one session at its workspace. Blocks; of one thread at a time."""

    def __init__(self, workspace: Workspace, session_id: str, kept: KeptFiles, limits: Limits = _BEFORE) -> None:
        self._roots = tuple(dict.fromkeys(workspace.write_roots))
        self._leave_out = {workspace.kitbag_home, os.path.realpath(workspace.kitbag_home)}
        self._kept = kept
        self._limits = limits
        self._files = LookFiles(workspace.kitbag_home, self._roots, session_id)
        self._known: Look | None = None
        self._begun = False
        self._running = 0
        """Commands that run at the same time; it is the first whose call is known if all of them are cut off."""
        self._open: int | None = None

    def before(self, call_id: str, stop: threading.Event | None = None) -> Look:
        """Raises TooMuchError, OSError and StoreError, as `after` does."""
        known = self._known.seen if self._known is not None else {}
        if not self._begun:
            known = self._files.newest(self._kept.names())
        try:
            with self._kept.putting() as keep:
                roots, leave_out, limits = self._roots, self._leave_out, self._limits
                if not known:  # all of it would have to be read, so first: is it too much?
                    look_at(roots, keep, known, leave_out=leave_out, limits=limits, stop=stop, only_count=True)
                look = look_at(roots, keep, known, leave_out=leave_out, limits=limits, stop=stop)
        except TooMuchError as error:
            if error.far is not None:
                self._begun, self._known = True, Look({**known, **error.far}, {}, frozenset(), 0, 0)
            raise
        if not self._begun or look.seen != known:
            self._files.save(look)
        self._begun, self._known = True, look
        if not self._running:
            self._open = self._files.begin(call_id)
        self._running += 1
        return look

    def after(self, before: Look) -> list[Change]:
        """What changed; the bytes from before are on the disk for good when it returns."""
        limits = self._limits._replace(seconds=max(self._limits.seconds, _SECONDS_AFTER))
        with self._kept.putting() as keep:
            rules = before.rules or None  # one from the disk has none
            now = look_at(self._roots, keep, before.seen, rules=rules, leave_out=self._leave_out, limits=limits)
            changes = differences(before, now)
            keep.make_durable(change.before.digest for change in changes if change.before is not None)
        self._known = now
        return changes

    def done(self) -> None:
        """A command has ended, and what it changed is written down."""
        self._running = max(0, self._running - 1)
        if self._open is not None and not self._running:
            self._files.end(self._open)
            self._open = None

    def recover(self) -> tuple[str, list[Change]] | None:
        """For a command whose session was killed: its call, and what has changed since it began. When that is written
        down, say `recovered`."""
        if self._begun or self._open is not None:
            return None
        found = self._files.interrupted()
        if found is None:
            return None
        call, self._open = found
        try:
            look = self._files.load()
            return call, self.after(look) if look is not None else []
        except TooMuchError:
            return call, []
        except BaseException:
            os.close(self._open)  # its name stays, for the next one who tries
            self._open = None
            raise

    def recovered(self) -> None:
        self.done()

    def prune(self) -> None:
        self._files.prune()


def recover_command(
    journal: Journal, session_id: str, workspace: Workspace, kept: KeptFiles, *, record_in: str = ""
) -> bool:
    """Writes down what a command changed whose session was killed, if there is one. `record_in` as SessionChanges has
    it. Raises StoreError and OSError."""
    looks = Looks(workspace, session_id, kept)
    found = looks.recover()
    if found is None:
        return False
    try:
        call, changes = found
        made = Body(tuple(changes), _known_as(call, session_id, record_in), "Bash", interrupted=True)
        journal.append(PREFIX + (record_in or session_id), CHANGE, to_body(made, journal, kept))
    finally:
        looks.recovered()
    return bool(changes)


def _known_as(call_id: str, session_id: str, record_in: str) -> str:
    """The ids of calls differ within a session, and may be the same in another."""
    return call_id if record_in in ("", session_id) else f"{session_id}/{call_id}"


def _change_of(kept: KeptFiles, path: str, before: bytes | None, after: bytes | None) -> list[Change]:
    """With the folders that have to be made for it."""
    place = follow(os.path.abspath(path)).resolved
    mode = UNKNOWN
    with contextlib.suppress(OSError):
        mode = os.lstat(place).st_mode & 0o7777
    old = State("file", kept.put(before), mode) if before is not None else None
    new = State("file", digest_of(after)) if after is not None else None
    folders: list[Change] = []
    above = os.path.dirname(place)
    while after is not None and above != "/" and not os.path.lexists(above):
        folders.append(Change(above, None, State("folder")))
        above = os.path.dirname(above)
    return [*reversed(folders), Change(place, old, new)]


def _words(error: BaseException) -> str:
    return error.problem if isinstance(error, KitbagError) else getattr(error, "strerror", None) or str(error)
