"""A session is its records: what is sent, resumed or forked is a view of them."""

import asyncio
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.talking import assert_valid
from kitbag.agent.resume import fork, resume
from kitbag.agent.session import Session
from kitbag.agent.session_list import list_sessions, newest_session
from kitbag.agent.session_records import Compaction, SessionHeader, SkillUse
from kitbag.agent.transcript import UNKNOWN_OUTCOME
from kitbag.errors import NotFoundError
from kitbag.ledger import Entry, Ledger
from kitbag.messages import Message, Text, ToolCall, ToolResult, Usage
from kitbag.store.journal import Journal
from kitbag.store.private_files import StoreError
from kitbag.store.redaction import Redactor
from support.matrix import examples

pytestmark = pytest.mark.usefixtures("store")


@pytest.fixture
def journal(tmp_path: Path) -> Any:
    with Journal.open(str(tmp_path / "state" / "journal.db"), Redactor(())) as opened:
        yield opened


def reply(*parts: Any) -> Message:
    return Message("assistant", parts)


async def talk(session: Session) -> None:
    """A question, two calls with results, an answer."""
    await session.start(SessionHeader(directory="/w", model="scripted", mode="default"))
    await session.add_user([Text("Look.")])
    await session.add_reply(
        reply(ToolCall(id="a", name="Read", arguments={}), ToolCall(id="b", name="Bash", arguments={})),
        Usage(input=10, output=5),
        0.5,
        "m",
    )
    await session.record_result(ToolResult(call_id="a", content=(Text("one"),)))
    await session.record_intent(ToolCall(id="b", name="Bash", arguments={}))
    await session.record_result(ToolResult(call_id="b", content=(Text("two"),)))
    await session.add_reply(reply(Text("Done.")), Usage(input=20, output=5), None, "m")


def test_what_is_resumed_is_what_was_there(journal: Journal) -> None:
    session = Session(journal, "x")
    asyncio.run(talk(session))
    again = resume(journal, "x")
    assert again.messages() == session.messages()
    assert again.header == session.header
    assert again.totals == session.totals
    assert (again.totals.turns, again.totals.usage, again.totals.cost, again.totals.unpriced) == (
        2,
        Usage(input=30, output=10),
        0.5,
        True,
    )
    assert again.warnings == []


def test_the_view_grows_as_it_would_be_made_anew(journal: Journal) -> None:
    async def go() -> None:
        session = Session(journal, "x")
        await session.start(SessionHeader(directory="/w", model="scripted", mode="default"))
        for turn in range(5):
            await session.add_user([Text(f"question {turn}")])
            before = session.messages()
            assert before == resume(journal, "x").messages()
            await session.add_reply(
                reply(Text("Look."), ToolCall(id=f"c{turn}", name="Read", arguments={})), Usage(), 0.0, "m"
            )
            await session.record_result(ToolResult(call_id=f"c{turn}", content=(Text("x"),)))
            assert session.messages() == resume(journal, "x").messages()
            assert session.messages()[: len(before)] == before
            await session.add_reply(reply(Text("Done.")), Usage(), 0.0, "m")
            assert session.messages() == resume(journal, "x").messages()

    asyncio.run(go())


def test_after_a_crash_a_call_that_began_has_an_unknown_outcome(journal: Journal) -> None:
    async def go() -> None:
        session = Session(journal, "x")
        await session.start(SessionHeader(directory="/w", model="scripted", mode="default"))
        await session.add_user([Text("Delete it.")])
        await session.add_reply(reply(ToolCall(id="a", name="Bash", arguments={"command": "rm x"})), Usage(), 0.0, "m")
        await session.record_intent(ToolCall(id="a", name="Bash", arguments={"command": "rm x"}))

    asyncio.run(go())
    session = resume(journal, "x")
    assert session.messages()[-1].results[0].content == (Text(UNKNOWN_OUTCOME),)
    assert any("no result" in warning for warning in session.warnings)
    asyncio.run(session.add_user([Text("And now?")]))
    assert_valid(session.messages())
    assert session.messages()[-1].text == "And now?"


