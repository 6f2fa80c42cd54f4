"""The loop: for each turn up to the limit, compact if needed, stream one reply; no tool calls means done, else run each
call, append the results in order, go on.

Used by run. Everything it needs is given; it names no provider, no tool and no store of its own.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from kitbag.agent.ask_model import BrokenReplyError, Emit, RetryPolicy, ask_model
from kitbag.agent.compact import CompactionRequest, ContextMeter, compact_session
from kitbag.agent.duplicate_call_ids import make_call_ids_unique
from kitbag.agent.execute import Executor
from kitbag.agent.incomplete_reply import cut_off_notice, cut_off_reason, refuse_calls
from kitbag.agent.model_config import ModelConfig
from kitbag.agent.session import Session
from kitbag.agent.shield import run_to_completion
from kitbag.errors import UsageError
from kitbag.events import MessageAdded, RunEnded, RunStatus, TurnEnded
from kitbag.messages import Message, Text, Usage
from kitbag.models.provider import ModelError, ModelReply, ModelRequest, SystemBlock
from kitbag.text.tokens import estimate_tokens

MAX_INVALID_TURNS: Final = 3
"""Replies in a row of which no call could be read: the first, and two corrections."""
CUT_OFF_MARKER: Final = "[The reply was cut off here.]"

RenewPrompt = Callable[[], Awaitable[tuple[SystemBlock, ...]]]
"""Makes the system prompt anew, after what it belongs to was compacted."""
TakeNotifications = Callable[[], Awaitable[str]]
"""What the model is to be told between two turns; mostly nothing."""
ExternalUsage = Callable[[], tuple[int, float]]
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
        model_config: ModelConfig,
        executor: Executor,
        system: tuple[SystemBlock, ...],
        limits: Limits,
        emit: Emit,
        retry_policy: RetryPolicy = RetryPolicy(),  # noqa: B008 - a NamedTuple can't be changed
        renew_prompt: RenewPrompt | None = None,
        take_notifications: TakeNotifications | None = None,
        external_usage: ExternalUsage | None = None,
    ) -> None:
        self.session = session
        self.model_config = model_config
        self.executor = executor
        self.system = system
        self.limits = limits
        self.emit = emit
        self.retry_policy = retry_policy
        self.renew_prompt = renew_prompt
        self.take_notifications = take_notifications
        self.external_usage = external_usage
        self.meter = ContextMeter()
        self._prefix_tokens = self._estimate_prefix_tokens()
        self._first_turn = session.totals.turns
        self._last_text = ""

    async def run(self) -> RunEnded:
        """From the last message of the person to the answer. Cancelling it leaves a conversation that can go on."""
        self._check_price()
        try:
            return await self._run_turns()
        except asyncio.CancelledError:
            await run_to_completion(self.executor.answer_open_calls())
            raise

    async def _run_turns(self) -> RunEnded:
        unsound, squeezed = 0, False
        while True:
            status = self._reached_limit()
            if status is not None:
                return self._make_run_ended(status)
            await self._compact_if_needed()
            try:
                reply = await self._request_reply()
            except BrokenReplyError as error:
                if error.kind == "too-long" and not squeezed and await self._compact(halve=True):
                    squeezed = True
                    continue
                return await self._end_with_error(error)
            squeezed = False
            calls = reply.message.calls
            if not calls:
                return self._end_with_reply(reply)
            sound = await self.executor.run(calls)
            if self.take_notifications is not None:
                await run_to_completion(self._add_notifications(self.take_notifications))
            unsound = 0 if any(sound) else unsound + 1
            if unsound >= MAX_INVALID_TURNS:
                return self._end_with_reply(reply)

    async def _add_notifications(self, take_notifications: TakeNotifications) -> None:
        """Wholly or not at all: what was taken from those who tell is told only once."""
        if told := await take_notifications():
            await self.session.add_note(told)

    def _check_price(self) -> None:
        """A limit that can't be kept is refused, not forgotten."""
        if self.limits.cost and (self.session.totals.unpriced or self.model_config.price(Usage(1, 1, 1, 1)) is None):
            name = f"{self.model_config.provider.name}/{self.model_config.model}"
            fix = f'add its prices to your settings: [models."{name}"] input = … and said = …, or use --max-tokens'
            raise UsageError(f"the price of {name} is not known, so a limit of cost can't be kept", fix)

    # Room

    async def _compact_if_needed(self) -> None:
        if self._context_tokens() > self.model_config.context_window.compaction_threshold(self._prefix_tokens):
            await self._compact()

    def _context_tokens(self) -> int:
        return self.meter.estimate_tokens(self._prefix_tokens, self.session.messages())

    def _estimate_prefix_tokens(self) -> int:
        """An estimate of what stands before the conversation."""
        tools = sum(len(spec.description) + len(json.dumps(spec.schema)) for spec in self.executor.toolset.specs())
        return sum(estimate_tokens(block.text) for block in self.system) + tools // 4

    async def compact(self, instructions: str = "") -> bool:
        """Because the person wants it, however much room there is. Raises UsageError where a limit is in the way."""
        self._check_price()
        if self._reached_limit() is not None:
            raise UsageError("the session has reached its limit, and a summary costs", "raise the limit")
        return await self._compact(
            request=CompactionRequest(instructions, (self._context_tokens() - self._prefix_tokens) // 4)
        )

    async def _compact(self, halve: bool = False, request: CompactionRequest = CompactionRequest()) -> bool:  # noqa: B008 - a NamedTuple
        """`by_half`: the window is smaller than was thought."""
        share = self.model_config.context_window.compaction_threshold(self._prefix_tokens) - self._prefix_tokens
        if halve:
            share = min(share, (self._context_tokens() - self._prefix_tokens) // 2)
        skills = self.executor.context.skills
        done = await compact_session(
            self.session,
            skills,
            self.model_config,
            share,
            self._context_tokens(),
            self.emit,
            self.retry_policy,
            request,
        )
        if done:
            self.meter.reset()
            if self.renew_prompt is not None:
                self.system = await self.renew_prompt()
                self._prefix_tokens = self._estimate_prefix_tokens()
        return done

    # A reply

    async def _request_reply(self) -> ModelReply:
        messages, brain, said = self.session.messages(), self.model_config, list[str]()
        request = ModelRequest(
            brain.model,
            self.system,
            messages,
            self.executor.toolset.specs(),
            brain.context_window.max_output,
            brain.effort,
        )
        try:
            reply = await ask_model(brain.provider, request, self.emit, self.retry_policy, said)
        except asyncio.CancelledError:
            await self._record_partial_reply("".join(said), "cancelled")
            raise
        message = make_call_ids_unique(refuse_calls(reply), self.session.calls, self.executor.toolset, self.emit)
        cost = brain.price(reply.usage)
        message = await self.session.add_reply(message, reply.usage, cost, reply.model or brain.model)
        self.meter.record_usage(reply.usage, len(messages))
        self._last_text = message.text or self._last_text
        self.emit(MessageAdded(message))
        self.emit(TurnEnded(self.session.totals.turns, reply.usage, cost))
        if notice := cut_off_notice(reply):
            self.emit(notice)
        return reply._replace(message=message)

    async def _record_partial_reply(self, partial: str, reason: str) -> None:
        """Of a reply that broke off, the text: marked, and never run."""
        if partial.strip():
            message = Message("assistant", (Text(f"{partial}\n\n{CUT_OFF_MARKER}"),))
            message = await self.session.add_reply(message, Usage(), 0.0, self.model_config.model, incomplete=reason)
            self.emit(MessageAdded(message))

    # The end

    def _end_with_reply(self, reply: ModelReply) -> RunEnded:
        """Without calls; or with calls that can't be executed, like those of the replies before it."""
        if reply.stop == "length":
            fix = "ask for less at once, or ask it to go on (--continue)"
            return self._make_run_ended("failed", "the reply reached the model's output limit and is cut off", fix)
        if reply.stop == "refusal":
            return self._make_run_ended(
                "failed", "the model declined to answer", "say it differently, or try another model"
            )
        if reply.message.calls:
            problem = cut_off_reason(reply) or f"{MAX_INVALID_TURNS} replies in a row had only calls that can't be run"
            return self._make_run_ended("failed", problem, "try another model, or say what to do differently")
        return self._make_run_ended("completed" if reply.message.text.strip() else "empty")

    async def _end_with_error(self, error: BrokenReplyError) -> RunEnded:
        await self._record_partial_reply(error.partial, error.problem)
        self._last_text = error.partial or self._last_text
        return self._make_run_ended("failed", error.problem, _suggest_fix(error))

    def _reached_limit(self) -> RunStatus | None:
        """Counted over the whole session, so that resuming starts no new account."""
        totals, limits = self.session.totals, self.limits
        if limits.turns and totals.turns >= limits.turns:
            return "max-turns"
        if not limits.tokens and not limits.cost:
            return None
        tokens, cost = self.external_usage() if self.external_usage is not None else (0, 0.0)
        if limits.tokens and totals.usage.total_input + totals.usage.output + tokens >= limits.tokens:
            return "max-tokens"
        if limits.cost and totals.cost + cost >= limits.cost:
            return "max-cost"
        return None

    def _make_run_ended(self, status: RunStatus, error: str = "", fix: str = "") -> RunEnded:
        totals = self.session.totals
        cost = None if totals.unpriced else totals.cost
        return RunEnded(status, self._last_text, totals.turns - self._first_turn, totals.usage, cost, error, fix)


def _suggest_fix(error: ModelError) -> str:
    return error.fix or {
        "auth": "check the key of this provider in your environment",
        "too-long": "start a new session, or use a model with a larger window",
        "spent": "check the account's limits with the provider",
    }.get(error.kind, "ask again (--continue): what was done is kept")
