"""Whatever the records look like, what is sent to a provider is well formed."""

from hypothesis import given
from hypothesis import strategies as st

from agent.talking import assert_valid
from kitbag.agent.transcript import NEVER_RUN, UNKNOWN_OUTCOME, NormalizedTranscript, normalize_transcript
from kitbag.messages import Message, Part, Text, Thinking, ToolCall, ToolResult, user_message

_ids = st.sampled_from(["a", "b", "c", "d"])
_parts = st.one_of(
    st.builds(Text, st.text(max_size=5)),
    st.builds(Thinking, text=st.text(max_size=3), provider=st.just("anthropic")),
    st.builds(lambda i: ToolCall(id=i, name="Read", arguments={}), _ids),
    st.builds(lambda i: ToolResult(call_id=i, content=(Text("x"),)), _ids),
)
_messages = st.lists(
    st.builds(Message, st.sampled_from(["user", "assistant"]), st.lists(_parts, max_size=4).map(tuple)), max_size=10
)


@given(_messages)
def test_any_list_of_messages_becomes_a_valid_conversation(messages: list[Message]) -> None:
    assert_valid(normalize_transcript(messages).messages)


@given(_messages)
def test_mending_twice_changes_nothing_more(messages: list[Message]) -> None:
    once = normalize_transcript(messages)
    again = normalize_transcript(once.messages)
    assert again.messages == once.messages
    assert again.problems == ()


def _said(parts: list[Part]) -> list[Message]:
    return [user_message("go"), Message("assistant", tuple(parts))]


def test_a_whole_conversation_stays_as_it_is() -> None:
    whole = [
        *_said(
            [
                Text("I look."),
                ToolCall(id="a", name="Read", arguments={"file_path": "x"}),
                ToolCall(id="b", name="Glob", arguments={"pattern": "*"}),
            ]
        ),
        Message("user", (ToolResult(call_id="a", content=(Text("1"),)), ToolResult(call_id="b", content=(Text("2"),)))),
        Message("assistant", (Text("Done."),)),
    ]
    assert normalize_transcript(whole) == NormalizedTranscript(messages=tuple(whole), problems=())


def test_results_that_came_in_another_order_are_put_in_the_order_of_the_calls() -> None:
    calls = _said([ToolCall(id="a", name="Read", arguments={}), ToolCall(id="b", name="Read", arguments={})])
    results = [
        Message("user", (ToolResult(call_id="b", content=(Text("2"),)),)),
        Message("user", (ToolResult(call_id="a", content=(Text("1"),)),)),
    ]
    mended = normalize_transcript([*calls, *results])
    assert [result.call_id for result in mended.messages[-1].results] == ["a", "b"]
    assert mended.problems == ()


def test_a_call_that_began_and_has_no_result_has_an_unknown_outcome() -> None:
    mended = normalize_transcript(
        _said([ToolCall(id="a", name="Bash", arguments={}), ToolCall(id="b", name="Read", arguments={})]),
        frozenset("a"),
    )
    texts = [part.text for result in mended.messages[-1].results for part in result.content if isinstance(part, Text)]
    assert texts == [UNKNOWN_OUTCOME, NEVER_RUN]
    assert all(result.is_error for result in mended.messages[-1].results)


def test_what_a_person_says_after_an_interrupted_call_follows_the_result() -> None:
    mended = normalize_transcript([*_said([ToolCall(id="a", name="Bash", arguments={})]), user_message("go on")])
    assert len(mended.messages) == 3
    assert mended.messages[-1].results[0].call_id == "a"
    assert mended.messages[-1].text == "go on"


def test_results_of_calls_that_nobody_made_are_left_out_and_said() -> None:
    mended = normalize_transcript(
        [user_message("go"), Message("user", (ToolResult(call_id="z", content=(Text("1"),)),))]
    )
    assert mended.messages == (user_message("go"),)
    assert "z" in mended.problems[0]
