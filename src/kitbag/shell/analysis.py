"""Takes shell text apart into the commands that it would run, for permissions to decide about each.

`analyse` is the only door. The scanner finds the commands, tree-sitter's grammar is asked for a second opinion, and
where they differ, or a limit is reached, there is a doubt: then nothing is approved without a question, and the text
is also searched in a crude way, so that a denied command is denied wherever it stands.
"""

import re
import unicodedata
from typing import Final, NamedTuple

from kitbag.shell.command_table import table
from kitbag.shell.directories import directories
from kitbag.shell.parts import Built, Forms, Redirect, Simple, build
from kitbag.shell.scan import scan
from kitbag.shell.scan_model import Command, Scan
from kitbag.shell.words import Word, read_word
from kitbag.shell.wrappers import levels

__all__ = ["MOST_CHARACTERS", "Analysis", "Redirect", "Simple", "analyse"]

MOST_CHARACTERS: Final = 10_000
_MOST_SEARCHED: Final = 140_000
"""More than a shell can be given as one argument."""
_MOST_TEXTS: Final = 60
_MOST_INSIDE: Final = 40_000
"""Characters of shell text that is found inside the text."""
_MOST_PARTS: Final = 500
_MOST_WEIGHT: Final = 400
"""Words and the like: beyond it the grammar could take seconds."""
_MOST_NESTED: Final = 5
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_SEPARATORS = re.compile(
    r"([<>]+&?)|[;&|()\n`{}]+|\$\(|(?<![\w./-])(?:if|then|elif|else|while|until|do|time|coproc|!)(?=\s)"
)
_WIDE = re.compile(r"[^\x00-\x7f]")
_QUOTES = re.compile(r"""['"\\]""")
_ANSI = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL)
_SKIPPED = re.compile(r"\w+(?:\[[^\]]*\])?\+?=|-")
_STATE = frozenset(
    {"read", "declare", "typeset", "local", "export", "readonly", "mapfile", "readarray", "printf", "let"}
)


class Analysis(NamedTuple):
    parts: tuple[Simple, ...]
    """Every command that was found."""
    doubts: tuple[str, ...]
    """Why the text as a whole is never approved without a question."""


class _Text(NamedTuple):
    text: str
    directory: str | None
    depth: int
    host: int
    """The part whose forms it adds to; -1: its commands are parts themselves."""


def analyse(text: str) -> Analysis:
    """Never raises, and takes less than 200 ms for 10,000 characters, whatever they are."""
    return _Analyser(text).run()


class _Analyser:
    __slots__ = ("doubts", "forms", "left", "parts", "seen", "text", "waiting")

    def __init__(self, text: str) -> None:
        self.text = text[:_MOST_SEARCHED]
        self.doubts: dict[str, None] = dict.fromkeys(_text_doubts(text))
        self.parts: list[Simple] = []
        self.forms: dict[int, Forms] = {}
        self.seen: set[tuple[str, str | None, int]] = set()
        self.left = _MOST_INSIDE
        self.waiting: dict[_Text, None] = {_Text(self.text, "", 0, -1): None}

    def run(self) -> Analysis:
        unsure = bool(self.doubts)
        read = 0
        while self.waiting and read < _MOST_TEXTS:
            item = next(iter(self.waiting))
            del self.waiting[item]
            unsure = self._read(item) or unsure
            read += 1
        if self.waiting or self.left < 0 or len(self.parts) >= _MOST_PARTS:
            self.doubts["there is too much in it"] = None
            unsure = True
        parts = [
            part._replace(forms=(*part.forms, *self.forms[index].texts())) if index in self.forms else part
            for index, part in enumerate(self.parts)
        ]
        if unsure:
            parts.append(_crude_part(self.text))
        return Analysis(tuple(parts), tuple(self.doubts))

    def _read(self, item: _Text) -> bool:
        """Whether something in it may have been missed."""
        found = scan(item.text)
        for start, end in found.bodies:
            _merge(found, scan(item.text, start, end, heredoc=True))
        if item.host < 0 and not found.unsure and len(item.text) <= MOST_CHARACTERS:
            self._compare(item.text, found)
        words = [[read_word(item.text[start:end]) for start, end in command.words] for command in found.commands]
        places = directories(found, words, item.directory)
        built = [
            one
            for command, command_words, place in zip(found.commands, words, places, strict=True)
            if (one := self._add(item, command, command_words, place)) is not None
        ]
        if item.host < 0:
            self._doubt_whole(found, built)
        moves = any(place != item.directory for place in places)
        for nested in found.nested:
            self._wait(item, nested.text, None if moves else item.directory, item.host)
        if any(one.runs_unknown for one in built):
            self._look_into_words(item, words, found)
        if item.host >= 0 and found.unsure:
            self._add_forms(item.host, item.text)
        return item.host < 0 and bool(found.unsure)

    def _add_forms(self, host: int, text: str) -> None:
        forms = self.forms.setdefault(host, Forms())
        for form in _crude_forms(text):
            forms.add(form)

    def _add(self, item: _Text, command: Command, words: list[Word], place: str | None) -> Built | None:
        key = (item.text[command.start : command.end], place, item.host)
        if key in self.seen or len(self.parts) >= _MOST_PARTS:
            return None
        self.seen.add(key)
        built = build(item.text, command, words, place)
        host = item.host
        if host < 0:
            host = len(self.parts)
            self.parts.append(built.part)
        else:
            forms = self.forms.setdefault(host, Forms())
            for form in built.part.forms:
                forms.add(form)
        for text in built.texts:
            self._wait(item, text, place, item.host)
        for hint in built.hints:
            self._wait(item, hint, place, host)
        return built

    def _wait(self, item: _Text, text: str, directory: str | None, host: int) -> None:
        if not text.strip():
            return
        if item.depth == _MOST_NESTED:
            self.doubts["there is shell text inside shell text inside too much other"] = None
            self._add_forms(max(host, 0), text)
            return
        self.left -= len(text)
        if self.left >= 0:
            self.waiting[_Text(text, directory, item.depth + 1, host)] = None

    def _look_into_words(self, item: _Text, words: list[list[Word]], found: Scan) -> None:
        """Something here runs what it gets: `echo 'curl x' | sh` and `x=curl; $x` hold that as a word."""
        host = item.host if item.host >= 0 else len(self.parts) - 1
        texts = [word.value or word.bare for command_words in words for word in command_words[1:]]
        texts += [word for nested in found.nested for word in nested.text.split()]
        for command in found.commands:
            texts += [item.text[start:end].partition("=")[2] for start, end in command.assignments]
            texts += [item.text[start:end] for _, (start, end) in command.redirects]
            texts += command.input
        self._add_forms(max(host, 0), "\n".join(texts))

    def _doubt_whole(self, found: Scan, built: list[Built]) -> None:
        self.doubts.update(dict.fromkeys((*found.unsure, *found.doubts)))
        assigned = found.assigned.union(name for one in built for name, _ in one.part.assignments)
        for name in sorted(found.assigned):  # by a loop, which sets them as an assignment does
            if table().dangerous_names.fullmatch(name):
                self.doubts[f"it sets {name}, which other programs obey"] = None
        changes = any(one.part.words and one.part.words[0] in _STATE for one in built)
        if found.evaluated & assigned or (found.evaluated and changes):
            self.doubts["arithmetic on a variable that is set here"] = None

    def _compare(self, text: str, found: Scan) -> None:
        """Asks the grammar, and doubts what it sees in another way."""
        from kitbag.shell.tree_sitter_check import second_opinion

        weight = 3 * len(found.frames) + 20 * len(found.backticks)
        for command in found.commands:
            weight += len(command.words) + len(command.assignments) + 2 * len(command.redirects)
        if weight > _MOST_WEIGHT:
            found.unsure.append("it has too many words")
            return
        opinion = second_opinion(text)
        ours = {command.words[0][0] for command in found.commands if command.words}
        # Inside backticks there is text of its own, which is compared on its own.
        inside = {at for begins, ends in found.backticks for at in range(begins, ends)}
        theirs = opinion.starts - opinion.optional - inside
        if opinion.broken:
            found.unsure.append("it can't be parsed")
        elif not (theirs <= ours <= opinion.starts | opinion.optional):
            found.unsure.append("it can be read in more than one way")


