"""Short commands about the session and its surroundings: /cost, /copy, /init, /memory, /config, /mcp."""

import asyncio
import os

import pytest

from conftest import World
from kitbag.chat.clipboard import write_clipboard
from kitbag.chat.ui import Submitted
from kitbag.errors import KitbagError
from support.talking_face import talking

pytestmark = pytest.mark.usefixtures("at_home")


def test_what_the_session_cost_and_its_last_reply_are_there_to_take(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(world.home))  # no program for the clipboard

    async def look() -> None:
        async with talking(world, "The answer.") as talk:
            with pytest.raises(KitbagError, match="no reply to copy"):
                await talk.command("/copy")
            await talk.say("question")
            shown = await talk.command("/cost")
            assert "requests" in shown
            assert "tokens" in shown
            assert "11 characters" in await talk.command("/copy")
            assert talk.face.copied == "The answer."

    asyncio.run(look())


def test_a_program_of_the_machine_gets_the_text(world: World) -> None:
    program = world.write("~/bin/pbcopy", f"#!/bin/sh\n/bin/cat > {world.home}/copied\n")
    os.chmod(program, 0o755)
    assert write_clipboard("häh", {"PATH": str(world.home / "bin")})
    assert (world.home / "copied").read_text() == "häh"
    assert not write_clipboard("x", {"PATH": "bin"})


def test_memory_files_are_listed_and_init_asks_the_model_to_write_one(world: World) -> None:
    world.write("~/.kitbag/AGENTS.md", "Be brief.")

    async def look() -> None:
        async with talking(world) as talk:
            shown = await talk.command("/memory")
            assert "~/.kitbag/AGENTS.md" in shown
            assert "user" in shown
            await talk.command("/init and the API")
            submitted = talk.chat._events.get_nowait()
            assert isinstance(submitted, Submitted)
            assert submitted.text.startswith("Write AGENTS.md")
            assert submitted.text.endswith("and the API")

    asyncio.run(look())


def test_settings_are_listed_and_changed_but_not_permissions(world: World) -> None:
    async def look() -> None:
        async with talking(world) as talk:
            assert "chat.bell" in await talk.command("/config")
            assert "chat.bell = off" in await talk.command("/config chat.bell off")
            assert "off" in await talk.command("/config chat.bell")
            for line in ("/config permissions.allow Bash", "/config chat.bel", "/config chat.bell perhaps"):
                with pytest.raises(KitbagError):
                    await talk.command(line)

    asyncio.run(look())
    assert 'bell = "off"' in (world.home / ".kitbag/settings.toml").read_text()


def test_mcp_servers_are_listed_with_their_state(world: World) -> None:
    async def look() -> None:
        async with talking(world) as talk:
            assert "no MCP servers" in await talk.command("/mcp")
            world.write(".mcp.json", '{"mcpServers": {"docs": {"command": "docs-server"}}}')
            shown = await talk.command("/mcp")
            assert "docs  not connected  0  .mcp.json  docs-server" in shown

    asyncio.run(look())
