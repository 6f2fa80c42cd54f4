"""What each turn of a session changed, and the plan of how to take it back: nothing here changes a file.

A turn is all that one message of the person caused. Used by `kitbag undo` and with restore, which carries a plan out.
Reads the records that changes wrote; compares what is on the disk now with what the tools left there.
"""

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from kitbag.agent.session import PREFIX, Session, is_said
from kitbag.agent.undo.change_records import (
    CHANGE,
    REDONE,
    UNDOING,
    UNDONE,
    UNKEPT,
    UNKNOWN,
    Body,
    Change,
    Kind,
    State,
    from_body,
)
from kitbag.agent.undo.snapshot import unkept
from kitbag.errors import NotFoundError
from kitbag.messages import Text, message_from_json
from kitbag.permissions.safe_open import BeneathError, folder_of
from kitbag.store.content_store import KeptFiles, digest_of
from kitbag.store.journal import Journal, Record
from kitbag.store.private_files import StoreError
from kitbag.text.hidden_characters import reveal_hidden

Done = Literal["created", "changed", "deleted"]
_LONGEST_ABOUT = 120
_LARGEST_COMPARED = 1 << 30
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 1 << 20
_OLDER: Final = "it is older than the command it appeared with, so it may have been moved here from somewhere else"
_GAP: Final = "somebody else changed it between two changes of this turn"


class Turn(NamedTuple):
    number: int
    """Counts the messages of the person, from 1."""
    at: str
    about: str
    """How the message begins."""
    changes: tuple[Change, ...] = ()
    """In the order in which they were made."""
    tools: tuple[str, ...] = ()
    interrupted: bool = False
    """A command of it was cut off with its session; all that changed since is counted as its."""
    undone: int = 0
    """The record that says so; 0 when it stands."""
    taken_back: tuple[Change, ...] = ()
    """What the undoing changed, to do it again."""
    problem: str = ""


class Step(NamedTuple):
    path: str
    done: Done
    """What the turn did to it."""
    now: State | None
    target: State | None
    problem: str = ""
    """Why it is not restored unless that is forced."""
    possible: bool = True
    """Whether it can be restored at all."""

    @property
    def kind(self) -> Kind:
        known = self.target or self.now
        return known.kind if known is not None else "file"


class _Net(NamedTuple):
    """All that a turn did to one place."""

    before: State | None
    after: State | None
    last_before: State | None
    """If the last change was written down and then did not happen, this is what the turn left."""
    gap: bool
    older: bool


def read_turns(journal: Journal, session_id: str, kept: KeptFiles) -> list[Turn]:
    """Those that changed something, in order. Raises NotFoundError. Of a fork only what it did itself: the rest is the
    other session's."""
    reader = _Reader(kept)
    for record in journal.read(PREFIX + session_id):
        reader.take(record.seq, record.at, record.kind, record.body, journal)
    if not reader.read:
        raise NotFoundError(f"there is no session {session_id!r}", "`kitbag sessions list` shows them")
    return [turn for _, turn in sorted(reader.turns.items()) if turn.changes or turn.problem]


class _Reader:
    def __init__(self, kept: KeptFiles) -> None:
        self.kept = kept
        self.read = 0
        self.number = 0
        self.turns: dict[int, Turn] = {}
        self.turn_of: dict[str, int] = {}
        """Of each call: what a killed command changed is written down later."""

    def take(self, seq: int, at: str, kind: str, body: Any, journal: Journal) -> None:
        self.read += 1
        if kind == "session" and body.get("forked_from"):
            until = min(int(body["forked_at"]), seq - 1)
            self.number = _said_before(journal, str(body["forked_from"]), until)
        elif kind == "user":
            self.number += 1
            self.turns[self.number] = Turn(self.number, at, _about(body))
        elif kind == "intent":
            self.turn_of[str(body.get("call"))] = self.number
        elif kind in (CHANGE, UNDOING, UNDONE, REDONE):
            self._change(seq, at, kind, from_body(body, self.kept))

    def _change(self, seq: int, at: str, kind: str, body: Body) -> None:
        number = self.turn_of.get(body.call, self.number) if kind == CHANGE else body.turn
        turn = self.turns.get(number) or Turn(number, at, "")
        if kind == CHANGE:
            tools = tuple(dict.fromkeys((*turn.tools, body.by))) if body.by else turn.tools
            turn = turn._replace(
                changes=(*turn.changes, *body.files),
                tools=tools,
                interrupted=turn.interrupted or body.interrupted,
                problem=turn.problem or body.problem,
            )
        elif kind == UNDOING:
            turn = turn._replace(taken_back=(*turn.taken_back, *body.files))
        elif kind == UNDONE:
            turn = turn._replace(undone=seq)
        else:
            turn = turn._replace(undone=0, taken_back=())
        self.turns[number] = turn


