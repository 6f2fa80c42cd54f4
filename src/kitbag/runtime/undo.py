"""Taking back what a turn of a session did to files: which turn is meant, what would happen, and doing it.

Used by `kitbag undo` and by `/undo`, which show it and ask. Uses agent/undo for the plan and agent/restore to carry it
out. Blocks: a caller with a loop uses a thread.
"""

import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from kitbag.agent.session import PREFIX
from kitbag.agent.session_list import list_sessions, newest_session
from kitbag.agent.undo.plan import Step, Turn, changed_later, make_plan, read_turns
from kitbag.agent.undo.restore import Restored, Restorer
from kitbag.agent.undo.session_changes import recover_command
from kitbag.errors import InvalidError, NotFoundError
from kitbag.library.scopes import Places, find_places
from kitbag.permissions.rules.load import workspace_of
from kitbag.permissions.safe_open import BeneathError, folder_of
from kitbag.settings import load_settings
from kitbag.store.content_store import KeptFiles
from kitbag.store.journal import Journal
from kitbag.tasks.board import Board
from kitbag.tasks.reports import sessions_of
from kitbag.text.human_format import short_path
from kitbag.tools.files.diff import Diff, diff

WORDS: Final = {"created": "remove", "changed": "restore", "deleted": "bring back"}
"""What is done to a place, by what the turn did to it."""
DONE: Final = {"created": "removed", "changed": "restored", "deleted": "brought back"}
CUT_OFF: Final = "a command was cut off with its session; what has changed since is counted as its"
MOST_NAMED: Final = 20
_LARGEST_SHOWN = 4 << 20
_MOST_SESSIONS = 10


class Planned(NamedTuple):
    turn: Turn
    steps: list[Step]
    redo: bool = False

    @property
    def refused(self) -> list[Step]:
        """What is not restored unless that is forced."""
        return [step for step in self.steps if step.problem]


