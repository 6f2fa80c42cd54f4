"""A watchdog warns before it acts, and each phase has a timeout of its own."""

import pytest

from kitbag.tasks import watchdog
from kitbag.tasks.watchdog import Phase, Watchdog


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(watchdog.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_it_warns_once_at_half_the_time_and_acts_at_the_end_of_it(clock: Clock) -> None:
    dog = Watchdog({"model": 100.0})
    clock.now += 49
    assert dog.check() == ("", "")
    clock.now += 2
    warning, limit = dog.check()
    assert "no output from the model for 51 s" in warning
    assert not limit
    assert dog.check() == ("", "")
    clock.now += 50
    warning, limit = dog.check()
    assert not warning
    assert "changes so far are kept" in limit


def test_a_sign_of_life_begins_the_time_anew(clock: Clock) -> None:
    dog = Watchdog({"model": 100.0})
    clock.now += 90
    dog.touch()
    clock.now += 40
    assert dog.check() == ("", "")


def test_waiting_for_a_person_is_more_patient_than_waiting_for_a_model(clock: Clock) -> None:
    dog = Watchdog()
    dog.enter(Phase("answer", "Bash"))
    clock.now += 86_400
    assert dog.check() == ("", "")
    dog.enter(Phase("model"))
    clock.now += 86_400
    assert dog.check()[1]
