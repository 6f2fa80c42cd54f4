"""Workers with homes of their own, as on several machines, that share one database with a short lease."""

import shutil
from typing import Any

from kitbag.assembly.open_store import DATABASE_URL_VARIABLE
from support.postgres import Schema, Server
from support.workshop import Workshop


class Fleet:
    def __init__(self, workshop: Workshop, schema: Schema, server: Server) -> None:
        self.workshop = workshop
        self.schema = schema
        self._server = server
        workshop.journal.queue = "fleet"
        self.set_lease(1.5)

    def set_lease(self, seconds: float) -> None:
        lease = f"UPDATE kitbag_facts SET value = '{seconds}' WHERE name = 'lease_seconds'"
        self._server.run(f"SET search_path = {self.schema.name}", lease)

    def home(self, name: str) -> str:
        home = self.workshop.world.home.parent / name / ".kitbag"
        if not home.exists():
            shutil.copytree(self.workshop.world.home / ".kitbag" / "agents", home / "agents")
        return str(home)

    def environment(self, name: str, port: int = 0) -> dict[str, str]:
        """`port`: of a proxy to the database."""
        url = self.schema.url.replace(f":{self.schema.server.port}/", f":{port}/") if port else self.schema.url
        return {**self.workshop.environment, "KITBAG_HOME": self.home(name), DATABASE_URL_VARIABLE: url}

    def worker(self, name: str, idle: float = 60.0, port: int = 0, **more: Any) -> int:
        """`clock`: how many seconds its clock is ahead; `version`: that of its Kitbag."""
        environment = self.environment(name, port)
        settings = {"idle": idle, "at_once": 20, "queues": ["fleet"], **more}
        return self.workshop.nursery.start("worker", environment, self.log(name), **settings)

    def log(self, name: str) -> str:
        return str(self.workshop.world.home.parent / f"{name}.log")

    def session_kinds(self, task_id: str) -> list[str]:
        query = f"SELECT kind FROM kitbag_records WHERE stream = 'session/{task_id}' ORDER BY seq"
        return [kind for (kind,) in self.schema.rows(query)]