class Undoing:
    """For one session: the one that is named, or the newest of this directory."""

    def __init__(self, journal: Journal, places: Places, session_id: str = "") -> None:
        """Raises NotFoundError."""
        self.journal = journal
        self.places = places
        self.chosen = bool(session_id)
        self.session_id = session_id or newest_session(journal, places.cwd)
        self.kept = KeptFiles(places.kitbag_home)
        # As the session had it, wherever we are: of the settings, only the person's own have a say.
        there = find_places(self._directory())
        self.workspace = workspace_of(there, load_settings(places.kitbag_home, ()))[0]
        recovered = [
            recover_command(journal, one, self.workspace, self.kept, record_in=self.session_id)
            for one in self._sessions()
        ]
        self.recovered = any(recovered)
        """CUT_OFF is to be said."""
        self.turns: list[Turn] = read_turns(journal, self.session_id, self.kept)

    def _sessions(self) -> list[str]:
        """Its own, and those of the agents that it started, whose changes are its."""
        agents = [task for task in Board(self.journal).of(self.session_id) if task.kind == "agent"]
        return [self.session_id, *(one for task in agents for one in sessions_of(task))]

    def _directory(self) -> str:
        first = next(iter(self.journal.read(PREFIX + self.session_id, page=1)), None)
        if first is None:
            raise NotFoundError(f"there is no session {self.session_id!r}", "`kitbag sessions list` shows them")
        return (str(first.body.get("directory", "")) if first.kind == "session" else "") or self.places.cwd

    # Which turn

    def choose(self, number: int | None = None, redo: bool = False) -> Planned:
        """The last turn that changed files and stands, or the one with this number. Raises NotFoundError."""
        if redo:
            turn = self._to_redo(number)
            return Planned(turn, make_plan(turn.taken_back, self.kept), redo=True)
        if number is not None:
            turn = self._numbered(number)
            if turn.undone:
                raise NotFoundError(f"turn {number} has been undone already", "--redo does it again")
            return Planned(turn, make_plan(turn.changes, self.kept, changed_later(self.turns, number)))
        for turn in reversed(self.turns):
            if not turn.undone:
                steps = make_plan(turn.changes, self.kept, changed_later(self.turns, turn.number))
                if steps or turn.problem:
                    return Planned(turn, steps)
        raise self._nothing("is nothing to undo")

    def _to_redo(self, number: int | None) -> Turn:
        undone = [turn for turn in self.turns if turn.undone]
        if number is not None:
            turn = self._numbered(number)
            if not turn.undone:
                raise NotFoundError(f"turn {number} has not been undone", "`kitbag undo --list` shows the turns")
            return turn
        if not undone:
            raise NotFoundError(f"in session {self.session_id} nothing has been undone", "leave out --redo")
        return max(undone, key=lambda turn: turn.undone)

    def _numbered(self, number: int) -> Turn:
        for turn in self.turns:
            if turn.number == number:
                return turn
        there = ", ".join(str(turn.number) for turn in self.turns[-20:])
        raise NotFoundError(
            f"turn {number} of session {self.session_id} changed no files",
            f"these did: {there}" if there else "no turn did",
        )

    def _nothing(self, what: str) -> NotFoundError:
        """Says which other session of this directory changed files: the newest may only have been asked something."""
        fix = "`kitbag undo --list` shows what was changed" if self.turns else ""
        others = [] if self.chosen else list_sessions(self.journal, self.places.cwd)[:_MOST_SESSIONS]
        for other in others:
            if other.id == self.session_id or other.problem:
                continue
            if any(not turn.undone for turn in read_turns(self.journal, other.id, self.kept)):
                fix = f"session {other.id} changed files: kitbag undo --session {other.id}"
                break
        return NotFoundError(f"there {what} in session {self.session_id}", fix)

    # What it would be

    def detail(self, step: Step) -> str:
        """`+3 -1`, and what else is to be said of a step in a few characters."""
        if step.kind == "folder":
            return "/"
        if step.kind == "link":
            return "link"
        now, target = step.now, step.target
        if now is not None and target is not None and now.digest == target.digest:
            return f"rights {now.mode:04o} → {target.mode:04o}"
        found = self.diff(step)
        return f"+{found.added} -{found.removed}" if found is not None else "binary"

    def diff(self, step: Step) -> Diff | None:
        """From what is there to what would be there; None where that is no text."""
        before, after = self._text(step, now=True), self._text(step, now=False)
        if before is None or after is None:
            return None
        return diff(before, after, short_path(step.path))

    def _text(self, step: Step, *, now: bool) -> str | None:
        state = step.now if now else step.target
        if state is None or state.kind != "file":
            return ""
        data = _read(step.path) if now else self.kept.get(state.digest)
        if data is None or len(data) > _LARGEST_SHOWN or b"\0" in data[:8_000]:
            return None
        return data.decode("utf-8", "replace")

    # What is done

    def check(self, planned: Planned, *, force: bool = False, how: str = "--force") -> None:
        """Raises InvalidError and NotFoundError for what can't be done, or is not done without force. `how`: what the
        person does to force it."""
        turn, steps = planned.turn, planned.steps
        if turn.problem:
            raise InvalidError(f"turn {turn.number} can't be undone: {turn.problem}")
        if not steps:
            raise NotFoundError(f"turn {turn.number}: the files are as they were before it", "nothing is to be done")
        refused = planned.refused
        if refused and not force:
            raise refusal(refused, how)
        if not any(step.possible for step in steps):
            raise InvalidError(f"nothing of turn {turn.number} can be restored: {refused[0].problem}")

    def restore(self, planned: Planned) -> Restored:
        """After `check`. Raises StoreError before anything is changed."""
        restorer = Restorer(self.journal, self.session_id, self.kept, self.workspace)
        return restorer.undo(planned.turn.number, planned.steps, redo=planned.redo)


def result_in_words(planned: Planned, restored: Restored) -> str:
    """One line: how many places became what."""
    verb = "redone" if planned.redo else "undone"
    counts = [step.done for step in restored.done]
    parts = [f"{counts.count(kind):,} {word}" for kind, word in DONE.items() if kind in counts]
    return f"turn {planned.turn.number} {verb if not restored.failed else 'partly ' + verb}: {', '.join(parts)}"


def failed(restored: Restored) -> InvalidError | None:
    if not restored.failed:
        return None
    listed = "; ".join(f"{short_path(path)}: {why}" for path, why in restored.failed[:MOST_NAMED])
    return InvalidError(f"not all could be restored: {listed}", "see to the cause, and run it again")


def refusal(refused: Sequence[Step], how: str = "--force") -> InvalidError:
    named = "; ".join(f"{short_path(step.path)}: {step.problem}" for step in refused[:MOST_NAMED])
    more = f"; and {len(refused) - MOST_NAMED} more" if len(refused) > MOST_NAMED else ""
    fix = f"{how} restores them all the same, and keeps what it overwrites"
    if not all(step.possible for step in refused):
        fix = f"{how} restores all that can be restored, and keeps what it overwrites"
    return InvalidError(f"nothing was restored: {named}{more}", fix)


def _read(path: str) -> bytes | None:
    try:
        with folder_of(path) as (folder, name):
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            with open(descriptor, "rb") as file:
                return file.read(_LARGEST_SHOWN + 1)
    except (BeneathError, OSError):
        return None
