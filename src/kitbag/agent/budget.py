"""What agents may spend: caps on turns, time, tokens and money for a task, a session with its subagents, and a day.

Used by loop and compact. A model call is debited before it is sent and settled when its usage is known. Both are
records of the journal, so caps hold across processes and resumes, and a call that a crash interrupted stays debited.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from kitbag.agent.ask_model import BrokenReplyError, Emit, RetryPolicy, ask_model
from kitbag.agent.model_config import ModelConfig
from kitbag.errors import KitbagError, UsageError
from kitbag.messages import Usage
from kitbag.models.provider import ModelReply, ModelRequest
from kitbag.store.journal import Journal, JournalEntry, JournalRecord

STREAM_PREFIX: Final = "budget/"
MIN_OUTPUT: Final = 256
"""Tokens of a reply that a budget must cover, or the call is refused."""
Price = Callable[[Usage], float | None]


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """0: no cap."""

    turns: int = 0
    seconds: float = 0.0
    """Time in which at least one agent of the account was working."""
    tokens: int = 0
    """Input, cached or not, and output."""
    cost: float = 0.0
    """US dollars."""

    @property
    def is_set(self) -> bool:
        return bool(self.turns or self.seconds or self.tokens or self.cost)


class BudgetAccount(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    owner: str
    """Whose limits these are, for users: `of this task`."""
    caps: Caps
    fix: Callable[[str], str]
    """How to raise a cap: turns, minutes, tokens or cost."""

    @property
    def stream(self) -> str:
        return STREAM_PREFIX + self.name


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """What was spent before an account existed."""

    turns: int = 0
    tokens: int = 0
    cost: float = 0.0


class OverBudgetError(KitbagError):
    """The next model call is not covered."""


class Debit(NamedTuple):
    call: str
    max_output: int
    """Tokens that the reply may have."""


class _Balance:
    """An account's spending, open calls included: a fold of its records."""

    def __init__(self) -> None:
        self.turns = 0
        self.tokens = 0
        self.cost = self.seconds = 0.0
        self.seq = 0
        self._busy_until = 0.0
        self._open: dict[str, tuple[int, float]] = {}

    def add(self, record: JournalRecord) -> None:
        self.seq, body = record.seq, record.body
        if record.kind == "opened":
            self._spend(body["turns"], body["tokens"], body["cost"])
            return
        start = max(float(body["from"]), self._busy_until)
        self.seconds += max(0.0, float(body["to"]) - start)
        self._busy_until = max(self._busy_until, float(body["to"]))
        if record.kind == "debited":
            self._open[body["call"]] = (body["tokens"], body["cost"])
            self._spend(1, body["tokens"], body["cost"])
            return
        tokens, cost = self._open.pop(body["call"], (0, 0.0))
        if record.kind == "settled":
            self._spend(0, body["tokens"] - tokens, body["cost"] - cost)
        else:  # released
            self._spend(-1, -tokens, -cost)

    def _spend(self, turns: int, tokens: int, cost: float) -> None:
        self.turns += turns
        self.tokens += tokens
        self.cost += cost


