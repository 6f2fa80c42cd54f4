"""Tells which of many words a text may contain, in one pass over its distinct words.

A detector searches for words such as `os.system(` before it applies an expression. The core of a word is its longest
part without punctuation; a text without the core does not have the word. Used by regions and patterns.
"""

from typing import Final

_PUNCTUATION: Final = str.maketrans({chr(code): " " for code in range(128) if not chr(code).isalnum()})
_START: Final = 3
_LONG: Final = 5
_MAX_TOKEN: Final = 200
_MAX_CACHED: Final = 200_000
_by_start: dict[str, list[str]] = {}
"""Indexed cores by their first letters."""
_short: set[str] = set()
_indexed: dict[str, int] = {}
"""Each core and its number."""
_parts_of: dict[str, tuple[str, ...]] = {}
_seen: set[str] = set()
"""Words of texts that were searched for cores; most occur in many texts."""
_cores_in: dict[str, tuple[str, ...]] = {}
"""Those of them that have cores."""


def parts_of(word: str) -> tuple[str, ...]:
    """Its longest part without punctuation (the core), and the other long ones."""
    parts = _parts_of.get(word)
    if parts is None:
        found = sorted(word.translate(_PUNCTUATION).split() or [""], key=len, reverse=True)
        parts = _parts_of[word] = (found[0], *(part for part in found[1:] if len(part) >= _LONG))
    return parts


def index_size() -> int:
    return len(_indexed)


def is_indexed(core: str, size: int) -> bool:
    """Whether the core was indexed when the index had that size."""
    return _indexed.get(core, size) < size


def index_words(words: tuple[str, ...]) -> frozenset[str]:
    """The cores of the words; texts read from now on know whether they contain them."""
    for core in {part for word in words for part in parts_of(word)} - _indexed.keys():
        _indexed[core] = len(_indexed)
        _cores_in.clear()
        _seen.clear()
        if len(core) < _START:
            _short.add(core)
        else:
            _by_start.setdefault(core[:_START], []).append(core)
    return frozenset(parts_of(word)[0] for word in words)


def find_cores(lower: str) -> set[str]:
    """The indexed cores that a lowercase text contains."""
    present = {core for core in _short if core in lower}
    tokens = set(lower.translate(_PUNCTUATION).split())
    for token in tokens - _seen:
        found = _find_in_token(token)
        if len(token) > _MAX_TOKEN or len(_seen) >= _MAX_CACHED:
            present.update(found)
            continue
        _seen.add(token)
        if found:
            _cores_in[token] = found
    for token in tokens & _cores_in.keys():
        present.update(_cores_in[token])
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
