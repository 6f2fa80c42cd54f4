"""A value is never an option: every option takes its text whatever it starts with, and `--` ends options everywhere."""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import click
import pytest
from click.testing import CliRunner

from conftest import World
from kitbag.cli.root import cli
from kitbag.errors import UsageError
from kitbag.testing import ModelServer
from support.headless import point, script
from support.matrix import sample

TEXTS = (
    "--permission-mode=autonomous", "--permission-mode", "--help", "-h", "--version", "-", "--", "---", "--json", "--dir=/",
    "--print", "-p", "-pHi", "-c", "-x", "--x=y", "--no-wait", "=", "--model=evil", "-- --help", "", " --help",
)  # fmt: skip


class Place(NamedTuple):
    """A command with the path that leads to it."""

    path: tuple[str, ...]
    command: click.Command

    def parsed(self, *words: str) -> dict[str, Any]:
        """What the one parser makes of the words behind the command; nothing is run."""
        context = click.Context(cli, info_name="kitbag", obj={}, **cli.context_settings)
        if not self.path:
            return cli.make_context("kitbag", [*words], obj={}).params
        return self.command.make_context(self.path[-1], [*words], parent=context).params

    def arguments(self) -> list[click.Argument]:
        return [one for one in self.command.params if isinstance(one, click.Argument)]

    def needed(self, besides: click.Option | None = None) -> tuple[str, ...]:
        """Words for its required arguments, and for the required options other than this one."""
        return (*self.needed_options(besides), *(_valid(one) for one in self.arguments() if one.required))

    def needed_options(self, besides: click.Option | None = None) -> tuple[str, ...]:
        required = [one for one in self.command.params if isinstance(one, click.Option) and one.required]
        return tuple(word for one in required if one is not besides for word in (one.opts[-1], "word"))


def _valid(argument: click.Argument) -> str:
    if isinstance(argument.type, click.types.IntParamType):
        return "1"
    return argument.type.choices[0] if isinstance(argument.type, click.Choice) else "word"


def _takes_any_text(argument: click.Argument) -> bool:
    return not isinstance(argument.type, click.Choice | click.types.IntParamType)


def _places(path: tuple[str, ...] = (), command: click.Command = cli) -> Iterator[Place]:
    """The whole tree, the commands that are imported late too."""
    yield Place(path, command)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _places((*path, name), found)


PLACES = list(_places())
GROUPS = [place for place in PLACES if isinstance(place.command, click.Group)]
LEAVES = [place for place in PLACES if not isinstance(place.command, click.Group)]
OPTIONS = [
    (place, option)
    for place in PLACES
    for option in place.command.params
    if isinstance(option, click.Option) and not option.is_flag and not option.count
]


def _name(one: object) -> str:
    if isinstance(one, Place):
        return " ".join(one.path) or "kitbag"
    return one.opts[-1] if isinstance(one, click.Option) else str(one)


def _forms(name: str, text: str) -> Iterator[tuple[str, ...]]:
    """How the option is written with this text."""
    yield name, text
    if name.startswith("--"):
        yield (f"{name}={text}",)
    elif text:
        yield (f"{name}{text}",)


def test_the_walk_sees_the_tree() -> None:
    names = {(_name(place), _name(option)) for place, option in OPTIONS}
    assert {("kitbag", "--print"), ("agents run", "--model"), ("permissions answer", "--reason")} <= names
    assert len(names) > 80
    assert len(GROUPS) > 8


def _outcome(place: Place, words: tuple[str, ...]) -> dict[str, Any] | click.BadParameter:
    try:
        return place.parsed(*words)
    except click.BadParameter as error:
        return error


@pytest.mark.parametrize(("place", "option"), OPTIONS, ids=_name)
def test_every_option_takes_exactly_its_text_and_nothing_else_changes(
    place: Place, option: click.Option, capsys: pytest.CaptureFixture[str]
) -> None:
    assert option.name is not None
    before, needed = place.parsed(*place.needed()), place.needed(option)
    for text, name in itertools.product(TEXTS, option.opts):
        for form in _forms(name, text):
            found = _outcome(place, (*form, *needed))
            if isinstance(found, click.BadParameter):  # of a number or of one of a few words: what was given is named
                assert not isinstance(option.type, click.types.StringParamType), form
                assert (found.param, repr(text) in found.format_message()) == (option, True), form
            else:
                assert found == {**before, option.name: (text,) if option.multiple else text}, form
    assert capsys.readouterr() == ("", "")


LIMITS = [(place, option) for place, option in OPTIONS if isinstance(option.type, click.types.FloatParamType)]


@pytest.mark.parametrize(("place", "option"), LIMITS, ids=_name)
def test_no_number_is_nan_which_would_turn_a_limit_off(place: Place, option: click.Option) -> None:
    assert isinstance(_outcome(place, (option.opts[-1], "nan", *place.needed(option))), click.BadParameter)


