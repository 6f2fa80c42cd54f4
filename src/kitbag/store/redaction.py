"""Takes secrets out of what is stored: known values in all their spellings, and what looks like a secret.

Only what is written down passes here: what a person approves and what runs stays as it is. Used by the
journal for every record. Knows secrets by value (the environment), by shape and by name.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

from kitbag.store.secret_names import has_secret_value
from kitbag.store.secrets_by_name import NAME_WORDS, find_named_secrets, is_placeholder_value, is_secret_field
from kitbag.store.secrets_by_pattern import HEADER_WORDS, TOKEN_PREFIXES, TextSpan, find_pattern_secrets

REDACTED = "[REDACTED]"
MIN_SECRET_LENGTH = 6
"""A known value that is shorter would be found in too much that is no secret."""
_MIN_SUBSTRING_LENGTH = 12
"""A plain word or number that is shorter counts only where it stands alone."""
_MAX_CACHED_CHARS = 2_000_000
"""Characters of texts that are remembered to hold no secret."""
_MAX_CACHED_TEXT = 20_000
_LOWERCASE_MARKERS = (*HEADER_WORDS, *NAME_WORDS)
_ASCII_LOWER = {capital: capital + 32 for capital in range(ord("A"), ord("Z") + 1)}


class Redactor:
    """Safe to share between threads: what it finds never changes."""

    __slots__ = ("_alone", "_anywhere", "_clean", "_clean_size", "_signs")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        alone: set[str] = set()
        anywhere: set[str] = set()
        for secret in secrets:
            for value in _secret_values(secret):
                (alone if _is_plain_word(value) else anywhere).add(value)
                anywhere.update(_encodings(value))
        self._alone = tuple(sorted(alone, key=len, reverse=True))
        self._anywhere = tuple(sorted(anywhere - alone, key=len, reverse=True))
        self._signs = (*{json.dumps(form)[1:-1] for form in (*self._alone, *self._anywhere)}, *TOKEN_PREFIXES)
        self._clean: set[str] = set()
        """Texts without a secret: keys, prompts and much else are written again and again."""
        self._clean_size = 0

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str], is_secret: Callable[[str], bool] = has_secret_value
    ) -> "Redactor":
        """Knows the values of the variables whose names look like a secret's."""
        return cls(value for name, value in environment.items() if is_secret(name))

    def with_secrets(self, secrets: Iterable[str]) -> "Redactor":
        """Another one, which knows these too."""
        more = Redactor(secrets)
        more._alone = tuple(sorted({*self._alone, *more._alone}, key=len, reverse=True))
        more._anywhere = tuple(sorted({*self._anywhere, *more._anywhere}, key=len, reverse=True))
        more._signs = tuple({*self._signs, *more._signs})
        return more

    @property
    def known_values(self) -> tuple[str, ...]:
        """All that is known, in every spelling: for one who has to wait until a text that comes in pieces is whole."""
        return (*self._alone, *self._anywhere)

    def may_contain_secrets(self, as_json: str) -> bool:
        """Of a value in JSON's ASCII: whether it is worth a closer look. Without signs, `value` changes nothing."""
        for sign in self._signs:
            if sign in as_json:
                return True
        lowered = as_json.lower()
        return any(word in lowered for word in _LOWERCASE_MARKERS)

    def redact_text(self, text: str) -> str:
        if len(text) < MIN_SECRET_LENGTH or text in self._clean:
            return text
        spans = sorted(self._spans(text))
        if spans:
            return _replace_spans(text, spans)
        if len(text) <= _MAX_CACHED_TEXT:
            self._cache_clean(text)
        return text

    def _cache_clean(self, text: str) -> None:
        if self._clean_size > _MAX_CACHED_CHARS:
            self._clean, self._clean_size = set(), 0
        self._clean.add(text)
        self._clean_size += len(text) + MIN_SECRET_LENGTH

    def redact_known(self, text: str) -> str:
        """Only the known values go; what merely looks like a secret stays. For answers that a person reads."""
        return _replace_spans(text, sorted(self._known_spans(text))) if len(text) >= MIN_SECRET_LENGTH else text

    def redact_value(self, value: object) -> object:
        """Of what JSON can hold, a copy: every text in it, keys too, and what a key says is a secret."""
        if isinstance(value, str):
            return self.redact_text(value)
        if value is None or isinstance(value, (int, float)):
            return value
        if isinstance(value, (dict, Mapping)):
            made: dict[object, object] = {}
            clean = self._clean
            for key, item in cast("Mapping[object, object]", value).items():
                name = self.redact_text(key) if isinstance(key, str) and key not in clean else key
                while name in made:  # two secrets as keys must not become one entry
                    name = f"{name}+"
                if not isinstance(item, str):
                    made[name] = self.redact_value(item)
                elif isinstance(key, str) and is_secret_field(key, item):
                    made[name] = REDACTED
                else:
                    made[name] = item if item in clean else self.redact_text(item)
            return made
        if isinstance(value, (list, tuple)):
            return [self.redact_value(item) for item in cast("Iterable[object]", value)]
        return value

    def _known_spans(self, text: str) -> Iterator[TextSpan]:
        for secret in self._anywhere:
            if secret in text:
                yield from _occurrences(text, secret)
        for secret in self._alone:
            for start, end in _occurrences(text, secret):
                if not text[start - 1 : start].isalnum() and not text[end : end + 1].isalnum():
                    yield start, end

    def _spans(self, text: str) -> Iterator[TextSpan]:
        yield from self._known_spans(text)
        lowered = text.lower()
        if len(lowered) != len(text):  # a few letters become two
            lowered = text.translate(_ASCII_LOWER)
        yield from find_pattern_secrets(text, lowered)
        yield from find_named_secrets(text, lowered)


