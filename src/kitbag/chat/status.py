"""Computes the status line: model, mode, persona, context use, cost, background tasks.

Used by chat on every change, so it reads nothing from disk.
"""

from kitbag.agent.compact import estimate_message_tokens
from kitbag.chat.background import BackgroundMonitor
from kitbag.chat.ui import ChatStatus
from kitbag.runtime.agent import Agent
from kitbag.text.tokens import estimate_tokens


def chat_status(agent: Agent, used_tokens: int, background: BackgroundMonitor) -> ChatStatus:
    """`used_tokens`: tokens of the last request and its reply, as counted by the provider."""
    persona = agent.environment.library.persona
    totals = agent.session.totals
    background_cost = background.cost
    return ChatStatus(
        model=agent.chosen.name,
        mode=agent.permissions.current_mode,
        persona=(persona.full_name if persona is not None else agent.environment.library.team) or agent.options.agent,
        used=used_tokens,
        window=agent.chosen.info.window,
        cost=None if totals.unpriced or background_cost is None else totals.cost + background_cost,
        tasks=background.running,
        questions=background.questions,
        directory=agent.environment.places.cwd,
    )


def estimate_used_tokens(agent: Agent) -> int:
    """An estimate for the time before the provider's first count."""
    prompt = sum(estimate_tokens(block.text) for block in agent.system_blocks)
    tools = sum(len(spec.description) + len(str(spec.schema)) for spec in agent.toolset.specs()) // 4
    return prompt + tools + sum(estimate_message_tokens(message) for message in agent.session.messages())
