"""`kitbag tasks output`: prints an agent's answer, or a command's output, even while it runs.

A command's output is copied in chunks, whatever its size.
"""

import sys
from typing import Final

from kitbag.cli import output
from kitbag.library.scopes import find_places
from kitbag.tasks.board import Board
from kitbag.tasks.output_file import read_chunk
from kitbag.tasks.reports import build_report, state_directory
from kitbag.tasks.worker_process import wait_until_finished
from kitbag.text.hidden_characters import escape_for_terminal

_POLL_SECONDS: Final = 0.2
_CHUNK_BYTES: Final = 1 << 20


async def follow_output(board: Board, task_id: str, offset: int) -> None:
    """Returns when the task has ended and all of its output is printed. Leaving it does not affect the task."""
    while True:
        await wait_until_finished(board, find_places().kitbag_home, task_id, _POLL_SECONDS)
        is_over = board.find(task_id).is_finished  # checked before reading, so that nothing is missed
        if is_over or board.find(task_id).kind == "command":
            offset = show_output(board, task_id, offset)
        if is_over:
            return


def show_output(board: Board, task_id: str, offset: int) -> int:
    """Prints from the offset on, and returns the new offset."""
    task = board.find(task_id)
    if task.kind == "agent":
        text = build_report(board, task).text
        if text[offset:]:
            output.exact(text[offset:])
        return max(offset, len(text))
    while True:
        chunk = read_chunk(state_directory(board.journal), task_id, offset, _CHUNK_BYTES)
        if not chunk.size and task.result is not None and task.result.text:
            output.exact(task.result.text)  # it printed nothing: show why
        if not chunk.text:
            return chunk.next_offset
        safe = (
            "\n".join(escape_for_terminal(line) for line in chunk.text.split("\n"))
            if sys.stdout.isatty()
            else chunk.text
        )
        sys.stdout.write(safe)
        sys.stdout.flush()
        offset = chunk.next_offset
