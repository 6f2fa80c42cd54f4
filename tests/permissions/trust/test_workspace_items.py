"""What a workspace brings is found whole, read without running anything, and bounded whatever it holds."""

import json
import os
import sys
from pathlib import Path

import pytest

from conftest import World
from kitbag.permissions.trust.bounded_reader import ReadLimits
from kitbag.permissions.trust.workspace_items import WorkspaceScan, scan_workspace
from support.cost import processor_limit
from support.matrix import long


def found_in(world: World, cwd: Path | None = None, bounds: ReadLimits | None = None) -> WorkspaceScan:
    return scan_workspace(world.places(cwd), bounds or ReadLimits())


def acts_of(found: WorkspaceScan) -> set[tuple[str, str, str]]:
    return {(item.path, act.kind, act.text) for item in found.items for act in item.capabilities}


def test_an_empty_workspace_brings_nothing(world: World) -> None:
    world.write("src/main.py", "print('!`touch $CANARY`')")
    world.write(".env", "A=1")
    assert found_in(world) == ((), True, ())


def test_every_kind_of_thing_is_found(world: World) -> None:
    world.skill(".kitbag/skills", "a")
    world.skill(".claude/skills", "b")
    world.write(".claude/commands/c.md", "---\ndescription: d\n---\nx\n")
    world.write(".claude/agents/d.md", "---\nname: d\ndescription: d\n---\nx\n")
    world.write(".kitbag/personas/e.yaml", "name: e\ndescription: d\n")
    world.write(".kitbag/skills/shop/_team.md", "team")
    world.write(".kitbag/skills/manifest.json", '{"skills": []}')
    for name in ("CLAUDE.md", "AGENTS.md", "GEMINI.md", "CLAUDE.local.md", ".claude/CLAUDE.md", ".claude/rules/x/y.md"):
        world.write(name, "words")
    world.write(".github/copilot-instructions.md", "words")
    world.write(".kitbag/settings.toml", 'team = "shop"\n')
    world.write(".mcp.json", json.dumps({"mcpServers": {"s": {"command": "x"}}}))
    world.write(".claude-plugin/plugin.json", '{"name": "p"}')
    world.write(".claude/hooks/h.sh", "#!/bin/sh\n")
    kinds = {item.kind for item in found_in(world).items}
    assert kinds == {
        "skill", "command", "agent", "persona", "team", "manifest", "memory", "settings", "configuration", "plugin", "hook",
    }  # fmt: skip
    assert sum(item.kind == "memory" for item in found_in(world).items) == 7


@pytest.mark.parametrize("name", ["CLAUDE.md", "AGENTS.md", ".claude/rules/a.md", ".kitbag/settings.toml", ".mcp.json"])
def test_one_file_is_enough_to_bring_something(world: World, name: str) -> None:
    world.write(name, "")
    assert [item.path for item in found_in(world).items] == [name]


def test_what_a_skill_would_do_is_told_verbatim_with_its_line(world: World) -> None:
    body = "Words.\n\n!`git log -5`\n\n```!\nmake all\nmake test\n```\n\n${PLAIN} and `!`no`` and \\!`no`\n"
    world.skill(".kitbag/skills", "x", body=body, allowed_tools="Bash(git log:*), Read")
    [item] = found_in(world).items
    assert [(act.kind, act.text, act.line) for act in item.capabilities] == [
        ("tools", "allowed-tools: Bash(git log:*), Read", 4),
        ("command", "git log -5", 8),
        ("command", "make all\nmake test", 10),
        ("environment", "PLAIN", 15),
    ]


