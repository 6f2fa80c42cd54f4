"""Undoes what a user message did to files: selects the message, plans the steps, executes them.

Used by `kitbag undo` and `/undo`, which show the plan and ask. Uses agent/undo/plan and agent/undo/restore. Blocks:
callers with an event loop use a thread.
"""

import os
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from kitbag.agent.session import STREAM_PREFIX
from kitbag.agent.session_list import list_sessions, newest_session
from kitbag.agent.undo.plan import MessageChanges, UndoStep, find_later_changes, plan_undo, read_message_changes
from kitbag.agent.undo.restore import Restorer, RestoreResult
from kitbag.agent.undo.session_changes import recover_interrupted_command
from kitbag.errors import InvalidError, NotFoundError
from kitbag.library.scopes import Places, find_places
from kitbag.permissions.rules.load import resolve_workspace
from kitbag.permissions.safe_open import SafeOpenError, open_parent
from kitbag.permissions.workspace_identity import WorkspaceIdentity
from kitbag.settings import load_settings
from kitbag.store.content_store import ContentStore
from kitbag.store.journal import Journal, JournalEntry
from kitbag.tasks.board import Board
from kitbag.tasks.reports import session_ids
from kitbag.text.human_format import shorten_path
from kitbag.tools.files.diff import UnifiedDiff, diff

ACTION_VERBS: Final = {"created": "remove", "changed": "restore", "deleted": "re-create"}
"""What undo does to a path, by what the message did to it."""
ACTION_RESULTS: Final = {"created": "removed", "changed": "restored", "deleted": "re-created"}
INTERRUPTED_NOTICE: Final = "a command and its session were interrupted; later changes are attributed to that command"
MAX_LISTED: Final = 20
_MAX_SHOWN_BYTES = 4 << 20
_MAX_OTHER_SESSIONS = 10


class UndoPlan(msgspec.Struct, frozen=True, kw_only=True):
    message: MessageChanges
    steps: list[UndoStep]
    redo: bool = False
    through: int = 0
    """A rewind: the steps are those of all messages from `message` to this one."""

    @property
    def conflicts(self) -> list[UndoStep]:
        """Steps that are not executed without force."""
        return [step for step in self.steps if step.problem]


