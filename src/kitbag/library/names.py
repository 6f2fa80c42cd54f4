"""Names: which are usable, when two are the same, who wins, and what a person meant.

A Namespace is filled best first; it keeps the losers of every collision and answers look-ups by
full name, short name, any case and slug. Used by the registry for skills, agents and personas.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from kitbag.errors import AmbiguousError, Diagnostic, NotFoundError
from kitbag.library.scopes import Root
from kitbag.text.hidden_characters import collapse_whitespace, find_hidden, format_code_points, remove_hidden
from kitbag.text.plain_frontmatter import YamlValue

MAX_NAME = 64
UNNAMED = "unnamed"
_FORBIDDEN = re.compile(r"[:/\\]+")
_SLUG = re.compile(r"[\W_]+")
_EMPTY_NAMES = frozenset(("", "null", "~", "none", ".", ".."))


def sanitize_name(written: YamlValue | None, fallback: str) -> tuple[str, str]:
    """A name that is safe to show, list and look up, and what was wrong with the written one."""
    if written is None:
        return _clean(fallback) or UNNAMED, ""
    if not isinstance(written, str):
        return _clean(fallback) or UNNAMED, "`name` is not a word"
    name = _clean(written)
    if name.casefold() in _EMPTY_NAMES or "\0" in written or ".." in _FORBIDDEN.split(written):
        return _clean(fallback) or UNNAMED, "`name` can't be used as a name"
    if name != written.strip():
        hidden = find_hidden(written)
        if hidden:
            return name, f"`name` has hidden characters: {format_code_points(hidden)}"
        if len(collapse_whitespace(written)) > MAX_NAME:
            return name, f"`name` is longer than {MAX_NAME} characters"
        return name, "`name` has characters that names can't have"
    return name, ""


def _clean(written: str) -> str:
    text = collapse_whitespace(remove_hidden(written.replace("\n", " ").replace("\t", " ")))
    return _FORBIDDEN.sub("-", text).strip(".- ")[:MAX_NAME].rstrip(".- ")


def normalize_name(name: str) -> str:
    """Two names with one key are one name: case, and how an accent is stored, make no difference."""
    key = name.strip().lower()
    if key.isascii():
        return key
    import unicodedata

    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", key).casefold())


def slugify(name: str) -> str:
    """`C# Expert` and `c-expert` are the same to a person who types it; empty for a name without letters."""
    return _SLUG.sub("-", normalize_name(name)).strip("-")


def _translation_table(letters: str, latin: str) -> dict[int, str]:
    return str.maketrans(dict(zip(letters, latin, strict=True)))


# Letters that look like Latin ones: Cyrillic, Greek and a few others. Capitals have other doubles than small letters.
_CONFUSABLE_CAPITALS = _translation_table("АВЕЅІЈКМНОРСТУХԌԚԜΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABESIJKMHOPCTYXGQWABEZHIKMNOPTYX")
_CONFUSABLE_LOWERCASE = _translation_table(
    "аеорсухкіјѕһԁԛԝгпӏѵαεικνορτυχγωηօսհցɡıɑ", "aeopcyxkijshdqwrnlvaeikvoptuxywnouhggia"
)


def confusable_skeleton(name: str) -> str:
    """Two names with one skeleton look the same."""
    import unicodedata

    folded = (
        unicodedata.normalize("NFKC", name).translate(_CONFUSABLE_CAPITALS).casefold().translate(_CONFUSABLE_LOWERCASE)
    )
    return folded.replace("0", "o").replace("1", "l")


class LibraryItem(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def full_name(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def root(self) -> Root: ...


T = TypeVar("T", bound=LibraryItem)


class Namespace(Generic[T]):
    """Items by full name; the first one added under a name holds it."""

    __slots__ = ("_by_key", "_noun", "_short_names", "shadowed")

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._by_key: dict[str, T] = {}
        self._short_names: tuple[dict[str, list[T]], dict[str, list[T]]] | None = None
        self.shadowed: list[tuple[T, T]] = []
        """(winner, loser) of each collision."""

    def add(self, item: T) -> None:
        winner = self._by_key.setdefault(normalize_name(item.full_name), item)
        if winner is not item:
            self.shadowed.append((winner, item))
        self._short_names = None

    def add_all(self, items: "Iterable[T]") -> None:
        """Like `add` for each, without asking each for what all of a root have in common."""
        by_key = self._by_key
        for item in items:
            key = item.full_name.lower()
            if key in by_key or not key.isascii():
                self.add(item)
            else:
                by_key[key] = item
        self._short_names = None

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[T]:
        """In sorted order of full names."""
        return iter([self._by_key[key] for key in sorted(self._by_key)])

    def get_exact(self, name: str) -> T | None:
        return self._by_key.get(normalize_name(name))

    def candidates(self, name: str) -> list[T]:
        """What the name could mean: the exact one, else all with that short name, else all with that slug."""
        found = self.get_exact(name)
        if found is not None:
            return [found]
        if self._short_names is None:
            self._short_names = self._index_short_names()
        names, slugs = self._short_names
        return names.get(normalize_name(name)) or slugs.get(slugify(name)) or []

    def _index_short_names(self) -> tuple[dict[str, list[T]], dict[str, list[T]]]:
        names: dict[str, list[T]] = {}
        slugs: dict[str, list[T]] = {}
        for item in self:
            names.setdefault(normalize_name(item.name), []).append(item)
            for form in {slugify(item.name), slugify(item.full_name)} - {""}:
                slugs.setdefault(form, []).append(item)
        return names, slugs

    def get(self, name: str, among: Iterable[T] | None = None) -> T:
        """The one item meant. Raises NotFoundError with close names, or AmbiguousError with all full names."""
        found = self.candidates(name) if among is None else list(among)
        if len(found) == 1:
            return found[0]
        if len(name) > 2 * MAX_NAME:
            name = name[: 2 * MAX_NAME] + "…"
        if found:
            names = ", ".join(item.full_name for item in found)
            raise AmbiguousError(f"{name!r} could be any of: {names}", "use the full name")
        close = self.suggest(name)
        hint = f"did you mean {', '.join(close)}?" if close else f"kitbag {self._noun}s list shows all names"
        raise NotFoundError(f"no {self._noun} is called {name!r}", hint)

    def suggest(self, name: str, limit: int = 5) -> list[str]:
        """Full names that a person may have meant, best first. Looks at every name: not for a hot path."""
        import difflib

        wanted = normalize_name(name)
        keys = {normalize_name(item.name): item.full_name for item in self._by_key.values()}
        keys |= {key: item.full_name for key, item in self._by_key.items()}
        near = difflib.get_close_matches(wanted, keys, n=limit, cutoff=0.6)
        near += [key for key in keys if len(wanted) > 2 and wanted in key]
        return list(dict.fromkeys(keys[key] for key in near))[:limit]

    def find_confusables(self) -> list[Diagnostic]:
        """Names that a person can't tell from another one's."""
        strange = [item for item in self._by_key.values() if not item.full_name.isascii()]
        if not strange:
            return []
        by_skeleton: dict[str, list[T]] = {}
        for item in self._by_key.values():
            by_skeleton.setdefault(confusable_skeleton(item.full_name), []).append(item)
        found: list[Diagnostic] = []
        for item in strange:
            for other in by_skeleton[confusable_skeleton(item.full_name)]:
                # A plain name is the one that is imitated, wherever it stands; of two strange ones, the later imitates.
                if other is not item and (other.full_name.isascii() or other.root.rank <= item.root.rank):
                    points = format_code_points([(0, ord(c)) for c in item.full_name if not c.isascii()])
                    what = f"the name looks like that of {other.path} but has other characters ({points})"
                    found.append(Diagnostic("warning", "look-alike", item.path, 0, what, "rename it, or remove it"))
                    break
        return found
