"""Which servers count: the user's own, and a project's just as it was when a person agreed to it."""

import json
from typing import Any

import pytest

from conftest import World
from kitbag.errors import UsageError
from kitbag.library.registry import Registry
from kitbag.permissions.trust.workspace_trust import WorkspaceTrust, check_trust, trust_workspace
from kitbag.settings import load_settings
from kitbag.tools.mcp_client.configured_servers import (
    ConfiguredServer,
    agent_servers,
    check_still_trusted,
    configured_servers,
    resolve_variables,
    server_environment,
)

NODE: dict[str, Any] = {"command": "node", "args": ["server.js"]}


def bring(world: World, **servers: Any) -> None:
    world.write(".mcp.json", json.dumps({"mcpServers": servers}))


def agree(world: World) -> WorkspaceTrust:
    trust_workspace(world.places(), check_trust(world.places()))
    return check_trust(world.places())


def found(world: World, trust: WorkspaceTrust | None = None) -> dict[str, ConfiguredServer]:
    places = world.places()
    settings = load_settings(places.kitbag_home, places.project_dirs)
    servers = configured_servers(places, trust or check_trust(places), settings)
    return {f"{one.server.name} {one.server.scope}": one for one in servers}


def test_D01_a_project_s_server_does_not_count_before_the_workspace_is_trusted(world: World) -> None:
    bring(world, s=NODE)
    assert found(world)["s project"].state == "untrusted"
    agree(world)
    assert found(world)["s project"].state == "ready"


def test_trust_for_one_run_counts(world: World) -> None:
    bring(world, s=NODE)
    assert found(world, check_trust(world.places(), trusted_for_run=True))["s project"].state == "ready"


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
    from kitbag.permissions.trust.workspace_trust import revoke_trust

    bring(world, s=NODE)
    trust = agree(world)
    server = found(world, trust)["s project"].server
    revoke_trust(world.places(), None)
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
    given = server_environment(resolve_variables(found(world)["s user"].server, world.places(), settings))
    assert given["TOKEN"] == "CANARY_SECRET_2"
    assert {"OPENAI_API_KEY", "MY_TOKEN", "LD_PRELOAD"}.isdisjoint(given)
    assert given["PATH"]


class TestVariablesOfAProject:
    def value(self, world: World, text: str) -> str:
        bring(world, s={"command": "a", "args": [text]})
        server = found(world, check_trust(world.places(), trusted_for_run=True))["s project"].server
        settings = load_settings(world.places().kitbag_home, ())
        return resolve_variables(server, world.places(), settings).arguments[0]

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


