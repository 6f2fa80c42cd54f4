"""An agent in a worktree of its own: what it changes comes back as a branch, and nothing of the repository runs."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from conftest import World
from kitbag.errors import InvalidError
from kitbag.tasks.worktree import Worktree, commit_changes, create_worktree
from kitbag.testing import Step
from support.boards import all_tasks
from support.delegating import results, script, task
from support.homes import git
from support.house import House

pytestmark = pytest.mark.usefixtures("kitbag_home")


def ask(world: World, *agent: Any) -> House:
    house = House(world)
    steps = script([Step(calls=(task(subagent_type="worker"),)), "Done."], [*agent, "Ready."])
    house.ask("Ask.", steps=steps, only_tools=("Task", "Read", "Write"))
    return house


def write(path: str, text: str) -> Step:
    return Step(calls=(("w1", "Write", json.dumps({"file_path": path, "content": text})),))


def test_what_it_changes_is_on_a_branch_and_not_in_the_workspace(repository: World) -> None:
    house = ask(repository, write("new.txt", "new\n"))
    [found] = all_tasks(repository)
    assert found.result is not None
    assert found.result.branch == f"kitbag/{found.id}", found.result
    assert git(repository, "show", f"{found.result.branch}:new.txt") == "new\n"
    assert not (repository.workspace / "new.txt").exists()
    assert found.result.branch in results(house)


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
    assert "not a git repository" in results(ask(world))


class TestHostile:
    """Git runs with all of the user's rights, and a repository may say what it is to run."""

    @staticmethod
    def evil(canary: Path, name: str = "evil") -> str:
        return f'[filter "{name}"]\n\tclean = "touch {canary}; cat"\n\tsmudge = "touch {canary}; cat"\n'

    @staticmethod
    def worktree(world: World) -> Worktree:
        made = create_worktree(str(world.workspace), str(world.home / ".kitbag"), "t1")
        Path(made.path, "b.txt").write_text("two\n")
        return made

    @pytest.mark.parametrize("where", ["include", "worktree"])
    def test_filters_do_not_run_wherever_the_configuration_has_them(self, repository: World, where: str) -> None:
        folder = repository.workspace / ".git"
        (folder / "info/attributes").write_text("* filter=evil\n")
        (folder / ("more" if where == "include" else "config.worktree")).write_text(self.evil(repository.canary))
        more = "[include]\n\tpath = more\n" if where == "include" else "[extensions]\n\tworktreeConfig = true\n"
        (folder / "config").write_text((folder / "config").read_text() + more)
        assert commit_changes(self.worktree(repository), "Work.") == "kitbag/t1"
        assert not repository.canary.exists()

    def test_a_commit_message_is_never_an_option_of_git(self, repository: World) -> None:
        before = git(repository, "rev-parse", "HEAD").strip()
        assert commit_changes(self.worktree(repository), "--amend") == "kitbag/t1"
        assert git(repository, "log", "-1", "--format=%P %s", "kitbag/t1").strip() == f"{before} --amend"

    def test_a_filter_that_can_t_be_taken_back_by_its_name_is_refused(self, repository: World) -> None:
        folder = repository.workspace / ".git"
        (folder / "info/attributes").write_text("* filter=x=y\n")
        (folder / "config").write_text((folder / "config").read_text() + self.evil(repository.canary, "x=y"))
        with pytest.raises(InvalidError, match="in its name"):
            self.worktree(repository)
        assert not repository.canary.exists()

    def test_nothing_is_fetched_that_is_missing(self, repository: World) -> None:
        folder = repository.workspace / ".git"
        blob = git(repository, "rev-parse", "HEAD:a.txt").strip()
        (folder / "objects" / blob[:2] / blob[2:]).unlink()
        (folder / "config").write_text(
            "[core]\n\trepositoryformatversion = 1\n\tbare = false\n"
            f'\tsshCommand = "touch {repository.canary};"\n[extensions]\n\tpartialClone = origin\n'
            '[remote "origin"]\n\turl = ssh://h/x\n\tpromisor = true\n[protocol "ssh"]\n\tallow = always\n'
        )
        with pytest.raises(InvalidError):
            self.worktree(repository)
        assert not repository.canary.exists()

    def test_a_repository_that_the_agent_made_is_left_alone_and_stays(self, repository: World) -> None:
        made = self.worktree(repository)
        inner = Path(made.path, "inner")
        inner.mkdir()
        words = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
        for more in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
            subprocess.run([*words, *more], cwd=inner, check=True)
        (inner / "f.txt").write_text("1\n")
        subprocess.run([*words, "add", "."], cwd=inner, check=True)
        (inner / "f.txt").write_text("2\n")
        (inner / ".git/info/attributes").write_text("* filter=evil\n")
        (inner / ".git/config").write_text((inner / ".git/config").read_text() + self.evil(repository.canary))
        assert commit_changes(made, "Work.") == "kitbag/t1"
        assert git(repository, "show", "kitbag/t1:b.txt") == "two\n"
        assert (inner / "f.txt").read_text() == "2\n"
        assert not repository.canary.exists()

    def test_another_repository_in_the_place_of_ours_is_not_used(self, repository: World) -> None:
        made = self.worktree(repository)
        subprocess.run(["git", "init", "-q", "other"], cwd=made.path, check=True)
        other = Path(made.path, "other/.git")
        (other / "config").write_text((other / "config").read_text() + self.evil(repository.canary))
        (other / "info/attributes").write_text("* filter=evil\n")
        Path(made.path, ".git").write_text(f"gitdir: {other}\n")
        with pytest.raises(InvalidError, match="no longer points to"):
            commit_changes(made, "Work.")
        assert not repository.canary.exists()
