"""Recognizes runs of a project's own tests and linters, which permissions ask about once per session.

Used by `parts`; the table is in commands.toml. Such a command runs code of the workspace, so it is never "read": this
only says what it is. Words that reach outside the workspace or change what is run make it an ordinary command.
"""

import msgspec

from kitbag.shell.command_table import command_table


class CheckRun(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    """For people, and the same for all runs of the same kind: `run tests: pytest`."""
    prefix: str
    """The words that a rule for such runs begins with: `python -m pytest`."""


def find_check(words: tuple[str | None, ...]) -> CheckRun | None:
    """`words`: of one command, without wrappers. None if it is not known to be a check, or more than one."""
    known = tuple(word for word in words if word is not None)
    table = command_table()
    if len(known) < len(words) or any(table.check_refusals.search(word) for word in known[1:]):
        return None
    for start in _runner_lengths(known, table.check_runners):
        for end in range(min(len(known), start + _MAX_WORDS), start, -1):
            label = table.checks.get(known[start:end])
            if label is not None:
                more = known[start] in table.check_targets and not all(word.startswith("-") for word in known[end:])
                if more:
                    return None
                name = " ".join(known[start:end])
                return CheckRun(label=f"{label}: {name}", prefix=" ".join(known[:end]))
    return None


_MAX_WORDS = 4


def _runner_lengths(words: tuple[str, ...], runners: frozenset[tuple[str, ...]]) -> list[int]:
    return [0, *(length for length in (3, 2, 1) if words[:length] in runners)]
