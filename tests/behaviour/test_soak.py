"""Workers and clients are killed at random moments, and all that was promised holds: short runs of bench/soak.py and
bench/fleet_soak.py."""

import random
import re
import subprocess
import sys
from pathlib import Path

from support import needs
from support.matrix import long, rounds

BENCH = Path(__file__).resolve().parents[2] / "bench"
SOAK = BENCH / "soak.py"


@long
def test_random_kills_lose_nothing_that_was_acknowledged() -> None:
    needs.bubblewrap()
    seed = str(random.randrange(1_000_000))
    kills = rounds(20, 3)
    words = ["--kills", str(kills), "--clients", "3", "--pause", "0.6", "--seed", seed]
    done = subprocess.run([sys.executable, str(SOAK), *words], capture_output=True, text=True)
    assert done.returncode == 0, f"seed {seed}:\n{done.stdout}\n{done.stderr}"
    survived = re.search(r"survived (\d+) kills", done.stdout)
    assert survived is not None
    assert int(survived[1]) >= kills  # the last one may be of a worker and a client at once


@long
def test_a_fleet_that_is_killed_frozen_and_restarted_loses_nothing_and_does_nothing_twice() -> None:
    needs.bubblewrap()
    seed = str(random.randrange(1_000_000))
    words = ["--seconds", "45", "--pause", "0.5", "--seed", seed]
    done = subprocess.run([sys.executable, str(BENCH / "fleet_soak.py"), *words], capture_output=True, text=True)
    assert done.returncode == 0, f"seed {seed}:\n{done.stdout}\n{done.stderr}"
    assert "lost 0, unreported double steps 0, orphans 0" in done.stdout
