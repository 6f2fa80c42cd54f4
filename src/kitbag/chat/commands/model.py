"""`/model`: shows the current model and the available ones, and switches to another."""

import asyncio
from typing import Final

import msgspec

from kitbag.assembly.model_sources import load_model_sources
from kitbag.chat.commands import CommandContext
from kitbag.dialogs.form import Form, FormOption
from kitbag.errors import UsageError
from kitbag.models.catalog import known_model_names, model_aliases
from kitbag.models.model_selection import BUILT_IN_MODELS, ModelSources, SelectedModel
from kitbag.runtime.model_list import (
    AvailableModel,
    format_price,
    list_available_models,
    list_missing_keys,
    model_to_json,
)
from kitbag.settings import load_settings
from kitbag.text.human_format import did_you_mean
from kitbag.views.blocks import Block, FieldsBlock, NoticeBlock, TableBlock, text_block
from kitbag.views.model import model_fields

_CONNECT: Final = "c"
EFFORTS: Final = ("low", "medium", "high")
_EFFORT_KEYS: Final = {"d": "", "l": "low", "m": "medium", "h": "high"}
_FREE_TEXT_HINT: Final = "another model, as provider/model"


async def model_command(chat: CommandContext, arguments: str) -> None:
    requested = arguments.strip()
    if requested:
        name, _, effort = requested.partition(" ")
        await change_model(chat, name, _parse_effort(effort) if effort else None)
        return
    chat.show(FieldsBlock(model_fields(chat.agent.chosen), f"Model: {chat.agent.chosen.name}"))
    home = chat.agent.environment.places.kitbag_home
    sources, models = await asyncio.to_thread(_load_models, home)
    if chat.ui.is_plain:
        chat.show(
            _table(models, chat.agent.chosen),
            text_block("change it with /model NAME", "dim"),
            *_missing_key_blocks(sources),
        )
        return
    by_key = {str(at): model for at, model in enumerate(models, 1)}
    options = (
        *(
            FormOption(key=key, label=_label(model), note=f"{model.why} · {_size(model)}")
            for key, model in by_key.items()
        ),
        FormOption(key=_CONNECT, label="connect another model", note="same as `kitbag setup`"),
    )
    now = next((key for key, model in by_key.items() if model.name == chat.agent.chosen.reference), "")
    above = tuple(_missing_key_blocks(sources))
    form_answer = await chat.ui.ask(
        Form(
            prompt="Choose a model",
            options=options,
            above=above,
            free_text_hint=_FREE_TEXT_HINT,
            default=now,
        )
    )
    if form_answer is None:
        return
    if _CONNECT in form_answer.keys:
        await connect_model(chat)
        return
    name = form_answer.text.strip() or (by_key[form_answer.keys[0]].name if form_answer.keys else "")
    if name:
        await change_model(chat, name)
        await _choose_effort(chat, name)


async def _choose_effort(chat: CommandContext, name: str) -> None:
    if chat.agent.chosen.provider in BUILT_IN_MODELS:
        return
    current = chat.agent.options.effort
    options = tuple(FormOption(key=key, label=effort or "default") for key, effort in _EFFORT_KEYS.items())
    default = next((key for key, effort in _EFFORT_KEYS.items() if effort == current), "d")
    answer = await chat.ui.ask(
        Form(prompt="Reasoning effort", options=options, default=default, cancel_effect="keep the current one")
    )
    effort = _EFFORT_KEYS[answer.keys[0]] if answer is not None and answer.keys else current
    if effort != current:
        await change_model(chat, name, effort)


def _parse_effort(text: str) -> str:
    """Raises UsageError."""
    effort = text.strip().lower()
    if effort not in (*EFFORTS, "default"):
        raise UsageError(f"unknown effort {text.strip()!r}", f"use {', '.join(EFFORTS)} or default")
    return "" if effort == "default" else effort


async def connect_model(chat: CommandContext) -> None:
    """Runs the setup dialog and resumes the session with the new model."""
    from kitbag.chat.setup import run_setup

    places = chat.agent.environment.places
    if not await run_setup(chat.ui, places.kitbag_home):
        return
    # A new agent, because API keys are read, and redacted from then on, when an agent opens.
    session = chat.agent.session
    options = msgspec.structs.replace(
        chat.agent.options, model="", resume=session.id if session.recorded_messages() else "", fork=False
    )
    await chat.open_session(options)
    requested = str(load_settings(places.kitbag_home, ()).get("model"))
    if requested:
        await change_model(chat, requested)


async def change_model(chat: CommandContext, name: str, effort: str | None = None) -> None:
    """`effort`: as for Agent.use_model. Raises UsageError for an unknown name, and InvalidError, with a fix, if a key
    is missing."""
    before, effort_before = chat.agent.chosen, chat.agent.options.effort
    await chat.agent.use_model(name, effort)
    now, effort_now = chat.agent.chosen, chat.agent.options.effort
    if effort_now != effort_before:
        chat.show(text_block(f"reasoning effort: {effort_now or 'default'}"))
    if now.reference == before.reference:
        if effort_now == effort_before:
            chat.show(text_block(f"already using {now.name}"))
        return
    about = model_to_json(now)
    price = format_price(about["dollars_per_million"])
    chat.show(text_block(f"switched to {now.name}: context window {now.info.window:,} tokens, price {price}"))
    if not now.info.is_known:
        names = (*model_aliases(now.provider).values(), *known_model_names())
        suggestion = did_you_mean(now.model, names)
        chat.show(
            NoticeBlock(
                "warning",
                f"unknown model {now.model!r}: its context window and output limit are assumed",
                suggestion if suggestion.startswith("did you mean") else "",
            )
        )
    chat.refresh()


def _load_models(kitbag_home: str) -> tuple[ModelSources, list[AvailableModel]]:
    """Reads keys and local servers again: they may have changed since the chat started."""
    sources, _ = load_model_sources(load_settings(kitbag_home, ()))
    return sources, list_available_models(sources)


def _label(model: AvailableModel) -> str:
    return f"{model.name} ({', '.join(model.aliases)})" if model.aliases else model.name


def _size(model: AvailableModel) -> str:
    return f"{model.window:,} tokens, {model.price}"


def _table(models: list[AvailableModel], chosen: SelectedModel) -> Block:
    rows = tuple(
        (_label(model), "yes" if model.name == chosen.reference else "", f"{model.window:,}", model.price, model.why)
        for model in models
    )
    return TableBlock(headers=("MODEL", "CURRENT", "WINDOW", "PRICE", "REASON"), rows=rows, title="Available models")


def _missing_key_blocks(sources: ModelSources) -> list[Block]:
    missing = list_missing_keys(sources)
    if not missing:
        return []
    names = ", ".join(f"{provider} ({variable})" for provider, variable in missing)
    return [text_block(f"no API key for {names} · connect one with `kitbag setup`", "dim")]
