"""What many tests share: a world of its own for each test, and the real program run in it."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from kitbag.assembly.open_store import DATABASE_URL_VARIABLE
from kitbag.library.registry import Registry
from kitbag.library.scopes import Places
from support.disk import Disk, skip_syncs
from support.forked import Forkserver
from support.matrix import LONG, examples, leave_out_long
from support.stores import choose_stores, use_postgres
from support.using import note_test_start
from support.waiting import TEST_TIMEOUT, wait_until

if TYPE_CHECKING:
    from support.fleets import Fleet
    from support.house import House
    from support.postgres import Schema, Server
    from support.workshop import Nursery, Workshop


# Time is not what property tests are about; in CI the same examples are tried each time.
hypothesis.settings.register_profile(
    "kitbag", deadline=None, derandomize=os.environ.get("CI") == "true", max_examples=examples(100)
)
hypothesis.settings.load_profile("kitbag")


def pytest_configure() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGHUP):  # ignored, as SIGINT, in a job of a shell or under nohup
        signal.signal(number, signal.SIG_DFL)
    if not LONG:
        skip_syncs()


def pytest_runtest_setup() -> None:
    note_test_start()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out_long(config, items)
    if "SHUFFLE" in os.environ:  # in another order for each value
        random.Random(os.environ["SHUFFLE"]).shuffle(items)


EXPLORE_ALLOWED = '[permissions]\nallow = ["Task(Explore)"]\n'


class World:
    """A home, a workspace that is a git repository, and a place outside both."""

    def __init__(self, base: Path, forkserver: "Forkserver | None" = None) -> None:
        self.forkserver = forkserver
        self.home = base / "home"
        self.workspace = base / "workspace"
        self.outside = base / "outside"
        self.canary = base / "canary"
        for directory in (self.home, self.workspace, self.outside):
            directory.mkdir()
        (self.workspace / ".git").mkdir()
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("KITBAG")}
        self.env |= {"HOME": str(self.home), "CANARY": str(self.canary), "NO_COLOR": "1", "COLUMNS": "100"}

    def write(self, path: str, text: str | bytes, base: Path | None = None) -> Path:
        """A file below the workspace, or below the home when the path starts with `~/`."""
        target = self.home / path[2:] if path.startswith("~/") else (base or self.workspace) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        return target

    def skill(
        self, folder: str, name: str, description: str = "Does a thing.", body: str = "Do it.", **more: str
    ) -> Path:
        """A skill directory, e.g. skill(".kitbag/skills", "deploy")."""
        fields = "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in more.items())
        text = f"---\nname: {name}\ndescription: {description}\n{fields}---\n{body}\n"
        return self.write(f"{folder}/{name}/SKILL.md", text)

    def places(self, cwd: Path | None = None) -> Places:
        here = str(cwd or self.workspace)
        return Places(here, str(self.home), str(self.home / ".kitbag"), (here,))

    def registry(self, **options: Any) -> Registry:
        return Registry(self.places(), **options)

    def run(self, *arguments: str, cwd: Path | None = None, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        """The real program in a process of its own: a fork of one that has imported it, unless the environment says
        how Python starts."""
        if self.forkserver is not None and not any(
            name.startswith("PYTHON") and value != os.environ.get(name) for name, value in self.env.items()
        ):
            where = str(cwd or self.workspace)
            return self.forkserver.run([*arguments], where, self.env, stdin)
        return subprocess.run(
            [sys.executable, "-m", "kitbag", *arguments],
            cwd=cwd or self.workspace,
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TEST_TIMEOUT,
        )

    def command(self, *arguments: str) -> list[str]:
        """To start the real program with `env` and talk to it; without the cost of importing it, as in `run`."""
        if self.forkserver is None:
            return [sys.executable, "-m", "kitbag", *arguments]
        return self.forkserver.command(*arguments)

    def end_worker(self) -> None:
        """One that a test has started, in whatever way, does not outlive it."""
        lock = self.home / ".kitbag" / "state" / "worker.lock"
        if not lock.is_file():
            return
        from kitbag.tasks.worker_process import hold_worker_lock, read_worker_record

        def is_ended() -> bool:
            with contextlib.suppress(BlockingIOError), hold_worker_lock(str(self.home / ".kitbag")):
                return True
            found = read_worker_record(str(self.home / ".kitbag"))
            if (
                found is not None and found.owner.pid != os.getpid() and found.owner.check_alive()
            ):  # else it has only begun
                with contextlib.suppress(ProcessLookupError):
                    os.kill(found.owner.pid, signal.SIGKILL)
            return False

        wait_until(is_ended, "a worker outlives its test")

    def ok(self, *arguments: str, cwd: Path | None = None) -> str:
        done = self.run(*arguments, cwd=cwd)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *arguments: str, cwd: Path | None = None) -> Any:
        return json.loads(self.ok(*arguments, "--json", cwd=cwd))


@pytest.fixture(scope="session")
def forkserver() -> "Iterator[Forkserver]":
    made = Forkserver()
    yield made
    made.close()


@pytest.fixture(scope="session")
def postgres() -> "Iterator[Server]":
    from support.postgres import Server

    made = Server()
    yield made
    made.close()


@pytest.fixture
def schema(postgres: "Server") -> "Iterator[Schema]":
    from support.postgres import new_schema

    with new_schema(postgres) as made:
        yield made


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    choose_stores(metafunc)


@pytest.fixture
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kind of store that this test runs on."""
    if request.param == "postgres":
        schema = request.getfixturevalue("schema")
        use_postgres(schema, monkeypatch)
        if "world" in request.fixturenames:
            request.getfixturevalue("world").env[DATABASE_URL_VARIABLE] = schema.url
    return str(request.param)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def world(tmp_path: Path, forkserver: Forkserver) -> Iterator[World]:
    made = World(tmp_path, forkserver)
    yield made
    made.end_worker()


