"""The structure of a Markdown text: top-level headings per CommonMark, their roles, and code fences.

A line scanner that tracks only what decides where headings and fences are: open lists and quotes, and whether a
paragraph, a fence or raw HTML is open. Used by `truncate`; tests compare it with markdown-it-py.
"""

import html
import re
from itertools import accumulate
from operator import add
from typing import Literal, NamedTuple, TypeAlias

SectionRole: TypeAlias = Literal["summary", "rules", "examples", "references", "appendix", "other"]

_Heading: TypeAlias = tuple[int, int, int, str]
"""Level, first line, line after it, raw title."""
_NOTHING, _PARAGRAPH, _FENCE, _HTML = range(4)
_QUOTE = 0
"""An open container is the indentation of a list item, or this value for a quote."""
_MAX_DEPTH = 100
"""Deeper containers are text, so that a line with a million `>` costs no more than any other."""
_STRUCTURAL = frozenset(" \t\r#=-+*_>`~<0123456789")
_ATX = re.compile(r"(#{1,6})(?: |$)")
_ITEM = re.compile(r"([-+*]|\d{1,9}[.)])( +|$)", re.ASCII)
_PLAIN_ITEM = re.compile(r"([-+*]|\d{1,9}[.)]) (?:[^\s#=\-+*_>`~<0-9]|\*\*[a-zA-Z]|`[^`])", re.ASCII)
_OPENING_FENCE = re.compile(r"`{3,}(?=[^`]*$)|~{3,}")
_BLOCK_TAGS = (
    "address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div|dl|dt|"
    "fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|"
    "menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|summary|table|tbody|td|tfoot|th|thead|title|tr|"
    "track|ul"
)
_ATTRIBUTE = r"""\s+[a-z_:][\w.:-]*(?:\s*=\s*(?:[^\s"'=<>`]+|'[^']*'|"[^"]*"))?"""
_ANY_FLAGS = re.IGNORECASE | re.ASCII
_HTML_KINDS: tuple[tuple[re.Pattern[str], re.Pattern[str] | None], ...] = tuple(
    (re.compile(start, _ANY_FLAGS), re.compile(end, _ANY_FLAGS) if end else None)
    for start, end in (
        (r"<(?:script|pre|style|textarea)(?:[\s>]|$)", r"</(?:script|pre|style|textarea)>"),
        (r"<!--", r"-->"),
        (r"<\?", r"\?>"),
        (r"<![a-z]", r">"),
        (r"<!\[CDATA\[", r"\]\]>"),
        (rf"</?(?:{_BLOCK_TAGS})(?:\s|/?>|$)", ""),
        (rf"<(?:[a-z][a-z0-9-]*(?:{_ATTRIBUTE})*\s*/?|/[a-z][a-z0-9-]*\s*)>\s*$", ""),
    )
)
"""Patterns for the start and end of raw HTML; without an end pattern, a blank line ends it. The last kind can't
interrupt a paragraph."""
_TITLE = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\((?:[^()\\]|\\.)*\)"""
_REFERENCE = re.compile(
    r"\[(?=[^\]]*[^\s\]])(?:[^\[\]\\]|\\.){1,999}\]:[ \t]*\n?[ \t]*(?:<(?:[^<>\n\\]|\\.)*>|[^\s<]\S*)"
    rf"(?:(?:[ \t]+|[ \t]*\n[ \t]*)(?:{_TITLE}))?[ \t]*(?:\n|\Z)",
    re.DOTALL,
)
_INLINE = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?P<ticks>`+)(?P<code>.*?[^`])(?P=ticks)(?!`)"
    r"|!?\[(?P<link>(?:[^\[\]\\]|\\.|!?\[[^\[\]]*\](?:\([^()]*\))?)*)\](?:\((?:[^()\\]|\\.|\([^()]*\))*\)|\[[^\[\]]*\])"
    r"|<(?P<auto>[a-zA-Z][a-zA-Z0-9+.-]{1,31}:[^\s<>]*|[\w.+-]+@[\w.-]+)>"
    r"|(?P<tag></?[a-zA-Z][^<>]*>|<!--.*?-->)"
    r"|(?P<mark>\*+|~~|(?<![^\W_])_+|_+(?![^\W_]))"
)
_INLINE_MARKS = frozenset("\\`*_[<~&")
_MAX_TITLE_LENGTH = 1000


class MarkdownSection(NamedTuple):
    """A heading and the text up to the next heading. Concatenated in order, the sections are the text."""

    level: int
    """1 to 6; 0 for the text before the first heading."""
    title: str
    role: SectionRole
    start: int
    body_start: int
    """The end of the heading itself."""
    end: int
    end_with_children: int
    first_line: int
    """1-based."""


class CodeFence(NamedTuple):
    """Line numbers are 0-based."""

    first: int
    end: int
    """The line after the last one."""
    closed: bool
    """The last line closes the fence; otherwise the text or the surrounding list ended first."""
    closing_line: str


def parse_sections(text: str) -> list[MarkdownSection]:
    """Lines end with LF or CRLF."""
    lines = text.split("\n")
    headings = _BlockScanner(lines, "\r" in text).headings
    starts = [0, *map(add, accumulate(map(len, lines)), range(1, len(lines))), len(text)]
    far_ends: list[int] = []
    next_of_level = [len(text)] * 7
    for level, first, _, _ in reversed(headings):
        far_ends.append(min(next_of_level[1 : level + 1]))
        next_of_level[level] = starts[first]
    nexts = [*(starts[first] for _, first, _, _ in headings), len(text)]
    sections = (
        [
            MarkdownSection(
                level=0,
                title="",
                role="other",
                start=0,
                body_start=0,
                end=nexts[0],
                end_with_children=nexts[0],
                first_line=1,
            )
        ]
        if nexts[0]
        else []
    )
    parents: list[tuple[int, SectionRole]] = []
    for (level, first, body, raw), start, end, far_end in zip(headings, nexts, nexts[1:], reversed(far_ends)):  # noqa: B905
        while parents and parents[-1][0] >= level:
            parents.pop()
        role = section_role(title := _plain_title(raw))
        if role == "other" and parents and parents[-1][1] in _INHERITED_ROLES:
            role = parents[-1][1]
        parents.append((level, role))
        sections.append(
            MarkdownSection(
                level=level,
                title=title,
                role=role,
                start=start,
                body_start=starts[body],
                end=end,
                end_with_children=far_end,
                first_line=first + 1,
            )
        )
    return sections


def find_fences(text: str) -> list[CodeFence]:
    """Fenced code blocks at any nesting of lists and quotes, in order."""
    return _BlockScanner(text.split("\n"), "\r" in text).fences


class _BlockScanner:
    """Scans the lines once; `headings` and `fences` hold the result."""

    def __init__(self, lines: list[str], returns: bool) -> None:
        self.lines = [line.removesuffix("\r") for line in lines] if returns else lines
        self.headings: list[_Heading] = []
        self.fences: list[CodeFence] = []
        self._stack: list[int] = []
        self._leaf = _NOTHING
        self._leaf_at = 0
        self._empty_item_line = -1  # the line of an empty list item, which a blank line closes
        self._fence = self._closing = ""
        self._html_end: re.Pattern[str] | None = None
        self._run()

    def _run(self) -> None:
        for at, line in enumerate(self.lines):
            if not line:
                if self._stack or self._leaf == _HTML:
                    self._read_blank_line(at, self._stack.index(_QUOTE) if _QUOTE in self._stack else len(self._stack))
                elif self._leaf == _PARAGRAPH:
                    self._leaf = _NOTHING
            elif line[0] not in _STRUCTURAL:
                # Unindented words continue a paragraph at any depth, or close all lists and quotes.
                if self._leaf == _PARAGRAPH:
                    continue
                if self._stack:
                    self._close(0, at)
                if self._leaf == _NOTHING:
                    self._leaf, self._leaf_at = _PARAGRAPH, at
                elif self._leaf == _HTML:
                    self._continue_html(line)
            elif not self._read_plain_item(at, line):
                self._read_line(at, line.expandtabs(4) if "\t" in line else line)
        if self._leaf == _FENCE:
            end = len(self.lines) - (not self.lines[-1].strip(" \t"))
            self.fences.append(CodeFence(self._leaf_at, end, False, self._closing))

    def _read_plain_item(self, at: int, line: str) -> bool:
        """Fast path for an unindented list item of words, the most frequent structure."""
        match = _PLAIN_ITEM.match(line)
        if not match or (not self._stack and self._leaf and (self._leaf >= _FENCE or match[1][:-1] not in ("", "1"))):
            return False
        self._close(0, at)
        self._stack.append(match.end(1) + 1)
        self._leaf = _PARAGRAPH
        return True

    def _read_line(self, at: int, line: str) -> None:
        """Matches the open containers that the line continues, then reads the rest of the line."""
        text = line.lstrip(" ")
        indent, column, depth = len(line) - len(text), 0, 0
        for width in self._stack:
            if width == _QUOTE:
                if not text or text[0] != ">" or indent - column > 3:
                    break
                column = indent + 1
                column += line[column : column + 1] == " "
                text = line[column:].lstrip(" ")
                indent = len(line) - len(text)
            elif text:
                if indent - column < width:
                    break
                column += width
            depth += 1
        if not text:
            self._read_blank_line(at, depth)
        elif self._leaf == _FENCE and depth == len(self._stack):
            if indent - column < 4 and text.startswith(self._fence) and not text.rstrip(" ").strip(self._fence[0]):
                self.fences.append(CodeFence(self._leaf_at, at + 1, True, self.lines[at]))
                self._leaf = _NOTHING
        elif self._leaf == _HTML and depth == len(self._stack):
            self._continue_html(text)
        else:
            if self._leaf != _PARAGRAPH:
                self._close(depth, at)
            self._open_blocks(at, line, text, indent, column, depth)

    def _read_blank_line(self, at: int, depth: int) -> None:
        if depth < len(self._stack):
            self._close(depth, at)
        elif self._empty_item_line == at - 1 and self._stack:
            self._stack.pop()
        if self._leaf == _PARAGRAPH or (self._leaf == _HTML and self._html_end is None):
            self._leaf = _NOTHING

    def _open_blocks(self, at: int, line: str, text: str, indent: int, column: int, depth: int) -> None:
        """Opens the containers and blocks that start on this line; otherwise the line is paragraph text."""
        continues = self._leaf == _PARAGRAPH and depth == len(self._stack)
        while text[0] in _STRUCTURAL and indent - column < 4 and len(self._stack) <= _MAX_DEPTH:
            if text[0] == ">":
                width = _QUOTE
                marker = indent + 1
                column = marker + (line[marker : marker + 1] == " ")
            elif self._open_leaf(at, text, continues, depth, indent):
                return
            elif item := self._match_item(text, continues):
                marker = indent + item.end(1)
                gap = item.end(2) - item.end(1)
                content = marker + (gap if gap < 5 and item.end() < len(text) else 1)
                width = content - column
                column = content
            else:
                break
            self._close(depth, at)
            self._stack.append(width)
            depth += 1
            continues = False
            text = line[column:].lstrip(" ")
            indent = len(line) - len(text)
            if not text:
                self._empty_item_line = at if width else -1
                return
        if self._leaf == _PARAGRAPH:
            return
        self._close(depth, at)
        if indent - column < 4:
            self._leaf, self._leaf_at = _PARAGRAPH, at

    def _match_item(self, text: str, continues: bool) -> re.Match[str] | None:
        """The marker of a list item. Inside a paragraph, only markers that can't be text count."""
        match = _ITEM.match(text)
        if match and continues and (match.end() == len(text) or match[1][:-1] not in ("", "1")):
            return None
        return match

    def _open_leaf(self, at: int, text: str, continues: bool, depth: int, indent: int) -> bool:
        """Whether the line is or opens a heading, a thematic break, a fence or raw HTML."""
        first = text[0]
        if first == "#" and (match := _ATX.match(text)):
            self._close(depth, at)
            if not self._stack:
                self.headings.append((match.end(1), at, at + 1, _atx_title(self.lines[at])))
        elif (
            first in "=-"
            and continues
            and not text.rstrip(" ").strip(first)
            and self._close_setext_heading(at, 1 + (first == "-"))
        ):
            pass
        elif first in "-*_" and text.count(first) > 2 and not text.replace(" ", "").strip(first):
            self._close(depth, at)
        elif first in "`~" and (match := _OPENING_FENCE.match(text)):
            self._close(depth, at)
            self._leaf, self._leaf_at, self._fence = _FENCE, at, match[0]
            before = self.lines[at].expandtabs(4)[:indent]
            self._closing = re.sub(r"[^> ]", " ", before) + match[0]
            return True
        elif first == "<" and (kind := self._html_kind(text)):
            self._close(depth, at)
            self._leaf, self._html_end = _HTML, kind[1]
            self._continue_html(text)
            return True
        else:
            return False
        self._leaf = _NOTHING
        return True

    def _close_setext_heading(self, at: int, level: int) -> bool:
        """Turns the open paragraph into a heading, unless it only defines links."""
        if self._stack:
            return True
        first = self._leaf_at
        content = [line.strip(" \t") for line in self.lines[first:at]]
        if content[0].startswith("["):
            text = "\n".join(content)
            done = 0
            while match := _REFERENCE.match(text, done):
                done = match.end()
            defined = text.count("\n", 0, done) + (done == len(text))
            if defined == len(content):
                self._leaf_at = at
                return False
            first, content = first + defined, content[defined:]
        self.headings.append((level, first, at + 1, " ".join(content)))
        return True

    def _html_kind(self, text: str) -> tuple[re.Pattern[str], re.Pattern[str] | None] | None:
        kinds = _HTML_KINDS[:-1] if self._leaf == _PARAGRAPH else _HTML_KINDS
        return next((kind for kind in kinds if kind[0].match(text)), None)

    def _continue_html(self, text: str) -> None:
        if self._html_end and self._html_end.search(text):
            self._leaf = _NOTHING

    def _close(self, depth: int, at: int) -> None:
        """Closes containers beyond `depth`, and the block open in them or before a new block."""
        if depth < len(self._stack):
            if self._leaf == _FENCE:
                self.fences.append(CodeFence(self._leaf_at, at, False, self._closing))
            del self._stack[depth:]
            self._leaf = _NOTHING
        elif self._leaf == _PARAGRAPH:
            self._leaf = _NOTHING


