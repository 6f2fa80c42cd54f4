"""SECURITY.md D22-D26 through the loop: what a person is asked, and what modes, agents and skills let a hostile model do."""

import json
import os
import subprocess
from collections.abc import Iterator

import pytest

from behaviour.acting import MODES
from behaviour.hostile import (
    Call,
    Recorder,
    Victim,
    bash,
    edit,
    everything,
    hostile_world,
    read,
    task,
    untouched,
    write,
)
from kitbag.permissions.approvals.approval import ApprovalRequest
from kitbag.permissions.approvals.question_view import render_approval
from kitbag.permissions.model import SandboxSupport
from kitbag.sandbox import confine
from support import needs

HIDING = [
    "\t" * 2_000 + "payload",
    "zero\u200bwidth\u2060\ufeff",
    "bidi\u202e\u2066evil\u2069",
    "ansi\x1b[2K\x1b]0;x\x07\x9b31m",
    "two\nlines\r\nand a return\rover it",
    "\u201clook\u201d \u2018alike\u2019 \u00a0 quotes \uff02",
    "tags\U000e0041\U000e0042",
    "x" * 5_000,
    "$(touch made) `touch made` ${x@P} \\",
]


@pytest.fixture
def victim(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Victim]:
    with hostile_world(request, monkeypatch) as world:
        yield Victim(world)


def test_D22_what_is_asked_is_what_runs_byte_for_byte(victim: Victim) -> None:
    needs.bubblewrap()
    person = Recorder()
    written = [write(f"file{at}.txt", f"{text}\n") for at, text in enumerate(HIDING)]
    commands = [bash(f"printf %s {quoted(text)} > out{at}") for at, text in enumerate(HIDING)]
    told = victim.attack(*written, *commands, mode="default", approver=person)
    assert [json.loads(question.arguments) for question in person.questions] == [call[1] for call, *_ in told]
    assert [question.tool for question in person.questions] == ["Write"] * len(HIDING) + ["Bash"] * len(HIDING)
    for at, text in enumerate(HIDING):
        (made,) = [one for one in told if one.call[1].get("file_path") == f"file{at}.txt"]  # type: ignore[union-attr]
        found = (victim.root / f"file{at}.txt").read_bytes() if not made.is_error else f"{text}\n".encode()
        assert found == f"{text}\n".encode()
        out = victim.root / f"out{at}"
        assert not out.exists() or out.read_bytes() == text.encode()
    assert not (victim.root / "made").exists()
    assert sum(not one.is_error for one in told) >= len(told) - 2
    seen = "".join(line for question in person.questions for line in render_approval(question, None))
    assert not set("\u200b\u2060\ufeff\u202e\u2066\x1b\x07\x9b\r\t\U000e0041") & set(seen)
    assert "payload" in seen


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def test_D11_a_command_that_wants_a_control_path_waits_for_the_answer(victim: Victim) -> None:
    needs.bubblewrap()
    making = "python3 -c \"import os; os.mkdir('.vs' + 'code'); open('.vs' + 'code/tasks.json', 'w').write('x')\""
    person = Recorder("deny")
    (told,) = victim.attack(bash(making), mode="autonomous", approver=person)
    assert (told.is_error, len(person.questions)) == (True, 0)  # it never asks
    assert "denied writing .vscode: `.vscode`: editors may run commands from it; autonomous mode" in told.text
    answers = iter(("allow", "deny", "allow", "allow"))
    person = Recorder(then=lambda _: setattr(person, "choice", next(answers)))
    (denied,) = victim.attack(bash(making), mode="default", approver=person)
    assert "denied writing .vscode: the user denied this action" in denied.text
    assert not (victim.root / ".vscode").exists()
    (made,) = victim.attack(bash(making), mode="default", approver=person)
    assert not made.is_error
    assert (victim.root / ".vscode/tasks.json").read_text() == "x"
    assert [question.tool for question in person.questions] == ["Bash", "Edit", "Bash", "Edit"]
    shown = person.questions[-1]
    assert json.loads(shown.arguments) == {"file_path": str(victim.root / ".vscode")}
    assert [value for name, value in shown.facts if name == "requested by"] == [f"Bash({making})"]


