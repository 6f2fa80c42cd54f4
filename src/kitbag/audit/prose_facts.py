"""The facts of prose_facts.toml: what a paragraph of instructions can say, as expressions and words to look for.

Used by instructions, which finds the combinations of rules.toml.
"""

import functools
import itertools
import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from importlib.resources import files
from typing import Final, NamedTuple

import msgspec

from kitbag.audit.expressions import load_words
from kitbag.audit.word_index import CoreIndex, parts_with_edges, without_punctuation

SENTENCE_END: Final = "\x01"
"""Stands for the period, question or exclamation mark at the end of a sentence: one character that a gap excludes."""
_SHORTHANDS: Final = {
    "NOT": (
        r"(?:(?=[admnrs])(?<!\bwe\s)(?<!\bthey\s)(?<!\bI\s)(?<!\busers\s)"
        r"(?:(?:do|must|should|need|shall) ?n[’']?[o’']?t|never|avoid|refrain from))"
    ),
    "USER": (
        r"(?:users?|human|operator|owner|developer|person|customer|colleague|reviewer|employees|anyone|anybody|them)"
    ),
    "…": rf"[^{SENTENCE_END}。]{{0,80}}?",
    "[^.\\n]": rf"[^.\n{SENTENCE_END}]",
    "[^\\n.]": rf"[^.\n{SENTENCE_END}]",
}
_PERIOD: Final = re.compile(r"[.!?](?!\S)")
_MIN_WORD: Final = 2
_MIN_PART: Final = 2
_SPACED: Final = "\u0530"
_TOKEN: Final = re.compile(
    r"""(?P<look>\(\?<?[=!])|(?P<open>\((?:\?[a-z-]*:)?)|(?P<close>\))|(?P<or>\|)|(?P<edge>\\[bB]|[$^])|(?P<space>\\s)
    |\\x(?P<code>[0-9a-f]{2})|(?P<any>\\[wWdDS]|\.|\[\^?\]?(?:\\.|[^\]\\])*\])|\\?(?P<letter>.)""",
    re.VERBOSE | re.DOTALL,
)
_REPEATS: Final = ("?", "*", "+", "{")
_REPEAT: Final = re.compile(r"(?:(?P<optional>[?*]|\{0?,\d*\})|\+|\{\d+(?:,\d*)?\})[?+]?")


_NEGATIONS: Final = ("not", "n't", "n’t", "never", "avoid", "refrain", "dont", "mustnt", "shouldnt", "neednt")


_cores: Final = CoreIndex()
"""Parts of the words of facts."""


class RequiredWords:
    """Words of which a text has to contain one. Each is looked for by the part of it that the fewest words have."""

    __slots__ = ("by_core",)

    def __init__(self, words: tuple[str, ...], counts: Counter[str]) -> None:
        self.by_core: dict[str, list[tuple[frozenset[str], str]]] = {}
        """The other parts of each word, and the word, unless a text with all parts has it."""
        for word in words:
            parts = _word_parts(word)
            rarest = min(parts, key=lambda part: (counts[part], part))
            self.by_core.setdefault(rarest, []).append((parts - {rarest}, "" if parts == frozenset((word,)) else word))

    def may_be_in(self, cores: set[str], lower: str) -> bool:
        for core in cores & self.by_core.keys():
            for others, word in self.by_core[core]:
                if others <= cores and word in lower:
                    return True
        return False


class FactLine:
    """One way to state a fact. Its expression is compiled when a text may match: most never do."""

    def __init__(self, pattern: str, words: RequiredWords, others: RequiredWords, *, negates: bool) -> None:
        self.pattern = pattern
        self.words = words
        """A text that matches contains one of these, and one of the others, if there are any."""
        self.others = others
        self.negates = negates

    @functools.cached_property
    def regex(self) -> "re.Pattern[str]":
        return re.compile(_first_letters(self.pattern) + self.pattern, re.IGNORECASE)

    def may_match(self, cores: set[str], lower: str) -> bool:
        """Whether a text with these cores has the words."""
        return self.words.may_be_in(cores, lower) and (not self.others.by_core or self.others.may_be_in(cores, lower))


