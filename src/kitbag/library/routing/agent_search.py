"""Which agent a request is for: by the words of its name and description, and by the files that the request names.

Used by `kitbag agents search` and by the offline model, which has only the lines of a catalog. A model decides for
itself; this is what its catalog is worth without one. Pure: it asks nobody who may see an agent.
"""

import re
from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from kitbag.library.routing.skill_search import words_of

_FILE = re.compile(r"(?<![\w/.-])(?:[\w.-]{1,80}/){0,20}[\w.-]{0,80}[\w-]\.[A-Za-z]\w{0,7}(?![\w/-]|\.\w)")
_EXTENSION = re.compile(r"(?<![\w/.-])\*?(\.[A-Za-z]\w{0,7})(?![\w/-]|\.\w)")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")
_NOT_ITS_WORK = re.compile(r"(?i)(?:not|never|do not|don't|it does not|it never|reads only)\b")
"""Begins a sentence that says what an agent is not for."""
_FILLERS: Final = frozenset(
    words_of(
        "what which where who why does did do can could would should please show tell give make want need help me my"
        " our your have has about into file files there here some all any its them they then agent"
    )
)
_LONGEST_REQUEST, _MOST_FILES = 20_000, 100
_SHORTEST_KIN, _LONGEST_ENDING = 4, 3
_IN_NAME, _BY_NAME = 2.0, 10.0


CALLED: Final = 3
LEVELS: Final = ("words", "work", "name", "called")
"""How sure a match is, in words."""


class Candidate(NamedTuple):
    name: str
    """As it is called: `shop/sql-reviewer`."""
    description: str
    extensions: tuple[str, ...] = ()


class Match(NamedTuple):
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


def rank_agents(candidates: Iterable[Candidate], request: str) -> list[Match]:
    """Best first; of equal ones, in the order of their names. Those for which nothing speaks are left out."""
    request = request[:_LONGEST_REQUEST]
    asked = words_about(request) - _FILLERS
    files = named_files(request)
    found = [_matched(one, asked, files, _is_called(one.name, request)) for one in candidates]
    order = sorted(found, key=lambda match: (-match.level, not match.files, -match.score, match.name.lower()))
    return [match for match in order if match.score > 0 or match.files]


def words_about(request: str) -> set[str]:
    """Its words, without numbers and the names of files, of which only the kind says what is asked for."""
    for path in sorted(paths_in(request), key=len, reverse=True):
        request = request.replace(path, path.rpartition(".")[2])
    return {word for word in words_of(request) if not word.isdigit()}


def paths_in(text: str) -> list[str]:
    """Files that are named in it, each once, in their order."""
    return list(dict.fromkeys(found[0] for found in islice(_FILE.finditer(text), _MOST_FILES)))


def named_files(request: str) -> list[str]:
    """Paths, and bare extensions such as `.sql`."""
    bare = dict.fromkeys(found[1] for found in islice(_EXTENSION.finditer(request), _MOST_FILES))
    return [*paths_in(request), *bare]


def _matched(one: Candidate, asked: set[str], files: list[str], is_called: bool) -> Match:
    parts = [words_of(part) for part in _short(one.name).replace("_", "-").split("-")]
    said = {word for word in asked if any(_has(part, word) for part in parts)}
    told = (asked & _words_for(one.description)) - said
    fitting = tuple(file for file in files if file.lower().endswith(one.extensions))
    score = _IN_NAME * len(said) + len(told) + (_BY_NAME if is_called else 0.0)
    level = _level(parts, asked, score, is_called, bool(fitting and said))
    if one.extensions and files and not fitting and not is_called:
        score, level = score / 2, 0  # made for other files than these
    return Match(one.name, score, tuple(sorted(said | told)), fitting, level)


def _level(parts: list[set[str]], asked: set[str], score: float, is_called: bool, by_file: bool) -> int:
    if is_called:
        return CALLED
    is_said = [any(_has(part, word) for word in asked) for part in parts if part]
    if by_file or (is_said and all(is_said) and score > _IN_NAME):
        return 2
    return 1 if is_said and is_said[-1] and score > _IN_NAME else 0


def _has(part: set[str], word: str) -> bool:
    return any(are_kin(word, own) for own in part)


def _short(name: str) -> str:
    return re.split(r"[/:]", name)[-1]


def _is_called(name: str, request: str) -> bool:
    """`@agent-plan`, `@plan`, `the Plan agent`, `agent Plan`; a name that no sentence holds by chance, as it is."""
    for one in dict.fromkeys((name, _short(name))):
        word = re.escape(one)
        forms = [rf"@(?:agent-)?{word}", rf"{word}\s+(?:sub)?agent", rf"(?:sub)?agent\s+[`'\"]?{word}"]
        if re.search(r"[-/:_]", one):
            forms.append(word)
        if re.search(rf"(?i)(?<![\w/.-])(?:{'|'.join(forms)})(?![\w/-])", request):
            return True
    return False


def _words_for(description: str) -> set[str]:
    """Without what it says that it is not for."""
    kept = [sentence for sentence in _SENTENCE.split(description) if not _NOT_ITS_WORK.match(sentence)]
    return words_of(" ".join(kept))


def are_kin(one: str, other: str) -> bool:
    """Stems of one word: `review` and `reviewer`, `investigat` and `investigation`."""
    short, long = sorted((one, other), key=len)
    if short == long:
        return True
    return len(short) >= _SHORTEST_KIN and long.startswith(short) and len(long) - len(short) <= _LONGEST_ENDING
