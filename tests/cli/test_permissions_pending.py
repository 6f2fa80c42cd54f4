"""`kitbag permissions pending` and `answer`, as a person uses them while a background agent waits."""

import asyncio
import json
import os
import stat

import pytest

from conftest import World
from kitbag.permissions.approvals.approval import ApprovalAnswer, ApprovalRequest, action_digest, canonical_json
from kitbag.permissions.approvals.queue import ApprovalQueue
from kitbag.permissions.model import DecisionPart, PermissionDecision
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor

SECRET = "CANARY_SECRET_4f7a9c"


def put(
    world: World,
    command: str = "git push",
    name: str = "0badcafe",
    tool: str = "Bash",
    directory: str = "/w",
    **edit: str,
) -> None:
    arguments = canonical_json(edit or {"command": command})
    judgement = PermissionDecision(
        effect="ask",
        reason="uses the network",
        parts=(DecisionPart(what=command, effect="ask", reason="why"),),
        sandbox="workspace",
        network=True,
    )
    digest = action_digest(tool, arguments, directory)
    with Journal.open(journal_path(str(world.home / ".kitbag")), Redactor([SECRET])) as journal:
        asyncio.run(
            ApprovalQueue(journal).put(
                ApprovalRequest(
                    id=name,
                    tool=tool,
                    arguments=arguments,
                    directory=directory,
                    decision=judgement,
                    digest=digest,
                    asked_by="task-1",
                )
            )
        )


def answer_of(world: World, name: str = "0badcafe") -> ApprovalAnswer | None:
    with Journal.open(journal_path(str(world.home / ".kitbag")), Redactor()) as journal:
        return asyncio.run(ApprovalQueue(journal).wait(name, 0))


def test_without_questions_there_is_nothing_and_nothing_is_made(world: World) -> None:
    done = world.run("permissions", "pending")
    assert (done.returncode, done.stdout) == (0, "")
    assert "0 questions" in done.stderr
    assert world.json("permissions", "pending") == []
    assert world.run("permissions", "answer", "x", "deny").returncode == 4
    assert not (world.home / ".kitbag").exists()


def test_a_question_is_shown_whole_with_what_hides_in_it(world: World) -> None:
    put(world, "ls" + "\t" * 2000 + "\u202e; \x1b[2Kid\n" + "x" * 9000)
    out = world.ok("permissions", "pending")
    assert "│ ls[2,000 tabs][U+202E]; [U+001B][2Kid\n│ " + "x" * 9000 in out
    assert "kitbag permissions answer 0badcafe allow|deny" in out
    assert "can write to the workspace, with network access" in out
    (found,) = world.json("permissions", "pending")
    assert found["arguments"]["command"].startswith("ls\t\t")
    assert (found["id"], found["whole"], found["asked_by"]) == ("0badcafe", True, "task-1")
    assert found["shown"][0] == "Bash, requested by task-1 [0badcafe]"


def test_an_edit_is_shown_as_the_diff_that_the_chat_shows(world: World) -> None:
    world.write("a.py", "one\ntwo\nthree\n")
    edit = {"file_path": "a.py", "old_string": "two", "new_string": "2\nwhy: all is well"}
    put(world, tool="Edit", directory=str(world.workspace), **edit)
    out = world.ok("permissions", "pending")
    assert "│ a.py\n│ 1   one\n│ 2 - two\n│ 2 + 2\n│ 3 + why: all is well\n│ 4   three\n" in out
    assert "old_string" not in out
    (found,) = world.json("permissions", "pending")
    assert "\n one\n-two\n+2\n" in found["diff"]
    assert "│ 2 - two" in found["shown"]


@pytest.mark.parametrize(
    ("arguments", "said", "wanted"),
    [
        (("allow",), "allowed once", ApprovalAnswer(choice="allow")),
        (("allow", "--session"), "allowed for the session", ApprovalAnswer(choice="allow", scope="session")),
        (("deny", "--reason", "push to a branch"), "denied", ApprovalAnswer(choice="deny", reason="push to a branch")),
    ],
)
def test_an_answer_reaches_the_one_who_asked(
    world: World, arguments: tuple[str, ...], said: str, wanted: ApprovalAnswer
) -> None:
    put(world)
    out = world.ok("permissions", "answer", "0bad", *arguments)
    assert "│ git push" in out
    assert out.endswith(f"{said}\n")
    assert answer_of(world) == wanted
    assert world.json("permissions", "pending") == []
    done = world.run("permissions", "answer", "0badcafe", "deny", "--json")
    assert done.returncode == 6
    assert "already answered" in json.loads(done.stderr)["error"]["problem"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("nothing", "allow"), 4),
        (("0", "allow"), 5),
        (("0badcafe", "maybe"), 2),
        (("0badcafe", "deny", "--session"), 2),
        (("0badcafe",), 2),
    ],
)
def test_a_wrong_answer_changes_nothing(world: World, arguments: tuple[str, ...], code: int) -> None:
    put(world)
    put(world, name="0badbeef")
    done = world.run("permissions", "answer", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert "Traceback" not in done.stderr
    assert len(world.json("permissions", "pending")) == 2


def test_an_agent_can_t_answer_for_the_user(world: World) -> None:
    put(world)
    world.env["KITBAG_COMMAND_ID"] = "x"
    done = world.run("permissions", "answer", "0badcafe", "allow")
    assert done.returncode == 6
    assert answer_of(world) is None


def test_what_holds_a_secret_can_only_be_denied(world: World) -> None:
    put(world, f"echo {SECRET}")
    done = world.run("permissions", "pending")
    assert "│ echo [REDACTED]" in done.stdout
    assert "can only be denied" in done.stderr
    assert SECRET not in json.dumps(world.json("permissions", "pending"))
    assert world.run("permissions", "answer", "0badcafe", "allow").returncode == 6
    world.ok("permissions", "answer", "0badcafe", "deny")


def test_a_damaged_journal_is_set_aside_and_told(world: World) -> None:
    put(world)
    path = world.home / ".kitbag/state/journal.db"
    path.write_bytes(b"no database")
    done = world.run("permissions", "pending")
    assert done.returncode == 0
    assert "the journal was damaged" in done.stderr
    assert "kitbag store acknowledge" in done.stderr
    (aside,) = (world.home / ".kitbag/state").glob("*damaged-1")
    assert (aside / "journal.db").read_bytes() == b"no database"
    assert stat.S_IMODE(os.lstat(path).st_mode) == 0o600


def test_a_journal_of_a_newer_kitbag_is_a_clear_error(world: World) -> None:
    import sqlite3

    put(world)
    connection = sqlite3.connect(world.home / ".kitbag/state/journal.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    done = world.run("permissions", "pending")
    assert (done.returncode, done.stdout) == (6, "")
    assert "newer version of Kitbag" in done.stderr
