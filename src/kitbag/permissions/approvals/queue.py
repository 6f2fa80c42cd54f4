"""Approval requests of background tasks, stored in the journal until the first answer from any process.

A request outlives the process that asked: if the same agent asks again about the same action, it is the same request,
and an answer that arrived meanwhile is used once. Stored text is redacted, and users can't approve what they can't see,
so requests with secrets are denied. Used by workers, MCP and `kitbag permissions`.
"""

import asyncio
import contextlib
import os
from typing import Any, Final, NamedTuple, cast

import msgspec

from kitbag.errors import AmbiguousError, InvalidError, NotFoundError
from kitbag.permissions.approvals.approval import ApprovalAnswer, ApprovalRequest, action_digest
from kitbag.permissions.model import DecisionPart, PermissionDecision
from kitbag.record_fields import RecordFields
from kitbag.store.journal import Journal, JournalRecord

STREAM: Final = "approvals"
CONTAINS_CREDENTIALS: Final = (
    "it contains a secret; Kitbag stores pending requests on disk and never writes secrets to disk."
    " Remove the secret, or refer to an environment variable that contains it"
)


class PendingApproval(NamedTuple):
    request: ApprovalRequest
    asked_at: str

    @property
    def is_complete(self) -> bool:
        """Whether the stored text is exactly what would run."""
        request = self.request
        return action_digest(request.tool, request.arguments, request.directory) == request.digest


