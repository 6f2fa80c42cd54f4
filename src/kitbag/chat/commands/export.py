"""`/export [FILE]`: writes the session to a file, as Markdown or JSON by its extension; `/export -` shows it.

The file is private and written atomically. Asks before overwriting a file, before writing outside the workspace, and
before writing to a control file or a private file.
"""

import asyncio
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from kitbag.agent.shield import run_ignoring_cancellation
from kitbag.chat.commands import CommandContext
from kitbag.dialogs.form import Form, FormOption
from kitbag.errors import InvalidError
from kitbag.permissions.paths import PathFacts, examine_path
from kitbag.permissions.safe_open import write_file
from kitbag.runtime.export import collect_export_info, default_file_name, export_json, export_markdown
from kitbag.text.human_format import shorten_path
from kitbag.views.blocks import Block, NoticeBlock, VerbatimBlock, text_block

if TYPE_CHECKING:
    from kitbag.runtime.agent import Agent

_NUMBERED: Final = re.compile(r"-(\d{1,4})$")
_MAX_NUMBERS: Final = 1_000


class _Target(NamedTuple):
    facts: PathFacts
    exists: bool


async def export_command(chat: CommandContext, arguments: str) -> None:
    agent = chat.agent
    if not agent.session.about and not agent.session.totals.turns:
        chat.show(text_block("nothing to export: the session has no messages"))
        return
    name_given = arguments.strip().strip("\"'")
    if name_given == "-":
        chat.show(VerbatimBlock(await asyncio.to_thread(_document(agent, "")), "Session"))
        return
    target = await asyncio.to_thread(_resolve_target, agent, name_given)
    confirmed = await _confirm(chat, target)
    if confirmed is None:
        chat.show(text_block("export canceled"))
        return
    make, path = _document(agent, confirmed), confirmed

    def write() -> int:
        data = make().encode("utf-8", "backslashreplace")
        # A new file is private; an existing one keeps its permissions.
        mode = None if os.path.lexists(path) else 0o600
        write_file(path, data, agent.environment.workspace, mode=mode, expected_resolved=path)
        return len(data)

    size = await run_ignoring_cancellation(asyncio.to_thread(write))
    chat.show(text_block(f"exported to {shorten_path(path)} ({size:,} bytes)"))


def _document(agent: "Agent", path: str) -> Callable[[], str]:
    """Captures the session's data; the returned function renders it in another thread."""
    subagents_cost = agent.delegation.spent()[1] if agent.delegation is not None else 0.0
    summary, journal = collect_export_info(agent.session, subagents_cost), agent.journal
    make = export_json if path.lower().endswith(".json") else export_markdown
    return lambda: make(journal, summary)


def _resolve_target(agent: "Agent", name_given: str) -> _Target:
    """Resolves the target, following links. Raises InvalidError if it can't be a file."""
    name = default_file_name(agent.session.id)
    directory = agent.environment.places.cwd
    path = os.path.join(directory, os.path.expanduser(name_given) if name_given else name)
    if name_given.endswith("/") or os.path.isdir(path):
        path = os.path.join(path, name)
    facts = examine_path(path, agent.environment.workspace, directory)
    if facts.special_reason:
        raise InvalidError(
            f"can't write to {shorten_path(facts.requested)}: {facts.special_reason}", "choose another path"
        )
    exists = os.path.lexists(facts.resolved)
    if exists and not os.path.isfile(facts.resolved):
        raise InvalidError(f"can't write to {shorten_path(facts.resolved)}: not a regular file", "choose another path")
    return _Target(facts, exists)


async def _confirm(chat: CommandContext, target: _Target) -> str | None:
    """The path to write; None if the user declines."""
    facts = target.facts
    warnings = _warnings(facts)
    if not target.exists and not warnings:
        return facts.resolved
    above: tuple[Block, ...] = tuple(NoticeBlock("warning", warning) for warning in warnings)
    if not target.exists:
        options = (FormOption(key="y", label="yes, write the file"), FormOption(key="n", label="no, cancel"))
        form_answer = await chat.ui.ask(Form(prompt=f"Write to {facts.resolved}?", options=options, above=above))
        return facts.resolved if form_answer is not None and form_answer.keys == ("y",) else None
    other = await asyncio.to_thread(_unused_name, facts.resolved)
    options = (
        FormOption(key="o", label="overwrite it"),
        *((FormOption(key="k", label="keep both", note=f"write {shorten_path(other)}"),) if other else ()),
        FormOption(key="n", label="cancel"),
    )
    form_answer = await chat.ui.ask(
        Form(prompt=f"{shorten_path(facts.resolved)} already exists. Overwrite it?", options=options, above=above)
    )
    answer = form_answer.keys[0] if form_answer is not None and form_answer.keys else "n"
    return {"o": facts.resolved, "k": other or None}.get(answer)


def _warnings(facts: PathFacts) -> list[str]:
    shown_path = f"{facts.requested} -> {facts.resolved}" if facts.requested != facts.resolved else facts.resolved
    warnings_found = [f"{shown_path}: {why}" for why in (facts.control_reason, facts.private_reason) if why]
    if not warnings_found and not facts.writable:
        warnings_found.append(f"{shown_path}: outside the workspace")
    return warnings_found


def _unused_name(path: str) -> str:
    """`notes-2.md` for `notes.md`; empty if a thousand such names are taken."""
    stem, ending = os.path.splitext(path)
    numbered = _NUMBERED.search(stem)
    first = 2
    if numbered is not None and len(numbered[1]) < 4:
        first, stem = int(numbered[1]) + 1, stem[: numbered.start()]
    names = (f"{stem}-{number}{ending}" for number in range(first, first + _MAX_NUMBERS))
    return next((name for name in names if not os.path.lexists(name)), "")
