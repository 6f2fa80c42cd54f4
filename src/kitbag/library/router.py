"""Finds skills for a request by the words they share: names and triggers count most, then descriptions.

Used by `kitbag skills search`. Only what the visibility rule lets a model find is searched.
"""

import re
from typing import NamedTuple

from kitbag.library.registry import Registry
from kitbag.library.skills import Skill
from kitbag.library.visibility import Verdict

_WORD = re.compile(r"\w+")
_COMMON = frozenset(
    (
        "a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "how", "i", "in", "is", "it", "of", "on", "or",
        "that", "the", "this", "to", "use", "when", "with", "you",
    )
)  # fmt: skip


class Hit(NamedTuple):
    skill: Skill
    verdict: Verdict
    score: float


def words_of(text: str) -> set[str]:
    """Lower-case words without endings, so that `reviews` and `reviewing` find `review`."""
    return {_stem(word) for word in _WORD.findall(text.lower().replace("_", " ")) if word not in _COMMON}


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "ies", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word[: -len(ending)] + ("y" if ending == "ies" else "")
            if ending in ("ing", "ed") and word[-1] == word[-2] and word[-1] not in "ls":
                word = word[:-1]  # debugging, committed
            break
    return word.removesuffix("e") if len(word) > 3 else word


def search(registry: Registry, query: str, most: int = 10) -> list[Hit]:
    """Best first; of equal ones, in the order of their names."""
    wanted = words_of(query)
    phrase = " ".join(query.lower().split())
    view = registry.view()
    hits: list[Hit] = []
    for skill in registry.skills:
        verdict = registry.judge(skill, view)
        if not verdict.searchable:
            continue
        entry = registry.manifest_entry(skill)
        triggers = entry.dispatch_triggers if entry else ()
        score = _score(skill, triggers, wanted, phrase)
        if score > 0:
            hits.append(Hit(skill, verdict, round(score, 3)))
    hits.sort(key=lambda hit: (-hit.score, hit.skill.full_name.lower()))
    return hits[:most]


def _score(skill: Skill, triggers: tuple[str, ...], wanted: set[str], phrase: str) -> float:
    if not wanted:
        return 0.0
    score = 3.0 * len(wanted & words_of(skill.full_name)) + len(wanted & words_of(skill.summary))
    score += 2.0 * len(wanted & words_of(" ".join(triggers)))
    if phrase in (skill.name.lower(), skill.full_name.lower()):
        score += 10
    elif not phrase.isascii() and phrase in f"{skill.full_name} {skill.summary}".lower():
        score += 2  # scripts that put no blanks between words
    return score / len(wanted)
