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
_MIN_SLIP: Final = 5
_MAX_DEPTH: Final = 3
_MAX_NAME: Final = 40
_MIN_NESTED_NAME: Final = 8
"""`metadata: {tools: [docker]}` is no list of an agent's tools."""
_NO_LIMIT: Final = {"user-invocable": ("", "true", "yes", "on", "1")}
_NO_LIMIT_ELSEWHERE: Final = ("", "false", "no", "off", "0", "null", "~")


class FieldSpelling:
    """The spellings of one kind of file."""

    def __init__(
        self,
        spellings: Mapping[str, tuple[str, ...]],
        ignored: Iterable[str],
        protective: Iterable[str],
        elsewhere: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """`protective`: the fields, by key of `spellings`, whose near misses are reported; `elsewhere`: spellings of
        fields that limit something in other files only."""
        first = {normalize_key(name): names[0] for names in spellings.values() for name in names}
        self._first = first
        self.exact: Final = frozenset(first.values()).union(ignored) - {
            name for names in spellings.values() for name in names[1:]
        }
        """Names that need no lookup."""
        meant = {spellings[field][0]: (*spellings[field], *MISTAKEN.get(field, ())) for field in protective}
        self._elsewhere = {names[0]: names for names in (elsewhere or {}).values()}
        self._protective = {
            name: [(word := normalize_key(spelled), _pairs(word)) for spelled in names]
            for name, names in (meant | self._elsewhere).items()
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
            word = normalize_key(key)
            pairs = _pairs(word)
            rated = [
                (max(_similarity(pairs, other) if word != own else 1.5 for own, other in spelled), name)
                for name, spelled in self._protective.items()
            ]
            rating, name = max(rated, key=lambda rating: rating[0], default=(0.0, ""))
            if rating < _SIMILAR:
                name = next((name for name, spelled in self._protective.items() if _is_slip(word, spelled)), "")
            similar = self._similar[key] = name
        if not similar:
            return None
        if similar in self._elsewhere:
            problem = f"`{key}` has no effect in skills and commands"
            fix = f"they have no `{similar}`; write `restrict-tools`, or `context: fork` and an `agent` that has it"
            return FileProblem("warning", "field-ignored", 1, problem, fix, field=key)
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


def _is_slip(word: str, names: list[tuple[str, frozenset[str]]]) -> bool:
    """Whether one letter of a name was omitted, added or replaced, or two were swapped."""
    return any(_is_one_edit(word, name) for name, _ in names if len(name) >= _MIN_SLIP)


def _is_one_edit(one: str, other: str) -> bool:
    if abs(len(one) - len(other)) > 1:
        return False
    at = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    left, right = one[at:], other[at:]
    if len(one) == len(other):
        return left[1:] == right[1:] or (left[1::-1] == right[:2] and left[2:] == right[2:])
    return left[1:] == right or left == right[1:]


def _similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """The share of common letter pairs, 0 to 1."""
    return 2 * len(one & other) / (len(one) + len(other) or 1)
