"""What work costs, told without a clock: on a slow or busy machine it is the same.

`steps` counts. `processor_limit` is for work that is done inside of C, such as matching, where nothing can be counted:
its texts are so long that a cost that grows faster than they do is never paid. bench/hostile.py measures.
"""

import gc
import signal
import sys
import threading
import tracemalloc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, Final

import pytest

PROCESSOR_SECONDS: Final = 30.0
"""What is tested with it needs a hundredth of that."""


def steps(work: Callable[[], object]) -> int:
    """How many lines of Python it runs and how many functions of C it calls, in this thread.

    Without the collector of garbage, which would run the finalizers of others meanwhile.
    """
    count = 0

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += 1
        return line

    def call(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "c_call"

    before = sys.gettrace(), sys.getprofile(), gc.isenabled()
    gc.disable()
    sys.settrace(line)
    sys.setprofile(call)
    try:
        work()
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
        if before[2]:
            gc.enable()
    return count


@contextmanager
def calls(*functions: FunctionType) -> Generator[Callable[[], list[int]], None, None]:
    """How often each of these functions was called meanwhile, in this thread and in those it starts."""
    counts = {function.__code__: 0 for function in functions}

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code in counts:
            counts[frame.f_code] += 1

    before = sys.getprofile(), threading.getprofile()
    sys.setprofile(count)
    threading.setprofile(count)
    try:
        yield lambda: list(counts.values())
    finally:
        sys.setprofile(before[0])
        threading.setprofile(before[1])


def grows_no_faster(work: Callable[[int], object], size: int) -> bool:
    """Whether twice the size takes about twice the steps."""
    work(size)  # what is made once is made
    return steps(lambda: work(2 * size)) < 2.5 * steps(lambda: work(size)) + 1_000


@contextmanager
def memory_peak() -> Generator[Callable[[], int], None, None]:
    """The most memory, in bytes, that Python took for what was done meanwhile."""
    most = 0
    tracemalloc.start()
    begun = tracemalloc.get_traced_memory()[0]

    def look() -> int:
        nonlocal most
        if tracemalloc.is_tracing():
            most = tracemalloc.get_traced_memory()[1] - begun
        return most

    try:
        yield look
        look()
    finally:
        tracemalloc.stop()


@contextmanager
def bytes_read() -> Generator[Callable[[], int], None, None]:
    """How many bytes this process has read meanwhile, from whatever file."""

    def read() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    begun = read()
    yield lambda: read() - begun


@contextmanager
def processor_limit() -> Generator[None, None, None]:
    """Ends work that would go on for ever, or nearly. Time that others use, or in which it waits, does not count."""

    def end(number: int, frame: FrameType | None) -> None:
        pytest.fail(f"it took more than {PROCESSOR_SECONDS:.0f} seconds of a processor")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, PROCESSOR_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
