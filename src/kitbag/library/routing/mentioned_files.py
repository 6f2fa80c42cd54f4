"""Finds the files that a message names, by their form: nothing is read.

Used by path_index, which compares them with the `paths` of skills, and by packing/suggestions.
"""

import re
from typing import Final, NamedTuple

from kitbag.library.routing.terms import UNSPACED_LETTERS

_MAX_TEXT: Final = 20_000
_MAX_FILES: Final = 100
_MAX_PATH: Final = 300
_SEPARATORS = re.compile(r"""[\s"'`<>|;,=]+|\]\(|[\u3000-\u301f\uff01-\uff0f\uff1a-\uff1f\u2018-\u201f\u00ab\u00bb]+""")
_QUOTED = re.compile(r"""["'`]([^"'`\n]{3,200})["'`]""")
_OTHER_LETTERS = re.compile(f"{UNSPACED_LETTERS}+")
_LINE_NUMBER = re.compile(r"(?::\d+){1,2}(?:-\d+)?$|#L?\d[\w-]*$")
_EXTENSION = re.compile(r"(?:^|[^/])\.(?=\d*[A-Za-z])[A-Za-z0-9_]{1,12}$|^\.[A-Za-z][\w-]*$")
_NO_FILE = re.compile(
    r"""(?:\w\.)+\w|https?:.*|\w+://.*|[^/@]+@.*|(?:www\.).*
    |(?:node|next|nuxt|vue|react|express|three|d3|ember|backbone|chart|discord|asp|socket)\.(?:js|net|io)""",
    re.IGNORECASE | re.VERBOSE,
)
"""Abbreviations, addresses, and products that are called like files."""


class MentionedFiles(NamedTuple):
    files: tuple[str, ...]
    """Names and paths with an extension, as written."""
    names: tuple[str, ...]
    """Paths without an extension, and names such as `Dockerfile`, which may be something else."""


def find_mentioned_files(text: str) -> MentionedFiles:
    text = text[:_MAX_TEXT]
    tokens: dict[str, None] = {}
    for token in (*_SEPARATORS.split(text), *_QUOTED.findall(text)):
        pieces = (token, *_OTHER_LETTERS.split(token)) if _OTHER_LETTERS.search(token) else (token,)
        tokens.update(dict.fromkeys(map(_clean, pieces)))
    files: list[str] = []
    names: list[str] = []
    for token in tokens:
        if not 2 <= len(token) <= _MAX_PATH or "\0" in token or _NO_FILE.fullmatch(token):
            continue
        last = token.rpartition("/")[2]
        if _EXTENSION.search(last):
            files.append(token)
        elif " " not in token and ("/" in token.strip("/") or not last.islower()):
            names.append(token)
    return MentionedFiles(tuple(files[:_MAX_FILES]), tuple(names[:_MAX_FILES]))


def _clean(token: str) -> str:
    token = token.lstrip("([{*@").rstrip(")]}*.:!?…")
    token = _LINE_NUMBER.sub("", token)
    return token.replace("\\", "/") if "/" not in token else token
