"""Chooses the model of a run: the user's choice, the session's model, or what its agent or persona prefers.

Used by agent_resources, switch_persona, reload and tasks/subagent. If the preference of an agent or persona is not
available, a notice says so and the user's default is used.
"""

from collections.abc import Callable

import msgspec

from kitbag.agent.session_records import SessionHeader
from kitbag.errors import InvalidError, KitbagError
from kitbag.events import Notice
from kitbag.library.agents import AgentFile as AgentFile
from kitbag.library.registry import NO_PERSONA, Registry
from kitbag.models.catalog import look_up_model
from kitbag.models.model_selection import ModelSources, SelectedModel, select_model
from kitbag.models.provider import Provider


class ModelPreferences(msgspec.Struct, frozen=True, kw_only=True):
    flag: str = ""
    session: str = ""
    """The model that the session used before."""
    files: tuple[str, ...] = ()
    """Preferred by the agent's definition, with alternatives, or by the persona; the first available one is used."""
    usual: SelectedModel | None = None
    """The parent agent's model; else the user's default is used."""


def choose_model(
    sources: ModelSources, preferences: ModelPreferences, emit_notice: Callable[[Notice], None]
) -> tuple[SelectedModel, Provider]:
    """Raises UsageError and InvalidError for the user's own choice."""
    # `offline` was not a choice: an available model replaces it.
    explicit = preferences.flag or (preferences.session if preferences.session != "offline" else "")
    if explicit:
        return _connect(select_model(sources, explicit, preferences.usual))
    files = [name for name in preferences.files if name not in ("", "inherit")]
    default = preferences.usual or select_model(sources)
    for name in files:
        try:
            if name.partition(":")[0] == "scripted":
                raise InvalidError("scripted models cannot be set in a file", "use --model")
            return _connect(select_model(sources, name, default))
        except KitbagError as error:
            emit_notice(
                Notice(severity="warning", text=f"the model {name!r} is not available: {error.problem}", fix=error.fix)
            )
    return _connect(default)


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
    """`requested`: by the user, for this run. `header`: of the session so far; empty for a new one."""
    if agent is not None:
        return choose_model(
            sources,
            ModelPreferences(flag=requested, session=header.model, files=(agent.model.name, *agent.model.alternatives)),
            emit_notice,
        )
    preferred = library.persona.default_model if library.persona is not None else ""
    # A session keeps its model, unless a different persona preferred it.
    keeps_model = header.model_said or preferred == _previous_persona_model(header, library)
    return choose_model(
        sources,
        ModelPreferences(flag=requested, session=header.model if keeps_model else "", files=(preferred,)),
        emit_notice,
    )


def _previous_persona_model(header: SessionHeader, library: Registry) -> str:
    """The preference of the session's persona."""
    current = library.persona
    if not header.persona or header.persona == NO_PERSONA:
        return ""
    previous = (
        current
        if current is not None and current.full_name == header.persona
        else library.personas.get_exact(header.persona)
    )
    return previous.default_model if previous is not None else ""


def override_model(provider: Provider, name: str, sources: ModelSources) -> SelectedModel:
    """For a provider that the caller passed in."""
    full = f"{provider.name}/{name.rpartition('/')[2]}" if name else provider.name
    return SelectedModel(
        provider=provider.name,
        model=full.rpartition("/")[2],
        info=look_up_model(full, sources.models),
        reason="given",
        connect=lambda: provider,
    )
