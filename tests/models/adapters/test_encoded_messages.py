"""A body is the same whether its messages were written before or not."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kitbag.messages import Message, Text, ToolCall, ToolResult
from kitbag.models.adapters.anthropic import Anthropic
from kitbag.models.adapters.api_errors import ApiEndpoint
from kitbag.models.adapters.encoded_messages import MAX_CONVERSATIONS, MessageEncoder
from kitbag.models.adapters.openai_chat import OpenAIChat
from kitbag.models.adapters.openai_responses import OpenAIResponses
from kitbag.models.provider import ModelRequest, SystemBlock, ToolSpec

ENDPOINT = ApiEndpoint(provider="p", base_url="http://127.0.0.1:9/v1", headers={})
SPEC = ToolSpec(name="Read", description="Reads.", schema={"type": "object"})
_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_messages = st.lists(_text, min_size=1, max_size=6)


def conversation(texts: list[str]) -> tuple[Message, ...]:
    made: list[Message] = []
    for at, text in enumerate(texts):
        made.append(Message("user", (Text(text),)))
        made.append(Message("assistant", (Text(text), ToolCall(id=f"c{at}", name="Read", arguments={"a": text}))))
        made.append(Message("user", (ToolResult(call_id=f"c{at}", content=(Text(text),)),)))
    return tuple(made)


def body(adapter: Any, messages: tuple[Message, ...]) -> Any:
    request = ModelRequest(
        model="m", system=(SystemBlock(text="Be brief.", cache=True),), messages=messages, tools=(SPEC,)
    )
    return json.loads(adapter._encode_request(request))


@given(first=_messages, second=_messages, cuts=st.lists(st.integers(1, 18), max_size=6))
def test_what_was_written_before_changes_nothing(first: list[str], second: list[str], cuts: list[int]) -> None:
    for kind in (Anthropic, OpenAIChat, OpenAIResponses):
        used = kind(ENDPOINT)
        one, other = conversation(first), conversation(second)
        for cut in cuts:  # forwards and backwards, two conversations in turn, equal messages that are not the same
            for messages in (one[:cut], other[:cut], conversation(first)[:cut]):
                assert body(used, messages) == body(kind(ENDPOINT), messages)


def test_a_message_that_changed_is_written_anew() -> None:
    used = OpenAIChat(ENDPOINT)
    messages = conversation(["a", "b", "c"])
    body(used, messages)
    changed = (messages[0], Message("assistant", (Text("other"),)), *messages[3:])
    assert body(used, changed) == body(OpenAIChat(ENDPOINT), changed)


def test_no_message_is_written_twice_while_a_conversation_grows() -> None:
    written: list[Message] = []

    def items(message: Message) -> list[dict[str, Any]]:
        written.append(message)
        return [{"role": message.role}]

    encoded = MessageEncoder(items)
    messages = conversation([str(at) for at in range(50)])
    for end in range(1, len(messages) + 1):
        encoded.encode_body({"model": "m"}, "messages", messages[:end])
    assert len(written) < len(messages) * 2


def test_only_so_many_conversations_are_kept() -> None:
    encoded = MessageEncoder(lambda message: [{"role": message.role}])
    kept = [conversation([str(at)]) for at in range(MAX_CONVERSATIONS * 2)]
    for messages in kept:
        encoded.encode_body({"model": "m"}, "messages", messages)
    assert len(encoded._conversations) == MAX_CONVERSATIONS