def _atx_title(line: str) -> str:
    title = line.strip(" \t").lstrip("#").strip(" \t")
    bare = title.rstrip("#")
    return title if bare and bare[-1] not in " \t" else bare.rstrip(" \t")


def _plain_title(title: str) -> str:
    """The text of a heading without inline markup."""
    title = title[:_MAX_TITLE_LENGTH]
    if not _INLINE_MARKS.isdisjoint(title):
        title = html.unescape(_INLINE.sub(_strip_inline_markup, title)).strip()
    return title


def _strip_inline_markup(match: re.Match[str]) -> str:
    kind = match.lastgroup or "mark"
    if kind == "link":
        return _INLINE.sub(_strip_inline_markup, match["link"])
    return "" if kind in ("mark", "tag") else match[kind].strip()


_INHERITED_ROLES: tuple[SectionRole, ...] = ("examples", "references", "appendix")
_ROLE_PRIORITY: tuple[SectionRole, ...] = ("rules", "summary", "other", "examples", "appendix", "references")
_PHRASES: dict[SectionRole, str] = {
    "summary": """summary|overview|tl dr|tldr|purpose|introduction|intro|about|about this skill|about this agent|
        about this document|at a glance|what this does|what it does|what this skill does|what this is|what is this|
        goal|goals|objective|objectives|mission|abstract|synopsis|description|in short|in brief|role|the gist|
        概述|概要|简介|摘要|总结|目的|はじめに|개요|요약|обзор|введение|кратко|zusammenfassung|überblick|résumé|resumen""",
    "rules": """rules|principles|guidelines|instructions|constraints|must|musts|must do|must not|must not do|must have|
        must haves|requirements|best practices|iron law|iron laws|law|laws|non negotiable|non negotiables|ground rules|
        guardrails|invariants|policy|policies|conventions|standards|dos and donts|do and dont|do not|donts|never|
        never do|always|always do|always and never|critical|important|important notes|safety notes|safety|
        规则|核心规则|原则|准则|指令|要求|约束|ルール|規則|原則|規約|규칙|원칙|지침|правила|принципы|требования|regeln|règles|reglas""",
    "examples": """example|examples|sample|samples|sample code|sample output|sample usage|demo|demos|demonstration|
        示例|例子|样例|例|サンプル|使用例|예제|예시|пример|примеры|beispiel|beispiele|exemple|exemples|ejemplo|ejemplos""",
    "references": """references|reference|further reading|resources|see also|links|bibliography|related|related skills|
        related links|related work|related documents|citations|sources|learn more|read more|more information|
        参考|参考资料|参考文献|相关链接|参考資料|참고|참고 자료|ссылки|литература|источники|referenzen|références""",
    "appendix": """appendix|appendices|annex|changelog|change log|history|version history|revision history|
        release notes|faq|faqs|frequently asked questions|troubleshooting|notes|credits|acknowledgements|
        acknowledgments|license|licence|licensing|copyright|author|authors|contributors|contributing|contact|
        attribution|glossary|decision log|附录|更新日志|常见问题|付録|変更履歴|부록|변경 이력|приложение|anhang""",
    "other": "quick reference|usage notes",
}
_ROLE_BY_PHRASE: dict[str, SectionRole] = {
    " ".join(each.split()): role for role in _PHRASES for each in _PHRASES[role].split("|")
}
_VOCABULARY = frozenset(" ".join(_ROLE_BY_PHRASE).split())
_ROLES_WITH_OBJECT: tuple[SectionRole, ...] = ("summary", "rules", "examples")
_FIRST_WORDS = (
    "example",
    "examples",
    "appendix",
    "annex",
)  # with anything after them: `Example workflow`, `Appendix A`
_QUALIFYING = """the a our your my core key main basic general critical important essential fundamental mandatory golden
    strict absolute quick brief short executive project usage code coding additional further more other external useful
    worked common detailed full complete simple advanced high level skill agent workflow operating guiding some"""
