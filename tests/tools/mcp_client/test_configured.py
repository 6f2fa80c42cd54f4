"""Which servers count: the user's own, and a project's just as it was when a person agreed to it."""

import json
from typing import Any

import pytest

from conftest import World
from kitbag.errors import UsageError
from kitbag.permissions.trust import Trust, trust_workspace, workspace_trust
from kitbag.settings import load_settings
from kitbag.tools.mcp_client.configured import (
    Configured,
    check_still_trusted,
    configured_servers,
    environment_of,
    with_values,
)

NODE: dict[str, Any] = {"command": "node", "args": ["server.js"]}


def bring(world: World, **servers: Any) -> None:
    world.write(".mcp.json", json.dumps({"mcpServers": servers}))


def agree(world: World) -> Trust:
    trust_workspace(world.places(), workspace_trust(world.places()))
    return workspace_trust(world.places())


def found(world: World, trust: Trust | None = None) -> dict[str, Configured]:
    places = world.places()
    settings = load_settings(places.kitbag_home, places.project_dirs)
    servers = configured_servers(places, trust or workspace_trust(places), settings)
    return {f"{one.server.name} {one.server.scope}": one for one in servers}


def test_D01_a_project_s_server_does_not_count_before_the_workspace_is_trusted(world: World) -> None:
    bring(world, s=NODE)
    assert found(world)["s project"].state == "untrusted"
    agree(world)
    assert found(world)["s project"].state == "ready"


def test_trust_for_one_run_counts(world: World) -> None:
    bring(world, s=NODE)
    assert found(world, workspace_trust(world.places(), trusted_for_now=True))["s project"].state == "ready"


@pytest.mark.parametrize(
    "changed",
    [{**NODE, "command": "nodejs"}, {**NODE, "args": ["other.js"]}, {**NODE, "env": {"A": "b"}}, {"url": "http://x"}],
)
def test_D05_a_changed_one_does_not_count_until_it_is_agreed_to_again(world: World, changed: Any) -> None:
    bring(world, s=NODE)
    agree(world)
    bring(world, s=changed)
    assert found(world)["s project"].state == "changed"
    agree(world)
    assert found(world)["s project"].state == "ready"


def test_D05_what_changes_after_the_look_does_not_count(world: World) -> None:
    bring(world, s=NODE)
    trust = agree(world)
    bring(world, s={**NODE, "args": ["evil.js"]})
    assert found(world, trust)["s project"].state == "changed"


def test_D05_a_script_that_changes_during_a_run_keeps_its_server_from_being_started(world: World) -> None:
    world.write("server.js", "one")
    bring(world, s=NODE)
    trust = agree(world)
    server = found(world, trust)["s project"].server
    check_still_trusted(server, world.places(), trust)
    world.write("server.js", "two")
    with pytest.raises(UsageError, match="has changed since"):
        check_still_trusted(server, world.places(), trust)


def test_what_else_changes_in_the_workspace_does_not(world: World) -> None:
    bring(world, s=NODE)
    trust = agree(world)
    server = found(world, trust)["s project"].server
    world.skill(".kitbag/skills", "new", body="!`date`")
    check_still_trusted(server, world.places(), trust)


def test_taking_trust_away_keeps_it_from_being_started(world: World) -> None:
    from kitbag.permissions.trust import forget

    bring(world, s=NODE)
    trust = agree(world)
    server = found(world, trust)["s project"].server
    forget(world.places(), None)
    with pytest.raises(UsageError):
        check_still_trusted(server, world.places(), trust)


def test_the_user_s_own_counts_without_trust_and_before_a_project_s(world: World) -> None:
    world.write("~/.kitbag/settings.toml", '[mcp_servers.s]\ncommand = "mine"\n[mcp_servers.t]\nurl = "http://t"\n')
    bring(world, s=NODE)
    agree(world)
    servers = found(world)
    assert (servers["s user"].state, servers["t user"].state) == ("ready", "ready")
    assert servers["s project"].state == "hidden"


def test_the_user_can_switch_a_project_s_off(world: World) -> None:
    world.write("~/.kitbag/settings.toml", "[mcp_servers.s]\nenabled = false\n")
    bring(world, s=NODE)
    agree(world)
    assert {one.state for one in found(world).values()} == {"off"}


def test_a_project_s_settings_can_t_bring_servers(world: World) -> None:
    world.write(".kitbag/settings.toml", '[mcp_servers.s]\ncommand = "evil"\n')
    agree(world)
    assert found(world) == {}


@pytest.mark.parametrize(
    "text", ["{", "[]", "null", '{"mcpServers": 3}', '{"mcpServers": ' + '{"a":' * 50_000, "\udcff\udcff"]
)
def test_a_file_that_can_t_be_read_brings_nothing_and_hides_nothing(world: World, text: str) -> None:
    world.write(".mcp.json", text.encode("utf-8", "surrogateescape"))
    world.write("~/.kitbag/settings.toml", '[mcp_servers.own]\ncommand = "mine"\n')
    servers = found(world)
    assert servers.pop("own user").state == "ready"
    assert all(one.state == "wrong" for one in servers.values())


def test_D46_a_program_gets_no_secret_but_what_its_description_names(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "CANARY_SECRET_1")
    monkeypatch.setenv("MY_TOKEN", "CANARY_SECRET_2")
    monkeypatch.setenv("LD_PRELOAD", "/evil.so")
    world.write("~/.kitbag/settings.toml", '[mcp_servers.s]\ncommand = "mine"\nenv = {TOKEN = "${MY_TOKEN}"}\n')
    settings = load_settings(world.places().kitbag_home, ())
    given = environment_of(with_values(found(world)["s user"].server, world.places(), settings))
    assert given["TOKEN"] == "CANARY_SECRET_2"
    assert {"OPENAI_API_KEY", "MY_TOKEN", "LD_PRELOAD"}.isdisjoint(given)
    assert given["PATH"]


class TestVariablesOfAProject:
    def value(self, world: World, text: str) -> str:
        bring(world, s={"command": "a", "args": [text]})
        server = found(world, workspace_trust(world.places(), trusted_for_now=True))["s project"].server
        settings = load_settings(world.places().kitbag_home, ())
        return with_values(server, world.places(), settings).arguments[0]

    def test_harmless_ones_are_filled_in(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PLAIN_THING", "x")
        assert self.value(world, "${PLAIN_THING}") == "x"
        assert self.value(world, "${CLAUDE_PROJECT_DIR}/a") == f"{world.workspace}/a"

    @pytest.mark.parametrize("text", ["${MY_TOKEN}", "${MY_TOKEN:-none}", "${COPY}"])
    def test_secrets_are_not_and_it_is_said_how_to_allow_them(
        self, world: World, monkeypatch: pytest.MonkeyPatch, text: str
    ) -> None:
        monkeypatch.setenv("MY_TOKEN", "CANARY_SECRET_2")
        monkeypatch.setenv("COPY", "CANARY_SECRET_2")
        with pytest.raises(UsageError) as error:
            self.value(world, text)
        assert "mcp.environment" in error.value.fix
        assert "CANARY" not in error.value.problem

    def test_the_user_can_name_those_that_it_may_have(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MY_TOKEN", "CANARY_SECRET_2")
        world.write("~/.kitbag/settings.toml", '[mcp]\nenvironment = ["MY_TOKEN"]\n')
        assert self.value(world, "${MY_TOKEN}") == "CANARY_SECRET_2"
