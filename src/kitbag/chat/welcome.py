"""The first and last blocks of a chat: model, mode and library at the start, how to resume at the end. Used by chat."""

from kitbag.errors import KitbagError
from kitbag.runtime.agent import Agent
from kitbag.text.human_format import format_count, shorten_home
from kitbag.views.blocks import Block, LinesBlock, NoticeBlock, Span, StyledLine, text_block


def welcome_blocks(agent: Agent) -> list[Block]:
    library = agent.environment.library
    skills, agents = len(library.visible_skills()), len(library.visible_agents())
    persona = f" · {library.persona.full_name}" if library.persona is not None else ""
    counts = f"{format_count(skills, 'skill')} and {format_count(agents, 'agent')}"
    lines: list[StyledLine] = [
        (Span("Kitbag", "strong"), Span(f"  {agent.chosen.name} · {agent.permissions.mode}{persona}", "dim")),
        (Span(f"{shorten_home(agent.environment.places.cwd)} · {counts} · type /help for commands", "dim"),),
    ]
    if agent.session.recorded_messages():
        lines.append((Span(f"resumed {agent.session.id}: {agent.session.about}", "dim"),))
    blocks: list[Block] = [LinesBlock(tuple(lines))]
    if agent.chosen.provider == "offline":
        from kitbag.chat.setup import no_model_notice

        blocks.append(no_model_notice())
    return blocks


def goodbye_blocks(agent: Agent) -> list[Block]:
    """Empty if no message was sent: there is nothing to resume."""
    if not agent.session.recorded_messages():
        return []
    blocks: list[Block] = [text_block(f"resume with: kitbag --resume {agent.session.id}", "dim")]
    try:
        if pending := len(agent.inbox.pending()):
            waiting = f"{format_count(pending, 'message')} not sent yet; resuming the session sends what waits"
            blocks.append(text_block(waiting, "dim"))
        unfinished = agent.delegation.unfinished() if agent.delegation is not None else []
    except KitbagError as error:  # an error must not keep the user from exiting
        return [*blocks, NoticeBlock("warning", f"can't list running background tasks: {error.problem}", error.fix)]
    if unfinished:
        names = ", ".join(f"{one.name} {one.id}" for one in unfinished)
        blocks.append(
            NoticeBlock("info", f"still running in the background: {names}", "watch them with `kitbag tasks watch`")
        )
    return blocks