class ApprovalQueue:
    """A view of one journal, for at most one event loop; every process has its own."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        # An answer may have been used in a record that was lost.
        self._seen = max((damage.seq for damage in journal.damages()), default=0)
        self._pending: dict[str, PendingApproval] = {}
        self._answers: dict[str, ApprovalAnswer] = {}
        self._unused: dict[tuple[str, str], dict[str, ApprovalRequest]] = {}
        """(digest, asked_by) to the requests whose answers have not been used."""
        self._keys: dict[str, tuple[str, str]] = {}
        self._waiters: dict[str, list[asyncio.Future[ApprovalAnswer]]] = {}
        self._follower: asyncio.Task[None] | None = None

    def pending(self) -> list[PendingApproval]:
        """Oldest first."""
        self._refresh()
        return list(self._pending.values())

    def find(self, name: str) -> PendingApproval:
        """Find by id or id prefix. Raises NotFoundError, AmbiguousError, or InvalidError if already answered."""
        found = [waiting for waiting in self.pending() if name and waiting.request.id.startswith(name)]
        found = [waiting for waiting in found if waiting.request.id == name] or found
        if len(found) > 1:
            ids = ", ".join(waiting.request.id for waiting in found)
            raise AmbiguousError(f"several approval requests start with {name!r}", f"use one of {ids}")
        if found:
            return found[0]
        if name in self._answers:
            choice = self._answers[name].choice
            raise InvalidError(f"request {name} was already answered: {choice}", "only the first answer counts")
        raise NotFoundError(f"no pending approval request {name!r}", "list them with `kitbag permissions pending`")

    def answer(self, name: str, answer: ApprovalAnswer, by: str = "") -> None:
        """`by`: where the answer came from. Raises InvalidError if another answer was first, or if it allows a redacted
        request."""
        waiting = self.find(name)
        request_id = waiting.request.id
        if answer.choice == "allow" and not waiting.is_complete:
            raise InvalidError(f"request {request_id} cannot be allowed: {CONTAINS_CREDENTIALS}", "deny it")
        body = {"id": request_id, "by": by, **ANSWER_FIELDS.write(answer)}
        if self._journal.append_once(f"answer:{request_id}", STREAM, "answer", body) is None:
            raise InvalidError(f"request {request_id} was already answered", "only the first answer counts")

    async def put(self, request: ApprovalRequest) -> bool:
        """Store a request. False if it was redacted because it holds a secret."""
        body = request_to_json(request)
        if await self._journal.write_once(f"question:{request.id}", STREAM, "question", body) is None:
            raise InvalidError(f"request {request.id} already exists", "use another ID")
        texts = (request.tool, request.arguments, request.directory)
        return all(self._journal.redactor.redact_text(text) == text for text in texts)

    async def wait(self, request_id: str, timeout: float | None = None) -> ApprovalAnswer | None:
        """None on timeout. Cancellation is not an answer: the request stays pending."""
        self._refresh()
        if request_id in self._answers:
            return self._answers[request_id]
        future: asyncio.Future[ApprovalAnswer] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(request_id, []).append(future)
        if self._follower is None or self._follower.done():
            self._follower = asyncio.create_task(self._follow())
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            return None
        finally:
            self._waiters[request_id].remove(future)
            if not self._waiters[request_id]:
                del self._waiters[request_id]
            if not self._waiters:
                self._follower.cancel()
                self._follower = None

    async def withdraw(self, asked_by: str) -> None:
        """Deny all requests of an agent that has ended."""
        answer = ApprovalAnswer(choice="deny", reason="withdrawn: the agent that asked has ended")
        for waiting in self.pending():
            request = waiting.request
            if request.asked_by == asked_by:
                body = {"id": request.id, "by": asked_by, **ANSWER_FIELDS.write(answer)}
                await self._journal.write_once(f"answer:{request.id}", STREAM, "answer", body)

    def find_same_request(self, request: ApprovalRequest) -> str | None:
        """The id of an unused request with the same action, decision and agent, perhaps from before a restart."""
        self._refresh()
        if not request.asked_by:
            return None
        for other in self._unused.get((request.digest, request.asked_by), {}).values():
            if (other.decision, other.facts) == (request.decision, request.facts):
                return other.id
        return None

    async def mark_used(self, request_id: str) -> bool:
        """False if another process was first: an answer is for one use."""
        return await self._journal.write_once(f"used:{request_id}", STREAM, "used", {"id": request_id}) is not None

    async def _follow(self) -> None:
        """One follower for all waiters, so that a thousand waiters cost as much as one."""
        try:
            while True:
                await self._journal.wait_async(self._seen)
                self._refresh()
        except InvalidError as error:
            for future in [future for futures in self._waiters.values() for future in futures]:
                if not future.done():
                    future.set_exception(InvalidError(error.problem, error.fix))

    def _refresh(self) -> None:
        last = self._journal.last_seq()
        for record in self._journal.read(STREAM, self._seen):
            last = max(last, record.seq)
            with contextlib.suppress(KeyError, TypeError, ValueError):  # a record of another version
                self._apply_record(record)
        self._seen = last

    def _apply_record(self, record: JournalRecord) -> None:
        request_id = str(record.body["id"])
        if record.kind == "question":
            request = request_from_json(record.body)
            self._pending[request_id] = PendingApproval(request, record.at)
            self._keys[request_id] = request.digest, request.asked_by
            self._unused.setdefault(self._keys[request_id], {})[request_id] = request
        elif record.kind == "answer":
            answer = ANSWER_FIELDS.read(record.body)
            answer = msgspec.structs.replace(answer, answers=tuple(str(text) for text in answer.answers))
            self._pending.pop(request_id, None)
            self._answers[request_id] = answer
            for future in self._waiters.get(request_id, ()):
                if not future.done():
                    future.set_result(answer)
        elif record.kind == "used":
            key = self._keys.pop(request_id)
            del self._unused[key][request_id]
            if not self._unused[key]:
                del self._unused[key]


def require_person() -> None:
    """Call before accepting an answer. Raises InvalidError in a command run by an agent, which can't answer for the
    person."""
    import os

    from kitbag.processes.descendants import MARKER_VARIABLE

    if os.environ.get(MARKER_VARIABLE):
        raise InvalidError("an agent cannot answer approval requests", "run this command in your own terminal")


class QueueApprover:
    """Asks through the queue. `asked_by` lets it find its request again after a restart."""

    one_at_a_time = False

    def __init__(self, queue: ApprovalQueue) -> None:
        self._queue = queue

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        while True:
            request_id = self._queue.find_same_request(request)
            if request_id is None:
                request_id = request.id
                if not await self._queue.put(request):
                    with contextlib.suppress(InvalidError):  # already denied
                        answer = ApprovalAnswer(choice="deny", reason=CONTAINS_CREDENTIALS)
                        await asyncio.to_thread(self._queue.answer, request_id, answer, "kitbag")
                    raise InvalidError(CONTAINS_CREDENTIALS, "run it in an interactive session")
            answer = await self._queue.wait(request_id)
            if answer is not None and await self._queue.mark_used(request_id):
                return answer
            # Another call of the same agent has used the answer, so this becomes a new request.
            request = msgspec.structs.replace(request, id=_next_id(request.id))


def _next_id(request_id: str) -> str:
    return os.urandom(len(request_id) // 2 or 4).hex()


ANSWER_FIELDS: Final = RecordFields(ApprovalAnswer, "choice", "scope", "rule", "reason", "answers")
# An answer is used only after another decision, which has the rest.
PART_FIELDS: Final = RecordFields(
    DecisionPart, "what", "effect", "reason", "rule", "source", "check", not_stored=("path",)
)
DECISION_FIELDS: Final = RecordFields(
    PermissionDecision,
    "effect",
    "reason",
    "parts",
    "sandbox",
    "network",
    not_stored=("denied_writes", "limits", "hardens_git"),
)
REQUEST_FIELDS: Final = RecordFields(
    ApprovalRequest,
    "id",
    "tool",
    "arguments",
    "directory",
    decision="judgement",
    digest="digest",
    asked_by="asked_by",
    facts="facts",
    suggestion="suggestion",
)


def request_to_json(request: ApprovalRequest) -> dict[str, Any]:
    decision = DECISION_FIELDS.write(request.decision)
    decision["parts"] = [PART_FIELDS.write(part) for part in request.decision.parts]
    return {**REQUEST_FIELDS.write(request), "judgement": decision, "facts": [list(fact) for fact in request.facts]}


def request_from_json(body: dict[str, Any]) -> ApprovalRequest:
    """Raises KeyError, TypeError or ValueError if it is not a request."""
    decision = DECISION_FIELDS.read(body["judgement"], exact=True)
    decision = msgspec.structs.replace(
        decision, parts=tuple(PART_FIELDS.read(cast("dict[str, Any]", part), exact=True) for part in decision.parts)
    )
    facts = tuple((str(label), str(value)) for label, value in body["facts"])
    request = msgspec.structs.replace(REQUEST_FIELDS.read(body, exact=True), decision=decision, facts=facts)
    texts = (request.id, request.tool, request.arguments, request.directory, request.digest, request.asked_by)
    if not all(isinstance(text, str) for text in texts):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError("not an approval request")
    return request
