"""The setup dialog: connects a model, tries it and writes the settings.

Used by cli/setup and by `/model`. Uses runtime/connect_model to detect, try and save. Canceling any step writes
nothing. API keys are entered in a secret form and never shown.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import Final

import msgspec

from kitbag.chat.ui import ChatUI
from kitbag.dialogs.form import Form, FormOption
from kitbag.errors import KitbagError
from kitbag.models.catalog import model_aliases
from kitbag.models.list_models import list_models
from kitbag.models.local_servers import LOCAL_PORTS
from kitbag.models.model_selection import ProviderSettings, key_variable
from kitbag.runtime import connect_model
from kitbag.runtime.connect_model import ModelSetup, ModelStatus, TrialResult
from kitbag.store.api_keys import is_variable_name
from kitbag.text.human_format import format_cost, format_count, shorten_path
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
_KEY_LABELS: Final = {
    "environment": "set in the environment",
    "kept": "stored by setup",
    "missing": "not set",
    "not needed": "not needed",
}


_MAX_SHOWN: Final = 15
"""Models in one form."""
_MAX_NAME_LENGTH: Final = 200


def no_model_notice() -> NoticeBlock:
    return NoticeBlock(
        "info",
        "no model connected: `offline` answers from your files and skills only",
        "connect one with /model or `kitbag setup`, or set ANTHROPIC_API_KEY or OPENAI_API_KEY and restart",
    )


async def run_setup(ui: ChatUI, kitbag_home: str) -> bool:
    """Returns whether something was saved. Raises KitbagError if saving fails."""
    status = await asyncio.to_thread(connect_model.load_model_status, kitbag_home)
    ui.show(*setup_status_blocks(status))
    return await _SetupDialog(ui, kitbag_home, status).run()


def setup_status_blocks(status: ModelStatus) -> list[Block]:
    """Shows names of variables and providers, never a key."""
    chosen = status.chosen
    blocks: list[Block] = [
        FieldsBlock(
            (
                ("model", chosen.name if chosen is not None else "none"),
                ("reason", chosen.reason if chosen is not None else ""),
                ("problem", f"{status.problem}; {status.fix}" if status.problem else ""),
                ("settings", shorten_path(status.settings_file)),
            )
        )
    ]
    rows = [
        (one.name, one.key_variable or "-", _KEY_LABELS[one.key], one.address or one.problem)
        for one in status.providers
        if one.name not in LOCAL_PORTS or one.name in status.local
    ]
    blocks.append(TableBlock(headers=("PROVIDER", "KEY", "STATUS", "URL"), rows=tuple(rows)))
    if not status.local:
        blocks.append(text_block("no local model server found (Ollama, llama.cpp, vLLM, LM Studio)", "dim"))
    blocks += [
        NoticeBlock(found.severity, f"{found.place}: {found.problem}", found.fix) for found in status.diagnostics
    ]
    return blocks


class _CanceledError(Exception):
    """The user canceled."""


class _BackError(Exception):
    """Back to the first question."""


class _SetupDialog:
    def __init__(self, ui: ChatUI, kitbag_home: str, status: ModelStatus) -> None:
        self._ui = ui
        self._home = kitbag_home
        self._status = status
        self._missing_variable = ""
        """The variable for the key, if it is not set yet: then the model can't be tried."""

    async def run(self) -> bool:
        while True:
            try:
                return await self._run_once()
            except _BackError:
                continue
            except _CanceledError:
                self._ui.show(text_block("canceled; nothing was saved", "dim"))
                return False

    async def _run_once(self) -> bool:
        self._missing_variable = ""
        model_setup = await self._choose_provider()
        if model_setup.provider == "offline":
            return self._save(model_setup, "needs no key and no network")
        if model_setup.provider not in LOCAL_PORTS:
            model_setup = await self._choose_key(model_setup)
        model_setup = await self._choose_model(model_setup)
        if self._missing_variable:
            return self._save(model_setup, f"takes effect once {self._missing_variable} is set")
        while True:
            trial = await self._try(model_setup)
            if not trial.problem:
                return self._save(model_setup, "test request succeeded")
            match await self._after_failure(model_setup, trial):
                case "s":
                    return self._save(model_setup, "not verified")
                case "k":
                    model_setup = await self._choose_key(model_setup, again=True)
                case "m":
                    model_setup = await self._choose_model(model_setup)
                case _:
                    pass

    # Provider

    async def _choose_provider(self) -> ModelSetup:
        states = {one.name: one for one in self._status.providers}
        options: list[FormOption] = []
        names: list[str] = []
        for name in ("anthropic", "openai", "openrouter"):
            state = states[name]
            note = f"key {_KEY_LABELS[state.key]} ({state.key_variable})" if state.has_key else "needs a key"
            options.append(FormOption(key=str(len(options) + 1), label=_NAMES[name], note=note))
            names.append(name)
        found = ", ".join(_NAMES[name] for name in self._status.local)
        options.append(
            FormOption(key="4", label="a local model", note=f"found: {found}" if found else "no server found")
        )
        options.append(FormOption(key="5", label="another server", note="with an OpenAI- or Anthropic-compatible API"))
        options.append(FormOption(key="6", label="offline", note="no model, no network; answers from files and skills"))
        own = [one for one in self._status.providers if one.name not in _NAMES]
        options += [
            FormOption(key=str(7 + at), label=one.name, note=one.address or one.problem) for at, one in enumerate(own)
        ]
        key = await self._ask_option("Choose a provider", options)
        match key:
            case "4":
                return await self._choose_local()
            case "5":
                return await self._choose_address()
            case "6":
                return ModelSetup(provider="offline", model="offline")
            case _:
                names += ["", "", "", *(one.name for one in own)]
                return ModelSetup(provider=names[int(key) - 1])

    async def _choose_local(self) -> ModelSetup:
        names = list(LOCAL_PORTS)
        options = [
            FormOption(key=str(at), label=_NAMES[name], note=_local_note(self._status, name))
            for at, name in enumerate(names, 1)
        ]
        default = next((str(names.index(name) + 1) for name in self._status.local), "")
        name = names[int(await self._ask_option("Choose a server", options, default)) - 1]
        if name in self._status.local:
            return ModelSetup(provider=name)
        default_address = next(one.address for one in self._status.providers if one.name == name)
        address = await self._ask_address("No server found. Base URL:", default_address, "chat")
        return ModelSetup(
            provider=name, own=ProviderSettings(base_url=address) if address != default_address else ProviderSettings()
        )

    async def _choose_address(self) -> ModelSetup:
        protocols = ("chat", "responses", "anthropic")
        options = (
            FormOption(key="1", label="OpenAI Chat Completions", note="used by most servers"),
            FormOption(key="2", label="OpenAI Responses"),
            FormOption(key="3", label="Anthropic Messages"),
        )
        protocol = protocols[int(await self._ask_option("Choose its API", options, "1")) - 1]
        address = await self._ask_address("Base URL:", "", protocol)
        sources = connect_model.preview_sources(self._home, ModelSetup(provider=""))
        name, problem = "", ""
        while not name or problem:
            above = (NoticeBlock("error", problem),) if problem else ()
            name = await self._ask_text("Provider name:", "a name such as lab", above=above)
            problem = connect_model.name_problem(name, sources)
        return ModelSetup(provider=name, own=ProviderSettings(base_url=address, protocol=protocol))

    async def _ask_address(self, prompt: str, text: str, protocol: str) -> str:
        problem = ""
        while True:
            above = (NoticeBlock("error", problem),) if problem else ()
            text = await self._ask_text(prompt, "a URL such as http://10.0.0.5:8000/v1", text, above=above)
            problem = connect_model.address_problem(text)
            if not problem:
                return connect_model.complete_address(text, protocol)

    # API key

    async def _choose_key(self, model_setup: ModelSetup, *, again: bool = False) -> ModelSetup:
        sources = connect_model.preview_sources(self._home, model_setup)
        variable = connect_model.default_key_variable(model_setup.provider, sources)
        is_set = bool(sources.environment.get(variable, "").strip())
        needs = model_setup.provider in _KEY_PAGES
        options = [FormOption(key="u", label=f"use the key in {variable}")] if is_set and not again else []
        options += [
            FormOption(
                key="v", label="read it from an environment variable", note="recommended; Kitbag stores nothing"
            ),
            FormOption(
                key="t",
                label="enter it now",
                note=f"stored in {shorten_path(self._status.keys_file)}, readable only by you",
            ),
        ]
        options += [] if needs else [FormOption(key="0", label="no key needed")]
        options.append(FormOption(key="b", label="back"))
        page = _KEY_PAGES.get(model_setup.provider, "")
        above = (text_block(f"Create a key at {page}", "dim"),) if page and not is_set else ()
        address = connect_model.unprotected_address(model_setup.provider, sources)
        if address:
            problem = f"{address} is not encrypted; the key can be read in transit"
            above = (*above, NoticeBlock("warning", problem, "use https"))
        default = "u" if is_set and not again else ""
        match await self._ask_option("API key:", options, default, above):
            case "u":
                return msgspec.structs.replace(model_setup, own=self._with_variable(model_setup, variable), key="")
            case "v":
                return await self._name_variable(model_setup, variable)
            case "t":
                return await self._type_key(model_setup)
            case "0":
                return model_setup
            case _:
                raise _BackError

    async def _name_variable(self, model_setup: ModelSetup, default_variable: str) -> ModelSetup:
        variable = default_variable
        problem = ""
        while True:
            above = (NoticeBlock("error", problem),) if problem else ()
            variable = await self._ask_text(
                "Variable name:", "the name of the variable, not the key", variable, above=above
            )
            if is_variable_name(variable):
                break
            # The user may have pasted the key itself: don't show it again.
            variable, problem = (
                default_variable,
                "not a variable name: use only letters, digits and _, and don't enter the key itself here",
            )
        with_variable = msgspec.structs.replace(model_setup, own=self._with_variable(model_setup, variable), key="")
        if os.environ.get(variable, "").strip():
            return with_variable
        above = (
            text_block(f"{variable} is not set. Add this line to your shell profile (~/.profile, ~/.zshrc):"),
            VerbatimBlock(f"export {variable}='your key'"),
            text_block("Then open a new shell and run `kitbag setup` again to test the model."),
        )
        options = (FormOption(key="w", label="choose a model and save it untested"), FormOption(key="b", label="back"))
        if await self._ask_option("The model can't be tested without the key. Continue?", options, above=above) != "w":
            raise _BackError
        self._missing_variable = variable
        return with_variable

    def _with_variable(self, model_setup: ModelSetup, variable: str) -> ProviderSettings:
        """Saved only if it is not the default name."""
        default_variable = key_variable(
            model_setup.provider, connect_model.preview_sources(self._home, ModelSetup(provider=""))
        )
        return msgspec.structs.replace(model_setup.own, key_env="" if default_variable == variable else variable)

    async def _type_key(self, model_setup: ModelSetup) -> ModelSetup:
        sources = connect_model.preview_sources(self._home, model_setup)
        variable = connect_model.variable_for_new_key(model_setup.provider, sources)
        above: tuple[Block, ...] = ()
        while True:
            form = Form(
                prompt="API key:", above=above, free_text_hint="only the key", secret=True, cancel_effect="go back"
            )
            form_answer = await self._ui.ask(form)
            if form_answer is None:
                raise _BackError
            key = form_answer.text.strip()
            problem = connect_model.typed_key_problem(model_setup.provider, key)
            if not problem:
                return msgspec.structs.replace(model_setup, own=self._with_variable(model_setup, variable), key=key)
            above = (NoticeBlock("error", problem),)

    # Model and trial

    async def _choose_model(self, model_setup: ModelSetup) -> ModelSetup:
        model = await ask_for_model(self._ui, self._home, model_setup)
        if not model:
            raise _BackError
        return msgspec.structs.replace(model_setup, model=model)

    async def _try(self, model_setup: ModelSetup) -> TrialResult:
        self._ui.show(text_block(f"testing {model_setup.provider}/{model_setup.model} …", "dim"))
        trial = await connect_model.try_model(self._home, model_setup)
        self._ui.show(*trial_blocks(trial))
        return trial

    async def _after_failure(self, model_setup: ModelSetup, trial: TrialResult) -> str:
        options = [
            FormOption(key="a", label="try again"),
            *([FormOption(key="k", label="another key")] if model_setup.provider not in LOCAL_PORTS else []),
            FormOption(key="m", label="another model"),
            FormOption(key="s", label="save anyway"),
            FormOption(key="b", label="start over"),
        ]
        default = {"key": "k", "model": "m"}.get(trial.blames, "a")
        default = default if any(option.key == default for option in options) else "a"
        key = await self._ask_option("The test failed. What next?", options, default)
        if key == "b":
            raise _BackError
        return key

    def _save(self, model_setup: ModelSetup, result: str) -> bool:
        connect_model.save_model_setup(self._home, model_setup)
        name = f"{model_setup.provider}/{model_setup.model}" if model_setup.provider != "offline" else "offline"
        path = shorten_path(self._status.settings_file)
        self._ui.show(text_block(f"model set to {name} ({result}); saved to {path}", "good"))
        if model_setup.key:
            self._ui.show(
                text_block(f"key stored in {shorten_path(self._status.keys_file)}, readable only by you", "good")
            )
        self._ui.show(*_override_notice(self._home, name))
        return True

    # Forms

    async def _ask_option(
        self, prompt: str, options: Sequence[FormOption], default: str = "", above: tuple[Block, ...] = ()
    ) -> str:
        form_answer = await self._ui.ask(Form(prompt=prompt, options=tuple(options), above=above, default=default))
        if form_answer is None or not form_answer.keys:
            raise _CanceledError
        return form_answer.keys[0]

    async def _ask_text(self, prompt: str, free_text_hint: str, text: str = "", above: tuple[Block, ...] = ()) -> str:
        form_answer = await self._ui.ask(
            Form(
                prompt=prompt,
                above=above,
                free_text_hint=free_text_hint,
                initial_text=text,
                cancel_effect="go back",
            )
        )
        if form_answer is None or not form_answer.text.strip():
            raise _BackError
        return form_answer.text.strip()


