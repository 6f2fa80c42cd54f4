"""What the program prints for a few hundred commands is what it printed before."""

from pathlib import Path

import pytest

from recorded.transcripts import HERE, RECORD, normal, recording, replay
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


@pytest.mark.parametrize(
    "found", ["1234567d", "12345678901d", "12345678", "abcdefab", "1234567d-0000-4000-8000-00000000000d"]
)
def test_an_id_is_one_whatever_its_digits_look_like(found: str) -> None:
    assert normal(f"task {found}, 12 s", with_ids=False) == "task ID, DURATION"


def test_the_seconds_of_a_slow_command_are_not_compared() -> None:
    lines = [
        f'{{"type": "tool_progress", "call_id": "c4", "text": "{text}"}}\n' for text in ("turn 1", "1 s", "2 s: a")
    ]
    assert normal("".join(lines) + "end\n", with_ids=False) == lines[0] + "end\n"
