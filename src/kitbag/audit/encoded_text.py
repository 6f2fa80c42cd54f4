"""Decodes long encoded texts, within limits, to detect commands, programs or instructions in them.

Decodes but never runs. Used by examine_item.
"""

import base64
import binascii
import itertools
import re
from collections.abc import Iterator
from typing import Final

from kitbag.audit.expressions import load_expression
from kitbag.audit.file_types import PROGRAMS, detect_magic, is_data_file
from kitbag.audit.patterns import RuleHit, ScanResult
from kitbag.audit.regions import AuditedText
from kitbag.audit.urls import foreign_hosts

_MAX_BLOBS: Final = 200
_MAX_DECODED: Final = 65536
_BUDGET: Final = 1 << 20
_MIN_REPORTED: Final = 400
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])(?:[A-Za-z0-9+/_-]{40,}+(?:[ \t\"'\\+,]{0,6}\n[ \t\"'+]{0,40})?+)++={0,2}")
_LONG: Final = 40
_RUN = re.compile(r"[A-Za-z0-9+/_-]{40}")
_HEX = re.compile(r"(?:\\x[0-9a-fA-F]{2}){8,}+")
_HARMLESS_BEFORE = load_expression("encoded_text.harmless_before")
_ACTS = load_expression("encoded_text.acts")
_HOME_FILE = re.compile(r"~/\.?\w|(?<![\w.])\.env\b")


def find_encoded_payloads(source: AuditedText) -> ScanResult:
    hits: list[RuleHit] = []
    spent = 0
    data = is_data_file(source.content.name)
    for number, (start, end) in enumerate(_find_blobs(source.text)):
        if number >= _MAX_BLOBS or spent > _BUDGET:
            return ScanResult(hits, [] if data else ["encoded-payload"])
        if _HARMLESS_BEFORE.search(source.text[max(0, start - 120) : start]):
            continue
        encoded = source.text[start : min(end, start + 2 * _MAX_DECODED)]
        spent += len(encoded)
        payload, is_prose = _describe_payload(encoded)
        if payload:
            # Words around sentences that are encoded don't explain them.
            hits.append(RuleHit(rule="encoded-payload", start=start, end=end, note=payload, is_final=is_prose))
        elif end - start >= _MIN_REPORTED and not data and source.content.kind in ("script", "markdown"):
            hits.append(
                RuleHit(
                    rule="encoded-blob",
                    start=start,
                    end=end,
                    severity=None,
                    confidence=None,
                    note=f"{end - start:,} characters",
                )
            )
    return ScanResult(hits, [])


def _find_blobs(text: str) -> list[tuple[int, int]]:
    spans = list(_find_base64(text))
    if "\\x" in text:
        spans += [(match.start(), match.end()) for match in _HEX.finditer(text)]
    return sorted(set(spans))


def _find_base64(text: str) -> Iterator[tuple[int, int]]:
    """Where the expression matches; it is searched for only in what is long enough."""
    end = after = 0
    pieces = text.split()
    for piece in itertools.compress(pieces, map(_LONG.__le__, map(len, pieces))):
        start = text.find(piece, end)
        end = start + len(piece)
        after = max(after, start)
        while _RUN.search(text, after, end) and (match := _BASE64.search(text, after)):
            yield match.span()
            after = match.end()


def _describe_payload(encoded: str) -> tuple[str, bool]:
    """Describes the decoded content, and whether it is sentences; empty if nothing in it is recognized."""
    for decoded in _decode_all(encoded):
        magic = detect_magic(decoded)
        if magic in PROGRAMS and magic != "WebAssembly program":
            return f"decodes to: {magic}", False
        # Random bytes, such as a hash read as base64, are not text.
        text = decoded[:_MAX_DECODED].decode("utf-8", "replace")
        readable = sum((char.isprintable() and char != "\ufffd") or char in "\n\t\r" for char in text[:2000])
        if readable * 50 < len(text[:2000]) * 49:
            continue
        if match := _ACTS.search(text):
            excerpt = text[max(0, match.start() - 30) : match.end() + 50]
            return f"decodes to: {' '.join(excerpt.split())}", False
        if _is_prose(text) and (_HOME_FILE.search(text) or foreign_hosts(text)):
            return f"decodes to: {' '.join(text.split())[:80]}", True
    return "", False


def _is_prose(text: str) -> bool:
    """Sentences, not data in some notation."""
    return text.count(" ") * 12 >= len(text) and not text.lstrip().startswith(("{", "[", "<"))


def _decode_all(encoded: str) -> list[bytes]:
    decoded: list[bytes] = []
    if encoded.startswith("\\x"):
        encoded = encoded.replace("\\x", "")
    plain = re.sub(r"[^A-Za-z0-9+/_-]", "", encoded)
    if re.fullmatch(r"[0-9a-fA-F]+", plain) and len(plain) % 2 == 0:
        decoded.append(binascii.unhexlify(plain))
    letters = plain.replace("-", "+").replace("_", "/")
    letters = letters[: len(letters) - (len(letters) % 4 == 1)]
    try:
        decoded.append(base64.b64decode(letters + "=" * (-len(letters) % 4)))
    except (binascii.Error, ValueError):
        return decoded
    # Reversed base64 is the cheapest extra obfuscation.
    try:
        decoded.append(base64.b64decode(letters[::-1] + "=" * (-len(letters) % 4)))
    except (binascii.Error, ValueError):
        return decoded
    return decoded
