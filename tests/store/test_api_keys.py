"""Keys that a person typed: kept for them alone, read from nowhere else, and never told."""

import os
import stat
from pathlib import Path

import pytest

from kitbag.errors import InvalidError, UsageError
from kitbag.store.api_keys import KEYS_FILE, delete_key, key_problem, read_keys, store_key


def test_keys_are_kept_changed_and_forgotten(tmp_path: Path) -> None:
    home = str(tmp_path / "new" / "home")
    assert read_keys(home).keys == {}
    assert not delete_key(home, "A_KEY")
    assert not os.path.exists(home)
    store_key(home, "A_KEY", "first")
    store_key(home, "B_KEY", 'qu"ote\\')
    store_key(home, "A_KEY", "second")
    assert read_keys(home).keys == {"A_KEY": "second", "B_KEY": 'qu"ote\\'}
    assert delete_key(home, "A_KEY")
    assert not delete_key(home, "A_KEY")
    assert read_keys(home).keys == {"B_KEY": 'qu"ote\\'}


def test_nobody_else_can_read_them_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store_key(str(tmp_path), "A_KEY", "first")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / KEYS_FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_can_read_or_write_is_not_used(tmp_path: Path, mode: int) -> None:
    store_key(str(tmp_path), "A_KEY", "first")
    (tmp_path / KEYS_FILE).chmod(mode)
    found = read_keys(str(tmp_path))
    assert (found.keys, "readable by other users" in found.problem) == ({}, True)
    with pytest.raises(InvalidError):  # and it is not thrown away
        store_key(str(tmp_path), "B_KEY", "second")
    assert "first" in (tmp_path / KEYS_FILE).read_text()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    store_key(str(tmp_path / "real"), "A_KEY", "first")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / KEYS_FILE).symlink_to(tmp_path / "real" / KEYS_FILE)
    assert read_keys(str(tmp_path / "home")).keys == {}
    with pytest.raises(InvalidError):
        store_key(str(tmp_path / "home"), "B_KEY", "second")
    assert read_keys(str(tmp_path / "real")).keys == {"A_KEY": "first"}


@pytest.mark.parametrize("content", ["[keys\nA_KEY='s3cret'", "keys = 's3cret'", "\udcff", "x" * 70_000])
def test_what_can_not_be_read_is_told_without_what_is_in_it(tmp_path: Path, content: str) -> None:
    (tmp_path / KEYS_FILE).write_bytes(content.encode(errors="surrogateescape"))
    (tmp_path / KEYS_FILE).chmod(0o600)
    found = read_keys(str(tmp_path))
    assert (found.keys, bool(found.problem), "s3cret" in found.problem) == ({}, True, False)
    with pytest.raises(InvalidError):
        delete_key(str(tmp_path), "A_KEY")


def test_entries_that_are_no_keys_are_left_out(tmp_path: Path) -> None:
    (tmp_path / KEYS_FILE).write_text(
        '[keys]\nA_KEY = "good"\nB_KEY = "two words"\n"C KEY" = "x"\nD_KEY = 3\nE_KEY = ""\n'
    )
    (tmp_path / KEYS_FILE).chmod(0o600)
    assert read_keys(str(tmp_path)).keys == {"A_KEY": "good"}


@pytest.mark.parametrize("key", ["", " ", "a b", "a\tb", "a\nb", "a\u00a0b", "a\x00b", "é", "x" * 5_000, "A_KEY=x"])
def test_what_is_no_key_is_refused_in_words_that_do_not_hold_it(tmp_path: Path, key: str) -> None:
    problem = key_problem(key)
    assert problem
    assert not key.strip() or key not in problem
    with pytest.raises(UsageError):
        store_key(str(tmp_path), "A_KEY", key)
    assert not (tmp_path / KEYS_FILE).exists()


@pytest.mark.parametrize("variable", ["", "A KEY", "1A", "A-KEY", "A.KEY", "É", "A" * 200])
def test_a_variable_has_a_name_of_the_usual_kind(tmp_path: Path, variable: str) -> None:
    with pytest.raises(UsageError):
        store_key(str(tmp_path), variable, "key")
