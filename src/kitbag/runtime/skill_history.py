"""Ranks skills outside of a session as a session does: with their past use in this workspace.

Used by `kitbag skills explain` and by the web UI's library.
"""

import contextlib
import os

from kitbag.agent.skill_usage import count_loads
from kitbag.assembly.open_store import has_journal, open_store
from kitbag.errors import KitbagError
from kitbag.library.registry import Registry
from kitbag.library.routing.usage_prior import set_load_counter
from kitbag.store.redaction import Redactor


def use_history(registry: Registry) -> None:
    home = registry.places.kitbag_home
    if registry.settings.get("routing.learning") == "off" or not has_journal(home):
        return
    # A home that is read-only, or whose journal can't be opened, has no past use.
    with contextlib.suppress(KitbagError), open_store(home, Redactor.from_environment(os.environ)) as journal:
        counts = count_loads(journal, registry.places.project)
        set_load_counter(registry, lambda: counts)
