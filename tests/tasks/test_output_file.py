"""The file with what a background command prints: plain, without secrets, bounded, readable at any place."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitbag.store.private_files import StoreError
from kitbag.store.redaction import Redactor
from kitbag.tasks.output_file import OutputFile, read_chunk, read_tail
from support.disk import Disk
from support.matrix import examples

TASK = "0123456789ab"


def written(state: Path, *chunks: bytes, most: int = 10_000_000, secrets: tuple[str, ...] = ()) -> OutputFile:
    output = OutputFile(str(state), TASK, Redactor(secrets), most)
    for chunk in chunks:
        output.feed(chunk)
    output.close()
    return output


def text_of(state: Path) -> str:
    return (state / "output" / TASK).read_text()


@pytest.mark.parametrize(
    ("chunks", "shown"),
    [
        ((b"one\n", b"two"), "one\ntwo"),
        ((b"a\n\n\n", b"\n"), "a\n\n\n\n"),
        ((b"\x1b[1;3", b"1mred\x1b[0m\n"), "red\n"),
        ((b"10%\r50%\r", b"100%\rdone\n", b"next\r\n"), "done\nnext\n"),
        ((b"10%\r", b"50%\r"), "50%"),
        ((b"s\xc3", b"\xa9cond\n"), "sécond\n"),
        ((b"\xff\xfe\x00x\n",), "\ufffd\ufffdx\n"),
        ((b"hidden\xe2\x80\xae\n",), "hidden[U+202E]\n"),
        ((b"",), ""),
    ],
)
def test_it_holds_what_a_terminal_would_leave(tmp_path: Path, chunks: tuple[bytes, ...], shown: str) -> None:
    output = written(tmp_path, *chunks)
    assert text_of(tmp_path) == shown
    assert (output.tail, output.size, output.problem) == (shown, len(shown.encode()), "")
    assert (tmp_path / "output" / TASK).stat().st_mode & 0o777 == 0o600


def test_when_it_is_closed_it_is_on_the_disk(tmp_path: Path, disk: Disk) -> None:
    written(tmp_path, b"one\n", b"two")
    assert disk.steps(tmp_path / "output" / TASK) == [f"{TASK} synced"]


def test_a_secret_is_found_however_it_arrives(tmp_path: Path) -> None:
    key = (
        b"-----BEGIN RSA PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\n9w0BAQEFAASCBKcwggSj\n-----END RSA PRIVATE KEY-----\n"
    )
    text = b"first hunter2hunter2\n" + key + b"last\n"
    written(tmp_path, *(text[at : at + 7] for at in range(0, len(text), 7)), secrets=("hunter2hunter2",))
    assert text_of(tmp_path) == "first [REDACTED]\n[REDACTED]\nlast\n"


def test_a_key_that_never_ends_holds_nothing_up(tmp_path: Path) -> None:
    output = OutputFile(str(tmp_path), TASK, Redactor([]))
    output.feed(b"-----BEGIN PRIVATE KEY-----\n" + b"not a key, but many lines of a text\n" * 1_000)
    assert text_of(tmp_path).count("\n") > 900
    output.close()


def test_a_line_without_end_and_one_that_overwrites_itself_take_little_memory_and_are_written(tmp_path: Path) -> None:
    output = OutputFile(str(tmp_path), TASK, Redactor([]))
    for _ in range(40):
        output.feed(b"x" * 10_000)
    assert output.size >= 300_000
    for _ in range(40):
        output.feed(b"\r" + b"y" * 10_000)
    assert output.size <= 400_000
    output.close()
    assert text_of(tmp_path).endswith("x" + "y" * 10_000)


def test_of_too_much_the_beginning_and_the_end_are_kept_and_what_is_missing_is_said(tmp_path: Path) -> None:
    lines = [b"%06d\n" % number for number in range(100_000)]
    output = written(tmp_path, *(b"".join(lines[at : at + 1_000]) for at in range(0, 100_000, 1_000)), most=200_000)
    text = text_of(tmp_path)
    assert text.startswith("000000\n000001\n")
    assert "only the end of the remaining output is kept" in text
    assert "omitted" in text
    assert text.endswith("099998\n099999\n")
    assert len(text) < 300_000
    assert output.tail.endswith("099999\n")


def test_where_it_can_t_be_written_the_end_is_still_known_and_why_it_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "output").symlink_to(tmp_path)
    output = written(tmp_path, b"one\n", b"two\n")
    assert output.tail == "one\ntwo\n"
    assert "its output is not stored" in output.problem
    (tmp_path / "output").unlink()
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / TASK).symlink_to("/etc/passwd")
    with pytest.raises(StoreError):
        read_chunk(str(tmp_path), TASK, 0)


def test_a_disk_that_is_full_ends_the_file_and_not_the_command(tmp_path: Path) -> None:
    output = OutputFile(str(tmp_path), TASK, Redactor([]))
    output.feed(b"before\n")
    with open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), output._descriptor)  # pyright: ignore[reportPrivateUsage]
    output.feed(b"then\n")
    output.feed(b"after\n")
    output.close()
    assert "No space left" in output.problem
    assert output.tail.endswith("then\nafter\n")
    assert text_of(tmp_path) == "before\n"


@settings(max_examples=examples(40))
@given(st.text(st.characters(exclude_categories=("Cs", "Cc", "Cf", "Co", "Cn")), max_size=60), st.integers(1, 9))
def test_pieces_together_are_the_whole_whatever_their_size(text: str, most: int) -> None:
    with tempfile.TemporaryDirectory() as base:
        state = Path(base)
        written(state, text.encode())
        kept, at, pieces = text_of(state), 0, list[str]()
        while True:
            piece = read_chunk(base, TASK, at, max(most, 4))
            if not piece.text:
                break
            pieces.append(piece.text)
            at = piece.next_offset
        assert "".join(pieces) == kept
        assert at == piece.size == len(kept.encode())


def test_beyond_the_end_and_where_nothing_is_there_is_nothing(tmp_path: Path) -> None:
    assert read_chunk(str(tmp_path), TASK, 5) == ("", 0, 0)
    assert read_tail(str(tmp_path), TASK) == ""
    written(tmp_path, b"one\ntwo\n")
    assert read_chunk(str(tmp_path), TASK, 500) == ("", 8, 8)
    assert read_tail(str(tmp_path), TASK) == "one\ntwo\n"
    written(tmp_path, b"x" * 3_000 + b"\n" + b"y" * 3_000 + b"\n")
    assert read_tail(str(tmp_path), TASK) == "y" * 3_000 + "\n"
