"""Which conversations are open: by their ids, and by nothing that leads elsewhere."""

import fcntl
import threading

import pytest

from conftest import World
from kitbag.runtime.session_locks import hold_session, is_session_open
from support.waiting import TEST_TIMEOUT


def test_one_that_is_held_is_open_and_then_forgotten(world: World) -> None:
    home = str(world.home / ".kitbag")
    assert not is_session_open(home, "abc")
    with hold_session(home, "abc"):
        assert is_session_open(home, "abc")
    assert not is_session_open(home, "abc")
    assert list((world.home / ".kitbag/state/open").iterdir()) == []


def test_those_who_look_at_the_same_moment_do_not_hide_it(world: World) -> None:
    home, done = str(world.home / ".kitbag"), threading.Event()

    def look() -> None:
        while not done.is_set():
            is_session_open(home, "abc")

    looking = [threading.Thread(target=look) for _ in range(3)]
    for thread in looking:
        thread.start()
    try:
        for _ in range(300):
            with hold_session(home, "abc"):
                assert is_session_open(home, "abc")
    finally:
        done.set()
        for thread in looking:
            thread.join(TEST_TIMEOUT)


def test_one_that_is_removed_before_it_is_locked_is_made_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    home, lock = str(world.home / ".kitbag"), fcntl.flock

    def looked_at(descriptor: int, kind: int) -> None:
        monkeypatch.undo()
        assert not is_session_open(home, "abc")
        lock(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", looked_at)
    with hold_session(home, "abc"):
        assert is_session_open(home, "abc")
    assert not is_session_open(home, "abc")


@pytest.mark.parametrize("name", ["../../settings.toml", "/etc/hostname", "..", ".", "", "a\0b"])
def test_a_name_that_leads_elsewhere_removes_nothing(world: World, name: str) -> None:
    settings = world.write("~/.kitbag/settings.toml", "")
    (world.home / ".kitbag/state/open").mkdir(parents=True)
    assert not is_session_open(str(world.home / ".kitbag"), name)
    with hold_session(str(world.home / ".kitbag"), name):
        pass
    assert settings.exists()
