"""Settings are written whole or not at all, and parsed again only when they change."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kitbag.errors import InvalidError
from kitbag.settings import load_settings, parse_toml, write_setting
from support.disk import Disk


def test_settings_are_whole_on_the_disk_before_they_take_the_place_of_the_old_ones(tmp_path: Path, disk: Disk) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('model = "scripted"\n')
    write_setting(str(file), "model", "offline")
    assert disk.steps(file) == ["settings.toml synced", "settings.toml renamed"]


def parsed_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are parsed from here on."""
    parsed: list[str] = []
    monkeypatch.setattr("kitbag.settings.parse_toml", lambda text: parsed.append(text) or parse_toml(text))
    return parsed


def test_an_unchanged_file_is_parsed_once_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('model = "scripted"\n')
    monkeypatch.setattr("time.time_ns", lambda: file.stat().st_ctime_ns + 3_000_000_000)
    parsed = parsed_files(monkeypatch)
    assert [load_settings(str(tmp_path), ()).get("model") for _ in range(3)] == ["scripted"] * 3
    assert len(parsed) == 1
    file.write_text('model = "changed!"\n')
    assert load_settings(str(tmp_path), ()).get("model") == "changed!"
    assert len(parsed) == 2


def test_a_file_that_was_just_written_is_parsed_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('model = "scripted"\n')
    monkeypatch.setattr("time.time_ns", lambda: file.stat().st_ctime_ns + 1_000_000_000)
    parsed = parsed_files(monkeypatch)
    for _ in range(3):
        load_settings(str(tmp_path), ())
    assert len(parsed) == 3


def test_one_reading_does_not_change_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('unknown = 1\n[permissions]\ndeny = ["Bash(rm:*)"]\n')
    monkeypatch.setattr("time.time_ns", lambda: file.stat().st_ctime_ns + 3_000_000_000)
    first = load_settings(str(tmp_path), ())
    first.diagnostics.clear()
    second = load_settings(str(tmp_path), ())
    assert [found.line for found in second.diagnostics] == [1]
    assert [(entry.value, entry.line) for entry in second.permission_entries] == [("Bash(rm:*)", 3)]


def test_settings_written_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    keys = [f"vars.K{number}" for number in range(12)]
    gate = threading.Barrier(len(keys))

    def write(key: str) -> None:
        gate.wait()
        write_setting(str(file), key, "x")

    with ThreadPoolExecutor(len(keys)) as threads:
        list(threads.map(write, keys))
    assert sorted(parse_toml(file.read_text())["vars"]) == sorted(key.partition(".")[2] for key in keys)
    assert [one.name for one in tmp_path.iterdir()] == ["settings.toml"]


def test_the_last_setting_of_a_table_takes_an_empty_table_with_it_and_leaves_comments(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[limits]\nturns = 5\n\n[catalog]\n# few\nnames = 9\n")
    assert write_setting(str(file), "limits.turns", None)
    assert write_setting(str(file), "catalog.names", None)
    assert file.read_text() == "[catalog]\n# few\n"


def test_a_value_is_not_replaced_by_a_table(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("limits = 5\n")
    with pytest.raises(InvalidError, match="`limits` must be a table"):
        write_setting(str(file), "limits.turns", 5)
    assert file.read_text() == "limits = 5\n"
