"""`kitbag servers`: listing is inert, trying needs trust, and no secret is shown."""

import json

from conftest import World
from support.mcp_servers import described


def bring(world: World, **more: str) -> None:
    server = {**described(canary=str(world.canary)), "env": {"TOKEN": "CANARY_SECRET_1"}}
    world.write(".mcp.json", json.dumps({"mcpServers": {"plain": server}}))


def test_D01_listing_starts_nothing_and_shows_what_is_pending(world: World) -> None:
    bring(world)
    [found] = world.json("servers", "list")
    assert (found["name"], found["state"], found["scope"], found["tools"]) == ("plain", "untrusted", "project", None)
    assert "kitbag trust" in found["fix"]
    shown = world.run("servers", "list")
    assert "not trusted" in shown.stdout
    assert not world.canary.exists()
    assert "CANARY_SECRET" not in shown.stdout + shown.stderr + json.dumps(found)


def test_D01_trying_one_needs_trust_and_then_shows_what_it_offers(world: World) -> None:
    bring(world)
    refused = world.run("servers", "test", "plain")
    assert refused.returncode == 13
    assert not world.canary.exists()
    tried = world.json("servers", "test", "plain", "--trust-workspace")
    assert (tried["tools"], tried["prompts"], tried["state"]) == (["echo"], ["greet"], "ready")
    assert world.json("servers", "list", "--trust-workspace")[0]["tools"] == ["echo"]


def test_one_that_fails_says_why(world: World) -> None:
    server = described(quits=2, says="it is broken")
    world.write(
        "~/.kitbag/settings.toml",
        f"[mcp_servers.x]\ncommand = {json.dumps(server['command'])}\nargs = {json.dumps(server['args'])}\n",
    )
    failed = world.run("servers", "test", "x")
    assert failed.returncode == 6
    assert "it is broken" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert world.run("servers", "test", "y").returncode == 4


def test_D01_one_that_an_agent_describes_is_listed_by_both_names_and_tried_after_trust(world: World) -> None:
    server = {**described(canary=str(world.canary)), "env": {"TOKEN": "CANARY_SECRET_1"}}
    head = f"name: helper\ndescription: Helps.\nmcpServers: {json.dumps([{'plain': server}])}"
    world.write(".claude/agents/helper.md", f"---\n{head}\n---\nHelp.\n")
    [found] = world.json("servers", "list")
    assert (found["name"], found["agent"], found["state"], found["scope"]) == (
        "plain", "helper", "untrusted", "project",
    )  # fmt: skip
    assert "CANARY_SECRET" not in json.dumps(found)
    assert world.run("servers", "test", "helper:plain").returncode == 13
    assert not world.canary.exists()
    assert world.json("servers", "test", "helper:plain", "--trust-workspace")["tools"] == ["echo"]