class SessionUndo:
    """For one session: the named one, or the newest of this directory."""

    def __init__(
        self, journal: Journal, places: Places, session_id: str = "", identity: WorkspaceIdentity | None = None
    ) -> None:
        """`identity`: the workspace of a running session. Raises NotFoundError and WorkspaceMovedError."""
        self.journal = journal
        self.places = places
        self.is_named = bool(session_id)
        self.session_id = session_id or newest_session(journal, places.cwd)
        self.content_store = ContentStore(places.kitbag_home)
        # The session's own workspace, wherever we are; only the user's settings apply.
        session_places = find_places(self._session_directory())
        workspace = resolve_workspace(session_places, load_settings(places.kitbag_home, ()))[0]
        identity = identity or WorkspaceIdentity.of_directory(workspace.root)
        self.workspace = msgspec.structs.replace(workspace, identity=identity)
        self.workspace.check_in_place()
        recovered = [
            recover_interrupted_command(
                journal, owner_id, self.workspace, self.content_store, record_in=self.session_id
            )
            for owner_id in self._list_sessions()
        ]
        commands = [task for task in Board(journal).of_session(self.session_id) if task.kind == "command"]
        recovered += [
            recover_interrupted_command(
                journal, task.id, self.workspace, self.content_store, record_in=self.session_id, is_background=True
            )
            for task in commands
            if task.is_finished
        ]
        self.running_commands = tuple(task.id for task in commands if not task.is_finished)
        """Background commands whose changes are recorded when they end: show `running_notice`."""
        self.recovered = any(recovered)
        """Changes of a killed command were recovered: show INTERRUPTED_NOTICE."""
        self.messages: list[MessageChanges] = read_message_changes(journal, self.session_id, self.content_store)

    def _list_sessions(self) -> list[str]:
        """Its own session and those of its subagents, whose changes belong to it."""
        agents = [task for task in Board(self.journal).of_session(self.session_id) if task.kind == "agent"]
        return [self.session_id, *(one for task in agents for one in session_ids(task))]

    def _session_directory(self) -> str:
        first = next(iter(self.journal.read(STREAM_PREFIX + self.session_id, page=1, brief=True)), None)
        if first is None:
            raise NotFoundError(
                f"no session named {self.session_id!r}", "list sessions with `kitbag sessions list --all`"
            )
        return (str(first.body.get("directory", "")) if first.kind == "session" else "") or self.places.cwd

    def running_notice(self) -> str:
        """Empty if no background command of the session is running."""
        if not self.running_commands:
            return ""
        names = ", ".join(self.running_commands)
        return f"still running in the background: {names}; changes by it can be undone once it has ended"

    # Selecting a message

    def make_plan(self, number: int | None = None, redo: bool = False) -> UndoPlan:
        """For the last message that changed files and is not undone, or the given one. Raises NotFoundError."""
        if redo:
            message = self._find_undone_message(number)
            return UndoPlan(message=message, steps=plan_undo(message.undo_changes, self.content_store), redo=True)
        if number is not None:
            message = self._find_message(number)
            if message.undone:
                raise NotFoundError(f"message {number} is already undone", "re-apply it with --redo")
            return UndoPlan(
                message=message,
                steps=plan_undo(message.changes, self.content_store, find_later_changes(self.messages, number)),
            )
        for message in reversed(self.messages):
            if not message.undone:
                steps = plan_undo(
                    message.changes, self.content_store, find_later_changes(self.messages, message.number)
                )
                if steps or message.problem:
                    return UndoPlan(message=message, steps=steps)
        raise self._nothing_to_undo("is nothing to undo")

    def _find_undone_message(self, number: int | None) -> MessageChanges:
        undone = [message for message in self.messages if message.undone]
        if number is not None:
            message = self._find_message(number)
            if not message.undone:
                raise NotFoundError(f"message {number} is not undone", "list messages with `kitbag undo --list`")
            return self._find_message(message.undone_with) if message.undone_with else message
        if not undone:
            raise NotFoundError(f"nothing has been undone in session {self.session_id}", "remove --redo")
        return max(undone, key=lambda message: (message.undone, not message.undone_with))

    def _find_message(self, number: int) -> MessageChanges:
        for message in self.messages:
            if message.number == number:
                return message
        listed = ", ".join(str(message.number) for message in self.messages[-20:])
        raise NotFoundError(
            f"message {number} of session {self.session_id} changed no files",
            f"messages that did: {listed}" if listed else "no message changed files",
        )

    def _nothing_to_undo(self, problem: str) -> NotFoundError:
        """Names another session of this directory that changed files: the newest one may only have answered a
        question."""
        fix = "list changes with `kitbag undo --list`" if self.messages else ""
        others = [] if self.is_named else list_sessions(self.journal, self.places.cwd, _MAX_OTHER_SESSIONS)
        for other in others:
            if other.id == self.session_id or other.problem:
                continue
            changes = read_message_changes(self.journal, other.id, self.content_store, brief=True)
            if any(not message.undone for message in changes):
                fix = f"session {other.id} changed files: kitbag undo --session {other.id}"
                break
        if self.running_commands:
            fix = f"{self.running_notice()}; stop it with `kitbag tasks stop {self.running_commands[0]}`"
        return NotFoundError(f"there {problem} in session {self.session_id}", fix)

    # Describing steps

    def describe_step(self, step: UndoStep) -> str:
        """`+3 -1`, or another short description of the step."""
        if step.kind == "folder":
            return "/"
        if step.kind == "link":
            return "link"
        now, target = step.now, step.target
        if now is not None and target is not None and now.digest == target.digest:
            return f"mode {now.mode:04o} → {target.mode:04o}"
        step_diff = self.diff_step(step)
        return f"+{step_diff.added} -{step_diff.removed}" if step_diff is not None else "binary"

    def diff_step(self, step: UndoStep) -> UnifiedDiff | None:
        """From the current content to the restored one; None if that is not text."""
        before, after = self._read_text(step, now=True), self._read_text(step, now=False)
        if before is None or after is None:
            return None
        return diff(before, after, shorten_path(step.path))

    def _read_text(self, step: UndoStep, *, now: bool) -> str | None:
        state = step.now if now else step.target
        if state is None or state.kind != "file":
            return ""
        data = _read_current(step.path) if now else self.content_store.get(state.digest)
        if data is None or len(data) > _MAX_SHOWN_BYTES or b"\0" in data[:8_000]:
            return None
        return data.decode("utf-8", "replace")

    # Executing a plan

    def check(self, plan: UndoPlan, *, force: bool = False, force_option: str = "--force") -> None:
        """Raises InvalidError and NotFoundError for what can't be done, or not without force. `force_option`: what the
        user types to force it."""
        message, steps = plan.message, plan.steps
        if message.problem:
            raise InvalidError(f"message {message.number} can't be undone: {message.problem}")
        if not steps:
            raise NotFoundError(
                f"message {message.number}: the files are already as they were before it", "nothing to undo"
            )
        refused = plan.conflicts
        if refused and not force:
            raise conflict_error(refused, force_option)
        if not any(step.possible for step in steps):
            raise InvalidError(f"message {message.number} can't be undone: {refused[0].problem}")

    def restore(
        self,
        plan: UndoPlan,
        *,
        tell_model: bool = True,
        also_record: Callable[[RestoreResult], Sequence[JournalEntry]] = lambda result: (),
    ) -> RestoreResult:
        """Call after `check`. `tell_model`: with its next message. `also_record`: entries committed with the end of the
        undo. Raises StoreError before anything is changed."""
        return Restorer(self.journal, self.session_id, self.content_store, self.workspace).run(
            plan.message.number,
            plan.steps,
            redo=plan.redo,
            through=plan.through,
            tell_model=tell_model,
            also_record=also_record,
        )


