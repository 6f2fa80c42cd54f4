"""Changes that a loaded skill makes to tool permissions until the user's next message: `allowed-tools` grants without
approval, `restrict-tools` and `disallowed-tools` remove tools.

Tool limits always apply. Grants apply to user and built-in skills; to project skills as they were when the workspace
was trusted; never to plugin skills. Created by session_skills, used by agent and assembly.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from kitbag.errors import Diagnostic
from kitbag.library.dialects.tool_lists import ToolAccess, parse_tools
from kitbag.library.scopes import Places
from kitbag.library.skills import Skill, to_diagnostic
from kitbag.packing.skill_delivery import path_variables
from kitbag.permissions.model import is_inside
from kitbag.permissions.rules.rule import PermissionRule
from kitbag.permissions.rules.tool_list_rules import skill_grants
from kitbag.text.hidden_characters import collapse_whitespace, reveal_hidden
from kitbag.text.plain_frontmatter import Metadata, YamlValue

if TYPE_CHECKING:
    from kitbag.permissions.trust.workspace_trust import WorkspaceTrust

DenyGrant = Callable[[Skill], str]
"""Why a skill's grants are denied; empty if they are given."""
_BLANK: Final = ("", "null", "~", "Null", "NULL")
_MAX_NAMED: Final = 12
_PLAIN_PATH: Final = r"[\w./@+-]+"
"""A path without characters that are special in a rule."""


class SkillPermissions(msgspec.Struct, frozen=True, kw_only=True):
    skill: str
    source: str
    """Path of the skill file."""
    requested_by: str = "model"
    """Who loaded the skill: model, user or preload."""
    grants: tuple[PermissionRule, ...] = ()
    tool_limit: ToolAccess | None = None
    denied_grants: tuple[str, ...] = ()
    """Rules in `allowed-tools` that were not granted."""
    denial_reason: str = ""
    """Why they were not granted."""

    def __bool__(self) -> bool:
        return bool(self.grants or self.tool_limit is not None or self.denied_grants)

    def equals_ignoring_requester(self, other: "SkillPermissions") -> bool:
        """Equal except for `requested_by`."""
        return msgspec.structs.replace(self, requested_by=other.requested_by) == other

    def describe_limit(self) -> str:
        limit = self.tool_limit
        if limit is None:
            return ""
        if limit.mode == "none":
            return "no tools are available"
        clauses: list[str] = []
        if limit.mode == "allow":
            restricted = {rule.partition("(")[0] for rule in limit.specifiers}
            names = [name for name in limit.names if name not in restricted]
            clauses.append(f"only these tools are available: {_join_names((*names, *limit.specifiers))}")
        if limit.denied:
            clauses.append(f"these are unavailable: {_join_names(limit.denied)}")
        return "; ".join(clauses)

    def user_notice(self) -> str:
        """One line to show after the skill's name; empty if nothing changes."""
        clauses: list[str] = []
        if self.grants:
            clauses.append(f"{_join_names(rule.text for rule in self.grants)} without asking")
        if self.denied_grants:
            clauses.append(f"it requests {_join_names(self.denied_grants)}, which is not granted: {self.denial_reason}")
        if limit := self.describe_limit():
            clauses.append(limit)
        return f"until your next message: {'; '.join(clauses)}" if clauses else ""

    def model_notice(self) -> str:
        """Tells the model which tools are unavailable; empty if none are removed."""
        limit = self.describe_limit()
        return f"[While this skill is in use, until the next user message: {limit}.]" if limit else ""


