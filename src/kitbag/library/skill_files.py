"""Reads the parts of a skill that a scan does not keep: all frontmatter fields, the body, the resource files.

Reads from disk on every call. Used by packing, audit and the commands that inspect a skill; uses text/frontmatter.
"""

import contextlib
import os
from typing import NamedTuple

import msgspec

from kitbag.errors import Diagnostic, InvalidError
from kitbag.library.dialects.field_names import KNOWN_FIELDS
from kitbag.library.skills import COMMAND, FLAT, SKILL_SPELLING, Skill, get_text, to_diagnostic, to_string_list
from kitbag.text.frontmatter import read_body, read_frontmatter
from kitbag.text.plain_frontmatter import Metadata
from kitbag.text.source_files import LINK_OUTSIDE, FileStamp, SourceError


class SkillDetails(msgspec.Struct, frozen=True, kw_only=True):
    """All frontmatter fields, read on demand."""

    metadata: Metadata
    """As written."""
    fields: Metadata
    """The same, with each known field under the first of its spellings."""
    display_name: str
    version: str
    tags: tuple[str, ...]
    triggers: tuple[str, ...]
    requires: tuple[str, ...]
    problems: tuple[Diagnostic, ...]


def read_skill_details(skill: Skill) -> SkillDetails:
    try:
        _, frontmatter = read_frontmatter(skill.path, KNOWN_FIELDS, skill.root.boundary)
    except SourceError as error:
        unreadable = Diagnostic(
            severity="error", code=error.code, file=skill.path, line=0, problem=error.problem, fix=error.fix
        )
        return SkillDetails(
            metadata={},
            fields={},
            display_name=skill.name,
            version="",
            tags=(),
            triggers=(),
            requires=(),
            problems=(unreadable,),
        )
    metadata = frontmatter.metadata
    fields = SKILL_SPELLING.rename(metadata, [])
    return SkillDetails(
        metadata=metadata,
        fields=fields,
        display_name=get_text(fields, "display_name") or skill.name,
        version=get_text(fields, "version"),
        tags=to_string_list(fields.get("tags")),
        triggers=to_string_list(fields.get("triggers")),
        requires=to_string_list(fields.get("requires")),
        problems=tuple(to_diagnostic(skill.path, problem, skill.root.boundary) for problem in frontmatter.problems),
    )


class SkillBody(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    first_line: int
    stamp: FileStamp
    problems: tuple[Diagnostic, ...]


def read_skill_body(skill: Skill) -> SkillBody:
    """The body without outer blank lines, read from disk each time."""
    try:
        text, line, stamp, problems = read_body(skill.path, skill.root.boundary)
    except SourceError as error:
        unreadable = Diagnostic(
            severity="error", code=error.code, file=skill.path, line=0, problem=error.problem, fix=error.fix
        )
        return SkillBody(text="", first_line=0, stamp=(0, 0, 0, 0), problems=(unreadable,))
    stripped = text.lstrip("\n")
    line += len(text) - len(stripped)
    diagnostics = tuple(to_diagnostic(skill.path, problem, skill.root.boundary) for problem in problems)
    return SkillBody(text=stripped.rstrip(), first_line=line, stamp=stamp, problems=diagnostics)


def resolve_skill_file(skill: Skill) -> str:
    """The real path of its file. Raises InvalidError if a link now leads out of the workspace."""
    real, boundary = os.path.realpath(skill.path), skill.root.boundary
    if boundary is not None and (reason := boundary.violation(real)):
        raise InvalidError(f"{skill.path}: not read: {reason}", boundary.fix)
    return real


class SkillResource(NamedTuple):
    """A file in the skill's directory other than SKILL.md: level 2."""

    path: str
    """Relative to the skill's directory."""
    group: str
    """scripts, references, assets, or other."""
    size: int


RESOURCE_LIMIT = 500
_SKIPPED_FOLDERS = frozenset((".git", "node_modules", "__pycache__", ".venv", "venv"))


class SkillResources(NamedTuple):
    files: list[SkillResource]
    """Sorted."""
    is_truncated: bool
    """There are more files than the limit."""
    problems: list[Diagnostic]
    """Links that lead out of the workspace."""


def list_resources(skill: Skill, limit: int = RESOURCE_LIMIT) -> SkillResources:
    """Does not follow links."""
    if skill.flags & (FLAT | COMMAND) or skill.root.refusal(os.path.realpath(skill.directory)):
        return SkillResources([], False, [])
    resources: list[SkillResource] = []
    links: list[str] = []
    pending = [""]
    visited = 0
    while pending and visited <= limit and len(resources) <= limit:
        visited += 1
        folder = pending.pop()
        with contextlib.suppress(OSError):
            pending += _scan_folder(skill, folder, limit, resources, links)
    resources.sort()
    problems = [problem for path in sorted(links[:limit]) if (problem := _check_link(skill, path)) is not None]
    return SkillResources(resources[:limit], bool(pending) or len(resources) > limit, problems)


def _check_link(skill: Skill, path: str) -> Diagnostic | None:
    boundary = skill.root.boundary
    reason = boundary.violation(os.path.realpath(path)) if boundary is not None else ""
    if not reason or boundary is None:
        return None
    return Diagnostic(
        severity="warning", code=LINK_OUTSIDE, file=path, line=0, problem=f"not read: {reason}", fix=boundary.fix
    )


def _scan_folder(skill: Skill, folder: str, limit: int, resources: list[SkillResource], links: list[str]) -> list[str]:
    """Adds the files and links of one folder and returns its subfolders, the first `limit` entries by name."""
    import heapq

    with os.scandir(os.path.join(skill.directory, folder)) as entries:
        selected = heapq.nsmallest(limit + 2, entries, key=lambda entry: entry.name)
    subfolders: list[str] = []
    for entry in selected:
        relative = f"{folder}/{entry.name}" if folder else entry.name
        if entry.is_symlink():
            links.append(entry.path)
        elif entry.is_dir(follow_symlinks=False):
            if entry.name not in _SKIPPED_FOLDERS and not entry.name.startswith(".") and relative.count("/") < 6:
                subfolders.append(relative)
        elif entry.is_file(follow_symlinks=False) and relative != os.path.basename(skill.location):
            top = relative.split("/", 1)[0] if "/" in relative else ""
            group = top if top in ("scripts", "references", "assets") else "other"
            with contextlib.suppress(OSError):
                resources.append(SkillResource(relative, group, entry.stat(follow_symlinks=False).st_size))
    return subfolders
