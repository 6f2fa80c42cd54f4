"""Worker and clients are killed at random moments, and all that was promised holds: a short run of bench/soak.py."""

import random
import subprocess
import sys
from pathlib import Path

from support import needs
from support.matrix import rounds

SOAK = Path(__file__).resolve().parents[2] / "bench" / "soak.py"


def test_random_kills_lose_nothing_that_was_acknowledged() -> None:
    needs.bubblewrap()
    seed = str(random.randrange(1_000_000))
    kills = str(rounds(20, 3))
    words = ["--kills", kills, "--clients", "3", "--pause", "0.6", "--seed", seed]
    done = subprocess.run([sys.executable, str(SOAK), *words], capture_output=True, text=True)
    assert done.returncode == 0, f"seed {seed}:\n{done.stdout}\n{done.stderr}"
    assert f"survived {kills} kills" in done.stdout
