"""SECURITY.md D22: a person sees all of what they agree to, and nothing else is then done. Terminal and queue; the web comes later."""

import asyncio
import json
import os

import pytest

from behaviour.acting import permissions
from conftest import World
from kitbag.permissions.approvals.approval import (
    ApprovalAnswer,
    ApprovalRequest,
    Approvals,
    Denial,
    Permit,
    PermitError,
)
from kitbag.permissions.approvals.question_view import render_approval
from kitbag.permissions.approvals.queue import ApprovalQueue, QueueApprover
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from support import needs
from support.matrix import sample
from support.terminal_program import TerminalProgram


class Person:
    """Says what was prepared, and remembers what was shown."""

    one_at_a_time = True

    def __init__(self, *answers: ApprovalAnswer) -> None:
        self.asked: list[ApprovalRequest] = []
        self._answers = list(answers)

    async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(question)
        return self._answers.pop(0)


def question_for(world: World, tool: str, **arguments: object) -> ApprovalRequest:
    person = Person(ApprovalAnswer(choice="deny"))
    asyncio.run(Approvals(person).authorize(permissions(world), tool, arguments))
    return person.asked[0]


# What hides, and how it must show.
HIDDEN = [
    ("ls" + "\t" * 2000 + "; touch payload", "[2,000 tabs]; touch payload"), ("ls" + " " * 3000 + "; touch payload", "[3,000 spaces]; touch payload"),
    ("ls" + "\n" * 500 + "touch payload", "touch payload"), ("touch pay\u200bload", "U+200B"), ("touch pay\u202edaol\u202c", "U+202E"), ("touch \u2066x\u2069", "U+2066"),
    ("touch \U000e0041x", "U+E0041"), ("touch x\u00ad", "U+00AD"), ("touch x\ufeff", "U+FEFF"), ("touch x\u3164", "U+3164"), ("touch x\u2800y", "U+2800"),
    ("touch \x1b[2K\x1b[1Apayload", "U+001B"), ("touch \x1b]0;t\x07payload", "U+0007"), ("touch \x9b31mpayload", "U+009B"), ("touch a\rls", "U+000D"), ("touch a\x08\x08ls", "U+0008"),
    ("touch \u2018a\u2019", "U+2018"), ("touch \u201ca\u201d", "U+201C"), ("touch p\u0430yload", "U+0430, not a"), ("echo\u00a0touch", "U+00A0"), ("touch \uff1bx", "U+FF1B"),
    ("touch a\u0300\u0301\u0302\u0303\u0304\u0305", "U+0302"), ("touch 'a[U+0041]'", "[U+005B]U+0041]"), ("touch x" + "y" * 20_000 + " payload", "more characters"), ("touch \udcff", "U+DCFF"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "visible"), sample(HIDDEN, 12, unpack=True), ids=lambda value: ascii(value)[:24])
def test_D22_nothing_hides_in_a_question(world: World, command: str, visible: str) -> None:
    question = question_for(world, "Bash", command=command)
    lines = "\n".join(render_approval(question))
    assert visible in lines
    everything = "\n".join(render_approval(question, max_characters=None))
    for text in (lines, everything):
        assert all(char == "\n" or char.isprintable() for char in text), ascii(text)
    if len(command) > 10_000:
        assert "payload" in everything
    # Bytes that are approved are those that are shown: the arguments are kept exactly.
    assert json.loads(question.arguments) == {"command": command}


def test_D22_paths_and_addresses_are_shown_with_where_they_lead(world: World) -> None:
    os.symlink("/etc/passwd", world.workspace / "notes")
    lines = "\n".join(
        render_approval(question_for(world, "Edit", file_path="notes", old_string="a", new_string="b\u202ec"))
    )
    for word in ("/etc/passwd", "U+202E", "old_string", "new_string"):
        assert word in lines
    lines = "\n".join(render_approval(question_for(world, "WebFetch", url="https://p\u0430ypal.com/?x=" + "y" * 5000)))
    assert "U+0430, not a" in lines
    lines = "\n".join(render_approval(question_for(world, "Task", subagent_type="evil", prompt="do\x1b[2Jit")))
    assert "U+001B" in lines