async def ask_for_model(ui: ChatUI, kitbag_home: str, model_setup: ModelSetup) -> str:
    """Asks for one of a provider's models: by number, by name, or by part of a name. Empty if the user goes back."""
    alias_targets = list(
        dict.fromkeys(model_aliases(model_setup.provider).get(word, "") for word in ("default", "opus", "fast"))
    )
    known_models = [name for name in alias_targets if name]
    try:
        offered = await list_models(model_setup.provider, connect_model.preview_sources(kitbag_home, model_setup))
    except KitbagError as error:
        ui.show(NoticeBlock("error", error.problem, error.fix))
        return ""
    # Recommended models come first if the provider offers them.
    recommended = [name for name in known_models if not offered or any(one.startswith(name) for one in offered)]
    all_models = list(dict.fromkeys((*recommended, *offered)))
    shown, above = all_models, _describe_offered(offered, all_models)
    while True:
        options = tuple(FormOption(key=str(at), label=name) for at, name in enumerate(shown[:_MAX_SHOWN], 1))
        form = Form(
            prompt="Choose a model",
            options=options,
            above=above,
            free_text_hint="a model name, or part of it",
            default="1" if options else "",
        )
        form_answer = await ui.ask(form)
        if form_answer is None:
            return ""
        if form_answer.keys:
            return shown[int(form_answer.keys[0]) - 1]
        name = form_answer.text.strip().removeprefix(f"{model_setup.provider}/")
        if not name:
            return ""
        matching = [one for one in all_models if name.lower() in one.lower()]
        if name in all_models or not matching:
            if len(name) <= _MAX_NAME_LENGTH and name.isprintable() and not any(char.isspace() for char in name):
                return name
            above = (
                NoticeBlock(
                    "error", f"invalid model name: use up to {_MAX_NAME_LENGTH} printable characters, no spaces"
                ),
            )
            continue
        shown, above = matching, (text_block(f"{format_count(len(matching), 'model')} matching {name}", "dim"),)


