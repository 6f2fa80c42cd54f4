"""`/model`: which model answers and why, which could, and another one from now on."""

import asyncio
from typing import TYPE_CHECKING, Final

from kitbag.assembly.model_sources import model_sources
from kitbag.chat.ui import Form, Option
from kitbag.models.model_selection import Chosen, Sources
from kitbag.runtime.model_list import Had, about_model, missing_keys, models_to_have, price_in_words
from kitbag.settings import load_settings
from kitbag.views.blocks import Block, Fields, Table, words

if TYPE_CHECKING:
    from kitbag.chat.chat import Chat

_CONNECT: Final = "c"
_FREE: Final = "another one, as provider/model"


async def model_command(chat: "Chat", arguments: str) -> None:
    wanted = arguments.strip()
    if wanted:
        await change_model(chat, wanted)
        return
    chat.show(_about(chat.agent.chosen))
    home = chat.agent.ground.places.kitbag_home
    sources, models = await asyncio.to_thread(_look, home)
    if chat.face.is_plain:
        chat.show(_table(models, chat.agent.chosen), words("/model NAME chooses one", "dim"), *_how_to_connect(sources))
        return
    keyed = {str(at): one for at, one in enumerate(models, 1)}
    options = (
        *(Option(key, _label(one), f"{one.why} · {_size(one)}") for key, one in keyed.items()),
        Option(_CONNECT, "connect another one", "as `kitbag setup` does"),
    )
    now = next((key for key, one in keyed.items() if one.name == chat.agent.chosen.again), "")
    above = tuple(_how_to_connect(sources))
    filled = await chat.face.ask(Form("Which model is to answer?", options, above, free=_FREE, default=now))
    if filled is None:
        return
    if _CONNECT in filled.keys:
        await connect_model(chat)
        return
    name = filled.text.strip() or (keyed[filled.keys[0]].name if filled.keys else "")
    if name:
        await change_model(chat, name)


async def connect_model(chat: "Chat") -> None:
    """The dialogue of `kitbag setup`; then the conversation goes on with what was connected."""
    from kitbag.chat.setup import offer_setup

    places = chat.agent.ground.places
    if not await offer_setup(chat.face, places.kitbag_home):
        return
    # A new agent: keys are read when one is opened, and hidden from then on.
    session = chat.agent.session
    options = chat.agent.options._replace(model="", resume=session.id if session.lines() else "", fork=False)
    await chat.open_session(options)
    wanted = str(load_settings(places.kitbag_home, ()).get("model"))
    if wanted:
        await change_model(chat, wanted)


async def change_model(chat: "Chat", name: str) -> None:
    """Raises UsageError for a name that leads nowhere, InvalidError where a key is missing, which says what to do."""
    before = chat.agent.chosen
    await chat.agent.use_model(name)
    now = chat.agent.chosen
    if now.again == before.again:
        chat.show(words(f"{now.name} answers already"))
        return
    about = about_model(now)
    price = price_in_words(about["dollars_per_million"])
    chat.show(words(f"{now.name} answers from now on: a window of {now.known.window:,} tokens, price: {price}"))
    chat.refresh()


def _look(kitbag_home: str) -> tuple[Sources, list[Had]]:
    """Keys and servers as they are now, not as they were when the chat began."""
    sources, _ = model_sources(load_settings(kitbag_home, ()))
    return sources, models_to_have(sources)


def _about(chosen: Chosen) -> Block:
    about = about_model(chosen)
    return Fields(
        (
            ("chosen by", about["why"]),
            ("window", f"{about['window']:,} tokens, replies up to {about['max_output']:,}"),
            ("images", "yes" if about["images"] else "no"),
            ("price", price_in_words(about["dollars_per_million"])),
            ("known from", about["source"]),
        ),
        f"{about['name']} answers",
    )


def _label(one: Had) -> str:
    return f"{one.name} ({', '.join(one.words)})" if one.words else one.name


def _size(one: Had) -> str:
    return f"{one.window:,} tokens, {one.price}"


def _table(models: list[Had], chosen: Chosen) -> Block:
    rows = tuple(
        (_label(one), "yes" if one.name == chosen.again else "", f"{one.window:,}", one.price, one.why)
        for one in models
    )
    return Table(("MODEL", "NOW", "WINDOW", "PRICE", "WHY IT CAN BE HAD"), rows, "Models that can be had")


def _how_to_connect(sources: Sources) -> list[Block]:
    missing = missing_keys(sources)
    if not missing:
        return []
    names = ", ".join(f"{provider} ({variable})" for provider, variable in missing)
    return [words(f"without a key: {names} · `kitbag setup` connects one", "dim")]
