"""`kitbag setup` as a command: it asks nobody who is not there, shows how things stand, and forgets keys."""

import json

import pytest

from conftest import World
from kitbag.store.api_keys import read_keys, store_key
from kitbag.testing import ModelServer, Rule, Script, Step
from support.driving import Driven
from support.pseudo_terminal import ESCAPE

KEY = "sk-proj-Qm2v8sTzR4kLw9XyB1nD"


@pytest.fixture(autouse=True)
def _nothing_is_set(world: World) -> None:
    for name in list(world.env):
        if name.startswith(("KITBAG", "ANTHROPIC", "OPENAI", "OPENROUTER", "OLLAMA")):
            del world.env[name]


def home(world: World) -> str:
    return str(world.home / ".kitbag")


def test_in_a_pipe_it_asks_nobody_and_says_what_to_do(world: World) -> None:
    done = world.run("setup", stdin="1\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs an interactive terminal" in done.stderr
    assert "ANTHROPIC_API_KEY" in done.stderr
    assert not (world.home / ".kitbag").exists()


def test_json_shows_how_things_stand_by_name_only(world: World) -> None:
    world.env["ANTHROPIC_API_KEY"] = "of-the-environment"
    store_key(home(world), "OPENAI_API_KEY", KEY)
    done = world.run("setup", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    keys = {one["name"]: (one["key_variable"], one["key"], one["has_key"]) for one in found["providers"]}
    assert keys["anthropic"] == ("ANTHROPIC_API_KEY", "environment", True)
    assert keys["openai"] == ("OPENAI_API_KEY", "kept", True)
    assert keys["openrouter"] == ("OPENROUTER_API_KEY", "missing", False)
    assert keys["ollama"] == ("", "not needed", False)
    assert found["chosen"] == {"name": "anthropic/claude-sonnet-4-5", "why": "ANTHROPIC_API_KEY is set"}
    assert (found["usable"], found["settings_file"]) == (True, f"{home(world)}/settings.toml")
    for text in (done.stdout, done.stderr, world.ok("models"), world.ok("models", "--json"), world.ok("config", "get")):
        assert KEY not in text
        assert "of-the-environment" not in text


def test_a_kept_key_is_used_and_said_to_be(world: World) -> None:
    store_key(home(world), "OPENAI_API_KEY", KEY)
    chosen = world.json("models")["chosen"]
    assert (chosen["name"], chosen["why"], chosen["usable"]) == (
        "openai/gpt-5",
        "OPENAI_API_KEY is stored by setup",
        True,
    )


def test_a_key_is_forgotten_and_so_is_the_model_that_needs_it(world: World) -> None:
    store_key(home(world), "OPENAI_API_KEY", KEY)
    store_key(home(world), "OPENROUTER_API_KEY", KEY + "2")
    world.write("~/.kitbag/settings.toml", '# mine\nmodel = "openai/gpt-5"\nteam = "a"\n')
    assert world.json("setup", "--forget", "openai") == {
        "provider": "openai", "variable": "OPENAI_API_KEY", "model": "openai/gpt-5",
    }  # fmt: skip
    assert read_keys(home(world)).keys == {"OPENROUTER_API_KEY": KEY + "2"}
    assert (world.home / ".kitbag/settings.toml").read_text() == '# mine\nteam = "a"\n'
    assert "removed the API key" in world.ok("setup", "--forget", "openrouter")
    assert read_keys(home(world)).keys == {}


def test_what_is_not_kept_can_not_be_forgotten(world: World) -> None:
    store_key(home(world), "OPENAI_API_KEY", KEY)
    done = world.run("setup", "--forget", "mistral")
    assert (done.returncode, "keys are stored for openai" in done.stderr) == (4, True)
    world.env["ANTHROPIC_API_KEY"] = "x"
    done = world.run("setup", "--forget", "anthropic")
    assert (done.returncode, "environment variable ANTHROPIC_API_KEY" in done.stderr) == (4, True)


def test_keys_that_others_could_read_are_told(world: World) -> None:
    store_key(home(world), "OPENAI_API_KEY", KEY)
    (world.home / ".kitbag/keys.toml").chmod(0o644)
    found = world.json("setup")
    assert "readable by other users" in found["problems"][0]["problem"]
    assert {one["key"] for one in found["providers"]} == {"missing", "not needed"}


@pytest.mark.parametrize("plain", [False, True])
def test_at_a_terminal_a_model_is_connected_and_the_key_is_never_seen(world: World, plain: bool) -> None:
    enter = "\r" if plain else ""
    with ModelServer(Script([Rule([Step("Ready, and glad.")])])) as server:
        world.env["OPENAI_BASE_URL"] = f"{server.url}/v1"
        with Driven(world, "setup", *(["--plain"] if plain else [])) as terminal:
            for question, keys in (
                ("Choose a provider", f"2{enter}"),
                ("readable only by you", f"t{enter}"),
                ("only the key", f"{KEY}\r"),
                ("Choose a model", "\r"),
            ):
                terminal.until_seen(question)
                terminal.until(lambda: not plain or terminal.text().rstrip().endswith("answer:"))
                terminal.type(keys)
            terminal.until_seen("model set to openai/gpt-5 (test request succeeded)")
            assert terminal.until_ended() == 0
            assert "3 models available" in terminal.all()
            assert "Ready, and glad." in terminal.all()
            assert KEY.encode() not in terminal.raw
            assert terminal.settings_are_as_before()
        assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    holding = [path.name for path in world.home.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert holding == ["keys.toml"]


def test_at_a_terminal_it_can_be_left(world: World) -> None:
    with Driven(world, "setup") as terminal:
        terminal.until_seen("Choose a provider")
        terminal.press(ESCAPE)
        terminal.until_seen("nothing was saved")
        assert terminal.until_ended() == 0
        assert terminal.settings_are_as_before()
    assert not (world.home / ".kitbag/settings.toml").exists()


def test_a_server_that_does_not_answer_can_be_broken_off(world: World) -> None:
    with ModelServer(Script([Rule([Step("Late.", delay=3_600)])])) as server:
        world.env |= {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": KEY}
        with Driven(world, "setup") as terminal:
            for question, keys in (
                ("Choose a provider", "2"),
                ("? API key:", "u"),
                ("Choose a model", "\r"),
            ):
                terminal.until_seen(question)
                terminal.type(keys)
            terminal.until_seen("testing openai/gpt-5")
            terminal.until(lambda: server.requests)
            terminal.press(ESCAPE)
            assert terminal.until_ended() == 130
            assert terminal.settings_are_as_before()
    assert not (world.home / ".kitbag/settings.toml").exists()
