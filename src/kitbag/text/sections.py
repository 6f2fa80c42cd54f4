"""The structure of a Markdown text: its top-level headings as CommonMark sees them, what they mean, and its fences.

A scan of lines that keeps only what decides where headings and fences are: which lists and quotes are open,
and whether a paragraph, a fence or raw HTML is. Used by `truncate`; the referee in tests is markdown-it-py.
"""

import html
import re
from itertools import accumulate
from typing import Literal, NamedTuple, TypeAlias

Role: TypeAlias = Literal["summary", "rules", "examples", "references", "appendix", "other"]

_NOTHING, _PARAGRAPH, _FENCE, _HTML = range(4)
_QUOTE = 0
"""An open container is the width of a list item's indent, or this."""
_DEEPEST = 100
"""Containers beyond this are text: a line of a million `>` costs no more than a line."""
_STRUCTURAL = frozenset(" \t\r#=-+*_>`~<0123456789")
_ATX = re.compile(r"(#{1,6})(?: |$)")
_ITEM = re.compile(r"([-+*]|\d{1,9}[.)])( +|$)", re.ASCII)
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
"""How raw HTML starts and on which line it ends: none, at a blank line. The last may not interrupt a paragraph."""
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
_LONGEST_TITLE = 1000


class Section(NamedTuple):
    """A heading and the text up to the next heading. The sections of a text, in order, are the text."""

    level: int
    """1 to 6; 0 for the text before the first heading."""
    title: str
    role: Role
    start: int
    body_start: int
    """Where the heading itself ends."""
    end: int
    end_with_children: int
    first_line: int
    """Counted from 1."""


class Fence(NamedTuple):
    """Lines counted from 0."""

    first: int
    end: int
    """The line after the last one."""
    closed: bool
    """Its last line closes it; else the text or the list around it ended first."""
    closing: str
    """A line that would close it."""


class _Heading(NamedTuple):
    level: int
    first: int
    end: int
    title: str


def parse_sections(text: str) -> list[Section]:
    """Lines end with LF or CRLF."""
    lines = text.split("\n")
    headings = _Scan(lines, "\r" in text).headings
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    starts[-1] = len(text)
    sections: list[Section] = []
    first = starts[headings[0].first] if headings else len(text)
    if first:
        sections.append(Section(0, "", "other", 0, 0, first, first, 1))
    nexts = [*(starts[heading.first] for heading in headings), len(text)][1:]
    ends = _ends_with_children(headings, nexts)
    parents: list[tuple[int, Role]] = []
    for heading, end, far_end in zip(headings, nexts, ends, strict=True):
        while parents and parents[-1][0] >= heading.level:
            parents.pop()
        role = role_of(title := _plain(heading.title))
        if role == "other" and parents and parents[-1][1] in _INHERITED:
            role = parents[-1][1]
        parents.append((heading.level, role))
        start, body_start = starts[heading.first], min(starts[heading.end], len(text))
        sections.append(Section(heading.level, title, role, start, body_start, end, far_end, heading.first + 1))
    return sections


def find_fences(text: str) -> list[Fence]:
    """Fenced code at any depth of lists and quotes, in order."""
    return _Scan(text.split("\n"), "\r" in text).fences


def _ends_with_children(headings: list[_Heading], nexts: list[int]) -> list[int]:
    ends = nexts.copy()
    open_at: list[int] = []
    for at, heading in enumerate(headings):
        while open_at and headings[open_at[-1]].level >= heading.level:
            ends[open_at.pop()] = nexts[at - 1]
        open_at.append(at)
    for at in open_at:
        ends[at] = nexts[-1]
    return ends


