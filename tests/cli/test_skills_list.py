"""`kitbag skills list` is answered without click; every form of it answers as with click."""

import subprocess
import sys

import pytest

from conftest import World
from support.matrix import sample
from support.waiting import TEST_TIMEOUT

WITH_CLICK = "import kitbag.cli; kitbag.cli._COMPLETION = 'HOME'"
"""A variable that is always set, so that every command line is left to click."""
FLAGS = ("--all", "--json", "--dir", "--help", "-h", "--", "--al", "--all=1", "-a", "list", "", "--format", "xml")


def library(world: World) -> None:
    world.skill(".kitbag/skills", "review", description="Reviews \x1b[31mcode\u200b.")
    world.skill(".kitbag/skills", "hidden", **{"user-invocable": "false", "disable-model-invocation": "true"})
    world.skill(".kitbag/skills/team", "other")
    world.write(".kitbag/skills/broken/SKILL.md", "---\nname: [\n---\n")
    world.write("~/.kitbag/skills/review/SKILL.md", "---\nname: review\ndescription: Shadowed.\n---\n")


def assert_same(world: World, *arguments: str) -> None:
    assert world.forkserver is not None
    where = str(world.workspace)
    with_click = world.forkserver.run([*arguments], where, world.env, before=WITH_CLICK)
    without = world.forkserver.run([*arguments], where, world.env)
    assert (without.returncode, without.stdout, without.stderr) == (
        with_click.returncode,
        with_click.stdout,
        with_click.stderr,
    )


@pytest.mark.parametrize("second", sample([None, *FLAGS], 4))
def test_every_form_of_the_listing_answers_as_with_click(world: World, second: str | None) -> None:
    library(world)
    for first in FLAGS:
        for start in (("skills", "list"), ("skills",)):
            assert_same(world, *start, first, *([second] if second is not None else []))


@pytest.mark.parametrize("arguments", [("skills", "list"), ("skills",), ("--", "skills", "list"), ("skills", "lis")])
def test_its_beginnings_answer_as_with_click(world: World, arguments: tuple[str, ...]) -> None:
    library(world)
    assert_same(world, *arguments)


@pytest.mark.parametrize("flags", [(), ("--json",), ("--all", "--json")])
@pytest.mark.parametrize("settings", ["[skills\n", "[items]\nx = 1\n", "team = 5\n", "persona = 'nobody'\n"])
def test_problems_are_reported_as_with_click(world: World, settings: str, flags: tuple[str, ...]) -> None:
    library(world)
    world.write("~/.kitbag/config.toml", settings)
    assert_same(world, "skills", "list", *flags)


@pytest.mark.parametrize("words", [["skills", "list"], ["skills"]])
def test_the_listing_imports_no_click_and_completion_in_a_shell_still_does(world: World, words: list[str]) -> None:
    library(world)
    program = f"import sys; sys.argv = {['kitbag', *words]}\nfrom kitbag.cli import main\ntry: main()\n"
    program += "except SystemExit: print('click' in sys.modules)\n"

    def run(**more: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", program],
            cwd=world.workspace,
            env=world.env | more,
            capture_output=True,
            text=True,
            timeout=TEST_TIMEOUT,
        ).stdout

    assert run().splitlines()[-1] == "False"
    assert run(_KITBAG_COMPLETE="bash_source").splitlines()[-1] == "True"
