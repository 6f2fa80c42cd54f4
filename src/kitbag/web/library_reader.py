"""The library as browsers see it: all items with scope, state, cost and problems, and one item in detail. Blocks.

Used by library_routes. What an item means comes from library, packing, audit and views; this only arranges it.
"""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, Literal, cast

from kitbag.errors import NotFoundError, UsageError
from kitbag.library.agents import AgentFile
from kitbag.library.personas import Persona
from kitbag.library.plugins.installed import load_installed
from kitbag.library.plugins.manifest import Plugin
from kitbag.library.registry import Registry
from kitbag.library.scopes import Places
from kitbag.library.skills import COMMAND, FLAT, Skill
from kitbag.library.untrusted_items import is_project_root
from kitbag.packing.catalog import catalog_budget, catalog_name, parse_catalog_lines, render_agents, render_skills
from kitbag.packing.skill_delivery import render_skill
from kitbag.permissions.trust.workspace_trust import WorkspaceTrust, check_trust
from kitbag.settings import ITEM_STATES
from kitbag.text.human_format import format_count, shorten_path
from kitbag.text.source_files import SourceError
from kitbag.text.tokens import estimate_tokens
from kitbag.views.agent_card import agent_fields, read_agent_body
from kitbag.views.blocks import Block, FieldsBlock, NoticeBlock, TableBlock, VerbatimBlock, diagnostic_block, text_block
from kitbag.views.rendering.styled_text import Cleaner
from kitbag.views.skill_card import list_skill_files, skill_card, skill_card_fields, skill_file_rows, skill_level_text
from kitbag.views.trust import STATE_LABELS

ItemKind = Literal["skill", "command", "agent", "persona", "plugin"]
LibraryFile = Skill | AgentFile | Persona
CLEAN: Final = Cleaner(str)
_MAX_SUMMARY: Final = 300
_MAX_OTHERS: Final = 100
_AUDIT_SEVERITIES: Final = {"high": "error", "medium": "warning"}
_LEVEL_TITLES: Final = ("Level 0: its line in the catalog", "Level 1: when it is loaded", "Level 2: its other files")


def list_library(places: Places) -> dict[str, Any]:
    """`others`: problems of settings, and of files from which no item could be read."""
    registry, trust = Registry(places), check_trust(places)
    found = [one for one in registry.diagnostics() if one.severity != "info"]
    problems = Counter(one.file for one in found)
    rows = [*_skill_rows(registry), *_agent_rows(registry), *_persona_rows(registry), *_plugin_rows(places)]
    files = {row["path"] for row in rows}
    others: list[Block] = [diagnostic_block(one, with_code=True) for one in found if one.file not in files]
    for row in rows:
        row["problems"] = problems[row["path"]]
        row["is_untrusted"] = row["scope"] == "project" and not trust.can_load_items
        row["path"] = CLEAN.line(shorten_path(row["path"]))
        row["summary"] = CLEAN.line(row["summary"])[:_MAX_SUMMARY]
    return {"trust": describe_trust(trust), "items": rows, "others": others[:_MAX_OTHERS]}


def describe_trust(trust: WorkspaceTrust) -> dict[str, str]:
    return {"state": trust.state, "text": f"{shorten_path(trust.folder)} {STATE_LABELS[trust.state]}"}


def _row(kind: ItemKind, item: LibraryFile, summary: str, state: str, note: str, level_0: int) -> dict[str, Any]:
    return {
        "kind": kind,
        "name": CLEAN.line(item.full_name),
        "key": item.full_name,
        "summary": summary,
        "scope": item.root.scope,
        "state": state,
        "note": CLEAN.line(note),
        "level_0": level_0,
        "path": item.path,
        "shadowed_by": "",
    }


def _shadowed(row: dict[str, Any], winner: LibraryFile) -> dict[str, Any]:
    return {**row, "state": "shadowed", "note": f"shadowed by {shorten_path(winner.path)}", "shadowed_by": winner.path}


def _skill_rows(registry: Registry) -> Iterator[dict[str, Any]]:
    lines = parse_catalog_lines(render_skills(registry.visible_skills(), catalog_budget(registry.settings)).text)
    context = registry.visibility_context()
    for skill in registry.skills:
        verdict = registry.evaluate(skill, context)
        cost = estimate_tokens(lines.get(catalog_name(skill), "")) if verdict.listed else 0
        yield _row(_skill_kind(skill), skill, skill.summary, verdict.state, verdict.reason, cost)
    for winner, loser in registry.skills.shadowed:
        yield _shadowed(_row(_skill_kind(loser), loser, loser.summary, "", "", 0), winner)


def _skill_kind(skill: Skill) -> ItemKind:
    return "command" if skill.kind == "command" else "skill"


