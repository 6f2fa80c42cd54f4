"""Questions of background work: they wait in the journal until someone, in whatever process, answers first.

A question outlives the process that asked it: asked again by the same one about the same thing it is the same question,
and an answer that came meanwhile is used, once. What is stored is redacted, and nobody can agree to what they can't
see, so a question that holds a secret is answered with no. Used by workers, the web, MCP and `kitbag permissions`.
"""

import asyncio
import contextlib
from typing import Any, Final, NamedTuple, cast

from kitbag.errors import AmbiguousError, InvalidError, NotFoundError
from kitbag.permissions.approvals.approval import Answer, Question, digest_of
from kitbag.permissions.model import Judgement, Part
from kitbag.record_fields import RecordFields
from kitbag.store.journal import Journal, Record

STREAM: Final = "approvals"
NOT_WRITTEN_DOWN: Final = (
    "it holds a secret, and a question that waits is written down, which a secret never is."
    " Leave the secret out, or name the environment variable that holds it"
)


class Waiting(NamedTuple):
    question: Question
    asked_at: str

    @property
    def is_whole(self) -> bool:
        """Whether what is stored is what would be done."""
        asked = self.question
        return digest_of(asked.tool, asked.arguments, asked.directory) == asked.digest


class ApprovalQueue:
    """A view of one journal, for one event loop at most; every process has its own."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._seen = 0
        self._pending: dict[str, Waiting] = {}
        self._answers: dict[str, Answer] = {}
        self._asked: dict[tuple[str, str], dict[str, Question]] = {}
        """Digest and asker -> the questions whose answers nobody has used."""
        self._keys: dict[str, tuple[str, str]] = {}
        self._waiters: dict[str, list[asyncio.Future[Answer]]] = {}
        self._follower: asyncio.Task[None] | None = None

    def pending(self) -> list[Waiting]:
        """The oldest first."""
        self._refresh()
        return list(self._pending.values())

    def find(self, name: str) -> Waiting:
        """By its id, or what that begins with. Raises NotFoundError, AmbiguousError, and InvalidError if answered."""
        found = [waiting for waiting in self.pending() if name and waiting.question.id.startswith(name)]
        found = [waiting for waiting in found if waiting.question.id == name] or found
        if len(found) > 1:
            ids = ", ".join(waiting.question.id for waiting in found)
            raise AmbiguousError(f"several questions begin with {name!r}", f"write one of {ids}")
        if found:
            return found[0]
        if name in self._answers:
            choice = self._answers[name].choice
            raise InvalidError(f"question {name} was answered already, with {choice}", "the first answer counts")
        raise NotFoundError(f"no question waits as {name!r}", "`kitbag permissions pending` lists them")

    def answer(self, name: str, answer: Answer, by: str = "") -> None:
        """`by`: where it came from. Raises InvalidError when another was first, or when it allows what is not seen."""
        waiting = self.find(name)
        question_id = waiting.question.id
        if answer.choice == "allow" and not waiting.is_whole:
            raise InvalidError(f"question {question_id} can't be allowed: {NOT_WRITTEN_DOWN}", "answer it with deny")
        body = {"id": question_id, "by": by, **ANSWER.write(answer)}
        if self._journal.append_once(f"answer:{question_id}", STREAM, "answer", body) is None:
            raise InvalidError(f"question {question_id} was answered meanwhile", "the first answer counts")

    async def put(self, question: Question) -> bool:
        """False when it was not stored whole, because it holds a secret."""
        body = to_json(question)
        if await self._journal.write_once(f"question:{question.id}", STREAM, "question", body) is None:
            raise InvalidError(f"there is a question {question.id} already", "ask under another id")
        texts = (question.tool, question.arguments, question.directory)
        return all(self._journal.redactor.text(text) == text for text in texts)

    async def wait(self, question_id: str, seconds: float | None = None) -> Answer | None:
        """None when the time is over. To be cancelled is no answer: the question waits on."""
        self._refresh()
        if question_id in self._answers:
            return self._answers[question_id]
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(question_id, []).append(future)
        if self._follower is None or self._follower.done():
            self._follower = asyncio.create_task(self._follow())
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            return None
        finally:
            self._waiters[question_id].remove(future)
            if not self._waiters[question_id]:
                del self._waiters[question_id]
            if not self._waiters:
                self._follower.cancel()
                self._follower = None

    async def withdraw(self, asked_by: str) -> None:
        """Whoever asked has ended for good, and has no use for answers."""
        answer = Answer("deny", reason="withdrawn: whoever asked has ended")
        for waiting in self.pending():
            question = waiting.question
            if question.asked_by == asked_by:
                body = {"id": question.id, "by": asked_by, **ANSWER.write(answer)}
                await self._journal.write_once(f"answer:{question.id}", STREAM, "answer", body)

    def asked_before(self, question: Question) -> str | None:
        """The same thing with the same outcome, asked by the same one, perhaps before a restart, and not used yet."""
        self._refresh()
        if not question.asked_by:
            return None
        for known in self._asked.get((question.digest, question.asked_by), {}).values():
            if (known.judgement, known.facts) == (question.judgement, question.facts):
                return known.id
        return None

    async def take(self, question_id: str) -> bool:
        """Marks the answer as used. False when somebody else was first: an answer is for one use."""
        return await self._journal.write_once(f"used:{question_id}", STREAM, "used", {"id": question_id}) is not None

    async def _follow(self) -> None:
        """One for all who wait here, so that a thousand of them cost as much as one."""
        try:
            while True:
                await self._journal.changed(self._seen)
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
                self._take_in(record)
        self._seen = last

    def _take_in(self, record: Record) -> None:
        question_id = str(record.body["id"])
        if record.kind == "question":
            question = from_json(record.body)
            self._pending[question_id] = Waiting(question, record.at)
            self._keys[question_id] = question.digest, question.asked_by
            self._asked.setdefault(self._keys[question_id], {})[question_id] = question
        elif record.kind == "answer":
            answer = ANSWER.read(record.body)
            self._pending.pop(question_id, None)
            self._answers[question_id] = answer
            for future in self._waiters.get(question_id, ()):
                if not future.done():
                    future.set_result(answer)
        elif record.kind == "used":
            key = self._keys.pop(question_id)
            del self._asked[key][question_id]
            if not self._asked[key]:
                del self._asked[key]


def check_person() -> None:
    """Before somebody answers. Raises InvalidError in a command that an agent runs: it can't answer for the person."""
    import os

    from kitbag.processes.descendants import MARK

    if os.environ.get(MARK):
        raise InvalidError("this runs for an agent, which can't answer for you", "answer in a terminal of your own")


