"""Secrets that are known by their name: `API_KEY=...`, `"password": "..."`, `?token=...`, `--password ...`.

Names in capitals are an environment's, where nearly every value is meant; names in code have values that are
words, types and references, so those must look like a secret too. Used by redaction.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from kitbag.store.secret_names import has_secret_value
from kitbag.store.secrets_by_pattern import TextSpan, is_secret_reference, mixes_letters_and_digits

# In lower case: one of them is in every name of a secret.
NAME_WORDS = (
    "key", "token", "secret", "passw", "pass=", "passphrase", "pwd", "credential", "auth", "private", "cookie",
    "signature", "_pat", "dsn", "aws_", "azure_", "gcp_", "google_", "vault_", "database", "webhook",
)  # fmt: skip
_MAX_NAME_LENGTH = 64
_NAME = re.compile(r"[A-Za-z0-9_.-]*")
_AFTER_NAME = frozenset("=: \t\"'`\\]")
_SEPARATOR = re.compile(r"""\\{0,4}["'`]?\]?[ \t]{0,4}(:=|=>|=|:)(?![=:/])[ \t]{0,4}""")
_FLAG_SEPARATOR = re.compile(r"=|[ \t]{1,4}(?!-)")
_QUOTED = re.compile(r"""(\\{0,4}["'`])((?:(?!\1)[^\r\n])*)\1""")
_BARE_VALUE = re.compile(r"""[^\s"'`,;&|()<>{}\[\]\\]+""")
# A line of an `.env` file goes to its end; inside JSON the end of a line is written out.
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
"""Of a URL: elsewhere a signature is no secret."""
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
"""As much of a bare value is read to see whether it is a secret; all of it only when it is."""
_MAX_QUOTED_LENGTH = 1024


def is_secret_field(name: str, value: str) -> bool:
    """Of a map's entry: whether the value is a secret, judged by its name first."""
    what = (
        _classify_key(name) if len(name) <= _MAX_NAME_LENGTH else _classify_key.__wrapped__(name)
    )  # which is not kept
    if what == "header":
        return len(value) >= 6 and not is_not_secret(value) and not is_secret_reference(value.split(" ")[-1])
    return what == "other" and _is_secret(name, value, quoted=True)


@lru_cache(2048)
def _classify_key(name: str) -> str:
    """Of a map's key: the same few are asked about again and again."""
    bare = _bare_name(name)
    if _HEADER.search(bare):
        return "header"
    return "other" if _CAPITALS.match(name) or _STRONG.search(bare) or _TOKEN.search(bare) else "nothing"


def find_named_secrets(text: str, lowered: str) -> Iterator[TextSpan]:
    for word in NAME_WORDS:
        at = lowered.find(word)
        while at >= 0:
            run = _NAME.match(text, at)
            end = max(run.end() if run else at, at + 1)
            if end - at <= _MAX_NAME_LENGTH:
                found = _find_value(text, at, end)
                if found:
                    yield found
                    end = max(end, found[1])
            at = lowered.find(word, end)


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
    place = separator.end()
    quoted = _QUOTED.match(text, place, place + _MAX_QUOTED_LENGTH)
    if quoted:
        secret = _is_literal_secret(name, quoted[2], is_flag) if is_flag else _is_secret(name, quoted[2], quoted=True)
        return quoted.span(2) if secret else None
    # With blanks around, or a colon, it is code: `API_KEY: str`, `TOKEN = next(tokens)`.
    environment = not in_query and separator[0] == "=" and _CAPITALS.match(name) is not None
    shape = _ENV_VALUE if environment else _BARE_VALUE
    probe = shape.match(text, place, place + _PROBE_LENGTH)
    if probe is None:
        return None
    value = probe[0]
    if environment:
        secret = _is_environment_secret(name, value) and _CALL.match(value) is None and not is_not_secret(value)
    elif in_query or is_flag:
        secret = _is_literal_secret(name, value, is_flag)
    else:
        secret = text[probe.end() : probe.end() + 1] != "(" and _is_secret(name.lower(), value, quoted=False)
    whole = shape.match(text, place) if secret else None
    return (place, place + len(whole[0].rstrip(",;."))) if whole else None


@lru_cache(2048)
def _may_name_secret(name: str, in_query: bool) -> bool:
    bare = _bare_name(name)
    if _STRONG.search(bare) or _TOKEN.search(bare) or (in_query and (bare == "key" or _SIGNATURE.search(bare))):
        return True
    return _CAPITALS.match(name) is not None and has_secret_value(name)


def _bare_name(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").rpartition(".")[2]


def is_placeholder_value(value: str) -> bool:
    """The word for a secret, or where one is: nothing to hide, though its name says so."""
    return _PLACEHOLDER_WORD.match(value) is not None or _PATH.match(value) is not None


def is_not_secret(value: str) -> bool:
    """In a text, where it may also stand for a secret: `$TOKEN`, `OPENAI_API_KEY`."""
    return not value or is_secret_reference(value) or is_placeholder_value(value) or _VARIABLE.match(value) is not None


def _is_literal_secret(name: str, value: str, is_flag: bool) -> bool:
    """In a URL's query or behind a `--flag`: what is there is the thing itself."""
    bare = _bare_name(name)
    if len(value) < 4:
        return False
    if _STRONG.search(bare) or bare.endswith("token"):
        # `the --password option` is a sentence.
        is_word = is_flag and value.isalpha() and value.islower() and len(value) < 12
        return not is_word and not is_not_secret(value)
    if not _SIGNATURE.search(bare) and bare != "key":
        return False
    return len(value) >= 8 and mixes_letters_and_digits(value) and not is_not_secret(value)


def _is_secret(name: str, value: str, quoted: bool) -> bool:
    # The cheap questions first: texts are long, and names that could be meant are many.
    if len(value) < 3 or not (quoted or mixes_letters_and_digits(value)):
        return False
    if _CAPITALS.match(name):
        return _is_environment_secret(name, value) and not is_not_secret(value)
    bare = _bare_name(name)
    if _STRONG.search(bare):
        shortest = 6
    elif _TOKEN.search(bare) and mixes_letters_and_digits(value):
        shortest = 16 if bare.endswith("auth") else 8 if quoted else 12
    else:
        return False
    if len(value) < shortest or is_not_secret(value):
        return False
    # A sentence is a label or a message, `Password` the label of a field, `a.b2` a part of a program.
    if any(char.isspace() for char in value) or (value.istitle() and value.isalpha()):
        return False
    return (quoted and shortest == 6) or _IDENTIFIER.match(value) is None


def _is_environment_secret(name: str, value: str) -> bool:
    if not has_secret_value(name):
        return False
    if _CAPITALS_STRONG.search(name):
        return len(value) >= 3 and value.lower() != name.lower()
    if "://" in value and "WEBHOOK" not in name:
        return False  # the secret part of a URL is found by its shape
    return len(value) >= 8 and (
        mixes_letters_and_digits(value) or (len(value) >= 20 and value not in (value.lower(), value.upper()))
    )
