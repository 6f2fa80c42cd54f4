"""What the MCP server costs beside a bare one of the same SDK, over real stdio, in one run.

    python bench/mcp.py [--quick] [--json FILE]

From the start of the process to the first answer of `tools/list`, with 1,000 skills, beside a server with one tool that
answers what it is told; both by turns, the least and the median of several starts. Then a round trip of `load_skill`,
a skill that is new each time and one that is loaded already, beside that tool's. A client of a few lines speaks to
both, so that what is measured is the servers.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SKILLS = 1_000
HEAD = "---\nname: skill-{n:04d}\ndescription: Reviews part {n} of a change and explains what to mend, in order.\n---\n"
BODY = "Read the change as a whole before you judge a line of it, and say what you did not read.\n" * 40
BARE = """
import asyncio
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

async def tools(context, params):
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return ListToolsResult(tools=[Tool(name="echo", description="Echoes.", input_schema=schema)])

async def call(context, params):
    return CallToolResult(content=[TextContent(text=params.arguments["text"])])

async def main():
    server = Server("bare", on_list_tools=tools, on_call_tool=call)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())

asyncio.run(main())
"""


class Client:
    def __init__(self, command: list[str], home: Path, workspace: Path) -> None:
        environment = {**os.environ, "HOME": str(home)}
        environment.pop("KITBAG_HOME", None)
        self.begun = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            cwd=workspace,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.number = 0

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdout is not None
        self.number += 1
        self.send({"id": self.number, "method": method, "params": params})
        while (answer := json.loads(self.process.stdout.readline())).get("id") != self.number:
            pass
        return answer["result"]

    def begin(self) -> float:
        """Seconds until the first answer of `tools/list`."""
        known = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        self.ask("initialize", known)
        self.send({"method": "notifications/initialized"})
        assert self.ask("tools/list", {})["tools"]
        return time.perf_counter() - self.begun

    def end(self) -> None:
        self.process.communicate()


def starts(commands: dict[str, list[str]], rounds: int, home: Path, workspace: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            client = Client(command, home, workspace)
            found[name].append(client.begin())
            client.end()
    return found


def trips(bare: Client, kitbag: Client, count: int) -> dict[str, list[float]]:
    """By turns, so that what else the machine does hits all alike."""
    found: dict[str, list[float]] = {"echo": [], "load_skill, new": [], "load_skill, again": []}

    def timed(name: str, client: Client, tool: str, arguments: dict[str, str]) -> None:
        begun = time.perf_counter()
        client.ask("tools/call", {"name": tool, "arguments": arguments})
        found[name].append(time.perf_counter() - begun)

    for number in range(count):
        skill = {"skill_name": f"skill-{number:04d}", "reason": "bench"}
        timed("echo", bare, "echo", {"text": BODY})
        timed("load_skill, new", kitbag, "load_skill", skill)
        timed("load_skill, again", kitbag, "load_skill", skill)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home, workspace = Path(folder) / "home", Path(folder) / "workspace"
        (workspace / ".git").mkdir(parents=True)
        for number in range(SKILLS):
            skill = home / ".kitbag" / "skills" / f"skill-{number:04d}"
            skill.mkdir(parents=True)
            (skill / "SKILL.md").write_text(HEAD.format(n=number) + BODY)
        commands = {"bare": [sys.executable, "-c", BARE], "kitbag": [sys.executable, "-m", "kitbag", "mcp"]}
        began = starts(commands, 3 if options.quick else 10, home, workspace)
        bare, kitbag = (Client(command, home, workspace) for command in commands.values())
        for client in (bare, kitbag):
            client.begin()
        round_trips = trips(bare, kitbag, 50 if options.quick else 500)
        for client in (bare, kitbag):
            client.end()
    print(f"start to the first tools/list, {SKILLS:,} skills")
    for name, times in began.items():
        least, middle = min(times) * 1_000, statistics.median(times) * 1_000
        print(f"  {name:8} least {least:7.0f} ms   median {middle:7.0f} ms   {min(times) / min(began['bare']):.2f} x")
    print("round trip")
    for name, times in round_trips.items():
        floor = statistics.median(round_trips["echo"])
        middle = statistics.median(times)
        print(
            f"  {name:18} least {min(times) * 1_000:6.2f} ms   median {middle * 1_000:6.2f} ms   {middle / floor:.2f} x"
        )
    if options.json:
        Path(options.json).write_text(json.dumps({"starts": began, "trips": round_trips}))


if __name__ == "__main__":
    main()
