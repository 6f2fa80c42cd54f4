"""Every command that reads what Kitbag stored prints the same from PostgreSQL as from the file it was copied from."""

import asyncio
import difflib
import json
import re
import shutil
from pathlib import Path
from typing import Any, Final

import click

from conftest import World
from kitbag.agent.inbox import Inbox
from kitbag.cli.root import cli
from kitbag.permissions.approvals.approval import ApprovalRequest, action_digest
from kitbag.permissions.approvals.queue import ApprovalQueue
from kitbag.permissions.model import PermissionDecision
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board
from kitbag.tasks.task import TaskRequest, TaskResult
from support.matrix import long
from support.postgres import Schema

LARGE: Final = "A line of text that a model was shown.\n" * 200
EDIT: Final = {"name": "Write", "arguments": {"file_path": "a.txt", "content": LARGE}}
SKILL: Final = {"name": "Skill", "arguments": {"name": "tidy"}}
REPLIES: Final[list[Any]] = [{"calls": [SKILL]}, {"calls": [EDIT]}, f"One. {LARGE}", f"Two. {LARGE}", f"Three. {LARGE}"]
COMPARED: Final[tuple[tuple[str, ...], ...]] = (
    ("sessions", "list"),
    ("sessions", "list", "--all"),
    ("sessions", "show", "SESSION"),
    ("sessions", "show", "FORK"),
    ("sessions", "export", "SESSION"),
    ("sessions", "export", "FORK"),
    ("sessions", "export", "TASK"),
    ("tasks", "list"),
    ("tasks", "list", "--all"),
    ("tasks", "list", "--running"),
    ("tasks", "list", "--svg", "-"),
    ("tasks", "show", "TASK"),
    ("tasks", "show", "aaa000000001"),
    ("tasks", "show", "aaa000000002"),
    ("tasks", "output", "TASK"),
    ("tasks", "output", "aaa000000002"),
    ("tasks", "resume", "--all"),
    ("context", "show", "--session", "SESSION"),
    ("context", "show", "--session", "FORK"),
    ("context", "show", "--session", "SESSION", "--call", "1"),
    ("context", "calls", "--session", "SESSION"),
    ("context", "check", "--session", "SESSION"),
    ("context", "diff", "1", "2", "--session", "SESSION"),
    ("undo", "--list", "--session", "SESSION"),
    ("undo", "--show", "--session", "SESSION"),
    ("undo", "--list", "--session", "FORK"),
    ("skills", "usage"),
    ("skills", "explain", "--session", "SESSION"),
    ("permissions", "pending"),
    ("fleet", "status"),
    ("store", "prune", "--older-than", "1", "--dry-run"),
    ("store", "check"),
    ("sessions", "show", "nothing"),
    ("tasks", "show", "nothing"),
)
LAST_MINUTE: Final = re.compile(r'("last_minute": |^this machine(?: +\d+){4} +)\d+', re.MULTILINE)
"""How many tasks ended in the last minute: fewer as time passes, in `fleet status` and its JSON."""
WITHOUT_JSON: Final = (("tasks", "list", "--svg", "-"), ("store", "check"))
NOT_COMPARED: Final = {
    "writes": "init new skills.disable skills.enable skills.set agents.disable agents.enable agents.run plugins.disable"
    " plugins.enable plugins.install plugins.remove sessions.delete tasks.send tasks.stop tasks.apply fleet.drain fleet.retry"
    " setup"
    " permissions.answer permissions.run trust.add trust.remove quarantine.delete quarantine.restore config.set"
    " config.unset store.acknowledge store.copy skills.index lock",
    "runs on": "tasks.watch web worker mcp",
    "does not read the journal": "skills.budget skills.lint skills.list skills.search skills.show skills.test"
    " skills.validate skills.which agents.list agents.search agents.show personas.list personas.show plugins.list pack"
    " models.list models.show servers.list servers.test permissions.list permissions.test trust.list trust.show audit"
    " quarantine.list config.get config.list config.where",
    "says where the records are": "doctor store.status",
}


def test_every_command_is_compared_or_has_a_reason_not_to_be() -> None:
    found: set[str] = set()

    def walk(command: click.Command, names: tuple[str, ...]) -> None:
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                one = command.get_command(click.Context(command), name)
                assert one is not None
                walk(one, (*names, name))
        else:
            found.add(".".join(names))

    walk(cli, ())
    depth = {name: name.count(".") + 1 for name in found}
    compared = {".".join(one[:length]) for one in COMPARED for length in (1, 2)} & set(depth)
    excused = {name for names in NOT_COMPARED.values() for name in names.split()}
    assert compared | excused == found
    assert not compared & excused