class QueueApprover:
    """Asks through the queue. After a restart it finds its question again if `asked_by` says who asks."""

    one_at_a_time = False

    def __init__(self, queue: ApprovalQueue) -> None:
        self._queue = queue

    async def ask(self, question: Question) -> Answer:
        while True:
            waiting_id = self._queue.asked_before(question)
            if waiting_id is None:
                waiting_id = question.id
                if not await self._queue.put(question):
                    with contextlib.suppress(InvalidError):  # somebody has denied it already
                        self._queue.answer(waiting_id, Answer("deny", reason=NOT_WRITTEN_DOWN), "kitbag")
                    raise InvalidError(NOT_WRITTEN_DOWN, "run it where a person can be asked at once")
            answer = await self._queue.wait(waiting_id)
            if answer is not None and await self._queue.take(waiting_id):
                return answer
            # Another of the same asker has used it: then this is a question of its own.
            question = question._replace(id=_next_id(question.id))


def _next_id(question_id: str) -> str:
    import secrets

    return secrets.token_hex(len(question_id) // 2 or 4)


ANSWER: Final = RecordFields(Answer, "choice", "scope", "rule", "reason")
PART: Final = RecordFields(Part, "what", "effect", "reason", "rule", "source")
JUDGEMENT: Final = RecordFields(Judgement, "effect", "reason", "parts", "sandbox", "network")
QUESTION: Final = RecordFields(
    Question, "id", "tool", "arguments", "directory", "judgement", "digest", "asked_by", "facts", "suggestion"
)


def to_json(question: Question) -> dict[str, Any]:
    judgement = JUDGEMENT.write(question.judgement)
    judgement["parts"] = [PART.write(part) for part in question.judgement.parts]
    return {**QUESTION.write(question), "judgement": judgement, "facts": [list(fact) for fact in question.facts]}


def from_json(body: dict[str, Any]) -> Question:
    """Raises KeyError, TypeError or ValueError for what is none."""
    judgement = JUDGEMENT.read(body["judgement"], exact=True)
    judgement = judgement._replace(
        parts=tuple(PART.read(cast("dict[str, Any]", part), exact=True) for part in judgement.parts)
    )
    facts = tuple((str(label), str(value)) for label, value in body["facts"])
    found = QUESTION.read(body, exact=True)._replace(judgement=judgement, facts=facts)
    texts = (found.id, found.tool, found.arguments, found.directory, found.digest, found.asked_by)
    if not all(isinstance(text, str) for text in texts):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError("not a question")
    return found
