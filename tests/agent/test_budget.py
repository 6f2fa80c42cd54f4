import asyncio
import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest

from kitbag.agent.budget import Budget, BudgetAccount, Caps, OverBudgetError, Spending
from kitbag.messages import Usage
from kitbag.store.journal import Journal
from kitbag.store.redaction import Redactor

pytestmark = pytest.mark.usefixtures("store")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(str(tmp_path / "journal.db"), Redactor(())) as found:
        yield found


def account(caps: Caps, name: str = "session/s") -> BudgetAccount:
    return BudgetAccount(name=name, owner="of this session", caps=caps, fix=lambda limit: f"raise {limit}")


def price(usage: Usage) -> float:
    return usage.input * 1e-3 + usage.cache_read * 1e-4 + usage.output * 1e-2


def spend(budget: Budget, usage: Usage) -> None:
    async def work() -> None:
        debit = await budget.debit(Usage(input=usage.total_input), price, 4_000)
        await budget.settle(debit, usage, price(usage))

    asyncio.run(work())


def is_refused(budget: Budget, tokens: int = 0) -> bool:
    async def work() -> bool:
        try:
            await budget.release(await budget.debit(Usage(input=tokens), price, 4_000))
        except OverBudgetError:
            return True
        return False

    return asyncio.run(work())


def test_cached_tokens_count(journal: Journal) -> None:
    budget = Budget(journal, [account(Caps(tokens=1_000))])
    spend(budget, Usage(cache_read=500, cache_write=200, output=40))
    assert not is_refused(budget)  # 740 tokens are spent, and a reply needs 256
    assert is_refused(budget, 10)


@pytest.mark.parametrize(
    ("caps", "refused"), [(Caps(turns=2), [False, False, True]), (Caps(cost=4.5), [False, True, True])]
)
def test_turns_and_money_are_capped(journal: Journal, caps: Caps, refused: list[bool]) -> None:
    budget = Budget(journal, [account(caps)])
    found: list[bool] = []
    for _ in range(3):
        found.append(is_refused(budget, 100))
        if not found[-1]:
            spend(budget, Usage(input=100, output=200))
    assert found == refused


def test_a_refused_call_costs_nothing(journal: Journal) -> None:
    budget = Budget(journal, [account(Caps(tokens=1_000))])
    assert is_refused(budget, 5_000)
    assert not is_refused(budget, 700)


def test_a_call_that_never_ended_stays_debited_in_a_new_process(journal: Journal) -> None:
    caps = Caps(tokens=1_000)
    asyncio.run(Budget(journal, [account(caps)]).debit(Usage(input=600), price, 4_000))
    assert is_refused(Budget(journal, [account(caps)]), 600)
    assert not is_refused(Budget(journal, [account(Caps(tokens=3_000))]), 600)


def test_the_reply_may_use_what_is_left(journal: Journal) -> None:
    tokens = asyncio.run(Budget(journal, [account(Caps(tokens=1_000))]).debit(Usage(input=100), price, 4_000))
    assert tokens.max_output == 900
    money = asyncio.run(Budget(journal, [account(Caps(cost=5.0), "other")]).debit(Usage(input=100), price, 4_000))
    assert money.max_output in (489, 490)
    free = asyncio.run(Budget(journal).debit(Usage(input=100), price, 4_000))
    assert free.max_output == 4_000


def test_every_account_must_cover_the_call(journal: Journal) -> None:
    accounts = [account(Caps(tokens=5_000), "task/a"), account(Caps(tokens=1_000), "day/d")]
    spend(Budget(journal, accounts), Usage(input=700, output=10))
    assert is_refused(Budget(journal, accounts), 100)
    assert not is_refused(Budget(journal, accounts[:1]), 100)


def test_what_was_spent_before_the_account_existed_counts_once(journal: Journal) -> None:
    def budget() -> Budget:
        return Budget(journal, [account(Caps(tokens=1_000))], lambda _: Spending(tokens=700))

    assert is_refused(budget(), 100)
    assert not is_refused(budget())


def test_time_in_which_several_agents_work_counts_once(journal: Journal) -> None:
    clock, caps = Clock(), Caps(seconds=100)
    agents = [Budget(journal, [account(caps)], clock=clock) for _ in range(3)]
    clock.now += 60
    for agent in agents:
        spend(agent, Usage(input=1))
    assert not is_refused(agents[0])
    clock.now += 50
    assert is_refused(agents[1])


def _spend_in_a_process(path: str, count: int) -> None:
    async def work() -> int:
        made = 0
        with Journal.open(path, Redactor(())) as journal:
            budget = Budget(journal, [account(Caps(turns=20))])
            for _ in range(count):
                try:
                    debit = await budget.debit(Usage(), price, 1)
                except OverBudgetError:
                    continue
                await budget.settle(debit, Usage(output=1), 0.0)
                made += 1
        return made

    (Path(path).parent / f"made-{multiprocessing.current_process().name}").write_text(str(asyncio.run(work())))


def test_several_processes_never_make_more_calls_than_the_cap(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    path = str(tmp_path / "journal.db")
    Journal.open(path, Redactor(())).close()
    processes = [context.Process(target=_spend_in_a_process, args=(path, 15)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    made = [int(one.read_text()) for one in tmp_path.glob("made-*")]
    assert len(made) == 3
    assert sum(made) == 20
