"""Whose package an item is in: a vendor's installer in its own package is not a stranger's.

The names are those of the item and of the manifests in the directories above it, up to the audit's root. Anybody can
choose a name, so it only lowers a severity to medium. Used by examine_item.
"""

import json
import os
import re
from typing import Any, Final, cast

from kitbag.audit.expressions import load_words
from kitbag.audit.urls import RESERVED_DOMAINS
from kitbag.library.plugins.manifest import GEMINI_MANIFEST, MANIFESTS, MARKETPLACES, MAX_JSON
from kitbag.text.source_files import SourceError, directory_boundary, read_text

_MANIFESTS: Final = ("package.json", *MANIFESTS, *MARKETPLACES, GEMINI_MANIFEST)
_SHARED_HOSTING: Final = frozenset(load_words("vendors.shared_hosting"))


def is_own_host(host: str, names: frozenset[str]) -> bool:
    """Whether the host is named like one of them: `wix.com` of `wix-docs`, but not `wix.vercel.app` of `vercel`."""
    *_, label, domain = ("", *host.split("."))
    is_shared = f"{label}.{domain}" in _SHARED_HOSTING or domain in RESERVED_DOMAINS
    return not is_shared and label.replace("-", "") in names


def name_words(name: str) -> frozenset[str]:
    """The words of a name, and the name without what separates them."""
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    return frozenset((*words, "".join(words)))


def names_above(folder: str, root: str) -> frozenset[str]:
    """The words in the names of all packages and plugins that a directory is in."""
    names: frozenset[str] = frozenset()
    while True:
        names |= _names_at(folder)
        above = os.path.dirname(folder)
        if folder == root or above == folder:
            return names
        folder = above


def _names_at(folder: str) -> frozenset[str]:
    names: frozenset[str] = frozenset()
    for manifest in _MANIFESTS:
        try:
            text, _, _ = read_text(os.path.join(folder, manifest), directory_boundary(folder), MAX_JSON)
            document: Any = json.loads(text)
        except (SourceError, ValueError, RecursionError):
            continue
        name: object = cast("dict[str, object]", document).get("name") if isinstance(document, dict) else None
        names |= name_words(name) if isinstance(name, str) else frozenset()
    return names
