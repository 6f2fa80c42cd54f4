"""Permission modes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.library.dialects.permission_modes import (
    MODES_STRICTEST_FIRST,
    normalize_mode,
    normalize_sandbox_mode,
    parse_permissions,
    strictest_mode,
)


@pytest.mark.parametrize(
    ("written", "mode"),
    [
        ("plan", "plan"),
        ("Plan", "plan"),
        (" PLAN ", "plan"),
        ("read-only", "plan"),
        ("default", "default"),
        ("manual", "default"),
        ("ask", "default"),
        ("acceptEdits", "acceptEdits"),
        ("accept-edits", "acceptEdits"),
        ("accept_edits", "acceptEdits"),
        ("bypassPermissions", "autonomous"),
        ("bypass-permissions", "autonomous"),
        ("autonomous", "autonomous"),
        ("locked", "locked"),
    ],
)
def test_every_spelling_of_a_mode_is_understood(written: str, mode: str) -> None:
    assert normalize_mode(written, "claude") == (mode, [])


def test_no_mode_is_default_without_complaint() -> None:
    assert normalize_mode(None, "claude") == ("default", [])


@pytest.mark.parametrize("written", ["dontAsk", "dont-ask", "DONT_ASK"])
def test_dont_ask_depends_on_whose_file_it_is_and_the_clear_word_is_named(written: str) -> None:
    for dialect, mode in (("kitbag", "autonomous"), ("claude", "locked"), ("opencode", "locked")):
        found, problems = normalize_mode(written, dialect)
        assert found == mode
        assert [(p.severity, p.code) for p in problems] == [("info", "mode-dont-ask")]
        assert f"`{mode}`" in problems[0].fix


@pytest.mark.parametrize("written", ["yolo", "auto", "", "~", "plan default", ["plan"], {"mode": "plan"}, 1, True])
def test_what_is_unknown_or_ill_typed_is_default_with_a_warning(written: object) -> None:
    mode, problems = normalize_mode(written, "kitbag")
    assert mode == "default"
    assert [p.severity for p in problems] == ["warning"]


def test_a_sandbox_never_makes_an_agent_freer() -> None:
    assert normalize_sandbox_mode("read-only") == ("plan", [])
    assert normalize_sandbox_mode("workspace-write") == ("default", [])
    mode, problems = normalize_sandbox_mode("danger-full-access")
    assert (mode, problems[0].severity) == ("default", "warning")


def test_the_strictest_mode_is_found() -> None:
    assert strictest_mode("autonomous", "plan", "default") == "plan"
    assert strictest_mode("acceptEdits", "locked") == "locked"


@pytest.mark.parametrize(
    ("written", "mode", "denied", "only"),
    [
        ({"edit": "deny", "bash": "deny"}, "plan", ("edit", "bash"), None),
        ({"edit": "deny", "bash": "ask"}, "default", ("edit",), None),
        ({"edit": "ask", "webfetch": "deny"}, "default", ("webfetch",), None),
        ({"edit": "allow"}, "acceptEdits", (), None),
        ({"edit": "allow", "bash": "allow"}, "acceptEdits", (), None),
        ("ask", "default", (), None),
        ("allow", "acceptEdits", (), None),
        ("deny", "plan", (), ()),
        ({"*": "deny", "read": "allow", "edit": "ask"}, "default", (), ("read", "edit", "write")),
        ({"read": "allow", "*": "deny"}, "plan", (), ()),
        ({"bash": {"*": "ask", "rm *": "deny"}}, "default", ("bash(rm *)",), None),
        ({"bash": {"rm *": "deny", "*": "ask"}}, "default", (), None),
        ({"bash": {"*": "deny", "git log": "allow"}}, "default", (), None),
        ({"edit": "deny", "bash": {"*": "deny", "git log": "allow"}}, "default", ("edit",), None),
        ({"edit": "deny", "bash": {"*": "deny", "rm *": "deny"}}, "plan", ("edit", "bash"), None),
        ({"*": "deny", "bash": {"git *": "allow"}}, "default", (), ("bash",)),
        ({"*": {"*": "deny", "git *": "allow"}}, "plan", (), ()),
        ({"skill": {"*": "deny", "x-*": "allow"}}, "default", ("skill",), None),
        ({"edit": {"*": "allow", "*.env": "ask"}}, "default", (), None),
        ([{"action": "edit", "resource": "*", "effect": "deny"}], "default", ("edit",), None),
        (
            [
                {"action": "*", "resource": "*", "effect": "deny"},
                {"action": "read", "resource": "*", "effect": "allow"},
            ],
            "plan",
            (),
            ("read",),
        ),
    ],
)
def test_a_permission_map_of_opencode_is_converted(
    written: object, mode: str, denied: tuple[str, ...], only: tuple[str, ...] | None
) -> None:
    found, _ = parse_permissions(written)
    assert (found.mode, found.denied, found.allowed_only) == (mode, denied, only)


@pytest.mark.parametrize(
    ("written", "allowed", "denied", "exact"),
    [
        ({"*": "deny", "git *": "allow", "ls": "ask"}, ("git *", "ls"), (), True),
        ({"*": "deny", "rm *": "deny", "git *": "allow"}, ("git *",), (), True),
        ({"*": "deny", "git *": "allow", "git push *": "deny"}, ("git *",), ("bash(git push *)",), True),
        (
            {"*": "deny", "git *": "allow", "git push*": "deny", "ls *": "allow"},
            ("git *", "ls *"),
            ("bash(git push*)",),
            True,
        ),
        (
            {"*": "deny", "git *": "allow", "git push *": "deny", "git push origin *": "allow"},
            ("git *", "git push origin *"),
            ("bash(git push *)",),
            False,
        ),
        ({"*": "deny", "git *": "allow", "git": "deny", "* log": "allow"}, ("git *", "* log"), ("bash(git)",), False),
        ({"*": "deny", "a\nb": "allow"}, (), ("bash",), True),
    ],
)
def test_exceptions_to_a_denied_tool_are_kept_and_denials_stay(
    written: object, allowed: tuple[str, ...], denied: tuple[str, ...], exact: bool
) -> None:
    found, problems = parse_permissions({"bash": written})
    assert dict(found.exceptions).get("bash", ()) == allowed
    assert found.denied == denied
    assert [p.code for p in problems] == ([] if exact else ["permission-exceptions"])
    assert parse_permissions({"bash": written, "*": "deny"})[0].exceptions == ()


def test_the_last_rule_of_a_list_wins_among_equal_ones() -> None:
    rules = [("*", "deny"), ("git *", "allow"), ("git push", "deny"), ("git push", "allow")]
    found, problems = parse_permissions([{"action": "shell", "resource": r, "effect": e} for r, e in rules])
    assert (found.exceptions, found.denied, problems) == ((("shell", ("git *", "git push")),), (), [])


@pytest.mark.parametrize("written", ["acceptEdits", 3, None, True])
def test_a_permission_field_that_is_no_map_asks_and_warns(written: object) -> None:
    found, problems = parse_permissions(written)
    assert found.mode == "default"
    assert [p.code for p in problems] == ["permission-unreadable"]


def test_an_unreadable_permission_counts_as_denied() -> None:
    found, problems = parse_permissions({"bash": "perhaps"})
    assert found.denied == ("bash",)
    assert problems[0].severity == "warning"


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=12), st.sampled_from(["allow", "deny", "*"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
)


@given(values, st.sampled_from(["kitbag", "claude"]))
def test_any_value_gives_a_mode_and_nonsense_is_never_freer_than_default(value: object, dialect: str) -> None:
    mode, problems = normalize_mode(value, dialect)
    assert mode in MODES_STRICTEST_FIRST
    if any(problem.severity == "warning" for problem in problems):
        assert mode == "default"


@given(values)
def test_a_permission_field_never_makes_an_agent_autonomous(value: object) -> None:
    assert parse_permissions(value)[0].mode in ("plan", "default", "acceptEdits")
