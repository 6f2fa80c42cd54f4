"""The tools by the names that other systems give them, in files as people have them."""

import pytest

from conftest import World
from kitbag.library.dialects.tool_aliases import CANONICAL_TOOLS, closest_tool, resolve_tool
from kitbag.packing.session_skills import SessionSkills

CLAUDE = """---
name: worker
description: Works.
tools: Read, Write, Edit, MultiEdit, NotebookEdit, NotebookRead, LS, Glob, Grep, Bash, BashOutput, KillShell, WebFetch,
  WebSearch, TodoWrite, AskUserQuestion, Skill, SlashCommand, Agent
---
Work.
"""
COPILOT = """---
description: Works.
tools: ['read', 'edit', 'search', 'execute', 'web', 'todo', 'agent', 'vscode/askQuestions', 'github/get_issue']
---
Work.
"""
GEMINI = """---
name: worker
description: Works.
tools:
  - read_file
  - read_many_files
  - write_file
  - replace
  - list_directory
  - glob
  - grep_search
  - run_shell_command
  - web_fetch
  - google_web_search
  - write_todos
  - ask_user
  - activate_skill
---
Work.
"""
OPENCODE = """---
description: Works.
mode: subagent
tools:
  "*": false
  bash: true
  read: true
  write: true
  edit: true
  apply_patch: true
  list: true
  glob: true
  grep: true
  webfetch: true
  websearch: true
  todowrite: true
  question: true
  skill: true
  task: true
---
Work.
"""
EVERY_DAY = {"Read", "Write", "Edit", "Bash", "Glob", "Grep", "WebFetch", "WebSearch", "TodoWrite", "AskUser"}


@pytest.mark.parametrize(
    ("path", "text", "also"),
    [
        (".claude/agents/worker.md", CLAUDE, {"NotebookEdit", "Skill", "Task", "TaskOutput", "TaskStop"}),
        (".github/agents/worker.agent.md", COPILOT, {"Task", "mcp__github__get_issue"}),
        (".gemini/agents/worker.md", GEMINI, {"Skill"}),
        (".opencode/agent/worker.md", OPENCODE, {"Skill", "Task"}),
    ],
    ids=["claude", "copilot", "gemini", "opencode"],
)
def test_an_agent_s_file_of_any_system_gets_these_tools(world: World, path: str, text: str, also: set[str]) -> None:
    world.write(path, text)
    tools = world.registry().find_agent("worker").tools
    assert set(tools.names) == EVERY_DAY | also
    assert not tools.unknown


@pytest.mark.parametrize(
    ("folder", "written", "rules"),
    [
        (".claude/skills", "Bash(git log:*), Read, KillBash", {"Bash(git log:*)", "Read", "TaskStop"}),
        (
            ".codex/skills",
            "shell(git log:*) apply_patch update_plan",
            {"Bash(git log:*)", "Edit", "Write", "TodoWrite"},
        ),
        (".gemini/skills", "run_shell_command(git log), replace", {"Bash(git log)", "Edit"}),
        (".opencode/skill", "bash(git log *) webfetch", {"Bash(git log *)", "WebFetch"}),
        (".github/skills", "powershell, str_replace_editor", {"Bash", "Edit"}),
        (".cursor/skills", "run_terminal_cmd, search_replace, codebase_search", {"Bash", "Edit", "Grep", "Glob"}),
        (".agents/skills", "shell_command, grep_files, view_image", {"Bash", "Grep", "Read"}),
    ],
    ids=["claude", "codex", "gemini", "opencode", "copilot", "cursor", "agents"],
)
def test_a_skill_s_file_of_any_system_asks_for_these(world: World, folder: str, written: str, rules: set[str]) -> None:
    world.skill(folder, "worker", allowed_tools=f'"{written}"')
    found = SessionSkills(world.registry(), deny_grant=lambda _: "").load("worker").permissions
    assert found is not None
    assert {f"{rule.tool}({rule.specifier})" if rule.specifier else rule.tool for rule in found.grants} == rules


SPELLINGS = {
    "Read": "view view_file read_file ReadFile NotebookRead read_media_file view_image fs_read open_file cat",
    "Write": "write_file WriteFile create create_file write_to_file save_file",
    "Edit": "MultiEdit replace edit_file search_replace str_replace StrReplace apply_diff insert_content edit",
    "Edit Write": "apply_patch patch editFiles insert_edit_into_file",
    "Bash": "shell execute run_shell_command run_terminal_cmd run_in_terminal powershell PowerShell Shell exec_command"
    " local_shell shell_command execute_command container.exec bash",
    "Glob": "LS ls list list_dir list_directory list_files file_search glob_file_search find_by_name",
    "Grep": "grep_search search_file_content rg grep_files text_search search_files",
    "Grep Glob": "codebase codebase_search semantic_search search",
    "WebFetch": "fetch web_fetch fetch_url FetchURL fetch_webpage read_url_content webfetch",
    "WebSearch": "web_search google_web_search SearchWeb websearch",
    "TodoWrite": "todo todo_write todowrite todoread update_plan write_todos SetTodoList manage_todo_list TaskCreate"
    " update_todo update_todo_list",
    "AskUser": "AskUserQuestion ask_user question ask_question request_user_input ask_followup_question",
    "Skill": "skill activate_skill use_skill SlashCommand",
    "Task": "Agent agent task spawn_agent runSubagent delegate_to_agent new_task",
    "TaskOutput": "BashOutput read_bash get_terminal_output wait_agent AgentOutputTool",
    "TaskStop": "KillShell KillBash stop_bash close_agent",
    "NotebookEdit": "edit_notebook",
    "SearchSkills": "search_skills",
    "": "delete_file switch_mode read_lints report_intent save_memory get_errors write_stdin send_input batch lsp",
}


@pytest.mark.parametrize(
    ("tools", "spelling"), [(tools, one) for tools, all_ in SPELLINGS.items() for one in all_.split()]
)
def test_a_name_of_another_system_is_known(tools: str, spelling: str) -> None:
    assert resolve_tool(spelling) == tuple(tools.split())


@pytest.mark.parametrize(
    ("name", "meant"),
    [("Grpe", "Grep"), ("edits", "Edit"), ("Raed", "Read"), ("Writ", "Write"), ("WebFetsch", "WebFetch")],
)
def test_a_slip_suggests_the_tool_that_was_meant(name: str, meant: str) -> None:
    assert closest_tool(name) == meant


@pytest.mark.parametrize("name", ["repo", "gate", "browser", "screenshot"])
def test_another_word_suggests_no_tool(name: str) -> None:
    assert closest_tool(name) == ""


def test_every_tool_is_known_by_its_own_name_in_any_spelling() -> None:
    for tool in CANONICAL_TOOLS:
        for written in (tool, tool.lower(), tool.upper()):
            assert tool in (resolve_tool(written) or ())
