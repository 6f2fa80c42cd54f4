"""Where rules come from: the user's settings, a trusted project's, the command line; examples, mistakes and trust."""

from pathlib import Path

import pytest

from conftest import World
from kitbag.errors import UsageError
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import SandboxSupport
from kitbag.permissions.rules.load import (
    NOT_TRUSTED_REASON,
    USER_ONLY_REASON,
    LoadedPermissions,
    PermissionFlags,
    load_permissions,
    resolve_workspace,
)
from kitbag.settings import Settings, load_settings

USER, PROJECT = "~/.kitbag/settings.toml", ".kitbag/settings.toml"


def settings_of(world: World) -> Settings:
    places = world.places()
    return load_settings(places.kitbag_home, places.project_dirs)


def load(world: World, trusted: bool = True, **given: object) -> LoadedPermissions:
    settings = settings_of(world)
    workspace, _ = resolve_workspace(world.places(), settings)
    return load_permissions(settings, workspace, trusted=trusted, flags=PermissionFlags(**given))  # type: ignore[arg-type]


def texts(loaded: LoadedPermissions) -> list[tuple[str, str, str]]:
    return [(rule.effect, rule.text, rule.scope) for rule in loaded.rules.all]


def codes(loaded: LoadedPermissions) -> list[tuple[str, str]]:
    return [(one.severity, one.code) for one in loaded.diagnostics]


def test_without_settings_there_are_no_rules_and_the_mode_is_default(world: World) -> None:
    loaded = load(world)
    assert (loaded.mode, loaded.mode_source, texts(loaded), loaded.diagnostics) == ("default", "default", [], ())


def test_rules_come_with_file_and_line(world: World) -> None:
    path = world.write(
        USER,
        '[permissions]\nmode = "acceptEdits"\nallow = [\n  "Bash(git log:*)",\n  "Bash(ls)",\n]\ndeny = ["Bash(ls)"]\n'
        '\n[[permissions.ask]]\nrule = "Bash(git push:*)"\n',
    )
    loaded = load(world)
    found = {(rule.effect, rule.text): rule.source for rule in loaded.rules.all}
    assert found == {
        ("allow", "Bash(git log:*)"): f"{path}:4",
        ("allow", "Bash(ls)"): f"{path}:5",
        ("deny", "Bash(ls)"): f"{path}:7",
        ("ask", "Bash(git push:*)"): f"{path}:10",
    }
    assert (loaded.mode, loaded.mode_source) == ("acceptEdits", f"{path}:2")
    assert loaded.diagnostics == ()
    assert loaded.rules.allow[0].base == str(world.home / ".kitbag")


def test_a_project_tightens_once_it_is_trusted_and_never_loosens(world: World) -> None:
    world.write(USER, '[permissions]\nmode = "acceptEdits"\nallow = ["Read"]\n')
    path = world.write(
        PROJECT,
        'trusted = true\n[permissions]\nmode = "plan"\nallow = ["Bash"]\nask = ["WebFetch"]\ndeny = ["Bash(rm:*)"]\n'
        '[sandbox]\nnetwork = "on"\nwritable = ["/"]\n',
    )
    untrusted = load(world, trusted=False)
    assert (untrusted.mode, texts(untrusted)) == ("acceptEdits", [("allow", "Read", "user")])
    assert {(one.setting, one.why) for one in untrusted.ignored} == {
        (f"permissions.{key}", NOT_TRUSTED_REASON) for key in ("mode", "allow", "ask", "deny")
    }
    trusted = load(world)
    assert (trusted.mode, trusted.mode_source) == ("plan", f"{path}:3")
    assert texts(trusted) == [
        ("deny", "Bash(rm:*)", "project"),
        ("ask", "WebFetch", "project"),
        ("allow", "Read", "user"),
    ]
    assert [(one.value, one.source, one.why) for one in trusted.ignored] == [("Bash", f"{path}:4", USER_ONLY_REASON)]
    assert trusted.rules.deny[0].base == str(world.workspace)
    settings = settings_of(world)
    assert settings.get("sandbox.network") == "off"
    assert settings.get("sandbox.writable") == []
    named = " ".join(one.problem for one in settings.diagnostics)
    for key in ("trusted", "permissions.allow", "sandbox.network", "sandbox.writable"):
        assert f"`{key}`" in named


@pytest.mark.parametrize(
    "mode", ["autonomous", "default", "acceptEdits", "bypassPermissions", "dontAsk", "auto", 3, ["plan"]]
)
def test_a_projects_mode_that_is_not_stricter_does_not_count(world: World, mode: object) -> None:
    world.write(PROJECT, f"[permissions]\nmode = {mode!r}\n")
    loaded = load(world)
    assert (loaded.mode, loaded.mode_source) == ("default", "default")
    assert loaded.ignored or loaded.diagnostics


