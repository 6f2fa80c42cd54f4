"""What was seen of files: by content, with a limit, and from several threads."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kitbag.tools.seen_files import MAX_BYTES, SeenFiles


def test_content_is_what_counts() -> None:
    seen = SeenFiles()
    assert seen.compare("/a", b"one") == "unseen"
    seen.record("/a", b"one")
    assert seen.compare("/a", b"one") == "same"
    assert seen.compare("/a", b"two") == "changed"
    assert seen.compare("/b", b"one") == "unseen"


def test_an_open_file_is_noted_as_a_whole_wherever_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one two")
    seen = SeenFiles()
    with open(path, "rb") as file:
        os.lseek(file.fileno(), 4, os.SEEK_SET)
        seen.record_open_file(str(path), file.fileno())
        assert os.read(file.fileno(), 10) == b"two"
    assert seen.compare(str(path), b"one two") == "same"


def test_of_what_is_too_large_to_be_changed_nothing_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with open(path, "wb") as file:
        file.truncate(MAX_BYTES + 1)
    seen = SeenFiles()
    with open(path, "rb") as file:
        seen.record_open_file(str(path), file.fileno())
    assert seen.compare(str(path), b"") == "unseen"


def test_the_oldest_are_forgotten_and_threads_do_not_matter() -> None:
    seen = SeenFiles()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: seen.record(f"/{number % 15_000}", b"x"), range(20_000)))
    seen.record("/last", b"x")
    assert seen.compare("/last", b"x") == "same"
    known = sum(seen.compare(f"/{number}", b"x") == "same" for number in range(15_000))
    assert known == 9_999
