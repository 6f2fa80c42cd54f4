"""Workers with homes of their own, as on several machines, that share one database with a short lease."""

import shutil
from typing import Any

from support.postgres import Schema, Server
from support.workshop import Workshop


class Fleet:
    def __init__(self, workshop: Workshop, schema: Schema, server: Server) -> None:
        self.workshop = workshop
        self.schema = schema
        workshop.journal.queue = "fleet"
        lease = "UPDATE kitbag_facts SET value = '1.5' WHERE name = 'lease_seconds'"
        server.run(f"SET search_path = {schema.name}", lease)

    def home(self, name: str) -> str:
        home = self.workshop.world.home.parent / name / ".kitbag"
        if not home.exists():
            shutil.copytree(self.workshop.world.home / ".kitbag" / "agents", home / "agents")
        return str(home)

    def worker(self, name: str, idle: float = 60.0, **more: Any) -> int:
        environment = {**self.workshop.environment, "KITBAG_HOME": self.home(name)}
        settings = {"idle": idle, "at_once": 20, "queues": ["fleet"], **more}
        return self.workshop.nursery.start("worker", environment, self.log(name), **settings)

    def log(self, name: str) -> str:
        return str(self.workshop.world.home.parent / f"{name}.log")

    def session_kinds(self, task_id: str) -> list[str]:
        query = f"SELECT kind FROM kitbag_records WHERE stream = 'session/{task_id}' ORDER BY seq"
        return [kind for (kind,) in self.schema.rows(query)]
