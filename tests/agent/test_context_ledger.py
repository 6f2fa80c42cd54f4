"""The pieces of a session add up to its next request, whatever is in it."""

import asyncio
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kitbag.agent.context_ledger import (
    ContextPiece,
    count_request_bytes,
    list_context_pieces,
    read_turn_usage,
    session_before_last_reply,
)
from kitbag.agent.resume import resume
from kitbag.agent.session import Session
from kitbag.agent.session_records import Compaction, SessionHeader, SkillUse
from kitbag.ledger import Entry, Ledger
from kitbag.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, Usage
from kitbag.models.provider import ToolSpec
from kitbag.store.journal import Journal
from kitbag.store.redaction import Redactor
from support.matrix import examples

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    [
        "<suggested-skills>",
        "a <library-changes> b <suggested-skills> c",
        "<conversation-summary>",
        'a\n\n<mentioned-file path="x" images="1">\nb\n</mentioned-file>\n\n<library-changes>\nc',
        'a\n<mentioned-folder path="x">\n',
        'a\n\n<mentioned-command name="ls" run-by="the person">\nb\n</mentioned-command>',
        '<skill-invocation name="x">',
        "[The skill x was shown here until the next user message.]",
        "é\ud7ff\U0001f469\u200d\U0001f4bb",
    ]
)
_step = st.tuples(
    st.sampled_from(["said", "one-message", "call", "skill", "unload", "think", "picture", "compact"]), _text
)
_SPEC = ToolSpec(name="Read", description="Reads.", schema={"type": "object", "properties": {"p": {"type": "string"}}})


def _use(name: str, text: str, call: str) -> SkillUse:
    return SkillUse(
        name=name, tokens=3, at="2026-01-01T00:00:00Z", by="model", digest="d", arguments="", text=text, call_id=call
    )


async def _take(session: Session, at: int, what: str, text: str) -> None:
    if what in ("said", "one-message", "picture"):
        extra = [Image(media_type="image/png", data="aGk=")] if what == "picture" else []
        block = [Text(f'<skill-invocation name="x">\n{text}\n</skill-invocation>')] if what == "one-message" else []
        await session.add_user([*extra, *block, Text(text)], [(0, "x")] if block else [])
    elif what == "think":
        await session.add_reply(
            Message("assistant", (Thinking(text=text, provider="p", opaque="o"), Text(text))),
            Usage(input=5, output=1),
            0.0,
            "m",
        )
    elif what == "unload":
        await session.drop_skill("x", "unloaded")
    elif what == "compact":
        attached = (("x", f'<skill-invocation name="x">{text}'),)
        summary = "<conversation-summary>\nshort\n</conversation-summary>"
        await session.record_compaction(
            Compaction(
                summary=summary,
                keep_from=session.recorded_messages()[-1][0] if session.recorded_messages() else 0,
                attached=attached,
            )
        )
    else:
        call = ToolCall(id=f"c{at}", name="Skill" if what == "skill" else "Read", arguments={"skill": "x", "é": text})
        await session.add_reply(Message("assistant", (Text(text), call)), Usage(input=5, output=1), 0.0, "m")
        await session.record_result(ToolResult(call_id=call.id, content=(Text(text),)))
        if what == "skill":
            await session.add_skill(_use("x", text, call.id))


async def _talk(journal: Journal, prompt: str, steps: list[tuple[str, str]]) -> Session:
    session = Session(journal, "x")
    await session.start(SessionHeader(directory="/w", model="scripted", mode="default"))
    await session.set_prompt(
        Ledger(
            (
                Entry(
                    kind="base",
                    source="x.md",
                    scope="built-in",
                    level="",
                    text=prompt,
                    tokens=3,
                    tokens_cut=0,
                    status="kept",
                    reason="",
                ),
            )
        ),
        {},
    )
    await session.add_user([Text("Begin.")])
    for at, (what, text) in enumerate(steps):
        await _take(session, at, what, text)
    return session


def _closes(session: Session) -> bool:
    system = [str(entry["text"]) for entry in session.prompt]
    pieces = list_context_pieces(session, [_SPEC])
    return sum(piece.bytes for piece in pieces) == count_request_bytes(system, [_SPEC], session.messages())


