"""Words that are common in any message or manual, with the share of texts that contain them (`common_words.txt`).

Used to weigh terms: in a library of three skills, `data` is no rare word. `scripts/train_ranking` writes the file.
"""

import os
from functools import cache


@cache
def _shares() -> dict[str, float]:
    shares: dict[str, float] = {}
    with open(os.path.join(os.path.dirname(__file__), "common_words.txt"), encoding="utf-8") as file:
        for line in file:
            key, _, percent = line.partition(" ")
            shares[key] = int(percent) / 100
    return shares


def common_share(key: str) -> float:
    """0 for a word that is not common."""
    return _shares().get(key, 0.0)