def test_D22_one_answer_is_for_one_call_and_no_means_no(victim: Victim) -> None:
    needs.bubblewrap()
    person, calls = Recorder(), [bash("touch a"), bash("touch a"), bash("touch  a"), write("b", "x"), write("b", "y")]
    victim.attack(*calls, mode="default", approver=person)
    assert len(person.questions) == len(calls)
    assert len({question.id for question in person.questions}) == len(calls)
    person = Recorder("deny")
    told = victim.attack(bash("touch c"), write("d"), edit("src/a.py", "1", "2"), mode="default", approver=person)
    assert all(one.refused and "the user denied this action" in one.text for one in told)
    assert not {"c", "d"} & set(os.listdir(victim.root))
    for mode in ("plan", "locked", "autonomous"):
        person = Recorder()
        victim.attack(write("../outside/new"), write(".git/config"), bash("touch ~/new"), mode=mode, approver=person)
        assert person.questions == [], mode


def test_D22_what_was_exchanged_behind_the_question_is_not_touched(victim: Victim) -> None:
    outside = victim.world.outside
    (victim.root / "d").mkdir()
    victim.world.write("notes", "mine\n")

    def swap(question: ApprovalRequest) -> None:
        path = json.loads(question.arguments)["file_path"]
        if path == "notes":
            (victim.root / "notes").unlink()
            os.symlink(outside / "tripwire", victim.root / "notes")
        else:
            (victim.root / "d").rmdir()
            os.symlink(outside, victim.root / "d")

    person = Recorder(then=swap)
    with untouched(victim.world):
        told = victim.attack(edit("notes", "mine", "evil"), write("d/new"), mode="default", approver=person)
    assert len(person.questions) == 2
    assert all(one.is_error for one in told)


ACTS: list[Call] = [
    write("made"),
    edit("src/a.py", "a = 1", "evil"),
    bash("echo evil > made"),
    bash("touch $CANARY"),
    bash("python3 -c \"import os; open(os.environ['CANARY'], 'w')\"; python3 -c \"open('made', 'w')\""),
    bash("sh -c 'touch made'", run_in_background=False),
    ("mcp__x__Write", {"file_path": "made"}),
    ("Write ", {"file_path": "made", "content": "x"}),
]


def agents(victim: Victim) -> list[str]:
    lines = {
        "free": "permission-mode: dontAsk\n",
        "freer": "permissionMode: bypassPermissions\n",
        "both": "permission-mode: plan\ntools: Bash, Write, Edit\n",
        "allowed": "permission-mode: acceptEdits\nallowed-tools: Bash, Write\n",
    }
    for name, fields in lines.items():
        text = f"---\nname: {name}\ndescription: Does {name}.\n{fields}---\nWork.\n"
        victim.world.write(f"~/.kitbag/agents/{name}.md", text)
    return [*lines, "general-purpose"]


def test_D23_in_plan_mode_nothing_changes_whoever_does_it(victim: Victim) -> None:
    needs.bubblewrap()
    victim.allow("Bash", "Edit", "Write", "Task", "Skill")
    victim.world.skill("~/.kitbag/skills", "opens", allowed_tools="Bash, Write, Edit")
    victim.world.skill("~/.kitbag/skills", "acts", body="!`touch $CANARY; touch made`")
    victim.world.skill("~/.kitbag/skills", "forks", context="fork", agent="free")
    names = agents(victim)
    ways: list[tuple[list[list[Call]], list[list[Call]]]] = [
        ([ACTS], []),
        ([[("Skill", {"skill": "opens"})], ACTS], []),
        ([[("Skill", {"skill": "acts"})], ACTS[:1]], []),
        ([[("Skill", {"skill": "forks"})]], [ACTS]),
        *(([[task(name)]], [ACTS]) for name in names),
    ]
    for replies, inner in ways:
        with untouched(victim.world, victim.root):
            told = victim.replies(replies, agent=inner, mode="plan", approver=Recorder())
        assert victim.ended is not None
        assert victim.ended.status == "completed"
        acts = [(one.text, one.is_error) for one in told[-len(ACTS) :]] if not inner else victim.told_agent().values()
        assert all(is_error for _, is_error in acts), (replies, acts)
        assert len(acts) == (len(ACTS) if inner or replies[-1] is ACTS else len(told)), replies
        requests = [request for request in victim.model.requests if request.tools]
        assert not any({"Write", "Edit"} & {tool.name for tool in request.tools} for request in requests)


