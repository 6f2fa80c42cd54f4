"""What users see of one skill, and exactly what a model gets of it at each level.

Used by `kitbag skills` and `/skills NAME`. Reads the skill's files each time.
"""

import os
from typing import Any

from kitbag.errors import Diagnostic
from kitbag.library.dialects.tool_lists import parse_tools
from kitbag.library.registry import Registry
from kitbag.library.skill_files import SkillDetails, list_resources, read_skill_details
from kitbag.library.skills import Skill, to_text
from kitbag.library.visibility import skill_to_json
from kitbag.packing.catalog import catalog_budget, catalog_name, parse_catalog_lines, render_skills
from kitbag.packing.skill_delivery import render_skill
from kitbag.text.human_format import shorten_path
from kitbag.text.plain_frontmatter import YamlValue
from kitbag.text.source_files import SourceError, read_text
from kitbag.text.tokens import estimate_tokens

_PLAIN_FIELDS = ("version", "license", "compatibility", "model", "context", "agent", "paths", "author")
"""Frontmatter fields that are shown unchanged."""


def skill_level_text(registry: Registry, skill: Skill, level: int) -> str:
    """What a model gets. Level 2 is every file next to SKILL.md, as Read would show it."""
    if level == 0:
        verdict = registry.evaluate(skill)
        if not verdict.listed:
            return ""
        catalog = render_skills(registry.visible_skills(), catalog_budget(registry.settings))  # others share its budget
        return parse_catalog_lines(catalog.text).get(catalog_name(skill), "")
    if level == 1:
        return render_skill(skill).text
    parts: list[str] = []
    for resource in list_resources(skill).files:
        path = os.path.join(skill.directory, resource.path)
        try:
            text = read_text(path, skill.root.boundary)[0]
        except SourceError as error:
            text = f"({error.problem})"
        parts.append(f"=== {resource.path}\n{text.rstrip()}")
    return "\n\n".join(parts)


def list_skill_files(skill: Skill) -> list[dict[str, Any]]:
    """The files next to SKILL.md with their tokens; None for files that are not text."""
    files: list[dict[str, Any]] = []
    for resource in list_resources(skill).files:
        try:
            text = read_text(os.path.join(skill.directory, resource.path), skill.root.boundary)[0]
            tokens: int | None = estimate_tokens(text)
        except SourceError:
            tokens = None
        files.append({"path": resource.path, "group": resource.group, "bytes": resource.size, "tokens": tokens})
    return files


def skill_card(registry: Registry, skill: Skill) -> dict[str, Any]:
    details = read_skill_details(skill)
    entry = registry.manifest_entry(skill)
    delivery = render_skill(skill)
    files = list_skill_files(skill)
    access = parse_tools(details.fields.get("allowed-tools"))[0]
    return {
        **skill_to_json(skill, registry.evaluate(skill)),
        "display_name": details.display_name,
        "version": details.version or (entry.version if entry else ""),
        "tags": list(details.tags),
        "triggers": list(details.triggers) or list(entry.dispatch_triggers if entry else ()),
        "requires": list(details.requires),
        "subagents": list(skill.subagents),
        "allowed_tools": access.to_json(),
        "token_budget": entry.token_budget if entry else None,
        "metadata": details.metadata,
        "tokens": {
            "level_0": estimate_tokens(skill_level_text(registry, skill, 0)),
            "level_1": estimate_tokens(delivery.text),
            "level_2": sum(file["tokens"] or 0 for file in files),
        },
        "files": files,
        "shadows": [loser.path for winner, loser in registry.skills.shadowed if winner is skill],
        "problems": [problem._asdict() for problem in _list_problems(registry, skill, details, delivery.problems)],
    }


def _list_problems(
    registry: Registry, skill: Skill, details: SkillDetails, more: tuple[Diagnostic, ...]
) -> list[Diagnostic]:
    return list(dict.fromkeys([*registry.diagnostics(skill.path), *details.problems, *more]))


def skill_card_fields(registry: Registry, skill: Skill, card: dict[str, Any]) -> list[tuple[str, str]]:
    """(label, value) for a `skill_card`; some values are empty."""
    return [
        ("description", card["description"]),
        ("when to use", card["when_to_use"]),
        ("display name", card["display_name"] if card["display_name"] != skill.name else ""),
        *((key, _format_value(card["metadata"][key])) for key in _PLAIN_FIELDS if card["metadata"].get(key)),
        ("tags", ", ".join(card["tags"])),
        ("triggers", ", ".join(card["triggers"])),
        ("requires", ", ".join(card["requires"])),
        ("subagents", ", ".join(card["subagents"])),
        ("allowed tools", ", ".join(card["allowed_tools"]["specifiers"])),
        ("scope", f"{skill.root.scope} ({registry.describe_precedence(skill.root)})"),
        ("path", shorten_path(skill.path)),
        ("shadows", ", ".join(shorten_path(path) for path in card["shadows"])),
        *_state_fields(skill, card),
        ("cost", _format_cost(card["tokens"])),
    ]


def skill_file_rows(card: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Path, bytes and tokens of each file."""
    return [
        (file["path"], f"{file['bytes']:,}", "-" if file["tokens"] is None else f"{file['tokens']:,}")
        for file in card["files"]
    ]


def _format_value(value: YamlValue) -> str:
    return ", ".join(to_text(item) for item in value) if isinstance(value, list) else to_text(value)


def _format_cost(tokens: dict[str, int]) -> str:
    start, loaded, files = tokens["level_0"], tokens["level_1"], tokens["level_2"]
    return f"{start:,} tokens in the catalog, {loaded:,} when loaded, {files:,} in files"


def _state_fields(skill: Skill, card: dict[str, Any]) -> list[tuple[str, str]]:
    """What each may do. The reason is written once, beside the first that it restricts."""
    reason, state = card["reason"], card["state"]
    model, user, agents = card["model_may_load"], card["user_may_invoke"], card["agents_may_preload"]
    if not (model or user or agents):
        return [("state", f"{state}: {reason}" if state == "off" else f"{state}, but unavailable: {reason}")]
    if not model:
        for_model = "can't load it"
    else:
        for_model = "sees it in the catalog and can load it" if card["listed"] else "can load it by name"
    invocation = f"can invoke it: /{skill.full_name}" if user else "can't invoke it"
    restricts_user = model and card["listed"] and not user
    return [
        ("state", state),
        ("model", for_model if restricts_user or not reason else f"{for_model}: {reason}"),
        ("you", f"{invocation}: {reason}" if restricts_user and reason else invocation),
        ("agents", "can preload it" if agents else "can't preload it"),
    ]
