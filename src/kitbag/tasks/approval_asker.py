"""Asks the user the questions of a background agent through the queue of approvals, where any process can answer.

Used by subagent. The answer outlives the agent's process: if it asks again after a restart, it gets the same answer.
"""

from kitbag.permissions.approvals.approval import Approvals
from kitbag.tools.ask_user import questions_to_arguments
from kitbag.tools.base import UserQuestion


class ApprovalAsker:
    """Implements UserAsker."""

    def __init__(self, approvals: Approvals, asked_by: str, directory: str) -> None:
        self._approvals = approvals
        self._asked_by = asked_by
        self._directory = directory

    async def ask(self, questions: tuple[UserQuestion, ...]) -> tuple[str, ...]:
        arguments = questions_to_arguments(questions)
        answer = await self._approvals.ask_question("AskUser", arguments, self._directory, self._asked_by)
        return answer.answers if answer.choice == "allow" else ()
