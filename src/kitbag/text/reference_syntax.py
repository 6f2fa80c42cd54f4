"""Finds references in a text: `@path`, `{{NAME}}`, `${NAME}`, `` !`command` ``, a fence marked `!`.

One pass, with line and column. Code, comments and text after a backslash are literal. `@` starts a path if it is
quoted, starts like a path, has a wildcard or a file extension, or names something that exists; e-mail addresses,
mentions, decorators and packages are text. Used by packing and by trust; uses prose_blocks.
"""

import bisect
import re
from typing import Final, Literal, NamedTuple

from kitbag.text.prose_blocks import CommandFence, scan_blocks
from kitbag.text.source_files import FileProblem

ReferenceKind = Literal["file", "variable", "environment", "command", "escape"]

NAME_PATTERN: Final = r"[A-Za-z_][\w.-]*"
MAX_PATH: Final = 1024
_CJK = "\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef"
_BEFORE_AT = rf"(?<![^\W{_CJK}])(?<![.%+\-/@\\=&#$~])"
_VARIABLE_BODY = rf" *({NAME_PATTERN}) *\}}\}}(?!\}})"
_ENVIRONMENT_BODY = r"([A-Z_][A-Z0-9_]*)(?::-([^{}\n]*))?\}"

_TOKEN_START = re.compile(r"[@!]|\{\{|\$\{")
_TRIGGER = re.compile(r"[\\`!<{$@]")
_COMMAND = re.compile(r"(?<!\S)!`(?!`)([^`\n]+)`(?!`)")
_VARIABLE = re.compile(rf"(?<![{{$])\{{\{{{_VARIABLE_BODY}")
_ENVIRONMENT = re.compile(rf"\$\{{{_ENVIRONMENT_BODY}")
_FILE = re.compile(_BEFORE_AT + r'@(?:"([^"\x00-\x1f\x7f]+)"|((?:[\w./~+\-*?%=@]+|\{[^{}\s"`]*\}|\[[^\[\]\s/"`]+\])+))')
_ESCAPE = re.compile(
    r"(?<!\S)\\!(?=`[^`\n]+`)"
    rf"|{_BEFORE_AT}\\@(?=[\w./~\"*{{\[])"
    rf"|\\\{{\{{(?={_VARIABLE_BODY})"
    rf"|\\\$\{{(?={_ENVIRONMENT_BODY})"
)
_TICKS = re.compile(r"`+")
# A backtick in an attribute or a URL opens no code span; the rest of a tag is ordinary text.
_TAG = re.compile(
    r"<[A-Za-z][A-Za-z0-9-]*(?:\s+[A-Za-z_:][\w.:-]*(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'=<>`]+))?)*\s*/?>"
    r"|<[A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]*>"
)
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_PATH_VARIABLES = re.compile(r"SKILL_ROOT$|CLAUDE_")
_BRACES = re.compile(r"\{[^{}]*,[^{}]*\}")
_FILE_EXTENSION = re.compile(
    r"\.(?:md|mdx|mdc|markdown|txt|text|rst|adoc|org|tex|csv|tsv|json|jsonl|json5|jsonc|ya?ml|toml|ini|cfg|conf|xml"
    r"|html?|css|scss|m?js|cjs|jsx|tsx?|pyi?|ipynb|rb|go|rs|java|kt|swift|c|h|cc|cpp|hpp|cs|php|lua|sh|bash|zsh|ps1"
    r"|sql|graphql|proto|vue|svelte|log|diff|patch|lock|prompt|tmpl|j2|pdf|png|jpe?g|gif|svg)",
    re.IGNORECASE,
)
_BEFORE_CJK = re.compile(rf"(.*\.[A-Za-z0-9]{{1,8}})[{_CJK}]")


class ReferenceToken(NamedTuple):
    kind: ReferenceKind
    start: int
    end: int
    line: int
    """1-based, in the scanned text, like the column."""
    column: int
    value: str
    """The path, name or command; for an escape, the text without its backslash."""
    default: str | None = None
    """From `${NAME:-default}`."""
    is_certain: bool = True
    """For a path: False means it is a reference only if the file exists."""


class ReferenceScan(NamedTuple):
    tokens: list[ReferenceToken]
    problems: list[FileProblem]
    """Text that looks like a reference but is none."""


class _RawToken(NamedTuple):
    kind: ReferenceKind
    start: int
    end: int
    value: str
    default: str | None = None
    is_certain: bool = True


def find_references(text: str) -> ReferenceScan:
    if _TOKEN_START.search(text) is None:
        return ReferenceScan([], [])
    blocks = scan_blocks(text)
    raw_tokens: list[_RawToken] = []
    problems: list[tuple[int, str, str]] = []
    for start, end in blocks.prose:
        if _TOKEN_START.search(text, start, end) is not None:
            _InlineScanner(text, start, end, raw_tokens, problems).scan()
    for fence in blocks.commands:
        _add_command_fence(fence, raw_tokens)
    for start in blocks.unclosed:
        problems.append((start, "the command block has no closing fence; kept as text", "add a closing ```"))
    return _add_line_numbers(text, raw_tokens, problems)


def is_glob(path: str) -> bool:
    return any(char in path for char in "*?[") or _BRACES.search(path) is not None


def _add_command_fence(fence: CommandFence, tokens: list[_RawToken]) -> None:
    if fence.text.strip():
        tokens.append(_RawToken("command", fence.start, fence.end, fence.text))


