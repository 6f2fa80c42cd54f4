"""Packs a task into a subagent's context: load, select skills, resolve references, fit, assemble (CONTRACT §4,
seed 001).

A Packer caches what many tasks share, so that the children of an epic read each skill once. Used by `kitbag pack`,
tasks and mcp_server.
"""

import os
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from kitbag.errors import Diagnostic
from kitbag.ledger import Entry, Ledger
from kitbag.library.agents import AgentFile, can_write_files
from kitbag.library.registry import Registry
from kitbag.library.skill_files import SkillDetails
from kitbag.library.skills import Skill
from kitbag.packing.fit import (
    Budgets,
    OverBudgetError,
    PackedSkill,
    PayloadPart,
    budgets_from_settings,
    fit_to_budget,
    is_over,
    parse_token_count,
    resolve_budgets,
)
from kitbag.packing.loading_strategy import Strategy, StrategyChoice, choose_strategy
from kitbag.packing.output_contract import OutputContract, OutputKind, make_contract
from kitbag.packing.preload import PreloadedSkills, preload_skills
from kitbag.packing.references.permissions import ReferencePermissions
from kitbag.packing.references.resolve import (
    AskAboutReferences,
    PreparedReferences,
    ReferenceDecision,
    ReferenceLimits,
    ReferencePolicy,
    ReferenceRequest,
    ReferenceSource,
    ResolvedText,
    apply_references,
    prepare_references,
    settle_requests,
)
from kitbag.packing.skill_delivery import describe_files, replace_path_variables
from kitbag.packing.skill_selection import SelectedSkill, TriggerIndex, check_model_compatibility, select_skills
from kitbag.packing.skill_texts import SkillTexts
from kitbag.packing.task_sources import PackTask, TaskSource, load_task
from kitbag.text.tokens import TokenCounter, token_counter

PROTOCOL_FILE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "builtin", "protocol.md")


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """A packed task: its parts, and the decisions behind it. The ledger counts tokens when it is asked for."""

    task: PackTask
    parts: tuple[PayloadPart | Entry, ...]
    choice: StrategyChoice
    selected: tuple[SelectedSkill, ...]
    warnings: tuple[Diagnostic, ...]
    contract: OutputContract
    counter: str
    """Name of the token counter, such as `estimate`."""
    preload_warnings: tuple[Diagnostic, ...] = ()
    """Those of `warnings` about the agent's own skills, which it finds itself when it starts."""

    @property
    def ledger(self) -> Ledger:
        return Ledger(tuple(part if isinstance(part, Entry) else part.to_entry() for part in self.parts))

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)

    @property
    def tokens(self) -> int:
        return self.ledger.tokens

    def to_json(self) -> dict[str, Any]:
        ledger = self.ledger
        return {
            "task": self.task.id,
            "payload": self.text,
            "tokens": ledger.tokens,
            "token_counter": self.counter,
            "strategy": self.choice.strategy,
            "strategy_reason": self.choice.reason,
            "skills": [selected.skill.full_name for selected in self.selected],
            "skill_reasons": {selected.skill.full_name: selected.reason for selected in self.selected},
            "warnings": [f"{warning.place}: {warning.problem}" for warning in self.warnings],
            "diagnostics": [warning._asdict() for warning in self.warnings],
            "ledger": ledger.to_json(),
        }


class PackOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one pack; None means that settings and rules decide."""

    skills: tuple[str, ...] = ()
    strategy: Strategy | None = None
    output: OutputKind | None = None
    """None: a file, or text if the agent can't write one."""
    values: Mapping[str, str] = {}
    available: int | None = None
    used: int = 0
    model: str = ""
    agent: AgentFile | None = None
    budgets: Mapping[str, int] = {}
    """For this call only; override settings and the agent file."""