def _said_before(journal: Journal, session_id: str, until: int) -> int:
    count = 0
    for record in journal.read(PREFIX + session_id):
        if record.seq > until:
            break
        if record.kind == "session" and record.body.get("forked_from"):
            earlier = min(int(record.body["forked_at"]), record.seq - 1)
            count += _said_before(journal, str(record.body["forked_from"]), earlier)
        count += record.kind == "user"
    return count


def _about(body: Any) -> str:
    try:
        texts = [part.text for part in message_from_json(body["message"]).parts if isinstance(part, Text)]
    except (KeyError, TypeError, ValueError, AttributeError):
        return ""
    lines = (texts[-1] if texts else "").strip().split("\n")
    return " ".join(lines[0].split())[:_LONGEST_ABOUT]


def make_plan(changes: Iterable[Change], kept: KeptFiles, later: Mapping[str, int] | None = None) -> list[Step]:
    """What has to be done so that all is as it was before these changes, in the order of the paths; what is so already
    is left out. `later` are places that a later turn changed, and which turn."""
    nets = _nets(changes)
    steps: list[Step] = []
    for path, net in sorted(nets.items()):
        step = _step(path, net, nets, kept, later or {})
        if step is not None:
            steps.append(step)
    return steps


def _readable(journal: Journal, stream: str, after: int) -> Iterator[Record]:
    """As far as they can be read: a damaged record has been told of by whoever resumed the session."""
    with contextlib.suppress(StoreError):
        yield from journal.read(stream, after)


def told_restored(session: Session) -> str:
    """For the next message: what the person has undone since the last one, from whatever process."""
    said = max((seq for seq, message in session.lines() if is_said(message)), default=0)
    if not said:
        return ""
    streams = [(session.stream, 0)]
    if session.header.forked_from:
        streams.insert(0, (PREFIX + session.header.forked_from, session.header.forked_at))
    told = [
        reveal_hidden(str(record.body.get("told", "")))
        for stream, until in streams
        for record in _readable(session.journal, stream, said)
        if record.kind in (UNDONE, REDONE) and (not until or record.seq <= until)
    ]
    return f"{' '.join(told)} Read files again before you change them." if any(told) else ""


def changed_later(turns: Sequence[Turn], number: int) -> dict[str, int]:
    later = {turn.number: turn for turn in turns if turn.number > number and not turn.undone}
    return {change.path: number for number, turn in sorted(later.items()) for change in turn.changes}


def done_to(before: State | None, after: State | None) -> Done:
    if before is None:
        return "created"
    return "deleted" if after is None else "changed"


def net_changes(changes: Iterable[Change]) -> dict[str, Done]:
    """What became of each place in the end; for a listing."""
    nets = _nets(changes)
    return {
        path: done_to(net.before, net.after)
        for path, net in sorted(nets.items())
        if not _same(net.before, net.after) or (net.before is not None and net.after is not None and net.gap)
    }


def _nets(changes: Iterable[Change]) -> dict[str, _Net]:
    nets: dict[str, _Net] = {}
    for change in changes:
        known = nets.get(change.path)
        if known is None:
            nets[change.path] = _Net(change.before, change.after, change.before, False, change.older)
            continue
        joined = _same(change.before, known.after) or _same(change.before, known.last_before)
        nets[change.path] = _Net(known.before, change.after, change.before, known.gap or not joined, known.older)
    return nets


def _same(one: State | None, other: State | None) -> bool:
    """As far as both are known."""
    if one is None or other is None:
        return one is other
    same_mode = one.mode == other.mode or UNKNOWN in (one.mode, other.mode)
    return one.kind == other.kind and one.digest == other.digest and same_mode


