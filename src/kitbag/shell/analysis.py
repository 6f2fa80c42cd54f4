"""Splits shell text into the commands it would run, so that permissions can decide about each.

`analyze` is the only entry point. The scanner finds the commands and tree-sitter's grammar checks them. If the two
disagree or a limit is reached, the result has uncertainties: the text is never approved automatically, and a fallback
search finds denied commands anywhere in it.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from kitbag.shell.command_table import command_table
from kitbag.shell.directories import Directories, track_directories
from kitbag.shell.interpreters import commands_in_code
from kitbag.shell.parts import BuiltCommand, CommandForms, ShellRedirect, SimpleCommand, build_command
from kitbag.shell.scan import scan
from kitbag.shell.scan_model import ScannedCommand, ShellScan
from kitbag.shell.variables import VariableScope
from kitbag.shell.words import ShellWord, parse_word
from kitbag.shell.wrappers import unwrap

__all__ = ["MAX_CHARACTERS", "ShellAnalysis", "ShellRedirect", "SimpleCommand", "analyze"]

MAX_CHARACTERS: Final = 10_000
_MAX_SEARCHED: Final = 140_000
"""More than fits into one argument of a shell."""
_MAX_TEXTS: Final = 60
_MAX_NESTED_CHARACTERS: Final = 40_000
"""Characters of shell text nested inside the text."""
_MAX_PARTS: Final = 500
_MAX_WEIGHT: Final = 400
"""Roughly the number of words; beyond it the grammar could take seconds."""
_MAX_DEPTH: Final = 5
_MAX_SOURCES: Final = 8
"""Commands before one in its pipeline that are kept."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_SEPARATORS = re.compile(
    r"([<>]+&?)|[;&|()\n`{}]+|\$\(|(?<![\w./-])(?:if|then|elif|else|while|until|do|time|coproc|!)(?=\s)"
)
_NON_ASCII = re.compile(r"[^\x00-\x7f]")
_QUOTES = re.compile(r"""['"\\]""")
_ANSI = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL)
_SKIPPED = re.compile(r"\w+(?:\[[^\]]*\])?\+?=|-")
_STATE_COMMANDS = frozenset(
    {"read", "declare", "typeset", "local", "export", "readonly", "mapfile", "readarray", "printf", "let"}
)


class ShellAnalysis(NamedTuple):
    parts: tuple[SimpleCommand, ...]
    """Every command that was found."""
    uncertainties: tuple[str, ...]
    """Why the text as a whole always needs approval."""


