"""What was typed is there again: of this directory first, for this user alone, whatever happened to the file."""

import asyncio
import json
import os
import stat
import threading
from pathlib import Path

import pytest

from kitbag.chat.input.history import FILE, MAX_BYTES, MAX_ENTRIES, MAX_ENTRY_LENGTH, InputHistory
from kitbag.store.redaction import Redactor


class Past:
    """The histories of one home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.file = home / FILE
        self.remarks: list[str] = []

    def of(self, directory: str = "/here") -> InputHistory:
        return InputHistory(str(self.home), directory, Redactor(["hunter2-secret"]).redact_text, self.remarks.append)

    def seen(self, directory: str = "/here") -> list[str]:
        async def load() -> list[str]:
            return [text async for text in self.of(directory).load()]

        return asyncio.run(load())

    def lines(self) -> list[bytes]:
        return self.file.read_bytes().splitlines()


@pytest.fixture
def past(tmp_path: Path) -> Past:
    return Past(tmp_path / "home")


def test_the_newest_comes_first_and_this_directory_before_others(past: Past) -> None:
    here, there = past.of("/here"), past.of("/there")
    here.append_string("one")
    there.append_string("two")
    here.append_string("three")
    assert past.seen("/here") == ["three", "one", "two"]
    assert past.seen("/there") == ["two", "three", "one"]
    assert past.remarks == []


def test_several_lines_and_every_script_come_back_as_they_were(past: Past) -> None:
    text = 'def f():\n\treturn "é 漢字 \U0001f600"'
    past.of().append_string(text)
    assert past.seen() == [text]


def test_the_same_again_and_blanks_are_no_new_entries(past: Past) -> None:
    history = past.of()
    for text in ("one", "one", "  ", "", "two", "one"):
        history.append_string(text)
    assert past.seen() == ["one", "two"]
    assert history.get_strings() == ["one", "two", "one"]


def test_the_file_is_for_this_user_alone(past: Past) -> None:
    past.of().append_string("one")
    assert stat.S_IMODE(past.file.stat().st_mode) == 0o600
    past.file.chmod(0o644)
    past.of().append_string("two")
    assert stat.S_IMODE(past.file.stat().st_mode) == 0o600


def test_secrets_are_not_written_down(past: Past) -> None:
    history = past.of()
    history.append_string("use hunter2-secret and sk-ant-api03-" + "a" * 80)
    assert b"hunter2" not in past.file.read_bytes()
    assert b"sk-ant-api03-aaaa" not in past.file.read_bytes()
    assert history.get_strings()[0].startswith("use hunter2-secret")


@pytest.mark.parametrize(
    "damage",
    [b"{", b"null", b"[]", b'{"text": 1, "directory": "/"}', b"\xff\xfe", b'"', b'{"text":"x"}', b"[" * 100_000],
)
def test_a_damaged_line_is_skipped_and_what_follows_is_kept(past: Past, damage: bytes) -> None:
    past.of().append_string("before")
    with past.file.open("ab") as file:
        file.write(damage)  # and no line break: whoever wrote it was killed
    past.of().append_string("after")
    assert past.seen() == ["after", "before"]
    assert past.remarks == []


def test_nothing_in_the_file_reaches_the_line_that_a_terminal_would_obey(past: Past) -> None:
    past.of().append_string("one")
    with past.file.open("a") as file:
        file.write(json.dumps({"directory": "/here", "text": "a\x1b[31mb\x07\ud800c"}) + "\n")
    assert past.seen()[0] == "a[31mb?c"


def test_many_chats_at_once_lose_nothing(past: Past) -> None:
    def work(number: int) -> None:
        history = past.of(f"/{number}")
        for at in range(20):
            history.append_string(f"{number}-{at}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {json.loads(line)["text"] for line in past.lines()} == {f"{n}-{at}" for n in range(5) for at in range(20)}


def test_it_is_bounded_and_the_newest_stay(past: Past) -> None:
    past.of().append_string("first")
    line = past.lines()[0].replace(b"first", b"old")
    past.file.write_bytes((line + b"\n") * (MAX_ENTRIES * 2))
    past.of().append_string("last")
    assert len(past.lines()) == MAX_ENTRIES
    assert past.seen()[0] == "last"
    assert stat.S_IMODE(past.file.stat().st_mode) == 0o600


def test_so_is_its_size_also_of_a_file_that_somebody_else_filled(past: Past) -> None:
    past.of().append_string("first")
    with past.file.open("wb") as file:
        for number in range(300):
            file.write(json.dumps({"directory": "/here", "text": f"{number} " + "x" * 40_000}).encode() + b"\n")
    past.of().append_string("last")
    assert past.file.stat().st_size <= MAX_BYTES
    assert past.seen()[0] == "last"


def test_a_very_long_one_is_remembered_by_this_chat_alone(past: Past) -> None:
    history = past.of()
    history.append_string("x" * (MAX_ENTRY_LENGTH + 1))
    assert history.get_strings() == ["x" * (MAX_ENTRY_LENGTH + 1)]
    assert past.seen() == []


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "no rights"])
def test_a_file_that_can_t_be_used_is_one_remark_and_not_the_end(past: Past, tmp_path: Path, kind: str) -> None:
    past.file.parent.mkdir(parents=True)
    target = tmp_path / "target"
    target.write_text("")
    if kind == "link":
        past.file.symlink_to(target)
    elif kind == "pipe":
        os.mkfifo(past.file)
    elif kind == "folder":
        past.file.mkdir()
    else:
        past.home.joinpath("state").rmdir()
        past.home.joinpath("state").write_text("in the way")
    history = past.of()
    history.append_string("one")
    history.append_string("two")
    assert history.get_strings() == ["one", "two"]
    assert len(past.remarks) == 1
    assert "input history" in past.remarks[0]
    assert target.read_text() == ""
    assert past.seen() == []
