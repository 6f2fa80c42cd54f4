"""What a process does before others are forked from it for tests: imports Kitbag and fills what it keeps for as long as
a process lives, so that none of them has to.

Only what is the same in every home and environment, but for the sandbox: `forget_sandbox` where PATH is another one.
Used by forked and nursery.
"""

import ctypes
import gc
import importlib
import os
import pkgutil
from typing import Any, Final

from support.disk import SKIPPED, skip_syncs

_HUGE_PAGE: Final = 2 << 20
_MADV_HUGEPAGE: Final = 14
_MADV_COLLAPSE: Final = 25


def warm_up() -> None:
    if SKIPPED in os.environ:
        skip_syncs()
    _import_everything()
    _fill_caches()
    gc.freeze()
    _use_huge_pages()


def _import_everything() -> None:
    """All of Kitbag but what needs an extra, which costs more than it saves."""
    import kitbag

    for found in pkgutil.walk_packages(kitbag.__path__, "kitbag."):
        if found.name.startswith(
            ("kitbag.mcp_server", "kitbag.integrations", "kitbag.models.adapters.pydantic_ai", "kitbag.__")
        ):
            continue
        importlib.import_module(found.name)


def _fill_caches() -> None:
    from kitbag.audit import rules
    from kitbag.library.routing.common_words import common_share, technicality
    from kitbag.library.routing.ranking_model import load_models
    from kitbag.models.catalog import _load_data
    from kitbag.sandbox.confine import detect_sandbox
    from kitbag.shell.analysis import analyze
    from kitbag.store.redaction import Redactor
    from kitbag.store.secrets_by_name import NAME_WORDS
    from kitbag.text.tokens import token_counter
    from kitbag.tools.base import Arguments, _arguments_schema

    for load in (rules.load_rules, rules.load_patterns, rules.load_combinations, load_models, _load_data):
        load()
    for arguments in _subclasses(Arguments):
        _arguments_schema(arguments)
    analyze("ls -l | grep x > /dev/null")
    for text in (f"{word}: 'a1b2c3d4'" for word in NAME_WORDS):
        for shown in (text, f"{text}?", text.upper(), f"{text.upper()}?"):
            Redactor().redact_text(shown)
    common_share(""), technicality("")
    detect_sandbox()
    token_counter().count("zxqjvw")  # a word that is not in the vocabulary takes long the first time


def _use_huge_pages() -> None:
    """A fork copies an entry for each page of memory; with pages of 2 MB that takes a third of the time. Where the
    kernel knows no such thing, nothing changes."""
    if not os.path.exists("/proc/self/maps"):
        return
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    with open("/proc/self/maps") as file:
        ranges = [words[0] for line in file if (words := line.split())[1] == "rw-p" and words[4] == "0"]
    for first, _, last in (one.partition("-") for one in ranges):
        start = -(-int(first, 16) // _HUGE_PAGE) * _HUGE_PAGE
        size = int(last, 16) // _HUGE_PAGE * _HUGE_PAGE - start
        if size > 0:
            for advice in (_MADV_HUGEPAGE, _MADV_COLLAPSE):
                advise(start, size, advice)


def _subclasses(kind: type[Any]) -> list[type[Any]]:
    return [found for one in kind.__subclasses__() for found in (one, *_subclasses(one))]


def forget_sandbox(path: str | None) -> None:
    """Where a process is to have another PATH than the one it was looked for in."""
    if path != os.environ.get("PATH"):
        from kitbag.sandbox import confine

        confine._detect.cache_clear()