@pytest.mark.parametrize("place", LEAVES, ids=_name)
def test_behind_two_dashes_every_word_is_an_argument(place: Place) -> None:
    before = place.parsed(*place.needed())
    arguments = place.arguments()
    for text in TEXTS:
        words = [text if _takes_any_text(one) else _valid(one) for one in arguments]
        values = [one.type.convert(word, one, None) for one, word in zip(arguments, words, strict=True)]
        taken = {one.name: (value,) if one.nargs == -1 else value for one, value in zip(arguments, values, strict=True)}
        assert place.parsed(*place.needed_options(), "--", *words) == {**before, **taken}, text
        if not any(one.nargs == -1 for one in arguments):
            with pytest.raises(click.UsageError, match="unexpected extra argument"):
                place.parsed(*place.needed_options(), "--", *words, text)


@pytest.mark.parametrize("place", [place for place in GROUPS if place.path], ids=_name)  # of the root it is a message
@pytest.mark.parametrize("text", sample([text for text in TEXTS if text.startswith("-")], 5))
def test_behind_two_dashes_a_group_reads_no_option(at_home: World, place: Place, text: str) -> None:
    del at_home
    done = CliRunner().invoke(cli, [*place.path, "--", text], obj={})
    if place.path == ("trust",):  # there it is the path
        assert isinstance(done.exception, UsageError)
        assert done.exception.problem == f"{text}: not a directory"
    else:
        assert done.exit_code == 2
        assert f"No such command '{text}'" in done.output
    assert "Options:" not in done.output, "no help"


def _behind_dashes(*words: str) -> tuple[click.Command, dict[str, Any]]:
    """The command that is reached, and what it is given; nothing is run."""
    group: click.Command = cli
    context = cli.make_context("kitbag", [*words], obj={})
    while isinstance(group, click.Group):
        rest = [*context._protected_args, *context.args]  # pyright: ignore[reportPrivateUsage]
        name, found, rest = group.resolve_command(context, rest)
        assert found is not None
        context = found.make_context(name, rest, parent=context)
        group = found
    return group, context.params


@pytest.mark.parametrize(
    "words",
    [
        ("--", "agents", "run", "Explore", "--background"),
        ("agents", "--", "run", "Explore", "--background"),
        ("agents", "run", "--", "Explore", "--background"),
        ("agents", "run", "Explore", "--", "--background"),
    ],
    ids=" ".join,
)
def test_two_dashes_hold_for_everything_behind_them(words: tuple[str, ...]) -> None:
    command, found = _behind_dashes(*words)
    _, plain = _behind_dashes("agents", "run", "Explore", "word")
    assert command.name == "run"
    assert found == {**plain, "prompt": "--background"}


# --- the prompt -------------------------------------------------------------------------------------------------


PROMPTS = ["--permission-mode=autonomous", "-x", "--model=evil", "--help", "--version", "--", "-c", "--trust-workspace"]


def _asked(world: World, *words: str, stdin: str = "") -> tuple[int, str, str]:
    """The exit code, what the model was sent as the prompt, and what was said on the error output."""
    with ModelServer(script("Fine.")) as server:
        point(world, server)
        done = world.run(*words, stdin=stdin)
        sent = [request.body["messages"][-1]["content"][-1]["text"] for request in server.requests]
    assert done.stdout == ("Fine.\n" if sent else ""), done.stdout
    return done.returncode, "".join(sent), done.stderr


@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_prompt_that_looks_like_an_option_is_sent_to_the_model(world: World, prompt: str) -> None:
    for words in (("-p", prompt), ("--print", prompt), (f"--print={prompt}",), (f"-p{prompt}",)):
        code, sent, _ = _asked(world, *words)
        assert (code, sent) == (0, prompt), words


def test_a_prompt_that_looks_like_an_option_changes_no_permission(world: World) -> None:
    text = "--permission-mode=autonomous"
    code, sent, said = _asked(world, "-p", text, "--output-format", "text", stdin="the text")
    assert (code, sent) == (0, f"{text}\n\n<standard-input>\nthe text\n</standard-input>")
    assert f'note: "{text}" was read as the prompt; to read the prompt from standard input, put -p last' in said


def test_a_prompt_that_is_no_option_of_ours_is_not_remarked_on(world: World) -> None:
    assert _asked(world, "-p", "--frobnicate the parser") == (0, "--frobnicate the parser", "")


@pytest.mark.parametrize(
    "words",
    [("-p",), ("--print",), ("-p", "-"), ("--print=-",), ("--max-turns", "3", "-p"), ("--effort=low", "--print")],
    ids=" ".join,
)
def test_without_a_text_the_prompt_comes_on_standard_input(world: World, words: tuple[str, ...]) -> None:
    assert _asked(world, *words, stdin="What is this?") == (0, "What is this?", "")


def test_a_value_that_is_spelled_like_the_print_option_is_a_value(world: World) -> None:
    done = world.run("--cwd", "-p")
    assert done.returncode == 2
    assert "-p: not a directory" in done.stderr


@pytest.mark.parametrize(
    "words", [("-p", "--output-format", "json"), ("-p", "--continue", "And now?"), ("-p", "--", "Hi")], ids=" ".join
)
def test_an_option_between_the_print_option_and_its_text_is_an_error_with_its_fix(
    world: World, words: tuple[str, ...]
) -> None:
    done = world.run(*words, "--model", "offline", stdin="What is this?")
    assert done.returncode == 2
    assert f'"{words[1]}" was read as the prompt' in done.stderr
    assert "put -p last" in done.stderr
    assert done.stdout == ""
