"""`/resume`, `/clear`, `/compact`: resumes another session, starts a new one, compacts this one."""

import asyncio
import contextlib
import os
import shlex
import time
from typing import Final

import msgspec

from kitbag.agent.resume import resume
from kitbag.agent.session import is_user_message
from kitbag.agent.session_list import SessionSummary, find_session, list_sessions, named_sessions
from kitbag.agent.user_text import text_of_user
from kitbag.assembly.run_options import Options
from kitbag.chat.commands import CommandContext
from kitbag.dialogs.form import Form, FormOption
from kitbag.errors import InvalidError, KitbagError, NotFoundError
from kitbag.events import Compacted, Event, Notice, Retrying
from kitbag.runtime.session_locks import is_session_open
from kitbag.store.journal import Journal
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.text.human_format import format_age, format_cost, format_count
from kitbag.views.blocks import NoticeBlock, notice_block, text_block
from kitbag.views.tasks import seconds_since

_MAX_SHOWN: Final = 20
_MAX_ABOUT_LENGTH: Final = 70
_MAX_PREVIEW_LENGTH: Final = 300
_PREVIEW_SECONDS: Final = 0.5
_NO_OTHER_SESSION: Final = "no other session in this directory"
_MAX_LISTED: Final = 500
_LIST_ALL: Final = "list all sessions with `kitbag sessions list --all`"


async def resume_command(chat: CommandContext, arguments: str) -> None:
    name = arguments.strip()
    journal, here = chat.agent.journal, chat.agent.session.id
    directory = chat.agent.environment.places.cwd
    found, by_name = await asyncio.to_thread(
        lambda: (list_sessions(journal, directory, _MAX_LISTED), named_sessions(journal, name))
    )
    in_directory = [one for one in found if one.id != here and not _is_empty(one)]
    known = [one for one in by_name if one.id != here and not _is_empty(one)]
    if not name:
        chosen = await _pick(chat, in_directory)
        if chosen is None:
            return
    elif name == "last":
        if not in_directory:
            raise NotFoundError(_NO_OTHER_SESSION, _LIST_ALL)
        chosen = in_directory[0]
    elif len(name) >= 3 and here.startswith(name) and not any(one.id.startswith(name) for one in known):
        chat.show(NoticeBlock("info", f"{here} is the current session"))
        return
    else:
        chosen = _find(chat, known, name)
    _check_resumable(chat, chosen, directory)
    await chat.open_session(_options_for(chat.agent.options, chosen.id))


def _options_for(options: Options, session_id: str) -> Options:
    """Drops the current session's model, mode, agent and persona: the resumed session has its own."""
    return msgspec.structs.replace(
        options, resume=session_id, fork=False, model="", mode="", agent="", team="", persona=""
    )


def _is_empty(summary: SessionSummary) -> bool:
    """Opened and closed without a message."""
    return not summary.turns and not summary.about and not summary.problem


def _find(chat: CommandContext, known: list[SessionSummary], name: str) -> SessionSummary:
    try:
        return find_session(known, name)
    except NotFoundError as error:
        from kitbag.tasks.board import Board

        task = Board(chat.agent.journal).get(name)
        if task is not None:
            raise NotFoundError(f"{name} is a task, not a session", f"show it with /tasks show {name}") from None
        fix = error.fix if error.fix.startswith("did you") else "list the sessions of this directory with /resume"
        raise NotFoundError(error.problem, fix) from None


def _check_resumable(chat: CommandContext, chosen: SessionSummary, directory: str) -> None:
    """Raises InvalidError if the session can't be resumed from here."""
    if chosen.problem:
        raise InvalidError(f"can't read session {chosen.id}: {chosen.problem}", "choose another with /resume")
    if chosen.directory != directory:
        fix = f"resume it there: cd {shlex.quote(chosen.directory)} && kitbag --resume {chosen.id}"
        if not os.path.isdir(chosen.directory):
            fix = "recreate that directory, or start a new session"
        raise InvalidError(f"session {chosen.id} belongs to another directory: {chosen.directory}", fix)


