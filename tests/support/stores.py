"""The same tests on both stores: `store` makes `Journal.open` open a file, or a PostgreSQL journal with its mirror beside.

A module opts in with `pytestmark = pytest.mark.usefixtures("store")`; tests about the file itself are `file_store`.
PostgreSQL is `long`, except in tests/store/test_postgres_journal.py.
"""

import os
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
