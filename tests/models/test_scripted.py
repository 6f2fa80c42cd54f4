"""A model that replays a script."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from kitbag.errors import InvalidError
from kitbag.messages import Message, Text, Usage, user_message
from kitbag.models.provider import ModelError, ModelReply, ModelRequest, SystemBlock, TextChunk
from kitbag.models.scripted import Fault, Rule, Script, Scripted, Seen, Step, load_script, script_of


def ask(provider: Scripted, *messages: Message, system: str = "Be brief.") -> list[Any]:
    async def go() -> list[Any]:
        async with aclosing(
            provider.stream(
                ModelRequest(model="m", system=(SystemBlock(text=system),), messages=messages or (user_message("hi"),))
            )
        ) as stream:
            return [piece async for piece in stream]

    return asyncio.run(go())


def said(*texts: str) -> list[Message]:
    found: list[Message] = []
    for text in texts:
        found += [user_message("q"), Message("assistant", (Text(text),))]
    return [*found, user_message("q")]


def test_which_reply_is_next_follows_from_the_request_alone() -> None:
    model = Scripted(script_of(["one", {"text": "two"}, "three"]))
    assert ask(model, *said("one"))[-1].message.text == "two"
    assert ask(model)[-1].message.text == "one"
    assert ask(model, *said("a", "b"))[-1].message.text == "three"
    assert "ended" in ask(model, *said("a", "b", "c"))[-1].message.text
    assert len(model.requests) == 4


def test_rules_choose_by_what_they_find() -> None:
    script = script_of(
        {"rules": [{"system": "summary", "replies": ["S"]}, {"first": "^a", "last": "z$", "replies": ["AZ"]}],
         "replies": ["else"]}
    )  # fmt: skip
    model = Scripted(script)
    assert ask(model, system="a summary")[-1].message.text == "S"
    assert ask(model, user_message("a to z"))[-1].message.text == "AZ"
    assert ask(model, user_message("b"))[-1].message.text == "else"


def test_a_reply_may_be_made_on_the_spot() -> None:
    def answer(seen: Seen) -> str:
        return f"{seen.last} {seen.turns} {seen.tools}"

    assert ask(Scripted(Script([Rule([answer])])))[-1].message.text == "hi 0 ()"


def test_calls_pieces_and_counts_are_those_of_a_real_one() -> None:
    step = {"text": "x" * 100, "thinking": "hm", "calls": [{"name": "Read", "arguments": {"file_path": "a"}}],
            "usage": {"input": 3, "output": 4}}  # fmt: skip
    *pieces, reply = ask(Scripted(script_of([step])))
    assert isinstance(reply, ModelReply)
    assert (reply.stop, reply.usage) == ("tools", Usage(input=3, output=4))
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextChunk)) == "x" * 100
    assert reply.message.calls[0].arguments == {"file_path": "a"}


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, "auth"), (400, "bad-request"), (413, "too-long"), (529, "overloaded"), (503, "transient")],
)
def test_a_fault_is_of_the_kind_that_its_status_is(status: int, kind: str) -> None:
    model = Scripted(Script([Rule([Step(text="Hello.", fault=Fault(times=1, status=status))])]))
    with pytest.raises(ModelError) as error:
        ask(model)
    assert error.value.kind == kind
    assert ask(model)[-1].message.text == "Hello."


@pytest.mark.parametrize(
    ("script", "place"),
    [
        (3, "the script"), ({}, "neither"), ({"rules": 5}, "`rules`"), ({"rules": [3]}, "rules[0]"),
        ({"rules": [{"replies": 3}]}, "rules[0].replies"), ({"rules": [{"system": "(", "replies": []}]}, "rules[0].system"),
        ([3], "replies[0]"), ([{"txt": "x"}], "txt"), ([{"calls": [3]}], "replies[0].calls[0]"),
        ([{"usage": {"in": 3}}], "replies[0]"), ([{"fault": {"x": 1}}], "replies[0]"), ([{"delay": "x"}], "delay"),
        ([{"delay": -1}], "delay"), ([{"stop": "never"}], "stop"), ([{"usage": 3}], "replies[0]"),
    ],
)  # fmt: skip
def test_a_script_that_is_wrong_says_where(script: object, place: str) -> None:
    with pytest.raises(InvalidError) as error:
        script_of(script)
    assert place in error.value.problem


def test_a_file_that_can_t_be_read_is_named(tmp_path: Path) -> None:
    for content in (None, "{", "[3]", "\ud800"):
        path = tmp_path / "script.json"
        if content is not None:
            path.write_bytes(content.encode("utf-8", "surrogatepass"))
        with pytest.raises(InvalidError, match=r"script\.json"):
            load_script(str(path))
