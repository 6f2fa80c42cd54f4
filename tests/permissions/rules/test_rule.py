"""Rules as they are written: what they stand for, what is refused, and what each matches."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.errors import UsageError
from kitbag.permissions.model import Effect, Workspace
from kitbag.permissions.rules.matching import (
    RulePath,
    matches_host,
    matches_name,
    matches_parameter,
    matches_path,
    prefix_matches,
)
from kitbag.permissions.rules.path_patterns import pattern_matches
from kitbag.permissions.rules.rule import (
    PermissionRules,
    covers_tool,
    glob_matches,
    parse_rule,
    parse_rules,
    rule_warnings,
)

WORKSPACE = Workspace(
    root="/w/app",
    home="/home/u",
    kitbag_home="/home/u/.kitbag",
    extra_write_roots=("/w/shared",),
    extra_read_roots=("/opt/skills",),
)


def rule(text: str, effect: Effect = "allow"):
    return parse_rule(text, effect, "session", "session", "/home/u/.kitbag")


def path_rule_matches(text: str, path: str, effect: Effect = "allow", folder: bool = False) -> bool:
    return matches_path(rule(text, effect), RulePath((path,), folder), WORKSPACE)


@pytest.mark.parametrize(
    ("text", "tool", "specifier"),
    [
        ("Bash", "Bash", None),
        ("Bash(*)", "Bash", None),
        (" Bash ( git log:* ) ", "Bash", "git log:*"),
        ("Bash(npm run build)", "Bash", "npm run build"),
        ("Bash(echo (a))", "Bash", "echo (a)"),
        ("run_shell_command(git log:*)", "Bash", "git log:*"),
        ("Agent(Explore)", "Task", "Explore"),
        ("Task(Explore)", "Task", "Explore"),
        ("Write(src/**)", "Edit", "src/**"),
        ("NotebookEdit(a.ipynb)", "Edit", "a.ipynb"),
        ("Glob(src/**)", "Read", "src/**"),
        ("Grep(src/**)", "Read", "src/**"),
        ("Write", "Write", None),
        ("Grep", "Grep", None),
        ("mcp__srv", "mcp__srv__*", None),
        ("mcp__srv__*", "mcp__srv__*", None),
        ("mcp__srv__tool", "mcp__srv__tool", None),
        ("mcp__srv__get_*", "mcp__srv__get_*", None),
        ("srv/tool", "mcp__srv__tool", None),
        ("WebFetch(domain:*.X.com)", "WebFetch", "domain:*.X.com"),
        ("Skill(deploy *)", "Skill", "deploy *"),
        ("listloadedskills", "ListLoadedSkills", None),
        ("Deploy", "Deploy", None),
    ],
)
def test_a_rule_is_read(text: str, tool: str, specifier: str | None) -> None:
    made = rule(text)
    assert (made.tool, made.specifier, made.text) == (tool, specifier, text.strip())


@pytest.mark.parametrize(
    ("text", "effect", "part"),
    [
        ("", "allow", "empty"),
        ("   ", "deny", "empty"),
        ("Bash(", "allow", "unbalanced parentheses"),
        ("Bash)", "deny", "unbalanced parentheses"),
        ("Bash(ls", "deny", "unbalanced parentheses"),
        ("Bash(ls))", "deny", "unbalanced parentheses"),
        ("Bash(ls) Read(x)", "deny", "several rules"),
        ("Bash()", "allow", "empty parentheses"),
        ("Bash( )", "allow", "empty parentheses"),
        ("Bash(git:* push)", "allow", "only allowed at the end"),
        ("Bash(:*)", "deny", "only allowed at the end"),
        ("Bsh(ls)", "deny", "unknown tool"),
        ("Raed", "allow", "unknown tool"),
        ("(ls)", "deny", "tool name"),
        ("a b c", "deny", "tool name"),
        ("*", "allow", "does not name"),
        ("mcp__*", "allow", "does not name"),
        ("mcp__s*__x", "allow", "does not name"),
        ("Web*", "allow", "does not name"),
        ("mcp__srv*", "allow", "does not name"),
        ("Bash(command:ls)", "deny", "redundant"),
        ("Read(file_path:/x)", "deny", "redundant"),
        ("WebFetch(url:http://x)", "deny", "redundant"),
        ("WebFetch(example.com)", "allow", "do not support"),
        ("WebFetch(domain:https://x.com)", "allow", "not a valid hostname"),
        ("WebFetch(domain:)", "deny", "not a valid hostname"),
        ("WebFetch(domain:a b)", "deny", "not a valid hostname"),
        ("WebSearch(query:x)", "allow", "do not support"),
        ("TodoWrite(x)", "deny", "match a parameter"),
        ("mcp__a__b(x:y)", "allow", "do not support"),
        ("Read(!x)", "allow", "negated"),
        ("Read(a/../b)", "deny", "only allowed at the start"),
        ("Read(~root/x)", "deny", "not supported"),
        ("Bash(a\u200bb)", "deny", "invisible"),
        ("Bash(a\nb)", "deny", "invisible"),
        ("Bash(" + "x" * 3000 + ")", "deny", "too long"),
    ],
)
def test_what_can_not_be_read_is_refused_with_a_cause_and_a_fix(text: str, effect: Effect, part: str) -> None:
    with pytest.raises(UsageError) as error:
        rule(text, effect)
    assert part in error.value.problem
    assert error.value.fix


def test_a_close_name_is_suggested() -> None:
    with pytest.raises(UsageError) as error:
        rule("Bsah(rm:*)", "deny")
    assert "Bash" in error.value.fix


def test_a_name_that_stands_for_several_tools_becomes_several_rules() -> None:
    assert [one.tool for one in parse_rules("search", "deny", "x:1", "user", "/")] == ["Grep", "Glob"]
    assert [one.tool for one in parse_rules("edit", "deny", "x:1", "user", "/")] == ["Edit"]
    assert [one.tool for one in parse_rules("search(src/**)", "deny", "x:1", "user", "/")] == ["Read"]
    with pytest.raises(UsageError, match="covers several tools"):
        rule("web", "deny")


@given(st.text(max_size=60), st.sampled_from(["allow", "ask", "deny"]))
def test_reading_a_rule_gives_a_rule_or_a_usage_error(text: str, effect: Effect) -> None:
    try:
        made = rule(text, effect)
    except UsageError:
        return
    rule_warnings(made)
    covers_tool(made, text)
    pattern_matches(made.specifier or "x", effect == "allow", "/b", "/w/app/x", WORKSPACE)


@pytest.mark.parametrize(
    ("text", "effect", "covered", "free"),
    [
        ("Read", "allow", ["Read", "Glob", "Grep"], ["Write", "read", "Read ", "mcp__x__Read"]),
        ("Edit", "allow", ["Edit", "Write", "NotebookEdit"], ["Read", "edit", "Bash"]),
        ("Write", "allow", ["Write"], ["Edit", "write", "WRITE ", "mcp__x__Write"]),
        ("Write", "deny", ["Write", "write", "create_file"], ["Edit", "mcp__x__Write"]),
        ("Read", "deny", ["Read", "Glob", "Grep", "Edit", "Write", "NotebookEdit"], ["Bash"]),
        ("Grep", "deny", ["Grep"], ["Read", "Glob"]),
        ("*", "deny", ["Read", "Anything", "mcp__a__b", ""], []),
        ("Web*", "ask", ["WebFetch", "WebSearch"], ["Bash"]),
        ("mcp__*", "deny", ["mcp__a__b", "mcp__c__d"], ["Bash"]),
        ("mcp__a", "deny", ["mcp__a__b", "MCP__A__B"], ["mcp__ab__c"]),
        ("mcp__my__srv", "deny", ["mcp__my__srv", "mcp__my__srv__tool"], ["mcp__my__other"]),
        ("mcp__my__srv", "allow", ["mcp__my__srv"], ["mcp__my__srv__tool"]),
        ("mcp__a__get_*", "allow", ["mcp__a__get_x"], ["mcp__a__set_x", "mcp__b__get_x", "Mcp__a__get_x"]),
        ("mcp__*__delete_*", "ask", ["mcp__a__delete_x"], ["mcp__a__get"]),
    ],
)
def test_a_rule_covers_tools(text: str, effect: Effect, covered: list[str], free: list[str]) -> None:
    made = rule(text, effect)
    assert [tool for tool in covered if not covers_tool(made, tool)] == []
    assert [tool for tool in free if covers_tool(made, tool)] == []


@pytest.mark.parametrize(
    ("pattern", "matched", "missed"),
    [
        ("ls *", ["ls", "ls -la"], ["lsof", "ls-x", "als"]),
        ("ls:*", ["ls", "ls -la"], ["lsof", "ls:x"]),
        ("ls*", ["ls", "ls -la", "lsof"], ["als"]),
        ("npm run build", ["npm run build"], ["npm run build x", "npm run"]),
        ("git * main", ["git push origin main", "git a main"], ["git main", "git push main x"]),
        ("* --version", ["node --version"], ["node --version x"]),
        ("git log *--oneline:*", ["git log -5 --oneline", "git log --oneline -5"], ["git log --onelinex"]),
    ],
)
def test_a_command_pattern_ends_at_a_word(pattern: str, matched: list[str], missed: list[str]) -> None:
    assert [text for text in matched if not prefix_matches(pattern, text)] == []
    assert [text for text in missed if prefix_matches(pattern, text)] == []


def test_many_wildcards_take_no_time() -> None:
    assert not glob_matches("*a" * 2000 + "b", "a" * 10_000)


@pytest.mark.parametrize(
    ("text", "effect", "matched", "missed"),
    [
        ("Read(//etc/hosts)", "allow", ["/etc/hosts"], ["/w/app/etc/hosts", "/etc/hosts2"]),
        ("Read(~/docs/**)", "allow", ["/home/u/docs/a/b"], ["/home/u/docs2/a", "/home/v/docs/a", "/w/app/docs/a"]),
        ("Read(~)", "deny", ["/home/u/x"], ["/home/x"]),
        ("Read(/rules/*)", "allow", ["/home/u/.kitbag/rules/a"], ["/rules/a", "/w/app/rules/a"]),
        ("Read(/etc/passwd)", "deny", ["/home/u/.kitbag/etc/passwd", "/etc/passwd"], ["/w/app/etc/passwd"]),
        ("Read(./src/*.py)", "allow", ["/w/app/src/a.py"], ["/w/app/src/b/a.py", "/w/app/x/src/a.py"]),
        ("Read(src/a/**)", "allow", ["/w/app/src/a/b"], ["/w/app/x/src/a/b", "/w/app-evil/src/a/b"]),
        ("Read(*.py)", "allow", ["/w/app/a.py", "/w/app/b/c/a.py"], ["/w/a.py", "/w/app/a.pyc"]),
        ("Read(.env)", "deny", ["/w/app/.env", "/w/app/x/.env", "/w/app/.ENV", "/other/.env"], ["/w/app/.envx"]),
        ("Read(.env)", "allow", ["/w/app/.env"], ["/w/app/.ENV", "/other/.env"]),
        ("Edit(src/**)", "allow", ["/w/app/src/a"], ["/w/app/x/src/a", "/w/app/src"]),
        ("Edit(src/**)", "deny", ["/w/app/src/a", "/w/app/x/src/a", "/w/shared/src/a"], ["/w/src/a"]),
        ("Edit(app)", "deny", ["/w/app/app", "/w/app/app/x"], ["/w/app/x"]),
        ("Edit(src/)", "allow", ["/w/app/src/a"], ["/w/app/x/src/a"]),
        ("Edit(**)", "allow", ["/w/app/a", "/w/app/b/.c"], ["/w/app-evil/x", "/w/x", "/w/shared/x"]),
        ("Edit(../sib/**)", "allow", ["/w/sib/a"], ["/w/app/sib/a"]),
        ("Read(./**)", "deny", ["/w/app/x"], ["/w/other/x"]),
        ("Read(#x)", "deny", ["/w/app/#x"], ["/w/app/x"]),
        ("Read(a b)", "allow", ["/w/app/a b"], ["/w/app/a"]),
        ("Read(//**)", "deny", ["/etc/x", "/w/app/x"], []),
    ],
)
def test_a_path_pattern_starts_where_it_says(text: str, effect: Effect, matched: list[str], missed: list[str]) -> None:
    assert [path for path in matched if not path_rule_matches(text, path, effect)] == []
    assert [path for path in missed if path_rule_matches(text, path, effect)] == []


def test_a_rule_that_denies_what_is_in_a_folder_denies_the_folder_to_a_search() -> None:
    assert path_rule_matches("Read(./secrets/**)", "/w/app/secrets", "deny", folder=True)
    assert not path_rule_matches("Read(./secrets/**)", "/w/app/secrets", "deny")
    assert not path_rule_matches("Read(./secrets/**)", "/w/app", "deny", folder=True)
    assert path_rule_matches("Read(**)", "/w/app", "allow", folder=True)
    assert not path_rule_matches("Read(src/*.py)", "/w/app/src", "allow", folder=True)


def test_a_link_must_be_allowed_by_every_name_and_is_denied_by_any() -> None:
    place = RulePath(("/w/app/link", "/w/app/between", "/outside/secret"))
    assert not matches_path(rule("Read(link)"), place, WORKSPACE)
    assert not matches_path(rule("Read(//outside/secret)"), place, WORKSPACE)
    for text in ("Read(link)", "Read(./between)", "Read(//outside/**)"):
        assert matches_path(rule(text, "deny"), place, WORKSPACE)


def test_an_anchor_behind_a_link_is_the_same_place(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "home").symlink_to("real")
    workspace = Workspace(root="/w", home=str(tmp_path / "home"), kitbag_home="/k")
    made = rule("Read(~/x)", "deny")
    assert matches_path(made, RulePath((str(tmp_path / "real" / "x"),)), workspace)
    assert matches_path(made, RulePath((str(tmp_path / "home" / "x"),)), workspace)


@pytest.mark.parametrize(
    ("text", "effect", "matched", "missed"),
    [
        (
            "WebFetch(domain:docs.python.org)",
            "allow",
            ["docs.python.org"],
            ["docs.python.org.evil.com", "x.docs.python.org", "python.org", "evildocs.python.org", ""],
        ),
        ("WebFetch(domain:Docs.Python.ORG.)", "allow", ["docs.python.org"], ["python.org"]),
        ("WebFetch(domain:*.x.com)", "allow", ["a.x.com", "a.b.x.com"], ["x.com", "ax.com", "x.com.evil"]),
        ("WebFetch(domain:*.x.com)", "deny", ["a.x.com", "x.com"], ["ax.com"]),
        ("WebFetch(domain:x.com)", "deny", ["x.com", "a.x.com"], ["ax.com", "x.com.au"]),
        ("WebFetch(domain:docs*.x.com)", "allow", ["docs1.x.com"], ["docs.evil.x.com", "a.docs.x.com"]),
        ("WebFetch(domain:docs.*.com)", "allow", ["docs.x.com"], ["docs.a.b.com"]),
        ("WebFetch(domain:*)", "allow", ["anything"], [""]),
        ("WebFetch(domain:b\u00fccher.de)", "allow", ["xn--bcher-kva.de"], ["bucher.de"]),
        ("WebFetch", "allow", ["anything"], []),
    ],
)
def test_a_domain_is_compared_at_its_dots(text: str, effect: Effect, matched: list[str], missed: list[str]) -> None:
    made = rule(text, effect)
    assert [host for host in matched if not matches_host(made, (host,))] == []
    assert [host for host in missed if matches_host(made, (host,))] == []


@pytest.mark.parametrize(
    ("text", "effect", "matched", "missed"),
    [
        ("Skill(deploy)", "allow", [("deploy", "")], [("deploy", "now"), ("Deploy", ""), ("p:deploy", "")]),
        ("Skill(deploy *)", "allow", [("deploy", ""), ("deploy", "now")], [("deployer", "")]),
        (
            "Skill(deploy)",
            "deny",
            [("deploy", ""), ("Deploy", "now"), ("p:deploy", ""), ("team/DEPLOY", "")],
            [("d", "")],
        ),
        ("Skill(code review)", "deny", [("code-review", ""), ("Code_Review", "")], [("code", "")]),
        ("Agent(a, b)", "allow", [("a", ""), ("b", "")], [("c", ""), ("a, b", "")]),
        ("Task(rev*)", "ask", [("Review", ""), ("x:reviewer", "")], [("Plan", "")]),
    ],
)
def test_a_name_is_matched(
    text: str, effect: Effect, matched: list[tuple[str, str]], missed: list[tuple[str, str]]
) -> None:
    made = rule(text, effect)
    assert [name for name in matched if not matches_name(made, *name)] == []
    assert [name for name in missed if matches_name(made, *name)] == []


def test_a_parameter_is_matched_in_rules_that_deny_or_ask() -> None:
    made = rule("mcp__db__query(database:prod*)", "deny")
    assert matches_parameter(made, {"database": "Production"})
    assert not matches_parameter(made, {"database": "test", "other": "prod"})
    assert not matches_parameter(made, {"database": ["prod"]})
    assert matches_parameter(rule("Bash(run_in_background:true)", "ask"), {"run_in_background": True})
    assert matches_parameter(rule("Task(max_turns:5)", "ask"), {"max_turns": 5})
    assert matches_parameter(rule("Task(model:null)", "ask"), {"model": None})


def test_what_a_person_should_know_about_a_rule_is_said() -> None:
    def told(text: str, effect: Effect = "allow") -> str:
        return " ".join(problem for problem, _ in rule_warnings(rule(text, effect)))

    assert "treated as `Edit(src/**)`" in told("Write(src/**)")
    assert "treated as `Read(src/**)`" in told("Grep(src/**)", "deny")
    assert "unknown tool" in told("Deploy")
    assert "matched separately" in told("Bash(a && b)")
    assert "not to the filesystem root" in told("Read(/etc/passwd)", "deny")
    assert told("Bash(git log:*)") == told("Read(//etc/passwd)", "deny") == told("mcp__a__b") == told("*", "deny") == ""


def test_rules_are_kept_once_and_in_order() -> None:
    rules = PermissionRules([rule("Bash(a)"), rule("Read", "deny"), rule("Bash(a)"), rule("Bash(b)")])
    assert [one.text for one in rules.all] == ["Read", "Bash(a)", "Bash(b)"]
    assert [one.text for one in rules.with_rules([rule("Bash(c)", "ask")]).for_tool("ask", "Bash")] == ["Bash(c)"]
