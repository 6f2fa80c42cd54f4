"""The loop. For each turn up to the limit: compact if needed, stream one reply; if it has no tool calls, done; else
run the calls, append their results in order, repeat.

Used by assembly/base_agent. Everything comes in as an argument; the loop knows no concrete provider, tool or store.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from kitbag.agent.ask_model import BrokenReplyError, Emit, RetryPolicy, suggest_fix
from kitbag.agent.budget import Budget, OverBudgetError, ask_within_budget
from kitbag.agent.call_limit import refuse_calls_over_limit
from kitbag.agent.compact import CompactionRequest, ContextMeter, compact_session
from kitbag.agent.execute import Executor
from kitbag.agent.model_config import ModelConfig
from kitbag.agent.reply_checks import (
    CUT_OFF_MARKER,
    MAX_INVALID_TURNS,
    cut_off_notice,
    describe_failure,
    mark_cut,
    normalize_call_ids,
    refuse_calls,
)
from kitbag.agent.sent_requests import RequestRecorder
from kitbag.agent.session import CONTINUATION_PREFIX, Session
from kitbag.agent.shield import run_to_completion
from kitbag.agent.turn_limits import Limits
from kitbag.errors import UsageError
from kitbag.events import MessageAdded, RunEnded, RunStatus, TurnEnded
from kitbag.messages import Message, Text, Usage
from kitbag.models.provider import ModelReply, ModelRequest, SystemBlock
from kitbag.text.tokens import estimate_tokens

MAX_PAUSES: Final = 10
"""Replies in a row that the provider pauses."""
CONTINUE_NOTE: Final = f"{CONTINUATION_PREFIX}Your reply was paused. Continue where it stopped.</continuation>"

RenewPrompt = Callable[[], Awaitable[tuple[SystemBlock, ...]]]
"""Rebuilds the system prompt after a compaction."""
Receive = Callable[[bool], Awaitable[bool]]
"""Adds what arrived meanwhile to the session: messages of the user and, if the argument is true, notifications. Returns
whether the user sent any."""


async def receive_nothing(_: bool) -> bool:
    return False


class Loop:
    def __init__(
        self,
        session: Session,
        model_config: ModelConfig,
        executor: Executor,
        system: tuple[SystemBlock, ...],
        limits: Limits,
        emit: Emit,
        retry_policy: RetryPolicy = RetryPolicy(),  # noqa: B008 - a NamedTuple is immutable
        renew_prompt: RenewPrompt | None = None,
        receive: Receive = receive_nothing,
        budget: Budget | None = None,
    ) -> None:
        self.session = session
        self.model_config = model_config
        self.executor = executor
        self.system = system
        self.limits = limits
        self.emit = emit
        self.retry_policy = retry_policy
        self.renew_prompt = renew_prompt
        self.receive = receive
        self.budget = budget or Budget(session.journal)
        self.meter, self._recorder = ContextMeter(), RequestRecorder(session.journal)
        self._prefix_tokens = self._estimate_prefix_tokens()
        self._first_turn = session.totals.turns
        self._last_text, self._last_usage, self._is_reply_shortened = "", Usage(), False

    async def run(self) -> RunEnded:
        """Runs from the last user message to the answer. After a cancellation the session can be resumed."""
        self.budget.check_price(self.model_config, self.session.totals.unpriced)
        try:
            return await self._run_turns()
        except asyncio.CancelledError:
            await run_to_completion(self.executor.answer_open_calls())
            raise

    async def _run_turns(self) -> RunEnded:
        invalid_turns, pauses, is_halved = 0, 0, False
        while True:
            if self._has_reached_turn_limit():
                return self._make_run_ended("max-turns", *self.limits.describe_reached(self.session.totals.turns))
            try:
                await self._compact_if_needed()
                reply = await self._request_reply()
            except OverBudgetError as error:
                return self._make_run_ended("over-budget", error.problem, error.fix)
            except BrokenReplyError as error:
                if error.kind == "too-long" and not is_halved and await self._compact(halve=True):
                    is_halved = True
                    continue
                return await self._end_with_error(error)
            is_halved = False
            calls = reply.message.calls
            pauses = pauses + 1 if reply.stop == "pause" else 0
            if not calls and 0 < pauses <= MAX_PAUSES:
                await self.session.add_note(CONTINUE_NOTE)
                continue
            if not calls:
                ended = self._end_with_reply(reply)
                if ended.status in ("completed", "empty") and await self.receive(False):
                    continue
                return ended
            valid = await self.executor.run(calls)
            await self.receive(True)
            invalid_turns = 0 if any(valid) else invalid_turns + 1
            if invalid_turns >= MAX_INVALID_TURNS:
                return self._end_with_reply(reply)

    # Compaction

    async def _compact_if_needed(self) -> None:
        if self._context_tokens() > self.model_config.context_window.compaction_threshold(self._prefix_tokens):
            await self._compact()

    def _context_tokens(self) -> int:
        return self.meter.estimate_tokens(self._prefix_tokens, self.session.messages())

    def _estimate_prefix_tokens(self) -> int:
        """Estimates the tokens before the conversation: system prompt and tools."""
        tools = sum(len(spec.description) + len(json.dumps(spec.schema)) for spec in self.executor.toolset.specs())
        return sum(estimate_tokens(block.text) for block in self.system) + tools // 4

    async def compact(self, instructions: str = "") -> bool:
        """Compacts on request, even if the window has room. Raises UsageError if a limit prevents it."""
        self.budget.check_price(self.model_config, self.session.totals.unpriced)
        if self._has_reached_turn_limit():
            raise UsageError("the session has reached its limit, and compaction costs tokens", "raise the limit")
        return await self._compact(
            request=CompactionRequest(
                instructions=instructions, max_recent_tokens=(self._context_tokens() - self._prefix_tokens) // 4
            )
        )

    async def _compact(self, halve: bool = False, request: CompactionRequest = CompactionRequest()) -> bool:  # noqa: B008 - a NamedTuple is immutable
        """`halve`: the window turned out smaller than expected."""
        conversation_budget = (
            self.model_config.context_window.compaction_threshold(self._prefix_tokens) - self._prefix_tokens
        )
        if halve:
            conversation_budget = min(conversation_budget, (self._context_tokens() - self._prefix_tokens) // 2)
        is_compacted = await compact_session(
            self.session,
            self.executor.context.skills,
            self.model_config,
            conversation_budget,
            self._context_tokens(),
            self.emit,
            self.retry_policy,
            self.budget,
            request,
        )
        if is_compacted:
            self.meter.reset()
            if self.renew_prompt is not None:
                self.system = await self.renew_prompt()
                self._prefix_tokens = self._estimate_prefix_tokens()
        return is_compacted

    # Replies

    async def _request_reply(self) -> ModelReply:
        messages, config, text_parts = self.session.messages(), self.model_config, list[str]()
        request = ModelRequest(
            model=config.model,
            system=self.system,
            messages=messages,
            tools=self.executor.toolset.specs(),
            max_output=config.context_window.max_output,
            effort=config.effort,
        )
        sent = await self._recorder.record(request)
        try:
            reply, self._is_reply_shortened = await ask_within_budget(
                self.budget, config, request, self._expected_input(), self.emit, self.retry_policy, text_parts
            )
        except asyncio.CancelledError:
            await self._record_partial_reply("".join(text_parts), "cancelled")
            raise
        redact = self.session.journal.redactor.redact_text
        message = normalize_call_ids(refuse_calls(reply), self.session.calls, self.executor.toolset, self.emit, redact)
        message = refuse_calls_over_limit(message, self.limits.calls, self.emit)
        text, message, cost = message.text, mark_cut(message, reply), config.price(reply.usage)
        message = await self.session.add_reply(message, reply.usage, cost, reply.model or config.model, sent=sent)
        self.meter.record_usage(reply.usage, len(messages))
        self._last_usage, self._last_text = reply.usage, text or self._last_text
        self.emit(MessageAdded(message))
        turns = self.session.totals.turns
        self.emit(TurnEnded(turn=turns, usage=reply.usage, cost=cost, model=reply.model, stop=reply.stop))
        if notice := cut_off_notice(reply):
            self.emit(notice)
        return msgspec.structs.replace(reply, message=message)

    def _expected_input(self) -> Usage:
        tokens, last = self._context_tokens(), self._last_usage
        cached = min(tokens, last.cache_read + last.cache_write)
        return Usage(input=tokens - cached, cache_read=cached)

    async def _record_partial_reply(self, partial: str, reason: str) -> None:
        """Records the text of a cut-off reply with a marker; its calls never run."""
        if partial.strip():
            message = Message("assistant", (Text(f"{partial}\n\n{CUT_OFF_MARKER}"),))
            model, sent = self.model_config.model, self._recorder.last
            message = await self.session.add_reply(message, Usage(), 0.0, model, incomplete=reason, sent=sent)
            self.emit(MessageAdded(message))

    # Ending a run

    def _end_with_reply(self, reply: ModelReply) -> RunEnded:
        if reply.stop == "length" and self._is_reply_shortened:
            problem = "the budget covered only the beginning of the reply"
            return self._make_run_ended("over-budget", problem, "raise the limit and resume with --continue")
        if failure := describe_failure(reply):
            return self._make_run_ended("failed", *failure)
        return self._make_run_ended("completed" if reply.message.text.strip() else "empty")

    async def _end_with_error(self, error: BrokenReplyError) -> RunEnded:
        await self._record_partial_reply(error.partial, error.problem)
        self._last_text = error.partial or self._last_text
        return self._make_run_ended("failed", error.problem, suggest_fix(error))

    def _has_reached_turn_limit(self) -> bool:
        return self.limits.is_reached(self.session.totals.turns, self._first_turn)

    def _make_run_ended(self, status: RunStatus, error: str = "", fix: str = "") -> RunEnded:
        totals = self.session.totals
        return RunEnded(
            status=status,
            text=self._last_text,
            turns=totals.turns - self._first_turn,
            usage=totals.usage,
            cost=None if totals.unpriced else totals.cost,
            error=error,
            fix=fix,
        )
