"""Starts worker and client processes for tests, each forked from one that has imported everything already.

A line of JSON on standard input is a process to start; what comes back is its number, and later how it ended.
"""

import asyncio
import importlib
import json
import os
import sys
import time
from datetime import datetime, timedelta, tzinfo
from typing import Any

if __name__ == "__main__":
    sys.path[0] = os.path.dirname(sys.path[0])  # the folder of this script was there

from kitbag.agent.session import new_session_id
from kitbag.assembly.open_store import open_store
from kitbag.store import fault_points
from kitbag.store.redaction import Redactor
from kitbag.tasks import version
from kitbag.tasks.board import Board
from kitbag.tasks.task import TaskRequest
from kitbag.tasks.worker import run_worker
from support.warm import forget_sandbox, warm_up


def _set_clock(seconds: float) -> None:
    """Of this process: as on a machine whose clock is that much ahead."""

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + timedelta(seconds=seconds)

    real = time.time
    time.time = lambda: real() + seconds
    for module in [one for name, one in sys.modules.items() if name.startswith("kitbag")]:
        if getattr(module, "datetime", None) is datetime:
            module.datetime = Shifted  # pyright: ignore[reportAttributeAccessIssue]


def _work(given: dict[str, Any]) -> None:
    home = given["environment"]["KITBAG_HOME"]
    if given["kind"] == "worker":
        if given.get("version"):
            version.__version__ = given["version"]
        if given.get("clock"):
            _set_clock(given["clock"])
        run_worker(
            home,
            idle_seconds=given["idle"],
            max_concurrent=given["at_once"],
            queues=given.get("queues", ()),
            limits=given.get("limits", {}),
            log=lambda text: print(text, flush=True),
        )
        return
    with open_store(home, Redactor([])) as journal:
        for wish in given["wishes"]:
            task = Board(journal).create(
                new_session_id(),
                "agent",
                TaskRequest(**wish),
                root="",
                parent="",
                depth=1,
                background=given["background"],
            )
            print("created", asyncio.run(task).id, flush=True)


def _child(given: dict[str, Any]) -> None:
    os.setsid()
    log = os.open(given["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    forget_sandbox(given["environment"].get("PATH"))
    os.environ.clear()
    os.environ.update(given["environment"])
    importlib.reload(fault_points)  # reads the environment anew
    status = 1
    try:
        _work(given)
        status = 0
    finally:
        sys.stdout.flush()
        os._exit(status)


def main() -> None:
    warm_up()
    for line in sys.stdin:
        given = json.loads(line)
        if given["kind"] == "wait":
            _, status = os.waitpid(given["pid"], 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        assert len(os.listdir("/proc/self/task")) == 1  # a lock that another thread holds stays locked in a child
        pid = os.fork()
        if pid == 0:
            _child(given)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