async def _pick(chat: CommandContext, sessions: list[SessionSummary]) -> SessionSummary | None:
    """None if the user cancels."""
    if not sessions:
        chat.show(NoticeBlock("info", _NO_OTHER_SESSION, _LIST_ALL))
        return None
    matching = sessions
    while True:
        shown = matching[:_MAX_SHOWN] if chat.ui.is_plain else matching
        previews = await asyncio.to_thread(_read_previews, chat.agent.journal, shown[:_MAX_SHOWN])
        options = tuple(
            msgspec.structs.replace(_session_option(chat, str(number), one), preview=previews.get(one.id, one.about))
            for number, one in enumerate(shown, 1)
        )
        older = f" ({len(matching) - len(shown):,} older ones not shown)" if len(matching) > len(shown) else ""
        form_answer = await chat.ui.ask(
            Form(
                prompt=f"Resume which session?{older}",
                options=options,
                free_text_hint="the start of an ID, or words to search for",
                searchable=True,
            )
        )
        text = form_answer.text.strip() if form_answer is not None else ""
        if form_answer is not None and form_answer.keys:
            return shown[int(form_answer.keys[0]) - 1]
        if not text:
            return None
        matching = _search(sessions, text)
        if len(matching) == 1 and matching[0].id.startswith(text):
            return matching[0]
        if not matching:
            chat.show(NoticeBlock("info", f"no session in this directory matches {text[:80]!r}"))
            matching = sessions


def _read_previews(journal: Journal, sessions: list[SessionSummary]) -> dict[str, str]:
    """The last message of the user and the start of the reply; none for sessions that take too long to read."""
    previews: dict[str, str] = {}
    deadline = time.monotonic() + _PREVIEW_SECONDS
    for one in sessions:
        if time.monotonic() > deadline:
            break
        with contextlib.suppress(KitbagError):
            messages = [message for _, message in resume(journal, one.id).recorded_messages()]
            asked = next((text_of_user(message) for message in reversed(messages) if is_user_message(message)), "")
            reply = next((message.text for message in reversed(messages) if message.role == "assistant"), "")
            parts = (("> ", asked), ("", reply))
            lines = (f"{mark}{collapse_whitespace(text)[:_MAX_PREVIEW_LENGTH]}" for mark, text in parts if text.strip())
            previews[one.id] = "\n".join(lines)
    return previews


def _search(sessions: list[SessionSummary], text: str) -> list[SessionSummary]:
    by_id = [one for one in sessions if len(text) >= 3 and one.id.startswith(text)]
    searched = text.casefold().split()
    return by_id or [one for one in sessions if all(word in one.about.casefold() for word in searched)]


def _session_option(chat: CommandContext, key: str, one: SessionSummary) -> FormOption:
    about = collapse_whitespace(one.about)
    label = f"{about[: _MAX_ABOUT_LENGTH - 1]}…" if len(about) > _MAX_ABOUT_LENGTH else about
    parts = [one.id, format_age(seconds_since(one.last)), format_count(one.turns, "turn"), format_cost(one.cost)]
    if one.persona:
        parts.append(one.persona)
    if one.problem:
        parts.append(f"damaged: {collapse_whitespace(one.problem)}")
    elif is_session_open(chat.agent.environment.places.kitbag_home, one.id, chat.agent.journal, wait=False):
        parts.append("open in another window")
    elif one.status not in ("completed", "empty"):
        parts.append(one.status or "interrupted")
    return FormOption(key=key, label=label or "(no message)", note=" · ".join(parts))


async def clear_command(chat: CommandContext, arguments: str) -> None:
    before, running = chat.agent.session, chat.background.running
    has_messages = bool(before.totals.turns or before.about)
    chat.ui.clear()
    await chat.open_session(_options_for_new(chat))
    text = "new session started"
    if has_messages:
        text += f"; resume the previous one with /resume {before.id}"
    if running:
        text += f"; {format_count(running, 'background task')} still running (see /tasks)"
    chat.show(NoticeBlock("info", text))


def _options_for_new(chat: CommandContext) -> Options:
    """Keeps the persona, model and mode."""
    agent, header = chat.agent, chat.agent.session.header
    keeps_model = header.model_said or (bool(agent.options.resume) and agent.chosen.provider != "offline")
    return msgspec.structs.replace(
        agent.options,
        resume="",
        fork=False,
        model=header.model if keeps_model else agent.options.model,
        mode=agent.permissions.mode,
        team=header.team,
        persona=header.persona,
    )


async def compact_command(chat: CommandContext, arguments: str) -> None:
    def emit(event: Event) -> None:
        match event:
            case Compacted(before=before, after=after):
                chat.show(text_block(f"session compacted: {before:,} → {after:,} tokens", "good"))
            case Notice():
                chat.show(notice_block(event))
            case Retrying(attempt=attempt, seconds=seconds, reason=reason):
                chat.show(NoticeBlock("info", f"{reason}; retrying in {seconds:.0f}s (attempt {attempt})"))
            case _:
                pass

    async def compact() -> None:
        if not await chat.agent.compact(emit, arguments.strip()):
            chat.show(NoticeBlock("info", "nothing to compact"))
            return
        chat.reset_usage()

    await chat.run_activity("compacting", compact())
    chat.refresh()