class ProseFact(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    name: str
    lines: tuple[FactLine, ...]
    """Each way to say it, with words of its own: most texts contain those of few."""
    lines_by_core: dict[str, tuple[int, ...]]
    """For each core of a word, which of them a text with it may contain."""

    @functools.cached_property
    def regex(self) -> "re.Pattern[str]":
        """All ways to say it."""
        return re.compile("|".join(line.pattern for line in self.lines), re.IGNORECASE)

    def find_lines(self, lower: str, cores: set[str], is_negated: bool) -> list[FactLine]:
        """The ways to say it that have their words in a text with these cores."""
        possible = {line for core in cores & self.lines_by_core.keys() for line in self.lines_by_core[core]}
        return [
            line
            for line in map(self.lines.__getitem__, possible)
            if (is_negated or not line.negates) and line.may_match(cores, lower)
        ]

    def find(self, text: str, lower: str, cores: set[str], limit: int) -> list[int]:
        """Where a text with these cores states it: the first places of each way to say it."""
        return find_places(self.find_lines(lower, cores, has_negation(lower)), text, limit)


def find_places(lines: list[FactLine], text: str, limit: int) -> list[int]:
    """The first places of each of these ways to say something."""
    return sorted(match.start() for line in lines for match in itertools.islice(line.regex.finditer(text), limit))


def _has_any(lower: str, words: Iterable[str]) -> bool:
    for word in words:  # noqa: SIM110 (a generator costs more than the search)
        if word in lower:
            return True
    return False


def has_negation(lower: str) -> bool:
    return _has_any(lower, _NEGATIONS)


def mark_sentences(text: str) -> str:
    """A text as the expressions of facts expect it: periods inside `a.txt` are not the end of a sentence."""
    return _PERIOD.sub(SENTENCE_END, text)


def find_cores(spaced: str) -> set[str]:
    """The parts of words of facts in a text with blanks for punctuation."""
    return _cores.find(set(spaced.split()))


class _ReadLine(NamedTuple):
    pattern: str
    words: tuple[str, ...]
    others: tuple[str, ...]
    negates: bool


@functools.cache
def load_facts() -> dict[str, ProseFact]:
    document = tomllib.loads(files("kitbag.audit").joinpath("prose_facts.toml").read_text("utf-8"))
    read = {name: [_read_line(line) for line in _lines(document, name)] for name in document}
    counts = Counter(
        part
        for lines in read.values()
        for line in lines
        for word in line.words + line.others
        for part in _word_parts(word)
    )
    for core in counts:
        _cores.add(core)
    return {name: _make_fact(name, lines, counts) for name, lines in read.items()}


def _lines(document: dict[str, dict[str, list[str]]], name: str) -> list[str]:
    """The ways to say it, and those of the facts that it includes."""
    entry = document[name]
    included = [line for other in entry.get("includes", []) for line in _lines(document, other)]
    return included + entry["any"] + (_secret_places() if name == "key_file" else [])


def _secret_places() -> list[str]:
    """Paths and commands that code reads secrets with; names of products are ordinary in prose."""
    paths = [path for path in load_words("secret_places.paths") if path.startswith(".") or "/" in path]
    either = [
        "|".join(re.escape(place).replace("\\ ", " ") for place in places)
        for places in (paths, load_words("secret_places.commands"))
    ]
    return [rf"(?<![\w.])(?:{either[0]})(?![\w-])", rf"\b(?:{either[1]})"]


@functools.cache
def _read_line(line: str) -> _ReadLine:
    pattern = to_regex(line)
    words, others = required_words(pattern)
    negates = "NOT" in line and (not others or "do" in others)
    return _ReadLine(pattern, words, () if negates else others, negates)


def _make_fact(name: str, read: list[_ReadLine], counts: Counter[str]) -> ProseFact:
    by_core: dict[str, list[int]] = {}
    lines: list[FactLine] = []
    for at, line in enumerate(read):
        words, others = RequiredWords(line.words, counts), RequiredWords(line.others, counts)
        lines.append(FactLine(line.pattern, words, others, negates=line.negates))
        for core in words.by_core:
            by_core.setdefault(core, []).append(at)
    return ProseFact(
        name=name, lines=tuple(lines), lines_by_core={core: tuple(numbers) for core, numbers in by_core.items()}
    )


@functools.cache
def _word_parts(word: str) -> frozenset[str]:
    """Without very short ones. In a text, a line may end between two words."""
    core, *others = parts_with_edges(word)
    return frozenset([core, *(part for part in others if len(without_punctuation(part).strip()) >= _MIN_PART)])


def to_regex(line: str) -> str:
    # Words beside a gap end there: `to` is not the start of `tool`.
    pattern = re.sub(r"(?<=[a-z)?]) …", r"\\b …", line)
    pattern = re.sub(r"… (?=(?:\((?:\?:)?)?[a-z])", r"… \\b", pattern)
    pattern = re.sub(r" ?… ?", "…", pattern)
    for shorthand, meaning in _SHORTHANDS.items():
        pattern = pattern.replace(shorthand, meaning)
    pattern = re.sub(r" (?![?*+{])", r"\\s+", pattern.replace(" ?", r"\s*"))
    # Languages from Armenian on write words together, or end them otherwise.
    start = r"\b" if re.match(r"(?:\((?:\?[:i-]+)?)?[\w]", line) and line.lstrip("(?:i-")[0] < _SPACED else ""
    end = r"\b" if (last := re.search(r"(\w)\)?(?:s\?)?$", line)) and last[1] < _SPACED else ""
    return f"(?:{start}(?:{pattern}){end})"


def _first_letters(pattern: str) -> str:
    """An expression that fails at most places, where the pattern would fail after it tried each alternative."""
    starts = _starts(_parse(pattern, 0)[0])
    if not all(starts) or any(start[0] == " " for start in starts):
        return ""
    return f"(?=[{''.join(sorted({re.escape(start[0]) for start in starts}))}])"


class _Choice(NamedTuple):
    """Alternatives in an expression: the parts of each. A part is a letter, alternatives, or None for anything."""

    branches: "list[list[str | _Choice | None]]"


_Parts = list[str | _Choice | None]


def required_words(pattern: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Texts that match contain one of the first and one of the second, which may be empty; those that tell most."""
    best = _best_choices([_parse(pattern, 0)[0]])
    words, *others = [choice for choice in best if _worth(choice) >= _MIN_WORD] or [()]
    if not words:
        raise ValueError(f"no word tells texts apart that match {pattern!r}")
    apart = (choice for choice in others if not any(a in b or b in a for a in choice for b in words))
    return words, next(apart, ())


def _parse(pattern: str, at: int) -> tuple[_Choice, int]:
    """Reads alternatives up to the parenthesis that closes them; letters are lower case, white space is a blank."""
    branches: list[_Parts] = [[]]
    while at < len(pattern):
        if pattern[at].isalnum() and pattern[at + 1 : at + 2] not in _REPEATS:  # most are; the rest costs more
            branches[-1].append(pattern[at].lower())
            at += 1
            continue
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise ValueError(f"unreadable expression {pattern[at:]!r}")
        at, kind = token.end(), token.lastgroup
        if kind == "close":
            break
        part: str | _Choice | None = None
        if kind in ("open", "look"):
            part, at = _parse(pattern, at)
        elif kind == "or":
            branches.append([])
        elif kind == "letter":
            part = token["letter"].lower()
        elif kind == "code":
            part = chr(int(token["code"], 16))
        elif kind == "space":
            part = " "
        repeat = _REPEAT.match(pattern, at)
        at = repeat.end() if repeat else at
        if kind in ("or", "edge", "look"):
            continue  # they match no letter
        is_certain = repeat is None or (not repeat["optional"] and (isinstance(part, _Choice) or part == " "))
        branches[-1] += [part] if is_certain else [part, None] if repeat and not repeat["optional"] else [None]
    return _Choice(branches), at


def _best_choices(parts: _Parts) -> list[tuple[str, ...]]:
    """All choices of words, the best first; a blank in a word stands for white space."""
    choices: list[tuple[str, ...]] = []
    run = ""
    for part in parts:
        if isinstance(part, str):
            run += part
            continue
        choices.append((run.strip(" "),))
        if part is not None:
            choices.append(tuple((run + start).strip(" ") for start in _starts(part)))
            branches = [_best_choices(branch) for branch in part.branches]
            if len(branches) == 1:
                choices += branches[0]
            elif all(branches):
                choices.append(tuple(word for best, *_ in branches for word in best))
        run = ""
    choices.append((run.strip(" "),))
    return sorted((choice for choice in choices if choice and all(choice)), key=_worth, reverse=True)


def _starts(choice: _Choice) -> list[str]:
    """The letters that alternatives can start with; empty for one that can start with anything."""
    starts: list[str] = []
    for branch in choice.branches:
        known = [""]
        for part in branch:
            if isinstance(part, str):
                known = [start + part for start in known]
                continue
            if part is not None:
                known = [start + more for start in known for more in _starts(part)]
            break
        starts += known
    return starts


def _worth(words: tuple[str, ...]) -> int:
    return min(len(word.encode()) for word in words)
