"""Everyday commands need few approvals, and no dangerous one runs unasked that did not before."""

from pathlib import Path

import pytest

from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.rules.rule import PermissionRules
from permissions.command_lists import MODE_LETTERS, dangerous_commands, everyday_commands, make_workspace
from permissions.deciding import BUBBLEWRAP

UNLOCKED: tuple[PermissionMode, ...] = ("plan", "default", "acceptEdits", "autonomous")


def asked(base: Path, mode: PermissionMode) -> dict[str, list[str]]:
    """The everyday commands that are not simply allowed, by kind."""
    made = Permissions(make_workspace(base), mode, PermissionRules([]), BUBBLEWRAP)
    found: dict[str, list[str]] = {}
    for command in everyday_commands():
        if made.decide("Bash", {"command": command.text}).effect != "allow":
            found.setdefault(command.kind, []).append(command.text)
    return found


def test_the_lists_are_complete_and_have_no_duplicates() -> None:
    everyday, dangerous = everyday_commands(), dangerous_commands()
    assert len(everyday) == len(set(everyday)) == 90
    assert len(dangerous) == len({command.text for command in dangerous}) >= 700
    assert {command.kind for command in everyday} == {"read", "edit", "check", "other"}


@pytest.mark.parametrize("mode", UNLOCKED)
def test_at_most_one_in_twenty_read_only_commands_needs_an_approval(tmp_path: Path, mode: PermissionMode) -> None:
    reads = [command for command in everyday_commands() if command.kind == "read"]
    found = asked(tmp_path, mode).get("read", [])
    assert len(found) * 20 <= len(reads), found


def test_at_most_a_quarter_of_all_commands_needs_an_approval_where_edits_are_accepted(tmp_path: Path) -> None:
    found = asked(tmp_path, "acceptEdits")
    assert sum(map(len, found.values())) * 4 <= len(everyday_commands()), found
    assert "edit" not in found


@pytest.mark.parametrize("mode", list(MODE_LETTERS))
def test_no_dangerous_command_is_allowed_that_was_not_before(tmp_path: Path, mode: PermissionMode) -> None:
    made = Permissions(make_workspace(tmp_path, hostile=True), mode, PermissionRules([]), BUBBLEWRAP)
    newly_allowed = [
        command.text
        for command in dangerous_commands()
        if MODE_LETTERS[mode] not in command.allowed_before
        and made.decide("Bash", {"command": command.text}).effect == "allow"
    ]
    assert newly_allowed == []