def test_a_projects_mode_tightens_the_command_lines(world: World) -> None:
    world.write(PROJECT, '[permissions]\nmode = "default"\n')
    assert load(world, mode="autonomous").mode == "default"
    assert load(world, mode="plan").mode == "plan"
    assert load(world, trusted=False, mode="autonomous").mode == "autonomous"


@pytest.mark.parametrize(("written", "mode"), [("dontAsk", "autonomous"), ("Plan", "plan"), ("yolo", "default")])
def test_a_users_mode_is_read_as_kitbag_reads_it(world: World, written: str, mode: str) -> None:
    world.write(USER, f'[permissions]\nmode = "{written}"\n')
    loaded = load(world)
    assert loaded.mode == mode
    assert bool(loaded.diagnostics) == (written != "Plan")


def test_the_command_line_has_its_say(world: World) -> None:
    world.write(USER, '[permissions]\nmode = "plan"\n')
    loaded = load(world, mode="dontAsk", allow=("Bash(ls)",), deny=("Read(.env)",), ask=("Task",))
    assert (loaded.mode, loaded.mode_source) == ("autonomous", "command line")
    assert {(rule.effect, rule.source, rule.base) for rule in loaded.rules.all} == {
        (effect, "command line", str(world.workspace)) for effect in ("allow", "ask", "deny")
    }
    for wrong in ({"mode": "yolo"}, {"allow": ("*",)}, {"deny": ("Bash(",)}):
        with pytest.raises(UsageError):
            load(world, **wrong)


def test_examples_are_tried_when_rules_are_loaded(world: World) -> None:
    world.write(
        USER,
        "[permissions]\n"
        'allow = [{rule = "Bash(git log:*)", matches = ["git log -5"], misses = ["git logout", "git log && id"]},\n'
        '  {rule = "Bash(git*)", misses = ["gitk"]},\n'
        '  {rule = "Edit(src/**)", matches = ["src/a.py"], misses = ["x/src/a.py", "Read(src/a.py)"]},\n'
        '  {rule = "WebFetch(domain:*.x.com)", matches = ["https://a.x.com/y"], misses = ["https://x.com"]}]\n'
        'deny = [{rule = "Bash(curl:*)", matches = ["sudo curl x", "ls; curl"], misses = ["echo curl"]},\n'
        '  {rule = "Bash(rm:*)", matches = ["rmdir"]},\n'
        '  {rule = "mcp__a", matches = ["mcp__a__b"], misses = ["mcp__c__d"]},\n'
        '  {rule = "Skill(deploy)", matches = ["Deploy", "x:deploy"], misses = ["deployment"]},\n'
        '  {rule = "Task(model:opus)", matches = ["model:opus"]}]\n',
    )
    loaded = load(world)
    assert [rule.text for rule in loaded.rules.allow] == ["Bash(git log:*)", "Edit(src/**)", "WebFetch(domain:*.x.com)"]
    assert len(loaded.rules.deny) == 5
    failed = [(one.code, one.line) for one in loaded.diagnostics]
    assert failed == [("rule-example", 3), ("rule-example", 7)]
    assert "ignored" in loaded.diagnostics[0].problem
    assert "still applied" in loaded.diagnostics[1].problem
    assert [bool(loaded.examples[rule].failed) for rule in loaded.rules.deny] == [False, True, False, False, False]
    assert [one.value for one in loaded.ignored] == ["Bash(git*)"]


@pytest.mark.parametrize(
    "rule",
    [
        "Bash(rm:*",
        "Bash()",
        "Bash(a:* b)",
        "Bsah(rm:*)",
        "bash(rm",
        "{rule = 3}",
        "3",
        "{}",
        "''",
        "{rule = 'Bash(x', z = 1}",
    ],
)
def test_a_denial_that_can_not_be_read_is_an_error_and_makes_its_tool_asked_for(world: World, rule: str) -> None:
    written = rule if rule[0] in "{3'" else f'"{rule}"'
    world.write(USER, f'[permissions]\nmode = "autonomous"\nallow = ["Bash"]\ndeny = [{written}]\n')
    loaded = load(world)
    assert ("error", "rule-unreadable") in codes(loaded)
    assert loaded.diagnostics[0].line == 4
    if "ash" in rule or "Bsah" in rule:
        assert [(one.effect, one.tool, one.specifier) for one in loaded.rules.ask] == [("ask", "Bash", None)]


def test_an_allowance_that_can_not_be_read_allows_nothing(world: World) -> None:
    world.write(USER, '[permissions]\nallow = ["Bash(ls", "*", {rule = "Bash(ls)", matchs = ["ls"]}, 7]\n')
    loaded = load(world)
    assert loaded.rules.all == ()
    assert [one.severity for one in loaded.diagnostics] == ["error"] * 4


