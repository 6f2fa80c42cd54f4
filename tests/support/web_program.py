"""The real `kitbag web` in a process of its own."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx2

from conftest import World
from support.waiting import TEST_TIMEOUT


class WebProgram:
    """A running `kitbag web`."""

    def __init__(self, process: "subprocess.Popen[str]", url: str, environment: dict[str, str]) -> None:
        self.process = process
        self.environment = environment
        self.url = url
        self.base, _, self.token = url.partition("/#token=")

    def http(self, **headers: str) -> httpx2.Client:
        """With the token, unless `authorization` says something else."""
        given = {"authorization": f"Bearer {self.token}", **headers}
        return httpx2.Client(
            base_url=self.base, headers={name: text for name, text in given.items() if text}, timeout=TEST_TIMEOUT
        )

    def get(self, path: str) -> Any:
        with self.http() as client:
            return client.get(path).raise_for_status().json()

    def post(self, path: str, **body: Any) -> Any:
        with self.http() as client:
            return client.post(path, json=body).raise_for_status().json()


@contextlib.contextmanager
def web_program(
    world: World, *arguments: str, opens: bool = False, changed: str = "", as_installed: bool = False
) -> Iterator[WebProgram]:
    """`changed`: statements that change something before Kitbag starts. `as_installed`: a process of its own kind, for a
    test that kills it."""
    words = ["web", *([] if opens else ["--no-open"]), *arguments]
    code = f"{changed}\nfrom kitbag.__main__ import main\nmain()"
    fresh = [sys.executable, *(["-c", code] if changed else ["-m", "kitbag"]), *words]
    process = subprocess.Popen(
        fresh if changed or as_installed else world.command(*words),
        cwd=world.workspace, env={**world.env, "PYTHONUNBUFFERED": ""}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://"), process.communicate()
        yield WebProgram(process, url, world.env)
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=TEST_TIMEOUT)
    assert "Traceback" not in errors, errors