def test_a_skill_for_one_turn_is_gone_at_the_next_message(journal: Journal) -> None:
    async def go() -> Session:
        session = Session(journal, "x")
        await session.start(SessionHeader(directory="/w", model="scripted", mode="default"))
        await session.add_user([Text("<skill-invocation>secret ways</skill-invocation>"), Text("do it")], [(0, "ways")])
        assert "secret ways" in session.messages()[0].text
        await session.add_reply(reply(Text("Done.")), Usage(), 0.0, "m")
        assert "secret ways" in session.messages()[0].text
        await session.add_user([Text("thanks")])
        return session

    session = asyncio.run(go())
    assert "secret ways" not in session.messages()[0].text
    assert "ways was shown here until the next user message" in session.messages()[0].text
    assert "do it" in session.messages()[0].text
    assert resume(journal, "x").messages() == session.messages()


def test_an_unloaded_skill_leaves_a_stub_in_its_place(journal: Journal) -> None:
    async def go() -> Session:
        session = Session(journal, "x")
        await session.start(SessionHeader(directory="/w", model="scripted", mode="default"))
        await session.add_user([Text("Load.")])
        await session.add_reply(reply(ToolCall(id="a", name="Skill", arguments={"skill": "ways"})), Usage(), 0.0, "m")
        await session.record_result(ToolResult(call_id="a", content=(Text("the whole body"),)))
        await session.add_skill(
            SkillUse(
                name="ways",
                tokens=3,
                at="now",
                by="model",
                digest="d",
                arguments="",
                text="the whole body",
                call_id="a",
            )
        )
        assert "ways" in session.skills
        await session.drop_skill("ways", "unloaded")
        return session

    session = asyncio.run(go())
    assert "the whole body" not in str(session.messages())
    assert "has been unloaded" in str(session.messages())
    assert session.skills == {}
    assert resume(journal, "x").messages() == session.messages()


def test_compaction_replaces_the_old_part_and_keeps_the_rest(journal: Journal) -> None:
    async def go() -> Session:
        session = Session(journal, "x")
        await talk(session)
        await session.add_user([Text("Next.")])
        keep = session.recorded_messages()[-1][0]
        await session.record_compaction(
            Compaction(summary="<conversation-summary>short</conversation-summary>", keep_from=keep)
        )
        return session

    session = asyncio.run(go())
    assert len(session.messages()) == 1
    assert session.messages()[0].text.startswith("<conversation-summary>short")
    assert session.messages()[0].text.endswith("Next.")
    assert resume(journal, "x").messages() == session.messages()
    assert resume(journal, "x").totals.turns == 2


def test_the_prompt_is_written_once_while_it_stays_the_same(journal: Journal) -> None:
    ledger = Ledger(
        (
            Entry(
                kind="base",
                source="x.md",
                scope="built-in",
                level="",
                text="Be brief.",
                tokens=3,
                tokens_cut=0,
                status="kept",
                reason="",
            ),
        )
    )

    async def go() -> None:
        session = Session(journal, "x")
        await session.start(SessionHeader(directory="/w", model="scripted", mode="default"))
        await session.set_prompt(ledger, {"mode": "default"})
        await session.set_prompt(ledger, {"mode": "default"})

    asyncio.run(go())
    assert [record.kind for record in journal.read("session/x")] == ["session", "prompt"]
    assert resume(journal, "x").prompt[0]["text"] == "Be brief."


def test_a_session_that_is_not_there_is_named(journal: Journal) -> None:
    with pytest.raises(NotFoundError, match="nope"):
        resume(journal, "nope")


def test_a_skill_that_was_delivered_in_two_pieces_is_unloaded_with_both(journal: Journal) -> None:
    async def go() -> Session:
        session = Session(journal, "x")
        await session.start(SessionHeader(directory="/w", model="scripted", mode="default"))
        await session.add_user([Text("Load.")])
        for call, text in (("a", "the body"), ("b", "what is new")):
            await session.add_reply(
                reply(ToolCall(id=call, name="Skill", arguments={"skill": "ways"})), Usage(), 0.0, "m"
            )
            await session.record_result(ToolResult(call_id=call, content=(Text(text),)))
            await session.add_skill(
                SkillUse(
                    name="ways", tokens=3, at="now", by="model", digest="d", arguments="", text="the body", call_id=call
                )
            )
        await session.drop_skill("ways", "unloaded")
        return session

    session = asyncio.run(go())
    assert "the body" not in str(session.messages())
    assert "what is new" not in str(session.messages())
    assert resume(journal, "x").messages() == session.messages()