def test_a_single_rule_need_not_be_a_list(world: World) -> None:
    world.write(USER, '[permissions]\ndeny = "Bash(rm:*)"\n')
    assert texts(load(world)) == [("deny", "Bash(rm:*)", "user")]


@pytest.mark.parametrize("content", [b"[permissions\n", b"\xff\xfe", b"x = " + b"[" * 20_000])
def test_a_file_that_can_not_be_read_makes_everything_asked_for(world: World, content: bytes) -> None:
    world.write(USER, content)
    loaded = load(world, mode="autonomous")
    assert ("error", "rule-unreadable") in codes(loaded)
    workspace, _ = resolve_workspace(world.places(), settings_of(world))
    made = Permissions(workspace, loaded.mode, loaded.rules, SandboxSupport(kind="bubblewrap", carve_outs=True))
    assert made.decide("Read", {"file_path": "x"}).effect == "deny"
    assert made.with_mode("default").decide("TodoWrite", {}).effect == "ask"


def test_a_broken_file_of_a_project_counts_only_when_it_is_trusted(world: World) -> None:
    world.write(PROJECT, "[permissions\n")
    assert load(world, trusted=False).rules.all == ()
    assert [rule.text for rule in load(world).rules.ask] == ["*"]


def test_what_is_unusual_about_a_rule_is_said(world: World) -> None:
    world.write(USER, '[permissions]\ndeny = ["Write(src/**)", "Read(/etc/passwd)", "Deploy"]\n')
    loaded = load(world)
    assert len(loaded.rules.deny) == 3
    assert codes(loaded) == [("warning", "rule")] * 3


def test_the_workspace_comes_from_the_user(world: World) -> None:
    (world.home / "out").mkdir()
    world.write(
        USER, f'[sandbox]\nwritable = ["~/out", "{world.outside}", "relative", "/", "~/", "~", "{world.home}"]\n'
    )
    workspace, problems = resolve_workspace(world.places(), settings_of(world))
    assert workspace.root == str(world.workspace)
    assert workspace.extra_write_roots == (str(world.home / "out"), str(world.outside))
    assert len(problems) == 5


def test_rules_of_all_project_folders_count(world: World) -> None:
    inner = world.workspace / "inner"
    world.write("inner/.kitbag/settings.toml", '[permissions]\ndeny = ["Read(/a)"]\n')
    world.write(PROJECT, '[permissions]\ndeny = ["Read(/b)"]\n')
    settings = load_settings(str(world.home / ".kitbag"), (str(inner), str(world.workspace)))
    workspace, _ = resolve_workspace(world.places(), settings)
    loaded = load_permissions(settings, workspace, trusted=True)
    assert {(rule.text, rule.base) for rule in loaded.rules.deny} == {
        ("Read(/a)", str(inner)),
        ("Read(/b)", str(world.workspace)),
    }


def test_config_shows_and_sets_permissions(world: World) -> None:
    assert world.run("config", "set", "permissions.mode", "plan").returncode == 0
    assert world.run("config", "set", "permissions.deny", '["Bash(rm:*)", "Read(.env)"]').returncode == 0
    assert world.run("config", "set", "sandbox.writable", '["~/out"]').returncode == 0
    rows = {row["key"]: row["value"] for row in world.json("config", "get")}
    assert rows["permissions.mode"] == "plan"
    assert rows["permissions.deny"] == ["Bash(rm:*)", "Read(.env)"]
    assert rows["permissions.allow"] == []
    assert rows["sandbox.writable"] == ["~/out"]
    assert "Bash(rm:*)" in world.ok("config", "get", "permissions.deny")
    assert {rule.text for rule in load(world).rules.deny} == {"Bash(rm:*)", "Read(.env)"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("permissions.deny", "Bash(rm:*)"),
        ("permissions.deny", "[3]"),
        ("permissions.deny", '["Bash(rm"]'),
        ("permissions.allow", '["*"]'),
        ("permissions.mode", "yolo"),
        ("sandbox.writable", '"~/x"'),
        ("sandbox.writable", '["x", 3]'),
        ("sandbox.network", "maybe"),
    ],
)
def test_config_refuses_what_would_not_count(world: World, key: str, value: str) -> None:
    done = world.run("config", "set", key, value)
    assert done.returncode == 2, done.stdout
    assert not (world.home / ".kitbag" / "settings.toml").exists()


def test_a_project_can_not_be_given_what_only_the_user_may_set(world: World) -> None:
    assert world.run("config", "set", "permissions.allow", '["Read"]', "--project").returncode == 2
    assert world.run("config", "set", "permissions.deny", '["Read"]', "--project").returncode == 0
    assert Path(world.workspace / PROJECT).exists()
