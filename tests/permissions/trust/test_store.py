"""The file that trust is kept in: private, whole, for one writer at a time, and never believed when in doubt."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from kitbag.errors import InvalidError
from kitbag.permissions.trust.store import FILE, ApprovedCapability, TrustRecord, read_trust_store, update_trust_store
from support.waiting import TEST_TIMEOUT

RECORD = TrustRecord(
    root="/w",
    owner=0,
    trusted_at="2026-01-01T00:00:00Z",
    capabilities=(ApprovedCapability(kind="command", path="a", digest="d" * 64, text="text"),),
)


def put(home: Path, root: str) -> str:
    return update_trust_store(
        str(home), lambda records: records.update({root: msgspec.structs.replace(RECORD, root=root)})
    )


def test_what_is_put_is_read_again_and_is_only_the_user_s(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    assert put(home, "/w/ü\udcff") == ""
    assert read_trust_store(str(home)).records == {"/w/ü\udcff": msgspec.structs.replace(RECORD, root="/w/ü\udcff")}
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / FILE).stat().st_mode) == 0o600


def test_there_is_nothing_where_nothing_is(tmp_path: Path) -> None:
    assert read_trust_store(str(tmp_path / "none")) == ({}, "", False)
    assert list(tmp_path.iterdir()) == []


GOOD = {"owner": 0, "trusted_at": "x", "acts": [["command", "a", "b", "c"]]}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"version": 1}', b'{"version": "1", "workspaces": {}}',
        b'{"version": 1, "workspaces": []}', b'{"version": 1, "workspaces": {"/w": 1}}',
        *(json.dumps({"version": 1, "workspaces": {"/w": GOOD, "/x": {**GOOD, **bad}}}).encode() for bad in (
            {"owner": "0"}, {"trusted_at": 1}, {"acts": {}}, {"acts": [["command", "a", "b"]]}, {"acts": [["nonsense", "a", "b", "c"]]},
            {"acts": [["command", "a", "b", 1]]}, {"acts": ["abcd"]},
        )),
    ],
)  # fmt: skip
def test_a_damaged_file_trusts_nothing_and_is_set_aside(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    (tmp_path / FILE).chmod(0o600)
    found = read_trust_store(str(tmp_path))
    assert found.records == {}
    assert "damaged" in found.problem
    assert (tmp_path / FILE).read_bytes() == content
    remark = put(tmp_path, "/w")
    assert f"{FILE}.damaged-1" in remark
    assert (tmp_path / f"{FILE}.damaged-1").read_bytes() == content
    assert list(read_trust_store(str(tmp_path)).records) == ["/w"]


def test_a_newer_file_trusts_nothing_and_is_not_touched(tmp_path: Path) -> None:
    text = '{"version": 2, "workspaces": {}}'
    (tmp_path / FILE).write_text(text)
    (tmp_path / FILE).chmod(0o600)
    assert read_trust_store(str(tmp_path)).is_newer
    with pytest.raises(InvalidError, match="newer"):
        put(tmp_path, "/w")
    assert (tmp_path / FILE).read_text() == text


def test_a_file_that_others_could_have_written_is_not_believed(tmp_path: Path) -> None:
    put(tmp_path, "/w")
    (tmp_path / FILE).chmod(0o666)
    assert read_trust_store(str(tmp_path)).records == {}
    (tmp_path / FILE).chmod(0o600)
    assert read_trust_store(str(tmp_path)).records
    tmp_path.chmod(0o777)
    try:
        assert read_trust_store(str(tmp_path)).records == {}
        with pytest.raises(InvalidError, match="other users can write"):
            put(tmp_path, "/x")
    finally:
        tmp_path.chmod(0o700)


def test_links_pipes_and_folders_in_its_place_are_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    put(other, "/evil")
    before = (other / FILE).read_bytes()
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / FILE).symlink_to(other / FILE)
    assert read_trust_store(str(home)).records == {}
    assert put(home, "/w")
    assert (other / FILE).read_bytes() == before
    assert list(read_trust_store(str(home)).records) == ["/w"]
    (home / FILE).unlink()
    os.mkfifo(home / FILE)
    assert read_trust_store(str(home)).records == {}
    (home / FILE).unlink()
    (home / FILE).mkdir()
    assert read_trust_store(str(home)).records == {}
    (home / FILE).rmdir()
    (home / ".trust.lock").unlink()
    (home / ".trust.lock").symlink_to(tmp_path / "target")
    with pytest.raises(InvalidError):
        put(home, "/x")
    assert not (tmp_path / "target").exists()


WRITER = """
import sys
from kitbag.permissions.trust.store import TrustRecord, update_trust_store
home, start = sys.argv[1], int(sys.argv[2])
for number in range(start, start + 6):
    update_trust_store(home, lambda records: records.update({f"/w{number}": TrustRecord(root=f"/w{number}", owner=0, trusted_at="", capabilities=())}))
"""


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(home), str(start)]) for start in (0, 6, 12, 18)]
    assert [writer.wait(TEST_TIMEOUT) for writer in writers] == [0, 0, 0, 0]
    assert set(read_trust_store(str(home)).records) == {f"/w{number}" for number in range(24)}
    assert {path.name for path in home.iterdir()} == {FILE, ".trust.lock"}
