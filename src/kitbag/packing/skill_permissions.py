"""What a skill in use changes about the tools until the person speaks again: `allowed-tools` needs no answer,
`restrict-tools` and `disallowed-tools` take away.

Made by session_skills when a skill is asked for, used by whoever runs tools. Limits count whoever wrote the skill.
What it asks for is granted as commands in it are: a user's and a built-in one's by themselves, a project's as it was
trusted, a plugin's never.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

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
"""Why a skill is not given what it asks for; empty when it is."""
_ALLOWED_KEYS: Final = ("allowed-tools", "allowed_tools", "allowedTools")
_RESTRICTED_KEYS: Final = ("restrict-tools", "restrict_tools", "restrictTools")
_DENIED_KEYS: Final = ("disallowed-tools", "disallowed_tools", "disallowedTools")
_BLANK: Final = ("", "null", "~", "Null", "NULL")
_MAX_NAMED: Final = 12
_PLAIN_PATH: Final = re.compile(r"[\w./@+-]+")
"""Nothing in it has a meaning of its own in a rule."""


class SkillPermissions(NamedTuple):
    skill: str
    source: str
    """The skill's file."""
    requested_by: str = "model"
    """Who asked for the skill."""
    grants: tuple[PermissionRule, ...] = ()
    tool_limit: ToolAccess | None = None
    denied_grants: tuple[str, ...] = ()
    """What `allowed-tools` names, and was not given."""
    denial_reason: str = ""
    """Why not."""

    def __bool__(self) -> bool:
        return bool(self.grants or self.tool_limit is not None or self.denied_grants)

    def equals_ignoring_requester(self, other: "SkillPermissions") -> bool:
        """The same, whoever asked for it."""
        return self._replace(requested_by=other.requested_by) == other

    def describe_limit(self) -> str:
        limit = self.tool_limit
        if limit is None:
            return ""
        if limit.mode == "none":
            return "no tool can be used"
        words: list[str] = []
        if limit.mode == "allow":
            limited = {rule.partition("(")[0] for rule in limit.specifiers}
            names = [name for name in limit.names if name not in limited]
            words.append(f"only these tools can be used: {_join_names((*names, *limit.specifiers))}")
        if limit.denied:
            words.append(f"these can't be used: {_join_names(limit.denied)}")
        return "; ".join(words)

    def user_notice(self) -> str:
        """In a line, behind the skill's name; empty when nothing changes."""
        words: list[str] = []
        if self.grants:
            words.append(f"{_join_names(rule.text for rule in self.grants)} without asking")
        if self.denied_grants:
            words.append(f"it asks for {_join_names(self.denied_grants)}, which it does not get: {self.denial_reason}")
        if limit := self.describe_limit():
            words.append(limit)
        return f"until your next message: {'; '.join(words)}" if words else ""

    def model_notice(self) -> str:
        """What it has to know so as not to try in vain; empty when nothing is taken away."""
        limit = self.describe_limit()
        return f"[While this skill is in use, until the user speaks again: {limit}.]" if limit else ""


def read_skill_permissions(
    skill: Skill, metadata: Metadata, places: Places, deny_grant: DenyGrant, requested_by: str = "model"
) -> tuple[SkillPermissions, tuple[Diagnostic, ...]]:
    """By the skill's head. A limit that can't be read leaves no tool, and says so."""
    problems: list[Diagnostic] = []
    rights = SkillPermissions(skill.full_name, skill.path, requested_by)
    restricted, denied = _field_value(metadata, _RESTRICTED_KEYS), _field_value(metadata, _DENIED_KEYS)
    if restricted is not None or denied is not None:
        access, wrong = parse_tools(restricted, denied, skill.root.dialect)
        problems += (to_diagnostic(skill.path, problem, skill.root.boundary) for problem in wrong)
        rights = rights._replace(tool_limit=access if access.mode not in ("inherit", "all") or access.denied else None)
    asked = _field_value(metadata, _ALLOWED_KEYS)
    if asked is None:
        return rights, tuple(problems)
    access, wrong = parse_tools(asked, dialect=skill.root.dialect)
    problems += (
        to_diagnostic(skill.path, problem, skill.root.boundary) for problem in wrong if problem.severity != "error"
    )
    if access.mode == "all":
        what = "`allowed-tools: *` names no tool, so nothing is allowed by it"
        problems.append(Diagnostic("warning", "skill-grant", skill.path, 0, what, "name the tools that it needs"))
    grants, more = skill_grants(_expand_path_variables(access, skill, places), skill.path, places.project)
    problems += more
    why = deny_grant(skill) if grants else ""
    if why:
        return rights._replace(denied_grants=tuple(rule.text for rule in grants), denial_reason=why), tuple(problems)
    return rights._replace(grants=grants), tuple(problems)


def _field_value(metadata: Metadata, spellings: tuple[str, ...]) -> YamlValue | None:
    found = next((metadata[key] for key in spellings if key in metadata), None)
    return None if isinstance(found, str) and found.strip() in _BLANK else found


def _expand_path_variables(access: ToolAccess, skill: Skill, places: Places) -> ToolAccess:
    """`Bash(${CLAUDE_SKILL_DIR}/scripts/x.sh:*)`: the path in its place, unless it would mean more than itself."""
    variables = {**path_variables(skill), "CLAUDE_PROJECT_DIR": places.project}
    usable = {name: path for name, path in variables.items() if _PLAIN_PATH.fullmatch(path)}
    return access._replace(specifiers=tuple(_fill_rule(rule, usable) for rule in access.specifiers))


def _fill_rule(rule: str, variables: Mapping[str, str]) -> str:
    if rule.startswith("Bash("):
        for name, path in variables.items():
            rule = rule.replace(f"${{{name}}}", path)
    return rule


# --- who is given what it asks for ----------------------------------------------------------------------------------


def deny_grant_by_scope(skill: Skill) -> str:
    """Where nothing is known about trust: neither a project's nor a plugin's skill is given anything."""
    if skill.root.scope in ("user", "built-in"):
        return ""
    return _PLUGIN_DENIAL if skill.root.scope == "plugin" else "whether its folder is trusted is not known"


_PLUGIN_DENIAL: Final = "a plugin's skill allows nothing by itself; add a rule to your settings for what you want"


def deny_grant_by_trust(trust: "WorkspaceTrust", places: Places) -> DenyGrant:
    """A project's skill is given what stood in it when the person trusted the workspace."""

    def withhold(skill: Skill) -> str:
        scope = skill.root.scope
        of_project = scope == "project" or (scope == "extra" and _is_in_project(skill, places))
        if not of_project:
            return _PLUGIN_DENIAL if scope == "plugin" else ""
        if trust.for_this_run or (trust.state == "trusted" and _was_trusted_with_tools(trust, skill)):
            return ""
        return "it was not there when the workspace was trusted; `kitbag trust` shows it, and asks"

    return withhold


def _is_in_project(skill: Skill, places: Places) -> bool:
    return bool(places.project_dirs) and is_inside(os.path.realpath(skill.path), os.path.realpath(places.project))


def _was_trusted_with_tools(trust: "WorkspaceTrust", skill: Skill) -> bool:
    """Whether all that the file says about tools was there when it was looked at."""
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
