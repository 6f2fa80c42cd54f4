"""Reads what each message of a session changed and plans how to undo it; changes no files itself.

Undo reverts everything that one user message caused. Used by runtime/undo together with restore, which executes a
plan.
Reads the records of session_changes and compares the files on disk with what the tools left.
"""

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from kitbag.agent.session import REWOUND, STREAM_PREFIX, Session, is_user_message
from kitbag.agent.undo.change_records import (
    CHANGE,
    NOT_STORED_PREFIX,
    REDOING,
    REDONE,
    UNDOING,
    UNDONE,
    UNKNOWN_MODE,
    ChangeRecord,
    FileKind,
    FileState,
    PathChange,
    decode_change_record,
)
from kitbag.agent.undo.snapshot import not_stored_digest
from kitbag.errors import NotFoundError
from kitbag.messages import Text, message_from_json
from kitbag.permissions.safe_open import SafeOpenError, open_parent
from kitbag.store.content_store import ContentStore, content_digest
from kitbag.store.journal import Journal, JournalRecord
from kitbag.store.private_files import StoreError
from kitbag.text.hidden_characters import reveal_hidden

FileEffect = Literal["created", "changed", "deleted"]
_MAX_ABOUT_CHARS = 120
_MAX_COMPARED_BYTES = 1 << 30
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 1 << 20
_PREDATES_COMMAND: Final = (
    "it predates the command that seems to have created it, so it may have been moved from elsewhere"
)
_CHANGED_BY_OTHERS: Final = "changed by something else between two changes made for this message"


