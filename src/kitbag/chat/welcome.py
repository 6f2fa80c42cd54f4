"""The first words of a conversation and the last: who answers, what is at hand, and how to go on later."""

from collections.abc import Iterable

from kitbag.assembly.environment import told_left_out
from kitbag.errors import KitbagError
from kitbag.events import Notice
from kitbag.runtime.agent import Agent
from kitbag.text.human_format import count, short_home
from kitbag.views import trust
from kitbag.views.blocks import Block, Line, Lines, Remark, Span, words


def beginning(agent: Agent) -> list[Block]:
    library = agent.ground.library
    skills, agents = len(library.visible_skills()), len(library.visible_agents())
    persona = f" · {library.persona.full_name}" if library.persona is not None else ""
    known = f"{count(skills, 'skill')} and {count(agents, 'agent')}"
    lines: list[Line] = [
        (Span("Kitbag", "strong"), Span(f"  {agent.chosen.name} · {agent.permissions.mode}{persona}", "dim")),
        (Span(f"{short_home(agent.ground.places.cwd)} · {known} · /help tells what can be typed", "dim"),),
    ]
    if agent.session.lines():
        lines.append((Span(f"going on with {agent.session.id}: {agent.session.about}", "dim"),))
    blocks: list[Block] = [Lines(tuple(lines))]
    if agent.chosen.provider == "offline":
        from kitbag.chat.setup import how_to_connect

        blocks.append(how_to_connect())
    return blocks


def remarks(agent: Agent, notices: Iterable[Notice]) -> list[Block]:
    """What was told when it was opened. Who has just gone on without what the folder brings has seen it: numbers do."""
    if agent.ground.trust.is_open:
        return [Remark(*notice) for notice in notices]
    named = told_left_out(agent.ground)
    short = f"left out, since this folder is not trusted: {trust.contents(agent.ground.trust.items)}"
    fix = "/skills names the skills; leave and start again to be asked once more"
    return [Remark("info", short, fix) if notice in named else Remark(*notice) for notice in notices]


def goodbye(agent: Agent) -> list[Block]:
    """Nothing where nothing was said: then there is nothing to go on with."""
    if not agent.session.lines():
        return []
    blocks: list[Block] = [words(f"to go on: kitbag --resume {agent.session.id}", "dim")]
    try:
        left = agent.delegation.unfinished() if agent.delegation is not None else []
    except KitbagError as error:  # who leaves, leaves
        return [*blocks, Remark("warning", f"what is still at work can't be told: {error.problem}", error.fix)]
    if left:
        names = ", ".join(f"{one.name} {one.id}" for one in left)
        blocks.append(Remark("info", f"still at work in the background: {names}", "kitbag tasks watch"))
    return blocks
