"""Redacts text that arrives in chunks: holds back what may be the start of a secret split across two chunks.

Used by everything that shows a reply while it streams.
"""

from collections.abc import Callable, Iterable


class StreamingRedactor:
    def __init__(self, redact: Callable[[str], str], secrets: Iterable[str]) -> None:
        """`redact` removes complete secrets from a text."""
        self._redact = redact
        self._pending = ""
        self._secrets = tuple(filter(None, secrets))
        self._by_first: dict[str, list[str]] = {}
        for secret in self._secrets:
            self._by_first.setdefault(secret[0], []).append(secret)
        self._longest = max(map(len, self._secrets), default=0)

    def feed(self, chunk: str) -> str:
        """The text that can be shown now."""
        text = self._pending + chunk
        start = self._before_whole_secrets(text, self._find_partial_secret(text))
        self._pending = text[start:]
        return self._redact(text[:start])

    def flush(self) -> str:
        text, self._pending = self._pending, ""
        return self._redact(text)

    def _find_partial_secret(self, text: str) -> int:
        """The offset where the text ends with the incomplete start of a secret."""
        for at in range(max(0, len(text) - self._longest + 1), len(text)):
            for secret in self._by_first.get(text[at], ()):
                if len(secret) > len(text) - at and secret.startswith(text[at:]):
                    return at
        return len(text)

    def _before_whole_secrets(self, text: str, start: int) -> int:
        """The same offset, or the start of a complete secret that extends beyond it: split, it would not match."""
        if start == len(text):
            return start
        while True:
            around = ((max(0, start - len(secret) + 1), start + len(secret) - 1, secret) for secret in self._secrets)
            starts = [at for first, last, secret in around if (at := text.find(secret, first, last)) >= 0]
            if not starts:
                return start
            start = min(starts)
