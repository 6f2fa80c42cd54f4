"""Finds a field however it is spelled: `allowed-tools`, `allowed_tools`, `allowedTools`, and reports near misses.

Used by the readers of skills, agents and personas. A name that is only similar to that of a field
that limits or grants something is reported, because ignoring it silently would drop the limit.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from kitbag.library.dialects.field_names import MISTAKEN
from kitbag.text.frontmatter import normalize_key
from kitbag.text.plain_frontmatter import Metadata
from kitbag.text.source_files import FileProblem

_SIMILAR: Final = 0.75
_MAX_NAME: Final = 40


class FieldSpelling:
    """The spellings of one kind of file."""

    def __init__(
        self, spellings: Mapping[str, tuple[str, ...]], ignored: Iterable[str], protective: Iterable[str]
    ) -> None:
        """`protective`: the fields, by key of `spellings`, whose near misses are reported."""
        first = {normalize_key(name): names[0] for names in spellings.values() for name in names}
        self._first = first
        self.exact: Final = frozenset(first.values()).union(ignored) - {
            name for names in spellings.values() for name in names[1:]
        }
        """Names that need no lookup."""
        self._protective = {
            spellings[field][0]: [_pairs(normalize_key(name)) for name in (*spellings[field], *MISTAKEN.get(field, ()))]
            for field in protective
        }
        self._similar: dict[str, str] = {}

    def rename(self, metadata: Metadata, problems: list[FileProblem]) -> Metadata:
        """Each field under the first of its spellings; the first spelling present wins. Other names stay."""
        fields = {key: value for key, value in metadata.items() if key in self.exact}
        for key, value in metadata.items():
            if key in self.exact:
                continue
            known = self._first.get(normalize_key(key))
            fields.setdefault(known or key, value)
            if known is None and (problem := self.near_miss(key)):
                problems.append(problem)
        return fields

    def near_miss(self, key: str) -> FileProblem | None:
        """The problem with an unknown name that resembles a protective field."""
        if len(key) > _MAX_NAME or key in self.exact or normalize_key(key) in self._first:
            return None
        similar = self._similar.get(key)
        if similar is None:
            pairs = _pairs(normalize_key(key))
            rated = [
                (max(_similarity(pairs, own) for own in spelled), name) for name, spelled in self._protective.items()
            ]
            rating, name = max(rated, key=lambda rating: rating[0], default=(0.0, ""))
            similar = self._similar[key] = name if rating >= _SIMILAR else ""
        if not similar:
            return None
        problem = f"unknown field `{key}`; ignored"
        return FileProblem("warning", "field-misspelled", 1, problem, f"did you mean `{similar}`?", field=key)


def _pairs(text: str) -> frozenset[str]:
    return frozenset(text[at : at + 2] for at in range(len(text) - 1))


def _similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """The share of common letter pairs, 0 to 1."""
    return 2 * len(one & other) / (len(one) + len(other) or 1)
