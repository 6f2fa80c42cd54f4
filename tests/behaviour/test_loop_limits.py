"""Limits of the agent loop: the real program against a model that does too much, in each wire protocol."""

import itertools
import json
import re

import pytest

from conftest import World
from kitbag.testing import ModelServer, Rule, Script, Seen, Step
from models.test_portable_names import call_ids
from support.headless import PROTOCOLS, ask, point, script
from support.matrix import sample


def glob_calls(count: int) -> tuple[tuple[str, str, str], ...]:
    return tuple((f"c{at}", "Glob", '{"pattern": "*.none"}') for at in range(count))


def results_of(body: dict) -> list[tuple[str, str]]:
    """(call, text) of each tool result of a request, in whichever protocol."""
    found: list[tuple[str, str]] = []
    for item in body.get("messages") or body["input"]:
        if item.get("role") == "tool":
            found.append((item["tool_call_id"], item["content"]))
        elif item.get("type") == "function_call_output":
            found.append((item["call_id"], item["output"]))
        elif isinstance(item.get("content"), list):
            blocks = [block for block in item["content"] if block["type"] == "tool_result"]
            found += [(block["tool_use_id"], block["content"][0]["text"]) for block in blocks]
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_calls_beyond_the_limit_of_a_reply_get_an_error_in_order_and_the_user_is_warned(
    world: World, protocol: str
) -> None:
    with ModelServer(script(Step(calls=glob_calls(70)), "Done.")) as server:
        point(world, server, protocol)
        done = ask(world, "Look")
        results = results_of(server.requests[1].body)
    assert (done.returncode, done.stdout) == (0, "Done.\n")
    assert [name for name, _ in results] == [f"c{at}" for at in range(70)]
    assert ["one reply can run 64 tool calls" in text for _, text in results] == [False] * 64 + [True] * 6
    assert "the model sent 70 tool calls in one reply; only the first 64 are run" in done.stderr


def test_the_limit_of_calls_is_a_setting(world: World) -> None:
    world.write("~/.kitbag/settings.toml", "[limits]\ncalls = 2\n")
    with ModelServer(script(Step(calls=glob_calls(3)), "Done.")) as server:
        point(world, server, "anthropic")
        ask(world, "Look")
        results = results_of(server.requests[1].body)
    assert ["not run" in text for _, text in results] == [False, False, True]


def forever(seen: Seen) -> Step:
    return Step(calls=((f"c{seen.turns}", "Glob", '{"pattern": "*.none"}'),))


def endless() -> Script:
    return Script([Rule([forever] * 300)])


def test_without_an_option_a_model_that_never_stops_is_stopped_and_the_message_says_how_to_go_on(world: World) -> None:
    with ModelServer(endless()) as server:
        point(world, server, "anthropic")
        done = ask(world, "Look")
        assert len(server.requests) == 200
    assert done.returncode == 11
    assert "stopped after 200 model requests, the limit for one prompt; the work is not finished" in done.stderr
    assert "--continue --max-turns 400, or raise `limits.turns`" in done.stderr


def test_the_turn_limit_is_a_setting_and_counts_anew_for_each_prompt(world: World) -> None:
    world.write("~/.kitbag/settings.toml", "[limits]\nturns = 3\n")
    with ModelServer(endless()) as server:
        point(world, server, "anthropic")
        first = ask(world, "Look", "--output-format", "json")
        assert len(server.requests) == 3
        ask(world, "Go on", "--continue")
        assert len(server.requests) == 6
        ask(world, "Go on", "--continue", "--max-turns", "8")
        assert len(server.requests) == 8
    assert first.returncode == 11
    report = json.loads(first.stdout)
    assert (report["status"], report["turns"]) == ("max-turns", 3)
    assert "stopped after 3 model requests" in report["error"]


HOSTILE_IDS = ("functions.Glob:0", "x" * 500, "call 1", "test-key-anthropic", "ghp_" + "a1B2" * 9, "")


@pytest.mark.parametrize(("first", "second"), sample(itertools.product(PROTOCOLS, repeat=2), 4, unpack=True))
def test_ids_that_a_provider_would_refuse_are_replaced_for_good_also_for_another_provider(
    world: World, first: str, second: str
) -> None:
    calls = tuple((call_id, "Glob", json.dumps({"pattern": f"{at}.none"})) for at, call_id in enumerate(HOSTILE_IDS))
    with ModelServer(script(Step(calls=calls), "Done.", "Again.")) as server:
        point(world, server, first)
        assert ask(world, "Look").returncode == 0
        if second == "chat":
            world.write("~/.kitbag/settings.toml", "")
        point(world, server, second)
        done = ask(world, "More", "--continue", "--model", world.env["KITBAG_MODEL"])
        assert (done.returncode, done.stdout) == (0, "Again.\n")
        live, resumed = (call_ids(server.requests[at].body) for at in (1, 2))
    assert live == resumed
    sent, answered, _ = live
    assert sent == answered
    assert len(set(sent)) == len(HOSTILE_IDS)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,40}", call_id) for call_id in sent)
    assert "test-key-anthropic" not in sent


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_tool_name_that_a_provider_would_refuse_is_replaced_and_the_model_is_told(
    world: World, protocol: str
) -> None:
    calls = (("c1", "read the file", "{}"), ("c2", "x" * 65, "{}"), ("c3", "Glob", '{"pattern": "*"}'))
    with ModelServer(script(Step(calls=calls), "Done.")) as server:
        point(world, server, protocol)
        assert ask(world, "Look").returncode == 0
        _, _, names = call_ids(server.requests[1].body)
        texts = [text for _, text in results_of(server.requests[1].body)]
    assert names == ["invalid_tool_name", "invalid_tool_name", "Glob"]
    assert "'read the file' is not a valid tool name" in texts[0]
