"""Runs skills with `context: fork` that the user invokes by name: a subagent follows the skill and the model gets its
report.

Used by agent_setup for user messages. The user asked for it, so no approval is needed.
"""

from kitbag.agent.ask_model import Emit
from kitbag.assembly.user_messages import RunFork
from kitbag.events import Notice
from kitbag.messages import Text
from kitbag.packing.session_skills import SkillFork
from kitbag.tools.delegation import Delegation, DelegationRequest


def make_fork_runner(delegation: Delegation) -> RunFork:
    async def run(fork: SkillFork, emit: Emit) -> str:
        from kitbag.tools.task import render_report

        request = DelegationRequest(
            agent=fork.agent, prompt=fork.text, description=f"skill {fork.name}", model=fork.model
        )
        report = await delegation.start(request, lambda text: emit(Notice(severity="info", text=text)))
        output = "".join(part.text for part in render_report(report).content if isinstance(part, Text))
        return f"I ran the skill {fork.name} in the agent {fork.agent}. Result:\n\n{output}"

    return run
