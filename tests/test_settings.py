"""Settings are written whole or not at all."""

from pathlib import Path

from kitbag.settings import write_setting
from support.disk import Disk


def test_settings_are_whole_on_the_disk_before_they_take_the_place_of_the_old_ones(tmp_path: Path, disk: Disk) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('model = "scripted"\n')
    write_setting(str(file), "model", "offline")
    assert disk.steps(file) == ["settings.toml synced", "settings.toml renamed"]
