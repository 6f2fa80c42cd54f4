"""What `/skills` and `/agents` share: an item is given another state, and what that changes now is told."""

import asyncio
from typing import TYPE_CHECKING, Final

from kitbag.agent.shield import too_late_to_cancel
from kitbag.library.item_states import Group, switch
from kitbag.settings import State
from kitbag.text.human_format import short_path
from kitbag.views.blocks import Block, Remark, words

if TYPE_CHECKING:
    from kitbag.chat.chat import Chat

ANEW: Final = "the catalog in the prompt is made anew by /reload, by a compaction and with another persona"
_OPEN: Final = frozenset(("on", "name-only"))


async def switch_item(chat: "Chat", group: Group, name: str, wanted: str, before: State) -> list[Block]:
    """Writes it to the person's settings. Raises NotFoundError, AmbiguousError, UsageError and InvalidError."""
    library = chat.agent.ground.library

    def write() -> list[Block]:
        done = switch(library, group, name, wanted)
        # Seen from now on; the next message tells the model.
        library.look_again()
        blocks: list[Block] = [words(f"{done.full_name} is now {done.now} ({short_path(done.file)})")]
        if done.held_by:
            blocks.append(
                Remark("warning", f"still {done.now}: {short_path(done.held_by)} says so, and the stricter one counts")
            )
        blocks.append(words(_told(before, done.now, "load" if group == "skills" else "start"), "dim"))
        return blocks

    return await too_late_to_cancel(asyncio.to_thread(write))


def _told(before: State, now: State, verb: str) -> str:
    if before == now:
        return "nothing has changed"
    if (before in _OPEN) == (now in _OPEN):
        return ANEW if now in _OPEN else "the model could not use it before, and can't now"
    can = f"can {verb} it" if now in _OPEN else f"can't {verb} it any more"
    return f"from now on the model {can}, and is told so with your next message; {ANEW}"
