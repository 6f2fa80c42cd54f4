"""`kitbag setup` and the offer in the chat: a dialogue that connects a model, tries it, and writes it down.

Uses runtime/connecting for what is found, tried and written. Each step may be left: then nothing was written. A key is
typed into a secret form and never shown.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import Final

from kitbag.chat.setup_model import ask_for_model
from kitbag.chat.ui import Face, Form, Option
from kitbag.errors import KitbagError
from kitbag.models.local_servers import PORTS
from kitbag.models.model_selection import ProviderSettings, key_variable
from kitbag.runtime import connect_model
from kitbag.runtime.connect_model import Standing, Tried, Wanted
from kitbag.store.api_keys import is_variable
from kitbag.text.human_format import money, short_path
from kitbag.views.blocks import Block, Fields, Remark, Table, Verbatim, words

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


def how_to_connect() -> Remark:
    return Remark(
        "info",
        "no model is connected: offline answers from your files and skills",
        "connect one with /model or kitbag setup, or set ANTHROPIC_API_KEY or OPENAI_API_KEY and start again",
    )


async def offer_setup(face: Face, kitbag_home: str) -> bool:
    """Whether something was written. Raises KitbagError where it can't be written."""
    standing = await asyncio.to_thread(connect_model.look, kitbag_home)
    face.show(*standing_blocks(standing))
    return await _Dialogue(face, kitbag_home, standing).run()


def standing_blocks(standing: Standing) -> list[Block]:
    """What is there, in names: no key is among it."""
    chosen = standing.chosen
    blocks: list[Block] = [
        Fields(
            (
                ("used now", chosen.name if chosen is not None else "nothing"),
                ("because", chosen.why if chosen is not None else ""),
                ("can't be used", f"{standing.problem}; {standing.fix}" if standing.problem else ""),
                ("settings", short_path(standing.settings_file)),
            )
        )
    ]
    rows = [
        (one.name, one.key_variable or "-", _KEY_WORDS[one.key], one.address or one.problem)
        for one in standing.providers
        if one.name not in PORTS or one.name in standing.local
    ]
    blocks.append(Table(("PROVIDER", "KEY", "IS", "ADDRESS"), tuple(rows)))
    if not standing.local:
        blocks.append(words("no model server answers on this machine (Ollama, llama.cpp, vLLM, LM Studio)", "dim"))
    blocks += [Remark(found.severity, f"{found.place}: {found.problem}", found.fix) for found in standing.diagnostics]
    return blocks


class _LeftError(Exception):
    """The person went no further."""


class _BackError(Exception):
    """To the first question."""