class _PendingText(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    directories: Directories
    depth: int
    host: int
    """Index of the part that its forms are added to; -1: its commands become parts themselves."""


@lru_cache(maxsize=32)
def analyze(text: str) -> ShellAnalysis:
    """Never raises. Takes less than 200 ms for any 10,000 characters.

    Cached, so that a command is parsed once though it is decided twice, suggested a rule for, and run.
    """
    return _Analyzer(text).run()


class _Analyzer:
    __slots__ = ("forms", "parts", "possible_forms", "queue", "remaining_characters", "seen", "text", "uncertainties")

    def __init__(self, text: str) -> None:
        self.text = text[:_MAX_SEARCHED]
        self.uncertainties: dict[str, None] = dict.fromkeys(_text_uncertainties(text))
        self.parts: list[SimpleCommand] = []
        self.forms: dict[int, CommandForms] = {}
        """Further forms of a part, by its index."""
        self.possible_forms: dict[int, CommandForms] = {}
        self.seen: set[tuple[object, ...]] = set()
        self.remaining_characters = _MAX_NESTED_CHARACTERS
        self.queue: dict[_PendingText, None] = {_PendingText(text=self.text, directories=("",), depth=0, host=-1): None}

    def run(self) -> ShellAnalysis:
        is_ambiguous = bool(self.uncertainties)
        read = 0
        while self.queue and read < _MAX_TEXTS:
            item = next(iter(self.queue))
            del self.queue[item]
            is_ambiguous = self._read_text(item) or is_ambiguous
            read += 1
        if self.queue or self.remaining_characters < 0 or len(self.parts) >= _MAX_PARTS:
            self.uncertainties["too complex to analyze"] = None
            is_ambiguous = True
        parts = [self._with_further_forms(index, part) for index, part in enumerate(self.parts)]
        if is_ambiguous:
            parts.append(_fallback_part(self.text))
        return ShellAnalysis(tuple(parts), tuple(self.uncertainties))

    def _with_further_forms(self, index: int, part: SimpleCommand) -> SimpleCommand:
        forms, possible = self.forms.get(index), self.possible_forms.get(index)
        if forms is None and possible is None:
            return part
        return msgspec.structs.replace(
            part,
            forms=(*part.forms, *(forms.texts() if forms else ())),
            possible_forms=(*part.possible_forms, *(possible.texts() if possible else ())),
        )

    def _read_text(self, item: _PendingText) -> bool:
        """Whether a command in it may have been missed."""
        scanned = scan(item.text)
        for start, end in scanned.bodies:
            _merge(scanned, scan(item.text, start, end, heredoc=True))
        if item.host < 0 and not scanned.ambiguities and len(item.text) <= MAX_CHARACTERS:
            self._compare_with_grammar(item.text, scanned)
        words = [[parse_word(item.text[start:end]) for start, end in command.words] for command in scanned.commands]
        values = [[word.value for word in command_words] for command_words in words]
        scope = VariableScope(item.text, scanned, values)
        sources = _pipeline_sources(scanned, values)
        directories = track_directories(scanned, words, item.directories, scope.alternatives)
        commands = [
            one
            for command, command_words, places, before in zip(
                scanned.commands, words, directories, sources, strict=True
            )
            if (one := self._add(item, command, command_words, places, scope, before)) is not None
        ]
        if item.host < 0:
            self._add_uncertainties(scanned, commands)
        changes_directory = any(places != item.directories for places in directories)
        for nested in scanned.nested:
            self._enqueue(item, nested.text, () if changes_directory else item.directories, item.host)
        if any(one.runs_unknown for one in commands):
            self._add_words_as_forms(item, words, scanned)
        if item.host >= 0 and scanned.ambiguities:
            self._add_forms(item.host, item.text)
        return item.host < 0 and bool(scanned.ambiguities)

    def _add_forms(self, host: int, text: str) -> None:
        forms = self.forms.setdefault(host, CommandForms())
        for form in _fallback_forms(text):
            forms.add(form)

    def _add(
        self,
        item: _PendingText,
        command: ScannedCommand,
        words: list[ShellWord],
        directories: Directories,
        scope: VariableScope,
        sources: Sequence[Sequence[str | None]],
    ) -> BuiltCommand | None:
        raw = item.text[command.start : command.end]
        is_constant = "$" not in raw and "`" not in raw and "xargs" not in raw
        if len(self.parts) >= _MAX_PARTS or (is_constant and (raw, directories, item.host) in self.seen):
            return None
        self.seen.add((raw, directories, item.host))
        built = build_command(item.text, command, words, directories, scope, sources)
        # The same text can mean something else where a variable has another value.
        part = built.part
        key = (raw, directories, item.host, part.kind, part.reason, part.reads, part.writes, part.redirects)
        if key in self.seen:
            return None
        self.seen.add(key)
        host = item.host
        if host < 0:
            host = len(self.parts)
            self.parts.append(built.part)
        else:
            forms = self.forms.setdefault(host, CommandForms())
            for form in built.part.forms:
                forms.add(form)
        possible = [*(built.part.possible_forms if item.host >= 0 else ())]
        possible += [form for code in built.code for form in commands_in_code(code)]
        for form in possible:
            self.possible_forms.setdefault(host, CommandForms()).add(form)
        for text in built.texts:
            self._enqueue(item, text, directories, item.host)
        for hint in built.hints:
            self._enqueue(item, hint, directories, host)
        return built

    def _enqueue(self, item: _PendingText, text: str, directories: Directories, host: int) -> None:
        if not text.strip():
            return
        if item.depth == _MAX_DEPTH:
            self.uncertainties["shell code nested too deeply"] = None
            self._add_forms(max(host, 0), text)
            return
        self.remaining_characters -= len(text)
        if self.remaining_characters >= 0:
            self.queue[_PendingText(text=text, directories=directories, depth=item.depth + 1, host=host)] = None

    def _add_words_as_forms(self, item: _PendingText, words: list[list[ShellWord]], scanned: ShellScan) -> None:
        """A command here runs its input: in `echo 'curl x' | sh` and `x=curl; $x` the real command is a word."""
        host = item.host if item.host >= 0 else len(self.parts) - 1
        texts = [word.value or word.bare for command_words in words for word in command_words[1:]]
        texts += [word for nested in scanned.nested for word in nested.text.split()]
        for command in scanned.commands:
            texts += [item.text[start:end].partition("=")[2] for start, end in command.assignments]
            texts += [item.text[start:end] for _, (start, end) in command.redirects]
            texts += command.input
        self._add_forms(max(host, 0), "\n".join(texts))

    def _add_uncertainties(self, scanned: ShellScan, commands: list[BuiltCommand]) -> None:
        self.uncertainties.update(dict.fromkeys((*scanned.ambiguities, *scanned.uncertainties)))
        assigned = scanned.assigned.union(name for one in commands for name, _ in one.part.assignments)
        for name in sorted(scanned.assigned):  # set by a loop, like an assignment
            if command_table().dangerous_names.fullmatch(name):
                self.uncertainties[f"sets {name}, which affects other programs"] = None
        changes = any(one.part.words and one.part.words[0] in _STATE_COMMANDS for one in commands)
        if scanned.evaluated & assigned or (scanned.evaluated and changes):
            self.uncertainties["arithmetic on a variable that the command sets"] = None

    def _compare_with_grammar(self, text: str, scanned: ShellScan) -> None:
        """Parse with the grammar, and add an ambiguity where it disagrees with the scanner."""
        from kitbag.shell.tree_sitter_check import read_with_grammar

        weight = 3 * len(scanned.frames) + 20 * len(scanned.backticks)
        for command in scanned.commands:
            weight += len(command.words) + len(command.assignments) + 2 * len(command.redirects)
        if weight > _MAX_WEIGHT:
            scanned.ambiguities.append("too many words to analyze")
            return
        reading = read_with_grammar(text)
        scanned_starts = {command.words[0][0] for command in scanned.commands if command.words}
        # Text inside backticks is compared on its own.
        inside = {at for begins, ends in scanned.backticks for at in range(begins, ends)}
        grammar_starts = reading.starts - reading.optional - inside
        if reading.has_errors:
            scanned.ambiguities.append("cannot be parsed")
        elif not (grammar_starts <= scanned_starts <= reading.starts | reading.optional):
            scanned.ambiguities.append("ambiguous shell syntax")


def _pipeline_sources(
    scanned: ShellScan, values: Sequence[Sequence[str | None]]
) -> list[tuple[Sequence[str | None], ...]]:
    """For each command, the commands before it in its pipeline."""
    result: list[tuple[Sequence[str | None], ...]] = []
    latest: dict[int, int] = {}
    for index, command in enumerate(scanned.commands):
        before = latest.get(command.frame.number)
        pipes = command.connector == "|" and before is not None and not command.frame.compound
        result.append((*result[before], values[before])[-_MAX_SOURCES:] if pipes and before is not None else ())
        latest[command.frame.number] = index
    return result


def _merge(scanned: ShellScan, body: ShellScan) -> None:
    """Add the commands in the body of a here document."""
    scanned.commands += body.commands
    scanned.commands.sort(key=lambda command: command.start)
    for frame in body.frames:
        frame.number += len(scanned.frames)
    scanned.frames += body.frames
    scanned.nested += body.nested
    scanned.backticks += body.backticks
    scanned.ambiguities += body.ambiguities
    scanned.uncertainties += body.uncertainties
    scanned.evaluated |= body.evaluated
    scanned.has_functions = scanned.has_functions or body.has_functions


def _text_uncertainties(text: str) -> list[str]:
    uncertainties: list[str] = []
    if len(text) > MAX_CHARACTERS:
        uncertainties.append(f"longer than {MAX_CHARACTERS:,} characters")
    if len(text) > _MAX_SEARCHED:
        uncertainties.append("too long to search completely")
    if _CONTROL.search(text):
        uncertainties.append("contains control characters or invalid Unicode")
    if any(
        character.isspace() or unicodedata.category(character) in ("Cf", "Co", "Cn")
        for character in _NON_ASCII.findall(text)
    ):
        uncertainties.append("contains invisible or non-ASCII space characters")
    return uncertainties


def _fallback_part(text: str) -> SimpleCommand:
    """Anything that may be a command in unreadable text; for deny and ask rules only."""
    return SimpleCommand(
        raw=text,
        words=(None,),
        expanded=(),
        forms=_fallback_forms(text),
        possible_forms=(),
        allow_form=None,
        assignments=(),
        redirects=(),
        kind="other",
        reads=(),
        writes=(),
        loads=(),
        reason="",
        check=None,
        network=False,
        shows_environment=False,
        directories=(),
        uncertainties=("cannot be parsed reliably",),
    )


def _fallback_forms(text: str) -> tuple[str, ...]:
    """Every position where a command may begin, with quotes removed and with quotes as separators."""
    forms = CommandForms()
    joined = _ANSI.sub(lambda match: parse_word(match.group()).bare, text.replace("\\\n", ""))
    seen: set[str] = set()
    for variant in (_QUOTES.sub("", joined), _QUOTES.sub("\n", joined)):
        pieces = _SEPARATORS.split(variant)
        for at in range(0, len(pieces), 2):
            after_redirection = bool(at and pieces[at - 1])
            if pieces[at] not in seen or after_redirection:
                seen.add(pieces[at])
                words = pieces[at].split()
                _add_fallback_words(forms, words)
                if after_redirection:  # the target comes first
                    _add_fallback_words(forms, words[1:])
                if "]" in pieces[at]:  # a[1 + 2]=3 COMMAND
                    closing = next(index for index, word in enumerate(words) if "]" in word)
                    _add_fallback_words(forms, words[closing + 1 :])
    return forms.texts()


def _add_fallback_words(forms: CommandForms, words: list[str]) -> None:
    while words and _SKIPPED.match(words[0]):  # assignments, and `time -p`
        words = words[1:]
    if not words:
        return
    table = command_table()
    name = words[0].rsplit("/", 1)[-1]
    all_words = [ShellWord(word, word, word) for word in words]
    if name in table.runs_others:
        unwrapped = unwrap(tuple(words))
        forms.add_spans(all_words, (*unwrapped.spans, *unwrapped.possible_spans))
    else:
        forms.add_words(all_words)