def read_skill_permissions(
    skill: Skill, fields: Metadata, places: Places, deny_grant: DenyGrant, requested_by: str = "model"
) -> tuple[SkillPermissions, tuple[Diagnostic, ...]]:
    """`fields`: as in SkillDetails. A tool limit that can't be parsed removes all tools, with a diagnostic."""
    problems: list[Diagnostic] = []
    permissions = SkillPermissions(skill=skill.full_name, source=skill.path, requested_by=requested_by)
    restricted, denied = _field_value(fields, "restrict-tools"), _field_value(fields, "disallowed-tools")
    if restricted is not None or denied is not None:
        access, parse_problems = parse_tools(restricted, denied, skill.root.dialect)
        problems += (to_diagnostic(skill.path, problem, skill.root.boundary) for problem in parse_problems)
        permissions = msgspec.structs.replace(
            permissions, tool_limit=access if access.mode not in ("inherit", "all") or access.denied else None
        )
    allowed = _field_value(fields, "allowed-tools")
    if allowed is None:
        return permissions, tuple(problems)
    access, parse_problems = parse_tools(allowed, dialect=skill.root.dialect)
    problems += (
        to_diagnostic(skill.path, problem, skill.root.boundary)
        for problem in parse_problems
        if problem.severity != "error"
    )
    if access.mode == "all":
        problem = "`allowed-tools: *` names no tools and grants nothing"
        problems.append(
            Diagnostic(
                severity="warning",
                code="skill-grant",
                file=skill.path,
                line=0,
                problem=problem,
                fix="name the tools it needs",
            )
        )
    grants, rule_problems = skill_grants(_expand_path_variables(access, skill, places), skill.path, places.project)
    problems += rule_problems
    reason = deny_grant(skill) if grants else ""
    if reason:
        return msgspec.structs.replace(
            permissions, denied_grants=tuple(rule.text for rule in grants), denial_reason=reason
        ), tuple(problems)
    return msgspec.structs.replace(permissions, grants=grants), tuple(problems)


def _field_value(fields: Metadata, name: str) -> YamlValue | None:
    found = fields.get(name)
    return None if isinstance(found, str) and found.strip() in _BLANK else found


def _expand_path_variables(access: ToolAccess, skill: Skill, places: Places) -> ToolAccess:
    """Expands `Bash(${CLAUDE_SKILL_DIR}/scripts/x.sh:*)`, unless the path has characters that are special in a rule."""
    variables = {**path_variables(skill), "CLAUDE_PROJECT_DIR": places.project}
    usable = {name: path for name, path in variables.items() if re.fullmatch(_PLAIN_PATH, path)}
    return msgspec.structs.replace(access, specifiers=tuple(_fill_rule(rule, usable) for rule in access.specifiers))


def _fill_rule(rule: str, variables: Mapping[str, str]) -> str:
    if rule.startswith("Bash("):
        for name, path in variables.items():
            rule = rule.replace(f"${{{name}}}", path)
    return rule


# --- who gets grants ------------------------------------------------------------------------------------------------


def deny_grant_by_scope(skill: Skill) -> str:
    """For callers that don't know about trust: project and plugin skills get no grants."""
    if skill.root.scope in ("user", "built-in"):
        return ""
    return _PLUGIN_DENIAL if skill.root.scope == "plugin" else "its directory is not known to be trusted"


_PLUGIN_DENIAL: Final = "plugin skills cannot grant permissions; add a rule to your settings instead"


def deny_grant_by_trust(trust: "WorkspaceTrust", places: Places) -> DenyGrant:
    """A project skill gets the grants that it had when the user trusted the workspace."""

    def deny_grant(skill: Skill) -> str:
        scope = skill.root.scope
        is_project_skill = scope == "project" or (scope == "extra" and _is_in_project(skill, places))
        if not is_project_skill:
            return _PLUGIN_DENIAL if scope == "plugin" else ""
        if trust.for_this_run or (trust.state == "trusted" and _was_trusted_with_tools(trust, skill)):
            return ""
        return "it was added after the workspace was trusted; run `kitbag trust` to review it"

    return deny_grant


def _is_in_project(skill: Skill, places: Places) -> bool:
    return bool(places.project_dirs) and is_inside(os.path.realpath(skill.path), os.path.realpath(places.project))


def _was_trusted_with_tools(trust: "WorkspaceTrust", skill: Skill) -> bool:
    """Whether everything the file says about tools was there when the workspace was trusted."""
    from kitbag.permissions.trust.capabilities import document_capabilities
    from kitbag.text.source_files import SourceError, read_text

    try:
        acts = document_capabilities(read_text(skill.path, skill.root.boundary)[0])[0]
    except SourceError:
        return False
    known = {
        (act.kind, act.text)
        for item in trust.items
        if skill.path in (os.path.join(trust.folder, item.path), os.path.join(trust.root, item.path))
        for act in item.capabilities
    }
    return all((act.kind, act.text) in known for act in acts if act.kind == "tools")


def _join_names(names: Iterable[str]) -> str:
    texts = list(dict.fromkeys(map(_printable, names)))
    more = f" and {len(texts) - _MAX_NAMED} more" if len(texts) > _MAX_NAMED else ""
    return ", ".join(texts[:_MAX_NAMED]) + more


def _printable(text: str) -> str:
    return collapse_whitespace(reveal_hidden(text))[:200].replace("<", "&lt;")
