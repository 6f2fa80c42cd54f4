"""Rewinds a session to before one of its messages: the conversation, the files, or both. Can be undone itself.

Used by `/rewind`, which shows the plan and asks. Files are restored by runtime/undo, all messages since then at once;
the conversation by one record that agent/resume interprets, in the same commit. Nothing is deleted from the journal.
Blocks: callers with an event loop use a thread.
"""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from kitbag.agent.resume import find_rewinds, is_in_conversation, read_session_records, resume
from kitbag.agent.session import REWOUND, STREAM_PREFIX
from kitbag.agent.undo.plan import MessageChanges, UndoStep, plan_undo, read_all_messages
from kitbag.agent.undo.restore import RestoreResult
from kitbag.errors import InvalidError, NotFoundError
from kitbag.messages import Image, Text, message_from_json
from kitbag.runtime.undo import SessionUndo, UndoPlan
from kitbag.store.journal import JournalEntry, JournalRecord
from kitbag.tasks.board import Board
from kitbag.tasks.notifications import notified_tasks

RewindScope = Literal["both", "conversation", "files"]
_MAX_NAMED: Final = 20


class RewindPlan(msgspec.Struct, frozen=True, kw_only=True):
    message: MessageChanges
    """The conversation and the files become as they were before it. If a rewind is undone: the message of that one."""
    target: int
    """The record before which the conversation continues."""
    dropped: int
    """Messages of the user that are no longer part of the conversation."""
    files: UndoPlan
    changed_by: dict[str, str]
    """What changed each path, and for which messages."""
    undoes_rewind: bool = False

    @property
    def finishes_earlier(self) -> bool:
        """All files were restored when an earlier attempt was interrupted; only the conversation was not."""
        is_interrupted = self.message.redoing if self.files.redo else _is_interrupted(self.message)
        return is_interrupted and not self.files.steps

    @property
    def clean_steps(self) -> list[UndoStep]:
        """Steps that overwrite no changes from elsewhere."""
        return [step for step in self.files.steps if not step.problem]


