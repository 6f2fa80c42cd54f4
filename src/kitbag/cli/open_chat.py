"""From the options of the root command to the chat."""

import asyncio
import gc
from typing import Any

from kitbag.cli.ask import options_of


def open_chat(options: dict[str, Any]) -> int:
    """The exit code. Raises KitbagError for what keeps it from beginning."""
    from kitbag.chat.start import run_chat

    wanted = options_of(options)
    # The start makes no garbage worth looking for, and a conversation may be long.
    gc.freeze()
    gc.enable()
    return asyncio.run(run_chat(wanted, plain=options["plain"]))
