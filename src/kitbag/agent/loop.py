"""The loop: for each turn up to the limit, compact if needed, stream one reply; no tool calls means done, else run each
call, append the results in order, go on.

Used by run. Everything it needs is given; it names no provider, no tool and no store of its own.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from kitbag.agent.ask_model import BrokenReplyError, Emit, Patience, ask_model
from kitbag.agent.compact import Meter, Room, compact
from kitbag.agent.execute import Executor
from kitbag.agent.session import Session
from kitbag.events import MessageAdded, Notice, RunEnded, Status, TurnEnded
from kitbag.messages import Message, Part, Text, ToolCall, Usage
from kitbag.models.provider import Block, ModelError, Provider, Reply, Request

MOST_UNSOUND_TURNS: Final = 3
"""Replies in a row of which no call could be read: the first, and two corrections."""


class Limits(NamedTuple):
    turns: int = 0
    """0: no limit."""
    tokens: int = 0
    cost: float = 0.0
    """US dollars."""


class Brain(NamedTuple):
    """The model of a run, and what is known about it."""

    provider: Provider
    model: str
    room: Room
    price: Callable[[Usage], float | None]
    effort: str = ""


class Loop:
    def __init__(
        self,
        session: Session,
        brain: Brain,
        executor: Executor,
        system: tuple[Block, ...],
        limits: Limits,
        emit: Emit,
        patience: Patience = Patience(),  # noqa: B008 - a NamedTuple can't be changed
    ) -> None:
        self.session = session
        self.brain = brain
        self.executor = executor
        self.system = system
        self.limits = limits
        self.emit = emit
        self.patience = patience
        self.meter = Meter()
        self._prefix = sum(len(block.text) for block in system) // 4

    async def run(self) -> RunEnded:
        """From the last message of the person to the answer. Cancelling it leaves a conversation that can go on."""
        turns, unsound = 0, 0
        text = ""
        while True:
            status = self._spent(turns)
            if status is not None:
                return self._ended(status, text, turns)
            await self._make_room()
            try:
                reply = await self._reply()
            except BrokenReplyError as error:
                return await self._broken(error, turns)
            turns += 1
            text = reply.message.text or text
            calls = reply.message.calls
            if not calls:
                if reply.stop == "length":
                    self.emit(Notice("warning", "the reply reached the model's output limit and is cut off"))
                return self._ended("completed" if reply.message.text.strip() else "empty", text, turns)
            sound = await self.executor.run(calls)
            unsound = 0 if any(sound) else unsound + 1
            if unsound >= MOST_UNSOUND_TURNS:
                problem = f"{unsound} replies in a row had only calls that can't be run"
                return self._ended("failed", text, turns, problem, "try another model, or say what to do differently")

    async def _make_room(self) -> None:
        before = self.meter.tokens(self._prefix, self.session.messages())
        if before > self.brain.room.full_at:
            skills, brain = self.executor.context.skills, self.brain
            await compact(self.session, skills, brain.provider, brain.model, brain.room, before, self.emit)
            self.meter.reset()

    async def _reply(self) -> Reply:
        messages = self.session.messages()
        brain = self.brain
        request = Request(
            brain.model, self.system, messages, self.executor.toolset.specs(), brain.room.max_output, brain.effort
        )
        reply = await ask_model(brain.provider, request, self.emit, self.patience)
        message = self._without_repeats(reply.message, {call.id for sent in messages[-20:] for call in sent.calls})
        cost = brain.price(reply.usage)
        await self.session.add_reply(message, reply.usage, cost, reply.model or brain.model)
        self.meter.counted(reply.usage, len(messages))
        self.emit(MessageAdded(message))
        self.emit(TurnEnded(self.session.totals.turns, reply.usage, cost))
        return reply._replace(message=message)

    def _without_repeats(self, message: Message, used: set[str]) -> Message:
        """A call whose id was there before is not run: its result would belong to two calls."""
        kept: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                if part.id in used:
                    self.emit(
                        Notice("warning", f"the model called {part.name} twice under one id; the second is left out")
                    )
                    continue
                used.add(part.id)
            kept.append(part)
        return Message("assistant", tuple(kept))

    async def _broken(self, error: BrokenReplyError, turns: int) -> RunEnded:
        if error.partial:
            text = f"{error.partial}\n\n[The reply was cut off here.]"
            message = Message("assistant", (Text(text),))
            await self.session.add_reply(message, Usage(), 0.0, self.brain.model, incomplete=error.problem)
            self.emit(MessageAdded(message))
        return self._ended("failed", error.partial, turns, error.problem, _fix(error))

    def _spent(self, turns: int) -> Status | None:
        """Counted over the whole session, so that resuming starts no new account."""
        totals, limits = self.session.totals, self.limits
        if limits.turns and turns >= limits.turns:
            return "max-turns"
        if limits.tokens and totals.usage.shown_to_model + totals.usage.output >= limits.tokens:
            return "max-tokens"
        if limits.cost and totals.cost >= limits.cost:
            return "max-cost"
        return None

    def _ended(self, status: Status, text: str, turns: int, error: str = "", fix: str = "") -> RunEnded:
        totals = self.session.totals
        return RunEnded(status, text, turns, totals.usage, None if totals.unpriced else totals.cost, error, fix)


def _fix(error: ModelError) -> str:
    return error.fix or {
        "auth": "check the key of this provider in your environment",
        "too-long": "start a new session, or use a model with a larger window",
        "spent": "check the account's limits with the provider",
    }.get(error.kind, "run it again with --continue")
