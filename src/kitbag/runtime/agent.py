"""The Agent of every interface: a session with its model, prompt, tools and permissions; it can start other agents.

    async with Agent("anthropic/claude-sonnet-4-5") as agent, agent.run("What does this project do?") as run:
        async for event in run: ...

Entering it opens the journal and chooses the model; leaving it closes both.
"""

from kitbag.agent.session_list import newest_session
from kitbag.assembly.base_agent import BaseAgent
from kitbag.assembly.run_options import Options
from kitbag.tasks.delegation import TaskDelegation

__all__ = ["Agent", "Options", "newest_session"]


class Agent(BaseAgent):
    def make_delegation(self) -> TaskDelegation:
        return TaskDelegation(self.parent_context, self.session.id, may_have_tasks=bool(self.options.resume))
