"""What the program prints for a few hundred commands is what it printed before."""

from pathlib import Path

import pytest

from recorded.transcripts import HERE, RECORD, recording, replay
from support import needs
from support.forked import Forkserver

TRANSCRIPTS = sorted(HERE.glob("*.txt"))


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_program_prints_what_it_printed_before(transcript: Path, forkserver: Forkserver) -> None:
    needs.bubblewrap()
    with recording(transcript.stem, forkserver) as here:
        now = replay(transcript, here)
    if RECORD:
        transcript.write_text(now)
    assert now.splitlines() == transcript.read_text().splitlines()
