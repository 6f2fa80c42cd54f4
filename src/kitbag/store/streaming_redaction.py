"""A text that comes in pieces, in which a secret may be spread over two: what may be the beginning of one is held back.

Used by whoever shows a reply while it comes.
"""

from collections.abc import Callable, Iterable


class StreamingRedactor:
    def __init__(self, redact: Callable[[str], str], secrets: Iterable[str]) -> None:
        """`hide` takes whole secrets out of a text."""
        self._redact = redact
        self._pending = ""
        self._secrets = tuple(filter(None, secrets))
        self._by_first: dict[str, list[str]] = {}
        for secret in self._secrets:
            self._by_first.setdefault(secret[0], []).append(secret)
        self._longest = max(map(len, self._secrets), default=0)

    def feed(self, piece: str) -> str:
        """What may be shown now."""
        text = self._pending + piece
        start = self._before_whole_secrets(text, self._find_partial_secret(text))
        self._pending = text[start:]
        return self._redact(text[:start])

    def flush(self) -> str:
        text, self._pending = self._pending, ""
        return self._redact(text)

    def _find_partial_secret(self, text: str) -> int:
        """Where the end of a text begins a secret, without being all of it."""
        for at in range(max(0, len(text) - self._longest + 1), len(text)):
            for secret in self._by_first.get(text[at], ()):
                if len(secret) > len(text) - at and secret.startswith(text[at:]):
                    return at
        return len(text)

    def _before_whole_secrets(self, text: str, start: int) -> int:
        """The same place, or where a whole secret begins that reaches beyond it: cut in two it would not be found."""
        if start == len(text):
            return start
        while True:
            around = ((max(0, start - len(secret) + 1), start + len(secret) - 1, secret) for secret in self._secrets)
            found = [at for first, last, secret in around if (at := text.find(secret, first, last)) >= 0]
            if not found:
                return start
            start = min(found)
