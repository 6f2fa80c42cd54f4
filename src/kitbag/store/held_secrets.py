"""A text that comes in pieces, in which a secret may be spread over two: what may be the beginning of one is held back.

Used by whoever shows a reply while it comes.
"""

from collections.abc import Callable, Iterable


class Held:
    def __init__(self, hide: Callable[[str], str], secrets: Iterable[str]) -> None:
        """`hide` takes whole secrets out of a text."""
        self._hide = hide
        self._waiting = ""
        self._by_first: dict[str, list[str]] = {}
        for secret in filter(None, secrets):
            self._by_first.setdefault(secret[0], []).append(secret)
        self._longest = max((len(secret) for secrets in self._by_first.values() for secret in secrets), default=0)

    def add(self, piece: str) -> str:
        """What may be shown now."""
        text = self._waiting + piece
        start = self._open_end(text)
        self._waiting = text[start:]
        return self._hide(text[:start])

    def rest(self) -> str:
        text, self._waiting = self._waiting, ""
        return self._hide(text)

    def _open_end(self, text: str) -> int:
        """Where the end of a text begins a secret, without being all of it."""
        for at in range(max(0, len(text) - self._longest + 1), len(text)):
            for secret in self._by_first.get(text[at], ()):
                if len(secret) > len(text) - at and secret.startswith(text[at:]):
                    return at
        return len(text)
