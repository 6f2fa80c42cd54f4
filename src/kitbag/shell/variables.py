"""The values that the variables of a shell text can have, as far as its assignments and loops determine them.

Used by `parts` to describe words such as `"$f"` by templates. A variable has every value that the text gives it
anywhere, and is empty where it may not be set yet. What is set by commands or comes from elsewhere is unknown.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from kitbag.shell.expansions import (
    GLOB_MARKERS,
    TEXT,
    UNQUOTED,
    WORDS,
    GlobPiece,
    LiteralPiece,
    Piece,
    VariablePiece,
    expand_braces,
    has_unknown,
    is_glob,
    parse_pieces,
)
from kitbag.shell.pipelines import substituted_words
from kitbag.shell.scan_model import ScanFrame, ShellScan
from kitbag.store.secret_names import is_secret_name

MAX_ALTERNATIVES: Final = 64
_MAX_DEPTH: Final = 4
_MAX_VALUES: Final = 2_000
"""For one text, so that it takes bounded time."""
_SPLITTING: Final = frozenset(" \t\n[\\")
_READ_BUILTINS: Final = frozenset(("read", "mapfile", "readarray", "getopts", "select"))


class VariableDefinition(msgspec.Struct, frozen=True, kw_only=True):
    words: tuple[str, ...] | None
    """Raw words, each of which is a value; None: unknown."""
    is_assignment: bool
    """Globs in an assignment expand only where the variable is used."""
    start: int
    end: int
    """The span of the text where it is certainly set; empty if there is none."""
    frame: ScanFrame | None


class VariableScope:
    """The variables of one text."""

    __slots__ = ("_cache", "_definitions", "_is_unknown", "remaining", "secrets")

    def __init__(self, text: str, scanned: ShellScan, words: Sequence[Sequence[str | None]]) -> None:
        """`words`: the values of the words of each command."""
        self._definitions: dict[str, list[VariableDefinition]] = {}
        self._cache: dict[str, list[str] | None] = {}
        self._is_unknown = scanned.has_functions
        self.remaining = _MAX_VALUES
        """How many more values and lists of words are computed; then everything is unknown."""
        self.secrets: set[str] = set()
        """Variables of the environment that were used and look like secrets."""
        for loop in scanned.loops:
            raw = None if loop.words is None else tuple(text[start:end] for start, end in loop.words)
            self._define(loop.name, raw, False, loop.body, loop.end, loop.frame)
        for command, values in zip(scanned.commands, words, strict=True):
            for start, end in command.assignments:
                name, equals, value = text[start:end].partition("=")
                is_plain = name.isidentifier() and bool(equals) and not value.startswith("(")
                name = name.rstrip("+").partition("[")[0]
                sure = command.unconditional and not command.words and command.after in ("", ";", "&&")
                self._define(name, (value,) if is_plain else None, True, end, len(text) if sure else end, command.frame)
            if values and values[0] in _READ_BUILTINS:
                for name in values[1:]:
                    if name is not None and name.isidentifier():
                        self._define(name, None, True, command.end, command.end, command.frame)

    def _define(
        self, name: str, words: tuple[str, ...] | None, is_assignment: bool, start: int, end: int, frame: ScanFrame
    ) -> None:
        self._definitions.setdefault(name, []).append(
            VariableDefinition(words=words, is_assignment=is_assignment, start=start, end=end, frame=frame)
        )

    def alternatives(self, raw: str, position: int, frame: ScanFrame | None) -> list[tuple[str, ...]] | None:
        """What a word can expand to: each alternative is a sequence of templates. None if it can't be described."""
        sequence: list[list[str]] = []
        for word in expand_braces(raw):
            templates = self._templates(word, position, frame, 0)
            if templates is None:
                return None
            sequence.append(templates)
        count = 1
        for templates in sequence:
            count *= len(templates)
            if count > MAX_ALTERNATIVES:
                return None
        return list(itertools.product(*sequence))

    def _templates(
        self, raw: str, position: int, frame: ScanFrame | None, depth: int, is_assignment: bool = False
    ) -> list[str] | None:
        pieces = parse_pieces(raw)
        if pieces is None:
            return None
        results = [""]
        for number, piece in enumerate(pieces):
            texts = self._piece_texts(piece, number, pieces, (position, frame, depth), is_assignment)
            results = list(dict.fromkeys(before + text for before in results for text in texts))
            if len(results) > MAX_ALTERNATIVES:
                return None
        return [UNQUOTED + one.replace(UNQUOTED, "") if UNQUOTED in one else one for one in results]

    def _piece_texts(
        self,
        piece: Piece,
        number: int,
        pieces: Sequence[Piece],
        place: tuple[int, ScanFrame | None, int],
        is_assignment: bool,
    ) -> list[str]:
        if isinstance(piece, LiteralPiece):
            return [piece.text]
        if isinstance(piece, GlobPiece):
            return [piece.raw if is_assignment else piece.marker]
        quoted = piece.quoted or is_assignment
        unknown = TEXT if quoted else WORDS
        if not isinstance(piece, VariablePiece):
            self._check_secret(piece.name)
            is_whole = piece.command and not quoted and len(pieces) == 1
            return [*(substituted_words(piece.command) if is_whole else ())] or [unknown]
        is_first = not any(map(_is_visible, pieces[:number]))
        following = next(filter(_is_visible, pieces[number + 1 :]), None)
        ends_path = following is None or (isinstance(following, LiteralPiece) and following.text.startswith("/"))
        values = self._values(piece.name, *place)
        if values is None and piece.name not in self._definitions:
            self._check_secret(piece.name)
            if piece.name in ("HOME", "PWD") and is_first and ends_path and not is_assignment:
                return ["~" if piece.name == "HOME" else "."]
        if values is None:
            return [unknown]
        if not is_first and any(value.startswith("~") for value in values):
            return [unknown]
        return values if quoted else [_split(value) for value in values]

    def _check_secret(self, name: str) -> None:
        if name and name not in self._definitions and is_secret_name(name):
            self.secrets.add(name)

    def _values(self, name: str, position: int, frame: ScanFrame | None, depth: int) -> list[str] | None:
        definitions = self._definitions.get(name)
        if not definitions or self._is_unknown or depth >= _MAX_DEPTH:
            return None
        values = self._cache[name] if name in self._cache else self._assigned_values(definitions, depth)
        if depth == 0:
            self._cache[name] = values
        enclosing = set(_enclosing(frame))
        is_set = any(
            one.start <= position < one.end and one.frame is not None and one.frame.number in enclosing
            for one in definitions
        )
        if is_set or values is None:
            return values
        return None if name.isupper() else ["", *values]  # one in capitals is probably from the environment

    def _assigned_values(self, definitions: Sequence[VariableDefinition], depth: int) -> list[str] | None:
        """Every value that the text assigns."""
        if len(definitions) > MAX_ALTERNATIVES:
            return None
        values: dict[str, None] = {}
        for one in definitions:
            if one.words is None:
                return None
            words = one.words if one.is_assignment else [word for raw in one.words for word in expand_braces(raw)]
            self.remaining -= len(words)
            if self.remaining < 0:
                return None
            for raw in words:
                templates = self._templates(raw, one.start, one.frame, depth + 1, one.is_assignment)
                if templates is None or any(has_unknown(text) for text in templates):
                    return None
                values.update(dict.fromkeys(templates))
        return list(values) if len(values) < MAX_ALTERNATIVES else None


def _enclosing(frame: ScanFrame | None) -> Iterable[int]:
    while frame is not None:
        yield frame.number
        frame = frame.outer


def _is_visible(piece: Piece) -> bool:
    return not isinstance(piece, LiteralPiece) or bool(piece.text)


def _split(value: str) -> str:
    """The value of an unquoted variable, which is split at spaces and expanded again."""
    if any(character in _SPLITTING for character in value):
        return WORDS
    if is_glob(value):
        return UNQUOTED + value
    if not value:
        return WORDS  # no word at all
    return value.translate(_GLOBS)


_GLOBS: Final = str.maketrans({"*": GLOB_MARKERS[0], "?": GLOB_MARKERS[1]})