class _Dialogue:
    def __init__(self, face: Face, kitbag_home: str, standing: Standing) -> None:
        self._face = face
        self._home = kitbag_home
        self._standing = standing
        self._waits_for = ""
        """The variable that is to hold the key and is not set yet: then nothing can be tried."""

    async def run(self) -> bool:
        while True:
            try:
                return await self._once()
            except _BackError:
                continue
            except _LeftError:
                self._face.show(words("nothing was written", "dim"))
                return False

    async def _once(self) -> bool:
        self._waits_for = ""
        wanted = await self._choose_provider()
        if wanted.provider == "offline":
            return self._save(wanted, "offline needs no key and no network")
        if wanted.provider not in PORTS:
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

    # Which provider

    async def _choose_provider(self) -> Wanted:
        states = {one.name: one for one in self._standing.providers}
        options: list[Option] = []
        names: list[str] = []
        for name in ("anthropic", "openai", "openrouter"):
            state = states[name]
            note = f"a key is {_KEY_WORDS[state.key]} ({state.key_variable})" if state.has_key else "needs a key"
            options.append(Option(str(len(options) + 1), _NAMES[name], note))
            names.append(name)
        found = ", ".join(_NAMES[name] for name in self._standing.local)
        options.append(Option("4", "a model on this machine", f"{found} answers" if found else "none answers now"))
        options.append(Option("5", "another address", "that speaks OpenAI's or Anthropic's protocol"))
        options.append(Option("6", "stay offline", "no model, no network: finds, loads and quotes"))
        own = [one for one in self._standing.providers if one.name not in _NAMES]
        options += [Option(str(7 + at), one.name, one.address or one.problem) for at, one in enumerate(own)]
        key = await self._pick("Which model shall answer?", options)
        match key:
            case "4":
                return await self._choose_local()
            case "5":
                return await self._choose_address()
            case "6":
                return Wanted("offline", "offline")
            case _:
                names += ["", "", "", *(one.name for one in own)]
                return Wanted(names[int(key) - 1])

    async def _choose_local(self) -> Wanted:
        names = list(PORTS)
        options = [Option(str(at), _NAMES[name], _local_note(self._standing, name)) for at, name in enumerate(names, 1)]
        default = next((str(names.index(name) + 1) for name in self._standing.local), "")
        name = names[int(await self._pick("Which server?", options, default)) - 1]
        if name in self._standing.local:
            return Wanted(name)
        usual = next(one.address for one in self._standing.providers if one.name == name)
        address = await self._ask_address("Nobody answers there. Where does it listen?", usual, "chat")
        return Wanted(name, own=ProviderSettings(base_url=address) if address != usual else ProviderSettings())

    async def _choose_address(self) -> Wanted:
        protocols = ("chat", "responses", "anthropic")
        options = (
            Option("1", "OpenAI's chat completions", "what most servers speak"),
            Option("2", "OpenAI's responses"),
            Option("3", "Anthropic's messages"),
        )
        protocol = protocols[int(await self._pick("What does it speak?", options, "1")) - 1]
        address = await self._ask_address("Its address:", "", protocol)
        sources = connect_model.sources_with(self._home, Wanted(""))
        name, problem = "", ""
        while not name or problem:
            above = (Remark("error", problem),) if problem else ()
            name = await self._write("A name for it, of your own:", "such as lab", above=above)
            problem = connect_model.name_problem(name, sources)
        return Wanted(name, own=ProviderSettings(address, protocol))

    async def _ask_address(self, prompt: str, text: str, protocol: str) -> str:
        problem = ""
        while True:
            above = (Remark("error", problem),) if problem else ()
            text = await self._write(prompt, "such as http://10.0.0.5:8000/v1", text, above=above)
            problem = connect_model.address_problem(text)
            if not problem:
                return connect_model.whole_address(text, protocol)

    # Which key

    async def _choose_key(self, wanted: Wanted, *, again: bool = False) -> Wanted:
        sources = connect_model.sources_with(self._home, wanted)
        variable = connect_model.usual_variable(wanted.provider, sources)
        is_there = bool(sources.environment.get(variable, "").strip())
        needs = wanted.provider in _KEY_PAGES
        options = [Option("u", f"use the key that is there, in {variable}")] if is_there and not again else []
        options += [
            Option("v", "it is in an environment variable", "recommended: Kitbag keeps nothing"),
            Option("t", "type it", f"kept in {short_path(self._standing.keys_file)}, which only you can read"),
        ]
        options += [] if needs else [Option("0", "it needs none")]
        options.append(Option("b", "back"))
        page = _KEY_PAGES.get(wanted.provider, "")
        above = (words(f"Keys are made at {page}", "dim"),) if page and not is_there else ()
        address = connect_model.unprotected_address(wanted.provider, sources)
        if address:
            problem = f"{address} is not encrypted: the key can be read on the way"
            above = (*above, Remark("warning", problem, "use https"))
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

    async def _name_variable(self, wanted: Wanted, usual: str) -> Wanted:
        variable = usual
        problem = ""
        while True:
            above = (Remark("error", problem),) if problem else ()
            variable = await self._write("Its name:", "of the variable, not the key", variable, above=above)
            if is_variable(variable):
                break
            # Somebody may have pasted the key itself: it is not shown again.
            variable, problem = usual, "a variable's name has letters, digits and _; the key itself does not go here"
        named = wanted._replace(own=self._with_variable(wanted, variable), key="")
        if os.environ.get(variable, "").strip():
            return named
        above = (
            words(f"{variable} is not set here. Add this line to your shell's profile (~/.profile, ~/.zshrc):"),
            Verbatim(f"export {variable}='…the key…'"),
            words("Open a new shell then, and run `kitbag setup` once more to see whether it works."),
        )
        options = (Option("w", "choose a model and write it down now, untried"), Option("b", "back"))
        if await self._pick("Without the key nothing can be tried.", options, above=above) != "w":
            raise _BackError
        self._waits_for = variable
        return named

    def _with_variable(self, wanted: Wanted, variable: str) -> ProviderSettings:
        """Written only where it is not the name that is looked at anyway."""
        usual = key_variable(wanted.provider, connect_model.sources_with(self._home, Wanted("")))
        return wanted.own._replace(key_env="" if usual == variable else variable)

    async def _type_key(self, wanted: Wanted) -> Wanted:
        sources = connect_model.sources_with(self._home, wanted)
        variable = connect_model.variable_to_keep(wanted.provider, sources)
        above: tuple[Block, ...] = ()
        while True:
            form = Form("The key (what you type is not shown):", above=above, free="the key alone", secret=True)
            filled = await self._face.ask(form)
            if filled is None:
                raise _BackError
            key = filled.text.strip()
            problem = connect_model.typed_key_problem(wanted.provider, key)
            if not problem:
                return wanted._replace(own=self._with_variable(wanted, variable), key=key)
            above = (Remark("error", problem),)

    # Which model, and whether it works

    async def _choose_model(self, wanted: Wanted) -> Wanted:
        model = await ask_for_model(self._face, self._home, wanted)
        if not model:
            raise _BackError
        return wanted._replace(model=model)

    async def _try(self, wanted: Wanted) -> Tried:
        self._face.show(words(f"asking {wanted.provider}/{wanted.model} …", "dim"))
        tried = await connect_model.try_model(self._home, wanted)
        self._face.show(*tried_blocks(tried))
        return tried

    async def _after_failure(self, wanted: Wanted, tried: Tried) -> str:
        options = [
            Option("a", "try again"),
            *([Option("k", "another key")] if wanted.provider not in PORTS else []),
            Option("m", "another model"),
            Option("s", "write it down all the same"),
            Option("b", "back to the beginning"),
        ]
        default = {"key": "k", "model": "m"}.get(tried.blames, "a")
        default = default if any(option.key == default for option in options) else "a"
        key = await self._pick("What now?", options, default)
        if key == "b":
            raise _BackError
        return key

    def _save(self, wanted: Wanted, how: str) -> bool:
        connect_model.save(self._home, wanted)
        name = f"{wanted.provider}/{wanted.model}" if wanted.provider != "offline" else "offline"
        place = short_path(self._standing.settings_file)
        self._face.show(words(f"{name} is your model from now on: {how}. Written to {place}.", "good"))
        if wanted.key:
            self._face.show(words(f"The key is kept in {short_path(self._standing.keys_file)}, for you alone.", "good"))
        self._face.show(*_other_choice(self._home, name))
        return True

    # Forms

    async def _pick(
        self, prompt: str, options: Sequence[Option], default: str = "", above: tuple[Block, ...] = ()
    ) -> str:
        filled = await self._face.ask(Form(prompt, tuple(options), above, default=default, leaving=_LEAVING))
        if filled is None or not filled.keys:
            raise _LeftError
        return filled.keys[0]

    async def _write(self, prompt: str, free: str, text: str = "", above: tuple[Block, ...] = ()) -> str:
        filled = await self._face.ask(Form(prompt, above=above, free=free, text=text))
        if filled is None or not filled.text.strip():
            raise _BackError
        return filled.text.strip()