def _add_line_numbers(text: str, raw_tokens: list[_RawToken], problems: list[tuple[int, str, str]]) -> ReferenceScan:
    raw_tokens.sort(key=lambda token: token.start)
    tokens: list[ReferenceToken] = []
    line, line_start, seen = 1, 0, 0
    for token in raw_tokens:
        breaks = text.count("\n", seen, token.start)
        if breaks:
            line += breaks
            line_start = text.rfind("\n", seen, token.start) + 1
        seen = token.start
        column = token.start - line_start + 1
        tokens.append(
            ReferenceToken(
                kind=token.kind,
                start=token.start,
                end=token.end,
                line=line,
                column=column,
                value=token.value,
                default=token.default,
                is_certain=token.is_certain,
            )
        )
    located = [
        FileProblem("warning", "not-a-reference", text.count("\n", 0, start) + 1, problem, fix)
        for start, problem, fix in sorted(problems)
    ]
    return ReferenceScan(tokens, located)


class _InlineScanner:
    """Scans one paragraph from left to right; the inline markup that starts first wins."""

    __slots__ = ("backtick_runs", "end", "problems", "start", "text", "tokens")

    def __init__(
        self, text: str, start: int, end: int, tokens: list[_RawToken], problems: list[tuple[int, str, str]]
    ) -> None:
        self.text = text
        self.start = start
        self.end = end
        self.tokens = tokens
        self.problems = problems
        self.backtick_runs: dict[int, list[int]] | None = None

    def scan(self) -> None:
        at = self.start
        while (trigger := _TRIGGER.search(self.text, at, self.end)) is not None:
            at = trigger.start()
            match self.text[at]:
                case "\\":
                    at = self._read_escape(at)
                case "`":
                    at = self._skip_code_span(at)
                case "!":
                    at = self._read_command(at)
                case "<":
                    at = self._skip_comment_or_tag(at)
                case "{":
                    at = self._read_variable(at)
                case "$":
                    at = self._read_environment(at)
                case _:
                    at = self._read_file(at)

    def _read_escape(self, at: int) -> int:
        escape = _ESCAPE.match(self.text, at, self.end)
        if escape is not None:
            self.tokens.append(_RawToken("escape", at, escape.end(), escape[0][1:]))
            return escape.end()
        return at + 2 if self.text[at + 1 : at + 2] in _PUNCTUATION else at + 1

    def _skip_code_span(self, at: int) -> int:
        """The offset after the closing run of as many backticks, or after this run if there is none."""
        ticks = _TICKS.match(self.text, at, self.end)
        after = ticks.end() if ticks else at + 1
        if self.backtick_runs is None:
            self.backtick_runs = {}
            for run in _TICKS.finditer(self.text, at, self.end):
                self.backtick_runs.setdefault(run.end() - run.start(), []).append(run.start())
        size = after - at
        starts = self.backtick_runs.get(size, [])
        closing = bisect.bisect_left(starts, after)
        return starts[closing] + size if closing < len(starts) else after

    def _read_command(self, at: int) -> int:
        command = _COMMAND.match(self.text, at, self.end)
        if command is None or not command[1].strip():
            return at + 1
        self.tokens.append(_RawToken("command", at, command.end(), command[1]))
        return command.end()

    def _skip_comment_or_tag(self, at: int) -> int:
        if self.text.startswith("<!--", at):
            closed = self.text.find("-->", at + 2, self.end)
            return closed + 3 if closed >= 0 else self.end
        tag = _TAG.match(self.text, at, self.end)
        return tag.end() if tag is not None and "`" in tag[0] else at + 1

    def _read_variable(self, at: int) -> int:
        variable = _VARIABLE.match(self.text, at, self.end)
        if variable is None:
            return at + 1
        self.tokens.append(_RawToken("variable", at, variable.end(), variable[1]))
        return variable.end()

    def _read_environment(self, at: int) -> int:
        variable = _ENVIRONMENT.match(self.text, at, self.end)
        if variable is None:
            return at + 1
        if not _PATH_VARIABLES.match(variable[1]):
            self.tokens.append(_RawToken("environment", at, variable.end(), variable[1], variable[2]))
        return variable.end()

    def _read_file(self, at: int) -> int:
        match = _FILE.match(self.text, at, self.end)
        if match is None:
            return at + 1
        if match[1] is not None:
            self.tokens.append(_RawToken("file", at, match.end(), match[1]))
            return match.end()
        path = _trim_path(match[2], self.text[at - 1 : at] if at else "")
        sure = _looks_like_path(path)
        if sure is None:
            return at + 1
        if self.text.startswith(("{{", "${"), match.end()):
            if sure or "/" in path:
                fix = "write the full path, or read the file with a command"
                self.problems.append((at, f"a path cannot contain variables: `@{path}...` is kept as text", fix))
            return match.end()
        end = at + 1 + len(path)
        self.tokens.append(_RawToken(kind="file", start=at, end=end, value=path, default=None, is_certain=sure))
        return end


def _trim_path(path: str, before: str) -> str:
    """Strips sentence punctuation and surrounding emphasis."""
    path = path.rstrip(".,:;!?")
    if not path.isascii() and (cut := _BEFORE_CJK.match(path)) is not None:
        path = cut[1]
    bare = path.rstrip("*_")
    if bare != path and (before == "*" or _has_known_extension(bare)):
        path = bare.rstrip(".,:;!?")
    return path


def _has_known_extension(path: str) -> bool:
    dot = path.rfind(".")
    return dot >= 0 and _FILE_EXTENSION.fullmatch(path, dot) is not None


def _looks_like_path(path: str) -> bool | None:
    """True: yes. None: no. False: only if it exists."""
    if not path.strip("./~") or len(path) > MAX_PATH:
        return True if path in ("..", "../", "~/", "./") else None
    if path.startswith(("/", ".", "~/")) or "/../" in path:
        return True
    has_place = "/" in path or "." in path
    if is_glob(path):
        return True if has_place or path.startswith("{") else None
    if not has_place or path.startswith("{"):
        return None
    return _has_known_extension(path) and not path.startswith("types/")
