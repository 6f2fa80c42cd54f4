"""Help: every command has a summary that is not truncated, every option says its default, bare groups list."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from conftest import World
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.root import cli
from support.matrix import sample


def all_commands(
    command: click.Command = cli, path: tuple[str, ...] = ("kitbag",)
) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from all_commands(found, (*path, name))


COMMANDS = dict(all_commands())


def help_of(path: str) -> str:
    done = CliRunner().invoke(cli, [*path.split()[1:], "--help"], prog_name="kitbag")
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("path", COMMANDS)
def test_help_is_whole(path: str) -> None:
    text = help_of(path)
    assert "..." not in text.partition("\n")[2]  # the first line is the usage
    assert COMMANDS[path].help


@pytest.mark.parametrize("path", COMMANDS)
def test_every_option_has_help_and_says_its_default(path: str) -> None:
    """Flags are off by default, and options that can be repeated are empty."""
    for option in COMMANDS[path].params:
        if not isinstance(option, click.Option) or option.hidden:
            continue
        assert option.help, option.name
        is_plain_flag = option.is_flag and not option.secondary_opts
        if is_plain_flag or option.required or "Repeatable" in option.help:
            continue
        assert option.show_default, (path, option.name)
        assert isinstance(option.show_default, str) or option.default is not None, (path, option.name)


def test_the_main_help_groups_commands_and_has_examples() -> None:
    text = help_of("kitbag")
    headings = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert len(headings) >= 6
    examples = text.partition("Examples:\n")[2].partition("\n\n")[0]
    assert len(examples.splitlines()) == 4
    for name in COMMANDS:
        if name.count(" ") == 1:
            assert f"\n  {name.split()[1]} " in text


BARE = sorted(
    path
    for path, command in COMMANDS.items()
    if isinstance(command, CommandGroup) and command.bare_command in command.commands
)


def test_the_groups_that_list_are_known() -> None:
    groups = {path for path, command in COMMANDS.items() if isinstance(command, CommandGroup)}
    assert groups - {"kitbag"} == set(BARE)  # all behave alike


@pytest.mark.parametrize("path", sample((path for path in BARE if path != "kitbag trust"), 4))
def test_a_bare_group_lists(world: World, path: str) -> None:
    group = path.split()[1:]
    bare_command = {"kitbag store": "status", "kitbag fleet": "status", "kitbag context": "show"}.get(path, "list")
    if path == "kitbag context":
        world.ok("-p", "Hi", "--model", "offline")
    assert world.ok(*group) == world.ok(*group, bare_command)
    assert world.ok(*group, "--json") == world.ok(*group, bare_command, "--json")


def test_a_bare_group_still_has_its_own_help_and_rejects_unknown_commands(world: World) -> None:
    assert "Commands:" in world.ok("skills", "--help")
    done = world.run("skills", "bogus")
    assert (done.returncode, "No such command 'bogus'" in done.stderr) == (2, True)
    assert "Did you mean 'search'?" in world.run("skills", "serch").stderr
    assert "To show 'my-skill': kitbag skills show my-skill" in world.run("skills", "my-skill").stderr
    assert "runs `add`" in world.ok("trust", "--help")
    assert "No such command 'list'. Commands: acknowledge, check, copy" in world.run("store", "list").stderr


def test_a_model_named_as_an_argument_is_not_said_to_come_from_an_option(world: World) -> None:
    assert "--model)" not in world.run("models", "show", "nonesuch").stderr
    assert "--model\n" not in world.ok("models", "show", "anthropic/claude-sonnet-4-5")


def test_a_number_that_is_none_gets_a_plain_error() -> None:
    for words, kind in (("tasks output x --wait abc", "number"), ("skills search x --most 1.5", "integer")):
        done = CliRunner().invoke(cli, words.split())
        assert (done.exit_code, f"is not a valid {kind}." in done.output) == (2, True), done.output
    assert "RANGE" not in CliRunner().invoke(cli, ["worker", "--help"]).output
