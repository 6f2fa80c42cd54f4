"""For tests of the journal on PostgreSQL."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kitbag.store.postgres_journal import PostgresJournal
    from support.postgres import Schema


@pytest.fixture
def machine(schema: "Schema", tmp_path: Path) -> "Iterator[Callable[..., PostgresJournal]]":
    """Opens the journal as the machine of that name would."""
    from kitbag.store.postgres_journal import PostgresJournal
    from kitbag.store.redaction import Redactor

    opened: list[PostgresJournal] = []

    def open_journal(name: str = "one", url: str = schema.url) -> PostgresJournal:
        opened.append(PostgresJournal.connect(url, str(tmp_path / name), Redactor([])))
        return opened[-1]

    yield open_journal
    for journal in opened:
        journal.close()
