"""The model of a run: what the person says, what the session had, what its agent or persona would like.

Used by runtime/agent. An agent's or persona's wish that can't be had is told, and the person's usual model is used.
"""

from collections.abc import Callable
from typing import NamedTuple

from kitbag.agent.session_records import SessionHeader
from kitbag.errors import InvalidError, KitbagError
from kitbag.events import Notice
from kitbag.library.agents import AgentFile as AgentFile
from kitbag.library.registry import NO_PERSONA, Registry
from kitbag.models.catalog import look_up_model
from kitbag.models.model_selection import ModelSources, SelectedModel, select_model
from kitbag.models.provider import Provider


class ModelPreferences(NamedTuple):
    flag: str = ""
    session: str = ""
    """What it ran with before."""
    files: tuple[str, ...] = ()
    """Of the agent's file and its alternatives, or of the persona's; the first that can be had."""
    usual: SelectedModel | None = None
    """Of whoever starts the agent; else what the person usually has."""


def choose_model(
    sources: ModelSources, preferences: ModelPreferences, emit_notice: Callable[[Notice], None]
) -> tuple[SelectedModel, Provider]:
    """Raises UsageError and InvalidError for what the person said."""
    # `offline` was no wish: a model that is there by now takes over.
    said = preferences.flag or (preferences.session if preferences.session != "offline" else "")
    if said:
        return _connect(select_model(sources, said, preferences.usual))
    files = [name for name in preferences.files if name not in ("", "inherit")]
    usual = preferences.usual or select_model(sources)
    for name in files:
        try:
            if name.partition(":")[0] == "scripted":
                raise InvalidError("a file can't choose a script", "give it with --model")
            return _connect(select_model(sources, name, usual))
        except KitbagError as error:
            emit_notice(Notice("warning", f"the model {name!r} can't be had: {error.problem}", error.fix))
    return _connect(usual)


def _connect(chosen: SelectedModel) -> tuple[SelectedModel, Provider]:
    return chosen, chosen.connect()


def choose_run_model(
    sources: ModelSources,
    requested: str,
    header: SessionHeader,
    library: Registry,
    agent: AgentFile | None,
    emit_notice: Callable[[Notice], None],
) -> tuple[SelectedModel, Provider]:
    """`said`: by the person, now. `header`: of the session as it was until now, empty for a new one."""
    if agent is not None:
        return choose_model(
            sources,
            ModelPreferences(requested, header.model, (agent.model.name, *agent.model.alternatives)),
            emit_notice,
        )
    wish = library.persona.default_model if library.persona is not None else ""
    # A session keeps its model, but not the one that another persona had wanted.
    keeps = header.model_said or wish == _previous_persona_model(header, library)
    return choose_model(sources, ModelPreferences(requested, header.model if keeps else "", (wish,)), emit_notice)


def _previous_persona_model(header: SessionHeader, library: Registry) -> str:
    """By the persona that the session had."""
    now = library.persona
    if not header.persona or header.persona == NO_PERSONA:
        return ""
    before = now if now is not None and now.full_name == header.persona else library.personas.get_exact(header.persona)
    return before.default_model if before is not None else ""


def override_model(provider: Provider, name: str, sources: ModelSources) -> SelectedModel:
    """For a provider that is already there."""
    full = f"{provider.name}/{name.rpartition('/')[2]}" if name else provider.name
    return SelectedModel(
        provider.name, full.rpartition("/")[2], look_up_model(full, sources.models), "given", lambda: provider
    )
