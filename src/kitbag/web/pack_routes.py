"""`/api/pack`: packs a task as `kitbag pack` does, again whenever the user changes something.

Mounted by application, which imports it at the first request. While the user types nothing is run: neither commands in
the texts nor `pack.task_command`; that takes a request that says so.
"""

import asyncio
import os
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kitbag.errors import UsageError
from kitbag.library.registry import Registry
from kitbag.library.scopes import Places
from kitbag.packing.fit import BUDGET_NAMES, Budgets, resolve_budgets
from kitbag.packing.loading_strategy import STRATEGIES, Strategy
from kitbag.packing.output_contract import OUTPUT_KINDS, OutputKind
from kitbag.packing.pack import Packer, PackOptions, Payload
from kitbag.packing.prepare_skill import NoCommands
from kitbag.packing.references.permissions import ReferencePermissions
from kitbag.packing.references.policy import ReferenceDeniedError
from kitbag.packing.task_sources import TASK_SUFFIXES, load_task, parse_task
from kitbag.text.human_format import shorten_path
from kitbag.views.blocks import Bar, BarsBlock, Block, TableBlock, VerbatimBlock, diagnostic_block
from kitbag.views.rendering.styled_text import Cleaner
from kitbag.web.html.blocks import render_block
from kitbag.web.requests import answer_json, handle_errors, read_body, state_of

_CLEAN: Final = Cleaner(str)
_MAX_TASKS: Final = 500
_NOT_RUN: Final = "commands run only when you press Run"
_ALLOW_OPTIONS: Final = ("--allow", "--allow-commands", "--allow-env")
_BUDGET_KINDS: Final = {"protocol": ("protocol",), "task": ("task",), "skills": ("skills", "skill", "reference")}
"""Kinds of entries that count against each budget."""


class PackRequest(msgspec.Struct, frozen=True, kw_only=True):
    task: str = ""
    """An ID or a file."""
    text: str = ""
    """A task as JSON, YAML or Markdown, instead."""
    skills: tuple[str, ...] = ()
    """Empty: chosen to match the task."""
    strategy: Strategy | None = None
    output: OutputKind | None = None
    agent: str = ""
    available: int | None = None
    used: int = 0
    variables: dict[str, str] = {}
    budgets: dict[str, int] = {}
    runs: bool = False
    """Run the commands that the rules allow, as `kitbag pack` does."""


@handle_errors
async def choices(request: Request) -> Response:
    return answer_json(await asyncio.to_thread(_list_choices, state_of(request).places))


def _list_choices(places: Places) -> dict[str, Any]:
    registry = Registry(places)
    budgets = Packer(registry).budgets
    return {
        "skills": [skill.full_name for skill in registry.skills],
        "agents": [agent.full_name for agent in registry.agents],
        "strategies": STRATEGIES,
        "outputs": OUTPUT_KINDS,
        "budgets": {name: getattr(budgets, name) for name in BUDGET_NAMES},
        "tasks": _list_tasks(places),
        "has_task_command": bool(registry.settings.get("pack.task_command")),
    }


def _list_tasks(places: Places) -> list[str]:
    """IDs of the files in `.kitbag/tasks`."""
    found: set[str] = set()
    for directory in places.project_dirs:
        try:
            names = os.listdir(os.path.join(directory, ".kitbag", "tasks"))
        except OSError:
            continue
        found.update(os.path.splitext(name)[0] for name in names if name.endswith(TASK_SUFFIXES))
    return sorted(found)[:_MAX_TASKS]


@handle_errors
async def pack(request: Request) -> Response:
    wanted = await read_body(request, PackRequest)
    if min(wanted.available or 1, *wanted.budgets.values(), 1) < 1 or wanted.used < 0:
        raise UsageError("a budget is not a positive number of tokens", "write a number, or leave the field empty")
    return answer_json(await asyncio.to_thread(_pack, state_of(request).places, wanted))


def _pack(places: Places, wanted: PackRequest) -> dict[str, Any]:
    registry = Registry(places)
    policy = ReferencePermissions(places, registry.settings)
    packer = Packer(
        registry, policy=policy if wanted.runs else NoCommands(policy, _NOT_RUN), allow_options=_ALLOW_OPTIONS
    )
    agent = registry.find_agent(wanted.agent) if wanted.agent else None
    options = PackOptions(
        skills=wanted.skills,
        strategy=wanted.strategy,
        output=wanted.output,
        values=wanted.variables,
        available=wanted.available,
        used=wanted.used,
        budgets=wanted.budgets,
        agent=agent,
    )
    source = packer.source()
    if not wanted.runs:
        source = msgspec.structs.replace(source, task_command="", children_command="")
    if not wanted.task and not wanted.text.strip():
        raise UsageError("no task", "write one, or name an ID or a file")
    task, warnings = load_task(wanted.task, source) if wanted.task else parse_task(wanted.text, "", "the task")
    try:
        payload = packer.pack(task, options, warnings)
    except ReferenceDeniedError as error:
        if _NOT_RUN in error.problem:
            error.fix = 'press "Run" to run those that your rules allow'
        raise
    budgets = resolve_budgets(packer.budgets, agent, wanted.budgets)
    return _describe(payload, budgets, wanted)


def _describe(payload: Payload, budgets: Budgets, wanted: PackRequest) -> dict[str, Any]:
    ledger = payload.ledger
    rows = tuple(
        (
            entry.kind,
            f"{entry.tokens:,}",
            f"{entry.tokens_cut:,}" if entry.tokens_cut else "",
            entry.status,
            shorten_path(entry.source),
            entry.reason,
        )
        for entry in ledger.entries
    )
    sums: dict[str, int] = {}
    for entry in ledger.entries:
        sums[entry.kind] = sums.get(entry.kind, 0) + entry.tokens
    window = min(budgets.total, wanted.available or budgets.total)
    limit = min(window * budgets.fill // 100, window - wanted.used)
    bars = tuple(Bar(label=kind, tokens=tokens) for kind, tokens in sums.items() if tokens)
    title = f"{ledger.tokens:,} of {limit:,} tokens ({payload.counter})"
    parts: list[Block] = [
        BarsBlock(bars=bars, whole=max(limit, ledger.tokens), title=title),
        TableBlock(headers=("KIND", "TOKENS", "CUT", "STATUS", "SOURCE", "WHY"), rows=rows, title="Parts and cuts"),
    ]
    return {
        "id": _CLEAN.line(payload.task.id),
        "title": _CLEAN.line(payload.task.title),
        "tokens": ledger.tokens,
        "tokens_cut": sum(entry.tokens_cut for entry in ledger.entries),
        "strategy": payload.choice.strategy,
        "strategy_reason": _CLEAN.line(payload.choice.reason),
        "skills": [
            {"name": _CLEAN.line(one.skill.full_name), "reason": _CLEAN.line(one.reason)} for one in payload.selected
        ],
        "budgets": [
            *(
                {"name": name, "used": sum(sums.get(kind, 0) for kind in kinds), "limit": getattr(budgets, name)}
                for name, kinds in _BUDGET_KINDS.items()
            ),
            {"name": f"total, {budgets.fill}% of it", "used": ledger.tokens, "limit": limit},
        ],
        "warnings": [str(render_block(diagnostic_block(one, with_code=True), str)) for one in payload.warnings],
        "parts": [str(render_block(block, str)) for block in parts],
        "payload": str(render_block(VerbatimBlock(payload.text), str)),
        "text": payload.text,
    }


ROUTES = [
    Route("/choices", choices, methods=["GET"]),
    Route("/payload", pack, methods=["POST"]),
]
