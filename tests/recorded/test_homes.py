"""Homes that an earlier Kitbag has written are read as before: journal, tasks, sessions, approvals, trust, plugins."""

import os
from pathlib import Path

import pytest

from kitbag.tasks.worker_lock import give_sign_of_life, locked
from recorded.transcripts import HERE, RECORD, recording, replay
from support import needs
from support.forked import Forkserver

HOMES = HERE / "homes"


@pytest.mark.parametrize("transcript", sorted(HOMES.glob("*.txt")), ids=lambda path: path.stem)
def test_an_earlier_home_is_read_as_before(transcript: Path, forkserver: Forkserver) -> None:
    needs.bubblewrap()
    with recording("work", forkserver) as here:
        here.open_home(transcript.with_suffix(".tar.gz"))
        with locked(str(here.home / ".kitbag")) as lock:  # else a worker would take up its task
            now = replay(transcript, here, lambda: give_sign_of_life(lock))
    if RECORD:
        transcript.write_text(now)
    assert now.splitlines() == transcript.read_text().splitlines()


@pytest.mark.skipif("SAVE_HOME" not in os.environ, reason="SAVE_HOME=NAME writes a home for the test above")
def test_a_home_is_saved(forkserver: Forkserver) -> None:
    with recording("work", forkserver) as here:
        replay(HERE / "work.txt", here)
        here.save_home(HOMES / f"{os.environ['SAVE_HOME']}.tar.gz")