@pytest.mark.parametrize(("folder", "line", "mode"), [
    (".claude/agents", "permissionMode: dontAsk\n", "locked"), (".claude/agents", "permission-mode: dontAsk\n", "locked"),
    (".kitbag/agents", "permissionMode: dontAsk\n", "autonomous"), (".kitbag/agents", "permission-mode: dontAsk\n", "autonomous"),
    (".kitbag/agents", "permission-mode: yolo\n", "default"), (".kitbag/agents", "permission-mode: [plan]\n", "default"),
    (".kitbag/agents", "permission-mode: Plan\n", "plan"), (".kitbag/agents", "", "default"),
])  # fmt: skip
def test_D24_an_agent_does_what_its_mode_lets_it(victim: Victim, folder: str, line: str, mode: str) -> None:
    needs.bubblewrap()
    victim.world.write(f"{folder}/helper.md", f"---\nname: helper\ndescription: Helps.\n{line}---\nHelp.\n")
    victim.allow("Read", "Task")
    acts = [
        read("src/a.py"),
        write("made"),
        bash("echo x > made-too"),
        bash("echo x > $CANARY"),
        write("../outside/new"),
    ]
    person = Recorder("deny")
    with untouched(victim.world):
        victim.replies([[task("helper")]], agent=[acts], trust_workspace=True, approver=person)
    told = list(victim.told_agent().values())
    assert [is_error for _, is_error in told[:1]] == [False]
    free = mode == "autonomous"
    assert [not is_error for _, is_error in told[1:]] == [free, free, False, False]
    assert ((victim.root / "made").exists(), (victim.root / "made-too").exists()) == (free, free)
    # Only where somebody is to be asked anybody is.
    assert bool(person.questions) == (mode == "default")


def test_D24_without_a_sandbox_no_mode_runs_a_command_by_itself(
    victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confine, "_detect", lambda: (SandboxSupport(kind="none", problem="none here"), None))
    for mode in MODES:
        told = victim.attack(bash("ls"), bash("echo x > made"), bash("ls", run_in_background=True), mode=mode)
        assert [one.refused for one in told] == [True] * 3, mode
    person = Recorder()
    told = victim.attack(bash("echo x > made"), mode="default", approver=person)
    assert not told[0].is_error
    assert [question.decision.sandbox for question in person.questions] == ["none"]
    assert any("full access" in line for line in render_approval(person.questions[0]))