class MessageChanges(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    """Counts user messages, from 1."""
    seq: int = 0
    """The record of the message."""
    at: str
    about: str
    """The start of the message."""
    changes: tuple[PathChange, ...] = ()
    """In the order in which they were made."""
    tools: tuple[str, ...] = ()
    changed_by: tuple[tuple[str, str], ...] = ()
    """(path, tool), also those of subagents."""
    interrupted: bool = False
    """One of its commands was killed with its session; all changes since then are attributed to it."""
    undone: int = 0
    """The record that undid it; 0 if it is not undone."""
    undone_with: int = 0
    """A rewind undid it together with this earlier message, which has the `undo_changes` of all."""
    undo_changes: tuple[PathChange, ...] = ()
    """What undoing changed; used to redo it."""
    redoing: bool = False
    """Re-applying it was interrupted."""
    problem: str = ""


class UndoStep(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    effect: FileEffect
    """What the message caused at the path."""
    now: FileState | None
    target: FileState | None
    problem: str = ""
    """Why it is not restored without force."""
    possible: bool = True
    """Whether it can be restored at all."""

    @property
    def kind(self) -> FileKind:
        state = self.target or self.now
        return state.kind if state is not None else "file"


class _NetChange(msgspec.Struct, frozen=True, kw_only=True):
    """The combined effect of a message on one path."""

    before: FileState | None
    after: FileState | None
    last_before: FileState | None
    """What the message left if its last change was recorded but did not happen."""
    has_gap: bool
    predates_command: bool


def read_message_changes(
    journal: Journal, session_id: str, content_store: ContentStore, *, brief: bool = False
) -> list[MessageChanges]:
    """Turns that changed files, in order. Of a fork only its own. `brief`: what the messages say is not needed. Raises
    NotFoundError."""
    messages = _read_messages(journal, session_id, content_store, with_origin=False, brief=brief)
    return [message for message in messages if message.changes or message.problem or message.undo_changes]


def read_all_messages(journal: Journal, session_id: str, content_store: ContentStore) -> list[MessageChanges]:
    """Every message, also of the session that a fork was forked from, up to the fork. Raises NotFoundError."""
    return _read_messages(journal, session_id, content_store, with_origin=True)


def _read_messages(
    journal: Journal, session_id: str, content_store: ContentStore, *, with_origin: bool, brief: bool = False
) -> list[MessageChanges]:
    reader = _TurnReader(content_store, with_origin)
    for record in journal.read(STREAM_PREFIX + session_id, brief=brief):
        reader.apply(record.seq, record.at, record.kind, record.body, journal)
    if not reader.records_read:
        raise NotFoundError(f"no session named {session_id!r}", "list sessions with `kitbag sessions list --all`")
    reader.read_agents(journal)
    return [reader.confirm_changes(message) for _, message in sorted(reader.messages.items())]


class _TurnReader:
    def __init__(self, content_store: ContentStore, with_origin: bool) -> None:
        self.content_store = content_store
        self.with_origin = with_origin
        self.records_read = 0
        self.number = 0
        self.messages: dict[int, MessageChanges] = {}
        self.message_of: dict[str, int] = {}
        """Message by call: changes of a killed command, and of one in the background, are recorded later."""
        self.succeeded: set[str] = set()
        """Calls whose result is recorded and no error."""

    def apply(self, seq: int, at: str, kind: str, body: Any, journal: Journal) -> None:
        self.records_read += 1
        if kind == "session" and body.get("forked_from"):
            until = min(int(body["forked_at"]), seq - 1)
            if not self.with_origin:
                self.number = count_user_messages(journal, str(body["forked_from"]), until)
                return
            for record in journal.read(STREAM_PREFIX + str(body["forked_from"])):
                if record.seq <= until:
                    self.apply(record.seq, record.at, record.kind, record.body, journal)
        elif kind == "user":
            self.number += 1
            about = _summarize_message(body)
            self.messages[self.number] = MessageChanges(number=self.number, seq=seq, at=at, about=about)
        elif kind == "intent":
            self.message_of[str(body.get("call"))] = self.number
        elif kind == "result":
            self._apply_result(body)
        elif kind in (CHANGE, UNDOING, UNDONE, REDOING, REDONE):
            self._apply_change(seq, at, kind, decode_change_record(body, self.content_store))

    def _apply_change(self, seq: int, at: str, kind: str, body: ChangeRecord) -> None:
        number = self.message_of.get(body.call, body.message or self.number) if kind == CHANGE else body.message
        message = self.messages.get(number) or MessageChanges(number=number, at=at, about="")
        if kind == CHANGE:
            tools = tuple(dict.fromkeys((*message.tools, body.by))) if body.by else message.tools
            by = f"{body.by} of an agent" if "/" in body.call else body.by
            is_command = body.by == "Bash"  # recorded after it ran
            files = [msgspec.structs.replace(change, call=body.call, happened=is_command) for change in body.files]
            message = msgspec.structs.replace(
                message,
                changes=(*message.changes, *files),
                changed_by=(*message.changed_by, *((change.path, by) for change in body.files)),
                tools=tools,
                interrupted=message.interrupted or body.interrupted,
                problem=message.problem or body.problem,
            )
        elif kind == UNDOING:
            message = msgspec.structs.replace(message, undo_changes=(*message.undo_changes, *body.files))
        elif kind == UNDONE:
            message = msgspec.structs.replace(message, undone=seq)
            self._mark_group(number, body.through, seq)
        elif kind == REDOING:
            message = msgspec.structs.replace(message, redoing=True)
        else:
            self._mark_group(number, 0, message.undone)
            message = msgspec.structs.replace(message, undone=0, undo_changes=(), redoing=False)
        self.messages[number] = message

    def _apply_result(self, body: Any, agent: str = "") -> None:
        """`agent`: the session of a subagent, with a slash."""
        result = body.get("result", {})
        if not result.get("is_error"):
            self.succeeded.add(f"{agent}{result.get('call_id')}")

    def read_agents(self, journal: Journal) -> None:
        """The results of calls of subagents, which are in sessions of their own."""
        calls = {change.call for message in self.messages.values() for change in message.changes if not change.happened}
        for agent in sorted({call.rpartition("/")[0] for call in calls if "/" in call}):
            for record in _read_until_damaged(journal, STREAM_PREFIX + agent, 0, brief=True):
                if record.kind == "result":
                    self._apply_result(record.body, f"{agent}/")

    def confirm_changes(self, message: MessageChanges) -> MessageChanges:
        """With what is known only now: which changes have happened."""
        changes = tuple(
            msgspec.structs.replace(change, happened=change.happened or change.call in self.succeeded)
            for change in message.changes
        )
        return msgspec.structs.replace(message, changes=changes)

    def _mark_group(self, first: int, through: int, undone: int) -> None:
        """Marks what a rewind undid together with its first message; without `through`, what it redid."""
        for number, message in self.messages.items():
            if first < number <= through and not message.undone:
                self.messages[number] = msgspec.structs.replace(message, undone=undone, undone_with=first)
            elif not through and message.undone_with == first and message.undone == undone:
                self.messages[number] = msgspec.structs.replace(message, undone=0, undone_with=0)


def count_user_messages(journal: Journal, session_id: str, until: int) -> int:
    count = 0
    for record in journal.read(STREAM_PREFIX + session_id, brief=True):
        if record.seq > until:
            break
        if record.kind == "session" and record.body.get("forked_from"):
            earlier = min(int(record.body["forked_at"]), record.seq - 1)
            count += count_user_messages(journal, str(record.body["forked_from"]), earlier)
        count += record.kind == "user"
    return count


def _summarize_message(body: Any) -> str:
    try:
        texts = [part.text for part in message_from_json(body["message"]).parts if isinstance(part, Text)]
    except (KeyError, TypeError, ValueError, AttributeError):
        return ""
    lines = (texts[-1] if texts else "").strip().split("\n")
    about = " ".join(lines[0].split())
    return about if len(about) <= _MAX_ABOUT_CHARS else f"{about[: _MAX_ABOUT_CHARS - 1]}…"


def plan_undo(
    changes: Iterable[PathChange], content_store: ContentStore, later: Mapping[str, int] | None = None
) -> list[UndoStep]:
    """The steps that restore the state before these changes, sorted by path, without those that are not needed.
    `later`: the message that changed a path later, by path."""
    nets = _merge_changes(changes)
    steps: list[UndoStep] = []
    for path, net in sorted(nets.items()):
        step = _plan_step(path, net, nets, content_store, later or {})
        if step is not None:
            steps.append(step)
    return steps


def _read_until_damaged(journal: Journal, stream: str, after: int, *, brief: bool = False) -> Iterator[JournalRecord]:
    """Stops at a damaged record, which resuming the session already reported."""
    with contextlib.suppress(StoreError):
        yield from journal.read(stream, after, brief=brief)


def undo_notice(session: Session) -> str:
    """For the next message: what the user has undone or redone since the last one, in any process."""
    last_prompt = max((seq for seq, message in session.recorded_messages() if is_user_message(message)), default=0)
    if not last_prompt:
        return ""
    streams = [(session.stream, 0)]
    if session.header.forked_from:
        streams.insert(0, (STREAM_PREFIX + session.header.forked_from, session.header.forked_at))
    notices = [
        reveal_hidden(str(record.body.get("told", "")))
        for stream, until in streams
        for record in _read_until_damaged(session.journal, stream, last_prompt)
        if record.kind in (UNDONE, REDONE, REWOUND) and (not until or record.seq <= until)
    ]
    text = " ".join(notice for notice in notices if notice)
    return f"{text} Read files again before you change them." if text else ""


def find_later_changes(messages: Sequence[MessageChanges], number: int) -> dict[str, int]:
    later = {message.number: message for message in messages if message.number > number and not message.undone}
    return {change.path: number for number, message in sorted(later.items()) for change in message.changes}


def file_effect(before: FileState | None, after: FileState | None) -> FileEffect:
    if before is None:
        return "created"
    return "deleted" if after is None else "changed"


def list_net_effects(changes: Iterable[PathChange]) -> dict[str, FileEffect]:
    """The net effect on each path; for a listing."""
    nets = _merge_changes(changes)
    return {
        path: file_effect(net.before, net.after)
        for path, net in sorted(nets.items())
        if not _is_same_state(net.before, net.after)
        or (net.before is not None and net.after is not None and net.has_gap)
    }


def _merge_changes(changes: Iterable[PathChange]) -> dict[str, _NetChange]:
    nets: dict[str, _NetChange] = {}
    for change in changes:
        merged = nets.get(change.path)
        if merged is None:
            nets[change.path] = _NetChange(
                before=change.before,
                after=_state_if_made(change),
                last_before=_state_if_not_made(change),
                has_gap=False,
                predates_command=change.predates_command,
            )
            continue
        is_continuous = _is_same_state(change.before, merged.after) or _is_same_state(change.before, merged.last_before)
        nets[change.path] = _NetChange(
            before=merged.before,
            after=_state_if_made(change),
            last_before=_state_if_not_made(change),
            has_gap=merged.has_gap or not is_continuous,
            predates_command=merged.predates_command,
        )
    return nets


def _state_if_made(change: PathChange) -> FileState | None:
    """An edit leaves the mode as it was."""
    before, after = change.before, change.after
    if before is None or after is None or after.mode != UNKNOWN_MODE or before.kind != after.kind:
        return after
    return after._replace(mode=before.mode)


def _state_if_not_made(change: PathChange) -> FileState | None:
    return _state_if_made(change) if change.happened else change.before


def _is_same_state(first: FileState | None, second: FileState | None) -> bool:
    """Compares what is known of both."""
    if first is None or second is None:
        return first is second
    same_mode = first.mode == second.mode or UNKNOWN_MODE in (first.mode, second.mode)
    return first.kind == second.kind and first.digest == second.digest and same_mode


def _plan_step(
    path: str, net: _NetChange, nets: Mapping[str, _NetChange], content_store: ContentStore, later: Mapping[str, int]
) -> UndoStep | None:
    effect = file_effect(net.before, net.after)
    try:
        now = read_file_state(path, (net.before, net.after, net.last_before))
    except SafeOpenError as error:
        if not _is_below_restored(path, nets):
            return UndoStep(
                path=path, effect=effect, now=None, target=net.before, problem=error.problem, possible=False
            )
        now = None
    target = _target_state(net, now)
    if _matches(now, target, compare_modes=True):
        return None
    if net.before is None and net.after is not None and net.after.kind == "folder":
        # The folder is removed once it is empty; other content in it is no conflict.
        return (
            UndoStep(path=path, effect=effect, now=now, target=None)
            if now is not None and now.kind == "folder"
            else None
        )
    step = UndoStep(path=path, effect=effect, now=now, target=target)
    if target is not None and not _can_restore(target, now, content_store):
        never_stored = "was not stored: too large or unreadable"
        not_stored = "is no longer stored"
        reason = never_stored if target.digest.startswith(NOT_STORED_PREFIX) else not_stored
        return msgspec.structs.replace(step, problem=f"its previous content {reason}", possible=False)
    if not any(_matches(now, state, compare_modes=_is_mode_changed(net)) for state in (net.after, net.last_before)):
        return msgspec.structs.replace(step, problem=_describe_conflict(path, now, net.after, later))
    if net.has_gap:
        return msgspec.structs.replace(step, problem=_CHANGED_BY_OTHERS)
    return msgspec.structs.replace(step, problem=_PREDATES_COMMAND) if net.predates_command and target is None else step


def _is_below_restored(path: str, nets: Mapping[str, _NetChange]) -> bool:
    """Whether the plan restores a folder above the path."""
    above = os.path.dirname(path)
    while above != "/":
        net = nets.get(above)
        if net is not None and net.before is not None and net.before.kind == "folder":
            return True
        above = os.path.dirname(above)
    return False


def _target_state(net: _NetChange, now: FileState | None) -> FileState | None:
    """A mode that the message did not change stays as it is."""
    if net.before is None or now is None or now.kind != net.before.kind or _is_mode_changed(net):
        return net.before
    return net.before._replace(mode=now.mode)


def _is_mode_changed(net: _NetChange) -> bool:
    before, after = net.before, net.after
    if before is None or after is None or before.kind != after.kind or UNKNOWN_MODE in (before.mode, after.mode):
        return False
    return before.mode != after.mode


def _matches(now: FileState | None, target: FileState | None, *, compare_modes: bool) -> bool:
    if now is None or target is None:
        return now is target
    same_mode = not compare_modes or now.mode == target.mode or target.mode == UNKNOWN_MODE
    return now.kind == target.kind and now.digest == target.digest and same_mode


def _can_restore(target: FileState, now: FileState | None, content_store: ContentStore) -> bool:
    if target.kind == "folder" or (now is not None and (now.kind, now.digest) == (target.kind, target.digest)):
        return True
    return content_store.has(target.digest)


def _describe_conflict(path: str, now: FileState | None, left: FileState | None, later: Mapping[str, int]) -> str:
    if path in later:
        return f"message {later[path]} changed it later; undo that message first"
    if now is None:
        return "deleted since"
    return "re-created since" if left is None else "changed since"


def read_file_state(path: str, expected: Iterable[FileState | None] = ()) -> FileState | None:
    """What is at the path now; links are not followed. Uses the digest of one of `expected` if it matches. Raises
    UnsafePathError if the path can't be reached."""
    try:
        with open_parent(path) as (folder, name):
            status = os.lstat(name, dir_fd=folder)
            mode = status.st_mode & 0o7777
            if stat.S_ISLNK(status.st_mode):
                return FileState("link", content_digest(os.fsencode(os.readlink(name, dir_fd=folder))))
            if stat.S_ISDIR(status.st_mode):
                return FileState("folder", "", mode)
            if not stat.S_ISREG(status.st_mode):
                return FileState("file", f"{NOT_STORED_PREFIX}special", mode)
            digest = not_stored_digest(status)
            if status.st_size > _MAX_COMPARED_BYTES or any(
                state is not None and state.digest == digest for state in expected
            ):
                return FileState("file", digest, mode)
            return FileState("file", _hash_file(folder, name) or digest, mode)
    except SafeOpenError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def _hash_file(folder: int, name: str) -> str:
    try:
        descriptor = os.open(name, _READ_FLAGS, dir_fd=folder)
    except PermissionError:
        return ""
    with open(descriptor, "rb", buffering=0) as file:
        summed = hashlib.sha256()
        while chunk := file.read(_CHUNK):
            summed.update(chunk)
    return summed.hexdigest()
