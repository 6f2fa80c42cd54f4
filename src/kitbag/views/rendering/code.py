"""Syntax highlighting by pygments, in a terminal with its own sixteen colors.

Used by markdown and by the web pages. Large code, very long lines and slow input stay plain: the text comes from
models and files, and a lexer is only as fast as its regular expressions.
"""

import time
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from kitbag.views.rendering.styled_text import StyledRun

if TYPE_CHECKING:
    from pygments.lexer import Lexer
    from pygments.token import _TokenType as TokenType  # pyright: ignore[reportPrivateUsage]

PLAIN: Final = "36"
"""Code in an unknown language."""
_MAX_CHARS: Final = 20_000
_MAX_LINE_CHARS: Final = 1_000
_MAX_SECONDS: Final = 0.1
_STYLES: Final = (
    ("Token.Comment", "2"),
    ("Token.Keyword.Constant", "36"),
    ("Token.Keyword", "35"),
    ("Token.Operator.Word", "35"),
    ("Token.Literal.String", "32"),
    ("Token.Literal.Number", "36"),
    ("Token.Name.Function", "34"),
    ("Token.Name.Class", "34"),
    ("Token.Name.Tag", "34"),
    ("Token.Name.Attribute", "36"),
    ("Token.Name.Builtin", "36"),
    ("Token.Name.Decorator", "36"),
    ("Token.Name.Variable", "36"),
    ("Token.Generic.Deleted", "31"),
    ("Token.Generic.Inserted", "32"),
    ("Token.Generic.Heading", "1"),
    ("Token.Generic.Subheading", "36"),
    ("Token.Generic.Strong", "1"),
    ("Token.Generic.Emph", "3"),
)


def code_rows(code: str, language: str) -> list[list[StyledRun]]:
    """One row per line; contains all of the code, whatever the lexer does. Without a language: no colors."""
    tokens = code_tokens(code, language)
    if tokens is None:
        return [[StyledRun(line, PLAIN)] for line in code.split("\n")]
    rows: list[list[StyledRun]] = [[]]
    for text, kind in tokens:
        style = _style(kind)
        first, *others = text.split("\n")
        rows[-1].append(StyledRun(first, style))
        rows += ([StyledRun(line, style)] for line in others)
    return rows


class CodeToken(NamedTuple):
    text: str
    kind: str = ""
    """`Token.Keyword.Constant`; empty: plain text."""


def code_tokens(code: str, language: str) -> list[CodeToken] | None:
    """All of the code, whatever the lexer does. None: an unknown language, or code that a lexer would be slow on."""
    is_small = len(code) <= _MAX_CHARS and max(map(len, code.split("\n"))) <= _MAX_LINE_CHARS
    lexer = _find_lexer(language) if is_small else None
    return _tokenize(lexer, code) if lexer is not None else None


def _tokenize(lexer: "Lexer", code: str) -> list[CodeToken] | None:
    tokens: list[CodeToken] = []
    end_position, deadline = 0, time.monotonic() + _MAX_SECONDS
    try:
        for position, kind, text in lexer.get_tokens_unprocessed(code):
            if position != end_position or time.monotonic() > deadline:
                break
            tokens.append(CodeToken(text, _kind_name(kind)))
            end_position += len(text)
    except Exception:  # noqa: BLE001 - a lexer failed: the rest stays plain
        end_position = sum(len(token.text) for token in tokens)
    if code[:end_position] != "".join(token.text for token in tokens):
        return None
    return [*tokens, CodeToken(code[end_position:])]


@cache
def _kind_name(kind: "TokenType") -> str:
    return str(kind)


@cache
def _style(kind: str) -> str:
    return next((style for prefix, style in _STYLES if kind.startswith(prefix)), "")


@cache
def _lexer_names() -> dict[str, str]:
    """Alias -> lexer name. Built-in lexers of pygments only, no plugins."""
    from pygments.lexers import get_all_lexers

    return {alias.lower(): name for name, aliases, _, _ in get_all_lexers(plugins=False) for alias in aliases}


def _find_lexer(language: str) -> "Lexer | None":
    if not language:
        return None
    name = _lexer_names().get(language.lower(), "")
    return _lexer_named(name) if name else None


@cache
def _lexer_named(name: str) -> "Lexer | None":
    from pygments.lexers import find_lexer_class

    lexer_class = find_lexer_class(name)
    return lexer_class(stripnl=False, ensurenl=False) if lexer_class is not None else None
