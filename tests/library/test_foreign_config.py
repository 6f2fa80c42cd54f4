"""What other tools' settings would run is named, and nothing of it runs."""

import json
import subprocess

import pytest

from conftest import World
from kitbag.errors import Diagnostic
from kitbag.library.foreign_config import check_foreign_config


def notes(world: World) -> list[Diagnostic]:
    return check_foreign_config(world.places())


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        (
            ".mcp.json",
            {"mcpServers": {"files": {"command": "x"}}},
            "MCP servers are started only in a trusted workspace: files",
        ),
        (".vscode/mcp.json", {"servers": {"db": {}}}, "MCP servers are not started: db"),
        ("opencode.json", {"mcp": {"web": {}}}, "MCP servers are not started: web"),
        (".claude/settings.json", {"hooks": {"Stop": []}}, "hooks are not run: Stop"),
        (
            ".claude/settings.local.json",
            {"statusLine": {"command": "x"}},
            "the status line command is not run: command",
        ),
        (".claude/settings.json", {"apiKeyHelper": "cat key"}, "the key helper command is not run"),
        (".cursor/hooks.json", {"hooks": {"stop": []}}, "hooks are not run: stop"),
        ("~/.gemini/settings.json", {"mcpServers": {"g": {}}}, "MCP servers are not started: g"),
        (".claude/settings.json", {"env": {"A": "b"}}, "its environment variables are ignored: A"),
    ],
)
def test_each_is_named_with_its_line(world: World, file: str, content: object, said: str) -> None:
    path = world.write(file, "{\n" + json.dumps(content)[1:])
    assert [(d.severity, d.code, d.file, d.line, d.problem) for d in notes(world)] == [
        ("info", "not-run", str(path), 2, said)
    ]


def test_an_environment_file_is_said_to_be_left_alone(world: World) -> None:
    path = world.write(".env", "KITBAG_HOME=/evil\n")
    assert [(d.file, d.code) for d in notes(world)] == [(str(path), "not-run")]


def test_nothing_to_run_means_nothing_to_say(world: World) -> None:
    world.write(".claude/settings.json", '{"model": "opus", "hooks": {}}')
    world.write(".mcp.json", "[]")
    assert notes(world) == []


@pytest.mark.parametrize("text", ["{not json", "// a comment\n{}", "[" * 100_000, b"\xff\x00\xfe"])
def test_what_can_t_be_read_is_said_and_never_raised(world: World, text: str | bytes) -> None:
    world.write(".mcp.json", text)
    assert [d.problem for d in notes(world)] == ["not valid JSON; ignored"]


def test_names_from_a_file_can_t_add_lines_to_the_report(world: World) -> None:
    servers = {"a\nerror: all is lost": {}, "b" * 5_000: {}, **{f"s{n}": {} for n in range(50)}}
    world.write(".mcp.json", json.dumps({"mcpServers": servers}))
    (note,) = notes(world)
    assert "\n" not in note.problem
    assert len(note.problem) < 400
    assert note.problem.endswith("and 47 more")


def test_folders_of_the_former_layout_are_reported_with_the_command_that_moves_them(world: World) -> None:
    world.write(".gen/agents/ml-engineer.md", "---\nname: ml-engineer\ndescription: d\n---\nx\n")
    world.write("~/.gen/agents/mine.md", "---\nname: mine\ndescription: d\n---\nx\n")
    assert "not read" in world.run("doctor").stdout
    problems = [one for one in check_foreign_config(world.places()) if one.code == "not-read"]
    assert [one.file for one in problems] == [f"{world.workspace}/.gen/agents", f"{world.home}/.gen/agents"]
    for one in problems:
        subprocess.run(one.fix.removeprefix("run: "), shell=True, check=True)
    assert {"ml-engineer", "mine"} <= {agent.name for agent in world.registry().agents}