@settings(max_examples=examples(60))
@given(prompt=_text, steps=st.lists(_step, max_size=8))
def test_the_bytes_close_now_and_after_resuming(
    tmp_path_factory: Any, prompt: str, steps: list[tuple[str, str]]
) -> None:
    folder: Path = tmp_path_factory.mktemp("journal")
    with Journal.open(str(folder / "journal.db"), Redactor(())) as journal:
        session = asyncio.run(_talk(journal, prompt, steps))
        assert _closes(session)
        again = resume(journal, "x")
        assert _closes(again)
        assert [_without_bytes(piece) for piece in list_context_pieces(again, [])] == [
            _without_bytes(piece) for piece in list_context_pieces(session, [])
        ]


def _without_bytes(piece: ContextPiece) -> tuple[str, str, int, int]:
    return piece.kind, piece.name, piece.turn, piece.tokens


def _kinds(tmp_path: Path, *steps: tuple[str, str]) -> list[ContextPiece]:
    with Journal.open(str(tmp_path / "state" / "journal.db"), Redactor(())) as journal:
        session = asyncio.run(_talk(journal, "Be brief.", list(steps)))
        return [piece for piece in list_context_pieces(session, []) if piece.turn]


def test_a_loaded_skill_is_a_piece_of_its_own_and_a_stub_once_it_is_unloaded(tmp_path: Path) -> None:
    loaded = _kinds(tmp_path / "a", ("skill", "Do this."))
    assert ("skill", "x") in [(piece.kind, piece.name) for piece in loaded]
    dropped = _kinds(tmp_path / "b", ("skill", "Do this."), ("unload", ""))
    assert ("stub", "x") in [(piece.kind, piece.name) for piece in dropped]
    assert "skill" not in [piece.kind for piece in dropped]


def test_a_skill_for_one_turn_is_a_stub_when_the_person_speaks_again(tmp_path: Path) -> None:
    now = _kinds(tmp_path / "a", ("think", "ok"), ("one-message", "Do this."))
    assert ("one-message", "x") in [(piece.kind, piece.name) for piece in now]
    later = _kinds(tmp_path / "b", ("think", "ok"), ("one-message", "Do this."), ("think", "ok"), ("said", "Thanks."))
    assert ("stub", "x") in [(piece.kind, piece.name) for piece in later]
    assert "one-message" not in [piece.kind for piece in later]


def test_what_a_message_suggests_is_told_apart_from_what_the_person_said(tmp_path: Path) -> None:
    said = "Do it.\n\n<library-changes>\nnew\n</library-changes>\n\n<suggested-skills>\n- a: b\n</suggested-skills>"
    pieces = _kinds(tmp_path, ("think", "ok"), ("said", said))
    assert [piece.kind for piece in pieces[-3:]] == ["user", "changes", "suggestions"]
    assert sum(piece.bytes for piece in pieces[-3:]) == len(said)


def test_a_result_belongs_to_the_turn_that_asked_and_a_message_to_the_one_that_answers(tmp_path: Path) -> None:
    pieces = _kinds(tmp_path, ("call", "a"), ("think", "done"), ("said", "and now?"), ("think", "this"))
    assert [(piece.kind, piece.turn) for piece in pieces] == [
        ("user", 1), ("reply", 1), ("call", 1), ("result", 1),
        ("thinking", 2), ("reply", 2), ("user", 3), ("thinking", 3), ("reply", 3),
    ]  # fmt: skip


def test_the_last_request_is_seen_as_it_was_sent_whatever_came_after(tmp_path: Path) -> None:
    with Journal.open(str(tmp_path / "state" / "journal.db"), Redactor(())) as journal:
        steps = [("skill", "Long text of a skill. " * 20), ("think", "done"), ("unload", "")]
        session = asyncio.run(_talk(journal, "Be brief.", steps))
        before = session_before_last_reply(session)
        assert before is not None
        kinds = [piece.kind for piece in list_context_pieces(before, [])]
        assert "skill" in kinds
        assert kinds[-1] == "skill"
        assert len(read_turn_usage(session)) == 2


def test_a_session_without_a_reply_has_no_last_request(tmp_path: Path) -> None:
    with Journal.open(str(tmp_path / "state" / "journal.db"), Redactor(())) as journal:
        session = asyncio.run(_talk(journal, "Be brief.", []))
        assert session_before_last_reply(session) is None
        assert read_turn_usage(session) == []
