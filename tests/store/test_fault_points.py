"""Named moments at which a process is ended, for tests of what survives that."""

import os
import signal
import subprocess
import sys

import pytest

from kitbag.store.fault_points import POINTS, VARIABLE

CODE = """
from kitbag.store.fault_points import POINTS, point
for number in range(3):
    for name in POINTS:
        print(number, name, flush=True)
        point(name)
"""


@pytest.mark.parametrize(
    ("at", "last"),
    [("tool-done", "0 tool-done"), ("tool-done:3", "2 tool-done"), ("nowhere", ""), ("tool-done:0", ""), ("", "")],
)
def test_a_process_is_killed_there_and_nowhere_else(at: str, last: str) -> None:
    environment = {**os.environ, VARIABLE: at}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == (last or f"2 {POINTS[-1]}")
    assert done.returncode == (-signal.SIGKILL if last else 0)