def _step(path: str, net: _Net, nets: Mapping[str, _Net], kept: KeptFiles, later: Mapping[str, int]) -> Step | None:
    done = done_to(net.before, net.after)
    try:
        now = state_of(path, (net.before, net.after, net.last_before))
    except BeneathError as error:
        if not _is_below_restored(path, nets):
            return Step(path, done, None, net.before, error.problem, possible=False)
        now = None
    target = _target(net, now)
    if _is_as(now, target, modes=True):
        return None
    if net.before is None and net.after is not None and net.after.kind == "folder":
        # It goes when nothing is left in it; that it holds something else is no reason to refuse.
        return Step(path, done, now, None) if now is not None and now.kind == "folder" else None
    step = Step(path, done, now, target)
    if target is not None and not _can_be_made(target, now, kept):
        why = "was not kept: it was too big, or could not be read"
        gone = "is no longer kept"
        return step._replace(
            problem=f"what it held before {why if target.digest.startswith(UNKEPT) else gone}", possible=False
        )
    if not any(_is_as(now, left, modes=_modes_count(net)) for left in (net.after, net.last_before)):
        return step._replace(problem=_since(path, now, net.after, later))
    if net.gap:
        return step._replace(problem=_GAP)
    return step._replace(problem=_OLDER) if net.older and target is None else step


def _is_below_restored(path: str, nets: Mapping[str, _Net]) -> bool:
    """Whether a folder above it is one that the plan brings back."""
    above = os.path.dirname(path)
    while above != "/":
        net = nets.get(above)
        if net is not None and net.before is not None and net.before.kind == "folder":
            return True
        above = os.path.dirname(above)
    return False


def _target(net: _Net, now: State | None) -> State | None:
    """Rights that the turn did not change are left as they are."""
    if net.before is None or now is None or now.kind != net.before.kind or _modes_count(net):
        return net.before
    return net.before._replace(mode=now.mode)


def _modes_count(net: _Net) -> bool:
    before, after = net.before, net.after
    if before is None or after is None or before.kind != after.kind or UNKNOWN in (before.mode, after.mode):
        return False
    return before.mode != after.mode


def _is_as(now: State | None, wanted: State | None, *, modes: bool) -> bool:
    if now is None or wanted is None:
        return now is wanted
    same_mode = not modes or now.mode == wanted.mode or wanted.mode == UNKNOWN
    return now.kind == wanted.kind and now.digest == wanted.digest and same_mode


def _can_be_made(target: State, now: State | None, kept: KeptFiles) -> bool:
    if target.kind == "folder" or (now is not None and (now.kind, now.digest) == (target.kind, target.digest)):
        return True
    return kept.has(target.digest)


def _since(path: str, now: State | None, left: State | None, later: Mapping[str, int]) -> str:
    if path in later:
        return f"turn {later[path]} changed it later; undo that one first"
    if now is None:
        return "it has been deleted since"
    return "it has been made anew since" if left is None else "it has been changed since"


def state_of(path: str, like: Iterable[State | None] = ()) -> State | None:
    """What is at a place now, without following a link. Described as one of `like`, if it is that. Raises BeneathError
    when it can't be reached."""
    try:
        with folder_of(path) as (folder, name):
            found = os.lstat(name, dir_fd=folder)
            mode = found.st_mode & 0o7777
            if stat.S_ISLNK(found.st_mode):
                return State("link", digest_of(os.fsencode(os.readlink(name, dir_fd=folder))))
            if stat.S_ISDIR(found.st_mode):
                return State("folder", "", mode)
            if not stat.S_ISREG(found.st_mode):
                return State("file", f"{UNKEPT}special", mode)
            told = unkept(found)
            if found.st_size > _LARGEST_COMPARED or any(one is not None and one.digest == told for one in like):
                return State("file", told, mode)
            return State("file", _content(folder, name) or told, mode)
    except BeneathError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def _content(folder: int, name: str) -> str:
    try:
        descriptor = os.open(name, _READ, dir_fd=folder)
    except PermissionError:
        return ""
    with open(descriptor, "rb", buffering=0) as file:
        summed = hashlib.sha256()
        while chunk := file.read(_CHUNK):
            summed.update(chunk)
    return summed.hexdigest()
