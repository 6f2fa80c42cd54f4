"""A workspace that is moved, deleted or replaced while work runs: nothing is written at its old path."""

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conftest import World
from kitbag.agent.undo.plan import read_message_changes
from kitbag.agent.undo.session_changes import SessionChanges, WorkspaceSnapshots, recover_interrupted_command
from kitbag.assembly.reload import reload
from kitbag.assembly.run_options import Options
from kitbag.errors import InvalidError, KitbagError
from kitbag.events import RunEnded, ToolFinished
from kitbag.mcp_server.server_state import ServerState
from kitbag.permissions.model import Workspace
from kitbag.permissions.safe_open import make_directory, open_for_reading, remove_file, write_file
from kitbag.permissions.workspace_identity import WorkspaceIdentity, WorkspaceMovedError
from kitbag.runtime.agent import Agent
from kitbag.testing import Rule, Script, Scripted, Step
from support.changing import Shop
from support.waiting import TEST_TIMEOUT
from support.workshop import Workshop, call

MOVED = "the workspace was moved or "


def _delete(root: Path) -> None:
    shutil.rmtree(root)


def _move(root: Path) -> None:
    root.rename(root.with_name("moved"))


def _replace(root: Path) -> None:
    _move(root)
    (root / ".git").mkdir(parents=True)
    (root / "a.txt").write_text("other\n")


def _delete_and_create(root: Path) -> None:
    """The file system may give the new directory the old one's inode."""
    _delete(root)
    root.mkdir()


def _link(root: Path) -> None:
    _move(root)
    elsewhere = root.with_name("elsewhere")
    (elsewhere / ".git").mkdir(parents=True)
    root.symlink_to(elsewhere)


def _link_to_moved_copy(root: Path) -> None:
    shutil.copytree(root, root.with_name("copy"))
    _move(root)
    root.symlink_to(root.with_name("copy"))


def _link_to_itself(root: Path) -> None:
    """The resolved path is another one, so no decision about the old path holds."""
    _move(root)
    root.symlink_to(root.with_name("moved"))


def _replace_parent(root: Path) -> None:
    parent = root.parent
    parent.rename(parent.with_name("old-parent"))
    (root / ".git").mkdir(parents=True)


CHANGES: dict[str, Callable[[Path], None]] = {
    "deleted": _delete,
    "moved": _move,
    "replaced": _replace,
    "deleted and created": _delete_and_create,
    "link": _link,
    "link to a copy": _link_to_moved_copy,
    "parent replaced": _replace_parent,
}
each_change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
with_link_to_itself = pytest.mark.parametrize(
    "change", [*CHANGES.values(), _link_to_itself], ids=[*CHANGES, "link to itself"]
)


def tree(top: Path, *omitted: str) -> dict[str, str]:
    """Every path and the text of every file."""
    found: dict[str, str] = {}
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(name for name in folders if name not in omitted)
        for name in (*folders, *files):
            path = Path(folder, name)
            found[str(path.relative_to(top))] = path.read_text() if path.is_file() else ""
    return found


@pytest.fixture
def nested(world: World) -> World:
    """Its workspace has a parent that can be replaced."""
    parent = world.workspace.with_name("parent")
    parent.mkdir()
    world.workspace = world.workspace.rename(parent / "ws")
    (world.workspace / "a.txt").write_text("mine\n")
    return world


@pytest.fixture
def here(nested: World, monkeypatch: pytest.MonkeyPatch) -> World:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "KITBAG_MODEL", "KITBAG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(nested.home))
    return nested


def step(tool: str, **arguments: Any) -> Step:
    return Step(calls=((f"c{abs(hash(str(arguments)))}", tool, json.dumps(arguments)),))


STEPS = (
    ("Write", {"file_path": "new/b.txt", "content": "b\n"}),
    ("Write", {"file_path": "a.txt", "content": "b\n"}),
    ("Edit", {"file_path": "a.txt", "old_string": "mine", "new_string": "b"}),
    ("Edit", {"file_path": "a.txt", "old_string": "other", "new_string": "b"}),
    ("Bash", {"command": "mkdir -p d && echo b > d/b.txt"}),
    ("Bash", {"command": "echo b > d.txt", "run_in_background": True}),
    ("Read", {"file_path": "a.txt"}),
    ("Task", {"subagent_type": "general-purpose", "prompt": "Write a file.", "description": "x"}),
)