@pytest.fixture
def at_home(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world in which this process lives, without a model."""
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "KITBAG_MODEL", "KITBAG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.chdir(world.workspace)
    return world


@pytest.fixture(scope="session")
def nursery() -> "Iterator[Nursery]":
    """Where workers come from; imported only where one is wanted."""
    from support.workshop import Nursery

    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def workshop(world: World, nursery: "Nursery") -> "Iterator[Workshop]":
    """For delegated work; none of its processes outlives the test."""
    from support import needs
    from support.workshop import opened

    needs.bubblewrap()  # its agents run commands
    with opened(world, nursery) as made:
        yield made


@pytest.fixture
def house(world: World, monkeypatch: pytest.MonkeyPatch) -> "House":
    from support.house import House

    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "KITBAG_MODEL", "KITBAG_HOME", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(world.home))
    return House(world)


@pytest.fixture
def kitbag_home(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key or a model, as on a machine of a new user."""
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "KITBAG_MODEL", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.setenv("KITBAG_HOME", str(world.home / ".kitbag"))


@pytest.fixture
def explore_allowed(world: World) -> None:
    """The user's rule that starts Explore without a question."""
    world.write("~/.kitbag/settings.toml", EXPLORE_ALLOWED)


@pytest.fixture
def repository(world: World) -> World:
    from support.homes import git

    (world.workspace / ".git").rmdir()
    git(world, "init", "--quiet", "-b", "main")
    world.write("a.txt", "one\n")
    git(world, "add", "-A")
    git(world, "commit", "--quiet", "-m", "first")
    world.write(
        "~/.kitbag/agents/worker.md",
        "---\nname: worker\ndescription: Works.\ntools: Read, Write\nisolation: worktree\n"
        "permission-mode: acceptEdits\n---\nWork.\n",
    )
    return world


@pytest.fixture
def fleet(
    world: World, nursery: "Nursery", schema: "Schema", postgres: "Server", monkeypatch: pytest.MonkeyPatch
) -> "Iterator[Fleet]":
    from support.fleets import Fleet
    from support.workshop import opened

    use_postgres(schema, monkeypatch)
    world.env[DATABASE_URL_VARIABLE] = schema.url
    with opened(world, nursery) as workshop:
        yield Fleet(workshop, schema, postgres)