def _agent_rows(registry: Registry) -> Iterator[dict[str, Any]]:
    lines = parse_catalog_lines(render_agents(registry.visible_agents(), catalog_budget(registry.settings)).text)
    context = registry.visibility_context("agents")
    for agent in registry.agents:
        verdict = registry.evaluate(agent, context)
        cost = estimate_tokens(lines.get(catalog_name(agent), "")) if verdict.listed else 0
        yield _row("agent", agent, agent.description, verdict.state, verdict.reason, cost)
    for winner, loser in registry.agents.shadowed:
        yield _shadowed(_row("agent", loser, loser.description, "", "", 0), winner)


def _persona_rows(registry: Registry) -> Iterator[dict[str, Any]]:
    for persona in registry.personas:
        yield _row("persona", persona, persona.description, "", f"team {persona.team}" if persona.team else "", 0)
    for winner, loser in registry.personas.shadowed:
        yield _shadowed(_row("persona", loser, loser.description, "", "", 0), winner)


def _plugin_rows(places: Places) -> Iterator[dict[str, Any]]:
    for plugin in load_installed(places.kitbag_home)[0]:
        yield {
            "kind": "plugin",
            "name": CLEAN.line(plugin.name),
            "key": plugin.name,
            "summary": plugin.description or plugin.display_name,
            "scope": "plugin",
            "state": "on" if plugin.enabled else "off",
            "note": CLEAN.line(f"version {plugin.version}" if plugin.version else ""),
            "level_0": 0,
            "path": plugin.path,
            "shadowed_by": "",
        }


def list_costs(places: Places) -> dict[str, list[int]]:
    """What each skill, command and agent costs when it is loaded, and in files, by `kind/key`."""
    registry = Registry(places)
    costs: dict[str, list[int]] = {}
    for skill in registry.skills:
        files = sum(file["tokens"] or 0 for file in list_skill_files(skill))
        costs[f"{_skill_kind(skill)}/{skill.full_name}"] = [estimate_tokens(render_skill(skill).text), files]
    for agent in registry.agents:
        try:
            costs[f"agent/{agent.full_name}"] = [estimate_tokens(agent.body()), 0]
        except SourceError:
            continue
    return costs


# One item


def find_item(registry: Registry, kind: str, name: str) -> LibraryFile:
    """Raises NotFoundError or AmbiguousError; UsageError for a kind that has no file."""
    if kind in ("skill", "command"):
        return registry.skills.get_exact(name) or registry.find_skill(name)
    if kind == "agent":
        return registry.agents.get_exact(name) or registry.find_agent(name)
    if kind == "persona":
        return registry.personas.get_exact(name) or registry.find_persona(name)
    raise UsageError(f"no kind of item {kind[:40]!r}", "reload the page")


def find_plugin(places: Places, name: str) -> Plugin:
    found = next((plugin for plugin in load_installed(places.kitbag_home)[0] if plugin.name == name), None)
    if found is None:
        raise NotFoundError(f"no plugin named {name[:80]!r}", "list plugins with `kitbag plugins list`")
    return found


def show_item(places: Places, kind: str, name: str) -> dict[str, Any]:
    """`blocks` of the overview, `levels` with what a model gets."""
    if kind == "plugin":
        return _show_plugin(find_plugin(places, name))
    registry = Registry(places)
    item = find_item(registry, kind, name)
    if isinstance(item, Skill):
        shown = _show_skill(registry, item)
    elif isinstance(item, AgentFile):
        shown = _show_agent(registry, item)
    else:
        shown = _show_persona(registry, item)
    trust = check_trust(places)
    if is_project_root(item.root, places) and not trust.can_load_items:
        fix = "review it and trust it: kitbag trust"
        shown["blocks"].insert(0, NoticeBlock("warning", f"the workspace {STATE_LABELS[trust.state]}", fix))
    return {
        "kind": kind,
        "key": item.full_name,
        "name": CLEAN.line(item.full_name),
        "scope": item.root.scope,
        "path": CLEAN.line(shorten_path(item.path)),
        "states": list(ITEM_STATES) if not isinstance(item, Persona) else [],
        **shown,
    }


def _show_skill(registry: Registry, skill: Skill) -> dict[str, Any]:
    card = skill_card(registry, skill)
    blocks: list[Block] = [FieldsBlock(tuple(skill_card_fields(registry, skill, card)[:-1]))]
    blocks += _problem_blocks(registry, skill.path, card["problems"])
    if card["files"]:
        blocks.append(TableBlock(headers=("FILE", "BYTES", "TOKENS"), rows=tuple(skill_file_rows(card)), title="Files"))
    texts = [skill_level_text(registry, skill, level) for level in range(3)]
    tokens = card["tokens"]
    return {
        "state": card["state"],
        "tokens": [tokens["level_0"], tokens["level_1"], tokens["level_2"]],
        "blocks": blocks,
        "levels": [
            VerbatimBlock(text, title) if text else text_block(f"{title}: nothing", "dim")
            for text, title in zip(texts, _LEVEL_TITLES, strict=True)
        ],
    }


