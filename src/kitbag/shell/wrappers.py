"""Finds the command inside a command: what `timeout`, `sudo`, `xargs`, `find -exec` or `bash -c` would run.

Used by `parts`. Deny and ask rules apply at every level, and if the start of the inner command is unclear, to every
later word. Allow rules look through a few harmless wrappers only. A word in which a wrapper replaces `{}` is known only
at run time.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from kitbag.shell.command_table import (
    WrapperEntry,
    command_table,
    parse_leading_options,
    program_name,
    skip_options,
)
from kitbag.shell.interpreters import STANDARD_INPUT, is_interpreter
from kitbag.shell.scan import ASSIGNMENT
from kitbag.shell.unknown_text import UNKNOWN_TEXT

_MAX_SPANS: Final = 15
_UNCLEAR: Final = "cannot tell which command it runs"
_FROM_INPUT: Final = "runs commands from its input"
_AT_RUN_TIME: Final = "runs shell code that is only known at run time"
_HINT = re.compile(r"[\s;|&$`(<!]")
_TEXT_READERS = frozenset({".", "source", "at", "batch", "crontab"})
_INPUT_READERS = frozenset({"at", "batch"})
_COMMAND_TAKERS = frozenset({"trap", "alias", "hash", "mapfile", "readarray", "compgen", "complete", "bind"})
_INPUT_RUNNERS = frozenset({"xargs", "parallel"})
_REPLACE_OPTIONS = frozenset({"-I", "-i", "--replace", "-U"})
_PLACEHOLDERS: Final = {
    "find": re.compile(r"\{\}"),
    "fd": re.compile(r"\{[/.]*\}"),
    "fdfind": re.compile(r"\{[/.]*\}"),
    "parallel": re.compile(r"\{[^{}\s]*\}"),
}
_FD_EXEC_OPTION = re.compile(r"(-[xX]|--exec(?:-batch)?=)(.*)|--exec(?:-batch)?", re.DOTALL)
_GIT_COMMAND_WORDS = frozenset({"run", "foreach", "-x", "--exec", "--extcmd", "--cmd"})
_FIND_EXEC_OPTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_FIND_WRITE_OPTIONS = frozenset({"-delete", "-fprint", "-fprint0", "-fprintf", "-fls"})

Words = tuple[str | None, ...]


class UnwrappedCommand(msgspec.Struct, frozen=True, kw_only=True):
    words: Words
    """The words, None also for those in which a wrapper replaces something."""
    templates: Mapping[int, str]
    """Those words by index, with `UNKNOWN_TEXT` for what is replaced."""
    appends: bool
    """Whether a wrapper adds more words."""
    spans: tuple[tuple[int, int], ...]
    """Start and end of each command in the words; the first is the whole command."""
    possible_spans: tuple[tuple[int, int], ...]
    """Possible spans if the start is unclear."""
    innermost_start: int
    """Where the command inside all wrappers begins."""
    allow_start: int | None
    """Where the command begins that an allow rule may name; None if no prefix may be allowed."""
    shell_texts: tuple[str, ...]
    """Shell text that it runs. Scanned on its own; its commands are parts of the whole."""
    hints: tuple[str, ...]
    """Words that may be shell text; only deny and ask rules look into them."""
    reads_shell_text: bool
    """A shell or similar that runs a file, its input or an expansion."""
    uncertainties: tuple[str, ...]


class _Unwrapper:
    __slots__ = (
        "_placeholder_words",
        "allow_start",
        "appends",
        "hints",
        "innermost_start",
        "nested",
        "possible_spans",
        "reads_shell_text",
        "shell_texts",
        "spans",
        "stripping",
        "templates",
        "uncertainties",
        "words",
    )

    def __init__(self, words: Words, nested: bool) -> None:
        self.words = words
        self.nested = nested
        self.templates: dict[int, str] = {}
        self._placeholder_words: dict[re.Pattern[str], list[int]] = {}
        self.appends = False
        self.hints: list[str] = []
        self.possible_spans: list[tuple[int, int]] = []
        self.spans: list[tuple[int, int]] = [(0, len(words))]
        self.innermost_start = 0
        self.allow_start: int | None = 0
        self.stripping = True
        self.shell_texts: list[str] = []
        self.reads_shell_text = False
        self.uncertainties: list[str] = []

    def run(self) -> UnwrappedCommand:
        at: int | None = 0
        while at is not None and at < len(self.words):
            if len(self.spans) > _MAX_SPANS:
                self.uncertainties.append("too many nested commands")
                self._every_word_from(at)
                break
            at = self._step(at)
        if not self.nested:
            self._options_with_commands()
        return UnwrappedCommand(
            words=self.words,
            templates=self.templates,
            appends=self.appends,
            spans=tuple(dict.fromkeys(self.spans)),
            possible_spans=tuple(self.possible_spans),
            innermost_start=self.innermost_start,
            allow_start=self.allow_start,
            shell_texts=tuple(dict.fromkeys(self.shell_texts)),
            hints=tuple(dict.fromkeys(self.hints)),
            reads_shell_text=self.reads_shell_text,
            uncertainties=tuple(dict.fromkeys(self.uncertainties)),
        )

    def _step(self, at: int) -> int | None:
        """Process the command that begins here; returns where the next one begins."""
        word = self.words[at]
        if word is None:
            return None
        name = word.rsplit("/", 1)[-1]
        table = command_table()
        if name in table.shells:
            self._shell(at)
        elif name == "find":
            self._find(at)
        elif name in ("fd", "fdfind"):
            self._fd(at, name)
        elif name in _COMMAND_TAKERS:
            self._every_word_from(at + 1)
            if None in self.words[at + 1 :]:
                self.uncertainties.append(_AT_RUN_TIME)
        elif name in _TEXT_READERS:
            self._text_reader(at, name)
        elif name == "git":
            self._git(at)
        elif name in table.launching_words:
            launching = table.launching_words[name]
            begins = next((index for index in range(at + 1, len(self.words)) if self.words[index] in launching), None)
            if begins is not None:
                self._every_word_from(begins + 1)
                if None in self.words[begins + 1 : begins + 2]:
                    self.uncertainties.append(_UNCLEAR)
        if name in table.launchers or name in table.launchers_elsewhere:
            self._every_word_from(at + 1)
            later = self.words[at + 1 :]
            if name in table.launchers and (None in later or not _INPUT_RUNNERS.isdisjoint(later)):
                self.uncertainties.append(_UNCLEAR)
            return None
        wrapper = table.wrappers.get(name)
        if wrapper is None:
            return None
        if name in _INPUT_RUNNERS:
            self._unwrap_input_runner(at, name, wrapper)
        return self._unwrap(at, wrapper, program_name(word) == name)

    def _unwrap_input_runner(self, at: int, name: str, wrapper: WrapperEntry) -> None:
        """xargs and parallel pass their input as arguments to a command; if that runs its arguments, they do too."""
        parsed = parse_leading_options(self.words, wrapper.options, at + 1)
        if parsed is None:
            return
        begins, options = parsed
        if name == "parallel":
            self._every_word_from(begins)
            self._substitute(begins, len(self.words), _PLACEHOLDERS[name])
        for replaced in (value or "{}" for option, value in options if option in _REPLACE_OPTIONS):
            self._substitute(begins, len(self.words), re.compile(re.escape(replaced)))
        self.appends = True
        inner = self.words[begins] if begins < len(self.words) else ""
        if name == "xargs" and inner == "":
            inner = "echo"
            self.hints.append(inner)
        base = (inner or "").rsplit("/", 1)[-1]
        table = command_table()
        runs = base in table.shells or base in table.wrappers or base in table.launchers or base in _TEXT_READERS
        takes_code = is_interpreter(inner) and (self.words[-1] or "-").startswith("-")
        if runs or takes_code or not base or base.startswith(":::"):
            self.reads_shell_text = True
            self.uncertainties.append(_FROM_INPUT)

    def _substitute(self, begins: int, ends: int, placeholder: re.Pattern[str]) -> None:
        """Mark the words in which the wrapper replaces something."""
        found = self._placeholder_words.get(placeholder)
        if found is None:  # once for each placeholder: a command may have thousands of wrappers
            texts = enumerate(self.templates.get(index, word) for index, word in enumerate(self.words))
            found = [index for index, text in texts if text is not None and placeholder.search(text)]
            self._placeholder_words[placeholder] = found
        for index in found:
            text = self.templates.get(index, self.words[index]) if begins <= index < ends else None
            if text is not None and placeholder.search(text):
                self.templates[index] = placeholder.sub(UNKNOWN_TEXT, text)
                self.words = (*self.words[:index], None, *self.words[index + 1 :])

    def _text_reader(self, at: int, name: str) -> None:
        self.reads_shell_text = True
        operands = self.words[at + 1 :]
        if None in operands[:1]:
            self.uncertainties.append(_AT_RUN_TIME)
        elif (name in _INPUT_READERS and "-f" not in operands) or STANDARD_INPUT & {*operands} or not operands:
            self.uncertainties.append(_FROM_INPUT)

    def _unwrap(self, at: int, wrapper: WrapperEntry, known_program: bool) -> int | None:
        first = at + 1
        if first < len(self.words) and self.words[first] in wrapper.unless:
            return None
        if wrapper.blocks:
            self.allow_start = None
        begins = skip_options(self.words, wrapper.options, first)
        if begins is not None and wrapper.assignments:
            while begins < len(self.words) and ASSIGNMENT.match(self.words[begins] or ""):
                begins += 1
            begins += self.words[begins : begins + 1] == ("--",)
        for _ in range(wrapper.skip):
            if begins is not None:
                begins = None if begins < len(self.words) and self.words[begins] is None else begins + 1
        if begins is None:
            self.uncertainties.append(_UNCLEAR)
            self.reads_shell_text = True
            self._every_word_from(first)
            return None
        if begins >= len(self.words):
            return None
        if wrapper.joins:
            self._joined(begins)
            return None
        if self.words[begins] in ("-c", "--command"):  # flock FILE -c TEXT
            self._joined(begins + 1)
            return None
        may_strip = wrapper.strips and known_program and not (wrapper.bare and begins > first)
        if may_strip and self.stripping and self.allow_start == at:
            self.allow_start = begins
        else:
            self.stripping = False
        self.spans.append((begins, len(self.words)))
        self.innermost_start = begins
        return begins

    def _joined(self, at: int) -> None:
        words = self.words[at:]
        self.spans.append((at, len(self.words)))
        if None in words:
            self.uncertainties.append(_AT_RUN_TIME)
            self.reads_shell_text = True
        self.shell_texts.append(" ".join(word for word in words if word is not None))

    def _every_word_from(self, at: int) -> None:
        self.possible_spans += [(begins, len(self.words)) for begins in range(at, len(self.words))]
        self._hints_from(at)

    def _hints_from(self, at: int) -> None:
        for word in self.words[at:]:
            if word is not None:
                # trap TEXT, alias NAME=TEXT, env -STEXT, git config alias.x !TEXT
                attached = word.partition("=")[2] or (word[2:] if word.startswith("-") else "")
                texts = [text for text in (word, attached) if text and (text is attached or _HINT.search(text))]
                self.hints += [text.lstrip("!") for text in texts]

    def _shell(self, at: int) -> None:
        """`bash -c TEXT`, or a shell that runs a file or its input."""
        table = command_table()
        index, has_text, reads_input = at + 1, False, False
        while index < len(self.words):
            word = self.words[index]
            if word is None or not word.startswith(("-", "+")) or word in ("-", "--"):
                break
            if not word.startswith("--"):
                has_text, reads_input = has_text or "c" in word[1:], reads_input or "s" in word[1:]
            index += 2 if word in table.shell_values or (word[1:2] != "-" and word[-1:] in ("o", "O")) else 1
        if index < len(self.words) and self.words[index] in ("-", "--"):
            index += 1
        text = self.words[index] if index < len(self.words) else ""
        if not has_text:
            # A named file is a program like any other; input or an expansion is text from elsewhere.
            self.reads_shell_text = reads_input or not text or text.startswith("/dev/")
            if self.reads_shell_text:
                self.uncertainties.append("shell that runs commands from its input")
        elif text is None:
            self.reads_shell_text = True
            self.uncertainties.append(_AT_RUN_TIME)
            if index in self.templates:  # what is known of it
                self.shell_texts.append(self.templates[index].replace(UNKNOWN_TEXT, "{}"))
        else:
            self.shell_texts.append(text)
        self._hints_from(at + 1)

    def _fd(self, at: int, name: str) -> None:
        """`fd PATTERN -x COMMAND`: every word is a hint too, since options may follow."""
        for index in range(at + 1, len(self.words)):
            exec_option = _FD_EXEC_OPTION.fullmatch(self.words[index] or "")
            if exec_option is None:
                continue
            self.allow_start = None
            self._every_word_from(index + 1)
            attached = exec_option[2]
            if attached:  # -xCOMMAND
                self.hints.append(" ".join(filter(None, (attached, *self.words[index + 1 :]))))
                if _PLACEHOLDERS[name].search(attached):
                    self.uncertainties.append(_UNCLEAR)
            elif index + 1 < len(self.words):
                self._substitute(index + 1, len(self.words), _PLACEHOLDERS[name])
                self.appends = True
                self._found_in_find([index + 1], len(self.words))
            return

    def _find(self, at: int) -> None:
        begun: list[int] = []
        for index in range(at + 1, len(self.words)):
            word = self.words[index]
            if word in _FIND_EXEC_OPTIONS:
                begun.append(index + 1)
            elif word in (";", "+"):
                self._found_in_find(begun, index)
                begun = []
            if word is None or word in _FIND_EXEC_OPTIONS or word in _FIND_WRITE_OPTIONS:
                self.allow_start = None
        self._found_in_find(begun, len(self.words))

    def _found_in_find(self, begun: list[int], ends: int) -> None:
        for number, begins in enumerate(begun):
            self._substitute(begins, ends, _PLACEHOLDERS["find"])
            if self.nested or begins >= ends or number >= _MAX_SPANS:
                self.spans.append((begins, ends))
                continue
            inner = unwrap(self.words[begins:ends], nested=True)
            self.spans += [(begins + start, begins + end) for start, end in inner.spans]
            self.possible_spans += [(begins + start, begins + end) for start, end in inner.possible_spans]
            self.shell_texts += inner.shell_texts
            self.hints += inner.hints
            self.uncertainties += inner.uncertainties
            self.templates |= {begins + index: text for index, text in inner.templates.items()}
            self.words = (*self.words[:begins], *inner.words, *self.words[ends:])
            self.appends = self.appends or inner.appends
            self.reads_shell_text = self.reads_shell_text or inner.reads_shell_text

    def _git(self, at: int) -> None:
        table = command_table()
        for index in range(at + 1, len(self.words)):
            word = self.words[index]
            if word is None or not (word.startswith("-") or self.words[index - 1] in ("-c", "-C", "--config-env")):
                break
            if word.startswith(("-c", "--config-env", "--exec-path=")):
                self.uncertainties.append("git with configuration options on the command line")
                value = self.words[index + 1] if word == "-c" and index + 1 < len(self.words) else word
                self.hints.append((value or "").partition("=")[2].lstrip("!"))
        begins = skip_options(self.words, table.global_options["git"], at + 1)
        if begins is not None and self.words[begins : begins + 1] and self.words[begins] in table.launching_git:
            self._every_word_from(begins + 1)
            if self._hides_git_command(begins):
                self.uncertainties.append(_UNCLEAR)

    def _hides_git_command(self, at: int) -> bool:
        """`git bisect run $X`, `git config alias.x "$X"`."""
        words = self.words[at:]
        if words[0] == "config":
            key = next((index for index, word in enumerate(words) if index and not (word or "").startswith("-")), 0)
            return bool(key) and None in words[key:] and (words[key] or "alias.").startswith("alias.")
        return any(word is None and words[index] in _GIT_COMMAND_WORDS for index, word in enumerate(words[1:]))

    def _options_with_commands(self) -> None:
        names = command_table().launching_options
        for index, word in enumerate(self.words):
            if word is None:
                continue
            name, equals, value = word.partition("=")
            if name == "--checkpoint-action":
                self.hints.append(value.removeprefix("exec="))
            elif name in names and equals:
                self.hints.append(value)
            elif name in names and index + 1 < len(self.words):
                self.hints.append(self.words[index + 1] or "")


def unwrap(words: Words, nested: bool = False) -> UnwrappedCommand:
    """`nested`: the words are inside a `find`."""
    return _Unwrapper(words, nested).run()