_QUALIFIERS = frozenset(_QUALIFYING.split())
_NUMBERING = re.compile(r"[\W_]*(?:(?:\d+|[a-z]|[ivx]+)(?:\.\d+)*[.):]\s+)?")
_SUBTITLE = re.compile(r"\s*(?:[:;([|]|\s[-–—]+\s).*", re.DOTALL)
_CONJUNCTION = re.compile(r"\s*(?:[,&+/、]|\band\b)\s*")
_OBJECT = re.compile(r"\s(?:for|of|to|in|on|when|with|from|by|that|you)\s.*", re.DOTALL)
_WORDS = re.compile(r"[^\W\d_]+")


def section_role(title: str) -> SectionRole:
    """The role of a section, from the words of its heading."""
    text = title[:_MAX_TITLE_LENGTH].casefold().replace("'", "").replace("’", "")
    if _VOCABULARY.isdisjoint(_WORDS.findall(text)):
        return "other"
    if match := _NUMBERING.match(text):
        text = text[match.end() :]
    if exact_role := _ROLE_BY_PHRASE.get(" ".join(_WORDS.findall(text))):
        return exact_role
    parts = [_role_of_part(part) for part in _CONJUNCTION.split(_SUBTITLE.sub("", text))]
    return next(role for role in _ROLE_PRIORITY if role in parts)


def _role_of_part(text: str) -> SectionRole:
    words = _WORDS.findall(text)
    if words and words[0] in _FIRST_WORDS:
        return _ROLE_BY_PHRASE[words[0]]
    role = _role_of_words(words)
    if role == "other" and (match := _OBJECT.search(text)):
        role = _role_of_words(_WORDS.findall(text[: match.start()]))
        return role if role in _ROLES_WITH_OBJECT else "other"
    return role


def _role_of_words(words: list[str]) -> SectionRole:
    while words and words[0] in _QUALIFIERS and " ".join(words) not in _ROLE_BY_PHRASE:
        words = words[1:]
    return _ROLE_BY_PHRASE.get(" ".join(words), "other")