async def _use_after(world: World, change: Callable[[Path], None], act: Callable[[Agent], Any]) -> Any:
    script = Script([Rule([Step(text="Hello."), *(step(tool, **given) for tool, given in STEPS), Step(text="Done.")])])
    options = Options(directory=str(world.workspace), only_tools=("Write", "Edit", "Bash", "Read", "Task"))
    async with asyncio.timeout(TEST_TIMEOUT), Agent(options=options, provider=Scripted(script)) as agent:
        async with agent.run("Hello") as run:
            _ = [event async for event in run]
        change(world.workspace)
        return await act(agent)


@with_link_to_itself
def test_no_tool_writes_where_the_workspace_was(here: World, change: Callable[[Path], None]) -> None:
    before: dict[str, str] = {}
    finished: list[ToolFinished] = []

    async def act(agent: Agent) -> RunEnded:
        before.update(tree(here.home.parent, here.home.name))
        async with agent.run("Write") as run:
            finished.extend([event async for event in run if isinstance(event, ToolFinished)])
        return run.ended

    ended = asyncio.run(_use_after(here, change, act))
    assert ended.text == "Done."
    assert [(one.name, one.is_error) for one in finished] == [(tool, True) for tool, _ in STEPS]
    assert all(MOVED in one.result and MOVED in one.summary for one in finished), finished
    assert tree(here.home.parent, here.home.name) == before


@each_change
def test_reload_and_a_new_session_of_the_same_chat_do_not_take_the_replacement(
    here: World, change: Callable[[Path], None]
) -> None:
    async def act(agent: Agent) -> None:
        with pytest.raises(InvalidError, match=MOVED):
            await reload(agent)
        with pytest.raises(KitbagError):
            async with Agent(options=agent.options, provider=Scripted(Script([]))):
                pass

    asyncio.run(_use_after(here, change, act))


@with_link_to_itself
def test_files_are_opened_only_in_the_directory_in_which_the_work_began(
    nested: World, change: Callable[[Path], None]
) -> None:
    """Also when it is replaced after the decision."""
    root = nested.workspace
    workspace = Workspace(
        root=str(root),
        home=str(nested.home),
        kitbag_home=str(nested.home / ".kitbag"),
        identity=WorkspaceIdentity.of_directory(str(root)),
    )
    write_file("a.txt", b"still mine", workspace)
    change(root)
    before = tree(nested.home.parent)
    file = str(root / "a.txt")
    for act in (
        lambda: write_file(file, b"x", workspace, expected_resolved=file),
        lambda: write_file(str(root / "d/b"), b"x", workspace, expected_resolved=str(root / "d/b")),
        lambda: make_directory(str(root / "d"), workspace, expected_resolved=str(root / "d")),
        lambda: make_directory(str(root), workspace, expected_resolved=str(root)),
        lambda: remove_file(file, workspace, expected_resolved=file),
        lambda: open_for_reading(file, workspace, expected_resolved=file),
    ):
        with pytest.raises(WorkspaceMovedError, match=MOVED):
            act()
    assert tree(nested.home.parent) == before


def test_the_message_says_whether_something_else_is_at_the_path_of_the_workspace(tmp_path: Path) -> None:
    replaced = f"the workspace was moved or replaced: {tmp_path} is not the directory in which this work began"
    assert str(WorkspaceMovedError(str(tmp_path))) == replaced
    deleted = tmp_path / "deleted"
    assert str(WorkspaceMovedError(str(deleted))) == f"the workspace was moved or deleted: {deleted} no longer exists"


@each_change
def test_a_queued_task_does_not_run_in_the_replacement(workshop: Workshop, change: Callable[[Path], None]) -> None:
    world = workshop.world
    parent = world.workspace.with_name("parent")
    parent.mkdir()
    world.workspace = world.workspace.rename(parent / "ws")
    script = world.write("~/script.json", json.dumps({"rules": [{"replies": [
        call("Write", "w1", file_path="made.txt", content="made\n"), {"text": "Done."}]}]}))  # fmt: skip
    task_id = workshop.put(parent_model=f"scripted:{script}")
    change(world.workspace)
    before = tree(world.home.parent, world.home.name)
    workshop.work()
    task = workshop.task(task_id)
    assert task.status == "failed"
    assert task.result is not None
    assert MOVED in task.result.error or "no longer exists" in task.result.error
    assert tree(world.home.parent, world.home.name) == before


@each_change
def test_an_mcp_server_keeps_its_workspace(here: World, change: Callable[[Path], None]) -> None:
    state = ServerState(Options(directory=str(here.workspace)))
    change(here.workspace)

    async def act() -> None:
        await state.refreshed(0)
        with pytest.raises(InvalidError):
            async with state.agent_setup():
                pass
        await state.close()

    asyncio.run(act())
    decision = state.served.environment.permissions.decide("Write", {"file_path": "a.txt", "content": ""})
    assert (decision.effect, MOVED in decision.reason) == ("deny", True)