@pytest.mark.parametrize(
    ("head", "kind", "text"),
    [
        ("permission-mode: dontAsk", "mode", "permission-mode: dontAsk"),
        ("permissionMode: plan", "mode", "permissionMode: plan"),
        ("tools: Read, Bash", "tools", "tools: Read, Bash"),
        ("disallowedTools: Bash", "tools", "disallowedTools: Bash"),
        ("hooks:\n  Stop:\n    - command: evil", "hook", 'Stop: [{"command": "evil"}]'),
        ("mcpServers:\n  s:\n    command: npx\n    args: [-y, pkg]", "server", "s: npx -y pkg"),
        ("mcpServers: [github]", "server", 'mcpServers: ["github"]'),
        (
            "mcpServers:\n  - github\n  - s:\n      command: npx\n      env: {A: b}",
            "server",
            's: npx {"env": {"A": "b"}}',
        ),
        ("mcpServers:\n  - github\n  - s:\n      command: npx", "server", 'mcpServers: ["github"]'),
        ("mcp-servers:\n  - name: s\n    url: https://x.test", "server", "s: https://x.test"),
        ('"\\x68ooks":\n  Stop: evil', "hook", "Stop: evil"),
    ],
)
def test_what_an_agent_s_head_allows_is_told(world: World, head: str, kind: str, text: str) -> None:
    world.write(".claude/agents/a.md", f"---\nname: a\ndescription: d\n{head}\n---\nx\n")
    assert (".claude/agents/a.md", kind, text) in acts_of(found_in(world))


def test_a_head_that_allows_nothing_is_no_act(world: World) -> None:
    head = "name: a\ndescription: Script commands and hooks.\nmodel: haiku\ncolor: red\npermission-mode: default"
    world.write(".kitbag/agents/a.md", f"---\n{head}\n---\nx\n")
    assert acts_of(found_in(world)) == set()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "a.toml",
            'name = "a"\ndescription = "d"\ndeveloper_instructions = "!`touch $CANARY`"\nsandbox_mode = "danger"',
        ),
        ("a.yaml", 'name: a\ndescription: d\nsandbox_mode: danger\nprompt: "!`touch $CANARY`"'),
        (
            "a.json",
            json.dumps({"name": "a", "description": "d", "sandbox_mode": "danger", "prompt": "!`touch $CANARY`"}),
        ),
    ],
)
def test_agents_in_data_files_are_read_too(world: World, name: str, text: str) -> None:
    folder = ".codex/agents" if name.endswith("toml") else ".kitbag/agents"
    world.write(f"{folder}/{name}", text)
    assert {(kind, what) for _, kind, what in acts_of(found_in(world))} == {
        ("mode", "sandbox_mode: danger"),
        ("command", "touch $CANARY"),
    }


def test_servers_and_hooks_of_settings_files_are_told_whole(world: World) -> None:
    stdio = {"command": "npx", "args": ["-y", "a b"], "env": {"K": "v"}}
    world.write(
        ".mcp.json", json.dumps({"mcpServers": {"one": stdio, "two": {"type": "http", "url": "https://x.test"}}})
    )
    hooks = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "a | b"}]}]}
    world.write(".claude/settings.json", json.dumps({"hooks": hooks, "permissions": {"allow": ["Bash"]}, "theme": "x"}))
    world.write(".codex/config.toml", '[mcp_servers.three]\ncommand = "c"\nargs = ["d"]\n')
    world.write(".vscode/mcp.json", json.dumps({"servers": {"four": {"command": "e"}}}))
    assert acts_of(found_in(world)) == {
        (".mcp.json", "server", 'one: npx -y \'a b\' {"env": {"K": "v"}}'),
        (".mcp.json", "server", 'two: https://x.test {"type": "http"}'),
        (".claude/settings.json", "hook", 'PreToolUse {"matcher": "Bash"}: a | b'),
        (".codex/config.toml", "server", "three: c d"),
        (".vscode/mcp.json", "server", "four: e"),
    }
    notes = {item.path: {act.note for act in item.capabilities} for item in found_in(world).items}
    assert notes[".mcp.json"] == {""}
    assert all(notes[path] == {"not run by Kitbag"} for path in notes if path != ".mcp.json")


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"hooks": 1} // comment', "\ufeff{'a': 1}"])
def test_settings_that_can_t_be_read_count_whole(world: World, text: str) -> None:
    world.write(".claude/settings.json", text)
    [item] = found_in(world).items
    assert item.problem
    assert len(item.capabilities) == 1


