"""`python -m kitbag.testing.serve script.json [--port N]`: a scripted model on loopback, until it is interrupted."""

import argparse
import asyncio
import contextlib
import sys

from kitbag.errors import KitbagError
from kitbag.models.scripted import load_script
from kitbag.testing.server import ModelServer
from kitbag.text.hidden_characters import escape_for_terminal


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kitbag.testing.serve", description=__doc__)
    parser.add_argument("script", help="JSON file: a list of replies, or rules with one reply each")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: a free port)")
    options = parser.parse_args()
    try:
        server = ModelServer(load_script(options.script), options.port)
    except KitbagError as error:
        sys.stderr.write(f"error: {escape_for_terminal(error.problem)}\n  fix: {escape_for_terminal(error.fix)}\n")
        return error.exit_code
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(server))
    if server.problem:
        sys.stderr.write(f"error: {escape_for_terminal(server.problem)}\n  fix: use another port\n")
    return 1 if server.problem else 0


async def _serve(server: ModelServer) -> None:
    serving = asyncio.create_task(server.serve())
    while not server.is_ready and not serving.done():
        await asyncio.sleep(0.01)
    if not serving.done():
        for name, value in server.environment().items():
            sys.stdout.write(f"{name}={value}\n")
        sys.stdout.flush()
    await serving


if __name__ == "__main__":
    sys.exit(main())
