"""Stems that are still words, for lists of matching words that users read.

Used by agent_search and by the offline model, which compare short texts. Ranking uses `terms`.
"""

import re
from typing import Final

_WORD = re.compile(r"\w+")
_STOP_WORDS: Final = frozenset(
    (
        "a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "how", "i", "in", "is", "it", "of", "on", "or",
        "that", "the", "this", "to", "use", "when", "with", "you",
    )
)  # fmt: skip


def light_stems(text: str) -> set[str]:
    """Lower-case stems, so that `reviews` and `reviewing` match `review`."""
    return {_stem(word) for word in _WORD.findall(text.lower().replace("_", " ")) if word not in _STOP_WORDS}


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "ies", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word[: -len(ending)] + ("y" if ending == "ies" else "")
            if ending in ("ing", "ed") and word[-1] == word[-2] and word[-1] not in "ls":
                word = word[:-1]  # debugging, committed
            break
    return word.removesuffix("e") if len(word) > 3 else word
