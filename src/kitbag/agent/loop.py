"""The loop: for each turn up to the limit, compact if needed, stream one reply; no tool calls means done, else run each
call, append the results in order, go on.

Used by run. Everything it needs is given; it names no provider, no tool and no store of its own.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from kitbag.agent.ask_model import BrokenReplyError, Emit, Patience, ask_model
from kitbag.agent.compact import Aim, Meter, compact
from kitbag.agent.duplicate_call_ids import told_apart
from kitbag.agent.execute import Executor
from kitbag.agent.incomplete_reply import cut_off_notice, refuse_calls, why_cut_off
from kitbag.agent.model_config import Brain
from kitbag.agent.session import Session
from kitbag.agent.shield import to_its_end
from kitbag.errors import UsageError
from kitbag.events import MessageAdded, RunEnded, Status, TurnEnded
from kitbag.messages import Message, Text, Usage
from kitbag.models.provider import Block, ModelError, Reply, Request
from kitbag.text.tokens import estimate_tokens

MOST_UNSOUND_TURNS: Final = 3
"""Replies in a row of which no call could be read: the first, and two corrections."""
CUT_OFF: Final = "[The reply was cut off here.]"

Renew = Callable[[], Awaitable[tuple[Block, ...]]]
"""Makes the system prompt anew, after what it belongs to was compacted."""
News = Callable[[], Awaitable[str]]
"""What the model is to be told between two turns; mostly nothing."""
Spent = Callable[[], tuple[int, float]]
"""Tokens and US dollars of other agents that count against the limits."""


class Limits(NamedTuple):
    """Of a session, however often it is resumed; 0: none."""

    turns: int = 0
    tokens: int = 0
    cost: float = 0.0
    """US dollars."""


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
        renew: Renew | None = None,
        news: News | None = None,
        spent: Spent | None = None,
    ) -> None:
        self.session = session
        self.brain = brain
        self.executor = executor
        self.system = system
        self.limits = limits
        self.emit = emit
        self.patience = patience
        self.renew = renew
        self.news = news
        self.spent = spent
        self.meter = Meter()
        self._prefix = self._measured()
        self._first_turn = session.totals.turns
        self._text = ""

    async def run(self) -> RunEnded:
        """From the last message of the person to the answer. Cancelling it leaves a conversation that can go on."""
        self._check_price()
        try:
            return await self._turns()
        except asyncio.CancelledError:
            await to_its_end(self.executor.answer_open_calls())
            raise

    async def _turns(self) -> RunEnded:
        unsound, squeezed = 0, False
        while True:
            status = self._spent()
            if status is not None:
                return self._ended(status)
            await self._make_room()
            try:
                reply = await self._reply()
            except BrokenReplyError as error:
                if error.kind == "too-long" and not squeezed and await self._compact(by_half=True):
                    squeezed = True
                    continue
                return await self._broken(error)
            squeezed = False
            calls = reply.message.calls
            if not calls:
                return self._last(reply)
            sound = await self.executor.run(calls)
            if self.news is not None:
                await to_its_end(self._hear(self.news))
            unsound = 0 if any(sound) else unsound + 1
            if unsound >= MOST_UNSOUND_TURNS:
                return self._last(reply)

    async def _hear(self, news: News) -> None:
        """Wholly or not at all: what was taken from those who tell is told only once."""
        if told := await news():
            await self.session.add_note(told)

    def _check_price(self) -> None:
        """A limit that can't be kept is refused, not forgotten."""
        if self.limits.cost and (self.session.totals.unpriced or self.brain.price(Usage(1, 1, 1, 1)) is None):
            name = f"{self.brain.provider.name}/{self.brain.model}"
            fix = f'add its prices to your settings: [models."{name}"] input = … and said = …, or use --max-tokens'
            raise UsageError(f"the price of {name} is not known, so a limit of cost can't be kept", fix)

    # Room

    async def _make_room(self) -> None:
        if self._used() > self.brain.room.full_at(self._prefix):
            await self._compact()

    def _used(self) -> int:
        return self.meter.tokens(self._prefix, self.session.messages())

    def _measured(self) -> int:
        """An estimate of what stands before the conversation."""
        tools = sum(len(spec.description) + len(json.dumps(spec.schema)) for spec in self.executor.toolset.specs())
        return sum(estimate_tokens(block.text) for block in self.system) + tools // 4

    async def compact(self, wish: str = "") -> bool:
        """Because the person wants it, however much room there is. Raises UsageError where a limit is in the way."""
        self._check_price()
        if self._spent() is not None:
            raise UsageError("the session has reached its limit, and a summary costs", "raise the limit")
        return await self._compact(aim=Aim(wish, (self._used() - self._prefix) // 4))

    async def _compact(self, by_half: bool = False, aim: Aim = Aim()) -> bool:  # noqa: B008 - a NamedTuple
        """`by_half`: the window is smaller than was thought."""
        share = self.brain.room.full_at(self._prefix) - self._prefix
        if by_half:
            share = min(share, (self._used() - self._prefix) // 2)
        skills = self.executor.context.skills
        done = await compact(self.session, skills, self.brain, share, self._used(), self.emit, self.patience, aim)
        if done:
            self.meter.reset()
            if self.renew is not None:
                self.system = await self.renew()
                self._prefix = self._measured()
        return done

    # A reply

    async def _reply(self) -> Reply:
        messages, brain, said = self.session.messages(), self.brain, list[str]()
        request = Request(
            brain.model, self.system, messages, self.executor.toolset.specs(), brain.room.max_output, brain.effort
        )
        try:
            reply = await ask_model(brain.provider, request, self.emit, self.patience, said)
        except asyncio.CancelledError:
            await self._keep("".join(said), "cancelled")
            raise
        message = told_apart(refuse_calls(reply), self.session.called, self.executor.toolset, self.emit)
        cost = brain.price(reply.usage)
        message = await self.session.add_reply(message, reply.usage, cost, reply.model or brain.model)
        self.meter.counted(reply.usage, len(messages))
        self._text = message.text or self._text
        self.emit(MessageAdded(message))
        self.emit(TurnEnded(self.session.totals.turns, reply.usage, cost))
        if notice := cut_off_notice(reply):
            self.emit(notice)
        return reply._replace(message=message)

    async def _keep(self, partial: str, why: str) -> None:
        """Of a reply that broke off, the text: marked, and never run."""
        if partial.strip():
            message = Message("assistant", (Text(f"{partial}\n\n{CUT_OFF}"),))
            message = await self.session.add_reply(message, Usage(), 0.0, self.brain.model, incomplete=why)
            self.emit(MessageAdded(message))

    # The end

    def _last(self, reply: Reply) -> RunEnded:
        """Without calls; or with calls that can't be executed, like those of the replies before it."""
        if reply.stop == "length":
            fix = "ask for less at once, or ask it to go on (--continue)"
            return self._ended("failed", "the reply reached the model's output limit and is cut off", fix)
        if reply.stop == "refusal":
            return self._ended("failed", "the model declined to answer", "say it differently, or try another model")
        if reply.message.calls:
            problem = why_cut_off(reply) or f"{MOST_UNSOUND_TURNS} replies in a row had only calls that can't be run"
            return self._ended("failed", problem, "try another model, or say what to do differently")
        return self._ended("completed" if reply.message.text.strip() else "empty")

    async def _broken(self, error: BrokenReplyError) -> RunEnded:
        await self._keep(error.partial, error.problem)
        self._text = error.partial or self._text
        return self._ended("failed", error.problem, _fix(error))

    def _spent(self) -> Status | None:
        """Counted over the whole session, so that resuming starts no new account."""
        totals, limits = self.session.totals, self.limits
        if limits.turns and totals.turns >= limits.turns:
            return "max-turns"
        if not limits.tokens and not limits.cost:
            return None
        tokens, cost = self.spent() if self.spent is not None else (0, 0.0)
        if limits.tokens and totals.usage.shown_to_model + totals.usage.output + tokens >= limits.tokens:
            return "max-tokens"
        if limits.cost and totals.cost + cost >= limits.cost:
            return "max-cost"
        return None

    def _ended(self, status: Status, error: str = "", fix: str = "") -> RunEnded:
        totals = self.session.totals
        cost = None if totals.unpriced else totals.cost
        return RunEnded(status, self._text, totals.turns - self._first_turn, totals.usage, cost, error, fix)


def _fix(error: ModelError) -> str:
    return error.fix or {
        "auth": "check the key of this provider in your environment",
        "too-long": "start a new session, or use a model with a larger window",
        "spent": "check the account's limits with the provider",
    }.get(error.kind, "ask again (--continue): what was done is kept")
