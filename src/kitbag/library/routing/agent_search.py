"""Which agent a request is for: by the words of its name and description, and by the files that the request names.

Used by `kitbag agents search` and by the offline model, which has only the lines of a catalog. A model decides for
itself; this is what its catalog is worth without one. Pure: it asks nobody who may see an agent.
"""

import re
from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from kitbag.library.routing.skill_search import stem_words

_FILE = re.compile(r"(?<![\w/.-])(?:[\w.-]{1,80}/){0,20}[\w.-]{0,80}[\w-]\.[A-Za-z]\w{0,7}(?![\w/-]|\.\w)")
_EXTENSION = re.compile(r"(?<![\w/.-])\*?(\.[A-Za-z]\w{0,7})(?![\w/-]|\.\w)")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")
_EXCLUSION = re.compile(r"(?i)(?:not|never|do not|don't|it does not|it never|reads only)\b")
"""Begins a sentence that says what an agent is not for."""
_FILLERS: Final = frozenset(
    stem_words(
        "what which where who why does did do can could would should please show tell give make want need help me my"
        " our your have has about into file files there here some all any its them they then agent"
    )
)
_MAX_MESSAGE, _MAX_FILES = 20_000, 100
_MIN_STEM, _MAX_ENDING = 4, 3
_NAME_WORD_SCORE, _CALLED_SCORE = 2.0, 10.0


CALLED_BY_NAME: Final = 3
CONFIDENCE_LEVELS: Final = ("words", "work", "name", "called")
"""How sure a match is, in words."""


class AgentCandidate(NamedTuple):
    name: str
    """As it is called: `shop/sql-reviewer`."""
    description: str
    extensions: tuple[str, ...] = ()


class AgentMatch(NamedTuple):
    name: str
    score: float
    words: tuple[str, ...]
    """Of the request, that speak for it."""
    files: tuple[str, ...] = ()
    """Of those that the request names, that it is made for."""
    level: int = 0
    """How sure it is. 3: the request calls it by its name; 2: has all words of its name and more, or one of them and a
    file of its kind; 1: says what it does (the last word of its name: a reviewer reviews) and of what; 0: shares
    words."""


def rank_agents(candidates: Iterable[AgentCandidate], message: str) -> list[AgentMatch]:
    """Best first; of equal ones, in the order of their names. Those for which nothing speaks are left out."""
    message = message[:_MAX_MESSAGE]
    asked = find_topic_words(message) - _FILLERS
    files = find_files(message)
    found = [_score_candidate(one, asked, files, _is_called(one.name, message)) for one in candidates]
    order = sorted(found, key=lambda match: (-match.level, not match.files, -match.score, match.name.lower()))
    return [match for match in order if match.score > 0 or match.files]


def find_topic_words(message: str) -> set[str]:
    """Its words, without numbers and the names of files, of which only the kind says what is asked for."""
    for path in sorted(find_paths(message), key=len, reverse=True):
        message = message.replace(path, path.rpartition(".")[2])
    return {word for word in stem_words(message) if not word.isdigit()}


def find_paths(text: str) -> list[str]:
    """Files that are named in it, each once, in their order."""
    return list(dict.fromkeys(found[0] for found in islice(_FILE.finditer(text), _MAX_FILES)))


def find_files(message: str) -> list[str]:
    """Paths, and bare extensions such as `.sql`."""
    bare = dict.fromkeys(found[1] for found in islice(_EXTENSION.finditer(message), _MAX_FILES))
    return [*find_paths(message), *bare]


def _score_candidate(one: AgentCandidate, asked: set[str], files: list[str], is_called: bool) -> AgentMatch:
    parts = [stem_words(part) for part in _short_name(one.name).replace("_", "-").split("-")]
    said = {word for word in asked if any(_has_word(part, word) for part in parts)}
    told = (asked & _description_words(one.description)) - said
    fitting = tuple(file for file in files if file.lower().endswith(one.extensions))
    score = _NAME_WORD_SCORE * len(said) + len(told) + (_CALLED_SCORE if is_called else 0.0)
    level = _confidence_level(parts, asked, score, is_called, bool(fitting and said))
    if one.extensions and files and not fitting and not is_called:
        score, level = score / 2, 0  # made for other files than these
    return AgentMatch(one.name, score, tuple(sorted(said | told)), fitting, level)


def _confidence_level(parts: list[set[str]], asked: set[str], score: float, is_called: bool, by_file: bool) -> int:
    if is_called:
        return CALLED_BY_NAME
    is_said = [any(_has_word(part, word) for word in asked) for part in parts if part]
    if by_file or (is_said and all(is_said) and score > _NAME_WORD_SCORE):
        return 2
    return 1 if is_said and is_said[-1] and score > _NAME_WORD_SCORE else 0


def _has_word(part: set[str], word: str) -> bool:
    return any(share_stem(word, own) for own in part)


def _short_name(name: str) -> str:
    return re.split(r"[/:]", name)[-1]


def _is_called(name: str, message: str) -> bool:
    """`@agent-plan`, `@plan`, `the Plan agent`, `agent Plan`; a name that no sentence holds by chance, as it is."""
    for one in dict.fromkeys((name, _short_name(name))):
        word = re.escape(one)
        forms = [rf"@(?:agent-)?{word}", rf"{word}\s+(?:sub)?agent", rf"(?:sub)?agent\s+[`'\"]?{word}"]
        if re.search(r"[-/:_]", one):
            forms.append(word)
        if re.search(rf"(?i)(?<![\w/.-])(?:{'|'.join(forms)})(?![\w/-])", message):
            return True
    return False


def _description_words(description: str) -> set[str]:
    """Without what it says that it is not for."""
    kept = [sentence for sentence in _SENTENCE.split(description) if not _EXCLUSION.match(sentence)]
    return stem_words(" ".join(kept))


def share_stem(one: str, other: str) -> bool:
    """Stems of one word: `review` and `reviewer`, `investigat` and `investigation`."""
    short, long = sorted((one, other), key=len)
    if short == long:
        return True
    return len(short) >= _MIN_STEM and long.startswith(short) and len(long) - len(short) <= _MAX_ENDING