def _replace_spans(text: str, spans: list[TextSpan]) -> str:
    if not spans:
        return text
    pieces: list[str] = []
    done = 0
    for start, end in spans:
        if start >= done:
            pieces += (text[done:start], REDACTED)
        done = max(done, end)
    pieces.append(text[done:])
    return "".join(pieces)


def _occurrences(text: str, secret: str) -> Iterator[TextSpan]:
    """All of them, also where one begins before the one before it ends."""
    at = text.find(secret)
    if at < 0:
        return
    # The next can't begin before the place where the secret continues as it begins.
    period = next(shift for shift in range(1, len(secret) + 1) if secret.startswith(secret[shift:]))
    while at >= 0:
        yield at, at + len(secret)
        at = text.find(secret, at + period)


def _secret_values(secret: str) -> Iterator[str]:
    """The value itself, and the password when it is a URL with one."""
    from urllib.parse import unquote

    value = secret.strip()
    if len(value) >= MIN_SECRET_LENGTH and not is_placeholder_value(value):
        yield value
    if "://" in value:
        userinfo, at, _ = value.partition("://")[2].partition("/")[0].rpartition("@")
        password = userinfo.partition(":")[2]
        if at and len(password) >= MIN_SECRET_LENGTH:
            yield password
            yield unquote(password)


def _is_plain_word(value: str) -> bool:
    return len(value) < _MIN_SUBSTRING_LENGTH and (value.isalpha() or value.isdigit())


def _encodings(value: str) -> Iterator[str]:
    """As it looks in a URL, in JSON, in HTML, in hexadecimal and inside base64."""
    import base64
    import html
    from urllib.parse import quote, quote_plus

    data = value.encode("utf-8", "surrogateescape")
    percent = quote(data, safe="")
    spellings = {percent, percent.lower(), quote(data), quote_plus(data)}
    for escaped in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
        spellings |= {escaped, escaped.replace("/", "\\/"), json.dumps(escaped)[1:-1]}
    spellings |= {html.escape(value), value.replace("'", "'\\''"), value.replace("'", "'\"'\"'")}
    spellings |= {data.hex(), data.hex().upper()}
    for before in range(3):
        # Inside a longer text each byte can fall on three places; what the neighbours change is left off.
        encoded = base64.b64encode(bytes(before) + data).decode().rstrip("=")
        sure = encoded[(before * 8 + 5) // 6 : (before + len(data)) * 8 // 6]
        spellings |= {sure, sure.replace("+", "-").replace("/", "_")}
    # A copy of the value itself is found as such, or only where it stands alone.
    return (spelling for spelling in spellings if spelling != value and len(spelling) >= MIN_SECRET_LENGTH)
