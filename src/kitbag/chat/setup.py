"""The setup dialog: connects a model, tries it and writes the settings.

Used by cli/setup and by `/model`. Uses runtime/connect_model to detect, try and save. Canceling any step writes
nothing. API keys are entered in a secret form and never shown.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import Final

from kitbag.chat.setup_model import ask_for_model
from kitbag.chat.ui import ChatUI, Form, FormOption
from kitbag.errors import KitbagError
from kitbag.models.local_servers import LOCAL_PORTS
from kitbag.models.model_selection import ProviderSettings, key_variable
from kitbag.runtime import connect_model
from kitbag.runtime.connect_model import ModelSetup, ModelStatus, TrialResult
from kitbag.store.api_keys import is_variable_name
from kitbag.text.human_format import format_cost, shorten_path
from kitbag.views.blocks import Block, FieldsBlock, NoticeBlock, TableBlock, VerbatimBlock, text_block

_KEY_PAGES: Final = {
    "anthropic": "https://console.anthropic.com/settings/keys",
    "openai": "https://platform.openai.com/api-keys",
    "openrouter": "https://openrouter.ai/settings/keys",
}
_NAMES: Final = {
    "anthropic": "Anthropic",
    "openai": "OpenAI",
    "openrouter": "OpenRouter",
    "ollama": "Ollama",
    "llamacpp": "llama.cpp",
    "vllm": "vLLM",
    "lmstudio": "LM Studio",
}
_LEAVING: Final = "leaves all as it is"
_KEY_WORDS: Final = {
    "environment": "in your environment",
    "kept": "kept by setup",
    "missing": "none",
    "not needed": "needs none",
}


def no_model_notice() -> NoticeBlock:
    return NoticeBlock(
        "info",
        "no model is connected: offline answers from your files and skills",
        "connect one with /model or kitbag setup, or set ANTHROPIC_API_KEY or OPENAI_API_KEY and start again",
    )


async def run_setup(ui: ChatUI, kitbag_home: str) -> bool:
    """Returns whether something was saved. Raises KitbagError if saving fails."""
    standing = await asyncio.to_thread(connect_model.load_model_status, kitbag_home)
    ui.show(*setup_status_blocks(standing))
    return await _Dialogue(ui, kitbag_home, standing).run()


def setup_status_blocks(standing: ModelStatus) -> list[Block]:
    """Shows names of variables and providers, never a key."""
    chosen = standing.chosen
    blocks: list[Block] = [
        FieldsBlock(
            (
                ("used now", chosen.name if chosen is not None else "nothing"),
                ("because", chosen.reason if chosen is not None else ""),
                ("can't be used", f"{standing.problem}; {standing.fix}" if standing.problem else ""),
                ("settings", shorten_path(standing.settings_file)),
            )
        )
    ]
    rows = [
        (one.name, one.key_variable or "-", _KEY_WORDS[one.key], one.address or one.problem)
        for one in standing.providers
        if one.name not in LOCAL_PORTS or one.name in standing.local
    ]
    blocks.append(TableBlock(("PROVIDER", "KEY", "IS", "ADDRESS"), tuple(rows)))
    if not standing.local:
        blocks.append(text_block("no model server answers on this machine (Ollama, llama.cpp, vLLM, LM Studio)", "dim"))
    blocks += [
        NoticeBlock(found.severity, f"{found.place}: {found.problem}", found.fix) for found in standing.diagnostics
    ]
    return blocks


class _LeftError(Exception):
    """The user canceled."""


class _BackError(Exception):
    """Back to the first question."""


class _Dialogue:
    def __init__(self, face: ChatUI, kitbag_home: str, standing: ModelStatus) -> None:
        self._face = face
        self._home = kitbag_home
        self._standing = standing
        self._waits_for = ""
        """The variable for the key, if it is not set yet: then the model can't be tried."""

    async def run(self) -> bool:
        while True:
            try:
                return await self._once()
            except _BackError:
                continue
            except _LeftError:
                self._face.show(text_block("nothing was written", "dim"))
                return False

    async def _once(self) -> bool:
        self._waits_for = ""
        wanted = await self._choose_provider()
        if wanted.provider == "offline":
            return self._save(wanted, "offline needs no key and no network")
        if wanted.provider not in LOCAL_PORTS:
            wanted = await self._choose_key(wanted)
        wanted = await self._choose_model(wanted)
        if self._waits_for:
            return self._save(wanted, f"as soon as {self._waits_for} is set")
        while True:
            tried = await self._try(wanted)
            if not tried.problem:
                return self._save(wanted, "it works")
            match await self._after_failure(wanted, tried):
                case "s":
                    return self._save(wanted, "it was not seen to work")
                case "k":
                    wanted = await self._choose_key(wanted, again=True)
                case "m":
                    wanted = await self._choose_model(wanted)
                case _:
                    pass

    # Provider

    async def _choose_provider(self) -> ModelSetup:
        states = {one.name: one for one in self._standing.providers}
        options: list[FormOption] = []
        names: list[str] = []
        for name in ("anthropic", "openai", "openrouter"):
            state = states[name]
            note = f"a key is {_KEY_WORDS[state.key]} ({state.key_variable})" if state.has_key else "needs a key"
            options.append(FormOption(str(len(options) + 1), _NAMES[name], note))
            names.append(name)
        found = ", ".join(_NAMES[name] for name in self._standing.local)
        options.append(FormOption("4", "a model on this machine", f"{found} answers" if found else "none answers now"))
        options.append(FormOption("5", "another address", "that speaks OpenAI's or Anthropic's protocol"))
        options.append(FormOption("6", "stay offline", "no model, no network: finds, loads and quotes"))
        own = [one for one in self._standing.providers if one.name not in _NAMES]
        options += [FormOption(str(7 + at), one.name, one.address or one.problem) for at, one in enumerate(own)]
        key = await self._pick("Which model shall answer?", options)
        match key:
            case "4":
                return await self._choose_local()
            case "5":
                return await self._choose_address()
            case "6":
                return ModelSetup("offline", "offline")
            case _:
                names += ["", "", "", *(one.name for one in own)]
                return ModelSetup(names[int(key) - 1])

    async def _choose_local(self) -> ModelSetup:
        names = list(LOCAL_PORTS)
        options = [
            FormOption(str(at), _NAMES[name], _local_note(self._standing, name)) for at, name in enumerate(names, 1)
        ]
        default = next((str(names.index(name) + 1) for name in self._standing.local), "")
        name = names[int(await self._pick("Which server?", options, default)) - 1]
        if name in self._standing.local:
            return ModelSetup(name)
        usual = next(one.address for one in self._standing.providers if one.name == name)
        address = await self._ask_address("Nobody answers there. Where does it listen?", usual, "chat")
        return ModelSetup(name, own=ProviderSettings(base_url=address) if address != usual else ProviderSettings())

    async def _choose_address(self) -> ModelSetup:
        protocols = ("chat", "responses", "anthropic")
        options = (
            FormOption("1", "OpenAI's chat completions", "what most servers speak"),
            FormOption("2", "OpenAI's responses"),
            FormOption("3", "Anthropic's messages"),
        )
        protocol = protocols[int(await self._pick("What does it speak?", options, "1")) - 1]
        address = await self._ask_address("Its address:", "", protocol)
        sources = connect_model.preview_sources(self._home, ModelSetup(""))
        name, problem = "", ""
        while not name or problem:
            above = (NoticeBlock("error", problem),) if problem else ()
            name = await self._write("A name for it, of your own:", "such as lab", above=above)
            problem = connect_model.name_problem(name, sources)
        return ModelSetup(name, own=ProviderSettings(address, protocol))

    async def _ask_address(self, prompt: str, text: str, protocol: str) -> str:
        problem = ""
        while True:
            above = (NoticeBlock("error", problem),) if problem else ()
            text = await self._write(prompt, "such as http://10.0.0.5:8000/v1", text, above=above)
            problem = connect_model.address_problem(text)
            if not problem:
                return connect_model.complete_address(text, protocol)

    # API key

    async def _choose_key(self, wanted: ModelSetup, *, again: bool = False) -> ModelSetup:
        sources = connect_model.preview_sources(self._home, wanted)
        variable = connect_model.default_key_variable(wanted.provider, sources)
        is_there = bool(sources.environment.get(variable, "").strip())
        needs = wanted.provider in _KEY_PAGES
        options = [FormOption("u", f"use the key that is there, in {variable}")] if is_there and not again else []
        options += [
            FormOption("v", "it is in an environment variable", "recommended: Kitbag keeps nothing"),
            FormOption("t", "type it", f"kept in {shorten_path(self._standing.keys_file)}, which only you can read"),
        ]
        options += [] if needs else [FormOption("0", "it needs none")]
        options.append(FormOption("b", "back"))
        page = _KEY_PAGES.get(wanted.provider, "")
        above = (text_block(f"Keys are made at {page}", "dim"),) if page and not is_there else ()
        address = connect_model.unprotected_address(wanted.provider, sources)
        if address:
            problem = f"{address} is not encrypted: the key can be read on the way"
            above = (*above, NoticeBlock("warning", problem, "use https"))
        default = "u" if is_there and not again else ""
        match await self._pick("The key:", options, default, above):
            case "u":
                return wanted._replace(own=self._with_variable(wanted, variable), key="")
            case "v":
                return await self._name_variable(wanted, variable)
            case "t":
                return await self._type_key(wanted)
            case "0":
                return wanted
            case _:
                raise _BackError

    async def _name_variable(self, wanted: ModelSetup, usual: str) -> ModelSetup:
        variable = usual
        problem = ""
        while True:
            above = (NoticeBlock("error", problem),) if problem else ()
            variable = await self._write("Its name:", "of the variable, not the key", variable, above=above)
            if is_variable_name(variable):
                break
            # The user may have pasted the key itself: don't show it again.
            variable, problem = usual, "a variable's name has letters, digits and _; the key itself does not go here"
        named = wanted._replace(own=self._with_variable(wanted, variable), key="")
        if os.environ.get(variable, "").strip():
            return named
        above = (
            text_block(f"{variable} is not set here. Add this line to your shell's profile (~/.profile, ~/.zshrc):"),
            VerbatimBlock(f"export {variable}='…the key…'"),
            text_block("Open a new shell then, and run `kitbag setup` once more to see whether it works."),
        )
        options = (FormOption("w", "choose a model and write it down now, untried"), FormOption("b", "back"))
        if await self._pick("Without the key nothing can be tried.", options, above=above) != "w":
            raise _BackError
        self._waits_for = variable
        return named

    def _with_variable(self, wanted: ModelSetup, variable: str) -> ProviderSettings:
        """Saved only if it is not the default name."""
        usual = key_variable(wanted.provider, connect_model.preview_sources(self._home, ModelSetup("")))
        return wanted.own._replace(key_env="" if usual == variable else variable)

    async def _type_key(self, wanted: ModelSetup) -> ModelSetup:
        sources = connect_model.preview_sources(self._home, wanted)
        variable = connect_model.variable_for_new_key(wanted.provider, sources)
        above: tuple[Block, ...] = ()
        while True:
            form = Form(
                "The key (what you type is not shown):", above=above, free_text_hint="the key alone", secret=True
            )
            filled = await self._face.ask(form)
            if filled is None:
                raise _BackError
            key = filled.text.strip()
            problem = connect_model.typed_key_problem(wanted.provider, key)
            if not problem:
                return wanted._replace(own=self._with_variable(wanted, variable), key=key)
            above = (NoticeBlock("error", problem),)

    # Model and trial

    async def _choose_model(self, wanted: ModelSetup) -> ModelSetup:
        model = await ask_for_model(self._face, self._home, wanted)
        if not model:
            raise _BackError
        return wanted._replace(model=model)

    async def _try(self, wanted: ModelSetup) -> TrialResult:
        self._face.show(text_block(f"asking {wanted.provider}/{wanted.model} …", "dim"))
        tried = await connect_model.try_model(self._home, wanted)
        self._face.show(*trial_blocks(tried))
        return tried

    async def _after_failure(self, wanted: ModelSetup, tried: TrialResult) -> str:
        options = [
            FormOption("a", "try again"),
            *([FormOption("k", "another key")] if wanted.provider not in LOCAL_PORTS else []),
            FormOption("m", "another model"),
            FormOption("s", "write it down all the same"),
            FormOption("b", "back to the beginning"),
        ]
        default = {"key": "k", "model": "m"}.get(tried.blames, "a")
        default = default if any(option.key == default for option in options) else "a"
        key = await self._pick("What now?", options, default)
        if key == "b":
            raise _BackError
        return key

    def _save(self, wanted: ModelSetup, how: str) -> bool:
        connect_model.save_model_setup(self._home, wanted)
        name = f"{wanted.provider}/{wanted.model}" if wanted.provider != "offline" else "offline"
        place = shorten_path(self._standing.settings_file)
        self._face.show(text_block(f"{name} is your model from now on: {how}. Written to {place}.", "good"))
        if wanted.key:
            self._face.show(
                text_block(f"The key is kept in {shorten_path(self._standing.keys_file)}, for you alone.", "good")
            )
        self._face.show(*_other_choice(self._home, name))
        return True

    # Forms

    async def _pick(
        self, prompt: str, options: Sequence[FormOption], default: str = "", above: tuple[Block, ...] = ()
    ) -> str:
        filled = await self._face.ask(Form(prompt, tuple(options), above, default=default, cancel_effect=_LEAVING))
        if filled is None or not filled.keys:
            raise _LeftError
        return filled.keys[0]

    async def _write(self, prompt: str, free: str, text: str = "", above: tuple[Block, ...] = ()) -> str:
        filled = await self._face.ask(Form(prompt, above=above, free_text_hint=free, initial_text=text))
        if filled is None or not filled.text.strip():
            raise _BackError
        return filled.text.strip()


