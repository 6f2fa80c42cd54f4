"""An answer is for exactly what was shown, once; deny holds at the moment of use, whoever said yes before."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import World
from kitbag.errors import KitbagError
from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.permissions.approvals.approval import (
    ApprovalAnswer,
    ApprovalRequest,
    Approvals,
    Denial,
    Permit,
    PermitError,
)
from kitbag.permissions.approvals.suggest_rule import suggest_rule
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import SandboxSupport, Workspace
from kitbag.permissions.rules.load import load_permissions
from kitbag.permissions.rules.rule import PermissionRules, parse_rule
from kitbag.settings import load_settings

BUBBLEWRAP = SandboxSupport(kind="bubblewrap", version="1", carve_outs=True)


class Person:
    """Answers in order, and remembers what was asked."""

    def __init__(self, *answers: ApprovalAnswer, one_at_a_time: bool = True) -> None:
        self.answers = list(answers)
        self.asked: list[ApprovalRequest] = []
        self._one_at_a_time = one_at_a_time

    @property
    def one_at_a_time(self) -> bool:
        return self._one_at_a_time

    async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(question)
        await asyncio.sleep(0)
        return self.answers.pop(0)


def rules(*texts: str) -> PermissionRules:
    made = []
    for text in texts:
        effect, _, rule = text.partition(" ")
        made.append(parse_rule(rule, effect))  # type: ignore[arg-type]
    return PermissionRules(made)


@pytest.fixture
def permissions(world: World) -> Callable[..., Permissions]:
    def make(*texts: str, mode: PermissionMode = "default", protection: SandboxSupport = BUBBLEWRAP) -> Permissions:
        workspace = Workspace(root=str(world.workspace), home=str(world.home), kitbag_home=str(world.home / ".kitbag"))
        return Permissions(workspace, mode, rules(*texts), protection)

    return make


Make = Callable[..., Permissions]


def authorize(approvals: Approvals, allowed: Permissions, tool: str, **arguments: object) -> Permit | Denial:
    return asyncio.run(approvals.authorize(allowed, tool, arguments, asked_by="main"))


def permit(found: Permit | Denial) -> Permit:
    assert isinstance(found, Permit), found
    return found


PUSH = {"command": "git push origin main"}


def test_what_rules_or_the_mode_allow_needs_no_question(permissions: Make) -> None:
    person = Person()
    for tool, arguments in (("Read", {"file_path": "a.py"}), ("Bash", {"command": "ls"})):
        found = permit(authorize(Approvals(person), permissions(), tool, **arguments))
        assert found.use(tool, arguments).effect == "allow"
    found = permit(authorize(Approvals(person), permissions("allow Bash(git push:*)"), "Bash", **PUSH))
    assert found.use("Bash", PUSH).sandbox == "workspace"
    assert person.asked == []


def test_what_is_denied_is_refused_with_a_reason_and_nobody_is_asked(permissions: Make) -> None:
    person = Person()
    found = authorize(Approvals(person), permissions("deny Bash(git push:*)"), "Bash", **PUSH)
    assert found == Denial("denied by a rule (`Bash(git push:*)`)", "rules")
    for mode in ("plan", "locked", "autonomous"):
        found = authorize(Approvals(person), permissions(mode=mode), "Write", file_path="/etc/x", content="")
        assert isinstance(found, Denial)
    assert person.asked == []


def test_an_answer_is_for_one_use_of_what_was_shown(permissions: Make) -> None:
    person = Person(ApprovalAnswer(choice="allow"), ApprovalAnswer(choice="deny", reason="push to a branch"))
    approvals = Approvals(person)
    found = permit(authorize(approvals, permissions(), "Bash", **PUSH))
    (asked,) = person.asked
    assert (asked.tool, asked.asked_by, asked.decision.effect) == ("Bash", "main", "ask")
    judgement = found.use("Bash", PUSH)
    assert (judgement.sandbox, judgement.network) == ("workspace", True)
    with pytest.raises(PermitError, match="already used"):
        found.use("Bash", PUSH)
    assert authorize(approvals, permissions(), "Bash", **PUSH) == Denial(
        "the user denied this action: push to a branch", "person"
    )


@pytest.mark.parametrize(
    ("tool", "arguments", "directory"),
    [
        ("Bash", {"command": "git push origin main "}, ""),
        ("Bash", {"command": "git push origin main\u200b"}, ""),
        ("Bash", {"command": "git push origin main", "timeout": 5}, ""),
        ("Bash", {"command": "git push origin main"}, "/"),
        ("bash", {"command": "git push origin main"}, ""),
        ("Bash", {"command": ["git push origin main"]}, ""),
        ("Bash", {"command": float("nan")}, ""),
        ("Bash", {"command": object()}, ""),
    ],
)
def test_a_permit_is_for_nothing_else(
    permissions: Make, tool: str, arguments: dict[str, object], directory: str
) -> None:
    found = permit(authorize(Approvals(Person(ApprovalAnswer(choice="allow"))), permissions(), "Bash", **PUSH))
    with pytest.raises(PermitError, match="not the action that was approved"):
        found.use(tool, arguments, directory)
    with pytest.raises(PermitError, match="already used"):
        found.use("Bash", PUSH)


def test_what_the_caller_changes_after_asking_is_not_what_was_asked(permissions: Make) -> None:
    arguments: dict[str, object] = {"command": "git push", "env": {"A": ["1"]}}
    found = permit(authorize(Approvals(Person(ApprovalAnswer(choice="allow"))), permissions(), "Bash", **arguments))
    nested = arguments["env"]
    assert isinstance(nested, dict)
    nested["A"].append("2")
    assert found.arguments["env"] == {"A": ["1"]}
    with pytest.raises(PermitError):
        found.use("Bash", arguments)


def test_a_permit_can_be_used_by_one_of_many_threads(permissions: Make) -> None:
    found = permit(authorize(Approvals(Person(ApprovalAnswer(choice="allow"))), permissions(), "Bash", **PUSH))
    used: list[bool] = []

    def use() -> None:
        try:
            found.use("Bash", PUSH)
            used.append(True)
        except PermitError:
            used.append(False)

    threads = [threading.Thread(target=use) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(used) == [False] * 15 + [True]


def test_deny_counts_at_the_moment_of_use(permissions: Make) -> None:
    """Whoever said yes: a person, a rule or the mode (D25)."""
    denying = permissions("deny Bash(git push:*)", "deny Read(secret)")
    found = permit(authorize(Approvals(Person(ApprovalAnswer(choice="allow"))), permissions(), "Bash", **PUSH))
    with pytest.raises(PermitError, match="no longer allowed"):
        found.use("Bash", PUSH, permissions=denying)
    found = permit(authorize(Approvals(None), permissions(), "Read", file_path="secret"))
    with pytest.raises(PermitError, match="no longer allowed"):
        found.use("Read", {"file_path": "secret"}, permissions=denying)
    found = permit(authorize(Approvals(None), permissions("allow Bash(git push:*)"), "Bash", **PUSH))
    with pytest.raises(PermitError, match="have changed since"):
        found.use("Bash", PUSH, permissions=permissions("ask Bash(git push:*)"))


def test_a_path_that_leads_elsewhere_since_it_was_shown_is_asked_about_again(permissions: Make, world: World) -> None:
    world.write("notes", "x")
    write = {"file_path": "notes", "content": "y"}
    person = Person(ApprovalAnswer(choice="allow"), ApprovalAnswer(choice="allow"))
    found = permit(authorize(Approvals(person), permissions(), "Write", **write))
    assert person.asked[0].facts == (("resolves to", str(world.workspace / "notes")),)
    (world.workspace / "notes").unlink()
    (world.workspace / "notes").symlink_to(world.home / ".bashrc")
    with pytest.raises(PermitError, match="have changed since"):
        found.use("Write", write)
    permit(authorize(Approvals(person), permissions(), "Write", **write))
    assert str(world.home / ".bashrc") in person.asked[1].facts[0][1]


def test_without_anybody_to_ask_it_is_refused_with_what_to_do(permissions: Make) -> None:
    found = authorize(Approvals(None), permissions(), "Bash", **PUSH)
    assert isinstance(found, Denial)
    assert found.by == "nobody"
    assert "not interactive" in found.reason
    assert "rule" in found.reason


def test_what_is_no_json_is_refused(permissions: Make) -> None:
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    for value in (float("nan"), b"x", deep):
        found = authorize(Approvals(Person()), permissions(), "Bash", command="ls", more=value)
        assert isinstance(found, Denial)
        assert "not valid JSON" in found.reason


def test_an_approver_that_fails_is_no_yes(permissions: Make) -> None:
    class Broken(Person):
        async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
            raise KitbagError("the disk is full")

    found = authorize(Approvals(Broken()), permissions(), "Bash", **PUSH)
    assert isinstance(found, Denial)
    assert (found.by, "the disk is full" in found.reason) == ("nobody", True)


def test_for_a_session_means_exactly_this_or_what_the_rule_says(permissions: Make) -> None:
    person = Person(
        ApprovalAnswer(choice="allow", scope="session"),
        ApprovalAnswer(choice="allow", scope="session", rule="Bash(npm run build:*)"),
        ApprovalAnswer(choice="deny"),
    )
    approvals = Approvals(person)
    for _ in range(3):
        permit(authorize(approvals, permissions(), "Bash", **PUSH)).use("Bash", PUSH)
    assert len(person.asked) == 1
    permit(authorize(approvals, permissions(), "Bash", command="npm run build"))
    permit(authorize(approvals, permissions(), "Bash", command="npm run build --x"))
    assert len(person.asked) == 2
    assert isinstance(authorize(approvals, permissions(), "Bash", command="git push origin other"), Denial)
    assert isinstance(authorize(approvals, permissions("deny Bash(npm:*)"), "Bash", command="npm run build"), Denial)


def test_an_ask_rule_asks_every_time_but_for_exactly_what_was_agreed_to(permissions: Make) -> None:
    person = Person(
        ApprovalAnswer(choice="allow", scope="session", rule="Bash(git push:*)"),
        ApprovalAnswer(choice="allow", scope="session"),
    )
    approvals = Approvals(person)
    asking = permissions("ask Bash(git push:*)")
    permit(authorize(approvals, asking, "Bash", **PUSH))
    permit(authorize(approvals, asking, "Bash", **PUSH))
    permit(authorize(approvals, asking, "Bash", **PUSH))
    assert len(person.asked) == 2
    assert {question.suggestion for question in person.asked} == {""}, "a rule would not help"


def test_a_rule_is_written_into_the_user_s_settings_and_counts_at_once_and_later(
    permissions: Make, world: World
) -> None:
    path = world.write("~/.kitbag/settings.toml", '# mine\nteam = ""  # none\n')
    person = Person(ApprovalAnswer(choice="allow", scope="rule", rule="Bash(git push:*)"))
    approvals = Approvals(person, str(path))
    assert permit(authorize(approvals, permissions(), "Bash", **PUSH)).notice == ""
    permit(authorize(approvals, permissions(), "Bash", command="git push -n"))
    assert path.read_text().startswith('# mine\nteam = ""  # none\n')
    settings = load_settings(str(world.home / ".kitbag"), ())
    workspace = permissions().workspace
    loaded = load_permissions(settings, workspace, trusted=False)
    assert [rule.text for rule in loaded.rules.allow] == ["Bash(git push:*)"]
    assert not loaded.diagnostics


@pytest.mark.parametrize(
    "before",
    [
        '[permissions]\nallow = ["Read(~/x)"] # keep\n',
        '[permissions]\nallow = [\n  "Read(~/x)", # keep\n]\n',
        '[[permissions.allow]]\nrule = "Read(~/x)" # keep\nmatches = []\n',
        '[permissions]\nmode = "default" # keep\n[catalog]\nnames = 1\n',
        "",
    ],
)
def test_a_rule_is_added_however_the_list_is_written(permissions: Make, world: World, before: str) -> None:
    path = world.write("~/.kitbag/settings.toml", before)
    for _ in range(2):
        approvals = Approvals(Person(ApprovalAnswer(choice="allow", scope="rule", rule="Bash(make:*)")), str(path))
        assert permit(authorize(approvals, permissions(), "Bash", command="make x")).notice == ""
    settings = load_settings(str(world.home / ".kitbag"), ())
    loaded = load_permissions(settings, permissions().workspace, trusted=False)
    assert not settings.diagnostics
    texts = [rule.text for rule in loaded.rules.allow]
    assert texts == ["Read(~/x)", "Bash(make:*)"] if "Read" in before else ["Bash(make:*)"]
    assert ("# keep" in path.read_text()) == ("# keep" in before)


@pytest.mark.parametrize("spoilt", ["team = [unfinished\n", "link", "permissions = 3\n"])
def test_a_rule_that_can_t_be_kept_leaves_the_file_and_the_answer_as_they_are(
    permissions: Make, world: World, spoilt: str
) -> None:
    path = world.home / ".kitbag/settings.toml"
    if spoilt == "link":
        target = world.write("theirs.toml", "# theirs\n", base=world.outside)
        path.parent.mkdir()
        path.symlink_to(target)
    else:
        world.write("~/.kitbag/settings.toml", spoilt)
    before = Path(path).read_text()
    approvals = Approvals(Person(ApprovalAnswer(choice="allow", scope="rule", rule="Bash(git push:*)")), str(path))
    found = permit(authorize(approvals, permissions(), "Bash", **PUSH))
    assert "could not be saved" in found.notice
    assert found.use("Bash", PUSH).effect == "ask"
    assert Path(path).read_text() == before


@pytest.mark.parametrize(
    ("rule", "missing"),
    [("Bash(echo two >> a.txt)", ""), ("Bash(echo:*)", "writes a.txt"), ("Read(./docs/**)", "writes a.txt")],
)
def test_the_user_learns_if_the_rule_they_wrote_does_not_cover_the_call(
    permissions: Make, world: World, rule: str, missing: str
) -> None:
    answer = ApprovalAnswer(choice="allow", scope="rule", rule=rule)
    approvals = Approvals(Person(answer), str(world.home / ".kitbag/settings.toml"))
    found = permit(authorize(approvals, permissions(), "Bash", command="echo two >> a.txt"))
    assert (missing in found.notice, "does not cover this call" in found.notice) == (True, bool(missing))


def test_a_rule_that_is_none_is_told_and_the_answer_counts_once(permissions: Make, world: World) -> None:
    approvals = Approvals(
        Person(ApprovalAnswer(choice="allow", scope="rule", rule="Bash(git")), str(world.home / "settings.toml")
    )
    found = permit(authorize(approvals, permissions(), "Bash", **PUSH))
    assert "could not be saved" in found.notice
    found.use("Bash", PUSH)
    assert not (world.home / "settings.toml").exists()


def test_one_question_at_a_time_and_its_answer_may_answer_the_next(permissions: Make) -> None:
    person = Person(
        ApprovalAnswer(choice="allow", scope="session", rule="Bash(npm test:*)"), ApprovalAnswer(choice="deny")
    )
    approvals = Approvals(person)

    async def main() -> list[Permit | Denial]:
        commands = ("npm test a", "npm test b", "npm test c", "git push")
        return await asyncio.gather(
            *(approvals.authorize(permissions(), "Bash", {"command": command}) for command in commands)
        )

    found = asyncio.run(main())
    assert [isinstance(one, Permit) for one in found] == [True, True, True, False]
    assert len(person.asked) == 2


def test_while_a_person_thinks_what_needs_no_answer_goes_on(permissions: Make) -> None:
    class Thinking(Person):
        async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
            await thought.wait()
            return ApprovalAnswer(choice="allow")

    async def main() -> None:
        approvals = Approvals(Thinking())
        asking = asyncio.create_task(approvals.authorize(permissions(), "Bash", PUSH))
        await asyncio.sleep(0)
        assert isinstance(await approvals.authorize(permissions(), "Read", {"file_path": "a"}), Permit)
        assert not asking.done()
        thought.set()
        assert isinstance(await asking, Permit)

    thought = asyncio.Event()
    asyncio.run(main())


def test_several_can_be_asked_at_once_where_questions_wait_side_by_side(permissions: Make) -> None:
    class Together(Person):
        async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
            self.asked.append(question)
            await both.wait() if len(self.asked) < 2 else both.set()
            return ApprovalAnswer(choice="allow")

    async def main() -> None:
        approvals = Approvals(Together(one_at_a_time=False))
        asking = [approvals.authorize(permissions(), "Bash", {"command": f"git push {n}"}) for n in range(2)]
        assert all(isinstance(one, Permit) for one in await asyncio.gather(*asking))

    both = asyncio.Event()
    asyncio.run(main())


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("git commit -m 'a b'", "Bash(git commit:*)"),
        ("git push origin main", "Bash(git push origin main)"),
        ("npm test", "Bash(npm test:*)"),
        ("python -m pytest -q tests", "Bash(python -m pytest:*)"),
        ("cd src && npx eslint . 2>&1 | tail -5", "Bash(npx eslint:*)"),
        ("./run.sh", "Bash(./run.sh)"),
        *(
            (command, "")
            for command in (
                "bash x", "sh -c ls", "python -m x", "python3.12 x.py", "/usr/bin/python3 x", "node x.js", "sudo git push",
                "env A=1 git push", "A=1 git push", "xargs git push", "timeout 5 git push", "nohup git push",
                "git push && id", "git push; id", "git push | tee x", "git push > x", "git push $X", "git push $(id)",
                "git -c core.pager=x log", "git push \u200b", "git push 'a*'", "rm -rf build", "curl example.org",
                "find . -delete", "npx x", "ssh host", "kitbag permissions answer x allow", "eval x", "make 'a;b'",
                "git push *", "git push\nid", "watch ls", "command git push", "exec git push", "awk x", "sed -i s/a/b/ f",
            )
        ),
    ],
)  # fmt: skip
def test_a_rule_is_offered_only_for_what_is_plain(permissions: Make, command: str, rule: str) -> None:
    allowed = permissions()
    assert suggest_rule(allowed, "Bash", {"command": command}, allowed.workspace.root) == rule


@pytest.mark.parametrize(
    "command",
    [
        "git commit -m x", "git push origin main", "npm test", "./run.sh", "make .git/hooks/x", "make .envrc", "touch a",
        "cp a .mcp.json", "cp a b", "cat /etc/hosts", "ls ~/.ssh", "ls /", "mkdir src/x", "make secret.txt", "cat secret.txt",
        "git show HEAD:secret.txt", "make a.ask", "npm run asked", "grep x ../outside", "ln a b", "cp a sub", "sleep 0",
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["default", "acceptEdits"])
@pytest.mark.parametrize(
    "protection", [BUBBLEWRAP, SandboxSupport(kind="none"), SandboxSupport(kind="sandlock", version="1")]
)
def test_a_rule_is_offered_as_a_whole_decision_would_have_it(
    permissions: Make, world: World, command: str, mode: PermissionMode, protection: SandboxSupport
) -> None:
    (world.workspace / "sub").mkdir()
    rules = ("deny Read(secret.txt)", "ask Edit(sub/x)", "ask Read(*.ask)", "ask Bash(npm run asked)")
    for some in (rules, ()):
        allowed = permissions(*some, mode=mode, protection=protection)
        root, arguments = allowed.workspace.root, {"command": command}
        decision = allowed.decide("Bash", arguments, root)
        if decision.effect == "ask":
            assert suggest_rule(allowed, "Bash", arguments, root, decision) == suggest_rule(
                allowed, "Bash", arguments, root
            )


def test_a_rule_for_files_names_the_place_and_none_is_offered_for_what_is_protected(
    permissions: Make, world: World
) -> None:
    allowed = permissions()
    root = allowed.workspace.root
    (world.workspace / "link").symlink_to(world.outside)
    for path, rule in {
        "src/a/b.py": f"Edit(/{root}/src/**)",
        "README.md": f"Edit(/{root}/README.md)",
        ".git/config": "",
        ".vscode/tasks.json": "",
        "link/x": "",
        "/etc/hosts": "",
        "a*/b": "",
        str(world.home / ".bashrc"): "",
    }.items():
        assert suggest_rule(allowed, "Write", {"file_path": path}, root) == rule, path
    for tool, arguments, rule in (
        ("WebFetch", {"url": "https://docs.python.org/3/"}, "WebFetch(domain:docs.python.org)"),
        ("WebFetch", {"url": "http://127.0.0.1/"}, ""),
        ("WebFetch", {"url": "http://[::1"}, ""),
        ("Task", {"subagent_type": "Bash"}, "Task(Bash)"),
        ("mcp__server__tool", {}, "mcp__server__tool"),
        ("Unknown", {}, ""),
    ):
        assert suggest_rule(allowed, tool, arguments, root) == rule


def test_tests_and_linters_are_asked_about_once_per_session_and_kind(permissions: Make) -> None:
    person = Person(ApprovalAnswer(choice="allow"), ApprovalAnswer(choice="allow"), ApprovalAnswer(choice="deny"))
    approvals = Approvals(person)
    for command in ("pytest -q", "python -m pytest tests -k one", "cd src && pytest 2>&1 | tail -5"):
        permit(authorize(approvals, permissions(), "Bash", command=command)).use("Bash", {"command": command})
    assert [(one.decision.reason, one.decision.sandbox) for one in person.asked] == [("run tests: pytest", "workspace")]
    permit(authorize(approvals, permissions(), "Bash", command="ruff check src"))
    assert len(person.asked) == 2
    assert isinstance(authorize(approvals, permissions(), "Bash", command="pytest --basetemp=src"), Denial)
    assert isinstance(authorize(approvals, permissions("deny Bash(pytest:*)"), "Bash", command="pytest -q"), Denial)
    assert len(person.asked) == 3


@pytest.mark.parametrize(
    "answer",
    [
        ApprovalAnswer(choice="allow"),
        ApprovalAnswer(choice="allow", scope="session", rule="Bash(npm test:*)"),
        ApprovalAnswer(choice="allow", scope="session", rule="Bash(rm:*)"),
    ],
)
def test_an_answer_that_settles_a_part_for_the_session_allows_the_whole_command_once(
    permissions: Make, answer: ApprovalAnswer
) -> None:
    person = Person(answer, ApprovalAnswer(choice="deny"))
    approvals = Approvals(person)
    command = {"command": "rm -rf build; npm test"}
    given = permit(authorize(approvals, permissions(), "Bash", **command))
    given.use("Bash", command, permissions=approvals.with_session_rules(permissions()))
    assert isinstance(authorize(approvals, permissions(), "Bash", command="rm -rf build src; npm run x"), Denial)


def test_a_permit_ends_when_a_part_of_the_command_needs_approval_for_another_reason(permissions: Make) -> None:
    approvals = Approvals(Person(ApprovalAnswer(choice="allow")))
    command = {"command": "rm -rf build; npm test"}
    given = permit(authorize(approvals, permissions(), "Bash", **command))
    with pytest.raises(PermitError, match="have changed"):
        given.use("Bash", command, permissions=approvals.with_session_rules(permissions("ask Bash(rm:*)")))


def test_without_a_sandbox_tests_are_asked_about_each_time(permissions: Make) -> None:
    person = Person(ApprovalAnswer(choice="allow"), ApprovalAnswer(choice="allow"))
    approvals = Approvals(person)
    for _ in range(2):
        made = permissions(protection=SandboxSupport(kind="none"))
        permit(authorize(approvals, made, "Bash", command="pytest -q"))
    assert len(person.asked) == 2


def test_what_was_agreed_to_for_a_session_is_asked_anew_when_what_was_said_about_it_has_changed(
    permissions: Make,
) -> None:
    """An agent's file may have changed: the same call starts another agent then."""
    person = Person(ApprovalAnswer(choice="allow", scope="session"), ApprovalAnswer(choice="deny"))
    approvals = Approvals(person)
    start = {"subagent_type": "helper", "prompt": "Help."}

    def asked(mode: str) -> Permit | Denial:
        return asyncio.run(approvals.authorize(permissions(), "Task", start, facts=(("mode", mode),)))

    assert isinstance(asked("plan"), Permit)
    assert isinstance(asked("plan"), Permit)
    assert len(person.asked) == 1
    assert isinstance(asked("autonomous"), Denial)