def tried_blocks(tried: Tried) -> list[Block]:
    if tried.problem:
        return [Remark("error", tried.problem, tried.fix)]
    sent = tried.usage.input + tried.usage.cache_read + tried.usage.cache_write
    tokens = f"{sent:,} tokens in, {tried.usage.output:,} out"
    cost = f" · {money(tried.cost)}" if tried.cost is not None else ""
    answer: Block = Verbatim(tried.text) if tried.text else words("it answered, in thoughts alone", "dim")
    return [answer, words(f"{tokens}{cost} · {tried.seconds:.1f}s", "dim")]


def _local_note(standing: Standing, name: str) -> str:
    models = standing.local.get(name, [])
    more = f" and {len(models) - 3} more" if len(models) > 3 else ""
    return f"{', '.join(models[:3])}{more}" if models else "does not answer"


def _other_choice(kitbag_home: str, name: str) -> list[Block]:
    """Where something else wins over what was just written."""
    from kitbag.assembly.model_sources import model_sources
    from kitbag.models.model_selection import choose
    from kitbag.settings import load_settings

    try:
        chosen = choose(model_sources(load_settings(kitbag_home, ()))[0])
    except KitbagError as error:
        return [Remark("warning", error.problem, error.fix)]
    if chosen.name == name:
        return []
    return [Remark("warning", f"{chosen.name} is used all the same: {chosen.why}", "take that away to use the other")]
