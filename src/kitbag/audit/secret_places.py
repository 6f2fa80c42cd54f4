"""Where credentials are kept: folders, files, metadata services, and commands that print them.

The places are data in expressions.toml. Used by exfiltration; persistence matches joined paths with its separator.
"""

import functools
import re
from typing import Final

from kitbag.audit.expressions import load_words

PATH_SEPARATOR: Final = r"""(?:[\\/]{1,2}|["'\s)]{0,3}[,/+]\s?["'])"""


@functools.cache
def secret_place_expression() -> "re.Pattern[str]":
    """Matches a place in a path, also in one that code joins from parts."""
    paths = "|".join(
        re.escape(path).replace("/", PATH_SEPARATOR).replace("\\ ", r"\\?\s")
        for path in sorted(load_words("secret_places.paths"), key=len, reverse=True)
    )
    commands = "|".join(re.escape(command) for command in load_words("secret_places.commands"))
    starts = re.escape("".join({place[0] for place in load_words("secret_places.paths")}))
    return re.compile(rf"(?=[{starts}])(?<![\w.])(?:{paths})(?![\w-])|\b(?:{commands})", re.IGNORECASE)


@functools.cache
def secret_place_words() -> dict[str, list[tuple[str, ...]]]:
    """For each place the part to search for, and for each of these the other parts of each place that has it."""
    common = frozenset(load_words("secret_places.common"))
    words: dict[str, list[tuple[str, ...]]] = {}
    for path in load_words("secret_places.paths"):
        parts = path.split("/")
        word = max((part for part in parts if part not in common), key=len, default=path)
        # A blank in a path may be escaped.
        words.setdefault(word, []).append(tuple(part for part in parts if part not in (word, "") and " " not in part))
    for command in load_words("secret_places.commands"):
        words.setdefault(command, []).append(())
    return words