def test_D22_at_a_terminal_what_was_shown_is_run_and_no_means_no(world: World) -> None:
    needs.bubblewrap()
    command = "printf '%s' '\u200b" + "\t" * 2000 + "\u202e\x1b[2K' > out; touch\tsecond"
    for answer, made in (("n\n\n", False), ("\x03", False), ("x\nn\n\n", False), ("y\n", True)):
        terminal = TerminalProgram(world, "permissions", "run", command)
        terminal.until("\n> ")
        for word in ("U+200B", "[2,000 tabs]", "U+202E", "U+001B", "touch[tab]second"):
            assert word in terminal.screen, word
        assert not {"\u200b", "\u202e"} & set(terminal.screen)
        assert "\x1b[2K" not in terminal.screen
        terminal.type(answer)
        assert terminal.end() == (0 if made else 6), terminal.screen
        assert (world.workspace / "second").exists() is made
    written = (world.workspace / "out").read_text()
    assert written == "\u200b" + "\t" * 2000 + "\u202e\x1b[2K"


def test_D22_an_answer_is_for_one_use_of_exactly_that(world: World) -> None:
    made = permissions(world)
    for tool, arguments, others in (
        (
            "Bash",
            {"command": "git push"},
            [
                {"command": "git push "},
                {"command": "git push\u200b"},
                {"command": "git push", "x": 1},
                {"command": ["git push"]},
                {},
            ],
        ),
        (
            "Write",
            {"file_path": "../a", "content": "x"},
            [
                {"file_path": "../b", "content": "x"},
                {"file_path": "../a", "content": "y"},
                {"file_path": "../a", "content": "x", "mode": 7},
            ],
        ),
    ):
        for other in (*others, arguments):
            found = asyncio.run(Approvals(Person(ApprovalAnswer(choice="allow"))).authorize(made, tool, arguments))
            assert isinstance(found, Permit)
            if other is arguments:
                assert found.use(tool, dict(arguments)).effect == "ask"
            else:
                with pytest.raises(PermitError, match="not the action that was approved"):
                    found.use(tool, other)
            with pytest.raises(PermitError, match="already used"):
                found.use(tool, arguments)
    found = asyncio.run(
        Approvals(Person(ApprovalAnswer(choice="allow"))).authorize(made, "Bash", {"command": "git push"})
    )
    assert isinstance(found, Permit)
    later = permissions(world, deny=("Bash(git push:*)",))
    with pytest.raises(PermitError, match="no longer allowed"):
        found.use("Bash", {"command": "git push"}, permissions=later)


def test_D22_a_path_that_leads_elsewhere_by_now_is_asked_about_again(world: World) -> None:
    os.symlink(world.outside / "a", world.workspace / "notes")
    made = permissions(world)
    arguments = {"file_path": "notes", "content": "x"}
    found = asyncio.run(Approvals(Person(ApprovalAnswer(choice="allow"))).authorize(made, "Write", arguments))
    assert isinstance(found, Permit)
    os.unlink(world.workspace / "notes")
    os.symlink(world.home / ".bashrc", world.workspace / "notes")
    with pytest.raises(PermitError, match="changed since"):
        found.use("Write", arguments)


def test_D22_questions_of_background_work_are_answered_once_and_by_a_person(world: World) -> None:
    path = journal_path(str(world.home / ".kitbag"))
    command = "touch a\u202e\t\t; git push"

    async def ask() -> Permit | Denial:
        with Journal.open(path, Redactor()) as journal:
            approvals = Approvals(QueueApprover(ApprovalQueue(journal)))
            asking = asyncio.create_task(
                approvals.authorize(permissions(world), "Bash", {"command": command}, asked_by="task-1")
            )
            await journal.wait_async(0)
            pending = json.loads((await _run(world, "permissions", "pending", "--json"))[1])
            assert "U+202E" in "\n".join(pending[0]["shown"])
            question_id = pending[0]["id"]
            code, _ = await _run(world, "permissions", "answer", question_id, "allow")
            assert code == 0
            assert (await _run(world, "permissions", "answer", question_id, "deny"))[0] == 6
            return await asking

    found = asyncio.run(ask())
    assert isinstance(found, Permit)
    assert found.arguments == {"command": command}


async def _run(world: World, *words: str) -> tuple[int, str]:
    done = await asyncio.to_thread(world.run, *words)
    return done.returncode, done.stdout


def test_without_anybody_to_ask_nothing_that_must_be_asked_is_done(world: World) -> None:
    made = permissions(world)
    for tool, arguments in (
        ("Bash", {"command": "make"}),
        ("Write", {"file_path": "a"}),
        ("Task", {"subagent_type": "x"}),
        ("mcp__a__b", {}),
    ):
        found = asyncio.run(Approvals(None).authorize(made, tool, arguments))
        assert isinstance(found, Denial)
        assert found.by == "nobody"
