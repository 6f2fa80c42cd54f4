"""Finds secrets by their name: `API_KEY=...`, `"password": "..."`, `?token=...`, `--password ...`.

Uppercase names are environment variables, whose values are nearly always literal; names in code often have words,
types and references as values, so those must also look like a secret. Used by redaction.
"""

import re
from collections.abc import Iterator
from functools import cache, lru_cache

from kitbag.store.secret_names import has_secret_value
from kitbag.store.secrets_by_pattern import (
    TextSpan,
    is_secret_reference,
    mixes_letters_and_digits,
    words_with_present_characters,
)

# Lowercase; every name of a secret contains one of them.
NAME_WORDS = (
    "key", "token", "secret", "passw", "pass=", "passphrase", "pwd", "credential", "auth", "private", "cookie",
    "signature", "_pat", "dsn", "aws_", "azure_", "gcp_", "google_", "vault_", "database", "webhook",
)  # fmt: skip
_MAX_NAME_LENGTH = 64
_VALUE_SIGNS = "0123456789\"'`?&"
_NAME = re.compile(r"[A-Za-z0-9_.-]*")
_AFTER_NAME = frozenset("=: \t\"'`\\]")
_SEPARATOR = re.compile(r"""\\{0,4}["'`]?\]?[ \t]{0,4}(:=|=>|=|:)(?![=:/])[ \t]{0,4}""")
_FLAG_SEPARATOR = re.compile(r"=|[ \t]{1,4}(?!-)")
_QUOTED = re.compile(r"""(\\{0,4}["'`])((?:(?!\1)[^\r\n])*)\1""")
_BARE_VALUE = re.compile(r"""[^\s"'`,;&|()<>{}\[\]\\]+""")
# A value in an `.env` file extends to the end of its line; inside JSON that is an escaped newline.
_ENV_VALUE = re.compile(r"""(?:[^\s"'`\\]++|\\(?![nrt]))++""")
_CAPITALS = re.compile(r"[A-Z][A-Z0-9_]{2,}\Z")
_STRONG = re.compile(
    r"(?:password|passwd|passphrase|pwd|secret|secretkey|apikey|apitoken|apisecret|accesskey|accesskeyid|accesstoken"
    r"|refreshtoken|authtoken|sessiontoken|idtoken|bearertoken|bottoken|privatetoken|usertoken|xauthtoken|privatekey"
    r"|signingkey|encryptionkey|accountkey|masterkey|authkey|deploykey|licensekey|credentials?|connectionstring)\Z"
)
_CAPITALS_STRONG = re.compile(
    r"(?:PASS|PASSWORD|PASSWD|PASSPHRASE|PWD|SECRET|TOKEN|PAT|CREDENTIALS?|PRIVATE)\Z|API_?KEY"
)
_TOKEN = re.compile(r"(?:token|auth)\Z")
_SIGNATURE = re.compile(r"(?:token|auth|signature)\Z")
"""In a URL; elsewhere a signature is not a secret."""
_HEADER = re.compile(r"(?:authorization|cookie)\Z")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z")
_PLACEHOLDER_WORD = re.compile(
    r"(?:null|none|nil|true|false|yes|no|on|off|undefined|string|str|int|bool|bytes|number|boolean|text|value|default"
    r"|required|optional|hidden|password|passwd|secret|token|bearer|basic|header|query|any|unknown|object|enabled"
    r"|disabled|redacted)\Z",
    re.IGNORECASE,
)
_PATH = re.compile(r"~/|\.{1,2}/|/(?:[a-z][\w.-]*/)+|[\w./-]{1,200}\.(?:json|pem|key|txt|ya?ml|toml|ini|env|crt|p12)\Z")
_CALL = re.compile(r"[A-Za-z_][\w.]*\(")
_VARIABLE = re.compile(r"[A-Z]+(?:_[A-Z]+)+\Z")
_PROBE_LENGTH = 64
"""How much of a bare value is read to decide whether it is a secret; the rest is read only if it is."""
_MAX_QUOTED_LENGTH = 1024


def is_secret_field(name: str, value: str) -> bool:
    """Whether an entry of a map holds a secret, judging by its key first."""
    kind = _classify_key(name) if len(name) <= _MAX_NAME_LENGTH else _classify_key.__wrapped__(name)  # not cached
    if kind == "header":
        return len(value) >= 6 and not is_not_secret(value) and not is_secret_reference(value.split(" ")[-1])
    return kind == "other" and _is_secret(name, value, quoted=True)


@lru_cache(2048)
def _classify_key(name: str) -> str:
    """Classifies the key of a map; cached, because few distinct keys occur."""
    bare = _bare_name(name)
    if _HEADER.search(bare):
        return "header"
    return "other" if _CAPITALS.match(name) or _STRONG.search(bare) or _TOKEN.search(bare) else "nothing"


def find_named_secrets(text: str, lowered: str) -> Iterator[TextSpan]:
    if not _may_have_values(text, lowered):
        return
    has_flags = "--" in text
    for word in words_with_present_characters(NAME_WORDS, lowered):
        if word in lowered:
            yield from _find_values_after(word, text, lowered, has_flags)


def _may_have_values(text: str, lowered: str) -> bool:
    """Whether any value could be a secret: it has a digit, is quoted, is in a URL or after a flag, or has a name in
    capitals. Checks for single characters, which costs nothing beside everything else."""
    if "--" not in text and "=" not in text and ":" not in text:
        return False
    return text != lowered or any(char in text for char in _VALUE_SIGNS) or "--" in text


