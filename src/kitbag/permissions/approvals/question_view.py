"""Renders an approval request: every character visible, invisible and misleading ones spelled out.

Used by dialogs/approver, MCP and `kitbag permissions pending`. No two different texts look the same. Truncation says
how much is hidden, and the full text is always available.
"""

import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Final

import msgspec

from kitbag.permissions.approvals.approval import ApprovalRequest

GUTTER: Final = "│ "
"""Before each line of an argument, so that no argument can imitate Kitbag's own lines."""
MAX_ARGUMENT_CHARACTERS: Final = 4000
_MAX_LINES: Final = 60
_MAX_PART_CHARACTERS: Final = 200
_MAX_PARTS: Final = 40
_ARGUMENT_ORDER: Final = (
    "command",
    "file_path",
    "path",
    "notebook_path",
    "url",
    "subagent_type",
    "skill",
    "pattern",
    "query",
)
# Printable according to Unicode, yet invisible.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001d159\U000e0100-\U000e01ef]"
)
_MAX_COMBINING_MARKS: Final = 2
_RUN: Final = re.compile(
    r" {9,}| +\Z|\t+|(?P<other>[^\x21-\x7e ])(?P=other)*|\[(?=U\+|tab\]|empty\]|[0-9][0-9,]* )", re.S
)
_LOOKALIKES: Final[dict[str, str]] = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u2035\u00b4\u02b9\u02bc\u02c8\ua78c", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u2036\u02ba\u3003", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\u02d7\u2796", "-"),
    **dict.fromkeys("\u2044\u2215\u29f8\u2571\u27cb", "/"),
    **dict.fromkeys("\u2216\u29f5\u29f9\ufe68", "\\"),
    **dict.fromkeys("\u037e\ufe54\u061b", ";"),
    **dict.fromkeys("\u02d0\u2236\ua789\ufe55\u0589\u05c3", ":"),
    **dict.fromkeys("\u2024\u00b7\u3002\ufe52\u0701", "."),
    **dict.fromkeys("\u01c0\u2223\u2502\u23d0\u05c0", "|"),
    **dict.fromkeys("\u2217\u204e\u22c6\u066d", "*"),
    **dict.fromkeys("\u223c\u02dc\u301c", "~"),
    **dict.fromkeys("\u2039\u3008\u27e8\u276e", "<"),
    **dict.fromkeys("\u203a\u3009\u27e9\u276f", ">"),
    "\u01c3": "!",
    "\ufe60": "&",
    "\ufe69": "$",
}
_LOOKALIKE_LETTERS: Final = dict(
    zip(
        "аеорсухіјѕԁһӏԛԝвнкмтАВЕКМНОРСТХІЈЅαοερνικυΑΒΕΖΗΙΚΜΝΟΡΤΥΧօհոսցզ",
        "aeopcyxijsdhlqwBHKMTABEKMHOPCTXIJSaoepvikuABEZHIKMNOPTYXohnugq",
        strict=True,
    )
)
"""Letters of other scripts that look like Latin ones; suspicious only next to Latin letters."""


class ApprovalView(msgspec.Struct, frozen=True, kw_only=True):
    """Lines without colors, each safe to print."""

    header: list[str]
    """The tool, who requests it, and what it would reach."""
    arguments: list[tuple[str, list[str]]]
    """(name, lines). The UI must render them so that no line can imitate Kitbag's own."""
    reasons: list[str]
    warnings: list[str]


def build_approval_view(request: ApprovalRequest, max_characters: int | None = MAX_ARGUMENT_CHARACTERS) -> ApprovalView:
    """Show `max_characters` of each argument; None shows everything."""
    asked_by = f", requested by {_one_line(request.asked_by)}" if request.asked_by else ""
    header = [f"{_one_line(request.tool)}{asked_by} [{_one_line(request.id)}]"]
    facts = [("in", request.directory), *_sandbox(request), *request.facts]
    width = max(len(label) for label, _ in facts) + 2
    header += [f"  {_one_line(label).ljust(width)}{_one_line(value)}" for label, value in facts]
    texts = [request.tool, request.directory, request.asked_by, *(value for _, value in request.facts)]
    arguments: list[tuple[str, list[str]]] = []
    for name, value in _arguments(request):
        arguments.append((name, visible_lines(value, max_characters)))
        texts.append(value)
    return ApprovalView(header=header, arguments=arguments, reasons=_reasons(request), warnings=_warnings(texts))


def render_approval(request: ApprovalRequest, max_characters: int | None = MAX_ARGUMENT_CHARACTERS) -> list[str]:
    """All lines together, those of arguments behind a gutter."""
    view = build_approval_view(request, max_characters)
    lines = view.header
    for name, value in view.arguments:
        lines.append(f"{name}:")
        lines += [GUTTER + line for line in value]
    lines += view.reasons
    return [*lines, "warnings:", *(f"  {warning}" for warning in view.warnings)] if view.warnings else lines


def visible_lines(text: str, max_characters: int | None = None) -> list[str]:
    """Escape any text so that each character is visible."""
    if not text:
        return ["[empty]"]
    start, end = _hidden_span(text, max_characters)
    if start >= end:
        return _lines(text)
    hidden = f"[{end - start:,} characters hidden — expand to see them]"
    return [*_lines(text[:start]), hidden, *_lines(text[end:])]


