"""Kept bytes: what is put comes back, for this user alone, and does not grow for ever."""

import os
import stat
import threading
import time
from pathlib import Path

import pytest

from kitbag.store.content_store import ContentStore, content_digest
from kitbag.store.private_files import StoreError
from support.disk import Disk

CONTENTS = [b"", b"a", b"\0\xff\n" * 100, b"x" * 3_000_000]


@pytest.fixture
def kept(tmp_path: Path) -> ContentStore:
    return ContentStore(str(tmp_path / "home"))


def place(kept: ContentStore, digest: str) -> Path:
    return Path(kept.folder) / digest[:2] / digest


def age(kept: ContentStore, digest: str, days: float) -> None:
    then = time.time() - days * 86_400
    os.utime(place(kept, digest), (then, then))


@pytest.mark.parametrize("data", CONTENTS, ids=len)
def test_what_is_put_comes_back(kept: ContentStore, data: bytes) -> None:
    digest = kept.put(data)
    assert digest == content_digest(data)
    assert kept.get(digest) == data
    assert kept.has(digest)
    assert ContentStore(os.path.dirname(os.path.dirname(kept.folder))).get(digest) == data


def test_what_is_put_is_on_the_disk_and_so_are_the_folders_that_lead_to_it(kept: ContentStore, disk: Disk) -> None:
    found = place(kept, kept.put(b"one"))
    shelf, folder = found.parent, Path(kept.folder)
    assert disk.steps(found, shelf, folder) == [f"{path.name} synced" for path in (found, shelf, folder)]


def test_only_the_user_may_look_at_it(kept: ContentStore) -> None:
    digest = kept.put(b"secret")
    found = place(kept, digest)
    assert stat.S_IMODE(found.stat().st_mode) == 0o600
    for folder in (found.parent, found.parent.parent, found.parent.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_one_content_is_kept_once_and_nothing_else_is_left(kept: ContentStore) -> None:
    assert len({kept.put(b"same") for _ in range(3)}) == 1
    assert [path.name for path in Path(kept.folder).rglob("*") if path.is_file() and path.name != ".lock"] == [
        content_digest(b"same")
    ]
    assert kept.digests() == {content_digest(b"same")}


def test_what_was_never_put_is_not_there(kept: ContentStore) -> None:
    assert kept.get(content_digest(b"other")) is None
    assert not kept.has(content_digest(b"other"))
    assert kept.digests() == set()


@pytest.mark.parametrize("name", ["", "..", "../../x", "~12-3", "A" * 64, "a" * 63, "/etc/passwd", "a" * 64 + "\n"])
def test_what_is_no_name_leads_nowhere(kept: ContentStore, name: str) -> None:
    kept.put(b"x")
    assert kept.get(name) is None
    assert not kept.has(name)


def test_bytes_that_are_not_what_was_put_do_not_come_back(kept: ContentStore) -> None:
    digest = kept.put(b"what it was")
    place(kept, digest).write_bytes(b"what it wa5")
    assert kept.get(digest) is None


def test_one_that_was_cut_short_is_written_again(kept: ContentStore) -> None:
    digest = kept.put(b"what it was")
    place(kept, digest).write_bytes(b"")
    assert kept.put(b"what it was") == digest
    assert kept.get(digest) == b"what it was"


def test_a_link_in_its_place_is_not_followed(kept: ContentStore, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"data")
    digest = kept.put(b"data")
    place(kept, digest).unlink()
    place(kept, digest).symlink_to(other)
    assert kept.get(digest) is None
    kept.put(b"data")
    assert not place(kept, digest).is_symlink()
    assert other.read_bytes() == b"data"


def test_a_folder_that_is_a_link_is_refused(kept: ContentStore, tmp_path: Path) -> None:
    os.makedirs(os.path.dirname(kept.folder))
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", kept.folder)
    with pytest.raises(StoreError, match="link"):
        kept.put(b"x")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_many_threads_put_the_same_at_once(kept: ContentStore) -> None:
    threads = [threading.Thread(target=lambda: [kept.put(b"%d" % at) for at in range(30)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept.digests() == {content_digest(b"%d" % at) for at in range(30)}


class TestPruning:
    def test_what_was_long_unused_goes_and_is_told(self, kept: ContentStore) -> None:
        old, new = kept.put(b"old!"), kept.put(b"new")
        age(kept, old, 31)
        gone = kept.prune()
        assert (gone.files, gone.bytes, gone.remaining_bytes) == (1, 4, 3)
        assert kept.digests() == {new}

    def test_to_keep_it_again_is_a_use(self, kept: ContentStore) -> None:
        old = kept.put(b"old")
        age(kept, old, 31)
        kept.put(b"old")
        assert kept.prune().files == 0
        assert kept.has(old)

    def test_the_oldest_go_first_when_there_is_too_much(self, kept: ContentStore) -> None:
        digests = [kept.put(bytes([at]) * 100) for at in range(4)]
        for at, digest in enumerate(digests):
            age(kept, digest, 10 - at)
        assert kept.prune(max_bytes=250).files == 2
        assert kept.digests() == set(digests[2:])

    def test_what_was_used_today_stays_however_much_it_is(self, kept: ContentStore) -> None:
        kept.put(b"x" * 1_000)
        assert kept.prune(max_bytes=10).files == 0

    def test_it_is_due_once_a_day(self, kept: ContentStore) -> None:
        assert kept.prune_if_due() is not None
        age(kept, kept.put(b"old"), 31)
        assert kept.prune_if_due() is None
        then = time.time() - 2 * 86_400
        os.utime(os.path.join(kept.folder, ".pruned"), (then, then))
        gone = kept.prune_if_due()
        assert gone is not None
        assert gone.files == 1

    def test_it_does_not_happen_while_somebody_keeps(self, kept: ContentStore) -> None:
        with kept.open_writer() as keep:
            digest = keep.put(b"x")
            assert kept.prune_if_due() is None
        assert kept.has(digest)

    def test_what_a_killed_process_left_half_written_goes(self, kept: ContentStore) -> None:
        digest = kept.put(b"x")
        half = place(kept, digest).parent / ".0123456789abcdef"
        half.write_bytes(b"half")
        os.utime(half, (1, 1))
        kept.prune()
        assert not half.exists()
        assert kept.has(digest)
