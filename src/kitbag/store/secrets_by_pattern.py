"""Finds secrets by their format: tokens of known issuers, private keys, authorization headers, URLs.

Each pattern starts with a fixed prefix, is tried only at the start of a word, and never backtracks far, so the time
is linear in the text. Used by redaction; imports nothing from Kitbag.
"""

import re
from collections.abc import Iterator
from functools import cache

TextSpan = tuple[int, int]

_MIXED = re.compile(r"[0-9][A-Za-z]|[A-Za-z][0-9]")
_REFERENCE = re.compile(
    r"\$[A-Za-z_{(]|%\w+%|[<{\[(*]|\.\.\.|x{3,}$|(?:os|process|env|config|settings|self|this|args)\.", re.IGNORECASE
)

# Prefix: what follows. The prefix must not follow a letter or digit.
_TOKEN_PATTERNS: dict[str, str] = {
    "sk-ant-": r"[A-Za-z0-9_-]{10,}",
    # At least 16 letters and digits in a row: `sk-folding-cube-1` is the name of a style.
    "sk-": r"(?:[A-Za-z0-9]{1,12}[-_]){0,4}(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{16,}[A-Za-z0-9_-]*",
    "sk_live_": r"[A-Za-z0-9]{10,}",
    "sk_test_": r"[A-Za-z0-9]{10,}",
    "rk_live_": r"[A-Za-z0-9]{10,}",
    "whsec_": r"[A-Za-z0-9+/=]{16,}",
    "ghp_": r"[A-Za-z0-9]{16,}",
    "gho_": r"[A-Za-z0-9]{16,}",
    "ghu_": r"[A-Za-z0-9]{16,}",
    "ghs_": r"[A-Za-z0-9]{16,}",
    "ghr_": r"[A-Za-z0-9]{16,}",
    "github_pat_": r"[A-Za-z0-9_]{16,}",
    "glpat-": r"[A-Za-z0-9_-]{16,}",
    "gldt-": r"[A-Za-z0-9_-]{16,}",
    "glrt-": r"[A-Za-z0-9_-]{16,}",
    "xox": r"[abeoprs]-[A-Za-z0-9-]{10,}",
    "xapp-": r"[0-9]-[A-Za-z0-9-]{10,}",
    "AKIA": r"[A-Z0-9]{16}(?![A-Za-z0-9])",
    "ASIA": r"[A-Z0-9]{16}(?![A-Za-z0-9])",
    "AIza": r"[A-Za-z0-9_-]{30,}",
    "ya29.": r"[A-Za-z0-9_-]{20,}",
    "GOCSPX-": r"[A-Za-z0-9_-]{20,}",
    "npm_": r"[A-Za-z0-9]{30,}",
    "pypi-": r"(?=[A-Za-z_-]{0,60}[0-9])(?=[a-z0-9_-]{0,60}[A-Z])[A-Za-z0-9_-]{30,}",
    "hf_": r"[A-Za-z0-9]{20,}",
    "gsk_": r"[A-Za-z0-9]{30,}",
    "xai-": r"[A-Za-z0-9]{30,}",
    "pplx-": r"[A-Za-z0-9]{30,}",
    "nvapi-": r"[A-Za-z0-9_-]{30,}",
    "r8_": r"[A-Za-z0-9]{30,}",
    "dop_v1_": r"[a-f0-9]{32,}",
    "shpat_": r"[A-Za-z0-9]{20,}",
    "lin_api_": r"[A-Za-z0-9]{20,}",
    "SG.": r"[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    "AGE-SECRET-KEY-1": r"[A-Z0-9]{20,}",
    "hooks.slack.com/services/": r"[A-Za-z0-9/]{16,}",
    "discord.com/api/webhooks/": r"[0-9]+/[A-Za-z0-9_-]{16,}",
}
# Only at the start of a run, so that each run is scanned once.
_JWT = re.compile(r"eyJ(?<!\weyJ)[A-Za-z0-9_]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,3}")
_PRIVATE_KEY = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,16} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = re.compile(r"-----END (?:[A-Z0-9]{1,16} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BODY = re.compile(r"(?:[A-Za-z0-9+/=\s]|\\+[nr])*")
_MAX_KEY_LENGTH = 20_000
# These two are for text in lower case, in which some letters other than ASCII still count as i, s and k.
_BEARER = re.compile(r"bearer[ \t]{1,4}([a-z\u0130\u0131\u017f\u212a0-9._~+/=-]{12,})")
_AUTHORIZATION = re.compile(
    r"""authorization\\*["']?[ \t]{0,4}[:=][ \t]{0,4}\\*["']?"""
    r"(?:(ba[s\u017f][i\u0130\u0131]c|bearer|to[k\u212a]en|d[i\u0130\u0131]ge[s\u017f]t|ap[i\u0130\u0131][k\u212a]ey|bot)"
    r"""[ \t]{1,4})?([^\s"'\\,]{6,4096})"""
)
_USERINFO = re.compile(r"""://(?:[^\s/@:"'<>\\?#]{0,128}:([^\s/@"'<>\\?#]{1,256})|([A-Za-z0-9_-]{16,256}))@""")
_SIGNED = re.compile(r"""[?&]sig=([^\s&"'<>#\\]{8,})""")


def mixes_letters_and_digits(text: str) -> bool:
    """Letters next to digits, which is rare in words."""
    return _MIXED.search(text) is not None


def is_secret_reference(text: str) -> bool:
    """`$NAME`, `<your key>`, `os.environ`: refers to a secret without being one."""
    return _REFERENCE.match(text) is not None


TOKEN_PREFIXES = (*_TOKEN_PATTERNS, "eyJ", "-----BEGIN ", "://", "sig=")
"""A text without any of these, and without HEADER_WORDS, contains no secret with a known pattern."""
HEADER_WORDS = ("authorization", "bearer")


def find_pattern_secrets(text: str, lowered: str) -> Iterator[TextSpan]:
    """Spans of secrets. `lowered` is the text in lower case, with the same offsets."""
    # Substring checks first: most texts contain none of the prefixes.
    for prefix in words_with_present_characters(tuple(_TOKEN_PATTERNS), text):
        if prefix in text:
            yield from (match.span() for match in _token_pattern(prefix).finditer(text))
    if "eyJ" in text:
        yield from (match.span() for match in _JWT.finditer(text))
    if "-----BEGIN " in text:
        yield from _find_private_keys(text)
    if "authorization" in lowered or "bearer" in lowered:
        yield from _find_authorization_values(text, lowered)
    if ("://" in text and "@" in text) or "sig=" in text:
        yield from _find_url_secrets(text)


def words_with_present_characters(words: tuple[str, ...], text: str) -> list[str]:
    """The words whose characters all occur in the text: finding one character is much faster than finding a word."""
    absent = {char for char in _distinct_characters(words) if char not in text}
    return [word for word in words if absent.isdisjoint(word)] if absent else list(words)


@cache
def _distinct_characters(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set("".join(words))))