def trial_blocks(tried: TrialResult) -> list[Block]:
    if tried.problem:
        return [NoticeBlock("error", tried.problem, tried.fix)]
    sent = tried.usage.input + tried.usage.cache_read + tried.usage.cache_write
    tokens = f"{sent:,} tokens in, {tried.usage.output:,} out"
    cost = f" · {format_cost(tried.cost)}" if tried.cost is not None else ""
    answer: Block = VerbatimBlock(tried.text) if tried.text else text_block("it answered, in thoughts alone", "dim")
    return [answer, text_block(f"{tokens}{cost} · {tried.seconds:.1f}s", "dim")]


def _local_note(standing: ModelStatus, name: str) -> str:
    models = standing.local.get(name, [])
    more = f" and {len(models) - 3} more" if len(models) > 3 else ""
    return f"{', '.join(models[:3])}{more}" if models else "does not answer"


def _other_choice(kitbag_home: str, name: str) -> list[Block]:
    """Warns if another setting overrides what was just saved."""
    from kitbag.assembly.model_sources import load_model_sources
    from kitbag.models.model_selection import select_model
    from kitbag.settings import load_settings

    try:
        chosen = select_model(load_model_sources(load_settings(kitbag_home, ()))[0])
    except KitbagError as error:
        return [NoticeBlock("warning", error.problem, error.fix)]
    if chosen.name == name:
        return []
    return [
        NoticeBlock(
            "warning", f"{chosen.name} is used all the same: {chosen.reason}", "take that away to use the other"
        )
    ]