class TestOfAnAgent:
    SERVER = "s: {command: node, args: [server.js]}"

    def write(self, world: World, server: str = SERVER, place: str = ".claude/agents") -> None:
        text = f"---\nname: helper\ndescription: Helps.\nmcpServers:\n  - {server}\n---\nHelp.\n"
        world.write(f"{place}/helper.md", text)

    def own(self, world: World, trust: WorkspaceTrust | None = None) -> ConfiguredServer:
        places = world.places()
        trust = trust or check_trust(places)
        [found] = self.all(world, trust)
        return found

    def all(self, world: World, trust: WorkspaceTrust) -> list[ConfiguredServer]:
        places = world.places()
        agent = Registry(places).find_agent("helper")
        settings = load_settings(places.kitbag_home, places.project_dirs)
        return agent_servers(agent, places, trust, configured_servers(places, trust, settings))

    def test_a_user_s_counts_at_once(self, world: World) -> None:
        self.write(world, "s: {command: mine, cwd: /tmp, timeout: 5000, enabled: true, args: }", "~/.claude/agents")
        one = self.own(world)
        assert (one.state, one.server.scope, one.server.command) == ("ready", "user", "mine")
        assert (one.server.timeout_seconds, one.server.directory) == (5.0, "/tmp")

    def test_D01_a_project_s_does_not_count_before_the_workspace_is_trusted(self, world: World) -> None:
        self.write(world)
        assert self.own(world).state == "untrusted"
        agree(world)
        one = self.own(world)
        assert (one.state, one.server.directory) == ("ready", str(world.workspace))
        assert self.own(world, check_trust(world.places(), trusted_for_run=True)).state == "ready"

    @pytest.mark.parametrize(
        "changed",
        [
            "s: {command: nodejs, args: [server.js]}",
            "s: {command: node, args: [server.js, more]}",
            "s: {command: node, args: [server.js], env: {A: b}}",
            "s: {url: 'http://x'}",
            "t: {command: node, args: [server.js]}",
        ],
    )
    def test_D05_a_changed_one_does_not_count_until_it_is_agreed_to_again(self, world: World, changed: str) -> None:
        self.write(world)
        trust = agree(world)
        before = self.own(world, trust).server
        self.write(world, changed)
        assert self.own(world).state == "changed"
        assert self.own(world, trust).state == "changed"  # also where it changed after the look
        with pytest.raises(UsageError, match="has changed since"):
            check_still_trusted(before, world.places(), trust)
        agree(world)
        assert self.own(world).state == "ready"

    def test_D05_a_script_that_changes_keeps_it_from_being_started(self, world: World) -> None:
        world.write("server.js", "one")
        self.write(world)
        trust = agree(world)
        server = self.own(world, trust).server
        check_still_trusted(server, world.places(), trust)
        world.write("server.js", "two")
        with pytest.raises(UsageError, match="has changed since"):
            check_still_trusted(server, world.places(), trust)

    def test_D05_a_file_that_is_gone_starts_nothing(self, world: World) -> None:
        self.write(world)
        trust = agree(world)
        server = self.own(world, trust).server
        (world.workspace / ".claude/agents/helper.md").unlink()
        with pytest.raises(UsageError, match="has changed since"):
            check_still_trusted(server, world.places(), trust)

    def test_other_words_in_the_file_do_not_matter(self, world: World) -> None:
        self.write(world)
        trust = agree(world)
        server = self.own(world, trust).server
        path = world.workspace / ".claude/agents/helper.md"
        path.write_text(path.read_text().replace("Help.", "Help more."))
        check_still_trusted(server, world.places(), trust)

    def test_a_project_s_does_not_take_the_place_of_one_of_the_user_s(self, world: World) -> None:
        self.write(world)
        agree(world)
        world.write("~/.kitbag/settings.toml", '[mcp_servers.s]\ncommand = "mine"\n')
        assert self.own(world).state == "hidden"
        world.write("~/.kitbag/settings.toml", "[mcp_servers.s]\nenabled = false\n")
        assert self.own(world).state == "off"

    def test_its_label_is_no_other_s(self, world: World) -> None:
        self.write(world, "'s!': {command: node}")
        world.write("~/.kitbag/settings.toml", '[mcp_servers.s]\ncommand = "mine"\n')
        agree(world)
        one = self.own(world)
        assert one.state == "ready"
        assert one.server.label.startswith("s-")

    @pytest.mark.parametrize(
        ("server", "problem"),
        [
            ("s: npx", "must be a table"),
            ("s: {command: a, includeTools: [b]}", "unknown key `includeTools`"),
            ("s: {type: sse, url: 'http://x'}", "type 'sse'"),
            ("s: {command: a, cwd: /}", "unknown key `cwd`"),
            ("s: {command: a, timeout: soon}", "`timeout`"),
            ("s: {command: a, enabled: perhaps}", "`enabled`"),
            ("s: {command: a, env: {K: '${{ secrets.K }}'}}", "a GitHub secret"),
        ],
    )
    def test_what_is_wrong_with_one_is_said(self, world: World, server: str, problem: str) -> None:
        self.write(world, server)
        one = self.own(world, check_trust(world.places(), trusted_for_run=True))
        assert one.state == "wrong"
        assert problem in one.reason

    def test_one_of_a_folder_that_is_named_for_a_run_is_the_project_s_where_it_lies_in_it(self, world: World) -> None:
        self.write(world, place="more/agents")
        places = world.places()
        agent = Registry(places, extra=(str(world.workspace / "more"),)).find_agent("helper")
        trust = agree(world)
        [one] = agent_servers(agent, places, trust, [])
        assert (one.server.scope, one.state) == ("project", "untrusted" if trust.state == "untrusted" else "changed")