def _find_values_after(word: str, text: str, lowered: str, has_flags: bool) -> Iterator[TextSpan]:
    pattern, begin = _name_pattern(word), 0
    while begin >= 0:
        matches = pattern.finditer(lowered, begin)
        begin = -1
        for match in matches:
            kind = match.lastgroup
            if kind is None or (kind == "blank" and not has_flags):
                continue
            at, end = match.start(), match.end("name")
            span = _find_value(text, at, end) if end - at <= _MAX_NAME_LENGTH else None
            if span:
                yield span
                begin = max(end, span[1])  # no name is looked for inside of a value
                break


@cache
def _name_pattern(word: str) -> re.Pattern[str]:
    """A name from this word on, in lower case, and whether a separator, or at least a blank, follows it."""
    start = re.escape(word.removesuffix("=")) + ("(?==)" if word.endswith("=") else "")
    return re.compile(
        rf"""(?P<name>{start}[a-z0-9_.-]*+)(?:(?P<separator>\\{{0,4}}["'`]?\]?[ \t]{{0,4}}[=:])|(?P<blank>[ \t]))?"""
    )


def _find_value(text: str, at: int, end: int) -> TextSpan | None:
    if text[end : end + 1] not in _AFTER_NAME:
        return None
    backwards = _NAME.match(text[max(0, at - _MAX_NAME_LENGTH) : at][::-1])
    start = at - (backwards.end() if backwards else 0)
    name = text[start:end]
    in_query = start > 0 and text[start - 1] in "?&"
    if not _may_name_secret(name, in_query):
        return None
    is_flag = name.startswith("--")
    separator = (_FLAG_SEPARATOR if is_flag else _SEPARATOR).match(text, end)
    if separator is None:
        return None
    value_start = separator.end()
    quoted = _QUOTED.match(text, value_start, value_start + _MAX_QUOTED_LENGTH)
    if quoted:
        secret = _is_literal_secret(name, quoted[2], is_flag) if is_flag else _is_secret(name, quoted[2], quoted=True)
        return quoted.span(2) if secret else None
    # With spaces around it, or a colon, it is code: `API_KEY: str`, `TOKEN = next(tokens)`.
    environment = not in_query and separator[0] == "=" and _CAPITALS.match(name) is not None
    pattern = _ENV_VALUE if environment else _BARE_VALUE
    probe = pattern.match(text, value_start, value_start + _PROBE_LENGTH)
    if probe is None:
        return None
    value = probe[0]
    if environment:
        secret = _is_environment_secret(name, value) and _CALL.match(value) is None and not is_not_secret(value)
    elif in_query or is_flag:
        secret = _is_literal_secret(name, value, is_flag)
    else:
        secret = text[probe.end() : probe.end() + 1] != "(" and _is_secret(name.lower(), value, quoted=False)
    full_match = pattern.match(text, value_start) if secret else None
    return (value_start, value_start + len(full_match[0].rstrip(",;."))) if full_match else None


@lru_cache(2048)
def _may_name_secret(name: str, in_query: bool) -> bool:
    bare = _bare_name(name)
    if _STRONG.search(bare) or _TOKEN.search(bare) or (in_query and (bare == "key" or _SIGNATURE.search(bare))):
        return True
    return _CAPITALS.match(name) is not None and has_secret_value(name)


def _bare_name(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").rpartition(".")[2]


def is_placeholder_value(value: str) -> bool:
    """A word for a secret, or the path of one: nothing to redact, despite its name."""
    return _PLACEHOLDER_WORD.match(value) is not None or _PATH.match(value) is not None


def is_not_secret(value: str) -> bool:
    """In text, a value may also refer to a secret: `$TOKEN`, `OPENAI_API_KEY`."""
    return not value or is_secret_reference(value) or is_placeholder_value(value) or _VARIABLE.match(value) is not None


def _is_literal_secret(name: str, value: str, is_flag: bool) -> bool:
    """In a URL's query or after a `--flag`, a value is literal."""
    bare = _bare_name(name)
    if len(value) < 4:
        return False
    if _STRONG.search(bare) or bare.endswith("token"):
        # `the --password option` is prose.
        is_word = is_flag and value.isalpha() and value.islower() and len(value) < 12
        return not is_word and not is_not_secret(value)
    if not _SIGNATURE.search(bare) and bare != "key":
        return False
    return len(value) >= 8 and mixes_letters_and_digits(value) and not is_not_secret(value)


def _is_secret(name: str, value: str, quoted: bool) -> bool:
    # Cheap checks first: texts are long, and many names could match.
    if len(value) < 3 or not (quoted or mixes_letters_and_digits(value)):
        return False
    if _CAPITALS.match(name):
        return _is_environment_secret(name, value) and not is_not_secret(value)
    bare = _bare_name(name)
    if _STRONG.search(bare):
        min_length = 6
    elif _TOKEN.search(bare) and mixes_letters_and_digits(value):
        min_length = 16 if bare.endswith("auth") else 8 if quoted else 12
    else:
        return False
    if len(value) < min_length or is_not_secret(value):
        return False
    # A sentence is a label or a message, `Password` is a field's label, `a.b2` is an attribute in code.
    if any(char.isspace() for char in value) or (value.istitle() and value.isalpha()):
        return False
    return (quoted and min_length == 6) or _IDENTIFIER.match(value) is None


def _is_environment_secret(name: str, value: str) -> bool:
    if not has_secret_value(name):
        return False
    if _CAPITALS_STRONG.search(name):
        return len(value) >= 3 and value.lower() != name.lower()
    if "://" in value and "WEBHOOK" not in name:
        return False  # the secret part of a URL is found by its pattern
    return len(value) >= 8 and (
        mixes_letters_and_digits(value) or (len(value) >= 20 and value not in (value.lower(), value.upper()))
    )
