"""Ranks agents for a message, by the words of their names and descriptions and by the files the message names.

Used by `kitbag agents search` and by the offline model, which only has the lines of a catalog. Pure: does not check
visibility. Scores agents as skill_search scores skills; a level says how clearly the message means an agent.
"""

import re
from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from kitbag.library.registry import Registry
from kitbag.library.routing.description_search import DescriptionMatch, DescriptionSearch
from kitbag.library.routing.light_stems import light_stems

_FILE = re.compile(r"(?<![\w/.-])(?:[\w.-]{1,80}/){0,20}[\w.-]{0,80}[\w-]\.[A-Za-z]\w{0,7}(?![\w/-]|\.\w)")
_EXTENSION = re.compile(r"(?<![\w/.-])\*?(\.[A-Za-z]\w{0,7})(?![\w/-]|\.\w)")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")
_EXCLUSION = re.compile(r"(?i)(?:not|never|do not|don't|it does not|it never|reads only)\b")
"""Starts a sentence that says what an agent is not for."""
_FILLERS: Final = frozenset(
    light_stems(
        "what which where who why does did do can could would should please show tell give make want need help me my"
        " our your have has about into file files there here some all any its them they then agent"
    )
)
_MAX_MESSAGE, _MAX_FILES = 20_000, 100
_MAX_SECONDS: Final = 10.0
"""How long to wait for vectors of new descriptions."""
_MIN_STEM, _MAX_ENDING = 4, 3
_NAME_WORD_SCORE, _CALLED_SCORE = 2.0, 10.0


CALLED_BY_NAME: Final = 3
CONFIDENCE_LEVELS: Final = ("words", "work", "name", "called")
"""Names of the values of `AgentMatch.level`."""


class AgentCandidate(NamedTuple):
    name: str
    """The full name: `shop/sql-reviewer`."""
    description: str
    extensions: tuple[str, ...] = ()


class AgentMatch(NamedTuple):
    name: str
    score: float
    """How many words match; words of the name count twice."""
    words: tuple[str, ...]
    """Words of the message that match the agent."""
    files: tuple[str, ...] = ()
    """Files in the message that have one of its extensions."""
    level: int = 0
    """Confidence. 3: the message calls the agent by name; 2: it has all words of the name and more, or one of them and
    a file with its extension; 1: it has the last word of the name (a reviewer reviews) and another match; 0: it
    shares words."""
    relevance: float = 0.0
    """By the ranking of skills: orders agents of the same level."""
    is_similar: bool = False
    """Its description means something similar, by vectors."""


def rank_agents(
    candidates: Iterable[AgentCandidate], message: str, registry: Registry | None = None
) -> list[AgentMatch]:
    """Best first, then by name. Agents without any match are omitted. `registry`: says which encoder there is, to match
    by meaning, too."""
    message = message[:_MAX_MESSAGE]
    words = find_topic_words(message) - _FILLERS
    files = find_files(message)
    candidates = list(candidates)
    matches = [
        _score_candidate(candidate, relevance, words, files, _is_called(candidate.name, message))
        for candidate, relevance in zip(candidates, _score_all(candidates, message, registry), strict=True)
    ]
    ordered = sorted(matches, key=lambda match: (-match.level, not match.files, -match.relevance, match.name.lower()))
    return [match for match in ordered if match.score > 0 or match.files or match.is_similar]


def _score_all(candidates: list[AgentCandidate], message: str, registry: Registry | None) -> list[DescriptionMatch]:
    """By the ranking of skills, over name and description."""
    texts = [(candidate.name, _without_exclusions(candidate.description)) for candidate in candidates]
    search = DescriptionSearch(texts, registry)
    search.wait_until_filled(_MAX_SECONDS)
    return search.match(message)


def find_topic_words(message: str) -> set[str]:
    """The stemmed words of a message, without numbers; of a file name only the extension counts."""
    for path in sorted(find_paths(message), key=len, reverse=True):
        message = message.replace(path, path.rpartition(".")[2])
    return {word for word in light_stems(message) if not word.isdigit()}


def find_paths(text: str) -> list[str]:
    """The file paths in a text, in order, without duplicates."""
    return list(dict.fromkeys(match[0] for match in islice(_FILE.finditer(text), _MAX_FILES)))


def find_files(message: str) -> list[str]:
    """Paths, and bare extensions such as `.sql`."""
    extensions = dict.fromkeys(match[1] for match in islice(_EXTENSION.finditer(message), _MAX_FILES))
    return [*find_paths(message), *extensions]


def _score_candidate(
    candidate: AgentCandidate, found: DescriptionMatch, words: set[str], files: list[str], is_called: bool
) -> AgentMatch:
    relevance = found.score
    parts = [light_stems(part) for part in _short_name(candidate.name).replace("_", "-").split("-")]
    name_words = {word for word in words if any(_has_word(part, word) for part in parts)}
    description_words = (words & _description_words(candidate.description)) - name_words
    matching_files = tuple(file for file in files if file.lower().endswith(candidate.extensions))
    score = _NAME_WORD_SCORE * len(name_words) + len(description_words) + (_CALLED_SCORE if is_called else 0.0)
    level = _confidence_level(parts, words, score, is_called, bool(matching_files and name_words))
    if candidate.extensions and files and not matching_files and not is_called:
        score, relevance, level = score / 2, relevance / 2, 0  # its extensions match none of the files
    return AgentMatch(
        name=candidate.name,
        score=score,
        words=tuple(sorted(name_words | description_words)),
        files=matching_files,
        level=level,
        relevance=relevance,
        is_similar=found.is_similar,
    )


def _confidence_level(parts: list[set[str]], words: set[str], score: float, is_called: bool, has_file: bool) -> int:
    if is_called:
        return CALLED_BY_NAME
    is_mentioned = [any(_has_word(part, word) for word in words) for part in parts if part]
    if has_file or (is_mentioned and all(is_mentioned) and score > _NAME_WORD_SCORE):
        return 2
    return 1 if is_mentioned and is_mentioned[-1] and score > _NAME_WORD_SCORE else 0


def _has_word(part: set[str], word: str) -> bool:
    return any(share_stem(word, part_word) for part_word in part)


def _short_name(name: str) -> str:
    return re.split(r"[/:]", name)[-1]


def _is_called(name: str, message: str) -> bool:
    """`@agent-plan`, `@plan`, `the Plan agent`, `agent Plan`; a name with punctuation also counts on its own."""
    for name_form in dict.fromkeys((name, _short_name(name))):
        pattern = re.escape(name_form)
        forms = [rf"@(?:agent-)?{pattern}", rf"{pattern}\s+(?:sub)?agent", rf"(?:sub)?agent\s+[`'\"]?{pattern}"]
        if re.search(r"[-/:_]", name_form):
            forms.append(pattern)
        if re.search(rf"(?i)(?<![\w/.-])(?:{'|'.join(forms)})(?![\w/-])", message):
            return True
    return False


def _description_words(description: str) -> set[str]:
    """The words of a description, without sentences that say what the agent is not for."""
    return light_stems(_without_exclusions(description))


def _without_exclusions(description: str) -> str:
    return " ".join(sentence for sentence in _SENTENCE.split(description) if not _EXCLUSION.match(sentence))


def share_stem(one: str, other: str) -> bool:
    """Whether two stems belong to the same word: `review` and `reviewer`, `investigat` and `investigation`."""
    short, long = sorted((one, other), key=len)
    if short == long:
        return True
    return len(short) >= _MIN_STEM and long.startswith(short) and len(long) - len(short) <= _MAX_ENDING
