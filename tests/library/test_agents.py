"""Agent files of every tool, written to disk and read."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kitbag.errors import Diagnostic
from kitbag.library.agents import AgentFile, read_agent
from kitbag.library.dialects.field_names import AGENT_FIELDS, KNOWN_FIELDS, SKILL_FIELDS
from kitbag.library.scopes import Dialect, Root
from kitbag.text.source_files import SourceError
from support.cost import processor_limit
from support.matrix import examples


def root_of(path: Path, dialect: Dialect = "claude", plugin: str = "") -> Root:
    return Root(str(path), "agents", "plugin" if plugin else "project", dialect, (3, 0), plugin)


def read(
    folder: Path, text: str, file: str = "reviewer.md", dialect: Dialect = "claude", plugin: str = ""
) -> tuple[AgentFile | None, list[Diagnostic]]:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return read_agent(str(path), root_of(folder, dialect, plugin))


def agent_of(
    folder: Path, text: str, file: str = "reviewer.md", dialect: Dialect = "claude", plugin: str = ""
) -> AgentFile:
    agent, _ = read(folder, text, file, dialect, plugin)
    assert agent is not None
    return agent


def head(*lines: str, body: str = "You review.") -> str:
    return "\n".join(("---", *lines, "---", "", body, ""))


def codes(notes: list[Diagnostic]) -> list[tuple[str, str, int]]:
    return [(note.severity, note.code, note.line) for note in notes]


def test_a_file_of_claude_code_is_read_whole(tmp_path: Path) -> None:
    agent, notes = read(
        tmp_path,
        head(
            "name: code-reviewer",
            "description: Reviews code. Use after changes.",
            "tools: Read, Grep, Bash(git log:*)",
            "disallowedTools: Write",
            "model: opus",
            "permissionMode: plan",
            "maxTurns: 12",
            "skills: style, security",
            "background: true",
            "color: teal",
            "isolation: worktree",
            "effort: high",
            "memory: project",
        ),
    )
    assert agent is not None
    assert notes == []
    assert (agent.name, agent.full_name, agent.display_name) == ("code-reviewer",) * 3
    assert agent.description == "Reviews code. Use after changes."
    assert agent.tools.names == ("Read", "Grep", "Bash")
    assert agent.tools.specifiers == ("Bash(git log:*)",)
    assert agent.tools.denied == ("Write",)
    assert (agent.model.name, agent.permission_mode, agent.max_turns) == ("opus", "plan", 12)
    assert agent.skills == ("style", "security")
    assert (agent.background, agent.color, agent.isolation, agent.effort) == (
        True,
        "teal",
        "worktree",
        "high",
    )
    assert agent.extra == {"memory": "project"}
    assert agent.body() == "You review."


def test_a_file_of_kitbag_with_an_allowlist_is_read(tmp_path: Path) -> None:
    agent, notes = read(
        tmp_path,
        head(
            "name: ml",
            "description: d",
            "model: inherit",
            "permission-mode: dontAsk",
            "max-turns: 50",
            "tools:",
            "  mode: allowlist",
            "  allow:",
            "    - Read",
            "    - Write",
        ),
        dialect="kitbag",
    )
    assert agent is not None
    assert agent.tools.names == ("Read", "Write")
    assert agent.permission_mode == "autonomous"
    assert codes(notes) == [("info", "mode-dont-ask", 5)]


def test_a_file_of_opencode_goes_by_its_file_name(tmp_path: Path) -> None:
    agent, _ = read(
        tmp_path,
        head(
            "name: Security Audit",
            "description: d",
            "mode: subagent",
            "model: anthropic/claude-sonnet-4-5#high",
            "steps: 9",
            "hidden: true",
            "disable: true",
            "temperature: 0.1",
            "tools:",
            "  write: false",
            "  mymcp_*: false",
            "permission:",
            "  bash:",
            "    '*': ask",
            "    'git push*': deny",
            "  webfetch: deny",
        ),
        "audit.md",
        "opencode",
    )
    assert agent is not None
    assert (agent.name, agent.display_name, agent.mode) == ("audit", "Security Audit", "subagent")
    assert (agent.model.name, agent.model.variant) == ("anthropic/claude-sonnet-4-5", "high")
    assert (agent.max_turns, agent.hidden, agent.disabled) == (9, True, True)
    assert agent.tools.denied == ("Write", "mcp__mymcp__*", "Bash(git push*)", "WebFetch")
    assert agent.permission_mode == "default"
    assert agent.extra == {"temperature": "0.1"}


def test_permissions_of_opencode_that_deny_all_but_some_become_an_allow_list(tmp_path: Path) -> None:
    text = head("description: d", "permission:", "  '*': deny", "  read: allow", "  edit: ask")
    agent = agent_of(tmp_path, text, dialect="opencode")
    assert (agent.tools.mode, agent.tools.names) == ("allow", ("Read", "Edit", "Write"))
    assert agent.permission_mode == "default"


@pytest.mark.parametrize(
    ("lines", "rules", "denied"),
    [
        (("bash: {'*': deny, 'git *': allow}",), ("Bash(git *)",), ()),
        (("task: {'*': deny, db-admin: allow}",), ("Task(db-admin)",), ()),
        (("bash: {'*': deny, 'git *': allow, 'git push*': deny}",), ("Bash(git *)",), ("Bash(git push*)",)),
        (("edit: {'*': deny, 'docs/*': allow}",), ("Edit(docs/*)", "Write(docs/*)", "NotebookEdit(docs/*)"), ()),
        (("srv_*: {'*': deny, x: allow}",), (), ("mcp__srv__*",)),
        (("external_directory: {'*': deny, '/tmp/*': allow}",), (), ()),
    ],
)
def test_exceptions_to_what_opencode_denies_keep_the_tool_for_these_uses(
    tmp_path: Path, lines: tuple[str, ...], rules: tuple[str, ...], denied: tuple[str, ...]
) -> None:
    text = head("description: d", "permission:", *(f"  {line}" for line in lines))
    agent, notes = read(tmp_path, text, dialect="opencode")
    assert agent is not None
    assert (agent.tools.specifiers, agent.tools.denied, notes) == (rules, denied, [])
    assert all(agent.tools.allows(rule.split("(")[0]) for rule in rules)
    assert agent.tools.allows("Read")


def test_exceptions_hold_within_an_allow_list_and_never_add_to_it(tmp_path: Path) -> None:
    permission = ("permission:", "  '*': deny", "  read: allow", "  bash: {'git *': allow}")
    agent = agent_of(tmp_path, head("description: d", *permission), dialect="opencode")
    assert (agent.tools.names, agent.tools.specifiers) == (("Read", "Bash"), ("Bash(git *)",))
    agent = agent_of(tmp_path, head("description: d", "tools: Read", *permission), dialect="opencode")
    assert (agent.tools.names, agent.tools.specifiers) == (("Read",), ())
    text = head("description: d", "tools: Read, Bash(ls)", *permission)
    narrow, notes = read(tmp_path, text, dialect="opencode")
    assert narrow is not None
    assert narrow.tools.names == ("Read",)
    assert codes(notes) == [("warning", "permission-exceptions", 4)]


def test_edits_and_commands_denied_in_opencode_make_a_plan_agent(tmp_path: Path) -> None:
    agent = agent_of(
        tmp_path, head("description: d", "permission:", "  edit: deny", "  bash: deny"), dialect="opencode"
    )
    assert agent.permission_mode == "plan"
    assert not agent.tools.allows("Write")


def test_a_file_of_copilot_is_read_with_its_own_tool_names(tmp_path: Path) -> None:
    agent, notes = read(
        tmp_path,
        head(
            "name: Test Writer",
            "description: d",
            "tools: ['edit', 'search', 'web/fetch', 'github/*', 'problems']",
            "model: Claude Sonnet 4.5 (copilot)",
            "argument-hint: [file]",
            "infer: false",
            "user-invocable: false",
            "mcp-servers:",
            "  github:",
            "    command: npx",
        ),
        "test-writer.agent.md",
        "copilot",
    )
    assert agent is not None
    assert (agent.name, agent.display_name) == ("test-writer", "Test Writer")
    assert agent.tools.names == ("Edit", "Write", "Grep", "Glob", "WebFetch", "mcp__github__*")
    assert agent.tools.unknown == ("problems",)
    assert agent.model.name == "claude-sonnet-4-5"
    assert agent.argument_hint == "[file]"
    assert (agent.model_invocable, agent.user_invocable) == (False, False)
    assert agent.mcp_servers == ("github",)
    assert agent.inline_servers == {"github": {"command": "npx"}}
    assert codes(notes) == [("info", "tools-no-counterpart", 4)]
    assert agent_of(tmp_path, head("description: d"), "old.chatmode.md", "copilot").name == "old"


def test_a_file_of_gemini_is_read(tmp_path: Path) -> None:
    agent = agent_of(
        tmp_path,
        head(
            "name: a",
            "display_name: Nice",
            "description: d",
            "tools: [read_file, mcp_srv_*]",
            "max_turns: 30",
        ),
        dialect="gemini",
    )
    assert (agent.display_name, agent.tools.names, agent.max_turns) == ("Nice", ("Read", "mcp__srv__*"), 30)


@pytest.mark.parametrize(
    "lines",
    [
        ("kind: remote", "name: far", "agent_card_url: https://example.com/card"),
        ("kind: remote", "name: far", "description: Far away.", "agent_card_json: '{}'"),
    ],
)
def test_a_remote_agent_of_gemini_is_there_and_not_offered(tmp_path: Path, lines: tuple[str, ...]) -> None:
    agent, notes = read(tmp_path, head(*lines, body=""), dialect="gemini")
    assert agent is not None
    assert (agent.name, agent.disabled) == ("far", True)
    assert codes(notes) == [("info", "remote-not-started", 2)]
    assert notes[0].problem == "remote agents are not supported"


def test_a_list_of_remote_agents_is_a_remark_and_no_agent(tmp_path: Path) -> None:
    lines = ("- kind: remote", "  name: a", "  agent_card_url: u", "- kind: remote", "  name: b", "  agent_card_url: v")
    agent, notes = read(tmp_path, head(*lines, body=""), dialect="gemini")
    assert agent is None
    assert [(note.severity, note.code) for note in notes] == [("info", "remote-not-started")]
    other, notes = read(tmp_path, head("- name: a", "- name: b"), dialect="gemini")
    assert other is not None
    assert "head-not-fields" in [note.code for note in notes]


def test_a_file_of_opencode_in_a_folder_goes_by_its_own_name(tmp_path: Path) -> None:
    assert agent_of(tmp_path, head("description: d"), "sub/deep.md", "opencode").name == "deep"


def test_a_file_of_cursor_that_is_read_only_plans(tmp_path: Path) -> None:
    agent = agent_of(
        tmp_path, head("name: a", "description: d", "model: fast", "readonly: true", "is_background: true")
    )
    assert (agent.model.name, agent.permission_mode, agent.background) == ("fast", "plan", True)


def test_a_toml_file_of_codex_is_read(tmp_path: Path) -> None:
    text = (
        'name = "researcher"\ndescription = "Finds things."\nmodel = "gpt-5"\n'
        'model_reasoning_effort = "high"\nsandbox_mode = "read-only"\nnickname_candidates = ["Rae"]\n'
        'developer_instructions = """\nYou search.\n"""\n'
        '[mcp_servers.docs]\nurl = "http://localhost"\n'
    )
    agent, notes = read(tmp_path, text, "r.toml", "codex")
    assert agent is not None
    assert (agent.name, agent.model.name, agent.effort, agent.permission_mode) == (
        "researcher",
        "gpt-5",
        "high",
        "plan",
    )
    assert agent.body() == "You search."
    assert agent.mcp_servers == ("docs",)
    assert agent.extra == {"nickname_candidates": ["Rae"]}
    assert agent.inline_servers == {"docs": {"url": "http://localhost"}}
    assert codes(notes) == []


def test_tables_of_a_toml_file_are_found_on_their_lines(tmp_path: Path) -> None:
    head = 'name = "a"\ndescription = "d"\nprompt = "p"\n'
    tables = '[[skills.config]]\npath = "/x/SKILL.md"\nenabled = true\n\n  [ hooks . x ]\nurl = "u"\n'
    agent, notes = read(tmp_path, head + tables, "a.toml", "codex")
    assert agent is not None
    assert agent.skills == ()
    assert codes(notes) == [("info", "skills-config", 4), ("info", "hooks-not-run", 8)]
    dotted, notes = read(tmp_path, head + 'skillset = "x"\nskills.more = "x"\n', "b.toml", "codex")
    assert dotted is not None
    assert codes(notes) == [("warning", "skills-unreadable", 5)]


def test_a_yaml_file_of_a_team_is_read_and_knows_its_team(tmp_path: Path) -> None:
    text = (
        'name: reporter\ndescription: "Writes reports."\nprompt: |\n  You write.\n  Reports.\n'
        "tools:\n  - Read\n  - mcp__kusto__query\nmodel: sonnet\nfile_extensions: [py, .sql, '*.kql']\n"
    )
    agent, notes = read(tmp_path, text, "data/_subagents/reporter.yaml", "kitbag")
    assert agent is not None
    assert notes == []
    assert (agent.name, agent.team, agent.persona, agent.full_name) == (
        "reporter",
        "data",
        "",
        "data/reporter",
    )
    assert agent.tools.names == ("Read", "mcp__kusto__query")
    assert agent.file_extensions == (".py", ".sql", ".kql")
    assert agent.body() == "You write.\nReports."
    own = agent_of(tmp_path, text, "data/support/_subagents/reporter.yaml", "kitbag")
    assert (own.team, own.persona) == ("data", "support")


def test_a_json_file_is_read(tmp_path: Path) -> None:
    value = {
        "name": "j",
        "description": "d",
        "prompt": "Do.",
        "tools": ["Read"],
        "maxTurns": 4,
        "background": True,
    }
    agent, notes = read(tmp_path, json.dumps(value), "j.json")
    assert agent is not None
    assert notes == []
    assert (agent.max_turns, agent.background, agent.tools.names, agent.body()) == (4, True, ("Read",), "Do.")
    assert agent_of(tmp_path, '{"name": "n", "prompt": "x", "tools": null}', "n.json").tools.mode == "none"


@pytest.mark.parametrize(
    ("file", "text", "code"),
    [
        ("a.toml", "name = ", "toml-invalid"),
        ("a.toml", "a" + ".a" * 100_000 + " = 1", "toml-limit"),
        ("a.json", "[" * 100_000, "json-invalid"),
        ("a.json", "[1]", "head-not-fields"),
        ("a.yaml", "interface:\n  x: y\n", "not-an-agent"),
    ],
)
def test_a_data_file_that_is_no_agent_is_reported_and_left_out(tmp_path: Path, file: str, text: str, code: str) -> None:
    agent, notes = read(tmp_path, text, file)
    assert agent is None
    assert [note.code for note in notes] == [code]


def test_a_prompt_that_is_missing_or_in_another_file_is_reported(tmp_path: Path) -> None:
    _, notes = read(tmp_path, "name: a\ndescription: d\n", "a.yaml")
    assert codes(notes) == [("warning", "no-prompt", 1)]
    _, notes = read(tmp_path, "name: a\ndescription: d\nprompt: '{file:./x.txt}'\n", "a.yaml")
    assert codes(notes) == [("warning", "prompt-file", 3)]


def test_documentation_is_no_agent(tmp_path: Path) -> None:
    assert read(tmp_path, "# Agents\n\nAbout them.\n", "README.md") == (None, [])
    assert read(tmp_path, head("description: d"), "CLAUDE.md") == (None, [])
    for name in ("router.prompt.md", "python.instructions.md"):
        assert read(tmp_path, head("description: d", "tools: [search]"), name) == (None, [])
    agent, notes = read(tmp_path, "# Notes\n\nJust notes.\n", "notes.md")
    assert agent is None
    assert [(note.severity, note.code) for note in notes] == [("info", "not-an-agent")]


def test_a_file_that_can_not_be_read_is_an_error_and_not_an_exception(tmp_path: Path) -> None:
    root = root_of(tmp_path)
    (tmp_path / "binary.md").write_bytes(b"\0\1\2")
    os.mkfifo(tmp_path / "pipe.md")
    for name in ("binary.md", "pipe.md", "missing.md"):
        agent, notes = read_agent(str(tmp_path / name), root)
        assert agent is None
        assert [note.severity for note in notes] == ["error"]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("on", "on"),
        ("3000", "3000"),
        ("2024-01-01", "2024-01-01"),
        ("C# Expert", "C# Expert"),
        ("dotnet-framework-4.8-expert", "dotnet-framework-4.8-expert"),
        ("überprüfer", "überprüfer"),
        ("审查", "审查"),
    ],
)
def test_a_usable_name_is_kept_as_it_is_written(tmp_path: Path, written: str, name: str) -> None:
    agent, notes = read(tmp_path, head(f"name: {written}", "description: d"))
    assert agent is not None
    assert (agent.name, notes) == (name, [])


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("[a, b]", "file"),
        ("{a: b}", "file"),
        ("null", "file"),
        ("~", "file"),
        ("", "file"),
        ("'..'", "file"),
        ("'../../etc'", "file"),
        ("'review:security'", "review-security"),
        ("'a/b'", "a-b"),
        ("'-rf'", "rf"),
        ("'.hidden'", "hidden"),
        ("'zero\u200bwidth'", "zerowidth"),
        ("x" * 100, "x" * 64),
    ],
)
def test_an_unusable_name_is_corrected_and_reported_with_its_line(tmp_path: Path, written: str, name: str) -> None:
    agent, notes = read(tmp_path, head("description: d", f"name: {written}"), "file.md")
    assert agent is not None
    assert agent.name == name
    assert codes(notes) == [("warning", "name-unusable", 3)]


def test_hidden_characters_in_a_name_a_description_and_a_file_name_are_named(tmp_path: Path) -> None:
    text = head("name: a\u202eb", "description: Does\U000e0041\u200b it.")
    agent, notes = read(tmp_path, text)
    assert agent is not None
    assert (agent.name, agent.description) == ("ab", "Does it.")
    said = " ".join(note.problem for note in notes)
    assert all(point in said for point in ("U+202E", "U+E0041", "U+200B"))
    hidden = agent_of(tmp_path, head("description: d"), "fi\u2060le.md")
    assert hidden.name == "file"
    shown, notes = read(tmp_path, head("name: A\u200bB", "description: d"), "x.md", "copilot")
    assert shown is not None
    assert (shown.display_name, [note.code for note in notes]) == ("AB", ["hidden-characters"])


def test_letters_of_all_scripts_and_emoji_are_left_alone(tmp_path: Path) -> None:
    description = "Prüft 代码 👩\u200d💻 ❤\ufe0f שלום مرحبا"
    agent, notes = read(tmp_path, "\ufeff" + head("name: ok", f"description: {description}"))
    assert agent is not None
    assert (agent.description, notes) == (description, [])


def test_a_missing_description_is_taken_from_the_body_with_a_warning(tmp_path: Path) -> None:
    for line in ("color: red", "description:", "description: null", "description: {a: b}"):
        agent, notes = read(tmp_path, head("name: a", line, body="# Title\n\nFirst paragraph\nof it.\n\nMore."))
        assert agent is not None
        assert agent.description == "First paragraph of it."
        assert [(note.severity, note.code) for note in notes] == [("warning", "no-description")]


@pytest.mark.parametrize("key", ["maxTurns", "max-turns", "max_turns", "steps", "maxSteps"])
def test_every_spelling_of_the_turn_limit_counts(tmp_path: Path, key: str) -> None:
    assert agent_of(tmp_path, head("name: a", "description: d", f"{key}: 7")).max_turns == 7


@pytest.mark.parametrize("value", ["lots", "-3", "0", "1e9", "[3]", "99999999999", "٣"])
def test_a_wrong_turn_limit_is_ignored_with_a_warning(tmp_path: Path, value: str) -> None:
    agent, notes = read(tmp_path, head("name: a", "description: d", f"max-turns: {value}"))
    assert agent is not None
    assert agent.max_turns is None
    assert codes(notes) == [("warning", "turns-unreadable", 4)]


@pytest.mark.parametrize("key", ["permissionMode", "permission-mode", "permission_mode"])
def test_dont_ask_is_locked_outside_kitbag_and_autonomous_inside(tmp_path: Path, key: str) -> None:
    text = head("name: a", "description: d", f"{key}: dontAsk")
    assert agent_of(tmp_path, text, dialect="claude").permission_mode == "locked"
    agent, notes = read(tmp_path, text, dialect="kitbag")
    assert agent is not None
    assert (agent.permission_mode, agent.permission_mode_original) == ("autonomous", "dontAsk")
    assert codes(notes) == [("info", "mode-dont-ask", 4)]


@pytest.mark.parametrize("value", ["yolo", "[plan]", "{a: b}", ""])
def test_an_unknown_or_ill_typed_mode_is_default_with_a_warning(tmp_path: Path, value: str) -> None:
    agent, notes = read(tmp_path, head("name: a", "description: d", f"permission-mode: {value}"))
    assert agent is not None
    assert agent.permission_mode == "default"
    assert [(note.severity, note.line) for note in notes] == [("warning", 4)]


def test_the_strictest_of_several_modes_counts(tmp_path: Path) -> None:
    text = head("name: a", "description: d", "permissionMode: bypassPermissions", "readonly: perhaps")
    agent, notes = read(tmp_path, text)
    assert agent is not None
    assert agent.permission_mode == "plan"
    assert [note.code for note in notes] == ["not-a-boolean"]


def test_a_plugin_chooses_no_mode_hooks_or_servers(tmp_path: Path) -> None:
    lines = (
        "name: a",
        "description: d",
        "permissionMode: bypassPermissions",
        "hooks:",
        "  Stop: x",
        "mcpServers: [db, {web: {command: evil}}]",
        "permission:",
        "  edit: allow",
    )
    agent, notes = read(tmp_path, head(*lines), plugin="kit")
    assert agent is not None
    assert agent.full_name == "kit:a"
    assert (agent.permission_mode, agent.has_hooks) == ("default", False)
    assert (agent.mcp_servers, agent.inline_servers) == ((), {})
    assert codes(notes) == [
        ("info", "plugin-mode-ignored", 4),
        ("info", "plugin-servers-ignored", 7),
        ("info", "plugin-hooks-ignored", 5),
    ]


def test_hooks_are_reported_as_not_run_and_servers_are_kept(tmp_path: Path) -> None:
    lines = ("hooks:", "  Stop: x", "mcpServers:", "  - db", "  - web:", "      url: u")
    agent, notes = read(tmp_path, head("name: a", "description: d", *lines))
    assert agent is not None
    assert (agent.has_hooks, agent.mcp_servers) == (True, ("db", "web"))
    assert agent.inline_servers == {"web": {"url": "u"}}
    assert {note.code for note in notes} == {"hooks-not-run"}


def test_servers_that_a_broken_head_left_as_text_are_not_named(tmp_path: Path) -> None:
    lines = ("description: Use when: asked", "mcpServers:", "  - name: db: x", "    url: u")
    agent, notes = read(tmp_path, head("name: a", *lines))
    assert agent is not None
    assert (agent.mcp_servers, agent.inline_servers) == ((), {})
    assert ("warning", "servers-unreadable", 4) in codes(notes)
    assert agent_of(tmp_path, head("name: a", "description: d", "mcpServers: db, web")).mcp_servers == ("db", "web")


@pytest.mark.parametrize(
    ("lines", "mode"),
    [
        (("tools: Read",), "allow"),
        ((), "inherit"),
        (("tools: []",), "none"),
        (("tools:",), "none"),
        (("tools: '*'",), "all"),
        (("tools: *",), "all"),
        (("tools: *everything",), "none"),
        (("tools: Grpe",), "none"),
        (("Tools: Read",), "allow"),
        (("model: inherit", "\ttools: Read"), "allow"),
        (("allowed-tools: Read",), "allow"),
        (("tools: {read: true",), "none"),
        (("tools: [Read, Grep",), "allow"),
        (("disallowed-tools: Bash",), "deny"),
        (("disallowedTools: Bash", "deny: [Write]"), "deny"),
        (("disallowedTools: Bsh",), "none"),
    ],
)
def test_what_a_tools_line_says_is_what_the_agent_gets(tmp_path: Path, lines: tuple[str, ...], mode: str) -> None:
    assert agent_of(tmp_path, head("name: a", "description: d", *lines)).tools.mode == mode


@pytest.mark.parametrize(
    "text",
    [
        "---\nname: a\ndescription: Use: x: y\n  tools: Read\n---\nbody",
        "---\nname: a\ndescription: d\n\ntools: Read\n\nbody without an end of the head",
        "---\n[tools: Read\n---\nbody",
        "---\nname: a\nmetadata: x\n\tmore: y\n\t\ttools: Read\n---\nbody",
        "---\nname: a\ndescription: " + "x" * 300_000 + "\ntools: Read\n---\nbody",
        "---\nname: a\ndescription: " + "x" * 5_000_000 + "\n---\nbody",
    ],
)
def test_a_broken_head_that_hides_its_tools_gives_no_tools(tmp_path: Path, text: str) -> None:
    agent, notes = read(tmp_path, text)
    assert agent is not None
    assert agent.tools.mode == "none"
    assert ("error", "tools-unreadable") in {(note.severity, note.code) for note in notes}


def test_denials_under_several_spellings_all_count(tmp_path: Path) -> None:
    lines = ("disallowedTools: Bash", "disallowed-tools: Write", "Deny: [WebFetch]")
    agent = agent_of(tmp_path, head("name: a", "description: d", *lines))
    assert agent.tools.denied == ("Bash", "Write", "WebFetch")
    broken = agent_of(tmp_path, head("name: a", "description: Use when: asked", *lines[:2]))
    assert broken.tools.denied == ("Bash", "Write")


def test_a_broken_head_without_a_word_on_tools_inherits_them(tmp_path: Path) -> None:
    agent, notes = read(tmp_path, head("name: a", "description: Use when: asked"))
    assert agent is not None
    assert (agent.tools.mode, agent.description) == ("inherit", "Use when: asked")
    assert [note.code for note in notes] == ["yaml-recovered"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "---",
        "---\n---",
        "---\nname: a\nname: b\n---\n",
        "---\r\nname: a\r\ndescription: d\r\n---\r\nbody\r\n",
        "---\na: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\nname: n\ndescription: d\n---\n",
        "---\ndescription: " + "[" * 5000 + "\n---\nbody",
        "---\ntools: " + "[" * 5000 + "]" * 5000 + "\n---\nbody",
        "---\nname: !!python/object/apply:os.system [echo]\ndescription: d\n---\n",
        "---\nname: a\ndescription: " + "x" * 10_000_000 + "\n---\n",
        "---\ndescription: d\ntools: " + "Read " * 100_000 + "\n---\n",
    ],
)
def test_a_hostile_file_costs_little_and_raises_nothing(tmp_path: Path, text: str) -> None:
    with processor_limit():
        agent, notes = read(tmp_path, text)
    assert agent is not None or notes
    assert all(note.file.endswith("reviewer.md") and note.problem and note.fix for note in notes)


def test_the_body_is_read_from_disk_each_time(tmp_path: Path) -> None:
    agent = agent_of(tmp_path, head("name: a", "description: d", body="\n\nOne.\n"))
    assert agent.body() == "One."
    (tmp_path / "reviewer.md").write_text(head("name: a", "description: d", body="Two."))
    assert agent.body() == "Two."
    (tmp_path / "reviewer.md").unlink()
    with pytest.raises(SourceError):
        agent.body()


def test_unknown_fields_are_kept(tmp_path: Path) -> None:
    agent = agent_of(tmp_path, head("name: a", "description: d", "capabilities: [x]", "activation_triggers: [y]"))
    assert agent.extra == {"capabilities": ["x"], "activation_triggers": ["y"]}


def test_the_json_form_has_what_a_listing_needs_and_the_originals(tmp_path: Path) -> None:
    text = head("name: a", "description: d", "tools: Read, Grep", "model: Claude Sonnet 4.5", "permissionMode: Plan")
    value = json.loads(json.dumps(agent_of(tmp_path, text).to_json()))
    for key in (
        "name",
        "full_name",
        "display_name",
        "description",
        "scope",
        "dialect",
        "path",
        "max_turns",
        "skills",
    ):
        assert key in value
    assert (value["scope"], value["dialect"]) == ("project", "claude")
    assert (value["model"]["name"], value["model"]["original"]) == ("claude-sonnet-4-5", "Claude Sonnet 4.5")
    assert (value["permission_mode"], value["permission_mode_original"]) == ("plan", "Plan")
    assert (value["tools"]["names"], value["tools"]["original"]) == (["Read", "Grep"], "Read, Grep")


def test_the_built_in_agents_are_read_without_a_word(tmp_path: Path) -> None:
    import kitbag

    folder = Path(kitbag.__file__).parent / "builtin" / "agents"
    root = Root(str(folder), "agents", "built-in", "kitbag", (9, 0))
    for path in sorted(folder.glob("*.md")):
        agent, notes = read_agent(str(path), root)
        assert agent is not None
        assert notes == []


def test_the_field_sets_are_case_sensitive_and_complete() -> None:
    assert SKILL_FIELDS <= KNOWN_FIELDS
    assert AGENT_FIELDS <= KNOWN_FIELDS
    assert {"tools", "permissionMode", "max_turns", "core_skills", "when_to_use"} <= KNOWN_FIELDS
    assert "Context" not in KNOWN_FIELDS


values = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["*", "[Read", "{a: b}", "null", "true", "- x", "!!x y", "&a b", "plan", "Bash(x, y)", "|", ">"]),
)
fields = st.sampled_from(sorted(AGENT_FIELDS))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(150))
@given(
    st.lists(st.tuples(fields, values), max_size=6),
    st.sampled_from(["claude", "kitbag", "opencode", "copilot"]),
)
def test_any_head_is_read_without_an_exception_and_gives_a_safe_name(
    tmp_path: Path, lines: list[tuple[str, str]], dialect: Dialect
) -> None:
    text = head(*(f"{key}: {value}" for key, value in lines))
    path = tmp_path / "any.md"
    path.write_text(text, encoding="utf-8", errors="replace")
    agent, notes = read_agent(str(path), root_of(tmp_path, dialect))
    assert all(note.fix and note.line >= 0 for note in notes)
    if agent is not None:
        assert 0 < len(agent.name) <= 64
        assert not set(agent.name) & set(":/\\\n\0")
        json.dumps(agent.to_json())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(100))
@given(st.binary(max_size=300), st.sampled_from([".md", ".yaml", ".toml", ".json"]))
def test_any_bytes_are_read_without_an_exception(tmp_path: Path, data: bytes, suffix: str) -> None:
    path = tmp_path / f"any{suffix}"
    path.write_bytes(b"---\n" + data if suffix == ".md" else data)
    agent, notes = read_agent(str(path), root_of(tmp_path))
    assert agent is not None or notes


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("tool", "tools"),
        ("alowed-tools", "tools"),
        ("dissallowedTools", "disallowedTools"),
        ("permision-mode", "permission-mode"),
        ("permission_mod", "permission-mode"),
        ("mcp-server", "mcpServers"),
        ("disable-model-invokation", "disable-model-invocation"),
        ("read_onli", "readonly"),
        ("deny-tools", "disallowedTools"),
        ("blockedTools", "disallowedTools"),
        ("permitted_tools", "tools"),
        ("enabled", "`disable`"),
        ("isolate", "isolation"),
        ("permissoin", "permission"),
        ("sandobx_mode", "sandbox_mode"),
        ("raedonly", "readonly"),
        ("max-truns", "max-turns"),
        ("toosl", "tools"),
        ("disabel", "`disable`"),
        ("disallow", "disallowedTools"),
        ("allow", "tools"),
        ("allow-model-invocation", "disable-model-invocation"),
    ],
)
def test_a_near_miss_of_a_field_that_limits_an_agent_is_reported(tmp_path: Path, key: str, meant: str) -> None:
    agent, notes = read(tmp_path, f"---\nname: a\ndescription: b\n{key}: x\nauthor: y\n---\nText.\n")
    assert agent is not None
    assert [(note.severity, note.code, note.line) for note in notes] == [("warning", "field-misspelled", 4)]
    assert meant in notes[0].fix


@pytest.mark.parametrize("line", ["disallowed tools: Bash", "Disallowed Tools: Bash", "DISALLOWED-TOOLS: Bash"])
def test_a_field_with_spaces_in_its_name_is_read(tmp_path: Path, line: str) -> None:
    agent, notes = read(tmp_path, f"---\nname: a\ndescription: b\n{line}\n---\nText.\n")
    assert agent is not None
    assert (agent.tools.denied, notes) == (("Bash",), [])


def test_a_field_that_limits_an_agent_inside_metadata_is_reported(tmp_path: Path) -> None:
    text = "---\nname: a\ndescription: b\nmetadata:\n  x: {disallowedTools: Bash}\n---\nText.\n"
    agent, notes = read(tmp_path, text)
    assert agent is not None
    assert [(note.code, note.line) for note in notes] == [("field-misplaced", 4)]
    assert "`disallowedTools` inside `metadata.x`" in notes[0].problem


def test_a_tool_list_after_a_malformed_closing_fence_is_not_dropped_silently(tmp_path: Path) -> None:
    agent, notes = read(tmp_path, "---\nname: a\ndescription: b\n---## Do\n\ntools: Read\n\n---\nText.\n")
    assert agent is not None
    assert agent.tools.mode == "none"
    assert {"head-fence", "tools-unreadable"} <= {note.code for note in notes}


def test_a_copilot_agent_with_only_servers_has_their_tools_wherever_its_file_is(tmp_path: Path) -> None:
    text = "---\nname: Jira\ndescription: Tracks issues.\ntools: ['atlassian']\n---\nText.\n"
    for dialect in ("kitbag", "copilot"):
        agent, notes = read(tmp_path, text, "jira.agent.md", dialect)
        assert agent is not None
        assert (agent.tools.mode, agent.tools.names) == ("allow", ("mcp__atlassian__*",))
        assert [(note.severity, note.code) for note in notes] == [("info", "tools-servers")]
    declared = text.replace("tools:", "mcp-servers: {atlassian: {url: 'https://x.example'}}\ntools:")
    assert agent_of(tmp_path, declared, "a.md", "claude").tools.names == ("mcp__atlassian__*",)
    assert agent_of(tmp_path, text, "b.md", "claude").tools.mode == "none"


@pytest.mark.parametrize(
    ("name", "text", "is_agent"),
    [
        ("docs/web.md", "---\nsummary: How to use the web UI.\n---\nText.\n", False),
        ("pkg/package.json", '{"name": "a", "description": "A package."}', False),
        ("docs/reviewer.md", "---\nname: reviewer\ndescription: Reviews.\n---\nYou review.\n", True),
        ("agents/web.md", "---\ndescription: Helps.\n---\nYou help.\n", True),
        ("p/commands/go.md", "---\nname: go\ndescription: Go.\nallowed-tools: Bash\n---\nGo $1.\n", False),
        ("commands/agents/go.md", "---\nname: go\ndescription: Go.\n---\nGo.\n", False),
        ("p/output-styles/brief.md", "---\nname: brief\ndescription: Short.\n---\nBe brief.\n", False),
        ("prompts/x.prompt.md", "---\nmode: agent\ntools: ['search']\n---\nDo.\n", False),
        ("agents/x/commands/go.md", "---\nname: go\ndescription: Go.\n---\nGo.\n", False),
        ("agentbar/voices.md", "---\nenabled: true\n---\n| voice |\n", False),
        ("tasks/a.md", "---\ntools: [github-cli]\n---\n# A\n", False),
        ("tasks/b.md", "---\ndescription: Helps.\nmode: subagent\n---\nYou help.\n", True),
        ("agent-teams/all.yaml", "name: all\nagents: [a]\n", False),
        ("x/subagents/a.md", "---\ndescription: Helps.\n---\nYou help.\n", True),
    ],
)
def test_a_page_in_a_directory_that_the_user_names_needs_more_than_a_description(
    tmp_path: Path, name: str, text: str, is_agent: bool
) -> None:
    path = tmp_path / "given" / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    root = root_of(tmp_path / "given")._replace(scope="extra")
    assert (read_agent(str(path), root)[0] is not None) == is_agent


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tsconfig.json", "{ // comment\n}"),
        ("pkg/hooks/hooks.json", '{"hooks": {}}'),
        ("examples/policy.toml", "x = '\\'"),
        ("mkdocs.yml", "site_name: x\nplugins: !!python/name:a.b\n"),
        ("docs/guide.md", "# Guide\n\nText.\n"),
        ("docs/page.md", "---\ntitle: [a\n---\nText.\n"),
        ("p/commands/go.md", "---\ndescription: Go: now.\n---\nGo.\n"),
    ],
)
def test_other_files_of_a_directory_that_the_user_names_are_no_problem(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / "given" / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert read_agent(str(path), root_of(tmp_path / "given")._replace(scope="extra")) == (None, [])


def test_an_invalid_agent_of_a_directory_that_the_user_names_is_a_problem(tmp_path: Path) -> None:
    root = root_of(tmp_path)._replace(scope="extra")
    for name, text in (("agents/a.json", "{"), ("b.toml", "prompt = "), ("c.md", "Text.\n")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        agent, notes = read_agent(str(path), root)
        assert agent is None
        assert notes
    for name in ("CHANGELOG.md", "README.ja.md", "CODE-OF-CONDUCT.md"):
        (tmp_path / name).write_text("Text.\n")
        assert read_agent(str(tmp_path / name), root) == (None, [])