def test_a_fork_goes_on_and_leaves_the_other_alone(journal: Journal) -> None:
    async def go() -> tuple[Session, Session]:
        session = Session(journal, "x")
        await talk(session)
        before = list(journal.read(session.stream))
        copy = await fork(journal, session, SessionHeader(directory="/w", model="scripted", mode="default"))
        await copy.add_user([Text("Only here.")])
        second = await fork(journal, copy, SessionHeader(directory="/w", model="scripted", mode="default"))
        await second.add_user([Text("And here.")])
        await copy.add_user([Text("Not there.")])
        assert list(journal.read(session.stream)) == before
        return copy, second

    copy, second = asyncio.run(go())
    assert resume(journal, "x").messages()[-1].text == "Done."
    assert resume(journal, copy.id).messages() == copy.messages()
    assert resume(journal, second.id).messages() == second.messages()
    assert "Only here." in second.messages()[-1].text
    assert "Not there." not in second.messages()[-1].text
    assert second.totals == resume(journal, "x").totals


def test_a_session_that_says_it_was_forked_from_itself_is_read_all_the_same(journal: Journal) -> None:
    async def go() -> None:
        session = Session(journal, "x")
        await session.start(
            SessionHeader(directory="/w", model="scripted", mode="default", forked_from="x", forked_at=10**6)
        )
        await session.add_user([Text("Hi")])

    asyncio.run(go())
    assert resume(journal, "x").messages()[0].text == "Hi"


def test_a_write_that_is_cancelled_is_in_the_journal_and_in_the_view_or_in_neither(journal: Journal) -> None:
    async def go() -> None:
        session = Session(journal, "x")
        await session.start(SessionHeader(directory="/w", model="scripted", mode="default"))
        for number in range(50):
            task = asyncio.create_task(session.add_user([Text(f"message {number}")]))
            for _ in range(number % 5):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert session.messages() == resume(journal, "x").messages()

    asyncio.run(go())


class TestListing:
    def begin(self, journal: Journal, name: str, directory: str, said: str, *, end: bool = True) -> None:
        async def go() -> None:
            session = Session(journal, name)
            await session.start(SessionHeader(directory=directory, model="scripted", mode="default"))
            await session.add_user([Text(said)])
            await session.add_reply(reply(Text("Yes.")), Usage(input=10, output=5), 0.25, "m")
            if end:
                await session.record_end("completed")

        asyncio.run(go())

    def test_the_newest_first_with_what_a_person_recognises(self, journal: Journal) -> None:
        self.begin(journal, "one", "/a", "the first\nthing")
        self.begin(journal, "two", "/b", "the second", end=False)
        found = list_sessions(journal)
        assert [(row.id, row.about, row.turns, row.cost, row.status) for row in found] == [
            ("two", "the second", 1, 0.25, ""),
            ("one", "the first thing", 1, 0.25, "completed"),
        ]
        assert [row.id for row in list_sessions(journal, "/a")] == ["one"]

    def test_the_newest_of_a_directory_is_the_one_in_which_something_happened_last(self, journal: Journal) -> None:
        self.begin(journal, "one", "/a", "x")
        self.begin(journal, "two", "/a", "x")
        self.begin(journal, "three", "/b", "x")
        assert newest_session(journal, "/a") == "two"
        asyncio.run(resume(journal, "one").add_user([Text("more")]))
        assert newest_session(journal, "/a") == "one"
        with pytest.raises(NotFoundError, match="no sessions in this directory"):
            newest_session(journal, "/c")

    def test_a_listing_shows_what_the_user_wrote_and_not_what_was_attached(self, journal: Journal) -> None:
        attached = "<suggested-skills>\nKeyword matches for this message:\n- pdf: Fills forms.\n</suggested-skills>"
        file = '<mentioned-file path="a.txt">\nsecret\n</mentioned-file>'
        self.begin(journal, "one", "/a", f"fill this form\n\n{file}\n\n{attached}")
        assert [row.about for row in list_sessions(journal)] == ["fill this form"]

    def test_one_that_can_not_be_read_hides_no_other(self, journal: Journal) -> None:
        self.begin(journal, "x", "/a", "x")
        journal.append("session/x", "reply", {"message": 5})
        journal.append("session/x", "ended", {"status": "completed", "about": 1, "turns": "many"})
        journal.append("session/z", "user", [])
        self.begin(journal, "y", "/a", "y")
        assert newest_session(journal, "/a") == "y"
        rows = {row.id: row for row in list_sessions(journal)}
        assert rows["x"].problem
        assert rows["z"].problem
        assert rows["y"].about == "y"


