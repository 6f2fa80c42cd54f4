"""Puts a person's arguments into a skill: `$ARGUMENTS`, `$ARGUMENTS[1]`, `$1`, and the names the skill declares.

Used by session_skills. What is put in is never looked at again. Inside a command the arguments become values that
references quotes as one shell word each; elsewhere they stand as they are.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_TOKEN = re.compile(
    r"(?P<slashes>\\*)\$(?:ARGUMENTS(?:\[(?P<place>\d{1,3})\])?(?!\w)|(?P<number>\d{1,3})(?![\w])|(?P<name>[A-Za-z_]\w*))"
)


class Given(NamedTuple):
    """The arguments of one invocation."""

    text: str = ""
    names: tuple[str, ...] = ()
    """As the skill declares them, in order."""
    from_one: bool = False
    """OpenCode counts from one, and its last number takes all that is left."""

    @property
    def words(self) -> list[str]:
        """Split as a shell would, but an open quote is no error."""
        try:
            return shlex.split(self.text)
        except ValueError:
            return self.text.split()


def _last_number(text: str) -> int:
    return max((int(found["number"]) for found in _TOKEN.finditer(text) if found["number"]), default=0)


def _value(found: "re.Match[str]", given: Given, words: Sequence[str], last: int) -> str | None:
    """None: it is no argument, and stays as it is written."""
    name = found["name"]
    if name is not None:
        if name not in given.names:
            return None
        at = given.names.index(name)
        return words[at] if at < len(words) else ""
    written = found["place"] or found["number"]
    if written is None:
        return given.text
    at = int(written)
    if given.from_one:
        if at == 0:
            return None
        if at == last and found["number"] and at <= len(words):
            return " ".join(words[at - 1 :])
        at -= 1
    return words[at] if at < len(words) else None


def substitute(text: str, given: Given) -> str:
    words = given.words
    last = _last_number(text) if given.from_one else 0

    def put(found: "re.Match[str]") -> str:
        value = _value(found, given, words, last)
        if value is None:
            return found[0]
        slashes = found["slashes"]
        if len(slashes) % 2:  # escaped: as it is written, without the backslash
            return found[0][1:] if len(slashes) == 1 else found[0][: len(slashes) - 1] + found[0][len(slashes) :]
        return slashes + value

    return _TOKEN.sub(put, text)


def uses_arguments(text: str, given: Given) -> bool:
    return any(
        len(found["slashes"]) % 2 == 0 and (found["name"] is None or found["name"] in given.names)
        for found in _TOKEN.finditer(text)
    )


def in_command(command: str, given: Given, mark: str) -> tuple[str, Mapping[str, str]]:
    """A command in which each argument is a `{{name}}`, and the values of these names."""
    words = given.words
    last = _last_number(command) if given.from_one else 0
    values: dict[str, str] = {}

    def put(found: "re.Match[str]") -> str:
        value = _value(found, given, words, last)
        if value is None or len(found["slashes"]) % 2:
            return found[0]
        name = f"ARGUMENT_{mark}_{len(values)}"
        values[name] = value
        return f"{found['slashes']}{{{{{name}}}}}"

    return _TOKEN.sub(put, command), values
