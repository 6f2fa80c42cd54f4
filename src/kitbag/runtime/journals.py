"""The person's journal, with everything in it redacted that is secret here.

Used by Agent, by the worker, and by whatever else writes to it.
"""

import os

from kitbag.events import Notice
from kitbag.models.choice import Sources
from kitbag.runtime.sources import key_values
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.store.secret_names import holds_secret


def open_journal(kitbag_home: str, sources: Sources) -> Journal:
    secrets = [value for name, value in os.environ.items() if holds_secret(name)]
    return Journal.open(journal_path(kitbag_home), Redactor([*secrets, *key_values(sources)]))


def told_saved(journal: Journal) -> list[Notice]:
    """That it was damaged, when it was."""
    if journal.saved is None:
        return []
    what = f"the journal was damaged ({journal.saved.problem}); {journal.saved.records} records are kept"
    return [Notice("warning", what, f"the damaged file is in {journal.saved.folder}")]
