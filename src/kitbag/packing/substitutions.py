"""Substitutes arguments and paths in a skill: `$ARGUMENTS`, `$ARGUMENTS[1]`, `$1`, declared argument names, and
variables such as `${CLAUDE_SKILL_DIR}`, in one pass: inserted text is never scanned.

Inside a command each argument is quoted as one word; elsewhere it is inserted unchanged. Used by session_skills and
prepare_skill; uses references.shell_quoting.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from functools import cached_property

import msgspec

from kitbag.packing.references.shell_quoting import FilledCommand, fill_command

_ARGUMENT = r"ARGUMENTS(?:\[(?P<place>[0-9]+)\])?(?!\w)|(?P<number>[0-9]+)(?!\w)"
_NUMBER = re.compile(r"(?<!\\)(?:\\\\)*+\$([0-9]{1,6})(?!\w)")
_NO_NAME = r"(?!)"
_BARE = frozenset(("CLAUDE_SESSION_ID",))
"""Also substituted without braces: no command has it in its environment."""


class InvocationArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of one invocation."""

    text: str = ""
    names: tuple[str, ...] = ()
    """Argument names that the skill declares, in order."""
    one_based: bool = False
    """OpenCode counts from one, and its highest number takes all remaining words."""
    append: bool = False
    """Append them to a skill without a placeholder for them."""
    variables: tuple[tuple[str, str], ...] = ()
    """Session variables, substituted like paths: `${CLAUDE_SESSION_ID}`."""

    @property
    def words(self) -> list[str]:
        """Split like a shell does, but an unclosed quote is not an error."""
        try:
            return shlex.split(self.text)
        except ValueError:
            return self.text.split()


class ArgumentSubstitution:
    """Substitutes the arguments of one invocation. `has_used_arguments` says afterwards whether any was inserted."""

    def __init__(self, arguments: InvocationArguments, full_text: str, paths: Mapping[str, str] | None = None) -> None:
        """`full_text`: the skill's whole text, to find the highest number in it. `paths`: path variables by name."""
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
        def replacement(match: "re.Match[str]") -> str:
            if (path := match["path"] or match["bare"]) is not None:
                return self._paths[path]
            slashes = match["slashes"]
            if len(slashes) % 2:  # escaped: keep the token, drop the backslash
                return match[0][1:]
            value = self._take_value(match)
            return match[0] if value is None else slashes + value

        return self._tokens.sub(replacement, text)

    def substitute_in_command(self, command: str, variables: Mapping[str, str] | None = None) -> FilledCommand:
        """The command to run; each argument, path and `{{NAME}}` of `variables` is one word, whatever it contains."""
        known = variables or {}
        prefix = _unused_word(
            "\n".join((command, self._arguments.text, *self._paths.values(), *known, *known.values()))
        )
        values: dict[str, str] = dict(known)

        def placeholder_for(value: str) -> str:
            if not value:
                return ""  # quoting it would add an empty argument
            name = f"{prefix}{len(values)}"
            values[name] = value
            return f"{{{{{name}}}}}"

        def replacement(match: "re.Match[str]") -> str:
            if (path := match["path"] or match["bare"]) is not None:
                return placeholder_for(self._paths[path])
            slashes = match["slashes"]
            if len(slashes) % 2:
                return match[0][1:]
            value = self._take_value(match)
            return match[0] if value is None else slashes + placeholder_for(value)

        filled = fill_command(self._tokens.sub(replacement, command), values)
        if prefix in filled.text and not filled.unsafe:  # next to a brace or `$`, fill_command misses the placeholder
            problem = "an argument is next to a brace or `$`; write \\$1 for the command's own $1"
            return msgspec.structs.replace(filled, text=command, unsafe=problem)
        return filled

    def append_unused_arguments(self, text: str) -> str:
        arguments = self._arguments
        if not arguments.append or self.has_used_arguments:
            return text
        return f"{text}\n\nARGUMENTS: {arguments.text.strip()}"

    def _take_value(self, match: "re.Match[str]") -> str | None:
        """None if there is no such argument; the token then stays as written."""
        value = self._look_up(match["name"], match["place"], match["number"])
        self.has_used_arguments = self.has_used_arguments or value is not None
        return value

    def _look_up(self, name: str | None, position: str | None, number: str | None) -> str | None:
        words = self._words
        if name is not None:
            index = self._arguments.names.index(name)
            return words[index] if index < len(words) else ""
        digits = position or number
        if digits is None:
            return self._arguments.text
        if len(digits) > 6:
            return None
        index = int(digits)
        if self._arguments.one_based:
            if number and index == self._highest_number and 0 < index <= len(words):
                return " ".join(words[index - 1 :])
            index -= 1
        return words[index] if 0 <= index < len(words) else None


def _unused_word(text: str) -> str:
    """A word that does not occur in the text."""
    word = "ARGUMENT_"
    while word in text:
        word = f"{word}x_"
    return word
