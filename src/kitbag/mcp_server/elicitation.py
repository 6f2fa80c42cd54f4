"""Asks the user for approval through the client (elicitation) during a tool call.

An Approver. Used by tool_calls if the client supports elicitation; otherwise Kitbag denies what it would ask.
"""

import asyncio
from typing import Any, Final

from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp_types import ClientCapabilities, ElicitationCapability

from kitbag.errors import InvalidError
from kitbag.permissions.approvals.approval import ApprovalAnswer, ApprovalRequest
from kitbag.permissions.approvals.question_view import render_approval

ANSWER_TIMEOUT: Final = 600.0
_ONCE, _ALIKE, _NO = "allow once", "allow similar requests in this task", "no"


def create_approver(context: ServerRequestContext[Any, Any]) -> "ElicitationApprover | None":
    session = context.session
    asked = ClientCapabilities(elicitation=ElicitationCapability())
    can = session.can_send_request and session.check_client_capability(asked)
    return ElicitationApprover(context) if can else None


class ElicitationApprover:
    one_at_a_time = True

    def __init__(self, context: ServerRequestContext[Any, Any]) -> None:
        self._context = context

    async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
        """Raises KitbagError if the user can't be asked."""
        choices = [_ONCE, _ALIKE, _NO]
        rule = f"\nSimilar requests: `{question.suggestion}`" if question.suggestion else ""
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {"answer": {"type": "string", "title": "Allow?", "enum": choices}},
            "required": ["answer"],
        }
        message = "\n".join([*render_approval(question), rule]).rstrip()
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                result = await self._context.session.elicit_form(message, schema, self._context.request_id)
        except TimeoutError:
            raise InvalidError("the question was not answered in time", "") from None
        except MCPError as error:
            raise InvalidError(f"the client cannot ask the user: {error.error.message}", "") from None
        answer = (result.content or {}).get("answer") if result.action == "accept" else None
        if answer == _ONCE:
            return ApprovalAnswer(choice="allow")
        if answer == _ALIKE:
            return ApprovalAnswer(choice="allow", scope="session", rule=question.suggestion)
        return ApprovalAnswer(choice="deny")