def populate(world: World) -> dict[str, str]:
    """Returns the ids of a session, its fork and a task."""
    world.skill("~/.kitbag/skills", "tidy", body=LARGE)
    script = world.write("~/script.json", json.dumps(REPLIES))
    options = ("--model", f"scripted:{script}", "--permission-mode", "acceptEdits", "--allowed-tools", "Write,Skill")
    world.ok("-p", f"Use the tidy skill. {LARGE}", *options)
    world.ok("-p", "And again.", "--continue", "--fork", *options)
    rules = {"rules": [{"system": "## Your Task\nWhat", "replies": [{"text": f"It is 42. {LARGE}"}]}]}
    answer = world.write("~/answer.json", json.dumps(rules))
    world.ok("agents", "run", "Explore", f"What is it? {LARGE}", "--model", f"scripted:{answer}")
    asyncio.run(add_tasks(world))
    sessions = {one["forked_from"]: one["id"] for one in world.json("sessions", "list")}
    tasks = [one["id"] for one in world.json("tasks", "list") if one["status"] == "completed"]
    return {"SESSION": sessions[""], "FORK": next(sessions[name] for name in sessions if name), "TASK": tasks[-1]}


async def add_tasks(world: World) -> None:
    decision = PermissionDecision(effect="ask", reason="why", parts=(), sandbox="workspace", network=False)
    arguments = json.dumps({"command": "make"})
    digest = action_digest("Bash", arguments, "/")
    question = ApprovalRequest(
        id="q1", tool="Bash", arguments=arguments, directory="/", decision=decision, digest=digest, asked_by="x"
    )
    with Journal.open(journal_path(str(world.home / ".kitbag")), Redactor([])) as journal:
        board = Board(journal)
        for task_id, status in (("aaa000000001", "interrupted"), ("aaa000000002", "completed")):
            request = TaskRequest(agent="Explore", prompt=LARGE, directory=str(world.workspace), description="Find it")
            task = await board.create(task_id, "agent", request, root="r", parent="", depth=1, background=True)
            assert await board.claim(task)
            await board.finish(task_id, 1, TaskResult(status=status, text=LARGE, turns=3, tokens=9, cost=0.5))  # type: ignore[arg-type]
        await ApprovalQueue(journal).put(question)
        await Inbox(journal, "aaa000000001").send("Look at this.")


def outputs(world: World, ids: dict[str, str], home: Path) -> dict[str, str]:
    """Each command starts with an empty mirror."""
    found: dict[str, str] = {}
    for arguments in COMPARED:
        named = [ids.get(one, one) for one in arguments]
        for more in ((), ("--json",)) if arguments not in WITHOUT_JSON else ((),):
            for file in (home / "state").glob("mirror-*"):
                file.unlink()
            done = world.run(*named, *more)
            text = f"{done.returncode}\n{done.stdout}\n{done.stderr}".replace(str(home), "HOME")
            text = re.sub(r"\d+(\.\d+)? ?(s|m|seconds?|minutes?)\b( ago)?", "DURATION", text)
            found[" ".join((*named, *more))] = LAST_MINUTE.sub(r"\1COUNT", text)
    return found


@long
def test_what_was_copied_is_shown_as_before(world: World, schema: Schema, tmp_path: Path) -> None:
    home = world.home / ".kitbag"
    ids = populate(world)
    before = outputs(world, ids, home)
    assert not [name for name, text in before.items() if "Traceback" in text]
    world.env["PYTHONHASHSEED"] = "1"  # so that the program imports only what it needs for this
    world.ok("store", "copy", "--to", schema.url)
    del world.env["PYTHONHASHSEED"]
    [(briefs,)] = schema.rows("SELECT count(brief) FROM kitbag_records")
    assert briefs > 5
    other = tmp_path / "other" / ".kitbag"
    shutil.copytree(home, other, ignore=shutil.ignore_patterns("journal.db*", "worker*"))
    world.env |= {"KITBAG_DATABASE_URL": schema.url, "KITBAG_HOME": str(other)}
    after = outputs(world, ids, other)
    differing = {
        name: "\n".join(difflib.unified_diff(before[name].split("\n"), after[name].split("\n"), lineterm=""))
        for name in before
        if before[name] != after[name]
    }
    assert not differing, "\n\n".join(f"{name}\n{text}" for name, text in differing.items())
