"""Tasks of a shared queue on machines that lack their directory: cloned, isolated, and returned as a patch."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from conftest import World
from kitbag.assembly.run_options import Options
from kitbag.errors import InvalidError
from kitbag.library.scopes import find_places
from kitbag.permissions.trust.workspace_trust import check_trust
from kitbag.tasks.agent_permissions import agent_fingerprint
from kitbag.tasks.git_workspace import check_url, clean_url, describe_git_workspace
from kitbag.tasks.standalone_setup import load_user_environment
from kitbag.tasks.task import TRUSTED_CONTENT_KEY, WORKSPACE_KEY, Task
from kitbag.tasks.worker_lock import hold_worker_lock, write_heartbeat
from support import needs
from support.fleets import Fleet
from support.homes import git
from support.matrix import long
from support.workshop import call


class Clones:
    """A fleet whose submitter has a repository that it pushed, and workers that have only its URL."""

    def __init__(self, fleet: Fleet, repository: World) -> None:
        self.fleet, self.world, self.workshop = fleet, repository, fleet.workshop
        self.remote = repository.outside / "remote.git"
        git(repository, "init", "--quiet", "--bare", str(self.remote))
        git(repository, "remote", "add", "origin", str(self.remote))
        self.world.write(".gitignore", "script.json\n")
        git(repository, "add", "-A")
        git(repository, "commit", "--quiet", "-m", "second")
        self.push()
        self.workshop.journal.workspace_mode = "git"
        self.workshop.agent("doer", **{"permission-mode": "acceptEdits"})

    def push(self) -> None:
        git(self.world, "push", "--quiet", "origin", "main")

    def script(self, *replies: Any) -> None:
        self.workshop.script(*replies)

    def worker(self, name: str = "one", *, settings: str = "", **more: Any) -> int:
        home = Path(self.fleet.home(name))
        (home / "settings.toml").write_text(f'{settings}[tasks]\ngit_protocols = ["file"]\n')
        return self.fleet.worker(name, **{"idle": 0, **more})

    def run(self, task_id: str = "", **more: Any) -> Task:
        task_id = task_id or self.workshop.put()
        self.workshop.nursery.wait(self.worker(**more))
        return self.workshop.task(task_id)


@pytest.fixture
def clones(fleet: Fleet, repository: World) -> Clones:
    return Clones(fleet, repository)


def write(path: str, text: str, name: str = "w1") -> dict[str, Any]:
    return call("Write", name, file_path=path, content=text)


def error(task: Task) -> str:
    return task.result.error if task.result is not None else ""


def test_a_task_runs_in_a_clone_and_its_changes_come_back_as_a_patch(clones: Clones) -> None:
    world = clones.world
    clones.script(
        write("new.txt", "new\n"), call("Bash", "b1", command="cat a.txt > copy.txt; rm a.txt"), {"text": "Ok."}
    )
    task = clones.run()
    assert task.status == "completed", error(task)
    assert task.repository == f"file://{clones.remote}"
    assert (world.workspace / "a.txt").exists()
    assert f"kitbag tasks apply {task.id}" in world.ok("tasks", "show", task.id)
    assert set(world.ok("tasks", "apply", task.id).split()) == {"a.txt", "copy.txt", "new.txt"}
    assert (world.workspace / "new.txt").read_text() == "new\n"
    assert (world.workspace / "copy.txt").read_text() == "one\n"
    assert not (world.workspace / "a.txt").exists()
    # A second time it does not apply, and changes nothing.
    before = git(world, "status", "--porcelain")
    refused = world.run("tasks", "apply", task.id)
    assert (refused.returncode, "does not apply" in refused.stderr) == (6, True)
    assert git(world, "status", "--porcelain") == before
    kept = world.outside / "changes.patch"
    world.ok("tasks", "apply", task.id, "--output", str(kept))
    assert "new.txt" in kept.read_text()
    assert "cannot write" in world.run("tasks", "apply", task.id, "--output", str(kept)).stderr


def test_a_patch_applies_to_the_repository_of_the_current_directory_only(clones: Clones) -> None:
    world = clones.world
    clones.script(write("new.txt", "new\n"), {"text": "Ok."})
    task = clones.run()
    refused = world.run("tasks", "apply", task.id, cwd=world.outside)
    assert (refused.returncode, "is not in a git repository" in refused.stderr) == (6, True)
    assert not (world.outside / "new.txt").exists()
    assert "+new" in world.run("tasks", "apply", task.id, "--output", "-", cwd=world.outside).stdout
    folder = world.write("part/.kitbag/settings.toml", "").parents[1]
    assert world.run("tasks", "apply", task.id, cwd=folder).stdout == "new.txt\n"
    assert (world.workspace / "new.txt").exists()


def test_uncommitted_changes_travel_and_are_not_part_of_what_comes_back(clones: Clones) -> None:
    world = clones.world
    world.write("a.txt", "one\ntwo\n")
    (world.workspace / "b\xe9.bin").write_bytes(b"\x00\xff latin \xe9")
    clones.script(call("Bash", "b1", command="cat a.txt b*.bin > seen.txt"), {"text": "Ok."})
    task = clones.run()
    assert task.status == "completed", error(task)
    assert world.ok("tasks", "apply", task.id).split() == ["seen.txt"]
    assert (world.workspace / "seen.txt").read_bytes() == b"one\ntwo\n\x00\xff latin \xe9"


def test_a_resumed_task_has_its_files_again_on_another_machine(clones: Clones) -> None:
    more = call("Bash", "b1", command="cat first.txt > second.txt")
    clones.script(write("first.txt", "1\n"), {"text": "Ok."}, more, {"text": "Ok."})
    task = clones.run()
    assert task.status == "completed", error(task)
    clones.world.ok("tasks", "resume", task.id, "More.")
    clones.workshop.nursery.wait(clones.worker("two"))
    task = clones.workshop.task(task.id)
    assert task.status == "completed", error(task)
    assert set(clones.world.ok("tasks", "apply", task.id).split()) == {"first.txt", "second.txt"}


def test_a_task_whose_files_are_on_a_dead_machine_says_where(clones: Clones) -> None:
    workshop = clones.workshop
    begun = clones.world.outside / "begun"
    clones.script(write("new.txt", "new\n"), {"text": "", "delay": 60, "calls": []})
    task_id = workshop.put()
    first = clones.worker("one", idle=60)
    workshop.until(lambda: "result" in clones.fleet.session_kinds(task_id), f"{begun} {workshop.task(task_id)}")
    workshop.nursery.kill(first)
    workshop.nursery.wait(clones.worker("two"))
    task = workshop.task(task_id)
    assert task.status == "interrupted"
    assert f"in {clones.fleet.home('one')}/worktrees/{task_id}" in error(task)
    assert (Path(clones.fleet.home("one")) / "worktrees" / task_id / "new.txt").exists()


def _forget_commit(clones: Clones) -> None:
    shutil.rmtree(clones.remote)
    git(clones.world, "init", "--quiet", "--bare", str(clones.remote))
    git(clones.world, "push", "--quiet", str(clones.remote), "main~1:refs/heads/main")


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        pytest.param(lambda clones: shutil.rmtree(clones.remote), "cannot fetch file://"),
        pytest.param(_forget_commit, "does not have commit", marks=long),
    ],
)
def test_a_repository_that_can_t_be_fetched_is_a_clear_error_and_the_task_is_retried(
    clones: Clones, harm: Any, problem: str
) -> None:
    saved = clones.world.outside / "saved.git"
    shutil.copytree(clones.remote, saved)
    clones.script({"text": "Ok."})
    harm(clones)
    task = clones.run()
    assert (task.status, problem in error(task)) == ("failed", True), error(task)
    assert "kitbag fleet retry" in error(task)
    shutil.rmtree(clones.remote, ignore_errors=True)
    saved.rename(clones.remote)
    clones.world.ok("fleet", "retry", task.id)
    clones.workshop.nursery.wait(clones.worker())
    assert clones.workshop.task(task.id).status == "completed"


def test_neither_hooks_filters_nor_submodules_of_a_cloned_repository_run(clones: Clones) -> None:
    world, canary = clones.world, clones.world.canary
    world.write(".gitattributes", "*.txt filter=evil diff=evil\n")
    world.write(".gitmodules", f'[submodule "s"]\n\tpath = s\n\turl = ext::sh -c "touch {canary}"\n')
    world.write(".gitconfig", f'[filter "evil"]\n\tsmudge = touch {canary}\n')
    git(world, "add", "-A")
    git(world, "update-index", "--add", "--cacheinfo", f"160000,{git(world, 'rev-parse', 'HEAD').strip()},s")
    git(world, "commit", "--quiet", "-m", "third")
    clones.push()
    hooks = clones.remote / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-upload-pack", "pre-receive", "post-checkout", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {canary}\n")
        (hooks / name).chmod(0o755)
    clones.script(write("new.txt", "new\n"), {"text": "Ok."})
    (world.workspace / "s").mkdir(exist_ok=True)
    task = clones.run()
    assert task.status == "completed", error(task)
    assert not canary.exists()


def test_what_can_t_be_cloned_is_refused_with_the_fix_or_keeps_its_path(repository: World) -> None:
    workspace = str(repository.workspace)
    assert describe_git_workspace(workspace, "auto") is None
    with pytest.raises(InvalidError, match="has no remote repository"):
        describe_git_workspace(workspace, "git")
    git(repository, "remote", "add", "origin", "https://user:hunter2@example.com/r.git?token=x")
    with pytest.raises(InvalidError, match=r"is not in https://example\.com/r\.git$") as caught:
        describe_git_workspace(workspace, "git")
    assert "git push" in caught.value.fix
    git(repository, "update-ref", "refs/remotes/origin/main", "HEAD")
    found = describe_git_workspace(workspace, "auto")
    assert found is not None
    assert (found[0].url, found[1]) == ("https://example.com/r.git", b"")
    repository.write("big.txt", "0123456789abcdef\n" * 100_000)
    assert describe_git_workspace(workspace, "auto") is None
    with pytest.raises(InvalidError, match="too large to send"):
        describe_git_workspace(workspace, "git")
    (repository.workspace / "big.txt").unlink()
    inside = repository.write("inner/new.txt", "x").parent
    found = describe_git_workspace(str(inside), "git")
    assert found is not None
    assert (found[0].folder, b"inner/new.txt" in found[1]) == ("inner", True)
    assert git(repository, "status", "--porcelain").strip() == "?? inner/"
    with pytest.raises(InvalidError, match="is not in a git repository"):
        describe_git_workspace(str(repository.outside), "git")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://example.com/a.git", ""),
        ("ssh://git@example.com/a.git", ""),
        ("git@example.com:a/b.git", ""),
        ("file:///srv/a.git", "does not fetch"),
        ("ext::sh -c whoami", "not a git URL"),
        ("git://example.com/a", "does not fetch"),
        ("http://example.com/a", "does not fetch"),
        ("--upload-pack=x", "not a git URL"),
        ("-oProxyCommand=x:y", "not a git URL"),
        ("../a", "not a git URL"),
        ("", "not a git URL"),
        ("ssh://-oProxyCommand=x/a", "not a git URL"),
    ],
)
def test_only_urls_of_allowed_protocols_are_fetched(url: str, problem: str) -> None:
    if not problem:
        return check_url(url, ("https", "ssh"))
    with pytest.raises(InvalidError, match=problem):
        check_url(url, ("https", "ssh"))
    return None


def test_urls_lose_their_credentials() -> None:
    assert clean_url("https://user:token@example.com:8443/a.git") == "https://example.com:8443/a.git"
    assert clean_url("https://token@example.com/a.git?private_token=x") == "https://example.com/a.git"
    assert clean_url("ssh://git:pw@example.com/a.git") == "ssh://git@example.com/a.git"
    assert clean_url("git@example.com:a.git") == "git@example.com:a.git"
    assert clean_url("/srv/a.git") == "file:///srv/a.git"


@pytest.mark.parametrize("is_same", [True, False])
def test_trust_travels_with_the_contents_that_were_trusted(clones: Clones, is_same: bool) -> None:
    head = "---\nname: local\ndescription: Does.\ntools: Read, Bash\n---\nDo it."
    clones.world.write(".kitbag/agents/local.md", head)
    git(clones.world, "add", "-A")
    git(clones.world, "commit", "--quiet", "-m", "An agent")
    clones.push()
    places = find_places(str(clones.world.workspace))
    fingerprint = check_trust(places, trusted_for_run=True).fingerprint
    clones.script({"text": "Ok."})
    options = {TRUSTED_CONTENT_KEY: fingerprint if is_same else fingerprint[::-1], "trust_workspace": True}
    task = clones.run(clones.workshop.put(agent="local", options=options))
    assert task.status == ("completed" if is_same else "failed")
    assert is_same or "trust" in error(task)


def test_an_agent_that_a_user_starts_runs_on_another_machine_with_the_rules_of_both(clones: Clones) -> None:
    needs.bubblewrap()  # the agent runs commands without asking
    world, workshop = clones.world, clones.workshop
    clones.script(
        call("Bash", "b1", command="echo 1 > allowed.txt"),
        call("Bash", "b2", command="touch by_submitter.txt"),
        call("Bash", "b3", command="mkdir by_worker"),
        {"text": "Ok."},
    )
    world.write(
        "~/.kitbag/settings.toml",
        f'model = "scripted:{world.workspace / "script.json"}"\n[tasks]\nqueue = "fleet"\nworkspace = "git"\nidle = 0\n'
        '[permissions]\nmode = "autonomous"\ndeny = ["Bash(touch:*)"]\n',
    )
    with hold_worker_lock(workshop.home) as lock:  # the submitter's own worker would take it as well
        write_heartbeat(lock)
        task_id = json.loads(world.ok("agents", "run", "doer", "Do it.", "--background", "--json"))["id"]
    clones.worker(settings='[permissions]\nmode = "autonomous"\ndeny = ["Bash(mkdir:*)"]\n', idle=60)
    workshop.until(lambda: workshop.task(task_id).is_finished)
    task = workshop.task(task_id)
    assert task.status == "completed", error(task)
    assert world.ok("tasks", "apply", task_id).split() == ["allowed.txt"]


def test_an_agent_has_the_same_fingerprint_in_every_home(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    for tools in ("Read", "Read", "Read, Bash"):
        home = tmp_path / f"home{len(found)}"
        monkeypatch.setenv("KITBAG_HOME", str(home))
        agent = home / "agents/helper.md"
        agent.parent.mkdir(parents=True)
        agent.write_text(f"---\nname: helper\ndescription: Helps.\ntools: {tools}\n---\nHelp.")
        environment, _, _ = load_user_environment(str(world.workspace), Options())
        found.append(agent_fingerprint(environment.library.find_agent("helper")))
    assert found[0] == found[1] != found[2]


def test_a_task_of_a_named_queue_is_not_bound_to_the_directory_of_one_machine(fleet: Fleet) -> None:
    workshop = fleet.workshop
    workshop.script({"text": "Done."})
    request = workshop.wish(options={WORKSPACE_KEY: [1, 2, 3]})  # as another machine sees its own
    made = workshop.board.create("aaaa00000001", "agent", request, root="r", parent="", depth=1, background=True)
    task_id = asyncio.run(made).id
    workshop.nursery.wait(fleet.worker("one", idle=0))
    assert workshop.task(task_id).status == "completed", workshop.task(task_id).result
