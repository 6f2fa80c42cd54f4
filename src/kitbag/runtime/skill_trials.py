"""Asks a model the messages of skill tests, as a new session would: the same prompt, catalog and suggestions.

A run ends at the first reply that loads a skill. Nothing is changed or started, and the runs are recorded in a
temporary journal, so that they are not in the list of sessions. Used by `kitbag skills test --model`.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final

import msgspec

from kitbag.agent.context_ledger import tool_text
from kitbag.agent.loop import Limits
from kitbag.assembly.open_journal import open_journal
from kitbag.assembly.run_options import Options
from kitbag.errors import KitbagError
from kitbag.library.registry import Registry
from kitbag.library.scopes import find_places
from kitbag.messages import Message, Text, Usage
from kitbag.models.provider import ModelReply, ModelRequest, Provider, StreamItem
from kitbag.packing.skill_case_formats import SkillCase
from kitbag.packing.skill_tests import CaseOutcome, CaseResult, ReportProgress, judge, judge_invocation
from kitbag.runtime.agent import Agent
from kitbag.store.journal import Journal, journal_path
from kitbag.text.human_format import format_cost
from kitbag.text.tokens import estimate_tokens

MAX_TURNS: Final = 3
_MAX_FAILURES: Final = 2
_TYPICAL_TURNS: Final = 2
_REPLY_TOKENS: Final = 300
_NO_TOOLS: Final = ("Bash", "Write", "Edit", "Task", "TaskOutput", "TaskStop", "WebFetch", "WebSearch", "AskUser")
"""Nothing that changes files or leaves this machine."""


class TrialPlan(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    requests: int
    """Expected number; a run may need more."""
    tokens: int
    cost: float | None
    """In dollars; None: the price of the model is unknown."""


class TrialOptions(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    directory: str
    max_cost: float
    """In dollars; 0: no limit."""
    extra: tuple[str, ...] = ()
    team: str = ""
    persona: str = ""


def plan_trials(cases: Sequence[SkillCase], options: TrialOptions) -> TrialPlan:
    """Asks no model. Raises what opening an agent raises, and if the model would not see one of the skills."""
    return asyncio.run(_plan(cases, options))


def run_trials(
    cases: Sequence[SkillCase], options: TrialOptions, report: ReportProgress | None = None
) -> list[CaseResult]:
    """One after another. Once the next one could exceed the cap, or the model failed twice in a row, the rest is
    skipped."""
    return asyncio.run(_run_all(cases, options, report))


async def _plan(cases: Sequence[SkillCase], options: TrialOptions) -> TrialPlan:
    async with _temporary_journal(options) as journal, _open_agent(options, journal) as agent:
        for name in dict.fromkeys(case.skill for case in cases):
            agent.environment.library.find_skill(name)  # the model would not see it: untrusted, or another persona's
        fixed = sum(int(entry["tokens"]) for entry in agent.session.prompt)
        fixed += sum(estimate_tokens(tool_text(spec)) for spec in agent.toolset.specs())
        requests = _TYPICAL_TURNS * len(cases)
        read = requests * fixed + _TYPICAL_TURNS * sum(estimate_tokens(case.message) for case in cases)
        usage = Usage(input=read, output=requests * _REPLY_TOKENS)
        cost = agent.chosen.info.cost(usage)
        return TrialPlan(model=agent.chosen.name, requests=requests, tokens=read + usage.output, cost=cost)


async def _run_all(
    cases: Sequence[SkillCase], options: TrialOptions, report: ReportProgress | None
) -> list[CaseResult]:
    results: list[CaseResult] = []
    spent, dearest = 0.0, 0.0
    async with _temporary_journal(options) as journal:
        for case in cases:
            reason = ""
            if [result.outcome for result in results[-_MAX_FAILURES:]] == ["error"] * _MAX_FAILURES:
                reason = "the model failed before"
            elif options.max_cost and spent + dearest > options.max_cost:
                reason = f"the cap of {format_cost(options.max_cost)} would be exceeded; {format_cost(spent)} spent"
            if reason:
                skipped = cases[len(results) :]
                return [
                    *results,
                    *(CaseResult(case=one, outcome="skipped", chosen=(), reason=reason) for one in skipped),
                ]
            result = await _run_one(case, options, journal)
            spent += result.cost or 0.0
            dearest = max(dearest, result.cost or 0.0)
            results.append(result)
            if report is not None:
                report(len(results), len(cases))
    return results


class _StopAtLoad:
    """Ends a run at the first reply that loads a skill, before anything is loaded: a skill may run commands."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.loads: list[str] = []

    @property
    def name(self) -> str:
        return self._provider.name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        async with aclosing(self._provider.stream(request)) as stream:
            async for item in stream:
                if isinstance(item, ModelReply) and (names := _list_loads(item.message)):
                    self.loads += names
                    text = Message("assistant", (Text(f"[loads {', '.join(names)}]"),))
                    item = msgspec.structs.replace(item, message=text, stop="end")
                yield item

    async def close(self) -> None:
        await self._provider.close()


def _list_loads(message: Message) -> list[str]:
    calls = [call for call in message.calls if call.name == "Skill"]
    return [str(call.arguments.get("skill", "")).lstrip("/") for call in calls]


class _TrialAgent(Agent):
    def _choose_model(self) -> None:
        super()._choose_model()
        self.provider = self.stopping = _StopAtLoad(self.provider)


async def _run_one(case: SkillCase, options: TrialOptions, journal: Journal) -> CaseResult:
    start = time.monotonic()
    async with _open_agent(options, journal) as agent:
        library = agent.environment.library
        if (invoked := judge_invocation(library, case)) is not None:  # its commands would run
            return invoked
        async with agent.run(case.message) as run:
            ended = await run.wait()
        cost = None if agent.session.totals.unpriced else agent.session.totals.cost
        loads = agent.stopping.loads
    seconds = time.monotonic() - start
    if not loads and ended.status not in ("completed", "empty", "max-turns"):
        # Without an answer, that no skill was loaded says nothing.
        outcome: CaseOutcome = "skipped" if ended.status == "over-budget" else "error"
        reason = ended.error or f"the run ended: {ended.status}"
        return CaseResult(case=case, outcome=outcome, chosen=(), reason=reason, seconds=seconds, cost=cost)
    reason = f"after {MAX_TURNS} requests" if ended.status == "max-turns" else ""
    chosen = tuple(dict.fromkeys(_full_name(library, name) for name in loads))
    return judge(case, chosen, reason, seconds=seconds, cost=cost)


def _full_name(library: Registry, name: str) -> str:
    """As written, if no skill has this name."""
    try:
        return library.find_skill(name).full_name
    except KitbagError:
        return name


@asynccontextmanager
async def _temporary_journal(options: TrialOptions) -> AsyncGenerator[Journal]:
    with tempfile.TemporaryDirectory(prefix="kitbag-test-") as folder:
        with open_journal(find_places(options.directory).kitbag_home) as own:
            redactor = own.redactor
        with Journal.open(journal_path(folder), redactor) as journal:
            yield journal


def _open_agent(options: TrialOptions, journal: Journal) -> _TrialAgent:
    limits = Limits(turns_per_run=MAX_TURNS, cost=options.max_cost)
    return _TrialAgent(
        options.model,
        options=Options(
            directory=options.directory,
            no_tools=_NO_TOOLS,
            limits=limits,
            extra=options.extra,
            team=options.team,
            persona=options.persona,
        ),
        journal=journal,
    )
