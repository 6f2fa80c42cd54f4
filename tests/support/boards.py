"""The tasks in a world's home, read as another process would; the journal is open only that long."""

import contextlib
from collections.abc import Generator

from conftest import World
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board
from kitbag.tasks.task import Task


@contextlib.contextmanager
def opened_board(world: World) -> Generator[Board, None, None]:
    with Journal.open(journal_path(str(world.home / ".kitbag")), Redactor([])) as journal:
        yield Board(journal)


def all_tasks(world: World) -> list[Task]:
    with opened_board(world) as board:
        return board.all()
