"""An agent that can be asked: a session with its model, prompt, tools and permissions, tied together.

    async with Agent("anthropic/claude-sonnet-4-5") as agent:
        async with agent.run("What does this project do?") as run:
            async for event in run: ...

Used by every interface. Opens the journal and chooses the model when it is entered; closes both when it is left.
"""

from kitbag.agent.session_list import newest_session
from kitbag.assembly.base_agent import BaseAgent
from kitbag.assembly.run_options import Options
from kitbag.tasks.delegation import TaskDelegation

__all__ = ["Agent", "Options", "newest_session"]


class Agent(BaseAgent):
    def make_delegation(self) -> TaskDelegation:
        return TaskDelegation(self.parent_context, self.session.id, may_have_tasks=bool(self.options.resume))
