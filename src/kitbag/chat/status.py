"""How the conversation stands, for the status line: model, mode, persona, how full the window is, cost, tasks.

Used by chat on every change, so it reads nothing from disk.
"""

from kitbag.agent.compact import tokens_of
from kitbag.chat.background import Background
from kitbag.chat.ui import Status
from kitbag.runtime.agent import Agent
from kitbag.text.tokens import estimate_tokens


def status_of(agent: Agent, used: int, background: Background) -> Status:
    """`used`: the tokens of the last request with its reply, as the provider counted them."""
    persona = agent.ground.library.persona
    totals = agent.session.totals
    spent = background.cost
    return Status(
        agent.chosen.name,
        agent.permissions.mode_now,
        (persona.full_name if persona is not None else agent.ground.library.team) or agent.options.agent,
        used,
        agent.chosen.known.window,
        None if totals.unpriced or spent is None else totals.cost + spent,
        background.running,
        background.questions,
        agent.ground.places.cwd,
    )


def estimated_use(agent: Agent) -> int:
    """Before the provider has counted anything."""
    prompt = sum(estimate_tokens(block.text) for block in agent.system)
    tools = sum(len(spec.description) + len(str(spec.schema)) for spec in agent.toolset.specs()) // 4
    return prompt + tools + sum(tokens_of(message) for message in agent.session.messages())