class Packer:
    def __init__(
        self,
        registry: Registry,
        *,
        policy: ReferencePolicy | None = None,
        budgets: Budgets | None = None,
        counter: TokenCounter | None = None,
        limits: ReferenceLimits | None = None,
        progress: Callable[[str, float], None] | None = None,
        ask: AskAboutReferences | None = None,
        allow_options: Collection[str] = (),
    ) -> None:
        """`allow_options`: those of the user's command that an error names, such as `--allow-env`."""
        self.registry = registry
        self.allow_options = allow_options
        self.budgets = budgets or budgets_from_settings(registry.settings)
        self.counter = counter or token_counter()
        self.policy = policy or ReferencePermissions(registry.places, registry.settings)
        self.ask = ask
        self.limits = limits or ReferenceLimits()
        self.progress = progress
        self.trigger_index = TriggerIndex(registry)
        self.uses = 0
        self._largest_insertion = ""
        """Hint about the last resolved text, for the error if it is over budget."""
        self._allowed_requests: set[ReferenceRequest] = set()
        self._texts = SkillTexts(registry, self.policy)

    @property
    def reads(self) -> int:
        """Number of skill files read by this Packer."""
        return self._texts.reads

    def source(self) -> TaskSource:
        settings = self.registry.settings
        return TaskSource(
            places=self.registry.places,
            task_command=settings.get("pack.task_command"),
            children_command=settings.get("pack.children_command"),
        )

    def pack(
        self, task: PackTask, options: PackOptions | None = None, warnings: list[Diagnostic] | None = None
    ) -> Payload:
        """Raises InvalidError (6), ReferenceDeniedError (6 or 13) or OverBudgetError (10)."""
        options = options or PackOptions()
        warnings = list(warnings or [])
        budgets = resolve_budgets(self.budgets, options.agent, options.budgets)
        values = {**self.registry.settings.variables(), **task.values, **options.values}
        preloads = self._preload_skills(options, budgets.skills, warnings)
        selected, selection_warnings = select_skills(task, self.trigger_index, options.skills)
        preloaded = {skill.full_name for skill in preloads.skills}
        skills = [one.skill for one in selected if one.skill.full_name not in preloaded]
        described, *bodies = self._prepare_references(task, skills, values)
        contract = make_contract(task.id, _output_kind(options, warnings), time.strftime("%Y-%m-%d"))
        protocol = self._builtin_part("protocol", "builtin/protocol.md", _read_protocol())
        heading = self._builtin_part("skills", "assembly", "## Skill Context\n\n")
        task_part = self._render_task(task, described, warnings)
        output = self._builtin_part(
            "output", f"output requirements: {contract.kind}", contract.render().rstrip() + "\n"
        )
        _check_limit(protocol, budgets.protocol, "protocol")
        _check_limit(task_part, budgets.task, "task", self._largest_insertion)
        warnings += selection_warnings
        available = budgets.total if options.available is None else options.available
        overhead = budgets.protocol + budgets.task
        choice = choose_strategy(task, len(selected), available, options.used, overhead, options.strategy)
        pieces = [
            self._pack_skill(skill, body, choice.strategy, values, warnings, options.model)
            for skill, body in zip(skills, bodies, strict=True)
        ]
        window = min(budgets.total, available)
        spawn_limit = min(window * budgets.fill // 100, window - options.used)
        fit_to_budget(pieces, [protocol, heading, task_part, output], preloads.tokens, budgets.skills, spawn_limit)
        if pieces and pieces[0].is_lowered:
            choice = StrategyChoice(strategy="minimal", reason=f"{choice.strategy} ({choice.reason}) was over budget")
        skill_parts = [part for piece in pieces for part in piece.parts]
        warnings += [_cut_warning(part) for part in skill_parts if "budget" in part.reason and part.tokens_cut]
        warnings += [_over_cap_warning(piece) for piece in pieces if piece.is_over_cap]
        costs = {entry.source: entry.tokens for entry in preloads.entries}
        omitted = [
            _preloaded_entry(one.skill, costs.get(one.skill.path, 0))
            for one in selected
            if one.skill.full_name in preloaded
        ]
        return Payload(
            task=task,
            parts=(protocol, heading, *skill_parts, *omitted, task_part, output),
            choice=choice,
            selected=tuple(selected),
            warnings=tuple(dict.fromkeys(warnings)),
            contract=contract,
            counter=self.counter.name,
            preload_warnings=preloads.warnings,
        )

    def _builtin_part(self, kind: str, source: str, text: str) -> PayloadPart:
        return PayloadPart(kind=kind, source=source, scope="built-in", level="", text=text, counter=self.counter)

    def _preload_skills(self, options: PackOptions, limit: int, warnings: list[Diagnostic]) -> PreloadedSkills:
        if options.agent is None:
            return PreloadedSkills(skills=(), entries=(), warnings=())
        preloads = preload_skills(options.agent, self.registry, limit, self.counter.count)
        warnings += preloads.warnings
        return preloads

    def _prepare_references(
        self, task: PackTask, skills: list[Skill], values: Mapping[str, str]
    ) -> list[PreparedReferences]:
        """Plans the task's text and all skills, and settles all requests before any of them reads or runs."""
        places = self.registry.places
        line = task.description_line or 1
        sources = [
            ReferenceSource(
                text=task.description,
                path=task.source,
                scope="project",
                base=places.cwd,
                root=places.project,
                first_line=line,
            )
        ]
        for skill in skills:
            text, root = self._texts.read(skill), skill.root.plugin_path or places.project
            sources.append(
                ReferenceSource(
                    text=text.body,
                    path=skill.path,
                    scope=skill.root.scope,
                    base=skill.directory,
                    root=root,
                    first_line=text.body_line,
                )
            )
        prepared = [prepare_references(source, values, self.policy, self.limits) for source in sources]
        requests = [self._reuse_answer(request) for text in prepared for request in text.plan.requests]
        settle_requests(requests, self.ask, self.allow_options)
        self._allowed_requests.update(request for request in requests if request.decision.verdict == "ask")
        return prepared

    def _reuse_answer(self, request: ReferenceRequest) -> ReferenceRequest:
        """An approval for one child of an epic also holds for the others."""
        return (
            msgspec.structs.replace(request, decision=ReferenceDecision("allow"))
            if request in self._allowed_requests
            else request
        )

    def _render_task(self, task: PackTask, prepared: PreparedReferences, warnings: list[Diagnostic]) -> PayloadPart:
        lines = [f"- ID: {task.id}", f"- Title: {task.title}" if task.title else ""]
        for label, value in (
            ("Type", task.type), ("Size", task.size), ("Complexity", task.complexity),
            ("Labels", ", ".join(task.labels)), ("Depends on", ", ".join(task.depends)),
            ("Parent", task.parent), ("Children", ", ".join(task.children)), ("Files", ", ".join(task.files)),
        ):  # fmt: skip
            lines.append(f"- {label}: {value}" if value else "")
        about = "\n".join(line for line in lines if line)
        description = self._resolve_references(prepared, warnings).text
        text = f"## Task\n\n{about}\n\n" + (f"{description.strip()}\n\n" if description.strip() else "")
        return PayloadPart(kind="task", source=task.source, scope="project", level="", text=text, counter=self.counter)

    def _resolve_references(self, prepared: PreparedReferences, warnings: list[Diagnostic]) -> ResolvedText:
        source = prepared.source
        resolved = apply_references(
            prepared, self.limits, self.policy, workspace=self.registry.places.cwd, progress=self.progress
        )
        warnings += resolved.warnings
        largest = max(resolved.insertions, key=lambda insertion: insertion.length, default=None)
        self._largest_insertion = ""
        if largest is not None and largest.length > 2000:
            at = source.first_line + source.text.count("\n", 0, largest.offset)
            size = f"{largest.bytes:,} bytes"
            self._largest_insertion = (
                f"the largest insertion is {largest.origin} ({size}), referenced near {source.path}:{at}; insert less"
            )
        return resolved

    def _pack_skill(
        self,
        skill: Skill,
        prepared: PreparedReferences,
        strategy: Strategy,
        values: Mapping[str, str],
        warnings: list[Diagnostic],
        model: str,
    ) -> PackedSkill:
        self.uses += 1
        details = self.trigger_index.details(skill)
        warnings += check_model_compatibility(skill, details, model)
        self._check_inputs(skill, values, warnings)
        text = self._texts.read(skill)
        warnings += text.problems
        resolved = self._resolve_references(prepared, warnings)
        body = resolved.map_source(lambda part: replace_path_variables(part, skill))
        version = details.version or (entry.version if (entry := self.registry.manifest_entry(skill)) else "")
        title = f"### {skill.full_name} (v{version})" if version else f"### {skill.full_name}"
        piece = PackedSkill(
            skill=skill,
            title=title,
            files=describe_files(skill),
            frontmatter=text.frontmatter,
            body=body,
            counter=self.counter,
            cap=self._token_cap(skill, details),
        )
        if strategy == "minimal":
            piece.use_minimal()
        if strategy == "comprehensive":
            references, problems = self._texts.read_references(skill)
            warnings += problems
            for path, content in references:
                block = f"#### {skill.full_name}: {path}\n\n{content.strip()}\n\n"
                piece.references.append(
                    PayloadPart(
                        kind="reference",
                        source=os.path.join(skill.directory, path),
                        scope=skill.root.scope,
                        level="L2",
                        text=block,
                        counter=self.counter,
                    )
                )
        return piece

    def _token_cap(self, skill: Skill, details: SkillDetails) -> int | None:
        value = details.fields.get("token_budget")
        if value is not None:
            return parse_token_count(value)
        entry = self.registry.manifest_entry(skill)
        return entry.token_budget if entry else None

    def _check_inputs(self, skill: Skill, values: Mapping[str, str], warnings: list[Diagnostic]) -> None:
        entry = self.registry.manifest_entry(skill)
        for name in entry.inputs if entry else ():
            if name not in values:
                problem = f"no value for the input {name} of {skill.full_name}"
                warnings.append(
                    Diagnostic(
                        severity="warning",
                        code="missing-input",
                        file=skill.path,
                        line=0,
                        problem=problem,
                        fix=f"pass --var {name}=...",
                    )
                )


def _output_kind(options: PackOptions, warnings: list[Diagnostic]) -> OutputKind:
    agent = options.agent
    if agent is None or options.output in ("text", "json") or can_write_files(agent):
        return options.output or "manifest+file"
    if options.output is not None:
        problem = f"the agent {agent.full_name} can't write files; it is asked to answer with text"
        fix = "let it write, or use --output-requirements text"
        warnings.append(
            Diagnostic(severity="warning", code="output", file=agent.path, line=0, problem=problem, fix=fix)
        )
    return "text"


def _preloaded_entry(skill: Skill, cost: int) -> Entry:
    reason = "already preloaded by the agent"
    return Entry(
        kind="skill",
        source=skill.path,
        scope=skill.root.scope,
        level="L1",
        text="",
        tokens=0,
        tokens_cut=cost,
        status="omitted",
        reason=reason,
    )


def _over_cap_warning(piece: PackedSkill) -> Diagnostic:
    problem = (
        f"{piece.tokens:,} tokens exceed its token_budget of {piece.cap:,}: its essential sections are never truncated"
    )
    return Diagnostic(
        severity="warning",
        code="over-cap",
        file=piece.skill.path,
        line=0,
        problem=problem,
        fix="raise token_budget, or shorten its rules",
    )


def _cut_warning(part: PayloadPart) -> Diagnostic:
    problem = f"{part.tokens_cut:,} tokens omitted: {part.reason}"
    return Diagnostic(
        severity="warning", code="cut", file=part.source, line=0, problem=problem, fix="raise the budget, or shorten it"
    )


def _check_limit(part: PayloadPart, limit: int, name: str, fix: str = "") -> None:
    if is_over([part], limit):
        raise OverBudgetError(name, part.tokens, limit, fix)


def _read_protocol() -> str:
    with open(PROTOCOL_FILE, encoding="utf-8") as file:
        return file.read().strip() + "\n\n"


def pack(task: str, *, cwd: str | None = None, registry: Registry | None = None, **options: Any) -> Payload:
    """Packs a task by id, file, or `-` for standard input; `options` are those of PackOptions."""
    from kitbag.library.scopes import find_places

    packer = Packer(registry or Registry(find_places(cwd)))
    loaded, warnings = load_task(task, packer.source())
    return packer.pack(loaded, PackOptions(**options), warnings)
