"""Decides where the journal is, a file or a PostgreSQL database, and opens it.

Used by open_journal, and by commands that only read sessions and tasks.
"""

import contextlib
import os
from collections.abc import Generator
from typing import Final

from kitbag.errors import InvalidError
from kitbag.settings import load_settings
from kitbag.store.database_url import describe_url
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor

DATABASE_URL_VARIABLE: Final = "KITBAG_DATABASE_URL"
_MAX_NAME_CHARACTERS: Final = 300


def database_url(kitbag_home: str) -> str:
    """Empty: the journal is a file. Project settings have no say."""
    return os.environ.get(DATABASE_URL_VARIABLE, "").strip() or str(
        load_settings(kitbag_home, ()).get("store.database_url")
    )


def store_name(kitbag_home: str) -> str:
    """The database, without its password; empty: the file."""
    return describe_url(database_url(kitbag_home))[:_MAX_NAME_CHARACTERS]


def has_journal(kitbag_home: str) -> bool:
    """Whether there is anything to read: reading creates no file."""
    return bool(database_url(kitbag_home)) or os.path.lexists(journal_path(kitbag_home))


def open_store(kitbag_home: str, redactor: Redactor) -> Journal:
    """For commands that only read, without the secrets of model providers."""
    url = database_url(kitbag_home)
    return open_database(url, kitbag_home, redactor) if url else Journal.open(journal_path(kitbag_home), redactor)


def open_database(url: str, kitbag_home: str, redactor: Redactor) -> Journal:
    with needs_fleet_extra():
        from kitbag.store.database_url import url_secrets
        from kitbag.store.postgres_journal import PostgresJournal
    return PostgresJournal.connect(url, kitbag_home, redactor.with_secrets(url_secrets(url)))


@contextlib.contextmanager
def needs_fleet_extra() -> Generator[None, None, None]:
    """Around imports of modules that need it."""
    try:
        yield
    except ImportError as error:
        problem = f"cannot use PostgreSQL: {error}"
        raise InvalidError(problem, "install the extra `fleet`: pip install 'kitbag[fleet]'") from error