def _damage(path: str, choice: int, cut: int, garbage: str) -> None:
    """One record is cut, filled with garbage, removed or repeated, behind the journal's back."""
    connection = sqlite3.connect(path)
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    rows = connection.execute("SELECT seq, body FROM records WHERE stream = 'session/x' ORDER BY seq").fetchall()
    seq, body = rows[choice % len(rows)]
    if garbage == "drop":
        connection.execute("DELETE FROM records WHERE seq = ?", (seq,))
    elif garbage == "cut":
        connection.execute("UPDATE records SET body = ? WHERE seq = ?", (body[: cut % (len(body) + 1)], seq))
    else:
        connection.execute("UPDATE records SET body = ? WHERE seq = ?", (garbage, seq))
    connection.commit()
    connection.close()


@pytest.mark.file_store
@settings(max_examples=examples(150))
@given(
    choice=st.integers(0, 50),
    cut=st.integers(0, 500),
    garbage=st.sampled_from(
        [
            "drop",
            "cut",
            "",
            "\0\0\0",
            "[]",
            "{}",
            "7",
            '{"message": {}}',
            '{"message": {"role": "user"}}',
            '{"message": {"role": "user", "parts": [{"type": "text", "text": 5}]}}',
            '{"message": {"role": "assistant", "parts": [{"type": "tool_call", "id": 1, "name": "x", "arguments": {}}]}}',
            '{"message": {"role": "assistant", "parts": [{"type": "tool_call", "id": "i", "name": "x", "arguments": 3}]}}',
            '{"result": {"type": "tool_result", "call_id": "a", "content": [{"type": "text", "text": null}]}}',
        ]
    ),
)
def test_D55_whatever_happens_to_a_record_the_next_request_is_well_formed(
    tmp_path_factory: pytest.TempPathFactory, choice: int, cut: int, garbage: str
) -> None:
    path = str(tmp_path_factory.mktemp("journal") / "journal.db")
    with Journal.open(path, Redactor(())) as journal:
        asyncio.run(talk(Session(journal, "x")))
    _damage(path, choice, cut, garbage)
    with Journal.open(path, Redactor(())) as journal:
        try:
            session = resume(journal, "x")
        except (NotFoundError, StoreError):
            assert choice % 7 == 0  # the very first record
            return
        asyncio.run(session.add_user([Text("go on")]))
        assert_valid(session.messages())
        assert session.messages()[-1].text.endswith("go on")
    assert os.path.exists(path)
    json.dumps([str(message) for message in session.messages()])


def test_what_is_held_is_written_in_one_commit_with_the_next_record_and_not_before(journal: Journal) -> None:
    async def work() -> None:
        session = Session(journal, "s1")
        await session.start(SessionHeader(directory="/w", model="m", mode="default"), deferred=True)
        await session.set_prompt(Ledger(()), {"mode": "default"}, deferred=True)
        assert journal.last(session.stream) is None
        await session.add_user((Text("Hi"),))
        await session.add_user((Text("Again"),))
        assert [record.kind for record in journal.read(session.stream)] == ["session", "prompt", "user", "user"]

    asyncio.run(work())
    assert resume(journal, "s1").prompt_inputs == {"mode": "default"}


def test_what_is_held_is_not_lost_when_the_next_record_can_t_be_written(journal: Journal) -> None:
    async def work() -> None:
        session = Session(journal, "s1")
        await session.start(SessionHeader(directory="/w", model="m", mode="default"), deferred=True)
        with pytest.raises(StoreError):
            await session.record_end("completed", float("nan"))  # type: ignore[arg-type] - which is no JSON
        await session.add_user((Text("Hi"),))
        assert [record.kind for record in journal.read(session.stream)] == ["session", "user"]

    asyncio.run(work())
