"""Records what a background command changes, so that `kitbag undo` can revert it with the message that started it.

Used by tasks/command_task. As for a foreground command, the workspace is scanned before and after. Meanwhile others
work in it: what they recorded in the same session is theirs.
"""

from collections.abc import Callable

from kitbag.agent.session import STREAM_PREFIX
from kitbag.agent.undo.change_records import (
    CHANGE,
    ChangeRecord,
    encode_change_record,
)
from kitbag.agent.undo.plan import count_user_messages
from kitbag.agent.undo.session_changes import CANNOT_RECORD, WorkspaceSnapshots, describe_error, without_recorded
from kitbag.agent.undo.snapshot import SnapshotLimitError, WorkspaceSnapshot
from kitbag.permissions.model import Workspace
from kitbag.store.content_store import ContentStore
from kitbag.store.journal import Journal


class BackgroundChanges:
    """For one command. Blocks. Nothing here fails: what can't be undone is reported through `warn`."""

    def __init__(
        self,
        journal: Journal,
        workspace: Workspace,
        task_id: str,
        session_id: str,
        call: str,
        warn: Callable[[str], None],
    ) -> None:
        """`session_id`: the user's session. `call`: the call that started the command, as in its change records."""
        self._journal = journal
        self._content_store = ContentStore(workspace.kitbag_home)
        self._snapshots = WorkspaceSnapshots(workspace, task_id, self._content_store)
        self._stream, self._session_id, self._call, self._warn = STREAM_PREFIX + session_id, session_id, call, warn
        self._before: WorkspaceSnapshot | None = None
        self._started_at = 0
        self._message = 0

    def start(self) -> None:
        """Call before the command starts."""
        try:
            self._started_at = self._journal.last_seq()
            self._message = count_user_messages(self._journal, self._session_id, self._started_at)
            self._before = self._snapshots.before_command(self._call)
        except (SnapshotLimitError, *CANNOT_RECORD) as error:
            self._warn(f"changes by this command can't be undone: {_describe(error)}")

    def finish(self) -> None:
        """Call when the command has ended; the changes are recorded on return."""
        if self._before is None:
            return
        try:
            changes = self._snapshots.after_command(self._before)
            changes = without_recorded(changes, self._journal, self._stream, self._started_at, self._content_store)
            if changes:
                record = ChangeRecord(files=tuple(changes), call=self._call, by="Bash", message=self._message)
                self._journal.append(
                    self._stream, CHANGE, encode_change_record(record, self._journal, self._content_store)
                )
        except (SnapshotLimitError, *CANNOT_RECORD) as error:
            self._warn(f"changes by this command can't be undone: {_describe(error)}")
        finally:
            self._before = None
            self._snapshots.command_done()


def _describe(error: BaseException) -> str:
    return error.reason if isinstance(error, SnapshotLimitError) else describe_error(error)
