"""The pieces of a session add up to its next request, whatever is in it."""

import asyncio
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kitbag.agent.context_ledger import pieces_of, request_bytes
from kitbag.agent.records import Header
from kitbag.agent.session import Session
from kitbag.ledger import Entry, Ledger
from kitbag.messages import Image, Message, Text, ToolCall, ToolResult, Usage
from kitbag.models.provider import ToolSpec
from kitbag.store.journal import Journal
from kitbag.store.redaction import Redactor

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
_SPEC = ToolSpec("Read", "Reads.", {"type": "object", "properties": {"p": {"type": "string"}}})


@settings(max_examples=40)
@given(prompt=_text, said=st.lists(_text, min_size=1, max_size=4), result=_text)
def test_the_bytes_close(tmp_path_factory: object, prompt: str, said: list[str], result: str) -> None:
    folder: Path = tmp_path_factory.mktemp("journal")  # type: ignore[attr-defined]

    async def go(journal: Journal) -> None:
        session = Session(journal, "x")
        await session.start(Header("/w", "scripted", "default"))
        await session.set_prompt(Ledger((Entry("base", "x.md", "built-in", "", prompt, 3, 0, "kept", ""),)), {})
        for at, text in enumerate(said):
            await session.add_user([Text(text), Image("image/png", "aGk=")])
            call = ToolCall(f"c{at}", "Read", {"p": text})
            await session.add_reply(Message("assistant", (Text(text), call)), Usage(5, 1), 0.0, "m")
            await session.finish(ToolResult(call.id, (Text(result),)))
        pieces = pieces_of(session, [_SPEC])
        system = [str(entry["text"]) for entry in session.prompt]
        assert sum(piece.bytes for piece in pieces) == request_bytes(system, [_SPEC], session.messages())

    with Journal.open(str(folder / "journal.db"), Redactor(())) as journal:
        asyncio.run(go(journal))
