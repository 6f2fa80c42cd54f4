"""Renders a skill as the block that a model gets when the skill is loaded (level 1); one code path for all callers.

Used by session_skills, preload, pack and `kitbag skills show`; uses library.skill_files.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from kitbag.errors import Diagnostic
from kitbag.library.skill_files import SkillBody, SkillResource, list_resources, read_skill_body
from kitbag.library.skills import Skill
from kitbag.text.hidden_characters import collapse_whitespace, find_disguises, format_code_points, reveal_hidden

MAX_FILES_NAMED = 40
CLOSING_TAG = "</skill-invocation>"
_RESERVED_TAG = r"(?i)<(?=\s*/?\s*skill-invocation)"


class RenderedSkill(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    """The whole block."""
    body: str
    """The instructions alone, with path variables replaced."""
    header: str
    """The lines before the body in the block."""
    content: str
    """The body in the block: the tags of blocks in it are escaped."""
    resources: tuple[SkillResource, ...]
    problems: tuple[Diagnostic, ...]


def render_skill(
    skill: Skill,
    arguments: str = "",
    prepare: Callable[[str, int], str] | None = None,
    content: SkillBody | None = None,
) -> RenderedSkill:
    """`content`: instead of what its file contains. `prepare` gets the body and the line at which it starts, and
    returns the text to deliver. It also replaces path variables, so that none are replaced in text it inserts."""
    if content is None:
        content = read_skill_body(skill)
    problems = list(content.problems)
    hidden = find_disguises(content.text)
    if hidden:
        line = content.first_line + content.text.count("\n", 0, hidden[0][0])
        problem = f"the body contains hidden characters, shown as [U+...]: {format_code_points(hidden)}"
        problems.append(
            Diagnostic(
                severity="warning",
                code="hidden-characters",
                file=skill.path,
                line=line,
                problem=problem,
                fix="remove them",
            )
        )
    body = reveal_hidden(content.text)
    if prepare is None:
        body = replace_path_variables(body, skill)
    elif body:
        body = reveal_hidden(prepare(body, content.first_line))
    resources, more, links = list_resources(skill)
    problems += links
    header = [f"Skill directory: {printable_path(skill.directory)}"]
    if arguments:
        header.append(f"User arguments: {collapse_whitespace(reveal_hidden(arguments))}")
    header += _list_files(resources, more, _DELIVERED_GROUPS)
    header_text, escaped = (re.sub(_RESERVED_TAG, "&lt;", text) for text in ("\n".join(header), body))
    return RenderedSkill(
        text=f"{opening_tag(skill.full_name)}\n{header_text}\n\n{escaped}\n{CLOSING_TAG}",
        body=body,
        header=header_text,
        content=escaped,
        resources=tuple(resources),
        problems=tuple(problems),
    )


_DELIVERED_GROUPS: Final = {"scripts": "Scripts (run with Bash)", "references": "References (open with Read)"}
_PACKED_GROUPS: Final = {**_DELIVERED_GROUPS, "assets": "Assets", "other": "Other files"}


def describe_files(skill: Skill) -> str:
    """The directory and all files of a skill that is packed: its agent may have nothing that lists them."""
    resources, more, _ = list_resources(skill)
    directory = f"Skill directory: {printable_path(skill.directory)}"
    return "\n".join([directory, *_list_files(resources, more, _PACKED_GROUPS)])


def _list_files(resources: list[SkillResource], more: bool, groups: Mapping[str, str]) -> list[str]:
    lines = [line for group, label in groups.items() for line in _file_list(label, group, resources)]
    if more:
        lines.append(f"(The skill has more than {len(resources)} files; list its directory to see the others.)")
    return lines


def opening_tag(name: str, part: int = 0, parts: int = 0) -> str:
    attributes = f' part="{part}" parts="{parts}"' if part else ""
    return f'<skill-invocation name="{_escape_attribute(name)}"{attributes}>'


def path_variables(skill: Skill) -> dict[str, str]:
    variables = {"SKILL_ROOT": printable_path(skill.directory), "CLAUDE_SKILL_DIR": printable_path(skill.directory)}
    if skill.root.plugin_path:
        variables["CLAUDE_PLUGIN_ROOT"] = printable_path(skill.root.plugin_path)
    return variables


def replace_path_variables(text: str, skill: Skill) -> str:
    """Also inside code fences, where commands name scripts."""
    for name, path in path_variables(skill).items():
        text = text.replace(f"${{{name}}}", path)
    return text


def printable_path(path: str) -> str:
    """Unchanged unless the path has line breaks or hidden characters."""
    return collapse_whitespace(reveal_hidden(path)) if not path.isprintable() else path


def _escape_attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def _file_list(label: str, group: str, resources: list[SkillResource]) -> list[str]:
    names = [printable_path(resource.path) for resource in resources if resource.group == group]
    if not names:
        return []
    more = len(names) - MAX_FILES_NAMED
    listed = ", ".join(names[:MAX_FILES_NAMED]) + (f" and {more} more" if more > 0 else "")
    return [f"{label}: {listed}"]
