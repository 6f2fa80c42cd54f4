"""Opens the user's journal with a redactor for all secrets known here.

Used by base_agent, the worker and the task commands.
"""

import os
from typing import cast

from kitbag.assembly.model_sources import list_key_values, load_model_sources
from kitbag.assembly.open_store import open_store
from kitbag.events import Notice
from kitbag.models.model_selection import ModelSources
from kitbag.settings import load_settings
from kitbag.store import damage_notices
from kitbag.store.journal import Journal
from kitbag.store.redaction import Redactor
from kitbag.store.secret_names import has_secret_value


def open_journal(kitbag_home: str, sources: ModelSources | None = None) -> Journal:
    """`sources`: the model sources, if already loaded."""
    if sources is None:
        sources, _ = load_model_sources(load_settings(kitbag_home, ()))
    secrets = [value for name, value in os.environ.items() if has_secret_value(name)]
    secrets += [*list_key_values(sources), *_server_secrets(kitbag_home)]
    journal = open_store(kitbag_home, Redactor(secrets))
    if journal.is_shared:
        settings = load_settings(kitbag_home, ())
        journal.queue = str(settings.get("tasks.queue")) or journal.home_queue
        journal.workspace_mode = str(settings.get("tasks.workspace"))
        journal.takes_snapshots = settings.get("tasks.snapshot") == "on"
    return journal


def _server_secrets(kitbag_home: str) -> list[str]:
    """Literal secrets that the user's settings pass to servers."""
    tables = load_settings(kitbag_home, ()).tables("mcp_servers")
    if not tables:
        return []
    from kitbag.tools.mcp_client.server_config import secret_values

    secrets: list[str] = []
    for table in tables.values():
        environment, headers = table.get("env"), table.get("headers")
        secrets += secret_values(
            cast("dict[str, object]", environment) if isinstance(environment, dict) else {},
            cast("dict[str, object]", headers) if isinstance(headers, dict) else {},
        )
    return secrets


def journal_damage_notices(kitbag_home: str) -> list[Notice]:
    """Reports that the journal was damaged, until the user acknowledges it."""
    return [
        Notice(severity="warning", text=notice.text(), fix=damage_notices.FIX)
        for notice in damage_notices.read_notices(kitbag_home)
    ]
