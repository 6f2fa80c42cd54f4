"""Homes that an earlier Kitbag has written are read as before: journal, tasks, sessions, approvals, trust, plugins."""

import contextlib
import json
import os
import sqlite3
from pathlib import Path

import pytest

from kitbag.tasks.worker_lock import hold_worker_lock, write_heartbeat
from recorded.transcripts import HERE, RECORD, recording, replay
from support import needs
from support.forked import Forkserver
from support.matrix import long

HOMES = HERE / "homes"


@pytest.mark.parametrize("transcript", sorted(HOMES.glob("*.txt")), ids=lambda path: path.stem)
def test_an_earlier_home_is_read_as_before(transcript: Path, forkserver: Forkserver) -> None:
    needs.bubblewrap()
    with recording("work", forkserver) as here:
        here.open_home(transcript.with_suffix(".tar.gz"))
        with hold_worker_lock(str(here.home / ".kitbag")) as lock:  # else a worker would take up its task
            now = replay(transcript, here, lambda: write_heartbeat(lock))
    if RECORD:
        transcript.write_text(now)
    assert now.splitlines() == transcript.read_text().splitlines()


@long
def test_what_is_written_now_has_the_names_that_it_had(forkserver: Forkserver) -> None:
    """Else an earlier version, or a later one, loses it without a word."""
    with recording("work", forkserver) as here:
        here.open_home(HOMES / "2026-11.tar.gz")
        before = names_in(here.home)
    with recording("work", forkserver) as here:
        replay(HERE / "work.txt", here)
        here.end_worker()
        now = names_in(here.home)
    assert now.keys() >= before.keys()
    for kind, shapes in before.items():  # names may be added
        written = {name for shape in now[kind] for name in shape}
        assert {name for shape in shapes for name in shape} <= written, kind


def names_in(home: Path) -> dict[str, list[list[str]]]:
    """Of each kind of record, and of files besides the journal, the names that its values have."""
    found: dict[str, set[tuple[str, ...]]] = {}
    with contextlib.closing(sqlite3.connect(home / ".kitbag/state/journal.db")) as database:
        for stream, kind, body in database.execute("SELECT stream, kind, body FROM records"):
            found.setdefault(f"{stream.partition('/')[0]} {kind}", set()).add(tuple(names(json.loads(body))))
    for path in (home / ".kitbag/trust.json", home / ".kitbag/plugins/plugins.lock.json"):
        found[path.name] = {tuple(names(json.loads(path.read_text())))}
    return {kind: sorted(map(list, shapes)) for kind, shapes in sorted(found.items())}


def names(value: object, above: str = "") -> list[str]:
    if isinstance(value, dict):
        return [text for key in sorted(value) for text in names(value[key], f"{above}.{key}")]
    if isinstance(value, list):
        return sorted({text for one in value for text in names(one, f"{above}[]")})
    return [above]


@pytest.mark.skipif("SAVE_HOME" not in os.environ, reason="SAVE_HOME=NAME writes a home for the test above")
def test_a_home_is_saved(forkserver: Forkserver) -> None:
    with recording("work", forkserver) as here:
        replay(HERE / "work.txt", here)
        here.save_home(HOMES / f"{os.environ['SAVE_HOME']}.tar.gz")