@each_change
def test_a_command_during_which_the_workspace_moves_is_not_recorded_as_deleting_everything(
    world: World, change: Callable[[Path], None]
) -> None:
    if change is _replace_parent:
        pytest.skip("the journal is in the parent")
    shop = Shop(world)
    shop.workspace = Workspace(
        root=str(shop.root),
        home=str(world.home),
        kitbag_home=shop.kitbag_home,
        identity=WorkspaceIdentity.of_directory(str(shop.root)),
    )
    shop.changes = SessionChanges(shop.session, shop.workspace, shop.notices.append)
    shop.say()
    (shop.root / "a.txt").write_text("mine\n")

    async def command() -> None:
        async with shop.changes.record_command(shop_call):
            change(shop.root)

    shop_call = "call-1"
    asyncio.run(command())
    assert shop.messages() == []
    assert any(MOVED in notice.text for notice in shop.notices)
    shop.close()


def test_a_killed_command_is_not_recorded_as_deleting_everything_if_its_workspace_was_replaced(world: World) -> None:
    def shop_with_identity() -> Shop:
        shop = Shop(world)
        shop.workspace = msgspec.structs.replace(
            shop.workspace, identity=WorkspaceIdentity.of_directory(str(shop.root))
        )
        shop.changes = SessionChanges(shop.session, shop.workspace, shop.notices.append)
        return shop

    shop = shop_with_identity()
    (shop.root / "a.txt").write_text("mine\n")
    shop.say()
    snapshots = WorkspaceSnapshots(shop.workspace, shop.session.id, shop.kept)
    snapshots.before_command("call-1")
    assert snapshots._running_marker is not None
    os.close(snapshots._running_marker)  # as if it were killed
    _delete_and_create(shop.root)
    shop.close()
    shop = Shop(world, "other")
    assert not recover_interrupted_command(shop.journal, "shop", shop.workspace, shop.kept)
    assert read_message_changes(shop.journal, "shop", shop.kept) == []
    shop.close()


def test_a_workspace_that_is_moved_back_is_used_again(here: World) -> None:
    root = here.workspace

    def there_and_back(_: Path) -> None:
        root.rename(root.with_name("moved")).rename(root)

    async def act(agent: Agent) -> list[bool]:
        async with agent.run("Write") as run:
            return [event.is_error async for event in run if isinstance(event, ToolFinished) and event.name == "Write"]

    assert asyncio.run(_use_after(here, there_and_back, act))[0] is False
    assert (root / "new" / "b.txt").read_text() == "b\n"


def test_a_record_identifies_the_directory_for_another_process(tmp_path: Path) -> None:
    root = tmp_path / "ws"
    root.mkdir()
    held = WorkspaceIdentity.of_directory(str(root))
    assert held is not None
    record = held.to_record()
    stored = WorkspaceIdentity.from_record(json.loads(json.dumps(record)))
    assert stored is not None
    assert stored.is_at(str(root))
    assert stored.to_record() == record
    del held
    for _ in range(5):  # the inode is often used again
        _delete_and_create(root)
        assert not stored.is_at(str(root))
    for unreadable in (None, [], [1, 2], "x", [1, "2", 3], {}):
        assert WorkspaceIdentity.from_record(unreadable) is None


def test_a_deleted_working_directory_is_reported_by_every_command(world: World) -> None:
    gone = world.workspace / "gone"
    for arguments in (
        ("skills", "list"),
        ("skills", "validate", "x"),
        ("agents",),
        ("-p", "hello"),
        ("doctor",),
        ("lock",),
        ("audit", "."),
        ("undo",),
        ("mcp",),
        ("trust",),
    ):
        done = run_in_deleted_directory(world, gone, *arguments)
        assert done[0] == 6, (arguments, done)
        assert "the current directory no longer exists" in done[1], (arguments, done)
        assert "Traceback" not in done[1]


def run_in_deleted_directory(world: World, gone: Path, *arguments: str) -> tuple[int, str]:
    import subprocess
    import sys

    gone.mkdir()
    program = "import os, sys; os.rmdir(os.getcwd()); from kitbag.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, *arguments],  # as the installed program, which does not search here
        cwd=gone,
        env=world.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TEST_TIMEOUT,
    )
    return done.returncode, done.stdout + done.stderr
