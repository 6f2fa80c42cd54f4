"""Parses the fixed forms of requests that the offline model can carry out. Used by offline.model.

A request must match a form from its first word to its last: an extra word could change its meaning, so nothing is
guessed. Names must be quoted or look like code (`snake_case`, `camelCase`).
"""

#     Replace `OLD` by `NEW` [in PATH [and PATH]] [and run the tests]    also: change; with, to; rename, for one name
#     Collect every TODO and FIXME [in PATH] into FILE.md              also: list, find, write, save; "a text", `a_name`
#     Write what you find about SOME WORDS to FILE.md                  also: save, put, collect
#     Run `COMMAND`                                                    the exact text between the backticks
#     Run the tests                                                    the command documented in a skill or README.md

import re
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

REQUEST_FORMS: Final = (
    "Replace `OLD` with `NEW` in PATH",
    "Collect every TODO and FIXME into FILE.md",
    "Write what you find about WORDS to FILE.md",
    "Run `COMMAND`",
    "Run the tests",
)


class ReplaceRequest(msgspec.Struct, frozen=True, kw_only=True):
    old: str
    new: str
    paths: tuple[str, ...]
    """Empty for the whole workspace."""
    run_tests: bool = False
    """Run the tests afterwards."""


class CollectRequest(msgspec.Struct, frozen=True, kw_only=True):
    words: tuple[str, ...]
    exact: bool
    """Match these exact words; else lines with any of them, ignoring case."""
    file: str
    path: str = ""


class RunCommandRequest(msgspec.Struct, frozen=True, kw_only=True):
    command: str


class RunTestsRequest(msgspec.Struct, frozen=True, kw_only=True):
    pass


class UnclearRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Starts like a form but does not match it completely."""

    form: str


OfflineRequest = ReplaceRequest | CollectRequest | RunCommandRequest | RunTestsRequest


class _Token(NamedTuple):
    text: str
    quote: str = ""

    def is_word(self, words: frozenset[str]) -> bool:
        return not self.quote and self.text.lower() in words


_QUOTED = re.compile(r"`([^`\n]+)`|\"([^\"\n]*)\"|(?<!\w)'([^'\n]*)'(?!\w)|“([^”\n]*)”|‘([^’\n]*)’|«([^»\n]*)»")
_MAX_REQUEST, _MAX_TOKENS, _MAX_NAME = 2_000, 200, 300
_CODE_LIKE = re.compile(r"(?=.*(?:_|\d|[a-z][A-Z]|\w\.\w|::))[A-Za-z_][\w.:]*")
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_MARK = re.compile(r"[A-Z][A-Z0-9_]+")
_FILE = re.compile(r"[\w./~-][\w./ ~-]*\.(?:md|markdown|txt)", re.IGNORECASE)
_PATH = re.compile(r"[\w./~@+-]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_POLITE = _words("please now kindly can could would will you")
_REPLACE, _RENAME, _BY = _words("replace rename change"), _words("rename"), _words("by with to into")
_ARTICLES = _words("the a an all every each any of")
_THINGS = _words(
    "function method class variable constant name names word text string identifier symbol occurrence occurrences use"
    " uses mention mentions line lines place places with containing comment comments note notes marker markers"
)
_EVERYTHING = _words("file files project workspace repository code codebase")
_FOLDER = _words("file files folder directory module")
_AND, _IN, _EVERYWHERE = _words("and then , ; . afterwards"), _words("in below under inside"), _words("everywhere")
_COLLECT = _words("collect gather list find write save put note")
_FOUND = _words("what whatever everything all you can could find found know there is written")
_ABOUT, _TO = _words("about"), _words("to into")
_RUN, _TESTS = _words("run"), _words("tests test unittests unit suite")
_END = _words(". ! ? please thanks , ;")
_JOINED, _NEXT_PLACE, _AND_IN = _words("and or ,"), _words("and ,"), _words("and in")
_WHOLE, _WHICH_TESTS, _AGAIN = (
    _words("the this whole all every each in"),
    _words("the all my its"),
    _words("again"),
)


def parse_request(text: str) -> OfflineRequest | UnclearRequest | None:
    """None if the text does not start like any form."""
    if len(text) > _MAX_REQUEST:
        return None
    tokens = _tokenize(text.strip())
    if len(tokens) > _MAX_TOKENS:
        return None
    return _RequestParser(tokens).parse()


def _tokenize(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    for quoted in _QUOTED.finditer(text):
        tokens += _tokenize_unquoted(text[at : quoted.start()])
        content = next(group for group in quoted.groups() if group is not None)
        tokens.append(_Token(content, text[quoted.start()]))
        at = quoted.end()
    return tokens + _tokenize_unquoted(text[at:])


def _tokenize_unquoted(text: str) -> list[_Token]:
    """Words, with trailing punctuation as separate tokens."""
    tokens: list[_Token] = []
    for word in text.split():
        bare = word.rstrip(",;!?") if word.strip(".") else word
        bare = bare.removesuffix(".") if bare.strip(".") else bare
        tokens += [_Token(part) for part in (bare, *word[len(bare) :]) if part]
    return tokens


class _RequestParser:
    """A recursive-descent parser; tries each form from the first word."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def parse(self) -> OfflineRequest | UnclearRequest | None:
        self._skip(_POLITE)
        first = self._at
        forms: tuple[tuple[Callable[[], OfflineRequest | None], frozenset[str], str], ...] = (
            (self._parse_replace, _REPLACE, REQUEST_FORMS[0]),
            (self._parse_collect, _COLLECT, REQUEST_FORMS[1]),
            (self._parse_notes, _COLLECT, REQUEST_FORMS[2]),
            (self._parse_run, _RUN, REQUEST_FORMS[3]),
        )
        unclear_form = ""
        for form, verbs, form_text in forms:
            self._at = first
            if not self._take(verbs):
                continue
            request = form()
            if request is not None and self._is_at_end():
                return request
            unclear_form = unclear_form or (form_text if self._is_intended(verbs) else "")
        return UnclearRequest(form=unclear_form) if unclear_form else None

    def _is_intended(self, verbs: frozenset[str]) -> bool:
        """Whether the user probably meant this form; not every request starting with `find` should write a file."""
        if verbs is _REPLACE:
            return any(token.is_word(_BY) for token in self._tokens)
        if verbs is _COLLECT:
            pairs = zip(self._tokens, self._tokens[1:], strict=False)
            return any(first.is_word(_TO) and _FILE.fullmatch(second.text) for first, second in pairs)
        return any(token.quote or token.is_word(_TESTS) for token in self._tokens)

    # The forms, after their verb

    def _parse_replace(self) -> ReplaceRequest | None:
        is_rename = self._tokens[self._at - 1].is_word(_RENAME)
        self._skip(_ARTICLES | _THINGS)
        old = self._parse_name()
        if not old or (is_rename and not _IDENTIFIER.fullmatch(old)) or not self._take(_BY):
            return None  # renaming a file is not a text replacement
        self._skip(_ARTICLES | _THINGS)
        new = self._parse_name(may_be_empty=True)
        paths = self._parse_paths()
        if new is None or paths is None:
            return None
        return ReplaceRequest(old=old, new=new, paths=paths, run_tests=self._parse_and_tests())

    def _parse_collect(self) -> CollectRequest | None:
        self._skip(_ARTICLES | _THINGS)
        words: list[str] = []
        while (word := self._parse_name(_MARK)) and len(words) < 20:
            words.append(word)
            self._skip(_JOINED)
            self._skip(_ARTICLES | _THINGS)
        self._skip(_THINGS)
        paths = self._parse_paths()
        if not words or paths is None or len(paths) > 1:
            return None
        file = self._parse_file()
        path = paths[0] if paths else ""
        return CollectRequest(words=tuple(words), exact=True, file=file, path=path) if file else None

    def _parse_notes(self) -> CollectRequest | None:
        self._skip(_FOUND)
        if not self._take(_ABOUT):
            return None
        words: list[str] = []
        while (token := self._next()) is not None and len(words) < 20:
            if token.is_word(_TO):
                self._at -= 1
                file = self._parse_file()
                return CollectRequest(words=tuple(words), exact=False, file=file) if words and file else None
            words.append(token.text)
        return None

    def _parse_run(self) -> RunCommandRequest | RunTestsRequest | None:
        token = self._next()
        if token is None:
            return None
        if token.quote == "`":
            return RunCommandRequest(command=token.text.strip()) if token.text.strip() else None
        self._at -= 1
        return RunTestsRequest() if self._parse_tests() else None

    # Parts of the forms

    def _parse_name(self, shape: re.Pattern[str] | None = None, may_be_empty: bool = False) -> str | None:
        token = self._next()
        if token is None:
            return None
        fits = token.quote or _CODE_LIKE.fullmatch(token.text) or (shape is not None and shape.fullmatch(token.text))
        if not fits or len(token.text) > _MAX_NAME or not (token.text.strip() or may_be_empty):
            self._at -= 1
            return None
        return token.text

    def _parse_paths(self) -> tuple[str, ...] | None:
        """Empty for the whole workspace; None if what follows is not a path."""
        if self._take(_EVERYWHERE) or not self._take(_IN):
            return ()
        paths: list[str] = []
        while True:
            self._skip(_WHOLE)
            if self._takes_everything():
                return () if not paths else None
            self._skip(_FOLDER)
            token = self._next()
            if token is None or not (token.quote or _PATH.fullmatch(token.text)) or not token.text.strip():
                return None
            paths.append(token.text)
            self._skip(_FOLDER)
            if not self._has_next_path():
                return tuple(paths)

    def _takes_everything(self) -> bool:
        """Matches `all files`, but not `the file app/orders.py`."""
        at = self._at
        if self._take(_EVERYTHING):
            following = self._tokens[self._at : self._at + 1]
            if not following or following[0].is_word(_AND | _END):
                return True
        self._at = at
        return False

    def _has_next_path(self) -> bool:
        """Whether another path follows, rather than "and run the tests"."""
        at = self._at
        if self._take(_NEXT_PLACE):
            self._skip(_AND_IN)
            following = self._next()
            if following is not None and not following.is_word(_RUN | _AND | _END):
                self._at -= 1
                return True
        self._at = at
        return False

    def _parse_file(self) -> str:
        if not self._take(_TO):
            return ""
        self._skip(_ARTICLES | _FOLDER)
        token = self._next()
        return token.text if token is not None and _FILE.fullmatch(token.text) else ""

    def _parse_and_tests(self) -> bool:
        at = self._at
        self._skip(_AND)
        if self._take(_RUN) and self._parse_tests():
            return True
        self._at = at
        return False

    def _parse_tests(self) -> bool:
        self._skip(_WHICH_TESTS)
        if not self._take(_TESTS):
            return False
        self._skip(_TESTS | _AGAIN)
        return True

    # Tokens

    def _next(self) -> _Token | None:
        if self._at >= len(self._tokens):
            return None
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, words: frozenset[str]) -> bool:
        token = self._next()
        if token is not None and token.is_word(words):
            return True
        self._at -= token is not None
        return False

    def _skip(self, words: frozenset[str]) -> None:
        while self._take(words):
            pass

    def _is_at_end(self) -> bool:
        self._skip(_END)
        return self._at == len(self._tokens)
