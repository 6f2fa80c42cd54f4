"""`/export [FILE]`: the conversation as a file, Markdown or JSON by its ending; `/export -` shows it.

Written for the person alone, whole or not at all, and over another file only when they say so. A place outside the
workspace, or one that does more than hold a file, is asked for.
"""

import asyncio
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from kitbag.agent.shield import too_late_to_cancel
from kitbag.chat.ui import Form, Option
from kitbag.errors import InvalidError
from kitbag.permissions.paths import Facts, examine
from kitbag.permissions.safe_open import write_file
from kitbag.runtime.export import about, as_json, as_markdown, usual_name
from kitbag.text.human_format import short_path
from kitbag.views.blocks import Block, Remark, Verbatim, words

if TYPE_CHECKING:
    from kitbag.chat.chat import Chat
    from kitbag.runtime.agent import Agent

_NUMBERED: Final = re.compile(r"-(\d{1,4})$")
_MOST_NUMBERS: Final = 1_000


class _Place(NamedTuple):
    facts: Facts
    exists: bool


async def export_command(chat: "Chat", arguments: str) -> None:
    agent = chat.agent
    if not agent.session.about and not agent.session.totals.turns:
        chat.show(words("nothing has been said yet"))
        return
    wanted = arguments.strip().strip("\"'")
    if wanted == "-":
        chat.show(Verbatim(await asyncio.to_thread(_document(agent, "")), "the conversation"))
        return
    place = await asyncio.to_thread(_place, agent, wanted)
    agreed = await _agreed(chat, place)
    if agreed is None:
        chat.show(words("nothing was written"))
        return
    make, path = _document(agent, agreed), agreed

    def write() -> int:
        data = make().encode("utf-8", "backslashreplace")
        # A conversation is nobody else's business; a file that exists keeps its rights.
        mode = None if os.path.lexists(path) else 0o600
        write_file(path, data, agent.ground.workspace, mode=mode, expected_resolved=path)
        return len(data)

    size = await too_late_to_cancel(asyncio.to_thread(write))
    chat.show(words(f"written: {short_path(path)}, {size:,} bytes"))


def _document(agent: "Agent", path: str) -> Callable[[], str]:
    """Takes hold of what is to be said of the session; what is given makes the text, in another thread."""
    others = agent.delegation.spent()[1] if agent.delegation is not None else 0.0
    told, journal = about(agent.session, others), agent.journal
    make = as_json if path.lower().endswith(".json") else as_markdown
    return lambda: make(journal, told)


def _place(agent: "Agent", wanted: str) -> _Place:
    """Where it leads, links followed. Raises InvalidError for what can hold no file."""
    name = usual_name(agent.session.id)
    directory = agent.ground.places.cwd
    path = os.path.join(directory, os.path.expanduser(wanted) if wanted else name)
    if wanted.endswith("/") or os.path.isdir(path):
        path = os.path.join(path, name)
    facts = examine(path, agent.ground.workspace, directory)
    if facts.special:
        raise InvalidError(f"{short_path(facts.requested)} can't be used: {facts.special}", "give another place")
    exists = os.path.lexists(facts.resolved)
    if exists and not os.path.isfile(facts.resolved):
        raise InvalidError(f"{short_path(facts.resolved)} is no file", "give another place")
    return _Place(facts, exists)


async def _agreed(chat: "Chat", place: _Place) -> str | None:
    """The path that may be written; None: none."""
    facts = place.facts
    warnings = _warnings(facts)
    if not place.exists and not warnings:
        return facts.resolved
    above: tuple[Block, ...] = tuple(Remark("warning", warning) for warning in warnings)
    if not place.exists:
        options = (Option("y", "write it there"), Option("n", "write nothing"))
        filled = await chat.face.ask(Form(f"Write to {facts.resolved}?", options, above))
        return facts.resolved if filled is not None and filled.keys == ("y",) else None
    other = await asyncio.to_thread(_free_name, facts.resolved)
    options = (
        Option("o", "overwrite it"),
        *((Option("k", "keep both", f"writes {short_path(other)}"),) if other else ()),
        Option("n", "write nothing"),
    )
    filled = await chat.face.ask(Form(f"{short_path(facts.resolved)} exists already. What now?", options, above))
    answer = filled.keys[0] if filled is not None and filled.keys else "n"
    return {"o": facts.resolved, "k": other or None}.get(answer)


def _warnings(facts: Facts) -> list[str]:
    leads = f"{facts.requested} leads to {facts.resolved}" if facts.requested != facts.resolved else facts.resolved
    found = [f"{leads}: {why}" for why in (facts.control, facts.private) if why]
    if not found and not facts.writable:
        found.append(f"{leads}, which is outside the workspace")
    return found


def _free_name(path: str) -> str:
    """`notes-2.md` for `notes.md`; empty where that is taken a thousand times."""
    stem, ending = os.path.splitext(path)
    numbered = _NUMBERED.search(stem)
    first = 2
    if numbered is not None and len(numbered[1]) < 4:
        first, stem = int(numbered[1]) + 1, stem[: numbered.start()]
    names = (f"{stem}-{number}{ending}" for number in range(first, first + _MOST_NUMBERS))
    return next((name for name in names if not os.path.lexists(name)), "")
