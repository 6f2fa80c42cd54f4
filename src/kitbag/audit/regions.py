"""Classifies each position in a file: code that runs, an example, prose, a comment, frontmatter.

Splits Markdown into fences, comments and frontmatter up front, and computes the rest on demand. Linear in the text.
Used by every detector; uses text.frontmatter and text.reference_syntax.
"""

import bisect
import itertools
import re
from typing import Final, Literal

import msgspec

from kitbag.audit.expressions import load_words
from kitbag.audit.file_content import FileContent
from kitbag.audit.word_index import TextWords
from kitbag.library.names import confusable_skeleton
from kitbag.text.frontmatter_fences import split_frontmatter
from kitbag.text.reference_syntax import ReferenceToken, find_references

RegionRole = Literal[
    "command",
    "script",
    "script-comment",
    "shell",
    "code",
    "inline",
    "prose",
    "table",
    "comment",
    "frontmatter",
    "config",
]
RUNNING_ROLES: Final[frozenset[RegionRole]] = frozenset(("command", "script"))
"""Runs on its own, or when the agent follows its instructions."""
EXAMPLE_ROLES: Final[frozenset[RegionRole]] = frozenset(("shell", "code", "inline"))
PROSE_ROLES: Final[frozenset[RegionRole]] = frozenset(
    ("prose", "table", "comment", "frontmatter", "inline", "script-comment")
)

_FENCE = re.compile(
    r"^(?:[ \t>]*+(?:(?:[-*+]|\d{1,9}[.)])[ \t]++)?)(?P<mark>`{3,}+|~{3,}+)(?P<info>[^\n]*)$", re.MULTILINE
)
_CLOSING: Final = {
    mark: re.compile(rf"^[ \t>]*+(?P<mark>{mark}{{3,}}+)[ \t\r]*+$", re.MULTILINE) for mark in ("`", "~")
}
_HEADING = re.compile(r"^[ \t>]{0,9}(#{1,6})[ \t]+([^\n]{0,300})", re.MULTILINE)
_LISTED = re.compile(r"[ \t>]*(?:[-*+•|]|\d{1,3}[.)]|[ \t]{2})")
_SHELLS: Final = frozenset(load_words("regions.shells"))
_CYRILLIC: Final = "аеорсухіјѕһԁԛԝкмтАВЕКМНОРСТУХІЈЅ"
MIXED_WORD = re.compile(
    rf"[A-Za-z][{_CYRILLIC}][A-Za-z]|\b[{_CYRILLIC}]{{1,2}}[A-Za-z]{{2}}|[A-Za-z]{{2}}[{_CYRILLIC}]{{1,2}}\b"
)
_LOOK_ALIKES: Final = str.maketrans({letter: confusable_skeleton(letter) for letter in _CYRILLIC})
_CYRILLIC_LETTER = re.compile(f"[{_CYRILLIC}]")
_TICKS = re.compile(r"`+")
_COMMENT_LINE = re.compile(
    r"[ \t]*(?:#(?!!)|//(?!go:generate)|--(?!\S)|/?\*|;|<!--|::(?!\w)|@?rem\b|\"\"\"|''')", re.IGNORECASE
)
MAX_TOKENS: Final = 2000
_MAX_HEADINGS: Final = 20_000
_LINE_LIMIT: Final = 2000
_LOOKBACK: Final = 3000


class TextRegion(msgspec.Struct, frozen=True, kw_only=True, order=True):
    start: int
    end: int
    role: RegionRole
    language: str


class TextContext(msgspec.Struct, frozen=True, kw_only=True):
    """A position in a text and its surroundings."""

    role: RegionRole
    language: str
    line: int
    line_text: str
    """The whole line, at most 2,000 characters."""
    introduction: str
    """What introduces it: the line above a fence, the start of a list, the comments above."""
    heading: str