def _describe_offered(offered: list[str], all_models: list[str]) -> tuple[Block, ...]:
    if not offered:
        return (text_block("the provider did not list its models; type any model name", "dim"),)
    more = f"; showing the first {_MAX_SHOWN}" if len(all_models) > _MAX_SHOWN else ""
    return (text_block(f"{format_count(len(offered), 'model')} available{more}", "dim"),)


def trial_blocks(trial: TrialResult) -> list[Block]:
    if trial.problem:
        return [NoticeBlock("error", trial.problem, trial.fix)]
    sent = trial.usage.input + trial.usage.cache_read + trial.usage.cache_write
    tokens = f"{sent:,} tokens in, {trial.usage.output:,} out"
    cost = f" · {format_cost(trial.cost)}" if trial.cost is not None else ""
    answer: Block = VerbatimBlock(trial.text) if trial.text else text_block("the reply contains only thinking", "dim")
    return [answer, text_block(f"{tokens}{cost} · {trial.seconds:.1f}s", "dim")]


def _local_note(status: ModelStatus, name: str) -> str:
    models = status.local.get(name, [])
    more = f" and {len(models) - 3} more" if len(models) > 3 else ""
    return f"{', '.join(models[:3])}{more}" if models else "not running"


def _override_notice(kitbag_home: str, name: str) -> list[Block]:
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
        NoticeBlock("warning", f"{chosen.name} is still used: {chosen.reason}", f"remove that setting to use {name}")
    ]
