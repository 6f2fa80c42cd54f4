"""Finds secrets by their name: `API_KEY=...`, `"password": "..."`, `?token=...`, `--password ...`.

Uppercase names are environment variables, whose values are nearly always literal; names in code often have words,
types and references as values, so those must also look like a secret. Used by redaction.
"""

import re
from collections.abc import Iterator
from functools import cache, lru_cache

from kitbag.store.secret_names import has_secret_value
from kitbag.store.secrets_by_pattern import (
    REFERENCE_PATTERN,
    TextSpan,
    compiled,
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
_NAME_REST = re.compile(r"[a-z0-9_.-]*")
_FEW_NAMES = 16
"""In a text with so few of a word, each is examined: compiling a pattern that skips most takes longer."""
_SEPARATOR = re.compile(r"""\\{0,4}+["'`]?+\]?+[ \t]{0,4}+(?::=|=>|[=:])(?![=:/])[ \t]{0,4}+""")
_FLAG_SEPARATOR = re.compile(r"=|[ \t]{1,4}(?!-)")
_QUOTED = re.compile(r"""(\\{0,4}(["'`]))((?:[^\r\n\\"'`]++|(?!\1)[^\r\n])*+)\1""")
_QUOTE_STARTS = ("\\", '"', "'", "`")
_BARE_CHARACTER = r"""[^\s"'`,;&|()<>{}\[\]\\]"""
_BARE_VALUE = re.compile(rf"{_BARE_CHARACTER}+")
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
# The last character of every name above.
_NAME_END = "(?<=[deghlnsty_-])"
# Outside of a query, `key` and `signature` are no names of secrets, and values of `auth` and `token` are longer.
_LONG_ENOUGH = (
    r"(?<![^\w-]key)(?<![^\w-]signature)"
    rf"(?:(?<!auth)(?<![^\w.-]token)|(?![=:](?![=>]){_BARE_CHARACTER}{{1,11}}+(?!{_BARE_CHARACTER})))"
)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z")
_PLACEHOLDER = (
    r"(?i:null|none|nil|true|false|yes|no|on|off|undefined|string|str|int|bool|bytes|number|boolean|text|value|default"
    r"|required|optional|hidden|password|passwd|secret|token|bearer|basic|header|query|any|unknown|object|enabled"
    r"|disabled|redacted)\Z"
    r"|~/|\.{1,2}/|/(?:[a-z][\w.-]*/)+|[\w./-]{1,200}\.(?:json|pem|key|txt|ya?ml|toml|ini|env|crt|p12)\Z"
)
"""A word for a secret, or the path of one."""
_NOT_SECRET = rf"{REFERENCE_PATTERN}|{_PLACEHOLDER}|[A-Z]+(?:_[A-Z]+)+\Z"
_CALL = re.compile(r"[A-Za-z_][\w.]*\(")
_PROBE_LENGTH = 64
"""How much of a bare value is read to decide whether it is a secret; the rest is read only if it is."""
_MAX_QUOTED_LENGTH = 1024
_BARE_WITH_DIGIT = rf"(?={_BARE_CHARACTER}{{6}}){_BARE_CHARACTER[:-1]}0-9]{{0,{_PROBE_LENGTH - 1}}}+[0-9]"
_DECISION_LENGTH = 96
"""How much after a name, with its separator and the start of its value, is looked up among earlier decisions."""
_MAX_DECISIONS = 2_000


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
    decisions: dict[str, TextSpan | None] = {}
    literals = "--" in text or "?" in text or "&" in text
    for word in words_with_present_characters(NAME_WORDS, lowered):
        if word in lowered:
            capitals = text is not lowered and word.upper() in text
            is_rare = lowered.count(word) <= _FEW_NAMES
            pattern = None if is_rare else _name_pattern(word, literals, capitals)
            yield from _find_values_after(word, pattern, text, lowered, decisions)


def _may_have_values(text: str, lowered: str) -> bool:
    """Whether any value could be a secret: it has a digit, is quoted, is in a URL or after a flag, or has a name in
    capitals. Checks for single characters, which costs nothing beside everything else."""
    if "--" not in text and "=" not in text and ":" not in text:
        return False
    return text != lowered or any(char in text for char in _VALUE_SIGNS) or "--" in text


def _find_values_after(
    word: str, pattern: re.Pattern[str] | None, text: str, lowered: str, decisions: dict[str, TextSpan | None]
) -> Iterator[TextSpan]:
    begin = done = 0
    while begin >= 0:
        names = _find_names(word, pattern, lowered, begin)
        begin = -1
        for at, end in names:
            if at < done or end - at > _MAX_NAME_LENGTH:  # no name is looked for inside of a value
                continue
            # The same characters around a name give the same decision.
            window = text[at - _MAX_NAME_LENGTH - 1 : end + _DECISION_LENGTH] if at > _MAX_NAME_LENGTH else ""
            if window in decisions:
                offsets = decisions[window]
                span = (at + offsets[0], at + offsets[1]) if offsets else None
            else:
                span, reach = _find_value(text, at, end)
                if window and reach < end + _DECISION_LENGTH and len(decisions) < _MAX_DECISIONS:
                    decisions[window] = (span[0] - at, span[1] - at) if span else None
            if span:
                yield span
                done = span[1]
                if done > end + _DECISION_LENGTH:
                    begin = done
                    break


def _find_names(word: str, pattern: re.Pattern[str] | None, lowered: str, begin: int) -> Iterator[TextSpan]:
    """From the word to the end of its name; with a pattern only those that a plausible value follows."""
    size = len(word.removesuffix("="))
    if pattern is not None:
        for match in pattern.finditer(lowered, begin):
            if match.lastindex is not None:
                yield match.start(1) - size, match.end()
        return
    while (at := lowered.find(word, begin)) >= 0:
        rest = _NAME_REST.match(lowered, at + size)
        begin = rest.end() if rest else at + size
        yield at, begin


@cache
def _name_pattern(word: str, literals: bool, capitals: bool) -> re.Pattern[str]:
    """Group 1 is what follows the word in a name, in text in lower case, if a plausible value follows that. Matches a
    run of names without such values at once: text can consist of them.

    `literals`: the text may have queries or flags, whose values need no digit. `capitals`: it has the word in capitals.
    """
    letters = re.escape(word.removesuffix("="))
    start = letters + ("(?==)" if word.endswith("=") else "")
    end, value = _NAME_END, rf"(?:{_quoted(6)}|{_BARE_WITH_DIGIT})"
    literal = rf"(?:{_BARE_CHARACTER}{{4}}|{_quoted(4)})"
    if capitals:
        end, value = "", rf"(?:{_quoted(3)}|[^\s\"'`]{{3}})"
        literal = value
    name = "[a-z0-9_.-]*+"
    implausible = rf"{name}(?!{end}{'' if capitals else _LONG_ENOUGH}{_SEPARATOR.pattern}{value})"
    if literals:  # the word may be inside of a flag or a name in a query
        before = rf"[a-z0-9_.?&-]{letters}"
        # Most short values are rejected faster by themselves.
        short = "" if capitals else rf"(?=[=:](?![=>]){_BARE_CHARACTER}{{1,3}}+[&\s])|"
        after_inner = rf"{end}(?:{_SEPARATOR.pattern}|=(?=[=:/])|[ \t]{{1,4}}(?!-)){literal}"
        implausible = rf"(?:(?<!{before}){implausible}|(?<={before}){name}(?:{short}(?!{after_inner})))"
    other = rf"[^{word[0]}]{{0,24}}+"
    gap = rf"{other}(?:{word[0]}(?!{letters[1:]}){other}){{0,3}}"
    return re.compile(rf"{start}(?:{implausible}(?:{gap}{start}{implausible}){{0,200}}|({name}))")


def _quoted(length: int) -> str:
    """The start of a quoted value of at least this length, or of any with an escaped quote."""
    plain = "|".join(rf"{quote}[^{quote}\r\n]{{{length}}}" for quote in "\"'`")
    return rf"(?:{plain}|\\{{1,4}}[\"'`])"


def _find_value(text: str, at: int, end: int) -> tuple[TextSpan | None, int]:
    """The value of a name, if it is a secret, and the offset up to which the text was read to decide that."""
    backwards = _NAME.match(text[max(0, at - _MAX_NAME_LENGTH) : at][::-1])
    start = at - (backwards.end() if backwards else 0)
    name = text[start:end]
    in_query = start > 0 and text[start - 1] in "?&"
    is_flag = name.startswith("--")
    separator = (_FLAG_SEPARATOR if is_flag else _SEPARATOR).match(text, end)
    if separator is None or not _may_name_secret(name, in_query):
        return None, end
    value_start = separator.end()
    quoted = _QUOTED.match(text, value_start, value_start + _MAX_QUOTED_LENGTH)
    if quoted:
        secret = _is_literal_secret(name, quoted[3], is_flag) if is_flag else _is_secret(name, quoted[3], quoted=True)
        return quoted.span(3) if secret else None, quoted.end()
    reach = _reach_of_quote(text, value_start) if text[value_start : value_start + 1] in _QUOTE_STARTS else 0
    # With spaces around it, or a colon, it is code: `API_KEY: str`, `TOKEN = next(tokens)`.
    environment = not in_query and separator[0] == "=" and _CAPITALS.match(name) is not None
    pattern = _ENV_VALUE if environment else _BARE_VALUE
    probe = pattern.match(text, value_start, value_start + _PROBE_LENGTH)
    if probe is None:
        return None, max(reach, value_start)
    value = probe[0]
    if environment:
        secret = _is_environment_secret(name, value) and _CALL.match(value) is None and not is_not_secret(value)
    elif in_query or is_flag:
        secret = _is_literal_secret(name, value, is_flag)
    else:
        secret = text[probe.end() : probe.end() + 1] != "(" and _is_secret(name.lower(), value, quoted=False)
    full_match = pattern.match(text, value_start) if secret else None
    if full_match is None:
        return None, max(reach, probe.end())
    return (value_start, value_start + len(full_match[0].rstrip(",;."))), max(reach, full_match.end())


def _reach_of_quote(text: str, start: int) -> int:
    """The offset up to which the end of a quoted value was searched."""
    end = start + _MAX_QUOTED_LENGTH
    line_end = text.find("\n", start, end)
    return line_end if line_end >= 0 else end


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
    return compiled(_PLACEHOLDER).match(value) is not None


def is_not_secret(value: str) -> bool:
    """In text, a value may also refer to a secret: `$TOKEN`, `OPENAI_API_KEY`."""
    return not value or compiled(_NOT_SECRET).match(value) is not None


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
    min_length = _min_length(name if len(name) <= _MAX_NAME_LENGTH else _bare_name(name)[-_MAX_NAME_LENGTH:], quoted)
    if not min_length or len(value) < min_length or is_not_secret(value):
        return False
    if quoted and min_length > 6 and not mixes_letters_and_digits(value):
        return False
    # A sentence is a label or a message, `Password` is a field's label, `a.b2` is an attribute in code.
    if value.split() != [value] or (value.istitle() and value.isalpha()):
        return False
    return (quoted and min_length == 6) or "." not in value or _IDENTIFIER.match(value) is None


@lru_cache(2048)
def _min_length(name: str, quoted: bool) -> int:
    """How long the value of a name not in capitals must be; 0 if it is no name of a secret. If more than 6, the value
    must also mix letters and digits."""
    bare = _bare_name(name)
    if _STRONG.search(bare):
        return 6
    if not _TOKEN.search(bare):
        return 0
    return 16 if bare.endswith("auth") else 8 if quoted else 12


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
