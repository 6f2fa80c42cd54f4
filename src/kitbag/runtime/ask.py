"""Synchronous entry point for scripts: sends one request and returns how the run ended."""

import asyncio
from typing import Any

from kitbag.errors import UsageError
from kitbag.events import RunEnded
from kitbag.runtime.agent import Agent, Options


def ask(request: str, model: str = "", **options: Any) -> RunEnded:
    """`options`: fields of Options, such as `directory`, `mode` or `limits`, and further arguments of Agent. Raises
    KitbagError for errors before the run starts; how the run itself ended is in the result."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_ask(request, model, options))
    raise UsageError("an event loop is already running", "use `async with Agent(...)` instead of ask()")


async def _ask(request: str, model: str, options: dict[str, Any]) -> RunEnded:
    known = Options.__struct_fields__
    run_options = {name: value for name, value in options.items() if name in known}
    agent_arguments = {name: value for name, value in options.items() if name not in known}
    unknown = sorted(set(agent_arguments) - {"provider", "approver", "journal", "patience"})
    if unknown:
        raise UsageError(f"ask() has no option {unknown[0]!r}", f"valid options: {', '.join(known)}")
    async with Agent(model, options=Options(**run_options), **agent_arguments) as agent, agent.run(request) as run:
        return await run.wait()
