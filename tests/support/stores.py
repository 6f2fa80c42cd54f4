"""The same tests on both stores: `store` makes `Journal.open` open a file, or a PostgreSQL journal with its mirror beside.

A module opts in with `pytestmark = pytest.mark.usefixtures("store")`; tests about the file itself are `file_store`.
PostgreSQL is `long`, except in tests/store/test_postgres_journal.py.
"""

import os
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kitbag.assembly.open_store import DATABASE_URL_VARIABLE
from kitbag.store.journal import Journal
from kitbag.store.redaction import Redactor

if TYPE_CHECKING:
    from support.postgres import Schema


def choose_stores(metafunc: pytest.Metafunc) -> None:
    """For `pytest_generate_tests`."""
    if "store" in metafunc.fixturenames:
        is_file_only = metafunc.definition.get_closest_marker("file_store") is not None
        others: list[Any] = [] if is_file_only else [pytest.param("postgres", marks=pytest.mark.long)]
        metafunc.parametrize("store", ["file", *others], indirect=True)


def use_postgres(schema: "Schema", monkeypatch: pytest.MonkeyPatch) -> None:
    from kitbag.store.postgres_journal import PostgresJournal, home_queue

    def open_journal(_: type[Journal], path: str, redactor: Redactor) -> Journal:
        journal = PostgresJournal.connect(schema.url, os.path.dirname(path), redactor)
        journal.queue = journal.home_queue = home_queue(os.path.dirname(os.path.dirname(path)))
        return journal

    monkeypatch.setattr(Journal, "open", classmethod(open_journal))
    monkeypatch.setenv(DATABASE_URL_VARIABLE, schema.url)
    for name in ("_commit_batch", "delete", "catch_up", "fetch", "check_lease"):
        monkeypatch.setattr(PostgresJournal, name, _off_loop(getattr(PostgresJournal, name)))


def _off_loop(method: Callable[..., Any]) -> Callable[..., Any]:
    """Whoever calls it blocks for a round trip, so Kitbag must not call it on an event loop; tests may."""
    from kitbag.store.postgres_journal import is_event_loop_running

    def checked(journal: Journal, *values: Any) -> Any:
        if is_event_loop_running():
            callers = [frame.filename for frame in traceback.extract_stack()[:-1]]
            outside = [
                name for name in callers if not name.endswith(("/store/journal.py", "/store/postgres_journal.py"))
            ]
            assert "/src/kitbag/" not in outside[-1], "".join(traceback.format_stack()[-8:])
        return method(journal, *values)

    return checked
