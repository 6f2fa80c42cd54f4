"""Finds secrets by their format: tokens of known issuers, private keys, authorization headers, URLs.

Each pattern starts with a fixed prefix, is tried only at the start of a word, and never backtracks far, so the time
is linear in the text. Used by redaction; imports nothing from Kitbag.
"""

import re
from collections.abc import Iterator
from functools import cache

TextSpan = tuple[int, int]

_MIXED = re.compile(r"[0-9][A-Za-z]|[A-Za-z][0-9]")
_REFERENCE_START = r"\$[A-Za-z_{(]|%\w+%|[<{\[(*]|\.\.\.|(?:os|process|env|config|settings|self|this|args)\."
_REFERENCE_CHARACTERS = r"$%<{\[(*.oOpPeEcCsS\u017ftTaAxX"
"""A reference starts with one of them, which is faster to check."""
REFERENCE_PATTERN = rf"(?i:{_REFERENCE_START}|x{{3,}}$)"
_REFERENCE = re.compile(REFERENCE_PATTERN)

_SEGMENT = r"(?:[A-Za-z0-9]{1,12}+[-_])"
_LONG_SEGMENT = r"(?=[A-Za-z]*+[0-9])(?=[0-9]*+[A-Za-z])[A-Za-z0-9]{16}[A-Za-z0-9_-]*+"
# Prefix: what follows. The prefix must not follow a letter or digit.
_TOKEN_PATTERNS: dict[str, str] = {
    "sk-ant-": r"[A-Za-z0-9_-]{10,}",
    # At least 16 letters and digits in a row: `sk-folding-cube-1` is the name of a style.
    "sk-": rf"{_SEGMENT}{{0,4}}{_LONG_SEGMENT}",
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
_KEY_KIND = r"(?:[A-Z0-9]{1,16} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
# These patterns are compiled on first use, because few texts need them.
# Only at the start of a run, so that each run is scanned once.
_JWT = r"eyJ(?<!\weyJ)[A-Za-z0-9_]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,3}"
# More segments than a token has, all at once: text can consist of them. Group 1 if no token can start among them.
_SEGMENTS = (
    rf"sk-(?<![^\W_]sk-)(?:{_SEGMENT}{{5,200}}(?:(?!{_SEGMENT}|{_LONG_SEGMENT})()|())|{_SEGMENT}{{0,4}}{_LONG_SEGMENT})"
)
_MAX_SEGMENTS_LENGTH = len("sk-") + 4 * 13
_PRIVATE_KEY = rf"-----BEGIN {_KEY_KIND}()(?:[A-Za-z0-9+/=\s]++|\\++[nr])*+"
_KEY_END = rf"-----END {_KEY_KIND}"
_MAX_KEY_LENGTH = 20_000
# These two are for text in lower case, in which some letters other than ASCII still count as i, s and k.
_BEARER = r"bearer[ \t]{1,4}([a-z\u0130\u0131\u017f\u212a0-9._~+/=-]{12,})"
# Group `value` is only there if it may be a credential.
_AUTHORIZATION = (
    r"""authorization\\*["']?[ \t]{0,4}[:=][ \t]{0,4}\\*["']?"""
    r"(?:(?P<scheme>ba[s\u017f][i\u0130\u0131]c|bearer|to[k\u212a]en|d[i\u0130\u0131]ge[s\u017f]t"
    r"|ap[i\u0130\u0131][k\u212a]ey|bot)[ \t]{1,4})?"
    # With a digit, or encoded; without a scheme also longer.
    r"""(?:(?P<value>(?(scheme)|(?=[^\s"'\\,]{16}))(?:(?<=[c \t][ \t])|(?=[^\s"'\\,0-9]{0,4095}+[0-9]))"""
    r"""[^\s"'\\,]{6,4096}+)|[^\s"'\\,]{6,4096}+)"""
)
_USERINFO = (
    r"""://(?:[^\s/@:"'<>\\?#]{0,128}+:|(?=[A-Za-z0-9_-]{16,256}+@)(?=[A-Za-z0-9_-]*?(?:[0-9][A-Za-z]|[A-Za-z][0-9])))"""
    rf"""(?:(?![{_REFERENCE_CHARACTERS}])|(?!(?i:{_REFERENCE_START}|x{{3,}}+@)))([^\s/@"'<>\\?#]{{1,256}}+)@"""
)
_SIGNED = r"""[?&]sig=([^\s&"'<>#\\]{8,})"""


def mixes_letters_and_digits(text: str) -> bool:
    """Letters next to digits, which is rare in words."""
    return _MIXED.search(text) is not None


def is_secret_reference(text: str) -> bool:
    """`$NAME`, `<your key>`, `os.environ`: refers to a secret without being one."""
    return _REFERENCE.match(text) is not None


TOKEN_PREFIXES = (*_TOKEN_PATTERNS, "eyJ", "-----BEGIN ", "://", "sig=")
"""A text without any of these, and without HEADER_WORDS, contains no secret with a known pattern."""
HEADER_WORDS = ("authorization", "bearer")


def find_pattern_secrets(text: str, lowered: str) -> list[TextSpan]:
    """Spans of secrets. `lowered` is the text in lower case, with the same offsets."""
    spans: list[TextSpan] = []
    # Substring checks first: most texts contain none of the prefixes.
    for prefix in words_with_present_characters(tuple(_TOKEN_PATTERNS), text):
        if prefix not in text:
            continue
        if prefix == "sk-":
            spans += _find_segmented_tokens(text)
        else:
            spans += [match.span() for match in _token_pattern(prefix).finditer(text)]
    if "eyJ" in text:
        spans += [match.span() for match in compiled(_JWT).finditer(text)]
    if "-----BEGIN " in text:
        spans += _find_private_keys(text)
    if "authorization" in lowered or "bearer" in lowered:
        spans += _find_authorization_values(text, lowered)
    return spans + _find_url_secrets(text)


def words_with_present_characters(words: tuple[str, ...], text: str) -> list[str]:
    """The words whose characters all occur in the text: finding one character is much faster than finding a word."""
    absent = {char for char in _distinct_characters(words) if char not in text}
    return [word for word in words if absent.isdisjoint(word)] if absent else list(words)


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Not limited in number, unlike the cache of `re`."""
    return re.compile(pattern)


@cache
def _distinct_characters(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set("".join(words))))


@cache
def _token_pattern(start: str) -> re.Pattern[str]:
    """Compiled on first use: few texts need any, and compiling all takes longer than starting Python. The prefix comes
    first, so that it is searched for like a substring; what precedes it is checked after that."""
    return re.compile(rf"{re.escape(start)}(?<![^\W_]{re.escape(start)}){_TOKEN_PATTERNS[start]}")


def _find_segmented_tokens(text: str) -> Iterator[TextSpan]:
    begin = 0
    while match := compiled(_SEGMENTS).search(text, begin):
        begin = match.end()
        if match.lastindex is None:
            yield match.span()
        elif match.lastindex == 2:  # a token may start near their end
            begin = max(match.start() + 1, begin - _MAX_SEGMENTS_LENGTH)


def _find_private_keys(text: str) -> Iterator[TextSpan]:
    begin = footer = 0
    while begin >= 0:
        headers = compiled(_PRIVATE_KEY).finditer(text, begin)
        begin = -1
        for header in headers:
            # The next END line is searched once, however many BEGIN lines precede it.
            body = header.start(1)
            if 0 <= footer < body:
                footer = text.find("-----END ", body)
            footer_match = compiled(_KEY_END).match(text, footer) if 0 <= footer <= body + _MAX_KEY_LENGTH else None
            if footer_match and footer_match.end() > header.end():
                yield header.start(), footer_match.end()
                begin = footer_match.end()
                break
            # A truncated key is still most of a key.
            yield header.start(), header.end()


def _find_authorization_values(text: str, lowered: str) -> Iterator[TextSpan]:
    for match in compiled(_AUTHORIZATION).finditer(lowered):
        if match.lastgroup == "value":
            start, end = match.span("value")
            if _is_credential(match["scheme"] or "", text[start:end]):
                yield start, end
    for match in compiled(_BEARER).finditer(lowered):
        if mixes_letters_and_digits(match[1]):
            yield match.span(1)


def _is_credential(scheme: str, value: str) -> bool:
    if is_secret_reference(value):
        return False
    if scheme == "basic" and not value.islower() and len(value) % 4 == 0:
        return True
    return mixes_letters_and_digits(value) and (scheme != "" or len(value) >= 16)


def _find_url_secrets(text: str) -> list[TextSpan]:
    spans = [match.span(1) for match in compiled(_USERINFO).finditer(text)] if "://" in text and "@" in text else []
    return spans + [match.span(1) for match in compiled(_SIGNED).finditer(text)] if "sig=" in text else spans
