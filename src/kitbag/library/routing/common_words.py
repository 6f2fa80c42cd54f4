"""Words that are common in any message or manual, with the share of texts that contain them (`common_words.txt`).

Used to weigh terms: in a library of three skills, `data` is no rare word. `scripts/train_ranking` writes the file.
"""

from functools import cache
from importlib.resources import files


@cache
def _shares() -> dict[str, float]:
    shares: dict[str, float] = {}
    for line in files("kitbag.library.routing").joinpath("common_words.txt").read_text("utf-8").splitlines():
        key, _, percent = line.partition(" ")
        shares[key] = int(percent) / 100
    return shares


def common_share(key: str) -> float:
    """0 for a word that is not common."""
    return _shares().get(key, 0.0)
