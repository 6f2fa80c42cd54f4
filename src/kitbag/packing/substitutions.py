"""Puts arguments and paths into a skill: `$ARGUMENTS`, `$ARGUMENTS[1]`, `$1`, the names the skill declares, and
`${CLAUDE_SKILL_DIR}` and its like, all in one pass: what is put in is never looked at again.

Used by session_skills and prepare. Inside a command each argument is quoted as one word; elsewhere it stands as it is.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

from kitbag.packing.references.shell_quoting import FilledCommand, fill_command

_ARGUMENT = r"ARGUMENTS(?:\[(?P<place>[0-9]+)\])?(?!\w)|(?P<number>[0-9]+)(?!\w)"
_NUMBER = re.compile(r"(?<!\\)(?:\\\\)*+\$([0-9]{1,6})(?!\w)")
_NO_NAME = r"(?!)"
_BARE = frozenset(("CLAUDE_SESSION_ID",))
"""Understood without braces too: no command's environment has it."""


class InvocationArguments(NamedTuple):
    """The arguments of one invocation."""

    text: str = ""
    names: tuple[str, ...] = ()
    """As the skill declares them, in order."""
    one_based: bool = False
    """OpenCode counts from one, and its last number takes all that is left."""
    variables: tuple[tuple[str, str], ...] = ()
    """Of the session, put in like paths: `${CLAUDE_SESSION_ID}`."""

    @property
    def words(self) -> list[str]:
        """Split as a shell would, but an open quote is no error."""
        try:
            return shlex.split(self.text)
        except ValueError:
            return self.text.split()


class ArgumentSubstitution:
    """What one invocation puts into one skill. `used` tells afterwards whether a place for arguments was filled."""

    def __init__(self, arguments: InvocationArguments, full_text: str, paths: Mapping[str, str] | None = None) -> None:
        """`whole`: all of the skill's text, for the highest number in it; `paths`: the path variables by name."""
        self._arguments = arguments
        self._paths = {**dict(arguments.variables), **(paths or {})}
        self._highest_number = max(map(int, _NUMBER.findall(full_text)), default=0) if arguments.one_based else 0
        self.has_used_arguments = False

    @cached_property
    def _words(self) -> list[str]:
        return self._arguments.words

    @cached_property
    def _tokens(self) -> re.Pattern[str]:
        def one_of(names: Iterable[str]) -> str:
            usable = sorted((name for name in names if name and not name.isdigit()), key=len, reverse=True)
            return "|".join(map(re.escape, usable)) or _NO_NAME

        name = rf"(?P<name>{one_of(self._arguments.names)})(?!\w)"
        path = rf"\$\{{(?P<path>{one_of(self._paths)})\}}|\$(?P<bare>{one_of(_BARE & self._paths.keys())})(?!\w)"
        return re.compile(rf"(?<!\\)(?P<slashes>\\*+)\$(?:{_ARGUMENT}|{name})|{path}")

    def substitute_in_text(self, text: str) -> str:
        def put(found: "re.Match[str]") -> str:
            if (path := found["path"] or found["bare"]) is not None:
                return self._paths[path]
            slashes = found["slashes"]
            if len(slashes) % 2:  # escaped: as it is written, without the backslash
                return found[0][1:]
            value = self._take_value(found)
            return found[0] if value is None else slashes + value

        return self._tokens.sub(put, text)

    def substitute_in_command(self, command: str) -> FilledCommand:
        """As it would be run: arguments and paths are single words, whatever stands in them."""
        mark = _unused_word("\n".join((command, self._arguments.text, *self._paths.values())))
        values: dict[str, str] = {}

        def name_for(value: str) -> str:
            if not value:
                return ""  # an empty word would be an argument that nobody gave
            name = f"{mark}{len(values)}"
            values[name] = value
            return f"{{{{{name}}}}}"

        def put(found: "re.Match[str]") -> str:
            if (path := found["path"] or found["bare"]) is not None:
                return name_for(self._paths[path])
            slashes = found["slashes"]
            if len(slashes) % 2:
                return found[0][1:]
            value = self._take_value(found)
            return found[0] if value is None else slashes + name_for(value)

        filled = fill_command(self._tokens.sub(put, command), values)
        if mark in filled.text and not filled.unsafe:  # beside a brace or a `$` the place of a value can't be seen
            why = "an argument stands beside a brace or a `$`: write \\$1 for what the command itself calls $1"
            return filled._replace(text=command, unsafe=why)
        return filled

    def append_unused_arguments(self, text: str) -> str:
        """A skill that had no place for the arguments gets them at its end."""
        given = self._arguments.text.strip()
        return f"{text}\n\nARGUMENTS: {given}" if given and not self.has_used_arguments else text

    def _take_value(self, found: "re.Match[str]") -> str | None:
        """None: there is no such argument, and the token stays as it is written."""
        value = self._look_up(found["name"], found["place"], found["number"])
        self.has_used_arguments = self.has_used_arguments or value is not None
        return value

    def _look_up(self, name: str | None, place: str | None, number: str | None) -> str | None:
        words = self._words
        if name is not None:
            at = self._arguments.names.index(name)
            return words[at] if at < len(words) else ""
        written = place or number
        if written is None:
            return self._arguments.text
        if len(written) > 6:
            return None
        at = int(written)
        if self._arguments.one_based:
            if number and at == self._highest_number and 0 < at <= len(words):
                return " ".join(words[at - 1 :])
            at -= 1
        return words[at] if 0 <= at < len(words) else None


def _unused_word(text: str) -> str:
    """A name that the text can't hold by chance or by intent."""
    word = "ARGUMENT_"
    while word in text:
        word = f"{word}x_"
    return word
