"""The person's journal, with everything in it redacted that is secret here.

Used by whatever writes to it: Agent, the worker, the commands for tasks.
"""

import os
from typing import cast

from kitbag.assembly.model_sources import list_key_values, load_model_sources
from kitbag.events import Notice
from kitbag.models.model_selection import ModelSources
from kitbag.settings import load_settings
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.store.secret_names import has_secret_value


def open_journal(kitbag_home: str, sources: ModelSources | None = None) -> Journal:
    """`sources`: where models are, when that has been read already."""
    if sources is None:
        sources, _ = load_model_sources(load_settings(kitbag_home, ()))
    secrets = [value for name, value in os.environ.items() if has_secret_value(name)]
    secrets += [*list_key_values(sources), *_server_secrets(kitbag_home)]
    return Journal.open(journal_path(kitbag_home), Redactor(secrets))


def _server_secrets(kitbag_home: str) -> list[str]:
    """What the user's own settings give to servers, written out."""
    tables = load_settings(kitbag_home, ()).tables("mcp_servers")
    if not tables:
        return []
    from kitbag.tools.mcp_client.server_config import secret_values

    found: list[str] = []
    for table in tables.values():
        environment, headers = table.get("env"), table.get("headers")
        found += secret_values(
            cast("dict[str, object]", environment) if isinstance(environment, dict) else {},
            cast("dict[str, object]", headers) if isinstance(headers, dict) else {},
        )
    return found


def journal_recovery_notices(journal: Journal) -> list[Notice]:
    """That it was damaged, when it was."""
    if journal.recovery is None:
        return []
    what = f"the journal was damaged ({journal.recovery.problem}); {journal.recovery.records} records are kept"
    return [Notice("warning", what, f"the damaged file is in {journal.recovery.folder}")]
