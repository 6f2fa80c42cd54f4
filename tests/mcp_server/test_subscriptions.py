"""Subscriptions to resources: notified when a file of a skill changes, over stdio and HTTP, in both protocols."""

import os
from pathlib import Path

import pytest
from mcp import Client, MCPError
from mcp.shared.subscriptions import ResourceUpdated
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, ResourceUpdatedNotification

from conftest import World
from support.connected import at_home, over_stdio, run, served
from support.waiting import until_true

MINE = "~/.kitbag/skills"
MAIN, OTHER = "skill://deploy/SKILL.md", "skill://deploy/references/a.md"

__all__ = ["at_home"]  # a fixture that every test here uses

# The SDK deprecates what its newest protocol replaces with listen streams; clients still use it.
pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")


class Updates:
    """What a client is notified of."""

    def __init__(self) -> None:
        self.uris: list[str] = []

    async def hear(self, message: object) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            self.uris.append(str(message.params.uri))

    async def until(self, uri: str) -> None:
        await until_true(lambda: uri in self.uris)
        self.uris.clear()


def make(world: World) -> tuple[Path, Path]:
    main = world.skill(MINE, "deploy", body="One.")
    return main, world.write(f"{MINE}/deploy/references/a.md", "A")


async def change_and_hear(world: World, client: Client, updates: Updates) -> None:
    main, other = make(world)
    assert client.server_capabilities.resources is not None
    assert client.server_capabilities.resources.subscribe
    for uri in (MAIN, OTHER):
        await client.subscribe_resource(uri)
    other.write_text("changed")
    await updates.until(OTHER)
    main.write_text(main.read_text().replace("One.", "Two."))
    await updates.until(MAIN)
    os.unlink(other)
    await updates.until(OTHER)
    other.write_text("back")
    await updates.until(OTHER)
    await client.unsubscribe_resource(OTHER)
    other.write_text("unheard")
    main.write_text(main.read_text().replace("Two.", "Three."))
    await until_true(lambda: bool(updates.uris))
    assert updates.uris == [MAIN]


def test_a_client_over_stdio_hears_of_a_file_it_subscribed_to(world: World) -> None:
    _, other = make(world)

    async def work() -> None:
        updates = Updates()
        async with over_stdio(world, mode="legacy", message_handler=updates.hear) as client:
            await client.subscribe_resource(OTHER)
            other.write_text("changed")
            await updates.until(OTHER)

    run(work)


def test_a_client_over_http_hears_of_its_own_subscriptions_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kitbag.mcp_server.server_state.MIN_REFRESH_SECONDS", 0.1)
    make(world)

    async def work() -> None:
        mine, others = Updates(), Updates()
        async with (
            served(world) as server,
            server.client("legacy", message_handler=mine.hear) as client,
            server.client("legacy", message_handler=others.hear),
        ):
            await change_and_hear(world, client, mine)
            assert others.uris == []

    run(work)


def test_a_listen_stream_hears_of_every_file_it_names(world: World) -> None:
    _, other = make(world)

    async def work() -> None:
        async with (
            over_stdio(world, mode="2026-07-28") as client,
            client.listen(resource_subscriptions=[OTHER, "skill://deploy/later.md"]) as stream,
        ):
            other.write_text("changed")
            assert await anext(stream) == ResourceUpdated(OTHER)
            world.write(f"{MINE}/deploy/later.md", "new")
            assert await anext(stream) == ResourceUpdated("skill://deploy/later.md")

    run(work)


def test_only_served_resources_can_be_subscribed_to_and_only_so_many(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(world)
    monkeypatch.setattr("kitbag.mcp_server.resource_subscriptions.MAX_CLIENT_SUBSCRIPTIONS", 2)
    monkeypatch.setattr("kitbag.mcp_server.resource_subscriptions.MAX_SUBSCRIPTIONS", 3)
    world.skill(MINE, "second")

    async def work() -> None:
        async def code(client: Client, uri: str) -> int:
            with pytest.raises(MCPError) as caught:
                await client.subscribe_resource(uri)
            return caught.value.error.code

        async with served(world) as server, server.client("legacy") as first, server.client("legacy") as second:
            for uri in ("skill://none/SKILL.md", "skill://deploy", "skill://deploy/../x", "file:///etc/passwd", ""):
                assert await code(first, uri) == INVALID_PARAMS
            for uri in (MAIN, OTHER, MAIN):  # twice is once
                await first.subscribe_resource(uri)
            assert await code(first, "skill://second/SKILL.md") == INVALID_REQUEST
            await second.subscribe_resource(MAIN)
            assert await code(second, OTHER) == INVALID_REQUEST  # the server's limit
            await first.unsubscribe_resource(OTHER)
            await first.unsubscribe_resource("skill://never/subscribed")
            await second.subscribe_resource(OTHER)

    run(work)


def test_subscriptions_end_with_the_session(world: World) -> None:
    make(world)

    async def work() -> None:
        async with served(world) as server:
            async with server.client("legacy") as client:
                await client.subscribe_resource(MAIN)
                assert [list(one.subscriptions) for one in server.house.clients.all()] == [[MAIN]]
            await until_true(lambda: not server.house.clients.all())

    run(work)
