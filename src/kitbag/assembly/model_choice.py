"""The model of a run: what the person says, what the session had, what its agent or persona would like.

Used by runtime/agent. An agent's or persona's wish that can't be had is told, and the person's usual model is used.
"""

from collections.abc import Callable
from typing import NamedTuple

from kitbag.agent.session_records import Header
from kitbag.errors import InvalidError, KitbagError
from kitbag.events import Notice
from kitbag.library.agents import Agent as AgentFile
from kitbag.library.registry import NOBODY, Registry
from kitbag.models.catalog import look_up
from kitbag.models.model_selection import Chosen, Sources, choose
from kitbag.models.provider import Provider


class Wishes(NamedTuple):
    flag: str = ""
    session: str = ""
    """What it ran with before."""
    files: tuple[str, ...] = ()
    """Of the agent's file and its alternatives, or of the persona's; the first that can be had."""
    usual: Chosen | None = None
    """Of whoever starts the agent; else what the person usually has."""


def choose_model(sources: Sources, wishes: Wishes, note: Callable[[Notice], None]) -> tuple[Chosen, Provider]:
    """Raises UsageError and InvalidError for what the person said."""
    # `offline` was no wish: a model that is there by now takes over.
    said = wishes.flag or (wishes.session if wishes.session != "offline" else "")
    if said:
        return _connected(choose(sources, said, wishes.usual))
    files = [name for name in wishes.files if name not in ("", "inherit")]
    usual = wishes.usual or choose(sources)
    for name in files:
        try:
            if name.partition(":")[0] == "scripted":
                raise InvalidError("a file can't choose a script", "give it with --model")
            return _connected(choose(sources, name, usual))
        except KitbagError as error:
            note(Notice("warning", f"the model {name!r} can't be had: {error.problem}", error.fix))
    return _connected(usual)


def _connected(chosen: Chosen) -> tuple[Chosen, Provider]:
    return chosen, chosen.connect()


def model_of_run(
    sources: Sources,
    said: str,
    header: Header,
    library: Registry,
    agent: AgentFile | None,
    note: Callable[[Notice], None],
) -> tuple[Chosen, Provider]:
    """`said`: by the person, now. `header`: of the session as it was until now, empty for a new one."""
    if agent is not None:
        return choose_model(sources, Wishes(said, header.model, (agent.model.name, *agent.model.alternatives)), note)
    wish = library.persona.default_model if library.persona is not None else ""
    # A session keeps its model, but not the one that another persona had wanted.
    keeps = header.model_said or wish == _wished_before(header, library)
    return choose_model(sources, Wishes(said, header.model if keeps else "", (wish,)), note)


def _wished_before(header: Header, library: Registry) -> str:
    """By the persona that the session had."""
    now = library.persona
    if not header.persona or header.persona == NOBODY:
        return ""
    before = now if now is not None and now.full_name == header.persona else library.personas.exact(header.persona)
    return before.default_model if before is not None else ""


def given_model(provider: Provider, name: str, sources: Sources) -> Chosen:
    """For a provider that is already there."""
    full = f"{provider.name}/{name.rpartition('/')[2]}" if name else provider.name
    return Chosen(provider.name, full.rpartition("/")[2], look_up(full, sources.models), "given", lambda: provider)
