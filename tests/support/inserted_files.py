"""Files that the resolver inserts: each stands under its path, in a fence."""

import re

_INSERTED = re.compile(r"\[file: [^\n]*\]\n(`{3,})\w*\n(.*?)\n?\1(?:\n(?=[ ,.|]))?", re.DOTALL)


def without_fences(text: str) -> str:
    """The text with only the contents of inserted files."""
    return _INSERTED.sub(lambda match: match[2], text)