def _problem_blocks(registry: Registry, path: str, known: list[dict[str, Any]] | None = None) -> list[Block]:
    from kitbag.errors import Diagnostic

    found = [Diagnostic(**one) for one in known] if known is not None else registry.diagnostics(path)
    return [diagnostic_block(one, with_code=True) for one in found]


def _show_agent(registry: Registry, agent: AgentFile) -> dict[str, Any]:
    verdict, body = registry.evaluate(agent, registry.visibility_context("agents")), read_agent_body(agent)
    lines = parse_catalog_lines(render_agents(registry.visible_agents(), catalog_budget(registry.settings)).text)
    line = lines.get(catalog_name(agent), "") if verdict.listed else ""
    fields = agent_fields(registry, agent, verdict, body)
    catalog = VerbatimBlock(line, _LEVEL_TITLES[0]) if line else text_block("not in the model's catalog", "dim")
    return {
        "state": verdict.state,
        "tokens": [estimate_tokens(line), estimate_tokens(body), 0],
        "blocks": [FieldsBlock(tuple(fields[:-1])), *_problem_blocks(registry, agent.path)],
        "levels": [catalog, VerbatimBlock(body, "Level 1: its instructions, at the start")],
    }


def _show_persona(registry: Registry, persona: Persona) -> dict[str, Any]:
    fields = (
        ("display name", persona.display_name),
        ("description", persona.description),
        ("team", persona.team),
        ("model", persona.default_model),
        ("core skills", ", ".join(persona.core_skills)),
        ("skills", ", ".join(persona.skills)),
        ("on demand", ", ".join(persona.on_demand_skills)),
        ("agents", "all of its team" if persona.subagents is None else ", ".join(persona.subagents)),
        ("scope", f"{persona.root.scope} ({registry.describe_precedence(persona.root)})"),
        ("path", shorten_path(persona.path)),
    )
    blocks: list[Block] = [FieldsBlock(fields), *_problem_blocks(registry, persona.path)]
    prompt = persona.system_prompt_additions
    levels = [VerbatimBlock(prompt, "Added to the system prompt")] if prompt else []
    return {"state": "", "tokens": [0, estimate_tokens(prompt), 0], "blocks": blocks, "levels": levels}


def _show_plugin(plugin: Plugin) -> dict[str, Any]:
    fields = (
        ("description", plugin.description),
        ("version", plugin.version),
        ("author", plugin.author),
        ("license", plugin.license),
        ("state", "enabled" if plugin.enabled else "disabled"),
        ("installed from", plugin.source),
        ("installed", plugin.installed_at[:10]),
        ("not run", ", ".join(plugin.brings)),
        ("path", shorten_path(plugin.path)),
    )
    return {
        "kind": "plugin",
        "key": plugin.name,
        "name": CLEAN.line(plugin.name),
        "scope": "plugin",
        "path": CLEAN.line(shorten_path(plugin.path)),
        "state": "on" if plugin.enabled else "off",
        "states": ["on", "off"],
        "tokens": [],
        "blocks": [FieldsBlock(fields)],
        "levels": [],
    }


def item_path(places: Places, kind: str, name: str) -> str:
    """What an audit reads: the directory of a skill, the file of anything else."""
    if kind == "plugin":
        return find_plugin(places, name).path
    item = find_item(Registry(places), kind, name)
    if isinstance(item, Skill) and not item.flags & (COMMAND | FLAT):
        return item.directory
    return item.path


def audit_blocks(path: str) -> list[Block]:
    """What an audit of these files finds, worst first."""
    from kitbag.audit.findings import AuditFinding
    from kitbag.audit.rules import load_rules
    from kitbag.audit.run import CAUTION, run_audit

    report = run_audit((path,))
    rules = load_rules()

    def describe(finding: AuditFinding) -> NoticeBlock:
        note = f" ({finding.note})" if finding.note else ""
        place = f"{os.path.basename(finding.file)}:{finding.line}" if finding.line else os.path.basename(finding.file)
        severity = cast("Literal['error', 'warning', 'info']", _AUDIT_SEVERITIES.get(finding.severity, "info"))
        text = f"{finding.rule}, {finding.severity}: {rules[finding.rule].why}\n{place}: {finding.excerpt}{note}"
        return NoticeBlock(severity, text, rules[finding.rule].fix)

    findings = report.findings
    read = format_count(sum(len(one.files) for one in report.examined), "file")
    summary = f"{format_count(len(findings), 'finding')} in {read}. {CAUTION}"
    return [text_block(summary, "dim"), *map(describe, findings)]
