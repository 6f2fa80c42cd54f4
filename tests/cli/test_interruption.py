"""Interruption: signals that end a run."""

import subprocess
import sys

# The finalizer runs after the interpreter has removed the signal handlers; it ends when the alarm is off.
SLOW_EXIT = """
import os, signal, sys
from kitbag.cli import interruption

interruption.GRACE_SECONDS = 0.05


class Slow:
    def __del__(self, pending=signal.getitimer, real=signal.ITIMER_REAL):
        while pending(real)[0]:
            pass


slow = Slow()
with interruption.Interruption() as interrupted:
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except interruption.InterruptedRunError:
        pass
sys.exit(interrupted.exit_code)
"""


def test_a_slow_exit_after_a_signal_keeps_the_exit_code() -> None:
    done = subprocess.run([sys.executable, "-c", SLOW_EXIT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (128 + 15, "")


def test_nothing_heavy_is_imported_before_an_interrupt_is_handled() -> None:
    """A Ctrl-C during these imports would print a traceback."""
    program = "import sys; before = {*sys.modules}; import kitbag.cli; print(*({*sys.modules} - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {*done.stdout.split()} <= {"kitbag", "kitbag.cli", "gc", "io", "os", "sys"}