class AuditedText:
    """A text and its regions."""

    __slots__ = (
        "_headings",
        "_starts",
        "body_start",
        "content",
        "frontmatter",
        "has_mixed_words",
        "lower",
        "plain",
        "regions",
        "text",
        "tokens",
        "words",
    )

    def __init__(self, content: FileContent, text: str) -> None:
        self.content = content
        self.text = text
        self.has_mixed_words = (
            not text.isascii() and _CYRILLIC_LETTER.search(text) is not None and MIXED_WORD.search(text) is not None
        )
        self.plain = text.translate(_LOOK_ALIKES) if self.has_mixed_words else text
        """The text with look-alike letters replaced; offsets are the same."""
        lower = self.plain.lower()
        self.lower = lower if len(lower) == len(text) else self.plain.replace("İ", "i").lower()
        """The same in lower case; only the letter İ becomes longer."""
        self.words = TextWords(self.lower)
        self.tokens: list[ReferenceToken] = []
        self.frontmatter = ""
        self.body_start = 0
        self.regions: list[TextRegion] = []
        if content.kind == "markdown":
            self._read_markdown()
        self._starts = [region.start for region in self.regions]
        self._headings: list[tuple[int, int, str]] | None = None

    @property
    def language(self) -> str:
        return self.content.language

    def _read_markdown(self) -> None:
        parts = split_frontmatter(self.text)
        self.body_start = len(self.text) - len(parts.body) if parts.frontmatter is not None else 0
        if parts.frontmatter is not None:
            self.frontmatter = self.text[: self.body_start]
            self.regions.append(TextRegion(start=0, end=self.body_start, role="frontmatter", language=""))
        self._read_fences()
        tokens = find_references(self.text[self.body_start :]).tokens[: MAX_TOKENS + 1]
        lines = self.text.count("\n", 0, self.body_start)
        shift = self.body_start
        self.tokens = [
            token._replace(start=token.start + shift, end=token.end + shift, line=token.line + lines)
            for token in tokens
            if token.kind != "escape"
        ]
        commands = [
            TextRegion(start=t.start, end=t.end, role="command", language="shell")
            for t in self.tokens
            if t.kind == "command"
        ]
        if commands:
            taken = {region.start for region in commands}
            self.regions = sorted([r for r in self.regions if r.start not in taken] + commands)

    def _read_fences(self) -> None:
        text, at = self.text, self.body_start
        while (fence := _FENCE.search(text, at)) is not None:
            self._read_comments(at, fence.start())
            marker, info = fence["mark"], fence["info"].strip()
            if marker[0] == "`" and "`" in info:
                at = fence.end()
                continue
            closing = _CLOSING[marker[0]].search(text, fence.end())
            while closing is not None and len(closing["mark"]) < len(marker):
                closing = _CLOSING[marker[0]].search(text, closing.end())
            end = closing.end() if closing else len(text)
            word = re.split(r"[\s{,:]", info.lower().lstrip("{."), maxsplit=1)[0]
            role: RegionRole = "shell" if word in _SHELLS else "code"
            self.regions.append(
                TextRegion(start=fence.start(), end=end, role=role, language="shell" if role == "shell" else word)
            )
            at = end
        self._read_comments(at, len(text))

    def _read_comments(self, start: int, end: int) -> None:
        while (opened := self.text.find("<!--", start, end)) >= 0:
            closed = self.text.find("-->", opened + 4, end)
            start = closed + 3 if closed >= 0 else end
            self.regions.append(TextRegion(start=opened, end=start, role="comment", language=""))

    def has(self, word: str) -> bool:
        """Whether the text contains a lowercase word."""
        return self.words.has(word)

    def region_at(self, offset: int) -> TextRegion | None:
        at = bisect.bisect_right(self._starts, offset) - 1
        return self.regions[at] if at >= 0 and offset < self.regions[at].end else None

    def line_at(self, offset: int) -> int:
        return self.text.count("\n", 0, offset) + 1

    def line_text_at(self, offset: int) -> tuple[int, str]:
        """The start of the line, and the line; for a very long one, the part around the offset."""
        begin = self.text.rfind("\n", max(0, offset - _LINE_LIMIT), offset) + 1 or max(0, offset - _LINE_LIMIT)
        if offset < _LINE_LIMIT and self.text.rfind("\n", 0, offset) < 0:
            begin = 0
        end = self.text.find("\n", offset, offset + _LINE_LIMIT)
        return begin, self.text[begin : end if end >= 0 else offset + _LINE_LIMIT]

    def role_at(self, offset: int) -> tuple[RegionRole, str]:
        begin, row = self.line_text_at(offset)
        return self._find_role(offset, begin, row, self.region_at(offset))

    def context_at(self, offset: int) -> TextContext:
        begin, row = self.line_text_at(offset)
        line = self.line_at(offset)
        region = self.region_at(offset)
        role, language = self._find_role(offset, begin, row, region)
        if self.content.kind != "markdown":
            return TextContext(
                role=role,
                language=language,
                line=line,
                line_text=row,
                introduction=self._comments_above(begin),
                heading="",
            )
        top = region.start if region is not None and region.role in ("shell", "code") else begin
        return TextContext(
            role=role,
            language=language,
            line=line,
            line_text=row,
            introduction=self._introduction(top, begin, role),
            heading=self._heading(top),
        )

    def _find_role(self, offset: int, begin: int, row: str, region: TextRegion | None) -> tuple[RegionRole, str]:
        if self.content.kind != "markdown":
            if self.content.kind == "script":
                return ("script-comment" if _COMMENT_LINE.match(row) else "script"), self.language
            return "config", self.language
        if region is not None:
            return region.role, region.language
        if row.lstrip(" \t>").startswith("|"):
            return "table", ""
        return ("inline", "") if _in_code(row, offset - begin) else ("prose", "")

    def _comments_above(self, begin: int) -> str:
        """The two lines above in a script, if they are comments."""
        above = self.text[max(0, begin - 400) : begin].split("\n")[-3:]
        return " ".join(line.strip() for line in above if _COMMENT_LINE.match(line))

    def _introduction(self, top: int, begin: int, role: RegionRole) -> str:
        """The last lines of prose above; inside a fence also the comments right above the line."""
        remarks = self._comments_above(begin) if begin > top else ""
        above = self.text[max(0, top - _LOOKBACK) : top].rstrip()
        lines = above.split("\n")
        if role in ("prose", "inline", "table"):
            # The sentence may start on the line above; a list or table is introduced by the line before it.
            # Another row of a table introduces nothing.
            is_row = not lines or lines[-1].lstrip(" \t>").startswith("|")
            near = [lines[-1]] if not is_row and self.text[top - 2 : top] != "\n\n" else []
            return " ".join([*near, _line_before_list(lines[-40:])])
        last = next((line for line in reversed(lines[-4:]) if line.strip()), "")
        return f"{last} {remarks}".strip()

    def _heading(self, top: int) -> str:
        """The closest heading above, after the one that it belongs to."""
        if self._headings is None:
            headings = itertools.islice(_HEADING.finditer(self.text), _MAX_HEADINGS)
            self._headings = [
                (match.start(), len(match[1]), match[2]) for match in headings if self.region_at(match.start()) is None
            ]
        at = bisect.bisect_left(self._headings, (top, 0, ""))
        if not at:
            return ""
        _, level, closest = self._headings[at - 1]
        parent = next((f"{text} / " for _, above, text in reversed(self._headings[: at - 1]) if above < level), "")
        return parent + closest


def _line_before_list(lines: list[str]) -> str:
    """The line that introduces a list or a table, if the last lines are one."""
    for line in reversed(lines):
        if line.strip() and not _LISTED.match(line):
            return line if line.rstrip().endswith(":") else ""
    return ""


def _in_code(row: str, column: int) -> bool:
    """Whether a column is inside a code span."""
    opened: tuple[int, int] | None = None
    for run in _TICKS.finditer(row):
        size = run.end() - run.start()
        if opened is None:
            if run.start() > column:
                return False
            opened = (run.end(), size)
        elif size == opened[1]:
            if opened[0] <= column < run.start():
                return True
            opened = None
    return False