class _Scan:
    """One pass over the lines; `headings` and `fences` hold what was found."""

    def __init__(self, lines: list[str], returns: bool) -> None:
        self.lines = [line.removesuffix("\r") for line in lines] if returns else lines
        self.headings: list[_Heading] = []
        self.fences: list[Fence] = []
        self._stack: list[int] = []
        self._leaf = _NOTHING
        self._leaf_at = 0
        self._bare_at = -1
        """The line that opened a list item with nothing in it: a blank line ends that."""
        self._fence = self._closing = ""
        self._html_end: re.Pattern[str] | None = None
        self._run()

    def _run(self) -> None:
        stack = self._stack
        for at, line in enumerate(self.lines):
            if line and line[0] not in _STRUCTURAL:
                # Words at the margin: they go on with a paragraph, however deep, or close all lists and quotes.
                if self._leaf == _PARAGRAPH:
                    continue
                if stack:
                    self._close(0, at)
                if self._leaf == _NOTHING:
                    self._leaf, self._leaf_at = _PARAGRAPH, at
                elif self._leaf == _HTML:
                    self._in_html(line)
            elif line or stack or self._leaf == _HTML:
                self._line(at, line.expandtabs(4) if "\t" in line else line)
            elif self._leaf == _PARAGRAPH:
                self._leaf = _NOTHING
        if self._leaf == _FENCE:
            end = len(self.lines) - (not self.lines[-1])
            self.fences.append(Fence(self._leaf_at, end, False, self._closing))

    def _line(self, at: int, line: str) -> None:
        """Which open containers the line belongs to, then what it is inside of them."""
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
            self._blank(at, depth)
        elif self._leaf == _FENCE and depth == len(self._stack):
            if indent - column < 4 and text.startswith(self._fence) and not text.rstrip(" ").strip(self._fence[0]):
                self.fences.append(Fence(self._leaf_at, at + 1, True, self.lines[at]))
                self._leaf = _NOTHING
        elif self._leaf == _HTML and depth == len(self._stack):
            self._in_html(text)
        else:
            if self._leaf != _PARAGRAPH:
                self._close(depth, at)
            self._open(at, line, text, indent, column, depth)

    def _blank(self, at: int, depth: int) -> None:
        if depth < len(self._stack):
            self._close(depth, at)
        elif self._bare_at == at - 1 and self._stack:
            self._stack.pop()
        if self._leaf == _PARAGRAPH or (self._leaf == _HTML and self._html_end is None):
            self._leaf = _NOTHING

    def _open(self, at: int, line: str, text: str, indent: int, column: int, depth: int) -> None:
        """What starts here, container by container; else the line is text of a paragraph."""
        continues = self._leaf == _PARAGRAPH and depth == len(self._stack)
        while indent - column < 4 and len(self._stack) <= _DEEPEST:
            if text[0] == ">":
                width = _QUOTE
                marker = indent + 1
                column = marker + (line[marker : marker + 1] == " ")
            elif self._block(at, text, continues, depth, indent):
                return
            elif found := self._item(text, continues):
                marker = indent + found.end(1)
                gap = found.end(2) - found.end(1)
                content = marker + (gap if gap < 5 and found.end() < len(text) else 1)
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
                self._bare_at = at if width else -1
                return
        if self._leaf == _PARAGRAPH:
            return
        self._close(depth, at)
        if indent - column < 4:
            self._leaf, self._leaf_at = _PARAGRAPH, at

    def _item(self, text: str, continues: bool) -> re.Match[str] | None:
        """The marker of a list item. In a paragraph only one that can't be meant as text counts."""
        found = _ITEM.match(text)
        if found and continues and (found.end() == len(text) or found[1][:-1] not in ("", "1")):
            return None
        return found

    def _block(self, at: int, text: str, continues: bool, depth: int, indent: int) -> bool:
        """Whether the line is or opens a heading, a break, a fence or raw HTML."""
        first = text[0]
        if first == "#" and (found := _ATX.match(text)):
            self._close(depth, at)
            if not self._stack:
                self.headings.append(_Heading(found.end(1), at, at + 1, _atx_title(self.lines[at])))
        elif first in "=-" and continues and not text.rstrip(" ").strip(first):
            if not self._setext(at, 1 if first == "=" else 2):
                return True
        elif first in "-*_" and text.count(first) > 2 and not text.replace(" ", "").strip(first):
            self._close(depth, at)
        elif first in "`~" and (found := _OPENING_FENCE.match(text)):
            self._close(depth, at)
            self._leaf, self._leaf_at, self._fence = _FENCE, at, found[0]
            before = self.lines[at].expandtabs(4)[:indent]
            self._closing = re.sub(r"[^> ]", " ", before) + found[0]
            return True
        elif first == "<" and (kind := _html_kind(text, self._leaf == _PARAGRAPH)):
            self._close(depth, at)
            self._leaf, self._html_end = _HTML, kind[1]
            self._in_html(text)
            return True
        else:
            return False
        self._leaf = _NOTHING
        return True

    def _setext(self, at: int, level: int) -> bool:
        """Ends the open paragraph as a heading, unless all of it defines links."""
        if self._stack:
            return True
        first = self._leaf_at
        content = [line.strip(" \t") for line in self.lines[first:at]]
        if content[0].startswith("["):
            text = "\n".join(content)
            done = 0
            while found := _REFERENCE.match(text, done):
                done = found.end()
            defined = text.count("\n", 0, done) + (done == len(text))
            if defined == len(content):
                self._leaf_at = at
                return False
            first, content = first + defined, content[defined:]
        self.headings.append(_Heading(level, first, at + 1, " ".join(content)))
        return True

    def _in_html(self, text: str) -> None:
        if self._html_end and self._html_end.search(text):
            self._leaf = _NOTHING

    def _close(self, depth: int, at: int) -> None:
        """Closes the containers beyond `depth`, and what was open in them or before a new block."""
        if depth < len(self._stack):
            if self._leaf == _FENCE:
                self.fences.append(Fence(self._leaf_at, at, False, self._closing))
            del self._stack[depth:]
            self._leaf = _NOTHING
        elif self._leaf == _PARAGRAPH:
            self._leaf = _NOTHING


