"""The list of promises is honest: each names tests that exist, and each test of behaviour is on the list."""

import ast
import functools
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
REQUIREMENTS = tomllib.loads((TESTS / "behaviour" / "requirements.toml").read_text())["requirement"]


@functools.cache
def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {name for name in names if name.startswith("test_")}


def named_tests() -> list[tuple[str, str]]:
    return [(requirement["id"], test) for requirement in REQUIREMENTS for test in requirement["tests"]]


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement["id"])
def test_each_requirement_says_where_it_stands_and_what_is_promised(requirement: dict[str, object]) -> None:
    assert set(requirement) == {"id", "source", "promise", "tests"}
    assert requirement["source"]
    assert len(str(requirement["promise"])) > 15
    assert requirement["tests"]


@pytest.mark.parametrize(("requirement", "test"), named_tests())
def test_each_named_test_exists(requirement: str, test: str) -> None:
    file, _, name = test.partition("::")
    assert name in names_in(TESTS / file), f"{requirement} names {test}, which is not there"


def test_ids_are_unique() -> None:
    ids = [requirement["id"] for requirement in REQUIREMENTS]
    assert len(ids) == len(set(ids))


def test_every_test_of_behaviour_is_on_the_list() -> None:
    named = {test for _, test in named_tests()}
    here = TESTS / "behaviour"
    own = Path(__file__).name
    written = {
        f"behaviour/{path.name}::{name}"
        for path in here.glob("test_*.py")
        if path.name != own
        for name in names_in(path)
    }
    assert written <= named, f"not on the list: {sorted(written - named)}"
