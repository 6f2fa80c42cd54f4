"""Redacts text that arrives in chunks: holds back what may be the start of a secret split across two chunks.

Used by everything that shows a reply while it streams.
"""

from collections.abc import Callable

from kitbag.store.known_values import KnownValues


class StreamingRedactor:
    def __init__(self, redact: Callable[[str], str], secrets: KnownValues) -> None:
        """`redact` removes complete secrets from a text."""
        self._redact = redact
        self._pending = ""
        self._secrets = secrets

    def feed(self, chunk: str) -> str:
        """The text that can be shown now."""
        text = self._pending + chunk
        start = self._secrets.find_partial(text)
        if start < len(text):
            start = self._secrets.extend_left(text, start)
        self._pending = text[start:]
        return self._redact(text[:start])

    def flush(self) -> str:
        text, self._pending = self._pending, ""
        return self._redact(text)
