"""Spans of a run, made from its events."""

import asyncio
from typing import Any

import pytest

from kitbag.events import (
    Compacted,
    MessageAdded,
    Retrying,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnEnded,
)
from kitbag.messages import Message, Text, Usage
from kitbag.telemetry.run_spans import RunSpans, SpanRecord
from kitbag.telemetry.trace_context import current_span, new_trace, parse_traceparent, set_current_span

STARTED = RunStarted(session="s1", model="x/m", mode="default", directory="/w", skills=0, agents=0, tools=())
USAGE = Usage(input=10, output=5, cache_read=100, cache_write=20)


def spans_of(**more: Any) -> tuple[RunSpans, list[SpanRecord]]:
    sent: list[SpanRecord] = []
    given = {"agent": "doer", "task_id": "t1", "provider": "x", "parent": None, "redact": None, **more}
    return RunSpans(sent.append, **given), sent


def ended(status: Any = "completed", error: str = "") -> RunEnded:
    return RunEnded(status=status, text="Done.", turns=1, usage=Usage(), cost=0.0, error=error)


def started(call_id: str, name: str = "Bash") -> ToolStarted:
    return ToolStarted(call_id=call_id, name=name, arguments={"command": "secret"}, title="t")


def test_tokens_from_the_cache_are_input_tokens_and_the_run_has_the_sum() -> None:
    spans, sent = spans_of()
    spans.observe(STARTED)
    for turn in (1, 2):
        spans.request_model("m")
        spans.observe(TextDelta("x"))
        spans.observe(MessageAdded(Message("assistant", (Text("x"),))))
        spans.observe(TurnEnded(turn=turn, usage=USAGE, cost=0.5, model="m-2026", stop="end"))
    spans.observe(ended())
    chats, agent = sent[:2], sent[2]
    assert [chat.name for chat in chats] == ["chat m", "chat m"]
    assert chats[0].attributes["gen_ai.response.model"] == "m-2026"
    assert chats[0].attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert chats[0].attributes["gen_ai.usage.input_tokens"] == 130
    assert chats[0].attributes["gen_ai.usage.cache_read.input_tokens"] == 100
    assert chats[0].attributes["gen_ai.usage.cache_creation.input_tokens"] == 20
    assert agent.attributes["gen_ai.usage.input_tokens"] == 260
    assert agent.attributes["kitbag.cost_usd"] == 1.0
    assert all(chat.parent == agent.span and agent.start <= chat.start <= chat.end <= agent.end for chat in chats)
    assert not any("messages" in name or "arguments" in name for span in sent for name in span.attributes)


def test_a_run_that_fails_ends_everything_that_is_open_as_failed() -> None:
    spans, sent = spans_of()
    spans.observe(STARTED)
    spans.observe(started("c1"))
    spans.request_model("m")
    spans.observe(Retrying(attempt=1, seconds=2.0, reason="private"))
    spans.observe(ended("failed", "private"))
    assert [(span.name, span.error) for span in sent] == [
        ("execute_tool Bash", "failed"),
        ("chat m", "failed"),
        ("invoke_agent doer", "failed"),
    ]
    assert sent[1].events[0].attributes == {"attempt": 1, "seconds": 2.0}
    assert "private" not in repr(sent)


def test_a_request_for_a_summary_ends_with_the_compaction() -> None:
    spans, sent = spans_of()
    spans.request_model("m")
    spans.observe(Compacted(before=10, after=5))
    spans.request_model("m")
    spans.request_model("m")
    assert [span.error for span in sent] == ["", "interrupted"]


def test_a_tool_that_was_denied_before_it_started_is_no_span() -> None:
    spans, sent = spans_of()
    spans.observe(ToolFinished(call_id="c1", name="Bash", is_error=True, summary="", seconds=0.0))
    assert sent == []


def test_what_parallel_calls_start_is_below_their_own_spans() -> None:
    spans, sent = spans_of(parent=new_trace())

    async def run_tool(call_id: str) -> Any:
        spans.observe(started(call_id))
        await asyncio.sleep(0)
        found = current_span()
        spans.observe(ToolFinished(call_id=call_id, name="Bash", is_error=call_id == "b", summary="", seconds=0.0))
        return found

    async def run() -> list[Any]:
        spans.make_current()
        return [*await asyncio.gather(run_tool("a"), run_tool("b")), current_span()]

    found = asyncio.run(run())
    assert found[:2] == [span.span for span in sent]
    assert [span.error for span in sent] == ["", "tool_error"]
    assert {span.parent for span in sent} == {found[2]}


@pytest.mark.parametrize(
    "text", ["", "x", None, 5, f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'1' * 32}-{'0' * 16}-01", f"01-{'1' * 32}-{'1' * 16}-01"]
)  # fmt: skip
def test_a_trace_context_that_is_not_valid_is_none(text: object) -> None:
    assert parse_traceparent(text) is None


def test_a_trace_context_survives_its_text_form() -> None:
    span = new_trace()
    assert parse_traceparent(span.traceparent) == span
    set_current_span(None)
