"""Descriptions of servers: understood wholly or not at all."""

from typing import Any

import pytest

from kitbag.errors import UsageError
from kitbag.tools.mcp_client.server_config import (
    ServerConfig,
    assign_labels,
    find_server_map,
    make_label,
    parse_server,
    substitute_variables,
)


def read(definition: object, scope: Any = "project") -> tuple[ServerConfig, str]:
    return parse_server("x", definition, "/w/.mcp.json", scope, "/w")


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ({"command": "npx", "args": ["-y", "p"]}, {"command": "npx", "arguments": ("-y", "p")}),
        ({"type": "stdio", "command": "a", "env": {"B": 1, "C": True}}, {"environment": (("B", "1"), ("C", "true"))}),
        ({"url": "https://x.test/mcp"}, {"url": "https://x.test/mcp", "command": ""}),
        ({"type": "http", "url": "http://x", "headers": {"A": "b"}}, {"headers": (("A", "b"),)}),
        ({"type": "streamable-http", "url": "${U:-http://x}"}, {"url": "${U:-http://x}"}),
        ({"command": "a", "timeout": 5000}, {"timeout_seconds": 5.0}),
        ({"command": "a", "timeout": 10**8}, {"timeout_seconds": 600.0}),
        ({"command": "a", "disabled": True}, {"enabled": False}),
        ({"command": "a", "tools": ["get_*"]}, {"allowed_tools": ("get_*",)}),
    ],
)
def test_what_it_says_is_understood(definition: dict[str, Any], expected: dict[str, Any]) -> None:
    server, wrong = read(definition)
    assert wrong == ""
    assert {key: getattr(server, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        ("npx", "must be a table"),
        ({}, "`command` is missing"),
        ({"command": ["a"]}, "`command` is missing"),
        ({"command": " "}, "`command` is missing"),
        ({"command": "a", "args": "b"}, "`args`"),
        ({"command": "a", "args": [1]}, "`args`"),
        ({"command": "a", "args": ["\0"]}, "`args`"),
        ({"command": "a", "env": ["B"]}, "`env`"),
        ({"command": "a", "env": {"B=C": "d"}}, "`env`"),
        ({"command": "a", "url": "http://x"}, "cannot be combined"),
        ({"url": "file:///etc/passwd"}, "must start with http"),
        ({"type": "sse", "url": "http://x"}, "'sse'"),
        ({"url": "http://x", "headers": {"A\nB": "c"}}, "headers"),
        ({"command": "a", "timeout": "long"}, "timeout"),
        ({"command": "a", "cwd": "/"}, "`cwd`"),
        ({"command": "a", "enabled": "yes"}, "enabled"),
    ],
)
def test_what_is_wrong_with_it_is_said(definition: object, problem: str) -> None:
    assert problem in read(definition)[1]


def test_the_user_s_own_may_say_more() -> None:
    server, wrong = read({"command": ["a", "b"], "args": ["c"], "cwd": "~/x", "timeout": 90}, "user")
    assert (wrong, server.command, server.arguments, server.directory, server.timeout_seconds) == (
        "",
        "a",
        ("b", "c"),
        "~/x",
        90.0,
    )


def test_what_is_shown_of_an_address_holds_no_password_and_no_key() -> None:
    assert read({"url": "https://me:secret@x.test/mcp?key=secret"})[0].display_target == "https://x.test/mcp"


def test_variables_are_filled_in_wherever_they_stand() -> None:
    server, _ = read({"command": "${A}/run", "args": ["${B:-none}"], "env": {"K": "x${A}"}})
    filled = substitute_variables(server, {"A": "/a"}.get)
    assert (filled.command, filled.arguments, filled.environment) == ("/a/run", ("none",), (("K", "x/a"),))
    with pytest.raises(UsageError, match="environment variable A is not set"):
        substitute_variables(server, {}.get)


def test_a_value_is_not_looked_through_for_variables_again() -> None:
    server, _ = read({"command": "a", "args": ["${A}"]})
    assert substitute_variables(server, {"A": "${B}", "B": "secret"}.get).arguments == ("${B}",)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("github", "github"),
        ("My Docs", "My_Docs"),
        ("a__b", "a_b"),
        ("_x_", "x"),
        ("ü/../\x1b", "server"),
        ("", "server"),
    ],
)
def test_labels_are_plain(name: str, label: str) -> None:
    assert make_label(name) == label


def test_labels_are_short_and_differ() -> None:
    names = ["a b", "a_b", "A_B", "n" * 60, "n" * 61]
    found = [
        one.label
        for one in assign_labels(
            [ServerConfig(name=name, source="", scope="user", label=make_label(name)) for name in names]
        )
    ]
    assert len({label.lower() for label in found}) == len(names)
    assert all(len(label) <= 24 and "__" not in label for label in found)


def test_the_digest_tells_apart_what_may_offer_other_tools() -> None:
    one, _ = read({"command": "a", "args": ["b c"]})
    two, _ = read({"command": "a", "args": ["b", "c"]})
    assert one.digest != two.digest
    assert one.digest == read({"command": "a", "args": ["b c"], "timeout": 5})[0].digest


def test_servers_are_found_under_every_usual_key() -> None:
    assert (
        find_server_map({"mcpServers": {"a": 1}})
        == find_server_map({"servers": {"a": 1}})
        == find_server_map({"a": 1})
        == {"a": 1}
    )
    assert find_server_map([]) == find_server_map({"mcpServers": []}) == {}
