"""Skills with `context: fork` that the person calls by name: an agent does what they say, and the model hears of it.

Used by Agent for its requests. The person asked for it, so nobody else is asked.
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

        errand = DelegationRequest(fork.agent, fork.text, f"skill {fork.name}", model=fork.model)
        report = await delegation.start(errand, lambda text: emit(Notice("info", text)))
        found = "".join(part.text for part in render_report(report).content if isinstance(part, Text))
        return f"I ran the skill {fork.name}, as the agent {fork.agent}. This is what came of it:\n\n{found}"

    return run