def _hidden_span(text: str, most: int | None) -> tuple[int, int]:
    """The span to hide: keeps the beginning and the end, limited in characters and in lines."""
    if most is None or (len(text) <= most and len(_lines(text)) <= _MAX_LINES):
        return 0, 0
    start, end = min(most * 2 // 3, len(text)), max(len(text) - most // 3, 0)
    at = -1
    for _ in range(_MAX_LINES * 2 // 3):
        at = text.find("\n", at + 1, start)
        if at < 0:
            break
    start = at + 1 if at >= 0 else start
    at = len(text)
    for _ in range(_MAX_LINES // 3):
        at = text.rfind("\n", end, at)
        if at < 0:
            break
    return start, max(end, at) if at >= 0 else end


def _lines(text: str) -> list[str]:
    lines: list[str] = []
    empty = 0
    for line in [*text.split("\n"), None]:
        if line == "":
            empty += 1
            continue
        # A few empty lines are visible; a screen full of them hides what follows.
        lines += [f"[{empty:,} empty lines]"] if empty > 3 else [""] * empty
        empty = 0
        if line is not None:
            lines.append(_escape(line))
    return lines


def _one_line(text: str) -> str:
    return _escape(text)


def _escape(text: str) -> str:
    if text.isascii() and text.isprintable() and "  " not in text and "[" not in text and not text.endswith(" "):
        return text
    return _RUN.sub(lambda match: _escape_run(text, match), text)


def _escape_run(text: str, match: re.Match[str]) -> str:
    run = match[0]
    char, count = run[0], len(run)
    if char == "[":  # otherwise text could imitate our escapes
        return "[U+005B]"
    if char == " ":
        return f"[{count:,} spaces]" if count > 1 else "[1 space]"
    if char == "\t":
        return f"[{count:,} tabs]" if count > 1 else "[tab]"
    if _is_visible(text, match.start(), count):
        return run
    return f"[U+{ord(char):04X} repeated {count:,} times]" if count > 3 else f"[U+{ord(char):04X}]" * count


def _is_visible(text: str, at: int, count: int) -> bool:
    char = text[at]
    if not char.isprintable() or _INVISIBLE.match(char):
        return False
    if unicodedata.category(char) not in ("Mn", "Me"):
        return True
    # A combining mark belongs to its letter; a stack of them covers neighboring lines.
    base = at - 1
    while base >= 0 and unicodedata.category(text[base]) in ("Mn", "Me"):
        base -= 1
        if at - base > _MAX_COMBINING_MARKS:
            return False
    return base >= 0 and text[base].isalpha() and at - base - 1 + count <= _MAX_COMBINING_MARKS


def _arguments(request: ApprovalRequest) -> Iterable[tuple[str, str]]:
    """Mark values that are not strings, since the string `[1]` is not the list."""
    values: dict[str, object] = json.loads(request.arguments)
    order = {name: at for at, name in enumerate(_ARGUMENT_ORDER)}
    for name in sorted(values, key=lambda name: (order.get(name, len(order)), name)):
        value = values[name]
        if isinstance(value, str):
            yield _one_line(name), value
        else:
            yield f"{_one_line(name)} (JSON)", json.dumps(value, ensure_ascii=False, indent=1)


def _sandbox(request: ApprovalRequest) -> list[tuple[str, str]]:
    if request.tool != "Bash":
        return []
    network = "with network access" if request.decision.network else "no network access"
    descriptions = {
        "none": "none: full access to your files and the network",
        "read-only": f"read-only, {network}",
        "workspace": f"can write to the workspace, {network}",
    }
    return [("sandbox", descriptions[request.decision.sandbox])]


def _reasons(request: ApprovalRequest) -> list[str]:
    lines = [f"why: {_one_line(request.decision.reason)}"]
    parts = request.decision.parts
    if len(parts) < 2:
        return lines
    for part in parts:
        what = _one_line(part.what[:_MAX_PART_CHARACTERS])
        if len(part.what) > _MAX_PART_CHARACTERS:  # shown in full above
            what += f" [{len(part.what) - _MAX_PART_CHARACTERS:,} more characters]"
        lines.append(f"  {part.effect.ljust(5)}  {what}: {_one_line(part.reason_with_rule(part.source))}")
    if len(lines) > _MAX_PARTS:
        lines[_MAX_PARTS:] = [f"  and {len(lines) - _MAX_PARTS:,} more parts"]
    return lines


def _warnings(texts: list[str]) -> list[str]:
    """Warn about visible characters that are easily mistaken for others."""
    counts: dict[str, int] = {}
    has_rtl = False
    for text in texts:
        if text.isascii():
            continue
        for word in text.split():
            if word.isascii():
                continue
            latin = any(char.isascii() and char.isalpha() for char in word)
            for char in word:
                if _lookalike(char, latin):
                    counts[char] = counts.get(char, 0) + 1
        has_rtl = has_rtl or any(unicodedata.bidirectional(char) in ("R", "AL", "AN") for char in text)
    warnings = [
        f"{char} is U+{ord(char):04X}, not {_lookalike(char, True)}" + (f" ({count:,} times)" if count > 1 else "")
        for char, count in sorted(counts.items())
    ]
    if has_rtl:
        warnings.append("right-to-left characters: a terminal may display the text around them in a different order")
    return warnings


def _lookalike(char: str, latin: bool) -> str:
    if "\uff01" <= char <= "\uff5e":
        return chr(ord(char) - 0xFEE0)
    return _LOOKALIKES.get(char, "") or (_LOOKALIKE_LETTERS.get(char, "") if latin else "")
