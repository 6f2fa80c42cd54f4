"""The rest of a skill, read when somebody asks: its whole head, its instructions, the files beside it.

Nothing here is kept between calls. Used by packing and by the commands that inspect a skill.
"""

import contextlib
import os
from typing import NamedTuple

from kitbag.errors import Diagnostic, InvalidError
from kitbag.library.dialects.field_names import KNOWN_FIELDS
from kitbag.library.skills import COMMAND, FLAT, Skill, get_text, to_diagnostic, to_string_list
from kitbag.text.frontmatter import read_body, read_frontmatter
from kitbag.text.plain_frontmatter import Metadata
from kitbag.text.source_files import LINK_OUTSIDE, FileStamp, SourceError


class SkillDetails(NamedTuple):
    """The whole head, read on demand."""

    metadata: Metadata
    display_name: str
    version: str
    tags: tuple[str, ...]
    triggers: tuple[str, ...]
    requires: tuple[str, ...]
    problems: tuple[Diagnostic, ...]


def read_skill_details(skill: Skill) -> SkillDetails:
    try:
        _, head = read_frontmatter(skill.path, KNOWN_FIELDS, skill.root.boundary)
    except SourceError as error:
        gone = Diagnostic("error", error.code, skill.path, 0, error.problem, error.fix)
        return SkillDetails({}, skill.name, "", (), (), (), (gone,))
    metadata = head.metadata
    triggers = metadata.get("triggers", metadata.get("trigger"))
    return SkillDetails(
        metadata,
        get_text(metadata, "display_name") or get_text(metadata, "display-name") or skill.name,
        get_text(metadata, "version"),
        to_string_list(metadata.get("tags")),
        to_string_list(triggers),
        to_string_list(metadata.get("requires")),
        tuple(to_diagnostic(skill.path, problem, skill.root.boundary) for problem in head.problems),
    )


class SkillBody(NamedTuple):
    text: str
    first_line: int
    stamp: FileStamp
    problems: tuple[Diagnostic, ...]


def read_skill_body(skill: Skill) -> SkillBody:
    """The instructions without the head, outer blank lines removed; read from disk each time."""
    try:
        text, line, stamp, problems = read_body(skill.path, skill.root.boundary)
    except SourceError as error:
        gone = Diagnostic("error", error.code, skill.path, 0, error.problem, error.fix)
        return SkillBody("", 0, (0, 0, 0, 0), (gone,))
    stripped = text.lstrip("\n")
    line += len(text) - len(stripped)
    noted = tuple(to_diagnostic(skill.path, problem, skill.root.boundary) for problem in problems)
    return SkillBody(stripped.rstrip(), line, stamp, noted)


def resolve_skill_file(skill: Skill) -> str:
    """Where its own file lies now. Raises InvalidError where a link has come to lead out of the workspace."""
    real, boundary = os.path.realpath(skill.path), skill.root.boundary
    if boundary is not None and (why := boundary.violation(real)):
        raise InvalidError(f"{skill.path}: not read: {why}", boundary.fix)
    return real


class SkillResource(NamedTuple):
    """A file of the skill beside SKILL.md: level 2."""

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
    """There are more than the limit allows."""
    problems: list[Diagnostic]
    """Links that lead out of the workspace."""


def list_resources(skill: Skill, limit: int = RESOURCE_LIMIT) -> SkillResources:
    """Without following links."""
    if skill.flags & (FLAT | COMMAND) or skill.root.refusal(os.path.realpath(skill.directory)):
        return SkillResources([], False, [])
    found: list[SkillResource] = []
    links: list[str] = []
    pending = [""]
    looked_into = 0
    while pending and looked_into <= limit and len(found) <= limit:
        looked_into += 1
        folder = pending.pop()
        with contextlib.suppress(OSError):
            pending += _scan_folder(skill, folder, limit, found, links)
    found.sort()
    problems = [problem for path in sorted(links[:limit]) if (problem := _check_link(skill, path)) is not None]
    return SkillResources(found[:limit], bool(pending) or len(found) > limit, problems)


def _check_link(skill: Skill, path: str) -> Diagnostic | None:
    boundary = skill.root.boundary
    why = boundary.violation(os.path.realpath(path)) if boundary is not None else ""
    if not why or boundary is None:
        return None
    return Diagnostic("warning", LINK_OUTSIDE, path, 0, f"not read: {why}", boundary.fix)


def _scan_folder(skill: Skill, folder: str, limit: int, found: list[SkillResource], links: list[str]) -> list[str]:
    """Adds the files and the links of one folder and answers the folders in it, the first `limit` of each by name."""
    import heapq

    with os.scandir(os.path.join(skill.directory, folder)) as entries:
        listed = heapq.nsmallest(limit + 2, entries, key=lambda entry: entry.name)
    below: list[str] = []
    for entry in listed:
        relative = f"{folder}/{entry.name}" if folder else entry.name
        if entry.is_symlink():
            links.append(entry.path)
        elif entry.is_dir(follow_symlinks=False):
            if entry.name not in _SKIPPED_FOLDERS and not entry.name.startswith(".") and relative.count("/") < 6:
                below.append(relative)
        elif entry.is_file(follow_symlinks=False) and relative != os.path.basename(skill.location):
            top = relative.split("/", 1)[0] if "/" in relative else ""
            group = top if top in ("scripts", "references", "assets") else "other"
            with contextlib.suppress(OSError):
                found.append(SkillResource(relative, group, entry.stat(follow_symlinks=False).st_size))
    return below
