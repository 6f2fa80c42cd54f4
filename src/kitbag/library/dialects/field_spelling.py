"""Finds a field however it is spelled: `allowed-tools`, `allowed_tools`, `allowedTools`, and reports near misses.

Used by the readers of skills, agents and personas. A name that is only similar to that of a field
that limits or grants something is reported, because ignoring it silently would drop the limit.
"""

from collections.abc import Iterable, Mapping
from typing import Final, cast

from kitbag.library.dialects.field_names import MISTAKEN
from kitbag.text.frontmatter import normalize_key
from kitbag.text.plain_frontmatter import Metadata
from kitbag.text.source_files import FileProblem

_SIMILAR: Final = 0.75
_MAX_DEPTH: Final = 3
_MAX_NAME: Final = 40
_MIN_NESTED_NAME: Final = 8
"""`metadata: {tools: [docker]}` is no list of an agent's tools."""
_NO_LIMIT: Final = {"user-invocable": ("", "true", "yes", "on", "1")}
_NO_LIMIT_ELSEWHERE: Final = ("", "false", "no", "off", "0", "null", "~")


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
        self._spelled = {
            normalize_key(name): spellings[field][0]
            for field in protective
            for name in spellings[field]
            if len(name) >= _MIN_NESTED_NAME
        }

    def rename(self, metadata: Metadata, problems: list[FileProblem]) -> Metadata:
        """Each field under the first of its spellings; the first spelling present wins. Other names stay."""
        fields = {key: value for key, value in metadata.items() if key in self.exact}
        problems += self.misplaced(metadata)
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

    def misplaced(self, metadata: Metadata) -> list[FileProblem]:
        """Protective fields inside `metadata` or another map that is no field, where they have no effect."""
        problems: list[FileProblem] = []
        for key, value in metadata.items():
            if value.__class__ is dict and (key == "metadata" or key not in self.exact) and len(key) <= _MAX_NAME:
                problems += self._find_misplaced(key, key, cast("Metadata", value), 1)
        return problems

    def _find_misplaced(self, top: str, place: str, fields: Metadata, depth: int) -> list[FileProblem]:
        problems: list[FileProblem] = []
        for key, value in fields.items():
            if len(key) > _MAX_NAME:
                continue
            name = self._spelled.get(normalize_key(key))
            if name is not None:
                text = value.strip().lower() if isinstance(value, str) else "?"
                if text not in _NO_LIMIT.get(name, _NO_LIMIT_ELSEWHERE):
                    problem = f"`{key}` inside `{place}` has no effect"
                    fix = f"move it out of `{place}`, as `{name}: ...` without indentation"
                    problems.append(FileProblem("warning", "field-misplaced", 1, problem, fix, field=top))
            elif isinstance(value, dict) and depth < _MAX_DEPTH:
                problems += self._find_misplaced(top, f"{place}.{key}", value, depth + 1)
        return problems


def _pairs(text: str) -> frozenset[str]:
    return frozenset(text[at : at + 2] for at in range(len(text) - 1))


def _similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """The share of common letter pairs, 0 to 1."""
    return 2 * len(one & other) / (len(one) + len(other) or 1)