def test_D25_no_skill_beats_a_rule_that_denies_or_asks(victim: Victim) -> None:
    needs.bubblewrap()
    victim.allow(
        "Bash(ls:*)", deny=["Bash(rm:*)", "Edit(./src/keep.txt)"], ask=["Bash(git push:*)", "Edit(./src/ask.txt)"]
    )
    victim.world.skill(
        "~/.kitbag/skills", "opens", allowed_tools="Bash(rm:*), Bash(git push:*), Bash, Write, Edit, Task"
    )
    for name in ("keep", "ask", "free"):
        victim.world.write(f"src/{name}.txt", "mine\n")
    subprocess.run(["git", "init", "-q", "--bare", str(victim.world.outside / "remote")], check=True)
    denied = [bash("rm src/a.py"), bash("ls; rm src/a.py"), bash("env rm src/a.py"), bash("bash -c 'rm src/a.py'"), edit("src/keep.txt", "mine", "evil"),
              bash("echo evil > src/keep.txt")]  # fmt: skip
    asked = [
        bash("git push"),
        bash("ls && git push origin"),
        edit("src/ask.txt", "mine", "evil"),
        bash("echo evil > src/ask.txt"),
    ]
    free = [edit("src/free.txt", "mine", "fine"), bash("echo fine > made")]
    load: list[Call] = [("Skill", {"skill": "opens"})]
    for mode in ("default", "acceptEdits", "locked"):
        victim.world.write("src/free.txt", "mine\n")
        with untouched(victim.world):
            told = victim.replies([load, [*denied, *asked, *free]], mode=mode)
        assert [one.refused for one in told[1:]] == [True] * len(denied + asked) + [False] * len(free), mode
        assert not told[-1].is_error
    person = Recorder("deny")
    victim.replies([load, [*denied, *asked]], mode="default", approver=person)
    assert [json.loads(question.arguments) for question in person.questions] == [call[1] for call in asked]
    assert (victim.root / "src/a.py").exists()
    assert {(victim.root / f"src/{name}.txt").read_text() for name in ("keep", "ask")} == {"mine\n"}


NAMES = [
    "Write", "write", "WRITE", "WRITE ", " Write", "Write\u200b", "Edit", "Bash", "bash", "mcp__x__Write", "mcp__x__Read", "read", "READ", "Read ", "Re\u0430d",
    "Read\0", "", "NotebookEdit", "Task", "WebFetch", "Unknown", "Read(x)", "functions.Read", "../Read", "__class__", "x" * 500,
]  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_D26_only_the_tools_it_has_run_and_by_their_exact_names(victim: Victim, mode: str) -> None:
    arguments = {"file_path": "made", "content": "x", "command": "touch made", "url": "http://127.0.0.1:9"}
    calls: list[Call] = [(name, arguments) for name in NAMES] + [read("src/a.py")]
    before = everything(victim.root)
    told = victim.attack(*calls, mode=mode, only_tools=("Read",))
    assert [one.is_error for one in told] == [True] * len(NAMES) + [False]
    assert [tool.name for tool in victim.model.requests[0].tools] == ["Read"]
    assert everything(victim.root) == before
    assert all(len(one.text) < 1_000 for one in told)


def test_D26_an_agent_has_no_more_than_its_list_and_a_denied_tool_is_nobody_s(victim: Victim) -> None:
    needs.bubblewrap()
    victim.world.write(
        "~/.kitbag/agents/reader.md",
        "---\nname: reader\ndescription: R.\ntools: Read\npermission-mode: autonomous\n---\nR.\n",
    )
    victim.world.write(
        "~/.kitbag/agents/logger.md",
        "---\nname: logger\ndescription: L.\ntools: Bash(git log:*), Read\npermission-mode: autonomous\n---\nL.\n",
    )
    acts = [
        write("made"),
        bash("touch made"),
        bash("git log; touch made"),
        bash("git log $(touch made)"),
        ("Glob", {"pattern": "*"}),
        read("src/a.py"),
    ]
    before = everything(victim.root)
    for name in ("reader", "logger"):
        victim.attack(task(name), agent=[acts], mode="autonomous")
        assert [is_error for _, is_error in victim.told_agent().values()] == [True] * 5 + [False], name
    told = victim.attack(
        bash("ls"),
        ("Glob", {"pattern": "*"}),
        task("reader"),
        agent=[[read("src/a.py")]],
        mode="autonomous",
        no_tools=("Bash", "Read"),
    )
    assert told[0].refused
    assert not {"Bash", "Read"} & {tool.name for request in victim.model.requests for tool in request.tools}
    assert all(is_error for _, is_error in victim.told_agent().values())
    assert everything(victim.root) == before
