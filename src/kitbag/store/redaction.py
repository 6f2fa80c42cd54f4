"""Removes secrets from what is stored: known values in all their encodings, and anything that looks like a secret.

Applies only to stored text: what a user approves and what runs stays unchanged. Used by the journal for every
record. Recognizes secrets by value (from the environment), by pattern and by name.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

from kitbag.store.known_values import KnownValues
from kitbag.store.secret_names import has_secret_value
from kitbag.store.secrets_by_name import NAME_WORDS, find_named_secrets, is_placeholder_value, is_secret_field
from kitbag.store.secrets_by_pattern import HEADER_WORDS, TOKEN_PREFIXES, TextSpan, find_pattern_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kitbag.store.exfiltration import OutboundSecret

REDACTED = "[REDACTED]"
MIN_SECRET_LENGTH = 6
"""Shorter known values would match too much ordinary text."""
_MIN_SUBSTRING_LENGTH = 12
"""Shorter plain words and numbers match only as whole words."""
_MAX_CACHED_CHARS = 2_000_000
"""Total length of cached texts without secrets."""
_MAX_CACHED_TEXT = 20_000
_LOWERCASE_MARKERS = (*HEADER_WORDS, *NAME_WORDS)


class Redactor:
    """Safe to share between threads: its matches never change."""

    __slots__ = ("_clean", "_clean_size", "_json_values", "_outbound", "_substrings", "_values", "known_values")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        whole_words: set[str] = set()
        substrings: set[str] = set()
        self._values = frozenset(value for secret in secrets for value in _secret_values(secret))
        self._outbound: tuple[OutboundSecret, ...] | None = None
        for value in self._values:
            (whole_words if _is_plain_word(value) else substrings).add(value)
            substrings.update(_encodings(value))
        self._set_known(frozenset(whole_words | substrings), frozenset(substrings - whole_words))
        self._clean: set[str] = set()
        """Texts without a secret: keys, prompts and others are written repeatedly."""
        self._clean_size = 0

    def _set_known(self, values: frozenset[str], substrings: frozenset[str]) -> None:
        self.known_values = KnownValues(values)
        """All known values in every encoding, for redacting a stream."""
        self._substrings = substrings
        """Those that also match inside of words."""
        self._json_values = KnownValues(json.dumps(value)[1:-1] for value in values)

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str], is_secret: Callable[[str], bool] = has_secret_value
    ) -> "Redactor":
        """Knows the values of environment variables whose names suggest a secret."""
        return cls(value for name, value in environment.items() if is_secret(name))

    def with_secrets(self, secrets: Iterable[str]) -> "Redactor":
        """A new redactor that also knows these secrets."""
        combined = Redactor(secrets)
        combined._values |= self._values
        combined._set_known(
            frozenset((*self.known_values.values, *combined.known_values.values)),
            self._substrings | combined._substrings,
        )
        return combined

    def reveals_secret(self, texts: Iterable[str]) -> bool:
        """Whether texts that leave this machine together contain a known secret, even encoded or split."""
        from kitbag.store import exfiltration

        if self._outbound is None:
            self._outbound = exfiltration.prepare_secrets(self._values)
        return bool(self._outbound) and exfiltration.reveals_secret(texts, self._outbound)

    def may_contain_secrets(self, as_json: str) -> bool:
        """Whether an ASCII JSON text is worth a closer look. If not, `redact_value` changes nothing."""
        if self._json_values.find_in(as_json) or any(prefix in as_json for prefix in TOKEN_PREFIXES):
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
        """Redacts only known values, not what merely looks like a secret. For answers that the user reads."""
        return _replace_spans(text, sorted(self._known_spans(text))) if len(text) >= MIN_SECRET_LENGTH else text

    def redact_value(self, value: object) -> object:
        """A redacted copy of a JSON value: every string in it, keys included, and values whose key names a secret."""
        if isinstance(value, str):
            return self.redact_text(value)
        if value is None or isinstance(value, (int, float)):
            return value
        if isinstance(value, (dict, Mapping)):
            redacted: dict[object, object] = {}
            clean = self._clean
            for key, item in cast("Mapping[object, object]", value).items():
                name = self.redact_text(key) if isinstance(key, str) and key not in clean else key
                while name in redacted:  # two secret keys must not become one entry
                    name = f"{name}+"
                if not isinstance(item, str):
                    redacted[name] = self.redact_value(item)
                elif isinstance(key, str) and is_secret_field(key, item):
                    redacted[name] = REDACTED
                else:
                    redacted[name] = item if item in clean else self.redact_text(item)
            return redacted
        if isinstance(value, (list, tuple)):
            return [self.redact_value(item) for item in cast("Iterable[object]", value)]
        return value

    def _known_spans(self, text: str) -> Iterator[TextSpan]:
        for secret in self.known_values.find_in(text):
            inside_words = secret in self._substrings
            for start, end in _occurrences(text, secret):
                if inside_words or not (text[start - 1 : start].isalnum() or text[end : end + 1].isalnum()):
                    yield start, end

    def _spans(self, text: str) -> list[TextSpan]:
        lowered = text.lower()
        # A few letters become two in lower case, and the Kelvin sign becomes a `k`, which it is not in a name.
        if len(lowered) != len(text) or "\u212a" in text:
            lowered = text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")
        spans = find_pattern_secrets(text, lowered)
        spans += self._known_spans(text)
        spans += find_named_secrets(text, lowered)
        return spans


def _replace_spans(text: str, spans: list[TextSpan]) -> str:
    """Replaces sorted spans; those that overlap become one."""
    if not spans:
        return text
    pieces: list[str] = []
    done = 0
    for start, end in spans:
        if start >= done:
            pieces.append(text[done:start])
            done = end
        elif end > done:
            done = end
    pieces.append(text[done:])
    return REDACTED.join(pieces)


def _occurrences(text: str, secret: str) -> Iterator[TextSpan]:
    """All occurrences, including overlapping ones."""
    at = text.find(secret)
    if at < 0:
        return
    # The next one can't start before the secret's own period.
    period = next(shift for shift in range(1, len(secret) + 1) if secret.startswith(secret[shift:]))
    while at >= 0:
        yield at, at + len(secret)
        at = text.find(secret, at + period)


def _secret_values(secret: str) -> Iterator[str]:
    """The value itself, and the password if it is a URL with one."""
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
    """The value as encoded in a URL, JSON, HTML, hexadecimal and base64."""
    import base64
    from urllib.parse import quote, quote_plus

    try:
        data = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # JSON can hold half of a surrogate pair
        data = value.encode("utf-8", "surrogatepass")
    percent = quote(data, safe="")
    encodings = {percent, percent.lower(), quote(data), quote_plus(data)}
    for escaped in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
        encodings |= {escaped, escaped.replace("/", "\\/"), json.dumps(escaped)[1:-1]}
    encodings |= {_escape_html(value), value.replace("'", "'\\''"), value.replace("'", "'\"'\"'")}
    encodings |= {data.hex(), data.hex().upper()}
    for before in range(3):
        # In longer base64 text the value has one of three alignments; drops characters that depend on its neighbors.
        encoded = base64.b64encode(bytes(before) + data).decode().rstrip("=")
        stable = encoded[(before * 8 + 5) // 6 : (before + len(data)) * 8 // 6]
        encodings |= {stable, stable.replace("+", "-").replace("/", "_")}
    # The value itself is matched separately, possibly only as a whole word.
    return (encoding for encoding in encodings if encoding != value and len(encoding) >= MIN_SECRET_LENGTH)


def _escape_html(text: str) -> str:
    """As `html.escape`, without importing its table of entities at every start."""
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#x27;")):
        text = text.replace(char, entity)
    return text
