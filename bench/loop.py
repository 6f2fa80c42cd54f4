"""What a turn of the loop costs beyond the model's own time, as a conversation grows.

    python bench/loop.py [--quick] [--json FILE]

One session with a real journal and a model that answers at once: each turn it calls a tool that only reads, and says
40 words. Measured is the time from the end of a reply to the next request (journal, permission, tool, view, meter),
in the process's CPU and by the clock, and what the three protocols need to write the request's body, beside joining
the same bytes. The columns are turns of history; each figure is the median of 20 turns around it.
"""

import argparse
import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from statistics import median
from typing import Any

from kitbag.agent.turn_limits import Limits
from kitbag.messages import Message, Text, ToolCall, Usage
from kitbag.models.adapters.anthropic import Anthropic
from kitbag.models.adapters.api_errors import ApiEndpoint
from kitbag.models.adapters.openai_chat import OpenAIChat
from kitbag.models.adapters.openai_responses import OpenAIResponses
from kitbag.models.provider import ModelReply, ModelRequest, StreamItem
from kitbag.runtime.agent import Agent, Options
from kitbag.store.journal import Journal
from kitbag.store.redaction import Redactor

SAID = "Forty words are said here in each turn, so that there is a conversation of some length to carry along; " * 2
AROUND = 10
SMALL = Usage(input=1_000, output=50)
"""What the model says it was sent: never so much that the conversation would be compacted."""


class Model:
    """Answers at once, and keeps the time of everything else."""

    name = "scripted"

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.said = 0
        self.ended: tuple[float, float] | None = None
        self.cpu: list[float] = []
        self.wall: list[float] = []
        self.bodies: dict[str, list[float]] = {}
        endpoint = ApiEndpoint(provider="bench", base_url="http://127.0.0.1:9", headers={})
        self._adapters: dict[str, Any] = {
            "Anthropic": Anthropic(endpoint),
            "OpenAI chat": OpenAIChat(endpoint),
            "OpenAI Responses": OpenAIResponses(endpoint),
        }

    async def close(self) -> None:
        return None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        if self.ended is not None:
            self.cpu.append(time.process_time() - self.ended[0])
            self.wall.append(time.perf_counter() - self.ended[1])
        for name, adapter in self._adapters.items():
            begun = time.perf_counter()
            body = adapter._encode_request(request)
            self.bodies.setdefault(name, []).append(time.perf_counter() - begun)
            if name == "Anthropic":
                pieces = [body[at : at + 500] for at in range(0, len(body), 500)]
                begun = time.perf_counter()
                b"".join(pieces)
                self.bodies.setdefault("joining the bytes", []).append(time.perf_counter() - begun)
        self.said += 1
        parts: tuple[Any, ...] = (Text(SAID),)
        if self.said < self.turns:
            parts = (*parts, ToolCall(id=f"call-{self.said}", name="ListLoadedSkills", arguments={}))
        reply = ModelReply(message=Message("assistant", parts), stop="tools" if len(parts) > 1 else "end", usage=SMALL)
        self.ended = time.process_time(), time.perf_counter()
        yield reply


async def converse(base: Path, turns: int) -> Model:
    model = Model(turns)
    journal = Journal.open(str(base / "state" / "journal.db"), Redactor())
    options = Options(directory=str(base / "work"), limits=Limits())
    try:
        async with Agent(provider=model, options=options, journal=journal) as agent, agent.run("Begin.") as run:
            ended = await run.wait()
            if ended.status != "completed":
                raise SystemExit(f"{ended.status}: {ended.error}")
    finally:
        journal.close()
    return model


def around(values: list[float], turn: int) -> float:
    return median(values[max(turn - AROUND, 0) : turn + AROUND])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="up to 200 turns")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    arguments = parser.parse_args()
    marks = [1, 100, 200] if arguments.quick else [1, 100, 1_000]
    base = Path(tempfile.mkdtemp(prefix="kitbag-bench-"))
    try:
        (base / "work").mkdir()
        model = asyncio.run(converse(base, marks[-1] + AROUND + 1))
    finally:
        shutil.rmtree(base)
    rows = {"the loop, CPU": model.cpu, "the loop, by the clock": model.wall, **model.bodies}
    print(
        f"{'microseconds per turn with history of':<40} " + " ".join(f"{mark:>8,}" for mark in marks) + "    last/first"
    )
    found: dict[str, list[float]] = {}
    for name, values in rows.items():
        found[name] = [around(values, mark) for mark in marks]
        shown = " ".join(f"{value * 1e6:>8,.0f}" for value in found[name])
        print(f"{name:<40} {shown}    {found[name][-1] / found[name][0]:>6.2f} x")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"turns": marks, "seconds": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