def test_scripts_are_bound_to_their_bytes_and_prose_is_not(world: World) -> None:
    world.skill(".kitbag/skills", "x", body="!`./tools/run.sh now` !`python tools/a.py data.csv` !`cat tools/b.py`")
    for name in ("scripts/a.sh", "lib/util.py", "assets/data.json"):
        world.write(f".kitbag/skills/x/{name}", "x")
    for name in ("references/a.md", "assets/pic.png", "LICENSE"):
        world.write(f".kitbag/skills/x/{name}", "x")
    for name in ("tools/run.sh", "tools/a.py", "tools/b.py", "data.csv"):
        world.write(name, "x")
    scripts = {text for _, kind, text in acts_of(found_in(world)) if kind == "script"}
    assert scripts == {"scripts/a.sh", "lib/util.py", "assets/data.json", "tools/run.sh", "tools/a.py"}


@pytest.mark.parametrize(
    "command",
    ["tool.sh", "./tool.sh", "bash tool.sh", "cd . && ./tool.sh", "FOO=1 ./tool.sh", "env A=b sh tool.sh", "bash -c './tool.sh x'",
     "echo hi | sh tool.sh", "timeout 5 ./tool.sh", ". ./tool.sh", "(./tool.sh)", "sh < x; ./tool.sh"],
)  # fmt: skip
def test_a_script_of_the_workspace_that_a_command_runs_is_found(world: World, command: str) -> None:
    world.write("tool.sh", "echo")
    world.skill(".kitbag/skills", "x", body=f"!`{command}`")
    assert "tool.sh" in {text for _, kind, text in acts_of(found_in(world)) if kind == "script"}


def test_a_script_that_an_agent_s_server_starts_is_found(world: World) -> None:
    world.write("server.js", "x")
    head = "name: a\ndescription: d\nmcpServers:\n  - s: {command: node, args: [server.js]}"
    world.write(".claude/agents/a.md", f"---\n{head}\n---\nx\n")
    assert (".claude/agents/a.md", "script", "server.js") in acts_of(found_in(world))


def test_a_script_that_a_server_or_hook_starts_is_found(world: World) -> None:
    world.write("server.js", "x")
    world.write("hook.py", "x")
    world.write(".mcp.json", json.dumps({"mcpServers": {"s": {"command": "node", "args": ["server.js"]}}}))
    hook = {"Stop": [{"hooks": [{"type": "command", "command": 'python "$CLAUDE_PROJECT_DIR"/hook.py'}]}]}
    world.write(".claude/settings.json", json.dumps({"hooks": hook}))
    scripts = {text for _, kind, text in acts_of(found_in(world)) if kind == "script"}
    assert scripts == {"server.js", "hook.py"}


def test_tasks_count_only_when_they_would_run_something(world: World) -> None:
    world.write(".kitbag/tasks/a.md", "plain")
    assert found_in(world).items == ()
    world.write(".kitbag/tasks/b.json", json.dumps({"id": "b", "description": "x\n\n!`id`"}))
    world.write(".kitbag/tasks/c.md", "# C\n\n!`id`\n")
    world.write(".kitbag/tasks/d.yaml", "id: d\ndescription: |\n  x\n\n  !`id`\n")
    assert [item.name for item in found_in(world).items] == ["b", "c", "d"]


def test_a_subfolder_brings_its_own_and_what_is_above_it(world: World) -> None:
    world.write("CLAUDE.md", "x")
    world.write("sub/AGENTS.md", "x")
    world.write("other/AGENTS.md", "x")
    places = world.places()._replace(
        cwd=str(world.workspace / "sub"), project_dirs=(str(world.workspace / "sub"), str(world.workspace))
    )
    assert [item.path for item in scan_workspace(places).items] == ["CLAUDE.md", "sub/AGENTS.md"]


# --- hostile ----------------------------------------------------------------------------------------------------


def test_what_can_t_be_read_is_named_and_holds_nobody(world: World) -> None:
    for path in (
        ".kitbag/skills/pipe/SKILL.md",
        "CLAUDE.md",
        ".mcp.json",
        ".kitbag/settings.toml",
        ".claude/agents/a.md",
    ):
        (world.workspace / path).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(world.workspace / path)
    os.mkfifo(world.workspace / ".claude/pipe")
    (world.workspace / "AGENTS.md").symlink_to("AGENTS.md")
    world.write("GEMINI.md", b"\0\1\2")
    world.skill(".kitbag/skills", "x", body="!`.claude/pipe`")
    (world.workspace / ".kitbag/skills/x/loop").symlink_to("..")
    os.mkfifo(world.workspace / ".kitbag/skills/x/pipe.sh")
    found = found_in(world)
    named = {item.path for item in found.items if item.problem}
    assert named == {
        ".kitbag/skills/pipe/SKILL.md", "CLAUDE.md", ".mcp.json", ".kitbag/settings.toml", ".claude/agents/a.md", "AGENTS.md",
        "GEMINI.md",
    }  # fmt: skip


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every folder")
def test_a_folder_that_can_t_be_listed_is_said_and_nothing_is_whole(world: World) -> None:
    world.skill(".kitbag/skills", "x")
    closed = world.workspace / ".kitbag/skills/x/closed"
    closed.mkdir(mode=0)
    try:
        found = found_in(world)
    finally:
        closed.chmod(0o700)
    assert not found.is_complete


