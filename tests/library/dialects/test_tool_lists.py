"""Tool lists in every written form."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.library.dialects.tool_aliases import CANONICAL_TOOLS, matches_tool, split_tool_names
from kitbag.library.dialects.tool_lists import ToolAccess, parse_tools


def read(value: object, denied: object = None, dialect: str = "claude") -> ToolAccess:
    return parse_tools(value, denied, dialect)[0]


def codes(value: object, denied: object = None, dialect: str = "claude") -> list[tuple[str, str]]:
    return [(p.severity, p.code) for p in parse_tools(value, denied, dialect)[1]]


@pytest.mark.parametrize(
    "written",
    [
        "Read, Grep, Glob",
        "Read Grep Glob",
        "Read,Grep,Glob",
        "[Read, Grep, Glob]",
        '["Read", "Grep", "Glob"]',
        "- Read\n- Grep\n- Glob",
        "`Read`; 'Grep'; Glob",
        ["Read", "Grep", "Glob"],
        ["Read, Grep", "Glob", "Read"],
        [["Read"], {"name": "Grep"}, {"Glob": True}],
        {"Read": "true", "Grep": True, "Glob": "on", "Bash": "false"},
        {"mode": "allowlist", "allow": ["Read", "Grep", "Glob"]},
        {"mode": "allow-list", "allow": "Read, Grep, Glob"},
        {"allow": ["Read", "Grep", "Glob", "Bash"], "deny": ["Bash"]},
        '{"Read": true, "Grep": true, "Glob": true}',
        "read, grep_search, glob",
        "view, search_file_content, list_directory",
        "readFile, grep-search, LS",
    ],
)
def test_every_written_form_of_a_list_gives_the_same_tools(written: object) -> None:
    access = read(written)
    assert access.mode == "allow"
    assert access.names == ("Read", "Grep", "Glob")
    assert access.allows("Read")
    assert not access.allows("Bash")
    assert access.original == written


def test_no_list_inherits_and_says_nothing() -> None:
    assert parse_tools(None) == (ToolAccess(mode="inherit"), [])
    assert read(None).allows("Bash")


@pytest.mark.parametrize("written", [[], {}, "[]", "none", "None", "false", ["none"]])
def test_an_empty_list_means_no_tools_without_complaint(written: object) -> None:
    access, problems = parse_tools(written)
    assert (access.mode, problems) == ("none", [])
    assert not access.allows("Read")


@pytest.mark.parametrize("written", ["", "  ", "null", "~"])
def test_an_empty_value_means_no_tools_and_is_reported(written: str) -> None:
    assert read(written).mode == "none"
    assert codes(written) == [("warning", "tools-empty")]


@pytest.mark.parametrize("written", ["*", "all", "All tools", "ALL  TOOLS", ["*"], ["Read", "*"], {"*": "true"}])
def test_a_star_means_all_tools(written: object) -> None:
    access, problems = parse_tools(written)
    assert (access.mode, access.names, problems) == ("all", (), [])
    assert access.allows("mcp__x__y")


@pytest.mark.parametrize(
    "written",
    [
        True,
        3,
        4.5,
        "{broken json",
        "{{ tools }}",
        "everything but not Bash",
        {"mode": "sometimes", "allow": ["Read"]},
        {"mode": ["allowlist"], "allow": ["Read"]},
        {"mode": "allowlist"},
        {"mode": "denylist"},
        {"mode": "denylist", "deny": ""},
        ["Read", 7],
        "Read," * 2000,
        [[[[[[[[[["Read"]]]]]]]]]],
    ],
)
def test_an_unreadable_list_gives_no_tools_and_an_error(written: object) -> None:
    access = read(written)
    assert access.mode == "none"
    assert not any(access.allows(tool) for tool in CANONICAL_TOOLS)
    assert ("error", "tools-unreadable") in codes(written)


@pytest.mark.parametrize(
    "written",
    [
        "Grpe",
        ["Grpe", "Raed"],
        "problems, changes",
        "true",
        {"Grpe": "true"},
        {"problems": "true"},
        {"ExitPlanMode": "true", "Grpe": "false"},
        {"mode": "denylist", "deny": ["Bsh"]},
        "Bash(git log:*",
        "Bash()",
        "Ba\u200bsh",
        "\u212ask",
    ],
)
def test_a_list_of_which_nothing_is_known_refuses_to_spawn(written: object) -> None:
    access = read(written)
    assert access.mode == "none"
    assert access.unknown
    assert ("error", "tools-none-known") in codes(written)


def test_a_misspelt_tool_is_left_out_and_the_right_name_is_suggested() -> None:
    access, problems = parse_tools("Read, Grpe")
    assert (access.names, access.unknown) == (("Read",), ("Grpe",))
    assert [(p.severity, p.code) for p in problems] == [("warning", "tools-unknown")]
    assert "`Grep`" in problems[0].fix


def test_a_tool_that_exists_elsewhere_only_is_left_out_with_a_remark() -> None:
    assert codes(["read", "problems"], dialect="copilot") == [("info", "tools-no-counterpart")]
    assert codes("Read, CronCreate, CronDelete, SendFeedback, ReportFindings, ListAgents") == [
        ("info", "tools-no-counterpart")
    ]


@pytest.mark.parametrize(
    "name",
    [
        "vscode",
        "vscode/newThing",
        "vscode/*",
        "edit/rename",
        "edit/createDirectory",
        "createDirectory",
        "search/x",
        "read/x",
        "execute/x",
        "web/x",
        "todo/x",
        "agent/x",
    ],
)
def test_what_copilot_has_and_nobody_else_is_a_remark(name: str) -> None:
    access, problems = parse_tools(["read", name], dialect="copilot")
    assert (access.names, access.unknown) == (("Read",), (name,))
    assert [(p.severity, p.code) for p in problems] == [("info", "tools-no-counterpart")]


def test_what_copilot_lists_and_is_missing_here_is_one_message_with_all_names() -> None:
    missing = ["problems", "vscode/x", "changes", *(f"edit/rename{at}" for at in range(12))]
    problems = parse_tools(["read", *missing], dialect="copilot")[1]
    assert len(problems) == 1
    assert "problems, vscode/x, changes" in problems[0].problem
    assert problems[0].problem.endswith("more")


def test_a_misspelt_tool_is_a_warning_in_copilots_files_too() -> None:
    problems = parse_tools(["read", "Grpe", "playwright"], dialect="copilot")[1]
    assert [(p.severity, p.code) for p in problems] == [("info", "tools-servers"), ("warning", "tools-unknown")]
    assert "playwright" not in problems[1].problem
    assert codes(["Grpe"], dialect="copilot") == [("error", "tools-none-known")]
    assert codes(["read", "playwright"]) == [("warning", "tools-unknown")]


def test_bare_server_names_alone_are_these_servers_with_all_their_tools() -> None:
    for written in (["atlassian"], "atlassian", ["problems", "atlassian"]):
        access = read(written, dialect="copilot")
        assert (access.mode, access.names) == ("allow", ("mcp__atlassian__*",))
        assert access.allows("mcp__atlassian__search")
        assert not access.allows("Read")
        assert ("info", "tools-servers") in codes(written, dialect="copilot")
    assert codes(["atlassian"]) == [("error", "tools-none-known")]
    declared, problems = parse_tools(["read", "Atlassian"], servers=("atlassian",))
    assert (declared.names, problems) == (("Read", "mcp__Atlassian__*"), [])
    assert parse_tools(["read"], ["atlassian"], "copilot", ("atlassian",))[0].names == ("Read",)


def test_a_bare_server_name_beside_tools_is_this_server_too() -> None:
    access = read(["read", "playwright", "problems"], dialect="copilot")
    assert access.names == ("Read", "mcp__playwright__*")
    assert access.allows("mcp__playwright__click")
    assert not access.allows("Write")
    assert read(["*", "playwright"], dialect="copilot").mode == read(["*"], dialect="copilot").mode
    assert read(["read", "playwright"]).names == ("Read",)  # other tools list servers by their full names


def test_in_a_list_a_name_is_not_cut_at_its_blanks() -> None:
    access = read(["My Docs/*", "read"], dialect="copilot")
    assert (access.names, access.unknown) == (("mcp__My_Docs__*", "Read"), ())
    assert not access.allows("mcp__Docs__search")
    for written in (["Docs Bash", "Read"], "[Docs Bash, Read]", [{"name": "Docs Bash"}, "Read"]):
        assert (read(written).names, read(written).unknown) == (("Read",), ("Docs Bash",))
    assert read(["My */x", "My Docs/a b", "mcp__a b", "Read"]).names == ("Read",)
    assert read(["Bash(git log *), Grep", "Read"]).specifiers == ("Bash(git log *)",)
    assert read(["Bash(a) Write(b)", "Read"]).names == ("Read",)
    assert read(["*", "but not Bash"]).mode == "none"


def test_what_a_list_denies_is_denied_however_its_blanks_are_meant() -> None:
    assert read(None, ["My Docs/*", "Bash Write"]).denied == ("mcp__My_Docs__*", "Bash", "Write")
    assert read(None, ["Bash(rm *) Write(x)"]).denied == ("Bash(rm *)", "Write(x)")
    assert read(["*", "!Bash Write"]).denied == ("Bash", "Write")


def test_unknown_names_among_the_denied_are_silent_unless_a_tool_was_meant() -> None:
    access, problems = parse_tools(None, "Bash, TeamDelete, RemoteTrigger")
    assert (access.denied, access.unknown, problems) == (("Bash",), ("TeamDelete", "RemoteTrigger"), [])
    problems = parse_tools(None, "Write, Bsh, TeamDelete")[1]
    assert [(p.severity, p.code) for p in problems] == [("warning", "tools-unknown")]
    assert "`Bash`" in problems[0].fix
    assert "TeamDelete" not in problems[0].problem


@pytest.mark.parametrize(
    ("dialect", "written", "names"),
    [
        ("copilot", "edit", ("Edit", "Write")),
        ("claude", "edit", ("Edit",)),
        ("copilot", "Edit", ("Edit",)),
        ("copilot", "edit/editFiles", ("Edit", "Write")),
        ("copilot", "search", ("Grep", "Glob")),
        ("copilot", ["codebase", "runCommands", "fetch"], ("Grep", "Glob", "Bash", "WebFetch")),
        (
            "copilot",
            ["execute", "agent", "web", "todo"],
            ("Bash", "Task", "WebFetch", "WebSearch", "TodoWrite"),
        ),
        (
            "copilot",
            ["github/create_issue", "playwright/*"],
            ("mcp__github__create_issue", "mcp__playwright__*"),
        ),
        ("copilot", ["com.example/azure/*"], ("mcp__com.example/azure__*",)),
        ("gemini", ["read_file", "run_shell_command", "replace"], ("Read", "Bash", "Edit")),
        ("gemini", ["mcp_srv_tool_x", "mcp_srv_*"], ("mcp__srv__tool_x", "mcp__srv__*")),
        ("gemini", ["google_web_search", "write_todos", "ask_user"], ("WebSearch", "TodoWrite", "AskUser")),
        ("codex", ["shell", "apply_patch", "update_plan"], ("Bash", "Edit", "Write", "TodoWrite")),
        ("claude", "MultiEdit, LS, NotebookRead, Agent", ("Edit", "Glob", "Read", "Task")),
        ("claude", "KillShell, BashOutput, AskUserQuestion", ("TaskStop", "TaskOutput", "AskUser")),
        ("claude", "mcp__srv, mcp__srv__tool", ("mcp__srv__*", "mcp__srv__tool")),
        ("claude", "TaskCreate, TaskGet, TaskList, TaskUpdate", ("TodoWrite",)),
        ("copilot", ["execute/killTerminal", "read/getTaskOutput"], ("TaskStop", "TaskOutput")),
        ("copilot", ["read/viewImage", "run", "find"], ("Read", "Bash", "Glob")),
    ],
)
def test_names_of_other_tools_become_canonical(dialect: str, written: object, names: tuple[str, ...]) -> None:
    assert read(written, dialect=dialect).names == names


def test_a_group_of_copilot_is_not_taken_for_a_server() -> None:
    assert read(["read", "search/nonsense"], dialect="copilot").unknown == ("search/nonsense",)


def test_specifiers_are_kept_whole_though_they_hold_commas_and_blanks() -> None:
    access = read("Bash(git log:*), Bash(npm run build, test) Agent(a, b), Read")
    assert access.names == ("Bash", "Task", "Read")
    assert access.specifiers == ("Bash(git log:*)", "Bash(npm run build, test)", "Task(a, b)")


def test_a_tool_given_without_a_specifier_too_is_not_narrowed() -> None:
    assert read("Bash(git:*), Bash").specifiers == ()
    assert read("Bash(*)").specifiers == ()


def test_a_rule_that_yaml_cut_at_its_colon_is_put_together_again() -> None:
    assert read([{"Bash(git log": "*)"}]).specifiers == ("Bash(git log:*)",)
    assert read([{"Bash": ["git *", "ls"]}]).specifiers == ("Bash(git *)", "Bash(ls)")


def test_denied_tools_win_over_allowed_ones() -> None:
    access = read("Read, Write, Bash", "Write")
    assert access.names == ("Read", "Bash")
    assert not access.allows("Write")
    assert not access.allows("write")


def test_denying_without_a_list_inherits_the_rest() -> None:
    access = read(None, ["Bash", "mcp__*"])
    assert (access.mode, access.denied) == ("deny", ("Bash", "mcp__*"))
    assert access.allows("Read")
    assert not access.allows("Bash")
    assert not access.allows("mcp__github__create_issue")


def test_a_denied_specifier_leaves_the_tool() -> None:
    access = read(None, "Bash(rm:*)")
    assert access.denied == ("Bash(rm:*)",)
    assert access.allows("Bash")


def test_denying_edit_denies_every_way_to_edit_unless_the_exact_tool_is_named() -> None:
    assert read(None, "edit").denied == ("Edit", "Write", "NotebookEdit")
    assert read(None, "Edit").denied == ("Edit",)


def test_denying_everything_or_nothing_that_is_known_leaves_no_tools() -> None:
    assert read(None, "*").mode == "none"
    assert read("Read", "Read").mode == "none"
    assert read(None, "Bsh").mode == "none"
    assert codes(None, "Bsh") == [("error", "tools-unreadable")]


def test_denying_a_tool_that_does_not_exist_here_changes_nothing() -> None:
    assert parse_tools(None, "ExitPlanMode")[0].mode == "inherit"


def test_a_denylist_allows_all_but_what_it_names() -> None:
    access = read({"mode": "denylist", "deny": ["Task"]})
    assert access.mode == "deny"
    assert access.allows("Bash")
    assert not access.allows("Task")
    assert read({"mode": "denylist", "deny": []}).allows("Task")


def test_all_tools_except_some_is_understood_as_prose_that_people_write() -> None:
    access = read("All tools except Bash, Write and Edit")
    assert (access.mode, access.denied) == ("deny", ("Bash", "Write", "Edit"))
    for written in (["*", "!Bash"], ["!Bash", "*"], "!Bash, *"):
        assert read(written).denied == ("Bash",)
        assert not read(written).allows("Bash")
    assert read(["!Bash", "Bash", "Read"]).names == ("Read",)
    assert read({"mode": "allowlist", "allow": ["Read"], "deny": "*"}).mode == "none"


def test_in_a_map_of_opencode_what_is_not_named_stays_on() -> None:
    access = read({"write": "false", "bash": "true", "mymcp_*": "false"}, dialect="opencode")
    assert (access.mode, access.denied) == ("deny", ("Write", "mcp__mymcp__*"))
    assert access.allows("Read")
    assert not access.allows("mcp__mymcp__anything")
    assert parse_tools({"bash": "true"}, dialect="opencode")[1] == []
    assert read({"bash": "true"}, dialect="opencode").mode == "inherit"


def test_in_a_map_of_opencode_the_last_entry_counts() -> None:
    access = read({"*": "false", "read": "true", "web*": "true"}, dialect="opencode")
    assert access.names == ("Read", "WebFetch", "WebSearch")
    assert read({"read": "true", "*": "false"}, dialect="opencode").mode == "none"
    assert read({"web*": "false", "webfetch": "true"}, dialect="opencode").denied == ("WebSearch",)


def test_a_tool_of_an_opencode_server_is_denied_however_its_name_is_cut() -> None:
    access = read({"my_srv_tool": "false"}, dialect="opencode")
    assert not access.allows("mcp__my__srv_tool")
    assert not access.allows("mcp__my_srv__tool")


def test_a_value_in_a_map_that_is_no_boolean_counts_as_false() -> None:
    access = read({"Read": "true", "Bash": "maybe"})
    assert access.names == ("Read",)
    assert ("warning", "tools-not-boolean") in codes({"Read": "true", "Bash": "maybe"})


def test_access_can_be_narrowed_and_never_grows() -> None:
    limit = read("Read, Bash")
    assert read(None).intersect(limit).names == ("Read", "Bash")
    assert read("Read, Write").intersect(limit).names == ("Read",)
    assert read("*", "Bash").intersect(limit).names == ("Read",)
    assert read([]).intersect(limit).mode == "none"
    assert read("Read").without(("Read",)).mode == "none"


def test_the_uses_of_a_tool_can_be_limited_and_never_grow() -> None:
    rules = ("Bash(git *)", "Bash(ls)")
    for written in (None, "*", "Read, Bash"):
        access = read(written).restrict_tool("Bash", rules)
        assert (access.mode in ("deny", "allow"), access.specifiers) == (True, rules)
        assert access.allows("Bash")
        assert access.without(("Write",)).specifiers == rules
        assert access.without(("Bash",)).specifiers == ()
        assert access.intersect(read("Read, Bash")).specifiers == rules
        assert access.intersect(read("Read")).specifiers == ()
    assert read("Bash(ls), Bash(pwd)").restrict_tool("Bash", rules).specifiers == ("Bash(ls)",)
    assert read("Bash(pwd), Read").restrict_tool("Bash", rules).names == ("Read",)
    assert read("Read").restrict_tool("Bash", rules) == read("Read")
    assert read(None, "Bash").restrict_tool("Bash", rules).specifiers == ()
    assert read("Read, Bash").intersect(read("Bash(ls)")).specifiers == ("Bash(ls)",)


@pytest.mark.parametrize(
    ("pattern", "tool", "expected"),
    [
        ("mcp__a__*", "mcp__a__b", True),
        ("mcp__a__*", "mcp__ab__b", False),
        ("mcp__*__get_*", "mcp__x__get_it", True),
        ("mcp__*__get_*", "mcp__x__set_it", False),
        ("mcp__a*a", "mcp__a", False),
        ("Re*", "Read", False),
        ("Read", "Read", True),
    ],
)
def test_a_star_is_a_pattern_only_in_names_of_servers(pattern: str, tool: str, expected: bool) -> None:
    assert matches_tool(pattern, tool) is expected


def test_the_json_form_has_stable_keys() -> None:
    value = read("Read, Bash(ls)").to_json()
    assert list(value) == ["mode", "names", "specifiers", "denied", "unknown", "original", "denied_original"]
    json.dumps(value)


words = st.sampled_from(
    [*CANONICAL_TOOLS, "edit", "search", "Grpe", "*", "all", "", "except", "mcp__a__b", "x/y", "(", ","]
)
scalars = st.one_of(words, st.text(max_size=20), st.booleans(), st.integers(), st.none(), st.floats())
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(words | st.text(max_size=8), inner, max_size=5),
    max_leaves=12,
)
dialects = st.sampled_from(["", "kitbag", "claude", "copilot", "opencode", "gemini"])


@given(values, values, dialects)
def test_parsing_any_value_never_raises_and_denying_never_widens(value: object, denied: object, dialect: str) -> None:
    access, problems = parse_tools(value, dialect=dialect)
    narrowed, _ = parse_tools(value, denied, dialect)
    for tool in (*CANONICAL_TOOLS, "mcp__a__b", "mcp__x__y"):
        assert access.allows(tool) or not narrowed.allows(tool)
    assert access.mode != "none" or not any(access.allows(tool) for tool in CANONICAL_TOOLS)
    assert all(problem.severity in ("error", "warning", "info") and problem.fix for problem in problems)


@given(st.lists(st.sampled_from(CANONICAL_TOOLS), min_size=1), st.lists(st.text(max_size=12), max_size=4))
def test_unknown_names_beside_known_ones_never_add_canonical_tools(known: list[str], noise: list[str]) -> None:
    noise = [f"zz{word}zz" for word in noise if word.isalnum()]
    access = read([*known, *noise])
    assert set(access.names) == set(known)


@given(st.text(max_size=200))
def test_splitting_loses_no_name_and_leaves_no_blanks_at_the_ends(text: str) -> None:
    for name in split_tool_names(text):
        assert name in text
        assert name == name.strip()
