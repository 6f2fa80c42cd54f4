"""Makes spellings of a name comparable: an accented letter may be one character (NFC) or a letter and an accent (NFD),
and file systems and editors produce either.

The only place that folds names, for everything that compares names of items, paths in rules and settings. Imports
nothing heavy: settings and the sandbox's supervisor use it.
"""


def compose(text: str) -> str:
    """The NFC form, for comparing with regard to letter case."""
    if text.isascii():
        return text
    import unicodedata

    return unicodedata.normalize("NFC", text)


def fold(text: str) -> str:
    """A key that ignores letter case and normalization form."""
    if text.isascii():
        return text.lower()
    return compose(compose(text).casefold())