class Budget:
    """The accounts that one agent's calls are debited to. Without accounts, every call is allowed."""

    def __init__(
        self,
        journal: Journal,
        accounts: Sequence[BudgetAccount] = (),
        spent_before: Callable[[BudgetAccount], Spending] = lambda _: Spending(),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`spent_before`: called once for an account that has no records yet."""
        self._journal = journal
        self._accounts = tuple(accounts)
        self._spent_before = spent_before
        self._clock = clock
        self._balances = {account.name: _Balance() for account in accounts}
        self._working_since = clock()

    @property
    def caps_cost(self) -> bool:
        return any(account.caps.cost for account in self._accounts)

    def check_price(self, config: ModelConfig, has_unpriced_usage: bool) -> None:
        """Raises UsageError for a cost limit that can't be enforced."""
        every_kind = Usage(input=1, output=1, cache_read=1, cache_write=1)
        if self.caps_cost and (has_unpriced_usage or config.price(every_kind) is None):
            name = f"{config.provider.name}/{config.model}"
            prices = f'[models."{name}"] input_price = … and output_price = …'
            fix = f"add its prices to your settings: {prices}, or use --max-tokens"
            raise UsageError(f"the price of {name} is unknown, so a cost limit can't be enforced", fix)

    async def debit(self, expected_input: Usage, price: Price, max_output: int) -> Debit:
        """`expected_input`: an estimate. Raises OverBudgetError, and then the call must not be made."""
        if not self._accounts:
            return Debit("", max_output)
        await self._open_accounts()
        least = min(MIN_OUTPUT, max_output)
        expected = msgspec.structs.replace(expected_input, output=least)
        tokens, cost = expected.total_input + least, price(expected) or 0.0
        call = os.urandom(8).hex()
        body = {"call": call, "tokens": tokens, "cost": cost}
        numbers = await self._write("debited", body)
        # Records have an order, so of two calls that don't both fit, exactly one sees the other before it.
        found = [self._problem(account, seq) for account, seq in zip(self._accounts, numbers, strict=True)]
        problem = next((one for one in found if one is not None), None)
        if problem is not None:
            await self._write("released", {"call": call})
            raise problem
        allowed = min(self._output_left(account, price) for account in self._accounts)
        return Debit(call, min(max_output, least + allowed))

    async def settle(self, debit: Debit, usage: Usage, cost: float | None) -> None:
        tokens = usage.total_input + usage.output
        await self._end(debit, "settled", {"tokens": tokens, "cost": cost or 0.0})

    async def release(self, debit: Debit) -> None:
        """The model was not reached, so nothing was spent."""
        await self._end(debit, "released", {})

    async def _end(self, debit: Debit, kind: str, body: Mapping[str, float]) -> None:
        if self._accounts:
            await self._write(kind, {"call": debit.call, **body})

    async def _write(self, kind: str, body: Mapping[str, object]) -> list[int]:
        now = self._clock()
        body = {**body, "from": min(self._working_since, now), "to": now}
        self._working_since = now
        return await self._journal.write_all([JournalEntry(account.stream, kind, body) for account in self._accounts])

    async def _open_accounts(self) -> None:
        for account in self._accounts:
            if self._balances[account.name].seq or self._journal.last(account.stream) is not None:
                continue
            spent = msgspec.structs.asdict(self._spent_before(account))
            await self._journal.write_once(f"{account.stream}/opened", account.stream, "opened", spent)

    def _problem(self, account: BudgetAccount, seq: int) -> OverBudgetError | None:
        balance, caps = self._balances[account.name], account.caps
        for record in self._journal.read(account.stream, balance.seq):
            balance.add(record)
            if record.seq == seq:
                break
        return next(
            (
                OverBudgetError(
                    f"over budget: the next model request exceeds the limit {account.owner}: {detail}",
                    account.fix(limit),
                )
                for limit, detail in _exceeded(balance, caps)
            ),
            None,
        )

    def _output_left(self, account: BudgetAccount, price: Price) -> int:
        balance, caps = self._balances[account.name], account.caps
        left = caps.tokens - balance.tokens if caps.tokens else 1 << 40
        each = (price(Usage(output=1_000_000)) or 0.0) / 1_000_000
        return min(left, int((caps.cost - balance.cost) / each)) if caps.cost and each else left


async def ask_within_budget(
    budget: Budget,
    config: ModelConfig,
    request: ModelRequest,
    expected_input: Usage,
    emit: Emit,
    retry_policy: RetryPolicy,
    text_parts: list[str] | None = None,
) -> tuple[ModelReply, bool]:
    """The reply, and whether the budget allowed only a shorter one than requested. Raises OverBudgetError and
    BrokenReplyError."""
    debit = await budget.debit(expected_input, config.price, request.max_output)
    is_shortened = debit.max_output < request.max_output
    if is_shortened:
        request = msgspec.structs.replace(request, max_output=debit.max_output)
    try:
        taken = await config.rate_limiter.wait(expected_input, emit) if config.rate_limiter is not None else 0
    except asyncio.CancelledError:
        await asyncio.shield(budget.release(debit))
        raise
    config.on_request()
    try:
        reply = await ask_model(config.provider, request, emit, retry_policy, text_parts)
    except BrokenReplyError as error:
        if not error.partial and error.kind != "cut":
            await budget.release(debit)
        raise
    if config.rate_limiter is not None:
        await config.rate_limiter.settle(taken, reply.usage)
    if reply.usage != Usage():  # otherwise the estimate stays
        await budget.settle(debit, reply.usage, config.price(reply.usage))
    return reply, is_shortened


def _exceeded(balance: _Balance, caps: Caps) -> Iterator[tuple[str, str]]:
    """Which caps, and by how much. The balance includes the next call."""
    if caps.turns and balance.turns > caps.turns:
        yield "turns", f"{balance.turns - 1:,} of {caps.turns:,} turns used"
    if caps.seconds and balance.seconds >= caps.seconds:
        yield "minutes", f"{balance.seconds:,.0f} of {caps.seconds:,.4g} seconds used"
    if caps.tokens and balance.tokens > caps.tokens:
        yield "tokens", f"about {balance.tokens:,} of {caps.tokens:,} tokens with this request"
    if caps.cost and balance.cost > caps.cost:
        yield "cost", f"about ${balance.cost:,.4g} of ${caps.cost:,.4g} with this request"
