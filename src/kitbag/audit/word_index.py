"""Tells which of many words a text may contain, in one pass over its distinct words.

A detector searches for words such as `os.system(` before it applies an expression. The core of a word is its longest
part without punctuation; a text without the core does not have the word. Used by regions and patterns.
"""

from typing import Final

_PUNCTUATION: Final = str.maketrans({chr(code): " " for code in range(128) if not chr(code).isalnum()})
_START: Final = 3
_MAX_TOKEN: Final = 200
_MAX_CACHED: Final = 200_000
_by_start: dict[str, list[str]] = {}
"""Indexed cores by their first letters."""
_short: set[str] = set()
_indexed: dict[str, int] = {}
"""Each core and its number."""
_core_of: dict[str, str] = {}
_cores_in: dict[str, tuple[str, ...]] = {}
"""Cores in words that texts contain; most words occur in many texts."""


def core_of(word: str) -> str:
    core = _core_of.get(word)
    if core is None:
        core = _core_of[word] = max(word.translate(_PUNCTUATION).split(), key=len, default="")
    return core


def index_size() -> int:
    return len(_indexed)


def is_indexed(core: str, size: int) -> bool:
    """Whether the core was indexed when the index had that size."""
    return _indexed.get(core, size) < size


def index_words(words: tuple[str, ...]) -> frozenset[str]:
    """The cores of the words; texts read from now on know whether they contain them."""
    cores = frozenset(core_of(word) for word in words)
    for core in cores - _indexed.keys():
        _indexed[core] = len(_indexed)
        _cores_in.clear()
        if len(core) < _START:
            _short.add(core)
        else:
            _by_start.setdefault(core[:_START], []).append(core)
    return cores


def find_cores(lower: str) -> set[str]:
    """The indexed cores that a lowercase text contains."""
    present = {core for core in _short if core in lower}
    for token in set(lower.translate(_PUNCTUATION).split()):
        found = _cores_in.get(token)
        if found is None:
            found = _find_in_token(token)
            if len(_cores_in) < _MAX_CACHED and len(token) <= _MAX_TOKEN:
                _cores_in[token] = found
        if found:
            present.update(found)
    return present


def _find_in_token(token: str) -> tuple[str, ...]:
    if len(token) > _MAX_TOKEN:
        return tuple(core for core in _indexed if core in token)
    return tuple(
        core
        for at in range(len(token) - _START + 1)
        for core in _by_start.get(token[at : at + _START], ())
        if token.startswith(core, at)
    )
