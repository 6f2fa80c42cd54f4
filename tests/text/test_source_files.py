"""Files as they are found on a disk: opened without waiting, read without end, decoded as far as they go."""

import itertools
import os
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.text.source_files import (
    LINK_OUTSIDE,
    SourceError,
    decode_text,
    directory_boundary,
    file_stamp,
    open_regular_file,
    read_bytes,
    read_text,
)
from support.cost import memory_peak


def written(folder: Path, data: bytes) -> str:
    path = folder / "file.md"
    path.write_bytes(data)
    return str(path)


def error_of(path: Path | str) -> SourceError:
    with pytest.raises(SourceError) as caught:
        read_text(str(path), None)
    return caught.value


def codes(data: bytes, cut: bool = False) -> tuple[str, list[tuple[str, int]]]:
    text, problems = decode_text(data, cut)
    return text, [(problem.code, problem.line) for problem in problems]


def test_a_file_is_read_with_the_stamp_it_had(tmp_path: Path) -> None:
    path = written(tmp_path, b"one\ntwo\n")
    assert read_text(path, None) == ("one\ntwo\n", file_stamp(os.stat(path)), [])


def test_a_missing_file_is_an_error_that_keeps_its_cause(tmp_path: Path) -> None:
    error = error_of(tmp_path / "none.md")
    assert (error.code, error.problem) == ("unreadable", "cannot read file: no such file or directory")
    assert isinstance(error.__cause__, FileNotFoundError)


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    assert error_of(tmp_path).code == "not-a-file"


def test_a_fifo_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert error_of(tmp_path / "fifo").code == "not-a-file"


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        assert error_of(tmp_path / "s").code == "unreadable"


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/tty"])
def test_a_device_is_refused(tmp_path: Path, device: str) -> None:
    link = tmp_path / "file.md"
    link.symlink_to(device)
    assert error_of(link).code in ("not-a-file", "unreadable")


def test_what_the_kernel_offers_as_files_is_bounded(tmp_path: Path) -> None:
    link = tmp_path / "file.md"
    link.symlink_to("/proc/self/environ")
    assert error_of(link).code == "binary"


def test_a_link_to_itself_is_an_error_that_says_so(tmp_path: Path) -> None:
    loop = tmp_path / "loop.md"
    loop.symlink_to(loop)
    error = error_of(loop)
    assert "too many levels" in error.problem
    assert "link" in error.fix


def test_a_name_with_nul_is_an_error() -> None:
    assert error_of("a\0b").code == "unreadable"


def test_a_name_that_is_too_long_is_an_error(tmp_path: Path) -> None:
    assert "too long" in error_of(tmp_path / ("a" * 300)).problem


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_closed_to_us_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    path = written(tmp_path, b"x")
    os.chmod(path, 0)
    assert error_of(path).fix == "make it readable: chmod u+r"


def test_no_descriptor_is_left_open_by_a_refusal(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(SourceError):
            open_regular_file(str(tmp_path), None)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_huge_sparse_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "huge.md"
    with path.open("wb") as file:
        file.write(b"start\n")
        file.truncate(5 << 30)
    with memory_peak() as peak:
        data, stamp, more = read_bytes(str(path), None, 1000)
        assert peak() < 100_000
        assert (len(data), stamp[2], more) == (1000, 5 << 30, True)
        assert error_of(path).code == "binary"
    assert peak() < 100 << 20


def test_a_text_that_is_too_long_is_cut_and_reported(tmp_path: Path) -> None:
    text, _, problems = read_text(written(tmp_path, b"abc\n" * 10), None, limit=8)
    assert text == "abc\nabc\n"
    assert [(problem.code, problem.line) for problem in problems] == [("file-too-large", 3)]
    assert read_text(written(tmp_path, b"abc\nabc\n"), None, limit=8)[2] == []


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_any_newline_becomes_lf(newline: str) -> None:
    assert codes(f"one{newline}two{newline}{newline}three".encode()) == ("one\ntwo\n\nthree", [])


def test_a_byte_order_mark_is_accepted_and_dropped() -> None:
    assert codes(b"\xef\xbb\xbfone") == ("one", [])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_read_with_a_warning(encoding: str) -> None:
    mark = "" if encoding == "utf-16" else "\ufeff"
    assert codes(f"{mark}Grüße\r\nzwei".encode(encoding)) == ("Grüße\nzwei", [("encoding", 1)])


def test_windows_text_is_read_with_a_warning_at_its_line() -> None:
    assert codes("eins\nzwei – drei €\n".encode("cp1252")) == ("eins\nzwei – drei €\n", [("encoding", 2)])


def test_windows_text_is_known_by_its_last_letter_too() -> None:
    assert codes("un café".encode("cp1252")) == ("un café", [("encoding", 1)])


def test_a_character_that_the_limit_cut_is_left_out() -> None:
    data = "ab日".encode()
    for missing in (1, 2):
        assert codes(data[:-missing], cut=True) == ("ab", [])


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(SourceError) as caught:
        decode_text(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    assert caught.value.code == "binary"


@given(st.binary(max_size=200))
def test_any_bytes_are_text_or_a_source_error(data: bytes) -> None:
    try:
        text, _ = decode_text(data)
    except SourceError:
        return
    assert "\r" not in text


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\0")))
def test_utf_8_is_read_as_it_is(text: str) -> None:
    assert decode_text(text.encode()) == (text.removeprefix("\ufeff"), [])


def test_a_link_is_followed_inside_its_boundary_and_refused_beyond_it(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "target").write_text(folder.name)
        (inside / f"to-{folder.name}").symlink_to(folder / "target")
    boundary = directory_boundary(str(inside))
    assert read_text(str(inside / "to-inside"), boundary)[0] == "inside"
    with pytest.raises(SourceError, match="symbolic link outside") as refused:
        read_text(str(inside / "to-outside"), boundary)
    assert refused.value.code == LINK_OUTSIDE
    (tmp_path / "inside-too").mkdir()
    (tmp_path / "inside-too/target").write_text("a name that starts with the boundary's")
    (inside / "sibling").symlink_to(tmp_path / "inside-too/target")
    with pytest.raises(SourceError, match="outside"):
        read_text(str(inside / "sibling"), boundary)


def test_a_file_that_is_swapped_for_a_link_while_it_is_read_gives_nothing_away(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_text("secret")
    (inside / "plain").write_text("plain")
    place, stop = inside / "place", threading.Event()
    place.symlink_to("plain")

    def swap() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            temporary = inside / "temporary"
            temporary.symlink_to(("plain", tmp_path / "secret")[number % 2])
            temporary.rename(place)

    swapping = threading.Thread(target=swap)
    swapping.start()
    outcomes: set[str] = set()
    try:
        while len(outcomes) < 2:
            for _ in range(1_000):
                try:
                    outcomes.add(read_text(str(place), directory_boundary(str(inside)))[0])
                except SourceError as error:
                    outcomes.add(error.code)
    finally:
        stop.set()
        swapping.join()
    assert outcomes == {"plain", LINK_OUTSIDE}
