"""What many tests of the runtime share."""

import pytest

from conftest import World
from runtime.homes import git
from support.house import House


@pytest.fixture
def house(world: World, monkeypatch: pytest.MonkeyPatch) -> House:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "KITBAG_MODEL", "KITBAG_HOME", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(world.home))
    return House(world)


@pytest.fixture
def kitbag_home(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key or a model, as on a machine of a new user."""
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "KITBAG_MODEL", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.setenv("KITBAG_HOME", str(world.home / ".kitbag"))


@pytest.fixture
def repository(world: World) -> World:
    (world.workspace / ".git").rmdir()
    git(world, "init", "--quiet", "-b", "main")
    world.write("a.txt", "one\n")
    git(world, "add", "-A")
    git(world, "commit", "--quiet", "-m", "first")
    world.write(
        "~/.kitbag/agents/worker.md",
        "---\nname: worker\ndescription: Works.\ntools: Read, Write\nisolation: worktree\n"
        "permission-mode: acceptEdits\n---\nWork.\n",
    )
    return world