@long
def test_thousands_of_skills_are_seen_or_said_to_be_too_many(world: World) -> None:
    for number in range(4_000):
        folder = world.workspace / f".kitbag/skills/s{number}"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: s{number}\ndescription: d\n---\n!`echo {number}`\n")
    found = found_in(world)
    assert found.is_complete == (len(found.items) == 4_000)


@pytest.mark.parametrize(
    "bounds",
    [
        ReadLimits(files=20),
        ReadLimits(bytes=500),
        ReadLimits(seconds=0),
        ReadLimits(folders=5),
        ReadLimits(script_bytes=10),
    ],
)
def test_when_a_bound_is_reached_it_is_said(world: World, bounds: ReadLimits) -> None:
    for number in range(30):
        world.skill(".kitbag/skills", f"s{number}", body="words " * 20)
    world.write(".kitbag/skills/s1/run.sh", "x" * 100)
    found = found_in(world, bounds=bounds)
    assert not found.is_complete
    assert found.problems


def test_links_out_of_the_workspace_and_huge_files_end(world: World) -> None:
    world.skill(".kitbag/skills", "x")
    for name in (".kitbag/skills/out", ".kitbag/skills/x/all"):
        (world.workspace / name).symlink_to("/")
    world.write(".claude/agents/a.md", "---\nname: a\ndescription: d\n---\n")
    (world.workspace / ".claude/agents/everything").symlink_to("/")
    (world.workspace / "CLAUDE.md").symlink_to("/dev/zero")
    with (world.workspace / ".kitbag/skills/x/big.bin").open("wb") as file:
        file.truncate(5 << 30)
    found = found_in(world, bounds=ReadLimits(seconds=3))
    assert not found.is_complete


@long
@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".kitbag/settings.toml", ".".join("a" * 100_000) + " = 1"),
        (".kitbag/settings.toml", "x = " + "[" * 100_000),
        (".mcp.json", '{"mcpServers": ' + '{"a":' * 50_000),
        (".claude/settings.json", json.dumps({"hooks": {"e": ["'" * 2_000_000]}})),
        (".kitbag/skills/x/SKILL.md", "---\nname: x\ndescription: d\ntools: " + "{a: " * 5000 + "\n---\n"),
        (".kitbag/skills/x/SKILL.md", "---\nname: x\ndescription: d\n---\n" + "!`a " * 200_000),
        (".kitbag/skills/x/SKILL.md", "---\nname: x\ndescription: d\n---\n!`" + "a 'b " * 200_000 + "`"),
        (".kitbag/tasks/x.yaml", "a: &a [1,1]\n" + "b: [" + "*a," * 10_000 + "]"),
    ],
)
def test_hostile_texts_cost_little(world: World, name: str, text: str) -> None:
    world.write(name, text)
    with processor_limit():
        found_in(world)


def test_looking_starts_nothing_and_connects_to_nothing(world: World) -> None:
    events: list[str] = []

    def hook(event: str, arguments: object) -> None:
        if watching and event in (
            "subprocess.Popen",
            "os.exec",
            "os.posix_spawn",
            "os.system",
            "os.fork",
            "socket.connect",
        ):
            events.append(event)

    watching = True
    sys.addaudithook(hook)
    world.skill(".kitbag/skills", "x", body="!`touch $CANARY`")
    world.write(".mcp.json", json.dumps({"mcpServers": {"s": {"command": "touch", "args": [str(world.canary)]}}}))
    found_in(world)
    watching = False
    assert events == []
    assert not world.canary.exists()
