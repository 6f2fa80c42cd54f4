"""The listing of `kitbag skills list`. Used by the command, and by `main` directly, because the import of click takes
longer than all the rest. Imports only what the listing needs.
"""

from kitbag.cli import output
from kitbag.library.registry import Registry
from kitbag.library.skills import Skill
from kitbag.library.visibility import Verdict, skill_to_json


def list_skills(registry: Registry, *, everything: bool, as_json: bool) -> None:
    view = registry.visibility_context()
    verdicts = [(skill, registry.evaluate(skill, view)) for skill in registry.skills]
    shown = [pair for pair in verdicts if everything or pair[1].listed or (pair[1].user and not pair[0].team)]
    if as_json:
        return output.as_json([skill_to_json(skill, verdict) for skill, verdict in shown])
    output.table(
        ("NAME", "SCOPE", "SHOWN", "DESCRIPTION"),
        [(skill.full_name, origin(skill), _visibility_label(verdict), skill.summary) for skill, verdict in shown],
    )
    output.footer(
        "skill", len(shown), len(verdicts) - len(shown), registry.problem_count(), registry.incomplete_searches()
    )
    return None


def origin(skill: Skill) -> str:
    return skill.root.scope if skill.kind == "skill" else f"{skill.root.scope} command"


def _visibility_label(verdict: Verdict) -> str:
    """Who sees it, in one or two words."""
    if verdict.state == "off":
        return "off"
    if verdict.listed:
        return "yes" if verdict.described else "name only"
    if not verdict.model:
        return "user only" if verdict.user else "no"
    return "on demand" if verdict.searchable else "by name"