def describe_result(plan: UndoPlan, result: RestoreResult) -> str:
    """One line with the number of paths per action."""
    verb = "redone" if plan.redo else "undone"
    counts = [step.effect for step in result.done]
    parts = [f"{counts.count(kind):,} {word}" for kind, word in ACTION_RESULTS.items() if kind in counts]
    first, last = plan.message.number, plan.through
    named = f"messages {first}-{last}" if last > first else f"message {first}"
    return f"{named} {verb if not result.failed else 'partly ' + verb}: {', '.join(parts) or 'no files'}"


def failure_error(result: RestoreResult) -> InvalidError | None:
    if not result.failed:
        return None
    listed = "; ".join(f"{shorten_path(path)}: {reason}" for path, reason in result.failed[:MAX_LISTED])
    return InvalidError(f"some files could not be restored: {listed}", "fix the problem above and retry")


def conflict_error(conflicts: Sequence[UndoStep], force_option: str = "--force") -> InvalidError:
    named = "; ".join(f"{shorten_path(step.path)}: {step.problem}" for step in conflicts[:MAX_LISTED])
    suffix = f"; and {len(conflicts) - MAX_LISTED} more" if len(conflicts) > MAX_LISTED else ""
    fix = f"{force_option} overwrites them and keeps a copy"
    if not all(step.possible for step in conflicts):
        fix = f"{force_option} restores what it can and keeps a copy of what it overwrites"
    return InvalidError(f"nothing was restored: {named}{suffix}", fix)


def _read_current(path: str) -> bytes | None:
    try:
        with open_parent(path) as (folder, name):
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            with open(descriptor, "rb") as file:
                return file.read(_MAX_SHOWN_BYTES + 1)
    except (SafeOpenError, OSError):
        return None
