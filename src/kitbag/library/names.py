"""Item names: sanitizing, comparing, resolving collisions, and lookup.

A Namespace is filled in order of precedence, records the losers of collisions, and looks up items by full
name, short name or slug, ignoring case. Used by the registry for skills, agents and personas.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from kitbag.errors import AmbiguousError, Diagnostic, NotFoundError
from kitbag.library.scopes import Root
from kitbag.text.hidden_characters import collapse_whitespace, find_hidden, format_code_points, remove_hidden
from kitbag.text.plain_frontmatter import YamlValue
from kitbag.text.unicode_forms import fold

MAX_NAME = 64
UNNAMED = "unnamed"
_FORBIDDEN = re.compile(r"[:/\\]+")
_SLUG = re.compile(r"[\W_]+")
_EMPTY_NAMES = frozenset(("", "null", "~", "none", ".", ".."))


def sanitize_name(declared: YamlValue | None, fallback: str) -> tuple[str, str]:
    """A name that is safe to display and look up, and the problem with the declared one; empty if none."""
    if declared is None:
        return _clean(fallback) or UNNAMED, ""
    if not isinstance(declared, str):
        return _clean(fallback) or UNNAMED, "`name` is not a string"
    name = _clean(declared)
    if name.casefold() in _EMPTY_NAMES or "\0" in declared or ".." in _FORBIDDEN.split(declared):
        return _clean(fallback) or UNNAMED, "`name` is not a valid name"
    if name != declared.strip():
        hidden = find_hidden(declared)
        if hidden:
            return name, f"`name` contains hidden characters: {format_code_points(hidden)}"
        if len(collapse_whitespace(declared)) > MAX_NAME:
            return name, f"`name` is longer than {MAX_NAME} characters"
        return name, "`name` contains characters that are not allowed in names"
    return name, ""


def _clean(name: str) -> str:
    text = collapse_whitespace(remove_hidden(name.replace("\n", " ").replace("\t", " ")))
    return _FORBIDDEN.sub("-", text).strip(".- ")[:MAX_NAME].rstrip(".- ")


def normalize_name(name: str) -> str:
    """The lookup key of a name: ignores case and Unicode normalization form."""
    return fold(name.strip())


def slugify(name: str) -> str:
    """`C# Expert` and `c-expert` have the same slug; empty for a name without letters and digits."""
    return _SLUG.sub("-", normalize_name(name)).strip("-")


def _translation_table(letters: str, latin: str) -> dict[int, str]:
    return str.maketrans(dict(zip(letters, latin, strict=True)))


# Letters that look like Latin ones: Cyrillic, Greek and a few others; capitals and lower case differ.
_CONFUSABLE_CAPITALS = _translation_table("АВЕЅІЈКМНОРСТУХԌԚԜΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABESIJKMHOPCTYXGQWABEZHIKMNOPTYX")
_CONFUSABLE_LOWERCASE = _translation_table(
    "аеорсухкіјѕһԁԛԝгпӏѵαεικνορτυχγωηօսհցɡıɑ", "aeopcyxkijshdqwrnlvaeikvoptuxywnouhggia"
)


def confusable_skeleton(name: str) -> str:
    """Names with the same skeleton look alike (Unicode confusables)."""
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
    """Items by full name; the first item added under a name wins."""

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
        """`add` for many items, with a fast path for new ASCII names."""
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
        """Sorted by full name."""
        return iter([self._by_key[key] for key in sorted(self._by_key)])

    def get_exact(self, name: str) -> T | None:
        return self._by_key.get(normalize_name(name))

    def candidates(self, name: str) -> list[T]:
        """The items a name may refer to: the exact one, else all with that short name, else all with that slug."""
        exact = self.get_exact(name)
        if exact is not None:
            return [exact]
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
        """The one item with this name. Raises NotFoundError with suggestions, or AmbiguousError with all full names."""
        candidates = self.candidates(name) if among is None else list(among)
        if len(candidates) == 1:
            return candidates[0]
        if len(name) > 2 * MAX_NAME:
            name = name[: 2 * MAX_NAME] + "…"
        if candidates:
            names = ", ".join(item.full_name for item in candidates)
            raise AmbiguousError(f"{name!r} is ambiguous; it matches {names}", "use the full name")
        similar = self.suggest(name)
        hint = f"did you mean {', '.join(similar)}?" if similar else f"run `kitbag {self._noun}s list` to see all names"
        raise NotFoundError(f"no {self._noun} named {name!r}", hint)

    def suggest(self, name: str, limit: int = 5) -> list[str]:
        """Similar full names, best first. Compares every name: not for a hot path."""
        import difflib

        wanted_key = normalize_name(name)
        keys = {normalize_name(item.name): item.full_name for item in self._by_key.values()}
        keys |= {key: item.full_name for key, item in self._by_key.items()}
        matches = difflib.get_close_matches(wanted_key, keys, n=limit, cutoff=0.6)
        matches += [key for key in keys if len(wanted_key) > 2 and wanted_key in key]
        return list(dict.fromkeys(keys[key] for key in matches))[:limit]

    def find_confusables(self, file: str = "") -> list[Diagnostic]:
        """Reports names that look like another item's name. `file`: only the names in this file."""
        non_ascii = [
            item for item in self._by_key.values() if not item.full_name.isascii() and (not file or item.path == file)
        ]
        if not non_ascii:
            return []
        by_skeleton: dict[str, list[T]] = {}
        for item in self._by_key.values():
            by_skeleton.setdefault(confusable_skeleton(item.full_name), []).append(item)
        diagnostics: list[Diagnostic] = []
        for item in non_ascii:
            for other in by_skeleton[confusable_skeleton(item.full_name)]:
                # An ASCII name is never the imitation; of two others, the one with lower precedence is.
                if other is not item and (other.full_name.isascii() or other.root.rank <= item.root.rank):
                    points = format_code_points([(0, ord(c)) for c in item.full_name if not c.isascii()])
                    problem = f"the name looks like that of {other.path} but uses different characters ({points})"
                    diagnostics.append(
                        Diagnostic(
                            severity="warning",
                            code="look-alike",
                            file=item.path,
                            line=0,
                            problem=problem,
                            fix="rename or remove it",
                        )
                    )
                    break
        return diagnostics
