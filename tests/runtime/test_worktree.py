"""An agent in a worktree of its own: what it changes comes back as a branch, and nothing of the repository runs."""

import json
import subprocess
from typing import Any

import pytest

from conftest import World
from kitbag.testing import Step
from runtime.test_agent import House
from runtime.test_delegation import at_home, board, results, script, task

__all__ = ["at_home"]


def git(world: World, *words: str) -> str:
    return subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
        cwd=world.workspace, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip


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


def ask(world: World, *agent: Any) -> House:
    house = House(world)
    steps = script([Step(calls=(task(subagent_type="worker"),)), "Done."], [*agent, "Ready."])
    house.ask("Ask.", steps=steps, only_tools=("Task", "Read", "Write"))
    return house


def write(path: str, text: str) -> Step:
    return Step(calls=(("w1", "Write", json.dumps({"file_path": path, "content": text})),))


def test_what_it_changes_is_on_a_branch_and_not_in_the_workspace(repository: World) -> None:
    house = ask(repository, write("new.txt", "new\n"))
    [found] = board(repository).all()
    assert found.end is not None
    assert found.end.branch == f"kitbag/{found.id}", found.end
    assert git(repository, "show", f"{found.end.branch}:new.txt") == "new\n"
    assert not (repository.workspace / "new.txt").exists()
    assert found.end.branch in results(house)


def test_without_changes_nothing_is_left_of_it(repository: World) -> None:
    ask(repository)
    assert "kitbag/" not in git(repository, "branch", "--list")
    assert git(repository, "worktree", "list").count("\n") == 1


def test_neither_hooks_nor_filters_of_the_repository_run(repository: World) -> None:
    canary = repository.canary
    hooks = repository.workspace / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "pre-commit", "commit-msg", "post-commit"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {canary}\n")
        (hooks / name).chmod(0o755)
    git(repository, "config", "filter.evil.smudge", f"touch {canary}; cat")
    git(repository, "config", "filter.evil.clean", f"touch {canary}; cat")
    git(repository, "config", "core.fsmonitor", f"touch {canary}")
    repository.write(".gitattributes", "*.txt filter=evil\n")
    subprocess.run(["git", "-c", "core.fsmonitor=false", "-c", "filter.evil.clean=", "-c", "filter.evil.smudge=", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.hooksPath=/dev/null", "commit", "--quiet", "-a", "-m", "x", "--allow-empty"], cwd=repository.workspace, check=True)  # fmt: skip
    canary.unlink(missing_ok=True)
    ask(repository, write("b.txt", "two\n"))
    assert not canary.exists()


def test_outside_of_a_repository_it_is_told(world: World) -> None:
    (world.workspace / ".git").rmdir()
    world.write(
        "~/.kitbag/agents/worker.md",
        "---\nname: worker\ndescription: Works.\ntools: Read, Write\nisolation: worktree\n---\nWork.\n",
    )
    assert "no git repository" in results(ask(world))