@cache
def _token_pattern(start: str) -> re.Pattern[str]:
    """Compiled on first use: few texts need any, and compiling all takes longer than starting Python. The prefix comes
    first, so that it is searched for like a substring; what precedes it is checked after that."""
    return re.compile(rf"{re.escape(start)}(?<![^\W_]{re.escape(start)}){_TOKEN_PATTERNS[start]}")


def _find_private_keys(text: str) -> Iterator[TextSpan]:
    at = text.find("-----BEGIN ")
    footer = 0
    while at >= 0:
        header = _PRIVATE_KEY.match(text, at)
        end = at + 1
        if header:
            # The next END line is searched once, however many BEGIN lines precede it.
            if 0 <= footer < header.end():
                footer = text.find("-----END ", header.end())
            footer_match = _KEY_END.match(text, footer) if 0 <= footer <= header.end() + _MAX_KEY_LENGTH else None
            # A truncated key is still most of a key.
            body = None if footer_match else _KEY_BODY.match(text, header.end())
            end = footer_match.end() if footer_match else body.end() if body else header.end()
            yield header.start(), end
        at = text.find("-----BEGIN ", end)


def _find_authorization_values(text: str, lowered: str) -> Iterator[TextSpan]:
    for match in _AUTHORIZATION.finditer(lowered):
        start, end = match.span(2)
        if _is_credential(match[1] or "", text[start:end]):
            yield start, end
    for match in _BEARER.finditer(lowered):
        if mixes_letters_and_digits(match[1]):
            yield match.span(1)


def _is_credential(scheme: str, value: str) -> bool:
    if is_secret_reference(value):
        return False
    if scheme == "basic" and not value.islower() and len(value) % 4 == 0:
        return True
    return mixes_letters_and_digits(value) and (scheme != "" or len(value) >= 16)


def _find_url_secrets(text: str) -> Iterator[TextSpan]:
    for match in _USERINFO.finditer(text):
        group = 1 if match[1] is not None else 2
        if not is_secret_reference(match[group]) and (group == 1 or mixes_letters_and_digits(match[group])):
            yield match.span(group)
    for match in _SIGNED.finditer(text):
        yield match.span(1)
