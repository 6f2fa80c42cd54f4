"""Tools of servers as a run has them: names that every provider takes, and a share for each server."""

import re
from typing import Any

from msgspec import structs

from kitbag.tools.mcp_client.server_config import ServerConfig
from kitbag.tools.mcp_client.server_listing import OfferedTool, ServerListing
from kitbag.tools.mcp_client.server_tools import ServerOffer, build_server_tools, make_tool_name

PLAIN: dict[str, Any] = {"type": "object", "properties": {}}


def offer(label: str, *names: str, only: tuple[str, ...] = (), description: str = "") -> ServerOffer:
    server = ServerConfig(name=label, source="/s", scope="user", command="run", label=label, allowed_tools=only)
    tools = tuple(OfferedTool(name, description, PLAIN) for name in names)
    return ServerOffer(server=server, listing=ServerListing(tools), connection=Any, timeout_seconds=1.0)  # type: ignore[arg-type]


def names(*offers: ServerOffer, most: int = 100_000) -> list[str]:
    return [tool.name for tool in build_server_tools(offers, most)[0]]


def test_a_tool_is_called_after_its_server() -> None:
    assert names(offer("github", "get_issue", "list-all")) == ["mcp__github__get_issue", "mcp__github__list-all"]


def test_odd_names_are_cleaned_and_differ() -> None:
    found = names(offer("s", "a b", "a/b", "a_b", "a\u200bb", "ü" * 200, "ü" * 201, "x" * 500))
    assert len(set(found)) == 7
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in found)
    assert all(name.startswith("mcp__s__") for name in found)


def test_a_thousand_long_names_that_begin_alike_differ() -> None:
    assert len(set(names(offer("s", *(f"{'x' * 80}{at}" for at in range(1000))), most=10_000_000))) == 1000


def test_a_name_stays_the_same_whatever_else_is_offered() -> None:
    assert make_tool_name("s", "x" * 500) == make_tool_name("s", "x" * 500, ["other"])


def test_a_server_can_be_limited_to_some_of_its_tools() -> None:
    assert names(offer("s", "get_a", "set_a", "list", only=("get_*", "list"))) == ["mcp__s__get_a", "mcp__s__list"]


def test_where_room_is_short_each_server_gets_its_share_and_the_rest_is_named() -> None:
    many = offer("many", *(f"t{at}" for at in range(1000)), description="d" * 100)
    few = offer("few", "one", "two")
    tools, remarks = build_server_tools([many, few], 2_000)
    found = [tool.name for tool in tools]
    assert {"mcp__few__one", "mcp__few__two"} < set(found)
    assert 5 < len(found) < 20
    assert len(remarks) == 1
    assert "of 1,000 tools of MCP server many omitted" in remarks[0]


def test_it_tells_the_model_the_server_s_schema_and_a_person_the_server() -> None:
    (tool,) = build_server_tools([offer("s", "t")], 1_000)[0]
    assert tool.spec.schema == PLAIN
    assert structs.replace(tool, run=tool.run).spec == tool.spec
    assert tool.parse_arguments({"anything": [1]}) == {"anything": [1]}
    assert tool.approval_facts is not None
    assert tool.approval_facts({}, Any) == (("server", "run (/s)"),)  # type: ignore[arg-type]
    assert not tool.read_only
