"""Approvals and questions of background tasks as forms that any tab can answer, once.

Used by task_feed, which publishes them, and task_routes, which gets the answers. The forms are those of the terminal
(dialogs), and the answer goes into the approval queue, where the first one counts.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from kitbag.agent.shield import run_ignoring_cancellation
from kitbag.dialogs.approver import approval_forms
from kitbag.dialogs.asker import answer_forms
from kitbag.dialogs.form import Form, FormAnswer, FormSequence, SequenceResult, next_step
from kitbag.permissions.approvals.approval import ApprovalAnswer
from kitbag.permissions.approvals.queue import ApprovalQueue, PendingApproval
from kitbag.store.private_files import StoreError
from kitbag.tasks.task import Task
from kitbag.tools.ask_user import parse_questions
from kitbag.views.blocks import Block
from kitbag.views.rendering.styled_text import Cleaner
from kitbag.web.html.forms import render_form

Forms = FormSequence[ApprovalAnswer | None]
AnswerOutcome = Literal["answered", "continued", "left", "stale"]
"""Continued: another form follows. Left: it is asked again later. Stale: another answer came first."""


class _OpenQuestion(msgspec.Struct, kw_only=True):
    task: str
    pending: PendingApproval
    forms: Forms
    request: tuple[Block, ...]
    """What the first form shows; later ones are about the same."""
    summary: str
    """One line."""
    id: str = ""
    """Of the form that waits; empty while an answer is processed."""
    html: str = ""

    def show(self, form: Form, redact: Callable[[str], str]) -> None:
        is_question = bool(form.options) and bool(form.above)
        above = form.above if is_question else (*self.request, *form.above)
        self.id = secrets.token_urlsafe(9)
        self.html = str(render_form(msgspec.structs.replace(form, above=above), self.id, redact))


class TaskQuestions:
    def __init__(self) -> None:
        self._open: dict[str, _OpenQuestion] = {}
        """By approval request."""
        self._answered: set[str] = set()
        """Requests that may still look pending to a reader in another thread."""
        self._redact: Callable[[str], str] = str

    def update(self, pending: Sequence[tuple[Task, PendingApproval]], redact: Callable[[str], str]) -> None:
        """Blocks: a form shows what an edit would change."""
        self._redact = redact
        wanted = {one.request.id: (task, one) for task, one in pending}
        for request_id in [one for one in self._open if one not in wanted]:
            self._open.pop(request_id, None)
        for request_id, (task, one) in wanted.items():
            if request_id not in self._open and request_id not in self._answered:
                self._open[request_id] = self._begin(task.id, one)

    def _begin(self, task_id: str, pending: PendingApproval) -> _OpenQuestion:
        forms = _ask_forms(pending)
        first = next(forms)
        summary = Cleaner(self._redact).line(first.summary or _question_text(pending))
        question = _OpenQuestion(task=task_id, pending=pending, forms=forms, request=first.above, summary=summary)
        question.show(first, self._redact)
        return question

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {
                "id": one.id,
                "request": one.pending.request.id,
                "task": one.task,
                "summary": one.summary,
                "html": one.html,
            }
            for one in tuple(self._open.values())
            if one.id
        ]

    async def answer(self, form_id: str, answer: FormAnswer | None, queue: ApprovalQueue) -> AnswerOutcome:
        """Raises InvalidError if another process was first."""
        question = next((one for one in self._open.values() if form_id and one.id == form_id), None)
        if question is None:
            return "stale"
        question.id = ""
        request_id = question.pending.request.id
        try:
            step = await run_ignoring_cancellation(asyncio.to_thread(next_step, question.forms, answer))
            if not isinstance(step, SequenceResult):
                await asyncio.to_thread(question.show, step, self._redact)
                return "continued"
            if step.value is not None:
                self._open.pop(request_id, None)
                self._answered.add(request_id)
                await run_ignoring_cancellation(asyncio.to_thread(queue.answer, request_id, step.value, "web"))
                return "answered"
            return "left"
        except StoreError:
            self._answered.discard(request_id)
            raise
        finally:
            if not question.id and request_id in self._open:  # left, or it failed: ask again from the beginning
                self._open[request_id] = await asyncio.to_thread(self._begin, question.task, question.pending)


def _ask_forms(pending: PendingApproval) -> Forms:
    request = pending.request
    if request.tool == "AskUser" and pending.is_complete:
        try:
            next(answer_forms(request))
            return answer_forms(request)
        except (msgspec.MsgspecError, StopIteration):
            return approval_forms(request, can_allow=False, can_wait=True)  # not what the tool sends
    return approval_forms(request, can_allow=pending.is_complete, can_wait=True)


def _question_text(pending: PendingApproval) -> str:
    """The first question of AskUser."""
    try:
        return parse_questions(pending.request.arguments)[0].text
    except (msgspec.MsgspecError, IndexError):
        return pending.request.tool