def _html_kind(text: str, in_paragraph: bool) -> tuple[re.Pattern[str], re.Pattern[str] | None] | None:
    kinds = _HTML_KINDS[:-1] if in_paragraph else _HTML_KINDS
    return next((kind for kind in kinds if kind[0].match(text)), None)


def _atx_title(line: str) -> str:
    title = line.strip(" \t").lstrip("#").strip(" \t")
    bare = title.rstrip("#")
    return title if bare and bare[-1] not in " \t" else bare.rstrip(" \t")


def _plain(title: str) -> str:
    """A heading's text without marks, as a reader sees it."""
    title = title[:_LONGEST_TITLE]
    if not title.replace(" ", "").isalnum():
        title = html.unescape(_INLINE.sub(_bare, title)).strip()
    return title


def _bare(found: re.Match[str]) -> str:
    kind = found.lastgroup
    if kind == "escaped" or kind == "auto":
        return found[kind]
    if kind == "code":
        return found["code"].strip()
    return _INLINE.sub(_bare, found["link"]) if kind == "link" else ""


_INHERITED: tuple[Role, ...] = ("examples", "references", "appendix")
_KEPT_LONGEST: tuple[Role, ...] = ("rules", "summary", "other", "examples", "appendix", "references")
_PHRASES: dict[Role, str] = {
    "summary": """summary|overview|tl dr|tldr|purpose|introduction|intro|about|about this skill|about this agent|
        about this document|at a glance|what this does|what it does|what this skill does|what this is|what is this|
        goal|goals|objective|objectives|mission|abstract|synopsis|description|in short|in brief|role|the gist|
        概述|概要|简介|摘要|总结|目的|はじめに|개요|요약|обзор|введение|кратко|zusammenfassung|überblick|résumé|resumen""",
    "rules": """rules|principles|guidelines|instructions|constraints|must|musts|must do|must not|must not do|must have|
        must haves|requirements|best practices|iron law|iron laws|law|laws|non negotiable|non negotiables|ground rules|
        guardrails|invariants|policy|policies|conventions|standards|dos and donts|do and dont|do not|donts|never|
        never do|always|always do|always and never|critical|important|important notes|safety notes|safety|
        规则|核心规则|原则|准则|指令|要求|约束|ルール|規則|原則|規約|규칙|원칙|지침|правила|принципы|требования|regeln|règles|reglas""",
    "examples": """example|examples|sample|samples|demo|demos|demonstration|demonstrations|for example|
        示例|例子|样例|例|サンプル|使用例|예제|예시|пример|примеры|beispiel|beispiele|exemple|exemples|ejemplo|ejemplos""",
    "references": """references|reference|further reading|resources|see also|links|bibliography|related|related skills|
        related links|related resources|related work|related documents|related documentation|citations|sources|
        learn more|more information|further information|read more|reference files|reference documents|
        参考|参考资料|参考文献|相关链接|参考資料|참고|참고 자료|ссылки|литература|источники|referenzen|références""",
    "appendix": """appendix|appendices|annex|changelog|change log|history|version history|revision history|
        release notes|faq|faqs|frequently asked questions|troubleshooting|notes|credits|acknowledgements|
        acknowledgments|license|licence|licensing|copyright|author|authors|contributors|contributing|contact|attribution|glossary|
        decision log|附录|更新日志|常见问题|付録|変更履歴|부록|변경 이력|приложение|история изменений|anhang""",
    "other": "quick reference|usage notes",
}
_ROLE_OF: dict[str, Role] = {
    " ".join(phrase.split()): role for role, phrases in _PHRASES.items() for phrase in phrases.split("|")
}
_FIRST_WORDS = ("example", "examples", "sample", "appendix", "annex")
"""Whatever follows them: `Example workflow`, `Appendix A`."""
_QUALIFIERS = frozenset(
    """the a our your my core key main basic general critical important essential fundamental mandatory hard golden
    strict absolute quick brief short executive project usage code coding additional further more other external useful
    worked common detailed full complete simple advanced high level skill agent workflow operating guiding design
    version safety some this""".split()  # noqa: SIM905
)
_WITH_OBJECT: tuple[Role, ...] = ("summary", "rules", "examples")
_NUMBERING = re.compile(r"[\W_]*(?:(?:\d+|[a-z]|[ivx]+)(?:\.\d+)*[.):]\s+)?")
_APART = re.compile(r"\s*(?:[:;([|]|\s[-–—]+\s).*", re.DOTALL)
_BOTH = re.compile(r"\s*(?:[,&+/、]|\band\b)\s*")
_OBJECT = re.compile(r"\s(?:for|of|to|in|on|when|with|from|by|that|you)\s.*", re.DOTALL)
_WORDS = re.compile(r"[^\W\d_]+")


def role_of(title: str) -> Role:
    """What a section is for, by the words of its heading."""
    text = re.sub("['’]", "", title[:_LONGEST_TITLE].casefold())
    text = text[found.end() :] if (found := _NUMBERING.match(text)) else text
    whole = _ROLE_OF.get(" ".join(_WORDS.findall(text)))
    if whole:
        return whole
    parts = [_role_of_part(part) for part in _BOTH.split(_APART.sub("", text)) if _WORDS.search(part)]
    return min(parts, key=_KEPT_LONGEST.index) if parts else "other"


def _role_of_part(text: str) -> Role:
    words = _WORDS.findall(text)
    if words[0] in _FIRST_WORDS:
        return _ROLE_OF[words[0]]
    role = _role_of_words(words)
    if role == "other" and (found := _OBJECT.search(text)):
        role = _role_of_words(_WORDS.findall(text[: found.start()]))
        return role if role in _WITH_OBJECT else "other"
    return role


def _role_of_words(words: list[str]) -> Role:
    while words:
        if role := _ROLE_OF.get(" ".join(words)):
            return role
        if words[0] not in _QUALIFIERS:
            break
        words = words[1:]
    return "other"
