"""Which conversations are open: by their ids, and by nothing that leads elsewhere."""

import pytest

from conftest import World
from kitbag.runtime.open_sessions import held_open, is_open


def test_one_that_is_held_is_open_and_then_forgotten(world: World) -> None:
    home = str(world.home / ".kitbag")
    assert not is_open(home, "abc")
    with held_open(home, "abc"):
        assert is_open(home, "abc")
    assert not is_open(home, "abc")
    assert list((world.home / ".kitbag/state/open").iterdir()) == []


@pytest.mark.parametrize("name", ["../../settings.toml", "/etc/hostname", "..", ".", "", "a\0b"])
def test_a_name_that_leads_elsewhere_removes_nothing(world: World, name: str) -> None:
    settings = world.write("~/.kitbag/settings.toml", "")
    (world.home / ".kitbag/state/open").mkdir(parents=True)
    assert not is_open(str(world.home / ".kitbag"), name)
    with held_open(str(world.home / ".kitbag"), name):
        pass
    assert settings.exists()