def _merge(found: Scan, body: Scan) -> None:
    """What the body of a here document holds belongs to the text."""
    found.commands += body.commands
    found.commands.sort(key=lambda command: command.start)
    for frame in body.frames:
        frame.number += len(found.frames)
    found.frames += body.frames
    found.nested += body.nested
    found.backticks += body.backticks
    found.unsure += body.unsure
    found.doubts += body.doubts
    found.evaluated |= body.evaluated
    found.has_functions = found.has_functions or body.has_functions


def _text_doubts(text: str) -> list[str]:
    doubts: list[str] = []
    if len(text) > MOST_CHARACTERS:
        doubts.append(f"it is longer than {MOST_CHARACTERS:,} characters")
    if len(text) > _MOST_SEARCHED:
        doubts.append("it is longer than what was searched")
    if _CONTROL.search(text):
        doubts.append("it has control characters or broken ones")
    if any(
        character.isspace() or unicodedata.category(character) in ("Cf", "Co", "Cn")
        for character in _WIDE.findall(text)
    ):
        doubts.append("it has spaces or other characters that can't be told from what they look like")
    return doubts


def _crude_part(text: str) -> Simple:
    """Whatever may be a command in text that can't be read: for deny and ask rules only."""
    return Simple(
        raw=text,
        words=(None,),
        forms=_crude_forms(text),
        allow_form=None,
        assignments=(),
        redirects=(),
        kind="other",
        reads=(),
        writes=(),
        network=False,
        directory=None,
        doubts=("it can't be read with certainty",),
    )


def _crude_forms(text: str) -> tuple[str, ...]:
    """Every place where a command may begin, with quotes taken for nothing and for separators."""
    forms = Forms()
    joined = _ANSI.sub(lambda match: read_word(match.group()).bare, text.replace("\\\n", ""))
    seen: set[str] = set()
    for variant in (_QUOTES.sub("", joined), _QUOTES.sub("\n", joined)):
        pieces = _SEPARATORS.split(variant)
        for at in range(0, len(pieces), 2):
            after_redirection = bool(at and pieces[at - 1])
            if pieces[at] not in seen or after_redirection:
                seen.add(pieces[at])
                words = pieces[at].split()
                _crude_words(forms, words)
                if after_redirection:  # its target stands first
                    _crude_words(forms, words[1:])
                if "]" in pieces[at]:  # a[1 + 2]=3 COMMAND
                    closing = next(index for index, word in enumerate(words) if "]" in word)
                    _crude_words(forms, words[closing + 1 :])
    return forms.texts()


def _crude_words(forms: Forms, words: list[str]) -> None:
    while words and _SKIPPED.match(words[0]):  # assignments, and `time -p`
        words = words[1:]
    if not words:
        return
    known = table()
    name = words[0].rsplit("/", 1)[-1]
    all_words = [Word(word, word, word) for word in words]
    if name in known.runs_others:
        found = levels(tuple(words))
        forms.add_levels(all_words, (*found.spans, *found.places))
    else:
        forms.add_words(all_words)
