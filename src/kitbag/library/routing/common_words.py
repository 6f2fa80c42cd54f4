"""What is known of words in any library: which are common in any text, and which are typical of skills.

Used to weigh terms (in a library of three skills, `data` is no rare word), and to tell everyday messages from those
that need a skill. `scripts/train_ranking` writes the files.
"""

import os
from functools import cache


@cache
def _read_percents(name: str) -> dict[str, float]:
    percents: dict[str, float] = {}
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        for line in file:
            key, _, percent = line.partition(" ")
            percents[key] = int(percent) / 100
    return percents


def common_share(key: str) -> float:
    """The share of messages or manuals that contain a word; 0 for a word that is not common."""
    return _read_percents("common_words.txt").get(key, 0.0)


def technicality(key: str) -> float:
    """The logarithm of how much more often descriptions of skills contain a word than everyday messages do, from -3 to
    3; 0 for an unknown word."""
    return _read_percents("technical_words.txt").get(key, 0.0)
