"""With many tools of MCP servers, a request describes the few that a message needs."""

import asyncio
from typing import Any

from kitbag.library.dialects.tool_lists import parse_tools
from kitbag.tools.base import Tool, ToolContext, ToolOutput, text_output
from kitbag.tools.files.read import READ
from kitbag.tools.mcp_client.server_tools import ServerTool
from kitbag.tools.on_demand_tools import MAX_DESCRIBED_TOOLS
from kitbag.tools.toolset import Toolset
from support.using import Bench

VERBS = ("create", "list", "delete", "update", "export")
THINGS = ("issue", "invoice", "calendar event", "database table", "mailbox", "dashboard", "deployment", "contact")


async def run(arguments: Any, context: ToolContext, /) -> ToolOutput:
    return text_output("Done.", "done")


def server_tools(count: int) -> list[Tool[Any]]:
    names = [(verb, thing) for thing in (*THINGS, *(f"thing{n}" for n in range(count))) for verb in VERBS][:count]
    schema: dict[str, Any] = {"type": "object", "properties": {"id": {"type": "string", "description": "x" * 300}}}
    return [
        ServerTool(
            name=f"mcp__office__{verb}_{thing.replace(' ', '_')}",
            description=f"{verb.capitalize()} a {thing}.",
            arguments=type("ServerArguments", (), {"schema": schema}),
            run=run,
        )
        for verb, thing in names
    ]


def described(toolset: Toolset) -> list[str]:
    return [spec.name for spec in toolset.specs() if spec.name.startswith("mcp__")]


def test_a_few_tools_are_all_described_and_there_is_no_search(bench: Bench) -> None:
    made = Toolset([READ, *server_tools(MAX_DESCRIBED_TOOLS)], bench.context.permissions)
    made.describe_for("create an invoice")
    assert len(made.specs()) == MAX_DESCRIBED_TOOLS + 1
    assert made.get("SearchTools") is None


def test_a_request_describes_the_tools_that_a_message_needs_and_no_others(bench: Bench) -> None:
    made = Toolset([READ, *server_tools(200)], bench.context.permissions)
    assert [spec.name for spec in made.specs()] == ["Read", "SearchTools"]
    assert "office (200)" in made.specs()[-1].description
    made.describe_for("please create an invoice for this customer", ["mcp__office__list_contact", "Read", "gone"])
    first = described(made)
    assert first[:2] == ["mcp__office__list_contact", "mcp__office__create_invoice"]
    assert len(first) <= 9
    made.describe_for("hello")
    assert described(made) == first
    made.describe_for("delete the calendar event")
    assert described(made)[: len(first)] == first
    assert "mcp__office__delete_calendar_event" in described(made)
    size = sum(len(str(spec)) for spec in made.specs()[2:])
    assert size < 0.15 * sum(len(str(tool.spec)) for tool in server_tools(200))


def test_search_finds_and_describes_the_others_and_any_can_be_called_by_name(bench: Bench) -> None:
    made = Toolset([READ, *server_tools(200)], bench.context.permissions)
    assert made.get("mcp__office__export_dashboard") is not None
    search = made.get("SearchTools")
    assert search is not None
    found = asyncio.run(search.run(search.parse_arguments({"query": "export dashboards"}), bench.context))
    assert "- mcp__office__export_dashboard: Export a dashboard." in str(found.content)
    assert "mcp__office__export_dashboard" in described(made)
    none = asyncio.run(search.run(search.parse_arguments({"query": "zzz"}), bench.context))
    assert none.summary == "no tools found"
    assert bench.context.permissions.decide("SearchTools", {"query": "x"}).effect == "allow"


def test_an_agent_limited_to_server_tools_can_search_them_and_one_without_them_can_not(bench: Bench) -> None:
    limited = bench.context.permissions.restricted_to(parse_tools("mcp__office__*")[0], "agent.md")
    made = Toolset([READ, *server_tools(40)], limited)
    assert [spec.name for spec in made.specs()] == ["SearchTools"]
    assert limited.decide("SearchTools", {"query": "x"}).effect == "allow"
    without = bench.context.permissions.restricted_to(parse_tools("Read")[0], "agent.md")
    assert Toolset([READ, *server_tools(40)], without).names() == ("Read",)
    denied = Toolset([READ, *server_tools(40)], bench.allowing(deny="SearchTools").permissions)
    assert len(described(denied)) == 40


def test_a_message_with_several_needs_gets_tools_for_each(bench: Bench) -> None:
    many = [
        server_tools(1)[0].__class__(
            name=f"mcp__office__{verb}_{thing}",
            description=f"{verb.capitalize()} {thing} {thing}.",
            arguments=server_tools(1)[0].arguments,
            run=run,
        )
        for verb in ("create", "list", "delete", "update", "export", "archive", "copy", "move", "rename")
        for thing in ("invoice", "calendar", "mailbox")
    ]
    made = Toolset([READ, *many], bench.context.permissions)
    made.describe_for("something about an invoice, the calendar and a mailbox")
    first = [name.rpartition("_")[2] for name in described(made)[:3]]
    assert sorted(first) == ["calendar", "invoice", "mailbox"]
