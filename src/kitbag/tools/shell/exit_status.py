"""Interprets the exit status of a command: an error, a signal, or a result that only looks like an error.

Used by Bash and background commands. `grep` without a match exits with 1, and so does a failed test run: the command
that the status must have come from tells which it is.
"""

import re
import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kitbag.shell.scan_model import ScannedCommand, ShellScan

_NOTHING_MATCHED, _DIFFERENT, _FALSE = "no matches", "the inputs differ", "the condition is false"
_MEANINGS: Final = {
    **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "git grep"), _NOTHING_MATCHED),
    **dict.fromkeys(("diff", "cmp", "git diff"), _DIFFERENT),
    **dict.fromkeys(("test", "[", "[["), _FALSE),
    **dict.fromkeys(("which", "command -v", "pgrep"), "none found"),
}
"""What exit status 1 means where it is not an error."""
_HARMLESS = frozenset(("cd", "pushd", "echo", "printf", "true", ":", "pwd"))
"""Before `&&`: commands whose failure shows in their output."""
_ENDS_EARLY = r"\bpipefail\b|\berrexit\b|\bset\s+-\w*e|\btrap\b"
_MAY_END_SHELL = frozenset(("exit", "exec", "eval", "source", ".", "return", "logout", "builtin"))
"""After them nothing else may have run, so the status may be theirs."""
_MAX_CHARS = 10_000


def format_exit_code(status: int) -> str:
    """`Exit code 2`, `Exit code 137 (SIGKILL)`; accepts the status of Popen or of a shell."""
    code = status if status >= 0 else 128 - status
    name = ""
    if code > 128:
        try:
            name = f" ({signal.Signals(code - 128).name})"
        except ValueError:
            name = ""
    return f"Exit code {code}{name}"


def exit_meaning(command: str, status: int) -> str:
    """What a status means that is not an error; empty if it is or may be one."""
    if status != 1 or len(command) > _MAX_CHARS or re.search(_ENDS_EARLY, command):
        return ""
    scanned = _scan_command(command)
    if (
        scanned.ambiguities
        or scanned.has_functions
        or any(one.frame.subshell or one.frame.compound for one in scanned.commands)
    ):
        return ""
    if any(_command_name(command, one) in _MAY_END_SHELL for one in scanned.commands):
        return ""
    before = [one for one in scanned.commands if one.frame.number == 0]  # the others are nested in words
    last = before.pop() if before else None
    meaning = _MEANINGS.get(_command_name(command, last), "") if last is not None else ""
    while meaning and last is not None and last.connector in ("&&", "|", "|&"):
        must_succeed = last.connector == "&&"
        last = before.pop() if before else None
        if must_succeed and (last is None or _command_name(command, last) not in _HARMLESS):
            return ""
    return meaning


def leaves_background_jobs(command: str) -> bool:
    """Whether it starts a job with `&` and does not wait for it."""
    if "&" not in command or len(command) > _MAX_CHARS:
        return False
    commands = _scan_command(command).commands
    return any(one.after == "&" for one in commands) and not any(
        _command_name(command, one) == "wait" for one in commands
    )


def _scan_command(command: str) -> "ShellScan":
    from kitbag.shell import scan

    return scan.scan(command)


def _command_name(text: str, command: "ScannedCommand") -> str:
    from kitbag.shell.words import parse_word

    words = [parse_word(text[start:end]).value or "" for start, end in command.words]
    if not words:
        return ""
    name = words[0].rpartition("/")[2]
    if name == "git":
        return f"git {_subcommand(words[1:])}"
    return " ".join(words[:2]) if name == "command" else name


def _subcommand(words: list[str]) -> str:
    """Of git, after its global options."""
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] in ("-C", "-c") else words[1:]
    return words[0] if words else ""
