"""`kitbag store`: damage to the journal is reported by every command until it is acknowledged, and nothing from before
it runs again by itself."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from conftest import World
from kitbag.permissions.approvals.approval import ApprovalAnswer, ApprovalRequest, action_digest
from kitbag.permissions.approvals.queue import ApprovalQueue
from kitbag.permissions.model import PermissionDecision
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board
from kitbag.tasks.task import TaskRequest, TaskResult


@pytest.fixture
def journal_file(world: World) -> Path:
    return Path(journal_path(str(world.home / ".kitbag")))


def add_tasks(path: Path, world: World, *ids: str, ends: bool = True) -> None:
    async def add() -> None:
        with Journal.open(str(path), Redactor([])) as journal:
            board = Board(journal)
            for task_id in ids:
                request = TaskRequest(agent="Explore", prompt="What?", directory=str(world.workspace))
                await board.create(task_id, "agent", request, root="r", parent="", depth=1, background=True)
            for task_id in ids if ends else ():
                assert await board.claim(board.find(task_id))
                assert await board.finish(task_id, 1, TaskResult(status="completed", text="Done."))

    asyncio.run(add())


def lose_the_end(path: Path) -> None:
    """Changes a byte of one end, as a defect of the disk would."""
    data = bytearray(path.read_bytes())
    where = data.index(b'"status":"completed"')  # a page is filled from its end
    data[where + 12] ^= 1
    path.write_bytes(data)


def statuses(world: World) -> dict[str, str]:
    return {one["id"]: one["status"] for one in json.loads(world.run("tasks", "list", "--json").stdout)}


def test_a_task_whose_end_was_lost_waits_for_the_user_and_every_command_says_so(
    world: World, journal_file: Path
) -> None:
    add_tasks(journal_file, world, "aaa000000001", "aaa000000002")
    assert set(statuses(world).values()) == {"completed"}
    lose_the_end(journal_file)
    listed = world.run("tasks", "list", "--json")
    assert "warning: the journal was damaged (record" in listed.stderr
    assert "kitbag store acknowledge" in listed.stderr
    found = {one["id"]: one for one in json.loads(listed.stdout)}
    assert sorted(one["status"] for one in found.values()) == ["completed", "interrupted"]
    [held] = [one for one in found.values() if one["status"] == "interrupted"]
    assert "check what it did before you resume it" in held["error"]
    for arguments in (("skills", "list"), ("sessions", "list"), ("config", "list"), ("doctor",)):
        assert "the journal was damaged" in world.run(*arguments).stderr, arguments
    about = json.loads(world.run("doctor", "--json").stdout)
    assert about["notices"][0]["severity"] == "warning"
    assert "the journal was damaged" in world.run("store", "status").stdout
    assert "the journal was damaged" in world.run("-p", "Hi", "--model", "offline").stderr
    assert world.run("store", "acknowledge").returncode == 0
    assert "damaged" not in world.run("tasks", "list").stderr
    assert "nothing to acknowledge" in world.run("store", "acknowledge").stdout


def test_a_queued_task_from_before_the_damage_is_started_only_by_the_user(world: World, journal_file: Path) -> None:
    script = {"rules": [{"system": "## Your Task\nWhat", "replies": [{"text": "42."}]}]}
    world.env["KITBAG_MODEL"] = f"scripted:{world.write('~/script.json', json.dumps(script))}"
    add_tasks(journal_file, world, "aaa000000001", ends=False)
    add_tasks(journal_file, world, "aaa000000002")
    lose_the_end(journal_file)
    assert statuses(world)["aaa000000001"] == "interrupted"
    resumed = world.run("tasks", "resume", "aaa000000001", "Go on")
    assert resumed.returncode == 0, resumed.stderr
    done = world.run("tasks", "output", "aaa000000001", "--wait", "60")
    assert done.returncode == 0, done.stderr
    assert statuses(world)["aaa000000001"] == "completed"


def test_an_answer_from_before_the_damage_is_not_used_again(journal_file: Path) -> None:
    digest = action_digest("Bash", "{}", "/")
    decision = PermissionDecision(effect="ask", reason="", parts=(), sandbox="workspace", network=False)
    request = ApprovalRequest(
        id="q1", tool="Bash", arguments="{}", directory="/", decision=decision, digest=digest, asked_by="x"
    )

    async def ask() -> None:
        with Journal.open(str(journal_file), Redactor([])) as journal:
            queue = ApprovalQueue(journal)
            await queue.put(request)
            queue.answer("q1", ApprovalAnswer(choice="allow"))
            assert queue.find_same_request(request) == "q1"
            await queue.mark_used("q1")

    asyncio.run(ask())
    data = bytearray(journal_file.read_bytes())
    data[data.index(b'{"id":"q1"}') + 8] ^= 1  # the record of its use
    journal_file.write_bytes(data)
    with Journal.open(str(journal_file), Redactor([])) as journal:
        assert journal.recovery is not None
        assert ApprovalQueue(journal).find_same_request(request) is None


@pytest.mark.parametrize(
    "arguments", [("tasks", "list"), ("sessions", "list"), ("store", "status"), ("store", "check")]
)
def test_a_journal_that_is_no_database_is_reported_and_nothing_fails_for_good(
    world: World, journal_file: Path, arguments: tuple[str, ...]
) -> None:
    add_tasks(journal_file, world, "aaa000000001")
    journal_file.write_bytes(b"no database" * 1000)
    assert "Traceback" not in world.run(*arguments).stderr
    done = world.run(*arguments)
    assert "Traceback" not in done.stderr
    assert done.returncode == (1 if arguments == ("store", "check") else 0)
    assert world.run("tasks", "list").returncode == 0


def test_a_check_reads_every_record(world: World, journal_file: Path) -> None:
    assert "0 records checked" in world.run("store", "check").stdout
    add_tasks(journal_file, world, "aaa000000001")
    assert "4 records checked, no problems" in world.run("store", "check").stdout
    lose_the_end(journal_file)
    done = world.run("store", "check", "--json")
    assert done.returncode == 1
    assert "checksum" in json.loads(done.stdout)["problem"]
    assert (journal_file.parent / "journal.db.check").exists()


def test_an_agent_cannot_acknowledge_damage(world: World) -> None:
    from kitbag.processes.descendants import MARKER_VARIABLE

    world.env[MARKER_VARIABLE] = "1"
    done = world.run("store", "acknowledge")
    assert done.returncode == 6
    assert "agent" in done.stderr


def test_the_size_of_what_is_stored_is_shown(world: World, journal_file: Path) -> None:
    add_tasks(journal_file, world, "aaa000000001")
    about: dict[str, Any] = json.loads(world.run("store", "status", "--json").stdout)
    assert about["journal_bytes"] > 4096
    assert about["damage"] == []


def test_an_age_is_checked_and_pruning_is_shown_before_it_is_done(world: World, journal_file: Path) -> None:
    for age in ("soon", "d", "-1d", "90", "9" * 9 + "d"):
        assert world.run("store", "prune", "--older-than", age).returncode == 2
    assert "would delete 0 sessions" in world.run("store", "prune", "--older-than", "90d", "--dry-run").stdout
    add_tasks(journal_file, world, "aaa000000001")
    about = json.loads(world.run("store", "prune", "--older-than", "1w", "--dry-run", "--json").stdout)
    assert (about["tasks"], about["dry_run"]) == ([], True)
    assert world.run("sessions", "delete", "nothing").returncode == 4


def test_a_session_is_deleted_by_the_user_alone(world: World) -> None:
    from kitbag.processes.descendants import MARKER_VARIABLE

    world.run("-p", "Hello there", "--model", "offline")
    [session] = json.loads(world.run("sessions", "list", "--json").stdout)
    world.env[MARKER_VARIABLE] = "1"
    assert world.run("sessions", "delete", session["id"]).returncode == 6
    assert world.run("store", "prune").returncode == 6
    del world.env[MARKER_VARIABLE]
    assert f"deleted session {session['id']}" in world.run("sessions", "delete", session["id"][:6]).stdout
    assert json.loads(world.run("sessions", "list", "--json").stdout) == []
