"""What servers offered is known in the next run, and nothing else is believed."""

import os

import pytest
from msgspec import structs

from conftest import World
from kitbag.tools.mcp_client import listing_cache
from kitbag.tools.mcp_client.server_config import ServerConfig
from kitbag.tools.mcp_client.server_listing import OfferedPrompt, OfferedTool, ServerListing

SERVER = ServerConfig(name="s", source="/f", scope="user", command="run", label="s")
LISTING = ServerListing((OfferedTool("t", "d", {"type": "object", "properties": {}}),), (OfferedPrompt("p"),), ("x",))


def test_it_is_kept_for_this_description_alone_and_for_the_user_alone(world: World) -> None:
    home = str(world.home)
    listing_cache.save_listing(home, SERVER, LISTING)
    assert listing_cache.load_listing(home, SERVER) == (LISTING, True)
    assert listing_cache.load_listing(home, structs.replace(SERVER, arguments=("x",))) == (None, False)
    (file,) = (world.home / "state/servers").iterdir()
    assert os.stat(file).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": 9, "at": 0, "listing": {}}'])
def test_what_can_t_be_read_is_as_if_it_were_not_there(world: World, text: str) -> None:
    home = str(world.home)
    listing_cache.save_listing(home, SERVER, LISTING)
    (file,) = (world.home / "state/servers").iterdir()
    file.write_text(text)
    assert listing_cache.load_listing(home, SERVER) == (None, False)


def test_what_is_old_is_used_and_known_to_be_old(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    listing_cache.save_listing(str(world.home), SERVER, LISTING)
    monkeypatch.setattr(listing_cache, "FRESH_SECONDS", 0.0)
    assert listing_cache.load_listing(str(world.home), SERVER) == (LISTING, False)


def test_where_nothing_can_be_written_nothing_is_remembered(world: World) -> None:
    world.write("~/state", "a file")
    listing_cache.save_listing(str(world.home), SERVER, LISTING)
    assert listing_cache.load_listing(str(world.home), SERVER) == (None, False)