class SessionRewind:
    """For one session, whose agent does not work meanwhile."""

    def __init__(self, undo: SessionUndo) -> None:
        self.undo = undo
        self._journal, self._session_id = undo.journal, undo.session_id
        self._messages = read_all_messages(undo.journal, undo.session_id, undo.content_store)
        is_kept = is_in_conversation(undo.journal, undo.session_id)
        self.messages = [message for message in self._messages if message.seq and is_kept(message.seq)]
        """Messages of the conversation, in order."""

    # Planning

    def make_plan(self, number: int | None = None) -> RewindPlan:
        """To before the given message, or before the last one. Raises NotFoundError."""
        if not self.messages:
            raise NotFoundError(f"session {self._session_id} has no messages", "there is nothing to rewind")
        found = [message for message in self.messages if number in (None, message.number)]
        if not found:
            known = ", ".join(str(message.number) for message in self.messages[-_MAX_NAMED:])
            raise NotFoundError(f"message {number} is not part of the conversation", f"its messages: {known}")
        message = found[-1]
        return RewindPlan(
            message=message,
            target=message.seq,
            dropped=sum(one.seq >= message.seq for one in self.messages),
            files=self._plan_files(message),
            changed_by=_describe_changes(self._since(message.number)),
        )

    def plan_undo(self) -> RewindPlan:
        """Undoes the last rewind, or re-applies it if it is undone. Raises NotFoundError."""
        rewinds = [one for one in find_rewinds(self._journal, self._session_id) if one.stream == self._stream]
        if not rewinds:
            raise NotFoundError(f"session {self._session_id} was not rewound", "rewind it with /rewind")
        last = rewinds[-1]
        message = next(one for one in self._messages if one.number == int(last.body["message"]))
        return RewindPlan(
            message=message,
            target=last.seq,
            dropped=sum(one.seq > last.seq for one in self.messages),
            files=self._plan_files_back(last, message),
            changed_by=_describe_changes(self._since(message.number, undone=True)),
            undoes_rewind=True,
        )

    @property
    def _stream(self) -> str:
        return STREAM_PREFIX + self._session_id

    def _since(self, number: int, *, undone: bool = False) -> list[MessageChanges]:
        """Also messages that an earlier rewind of the conversation dropped: their changes are on disk."""
        return [one for one in self._messages if one.number >= number and (undone or not one.undone)]

    def _plan_files(self, message: MessageChanges) -> UndoPlan:
        since = self._since(message.number)
        changes = [change for one in since for change in one.changes]
        steps = plan_undo(changes, self.undo.content_store)
        return UndoPlan(message=message, steps=steps, through=self._messages[-1].number)

    def _plan_files_back(self, last: JournalRecord, message: MessageChanges) -> UndoPlan:
        if last.body.get("files") == "redone":
            return self._plan_files(message)
        steps: list[UndoStep] = []
        if last.body.get("files") == "undone" and message.undone:
            steps = plan_undo(message.undo_changes, self.undo.content_store)
        return UndoPlan(message=message, steps=steps, redo=True)

    # Executing

    def run(self, plan: RewindPlan, scope: RewindScope, *, overwrite: bool = False) -> RestoreResult:
        """`overwrite`: also files that have changed since; what is overwritten is stored. Raises InvalidError for files
        whose changes are not known, and StoreError, before anything is changed."""
        steps = plan.files.steps if overwrite else plan.clean_steps
        kept = tuple((step.path, step.problem) for step in plan.files.steps if step not in steps)
        if scope != "conversation":
            problem = next((one.problem for one in self._since(plan.message.number) if one.problem), "")
            if problem and not plan.files.redo:
                raise InvalidError(f"the files can't be restored: {problem}", "rewind only the conversation")
        if (scope != "conversation" and steps) or (scope != "files" and plan.finishes_earlier):
            result = self.undo.restore(
                msgspec.structs.replace(plan.files, steps=steps),
                tell_model=scope == "files",
                also_record=lambda result: self._entries(plan, scope, _with_kept(result, kept)),
            )
            return _with_kept(result, kept)
        result = RestoreResult(done=(), skipped=kept if scope != "conversation" else (), failed=())
        if entries := self._entries(plan, scope, result):
            self._journal.append_all(entries)
        return result

    def _entries(self, plan: RewindPlan, scope: RewindScope, result: RestoreResult) -> list[JournalEntry]:
        """What rewinds the conversation."""
        if scope == "files":
            return []
        is_restored = result.done or plan.finishes_earlier
        files = "" if not is_restored else "redone" if plan.files.redo else "undone"
        is_left = scope == "conversation"
        left = [step.path for step in plan.files.steps] if is_left else [path for path, _ in result.skipped]
        body = {"to": plan.target, "message": plan.message.number, "files": files, "told": _tell_model(left)}
        notes = self._find_notifications(plan)  # before the rewind drops them
        return [JournalEntry(self._stream, REWOUND, body), *notes]

    def _find_notifications(self, plan: RewindPlan) -> list[JournalEntry]:
        """Notices after the target that tasks started before it have ended: the model gets them again."""
        started_before = next(self._journal.read(None, plan.target - 1, page=1)).at
        tasks = Board(self._journal).of_session(self._session_id)
        known = {task.id for task in tasks if task.created < started_before}
        if plan.undoes_rewind:  # what it restores has some of them
            for _, message in resume(self._journal, self._session_id, plan.target - 1).recorded_messages():
                known.difference_update(notified_tasks(message.text))
        return [
            JournalEntry(self._stream, "note", record.body)
            for record in read_session_records(self._journal, self._session_id)
            if record.seq > plan.target and record.kind == "note"
            if known.intersection(notified_tasks(message_from_json(record.body["message"]).text))
        ]

    def read_message(self, message: MessageChanges) -> tuple[str, tuple[Image, ...]]:
        """As the user wrote it, to be edited and sent again."""
        record = next(self._journal.read(None, message.seq - 1, page=1))
        parts = message_from_json(record.body["message"]).parts
        texts = [part.text for part in parts if isinstance(part, Text)]
        return texts[-1] if texts else "", tuple(part for part in parts if isinstance(part, Image))


def _is_interrupted(message: MessageChanges) -> bool:
    return bool(message.undo_changes) and not message.undone


def _with_kept(result: RestoreResult, kept: tuple[tuple[str, str], ...]) -> RestoreResult:
    return msgspec.structs.replace(result, skipped=(*result.skipped, *kept))


def _describe_changes(messages: Iterable[MessageChanges]) -> dict[str, str]:
    found: dict[str, dict[str, None]] = {}
    for message in messages:
        for path, tool in message.changed_by:
            found.setdefault(path, {})[f"{tool or 'unknown'} ({message.number})"] = None
    return {path: ", ".join(names) for path, names in found.items()}


def _tell_model(paths: list[str]) -> str:
    """The files are not as the model, at this point of the conversation, believes."""
    if not paths:
        return ""
    more = f", and {len(paths) - _MAX_NAMED} more" if len(paths) > _MAX_NAMED else ""
    return f"The user rewound the conversation to here. These files are newer: {', '.join(paths[:_MAX_NAMED])}{more}."
