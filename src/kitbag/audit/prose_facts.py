"""The facts of prose_facts.toml: what a paragraph of instructions can say, as expressions and words to look for.

Used by instructions, which finds the combinations of rules.toml.
"""

import functools
import importlib
import itertools
import re
import tomllib
from importlib.resources import files
from typing import Any, Final

import msgspec

_parser: Any = importlib.import_module("re._parser")
sre: Any = importlib.import_module("re._constants")
"""Every supported Python has them; they tell which letters an expression needs."""
_SHORTHANDS: Final = {
    "NOT": r"(?:do not|\w+n[’']t|dont|never|must not|should not|need not|avoid|refrain from)",
    "USER": (
        r"(?:users?|human|operator|owner|developer|person|customer|colleague|reviewer|employees|anyone|anybody|them)"
    ),
    "…": r"(?:(?:[^.!?。]|[.!?](?=\S)){0,80}?)",
}
_MIN_WORD: Final = 2
_SPACE: Final = list(_parser.parse(r"\s"))
_SPACED: Final = "\u0530"


class ProseFact(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    regex: "re.Pattern[str]"
    words: tuple[str, ...]
    """Lower case; every text that states the fact contains one of them."""
    lines: tuple[tuple[tuple[str, ...], "re.Pattern[str]"], ...]
    """Each way to say it, with words of its own: most texts contain those of few."""

    def find(self, text: str, lower: str, limit: int) -> list[int]:
        """Where a text states it: the first places of each way to say it."""
        places: list[int] = []
        for words, regex in self.lines:
            for word in words:
                if word in lower:
                    places += [match.start() for match in itertools.islice(regex.finditer(text), limit)]
                    break
        return sorted(places)


@functools.cache
def load_facts() -> dict[str, ProseFact]:
    document = tomllib.loads(files("kitbag.audit").joinpath("prose_facts.toml").read_text("utf-8"))
    return {name: _compile(name, entry["any"]) for name, entry in document.items()}


def _compile(name: str, lines: list[str]) -> ProseFact:
    patterns = [to_regex(line) for line in lines]
    ways = tuple((required_words(pattern), re.compile(pattern, re.IGNORECASE)) for pattern in patterns)
    # In a text, a line may end between two words.
    words = {max(word.split(), key=len) for needed, _ in ways for word in needed}
    shortest = {word for word in words if not any(other != word and other in word for other in words)}
    regex = re.compile("|".join(patterns), re.IGNORECASE)
    return ProseFact(name=name, regex=regex, words=tuple(sorted(shortest)), lines=ways)


def to_regex(line: str) -> str:
    # Words beside a gap end there: `to` is not the start of `tool`.
    pattern = re.sub(r"(?<=[a-z)]) …", r"\\b …", line)
    pattern = re.sub(r"… (?=(?:\((?:\?:)?)?[a-z])", r"… \\b", pattern)
    pattern = re.sub(r" ?… ?", "…", pattern)
    for shorthand, meaning in _SHORTHANDS.items():
        pattern = pattern.replace(shorthand, meaning)
    pattern = re.sub(r" (?![?*+{])", r"\\s+", pattern.replace(" ?", r"\s*"))
    # Languages from Armenian on write words together, or end them otherwise.
    start = r"\b" if re.match(r"(?:\((?:\?[:i-]+)?)?[\w]", line) and line.lstrip("(?:i-")[0] < _SPACED else ""
    end = r"\b" if re.search(r"\w\)?$|\ws\?$", line) and line.rstrip(")?")[-1] < _SPACED else ""
    return f"(?:{start}(?:{pattern}){end})"


def required_words(pattern: str) -> tuple[str, ...]:
    """Texts that match contain one of these; the choice that tells them apart best."""
    words = _required(_parser.parse(pattern, re.IGNORECASE))
    if not words or _worth(words) < _MIN_WORD:
        raise ValueError(f"no word tells texts apart that match {pattern!r}")
    return words


def _required(items: Any) -> tuple[str, ...]:
    """The best choice of words in a parsed expression; a blank in a word stands for white space."""
    choices: list[tuple[str, ...]] = []
    run = ""
    for kind, value in items:
        if kind is sre.LITERAL:
            run += chr(value).lower()
        elif kind is sre.MAX_REPEAT and value[0] == 1 and list(value[2]) == _SPACE:
            run += " "
        else:
            choices += [(run.strip(" "),), tuple((run + start).strip(" ") for start in _starts([(kind, value)]))]
            run = ""
            if kind is sre.SUBPATTERN:
                choices.append(_required(value[-1]))
            elif kind is sre.BRANCH:
                branches = [_required(branch) for branch in value[1]]
                choices.append(tuple(word for branch in branches for word in branch) if all(branches) else ())
            elif kind in (sre.MAX_REPEAT, sre.MIN_REPEAT) and value[0] > 0:
                choices.append(_required(value[2]))
    choices.append((run.strip(" "),))
    return max((choice for choice in choices if choice and all(choice)), key=_worth, default=())


def _starts(items: Any) -> tuple[str, ...]:
    """The letters that a parsed expression can start with; empty if it can start with anything."""
    starts: tuple[str, ...] = ("",)
    for kind, value in items:
        if kind is sre.LITERAL:
            starts = tuple(start + chr(value).lower() for start in starts)
        elif kind is sre.SUBPATTERN or kind is sre.BRANCH:
            inner = _starts(value[-1]) if kind is sre.SUBPATTERN else tuple(s for b in value[1] for s in _starts(b))
            return tuple(start + more for start in starts for more in inner)
        else:
            break
    return starts


def _worth(words: tuple[str, ...]) -> int:
    return min(len(word.encode()) for word in words)
