"""`/resume`, `/clear`, `/compact`: go on with another conversation, begin a new one, make this one shorter."""

import asyncio
import os
import shlex
from typing import TYPE_CHECKING, Final

from kitbag.agent.session_list import Summary, find_session, list_sessions
from kitbag.assembly.run_options import Options
from kitbag.chat.status import estimated_use
from kitbag.chat.ui import Form, Option
from kitbag.errors import InvalidError, NotFoundError
from kitbag.events import Compacted, Event, Notice, Retrying
from kitbag.runtime.session_locks import check_not_open, is_open
from kitbag.text.hidden_characters import one_line
from kitbag.text.human_format import ago, count, money
from kitbag.views.blocks import Remark, words
from kitbag.views.tasks import seconds_since

if TYPE_CHECKING:
    from kitbag.chat.chat import Chat

_MOST_SHOWN: Final = 20
_LONGEST_ABOUT: Final = 70
_NO_OTHER: Final = "there is no other conversation in this directory"
_ALL: Final = "`kitbag sessions list` shows those of all directories"


async def resume_command(chat: "Chat", arguments: str) -> None:
    name = arguments.strip()
    journal, here = chat.agent.journal, chat.agent.session.id
    known = [one for one in await asyncio.to_thread(list_sessions, journal) if one.id != here and not _is_empty(one)]
    directory = chat.agent.ground.places.cwd
    ours = [one for one in known if one.directory == directory]
    if not name:
        chosen = await _pick(chat, ours)
        if chosen is None:
            return
    elif name == "last":
        if not ours:
            raise NotFoundError(_NO_OTHER, _ALL)
        chosen = ours[0]
    elif len(name) >= 3 and here.startswith(name) and not any(one.id.startswith(name) for one in known):
        chat.show(Remark("info", f"{here} is the conversation that you are in"))
        return
    else:
        chosen = _find(chat, known, name)
    _check(chat, chosen, directory)
    await chat.open_session(_options_for(chat.agent.options, chosen.id))


def _options_for(options: Options, session_id: str) -> Options:
    """What belongs to this conversation is not carried into the other one, which has its own model, mode, agent and
    persona."""
    return options._replace(resume=session_id, fork=False, model="", mode="", agent="", team="", persona="")


def _is_empty(summary: Summary) -> bool:
    """Opened, and left without a word."""
    return not summary.turns and not summary.about and not summary.problem


def _find(chat: "Chat", known: list[Summary], name: str) -> Summary:
    try:
        return find_session(known, name)
    except NotFoundError as error:
        from kitbag.tasks.board import Board

        task = Board(chat.agent.journal).get(name)
        if task is not None:
            raise NotFoundError(f"{name} is a task and no conversation of yours", f"/tasks show {name}") from None
        fix = error.fix if error.fix.startswith("did you") else "`/resume` shows those of this directory"
        raise NotFoundError(error.problem, fix) from None


def _check(chat: "Chat", chosen: Summary, directory: str) -> None:
    """Raises InvalidError where it can't be gone on with from here."""
    if chosen.problem:
        raise InvalidError(f"conversation {chosen.id} can't be read: {chosen.problem}", "choose another; /resume")
    if chosen.directory != directory:
        fix = f"go on there: cd {shlex.quote(chosen.directory)} && kitbag --resume {chosen.id}"
        if not os.path.isdir(chosen.directory):
            fix = "that directory is gone; make it again, or begin a new conversation"
        raise InvalidError(f"conversation {chosen.id} is of another directory, {chosen.directory}", fix)
    check_not_open(chat.agent.ground.places.kitbag_home, chosen.id)


async def _pick(chat: "Chat", found: list[Summary]) -> Summary | None:
    """None: the person left it."""
    if not found:
        chat.show(
            Remark("info", "there is no other conversation in this directory", "`kitbag sessions list` shows all")
        )
        return None
    wanted = found
    while True:
        shown = wanted[:_MOST_SHOWN]
        options = tuple(_option(chat, str(number), one) for number, one in enumerate(shown, 1))
        older = f"; {len(wanted) - len(shown):,} older ones are not shown" if len(wanted) > len(shown) else ""
        prompt = f"Go on with which conversation?{older}"
        filled = await chat.face.ask(Form(prompt, options, free="the beginning of an id, or words to look for"))
        text = filled.text.strip() if filled is not None else ""
        if filled is not None and filled.keys:
            return shown[int(filled.keys[0]) - 1]
        if not text:
            return None
        wanted = _looked_for(found, text)
        if len(wanted) == 1 and wanted[0].id.startswith(text):
            return wanted[0]
        if not wanted:
            chat.show(Remark("info", f"no conversation of this directory begins with {text[:80]!r}"))
            wanted = found


def _looked_for(found: list[Summary], text: str) -> list[Summary]:
    by_id = [one for one in found if len(text) >= 3 and one.id.startswith(text)]
    searched = text.casefold().split()
    return by_id or [one for one in found if all(word in one.about.casefold() for word in searched)]


def _option(chat: "Chat", key: str, one: Summary) -> Option:
    about = one_line(one.about)
    label = f"{about[: _LONGEST_ABOUT - 1]}…" if len(about) > _LONGEST_ABOUT else about
    parts = [one.id, ago(seconds_since(one.last)), count(one.turns, "turn"), money(one.cost)]
    if one.persona:
        parts.append(one.persona)
    if one.problem:
        parts.append(f"damaged: {one_line(one.problem)}")
    elif is_open(chat.agent.ground.places.kitbag_home, one.id):
        parts.append("open in another window")
    elif one.status not in ("completed", "empty"):
        parts.append(one.status or "broke off")
    return Option(key, label or "(no words)", " · ".join(parts))


async def clear_command(chat: "Chat", arguments: str) -> None:
    before, left = chat.agent.session, chat.background.running
    has_words = bool(before.totals.turns or before.about)
    chat.face.clear()
    await chat.open_session(_options_as_now(chat))
    text = "a new conversation has begun"
    if has_words:
        text += f"; the last one was {before.id}, and /resume {before.id} goes back to it"
    if left:
        text += f". {count(left, 'task')} of it in the background {'goes' if left == 1 else 'go'} on: /tasks"
    chat.show(Remark("info", text))


def _options_as_now(chat: "Chat") -> Options:
    """Who the person is here, which model answers and what it may do stay as they are."""
    agent, header = chat.agent, chat.agent.session.header
    is_wanted = header.model_said or (bool(agent.options.resume) and agent.chosen.provider != "offline")
    return agent.options._replace(
        resume="",
        fork=False,
        model=header.model if is_wanted else agent.options.model,
        mode=agent.permissions.mode,
        team=header.team,
        persona=header.persona,
    )


async def compact_command(chat: "Chat", arguments: str) -> None:
    def emit(event: Event) -> None:
        match event:
            case Compacted(before, after):
                chat.show(words(f"the conversation is shorter: {before:,} → {after:,} tokens", "good"))
            case Notice():
                chat.show(Remark(*event))
            case Retrying(attempt, seconds, reason):
                chat.show(Remark("info", f"asks again in {seconds:.0f}s (attempt {attempt}): {reason}"))
            case _:
                pass

    async def compact() -> None:
        if not await chat.agent.compact(emit, arguments.strip()):
            chat.show(Remark("info", "there is nothing that could be made shorter"))
            return
        chat.view.used = estimated_use(chat.agent)

    await chat.work("compacting", compact())
    chat.refresh()
