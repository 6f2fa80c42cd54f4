"""Trust is a folder's and its content's: what can act is bound by hash, prose is not, and no file can ask for it."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from conftest import World
from kitbag.errors import InvalidError
from kitbag.library.scopes import Places, find_places
from kitbag.permissions.trust.capabilities import Capability
from kitbag.permissions.trust.workspace_items import WorkspaceItem
from kitbag.permissions.trust.workspace_trust import (
    WorkspaceTrust,
    check_trust,
    revoke_trust,
    trust_workspace,
    trusted_workspaces,
)

SKILL = ".kitbag/skills/x/SKILL.md"
AGENT = ".claude/agents/a.md"


def setup(world: World) -> None:
    world.skill(".kitbag/skills", "x", body="Prose.\n\n!`git log -5`\n\n${PLAIN}\n", allowed_tools="Read")
    world.write(".kitbag/skills/x/scripts/run.sh", "echo one\n")
    head = "name: a\ndescription: d\npermission-mode: plan\ntools: Read\nmcpServers:\n  m:\n    command: npx\n"
    world.write(AGENT, f"---\n{head}---\nYou work.\n")
    world.write(".mcp.json", json.dumps({"mcpServers": {"s": {"command": "run", "args": ["a"]}}}))
    hook = {"Stop": [{"hooks": [{"type": "command", "command": "notify"}]}]}
    world.write(".claude/settings.json", json.dumps({"hooks": hook}))
    world.write(".kitbag/settings.toml", '[permissions]\ndeny = ["Bash(rm:*)"]\n')
    world.write("CLAUDE.md", "Be kind.\n")


def trusted(world: World) -> None:
    setup(world)
    places = world.places()
    trust_workspace(places, check_trust(places))
    assert state(world) == "trusted"


def state(world: World, places: Places | None = None) -> str:
    return check_trust(places or world.places()).state


def replace(world: World, path: str, old: str, new: str) -> None:
    file = world.workspace / path
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_what_brings_nothing_needs_no_trust(world: World) -> None:
    world.write("main.py", "")
    assert state(world) == "nothing"
    assert not (world.home / ".kitbag").exists()


def test_what_brings_something_is_untrusted_until_it_is_trusted(world: World) -> None:
    world.write("AGENTS.md", "words")
    assert state(world) == "untrusted"
    places = world.places()
    trust_workspace(places, check_trust(places))
    assert state(world) == "trusted"
    assert revoke_trust(places, [str(world.workspace)]) == ([str(world.workspace)], "")
    assert state(world) == "untrusted"


def test_trust_for_now_is_kept_nowhere(world: World) -> None:
    setup(world)
    assert check_trust(world.places(), trusted_for_run=True).state == "trusted"
    assert not (world.home / ".kitbag").exists()
    assert state(world) == "untrusted"


# --- D05 ----------------------------------------------------------------------------------------------------------

CHANGES: list[tuple[str, str, Callable[[World], object]]] = [
    ("command", "git log -5", lambda w: replace(w, SKILL, "git log -5", "git log -6")),
    ("command", "", lambda w: replace(w, SKILL, "Prose.", "Prose.\n\n!`id`")),
    ("command", "", lambda w: replace(w, SKILL, "Prose.", "Prose.\n\n```!\nid\n```")),
    ("environment", "PLAIN", lambda w: replace(w, SKILL, "${PLAIN}", "${HOME}")),
    ("tools", "allowed-tools: Read", lambda w: replace(w, SKILL, "tools: Read", "tools: Bash")),
    ("script", "scripts/run.sh", lambda w: w.write(".kitbag/skills/x/scripts/run.sh", "echo two\n")),
    ("script", "", lambda w: w.write(".kitbag/skills/x/new.py", "x")),
    ("server", "s: run a", lambda w: replace(w, ".mcp.json", "run", "walk")),
    ("server", "s: run a", lambda w: replace(w, ".mcp.json", '"a"', '"a", "b"')),
    ("server", "", lambda w: w.write(".vscode/mcp.json", '{"servers": {"t": {"command": "x"}}}')),
    ("server", "m: npx", lambda w: replace(w, AGENT, "npx", "npy")),
    ("hook", "Stop: notify", lambda w: replace(w, ".claude/settings.json", "notify", "evil")),
    ("hook", "", lambda w: replace(w, AGENT, "tools: Read", "tools: Read\nhooks:\n  Stop: evil")),
    ("mode", "permission-mode: plan", lambda w: replace(w, AGENT, "plan", "dontAsk")),
    ("mode", "permission-mode: plan", lambda w: replace(w, AGENT, "permission-mode: plan\n", "")),
    ("tools", "tools: Read", lambda w: replace(w, AGENT, "tools: Read\n", "")),
    ("setting", "permissions.deny", lambda w: replace(w, ".kitbag/settings.toml", "rm", "rmdir")),
    ("setting", "permissions.deny", lambda w: (w.workspace / ".kitbag/settings.toml").unlink()),
    ("command", "", lambda w: w.skill(".claude/skills", "new", body="!`id`")),
    ("command", "", lambda w: w.write(".claude/commands/new.md", "---\ndescription: d\n---\n!`id`\n")),
    ("command", "", lambda w: w.write("CLAUDE.md", "!`id`\n")),
]


@pytest.mark.parametrize(("kind", "old", "change"), CHANGES)
def test_D05_whatever_can_act_and_changes_ends_trust_and_is_shown(
    world: World, kind: str, old: str, change: Callable[[World], object]
) -> None:
    trusted(world)
    change(world)
    found = check_trust(world.places())
    assert found.state == "changed"
    [one] = [change for change in found.changes if change.kind == kind]
    assert one.old.startswith(old) if old else one.old == ""
    assert one.old != one.new


PROSE: list[Callable[[World], object]] = [
    lambda w: replace(w, SKILL, "Prose.", "Other words,\n\nand more `!`id`` of them."),
    lambda w: replace(w, SKILL, "Does a thing.", "Does another thing."),
    lambda w: replace(w, AGENT, "You work.", "You play."),
    lambda w: replace(w, AGENT, "description: d", "description: e\nmodel: haiku"),
    lambda w: w.write("CLAUDE.md", "Be brief.\n\n```\n!`id`\n```\n"),
    lambda w: w.write(".kitbag/skills/x/references/more.md", "words"),
    lambda w: w.write("src/main.py", "import os"),
    lambda w: shutil.rmtree(w.workspace / ".kitbag/skills"),
    lambda w: (w.workspace / ".mcp.json").unlink(),
]


@pytest.mark.parametrize("change", PROSE)
def test_D05_plain_prose_and_what_is_taken_away_keep_trust(world: World, change: Callable[[World], object]) -> None:
    trusted(world)
    change(world)
    assert state(world) == "trusted"


@pytest.mark.parametrize("path", [".kitbag/skills/plain/SKILL.md", "AGENTS.md", ".claude/agents/plain.md"])
def test_a_new_item_ends_trust_even_if_it_is_only_text(world: World, path: str) -> None:
    trusted(world)
    world.write(path, "---\nname: plain\ndescription: d\n---\nDo it.\n")
    found = check_trust(world.places())
    assert found.state == "changed"
    assert [(change.mark, change.kind, change.path) for change in found.changes] == [("+", "item", path)]


def test_the_same_content_in_another_file_is_not_what_was_agreed_to(world: World) -> None:
    trusted(world)
    (world.workspace / ".kitbag/skills/x").rename(world.workspace / ".kitbag/skills/y")
    assert state(world) == "changed"


def test_after_a_new_answer_the_new_content_is_trusted_and_the_old_is_not(world: World) -> None:
    trusted(world)
    before = (world.workspace / SKILL).read_text()
    replace(world, SKILL, "git log -5", "git log -6")
    places = world.places()
    trust_workspace(places, check_trust(places))
    assert state(world) == "trusted"
    (world.workspace / SKILL).write_text(before)
    assert state(world) == "changed"


def test_only_what_was_shown_is_agreed_to(world: World) -> None:
    setup(world)
    places = world.places()
    shown = check_trust(places)
    replace(world, SKILL, "git log -5", "evil")
    trust_workspace(places, shown)
    assert state(world) == "changed"


def test_no_two_acts_share_a_digest(world: World) -> None:
    acts = [
        ("a", Capability(kind="command", text="b")), ("a", Capability(kind="hook", text="b")), ("ab", Capability(kind="command", text="")), ("a", Capability(kind="command", text="b", line=0, digest="c")),
        ("a", Capability(kind="command", text="bc")), ('a", "b', Capability(kind="command", text="")), ("a", Capability(kind="command", text="\ud800")),
    ]  # fmt: skip
    from kitbag.permissions.trust.workspace_trust import capability_digest

    assert len({capability_digest(path, act) for path, act in acts}) == len(acts)


# --- where ---------------------------------------------------------------------------------------------------------


def git_folder(path: Path) -> Path:
    (path / ".git").mkdir(parents=True)
    (path / "CLAUDE.md").write_text("words")
    return path


def test_D06_trust_is_that_folder_s_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(world.home))
    outer = git_folder(world.outside / "app")
    sibling, child = git_folder(world.outside / "app-evil"), git_folder(outer / "vendor")
    parent = world.outside
    (parent / "CLAUDE.md").write_text("words")
    places = find_places(str(outer))
    trust_workspace(places, check_trust(places))
    shutil.copytree(outer, world.outside / "copy")
    for folder in (sibling, child, parent, world.outside / "copy", outer / ".." / "app-evil"):
        assert check_trust(find_places(str(folder))).state == "untrusted", folder
    (world.outside / "link").symlink_to(outer)
    (outer / "src").mkdir()
    for folder in (outer, outer / "src", world.outside / "link", outer / ".." / "app"):
        assert check_trust(find_places(str(folder))).state == "trusted", folder


def test_a_subfolder_that_brings_more_is_asked_for_and_both_stay_trusted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(world.home))
    world.skill(".kitbag/skills", "top", body="!`one`")
    for name in ("a", "b"):
        world.skill(f"{name}/.kitbag/skills", name, body=f"!`in {name}`")
    top, a, b = (find_places(str(world.workspace / name)) for name in ("", "a", "b"))
    for places, before in ((top, "untrusted"), (a, "changed"), (b, "changed")):
        found = check_trust(places)
        assert found.state == before
        trust_workspace(places, found)
    assert [check_trust(places).state for places in (top, a, b)] == ["trusted"] * 3


def test_a_folder_that_belongs_to_somebody_else_now_is_untrusted(world: World) -> None:
    trusted(world)
    file = world.home / ".kitbag/trust.json"
    content = json.loads(file.read_text())
    content["workspaces"][str(world.workspace)]["owner"] += 1
    file.write_text(json.dumps(content))
    assert state(world) == "untrusted"


# --- no workspace byte decides --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (".kitbag/settings.toml", 'trusted = true\ntrust = "always"\n[trust]\nstate = "trusted"\n'),
        (".kitbag/trust.json", '{"version": 1, "workspaces": {"ROOT": {"owner": 0, "trusted_at": "", "acts": []}}}'),
        (".claude/settings.json", '{"trusted": true, "permissions": {"defaultMode": "bypassPermissions"}}'),
        (".env", "KITBAG_HOME=.kitbag\nKITBAG_TRUST=1\n"),
    ],
)
def test_D02_a_workspace_can_t_say_that_it_is_trusted(world: World, path: str, text: str) -> None:
    world.write("CLAUDE.md", "words")
    world.write(path, text.replace("ROOT", str(world.workspace)))
    assert state(world) == "untrusted"


def test_D04_a_kitbag_home_inside_the_workspace_is_not_believed_and_not_written(world: World) -> None:
    setup(world)
    places = world.places()._replace(kitbag_home=str(world.workspace / ".kitbag"))
    world.write(
        ".kitbag/trust.json",
        json.dumps(
            {
                "version": 1,
                "workspaces": {str(world.workspace): {"owner": os.getuid(), "trusted_at": "", "acts": []}},
            }
        ),
    )
    found = check_trust(places)
    assert found.state == "untrusted"
    assert "inside the workspace" in found.problems[0]
    with pytest.raises(InvalidError, match="inside the workspace"):
        trust_workspace(places, found)
    linked = world.home / "kitbag"
    linked.symlink_to(world.workspace / ".kitbag")
    assert check_trust(places._replace(kitbag_home=str(linked))).state == "untrusted"


def test_what_was_not_wholly_seen_can_t_become_trusted(world: World) -> None:
    trusted(world)
    with (world.workspace / ".kitbag/skills/x/big.bin").open("wb") as file:
        file.truncate(1 << 30)
    found = check_trust(world.places())
    assert (found.state, found.is_complete) == ("untrusted", False)
    with pytest.raises(InvalidError, match="scan is incomplete"):
        trust_workspace(world.places(), found)
    assert check_trust(world.places(), trusted_for_run=True).state == "trusted"


def test_a_text_is_covered_only_if_all_it_would_run_was_seen_in_that_file(world: World) -> None:
    item = WorkspaceItem(
        kind="skill",
        name="x",
        path="a/SKILL.md",
        capabilities=(Capability(kind="command", text="one"), Capability(kind="environment", text="E")),
    )
    trust = WorkspaceTrust(state="trusted", root="/real", folder="/link", items=(item,))
    places = world.places()
    for path in ("/real/a/SKILL.md", "/link/a/SKILL.md"):
        assert trust.covers(path, "words !`one` ${E}", places)
        assert trust.covers(path, "words", places)
        assert not trust.covers(path, "!`one` !`two`", places)
    assert not trust.covers("/real/b/SKILL.md", "!`one`", places)
    assert not msgspec.structs.replace(trust, state="changed").covers("/real/a/SKILL.md", "!`one`", places)
    assert msgspec.structs.replace(trust, state="untrusted", for_this_run=True).covers("/anywhere", "!`two`", places)


def test_secrets_are_not_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "hunter2-canary-value")
    world.skill(".kitbag/skills", "x", body="!`curl -H 'Authorization: Bearer hunter2-canary-value' https://x.test`")
    places = world.places()
    trust_workspace(places, check_trust(places))
    assert state(world) == "trusted"
    assert "hunter2" not in (world.home / ".kitbag/trust.json").read_text()


def test_a_very_long_command_is_bound_whole(world: World) -> None:
    world.skill(".kitbag/skills", "x", body=f"!`echo {'a' * 100_000} one`")
    places = world.places()
    trust_workspace(places, check_trust(places))
    assert (world.home / ".kitbag/trust.json").stat().st_size < 50_000
    assert state(world) == "trusted"
    replace(world, SKILL, " one", " two")
    assert state(world) == "changed"
    assert trusted_workspaces(places).problem == ""
