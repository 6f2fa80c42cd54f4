"""Long encoded texts: decoded here, bounded, to see whether they hold commands, programs or instructions.

Decoding is not running. Used by examine.
"""

import base64
import binascii
import re
from typing import Final

from kitbag.audit.expressions import expression
from kitbag.audit.file_types import PROGRAMS, is_data, magic_of
from kitbag.audit.patterns import Hit, Scan
from kitbag.audit.regions import Source

_MOST: Final = 200
_LONGEST: Final = 65536
_BUDGET: Final = 1 << 20
_LONG: Final = 400
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])(?:[A-Za-z0-9+/_-]{40,}+(?:[ \t\"'\\+,]{0,6}\n[ \t\"'+]{0,40})?+)++={0,2}")
_HEX = re.compile(r"(?<![0-9A-Za-z])(?:[0-9a-fA-F]{2}){40,}+(?![0-9A-Za-z])|(?:\\x[0-9a-fA-F]{2}){20,}+")
_HARMLESS_BEFORE = expression("encoded.harmless_before")
_ACTS = expression("encoded.acts")


def blobs(source: Source) -> Scan:
    hits: list[Hit] = []
    spent = 0
    data = is_data(source.content.name)
    for number, (start, end) in enumerate(_found(source.text)):
        if number >= _MOST or spent > _BUDGET:
            return Scan(hits, [] if data else ["encoded-payload"])
        if _HARMLESS_BEFORE.search(source.text[max(0, start - 120) : start]):
            continue
        written = source.text[start : min(end, start + 2 * _LONGEST)]
        spent += len(written)
        holds = _holds(written)
        if holds:
            hits.append(Hit("encoded-payload", start, end, None, None, holds))
        elif end - start >= _LONG and not data and source.content.kind in ("script", "markdown"):
            hits.append(Hit("encoded-blob", start, end, None, None, f"{end - start:,} characters"))
    return Scan(hits, [])


def _found(text: str) -> list[tuple[int, int]]:
    places = [(match.start(), match.end()) for match in _BASE64.finditer(text)]
    places += [(match.start(), match.end()) for match in _HEX.finditer(text)]
    return sorted(set(places))


def _holds(written: str) -> str:
    """What the decoded text holds; empty when nothing of it is recognised."""
    for decoded in _decodings(written):
        magic = magic_of(decoded)
        if magic in PROGRAMS:
            return f"decodes to: {magic}"
        text = decoded[:_LONGEST].decode("utf-8", "replace")
        readable = sum(char.isprintable() or char in "\n\t\r" for char in text[:2000])
        if readable * 10 >= len(text[:2000]) * 9 and (match := _ACTS.search(text)):
            around = text[max(0, match.start() - 30) : match.end() + 50]
            return f"decodes to: {' '.join(around.split())}"
    return ""


def _decodings(written: str) -> list[bytes]:
    found: list[bytes] = []
    if written.startswith("\\x"):
        written = written.replace("\\x", "")
    plain = re.sub(r"[^A-Za-z0-9+/_-]", "", written)
    if re.fullmatch(r"[0-9a-fA-F]+", plain) and len(plain) % 2 == 0:
        found.append(binascii.unhexlify(plain))
    letters = plain.replace("-", "+").replace("_", "/")
    letters = letters[: len(letters) - (len(letters) % 4 == 1)]
    try:
        found.append(base64.b64decode(letters + "=" * (-len(letters) % 4)))
    except (binascii.Error, ValueError):
        return found
    # Written backwards is the cheapest disguise of a disguise.
    try:
        found.append(base64.b64decode(letters[::-1] + "=" * (-len(letters) % 4)))
    except (binascii.Error, ValueError):
        return found
    return found
