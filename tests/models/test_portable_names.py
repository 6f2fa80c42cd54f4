"""Ids and names that every provider accepts, in what is sent to each of them."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.messages import Message, Text, ToolCall, ToolResult, user_message
from kitbag.models.portable_names import portable_id, portable_name
from kitbag.models.provider import Provider
from kitbag.testing import ModelServer, Step
from models.test_adapters import ask, collect, script

Connect = Callable[..., Provider]
BAD_IDS = ["", "x" * 41, "x" * 100_000, "call 1", "call:1", "a.b", "é", "\n", "functions.Read:0", "\ud800"]


@given(st.text(max_size=200))
def test_every_id_becomes_one_that_is_accepted_and_always_the_same(call_id: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", portable_id(call_id))
    assert portable_id(call_id) == portable_id(call_id) == portable_id(portable_id(call_id))


@given(st.text(max_size=200))
def test_every_name_becomes_one_that_is_accepted(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", portable_name(name))


def test_different_ids_stay_different() -> None:
    assert len({portable_id(call_id) for call_id in BAD_IDS}) == len(BAD_IDS)


def call_ids(body: dict[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """Ids of calls, ids of results and names of calls of a request, in whichever protocol."""
    calls: list[str] = []
    results: list[str] = []
    names: list[str] = []
    for item in body.get("messages") or body["input"]:
        if item.get("type") == "function_call":
            calls.append(item["call_id"])
            names.append(item["name"])
        elif item.get("type") == "function_call_output":
            results.append(item["call_id"])
        elif item.get("role") == "tool":
            results.append(item["tool_call_id"])
        for call in item.get("tool_calls", ()):
            calls.append(call["id"])
            names.append(call["function"]["name"])
        for block in item["content"] if isinstance(item.get("content"), list) else ():
            if block["type"] == "tool_use":
                calls.append(block["id"])
                names.append(block["name"])
            elif block["type"] == "tool_result":
                results.append(block["tool_use_id"])
    return calls, results, names


@pytest.mark.parametrize("name", ["Read", "read the file", "x" * 65, ""])
def test_a_conversation_with_ids_and_names_of_any_origin_is_sent_with_accepted_ones(
    connect: Connect, name: str
) -> None:
    ids = [call_id for call_id in BAD_IDS if call_id != "\ud800"]
    calls = tuple(ToolCall(id=call_id, name=name, arguments={}) for call_id in ids)
    results = tuple(ToolResult(call_id=call_id, content=(Text("r"),)) for call_id in ids)
    messages = (user_message("Hi"), Message("assistant", calls), Message("user", results))
    with ModelServer(script(Step(text="ok"), Step(text="ok"))) as server:
        collect(connect(server), ask(*messages))
        collect(connect(server), ask(*messages))
        first, second = server.requests
    sent, answered, names = call_ids(json.loads(first.raw))
    assert sent == answered
    assert len(set(sent)) == len(ids)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,40}", call_id) for call_id in sent)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", one) for one in names)
    assert first.raw == second.raw
