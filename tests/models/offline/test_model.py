"""The model that is none: it says so, acts only through tools, and follows from the request alone."""

import asyncio
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.messages import Message, Text, ToolCall, ToolResult, user_message
from kitbag.models.offline.commands import REQUEST_FORMS
from kitbag.models.offline.model import NO_MODEL_LINE, OfflineModel
from kitbag.models.provider import ModelReply, ModelRequest, SystemBlock, TextChunk, ToolSpec
from support.cost import processor_limit
from support.matrix import sample

CATALOG = """<available-skills>
Use the Skill tool to load any of these before doing the work it covers:

- code-review: Reviews changes in this repository, finds defects.
- shop:deploy: Ships a release to the servers.
</available-skills>"""


def spec(name: str, *fields: str) -> ToolSpec:
    return ToolSpec(name=name, description="", schema={"type": "object", "properties": {field: {} for field in fields}})


SKILL = spec("Skill", "skill", "args")
GREP = spec("Grep", "pattern", "output_mode", "-i", "-n", "head_limit")
READ = spec("Read", "file_path", "offset", "limit")


def ask(*messages: Message, tools: tuple[ToolSpec, ...] = (SKILL, GREP, READ), system: str = CATALOG) -> ModelReply:
    async def go() -> ModelReply:
        pieces = []
        async with aclosing(
            OfflineModel().stream(
                ModelRequest(model="offline", system=(SystemBlock(text=system),), messages=messages, tools=tools)
            )
        ) as stream:
            async for piece in stream:
                pieces.append(piece)
        assert "".join(piece.text for piece in pieces if isinstance(piece, TextChunk)) == pieces[-1].message.text
        return pieces[-1]

    return asyncio.run(go())


def answered(reply: ModelReply, *texts: str) -> list[Message]:
    results = [
        ToolResult(call_id=call.id, content=(Text(text),))
        for call, text in zip(reply.message.calls, texts, strict=True)
    ]
    return [reply.message, Message("user", tuple(results))]


def test_from_the_request_through_skill_search_and_reading_to_an_answer() -> None:
    talk = [user_message("please review my change to the invoice total")]
    first = ask(*talk)
    assert [call.name for call in first.message.calls] == ["Skill", "Grep"]
    assert first.message.calls[0].arguments == {"skill": "code-review"}
    body = '<skill-invocation name="code-review">\nSkill directory: /x\n\n# Review\n\nLook twice.\n</skill-invocation>'
    talk += answered(first, body, "src/invoice.py:12:total = change(invoice)\nsrc/other.py:3:invoice = 1")
    second = ask(*talk)
    assert {call.name for call in second.message.calls} == {"Read"}
    assert second.message.calls[0].arguments["file_path"] == "src/invoice.py"
    talk += answered(second, *("    12\ttotal = change(invoice)" for _ in second.message.calls))
    last = ask(*talk)
    assert last.stop == "end"
    assert last.message.text.splitlines()[0] == NO_MODEL_LINE
    assert "> Look twice." in last.message.text
    assert "src/invoice.py:12" in last.message.text


def test_every_answer_begins_with_what_it_is() -> None:
    assert ask(user_message("zzz"), tools=(SKILL,)).message.text.startswith(NO_MODEL_LINE)
    assert ask(user_message("zzz"), tools=()).message.text.startswith(NO_MODEL_LINE)
    assert "matches the keywords" in ask(user_message("?"), tools=(READ,)).message.text


def test_a_skill_is_found_by_its_full_name() -> None:
    call = ask(user_message("run shop:deploy now")).message.calls[0]
    assert call.arguments == {"skill": "shop:deploy"}


def test_only_tools_that_are_there_are_called_with_arguments_that_they_know() -> None:
    bare = spec("Grep", "pattern")
    calls = ask(user_message("review the invoice change"), tools=(bare,)).message.calls
    assert [call.name for call in calls] == ["Grep"]
    assert set(calls[0].arguments) == {"pattern"}


def test_a_call_that_failed_is_no_source() -> None:
    first = ask(user_message("please review my change"))
    results = [ToolResult(call_id=call.id, content=(Text("Error: no"),), is_error=True) for call in first.message.calls]
    reply = ask(user_message("please review my change"), first.message, Message("user", tuple(results)))
    assert "Error: no" not in reply.message.text
    assert reply.message.text.startswith(NO_MODEL_LINE)


def test_what_begins_like_a_piece_of_work_and_is_none_is_told_what_would_be_one() -> None:
    reply = ask(user_message("Replace apples with pears"), tools=(SKILL,))
    assert "Nothing was changed or run" in reply.message.text
    assert all(form in reply.message.text for form in REQUEST_FORMS)
    assert "Nothing was changed" not in ask(user_message("Explain pears"), tools=(SKILL,)).message.text


def test_what_is_attached_to_a_result_does_not_begin_anew() -> None:
    talk = [user_message("Replace `old_name` by `new_name`")]
    first = ask(*talk)
    [result, tail] = answered(first, "a.py:1:old_name")[1].parts[0], Text("<library-changes>\nx\n</library-changes>")
    second = ask(*talk, first.message, Message("user", (result, tail)), tools=(GREP, READ, spec("Edit", "file_path")))
    assert [call.name for call in second.message.calls] == ["Read"]


@pytest.mark.parametrize(
    "piece",
    sample(["<aa", "<aa>", "<skill-invocation", "<suggested-skills>", "<available-skills>\n- a: b\n", "```", "- x: y\n",
     "<standard-input>x</standard-input>", "(a", "a-b.c/d ", "\x00"], 4),
)  # fmt: skip
def test_whatever_is_pasted_takes_no_longer_than_reading_it(piece: str) -> None:
    with processor_limit():
        ask(user_message("review " + piece * (2_000_000 // len(piece))))


@given(
    st.lists(st.text(alphabet=st.sampled_from("ab <>/-:\n`#[](){}|\\.é中\u202e\ud800"), max_size=80), max_size=6),
    st.text(max_size=60),
)
def test_nothing_that_is_said_breaks_it(texts: list[str], result: str) -> None:
    talk: list[Message] = []
    for at, text in enumerate(texts):
        talk += [
            user_message(text),
            Message("assistant", (ToolCall(id=f"c{at}", name="Grep", arguments={"pattern": text}),)),
            Message("user", (ToolResult(call_id=f"c{at}", content=(Text(result),)),)),
        ]
    reply = ask(*talk, user_message("find it"), system=CATALOG + "".join(texts))
    assert reply.message.parts
