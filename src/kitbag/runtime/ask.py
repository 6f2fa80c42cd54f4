"""The one synchronous door: a request in, how it ended out. For scripts, and for whoever does not care for events."""

import asyncio
from typing import Any

from kitbag.errors import UsageError
from kitbag.events import RunEnded
from kitbag.runtime.agent import Agent, Options


def ask(request: str, model: str = "", **options: Any) -> RunEnded:
    """`options` are the fields of Options, such as `directory`, `mode` or `limits`, and what Agent takes besides.

    Raises KitbagError for what is wrong before the run begins; how the run itself ends is in what it answers.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_ask(request, model, options))
    raise UsageError("an event loop is running here already", "use `async with Agent(...)` instead of ask()")


async def _ask(request: str, model: str, options: dict[str, Any]) -> RunEnded:
    given = {name: value for name, value in options.items() if name in Options._fields}
    besides = {name: value for name, value in options.items() if name not in Options._fields}
    unknown = sorted(set(besides) - {"provider", "approver", "journal", "patience"})
    if unknown:
        raise UsageError(f"ask() has no option {unknown[0]!r}", f"known are {', '.join(Options._fields)}")
    async with Agent(model, options=Options(**given), **besides) as agent, agent.run(request) as run:
        return await run.wait()
