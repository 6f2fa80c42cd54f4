"""The inbox: each message is delivered once or taken back, in its order, by whichever process is first."""

import asyncio
from pathlib import Path

import pytest

from kitbag.agent.inbox import Inbox
from kitbag.errors import UsageError
from kitbag.messages import Image
from kitbag.store.journal import Journal, JournalEntry
from kitbag.store.redaction import Redactor

pytestmark = pytest.mark.usefixtures("store")

ENTRY = JournalEntry("session/one", "user", {})


@pytest.fixture
def journal(tmp_path: Path):
    with Journal.open(str(tmp_path / "journal.db"), Redactor(["s3cret-value"])) as opened:
        yield opened


def texts(inbox: Inbox) -> list[str]:
    return [message.text for message in inbox.pending()]


def test_messages_wait_in_their_order_for_every_process(journal: Journal) -> None:
    async def send() -> None:
        mine, other = Inbox(journal, "one"), Inbox(journal, "one")
        image = Image(media_type="image/png", data="AAAA")
        await mine.send("first", [image])
        await other.send("second", timing="after", typed="[pasted]")
        await mine.send("third")
        assert texts(mine) == texts(other) == texts(Inbox(journal, "one")) == ["first", "second", "third"]
        first, second, _ = Inbox(journal, "one").pending()
        assert (first.images, first.timing) == ((image,), "steer")
        assert (second.typed, second.timing) == ("[pasted]", "after")
        assert texts(Inbox(journal, "two")) == []
        with pytest.raises(UsageError, match="empty"):
            await mine.send(" \n")

    asyncio.run(send())


def test_a_message_is_delivered_or_taken_back_and_never_both(journal: Journal) -> None:
    async def race() -> None:
        mine, other = Inbox(journal, "one"), Inbox(journal, "one")
        for number in range(20):
            sent = await mine.send(f"message {number}")
            assert texts(other) == [sent.text]
            delivered, taken = await asyncio.gather(other.deliver(sent, ENTRY), mine.take_back(sent.id))
            assert bool(delivered) != bool(taken)
            assert await other.deliver(sent, ENTRY) == 0
            assert await mine.take_back(sent.id) is None
            assert texts(mine) == texts(other) == []
            added = [record.seq for record in journal.read("session/one")]
            assert (added[-1] if added else 0) == delivered or taken

    asyncio.run(race())


def test_the_journal_has_no_secret_and_the_agent_of_this_process_gets_what_was_typed(journal: Journal) -> None:
    inbox = Inbox(journal, "one")
    asyncio.run(inbox.send("use s3cret-value"))
    assert texts(inbox) == ["use s3cret-value"]
    assert "s3cret-value" not in texts(Inbox(journal, "one"))[0]


def test_a_damaged_record_hides_no_other_message(journal: Journal) -> None:
    asyncio.run(Inbox(journal, "one").send("first"))
    journal.append("inbox/one", "sent", {"images": 3})
    journal.append("inbox/one", "delivered", {"message": "none"})
    asyncio.run(Inbox(journal, "one").send("second"))
    assert texts(Inbox(journal, "one")) == ["first", "second"]
