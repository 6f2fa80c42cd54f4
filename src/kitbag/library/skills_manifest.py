"""Reads `manifest.json` in a skills root (CLEO format, seed 001 §8.1).

A skill's frontmatter overrides the manifest; the manifest fills missing fields and may list skills
outside the skills folder. Used by the registry; uses skills.
"""

import os
from typing import Any, NamedTuple, cast

from kitbag.errors import Diagnostic
from kitbag.library.names import normalize_name
from kitbag.library.scopes import Root
from kitbag.library.skills import FLAT, NO_DESCRIPTION, Skill, read_skill
from kitbag.text.hidden_characters import collapse_whitespace, find_disguises, format_code_points, remove_hidden
from kitbag.text.source_files import LINK_OUTSIDE, SourceError, read_text

_MAX_BYTES = 8 * 1024 * 1024
_REGENERATE_FIX = "run `kitbag skills index` to regenerate it"


class ManifestEntry(NamedTuple):
    name: str
    version: str
    description: str
    path: str
    """As written: relative to the parent of `skills/`."""
    token_budget: int | None
    tier: str
    references: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dispatch_triggers: tuple[str, ...]
    file: str


def read_manifest(root: Root) -> tuple[dict[str, ManifestEntry], list[Diagnostic]]:
    """Entries by lower-case name; empty if there is no manifest."""
    file = os.path.join(root.path, "manifest.json")
    diagnostics: list[Diagnostic] = []
    if not os.path.isfile(file):
        return {}, diagnostics

    def warn(problem: str, fix: str, line: int = 0) -> None:
        diagnostics.append(
            Diagnostic(severity="warning", code="manifest", file=file, line=line, problem=problem, fix=fix)
        )

    import json

    try:
        text, _, problems = read_text(file, root.boundary, _MAX_BYTES)
        diagnostics += [
            Diagnostic(severity="warning", code=p.code, file=file, line=p.line, problem=p.problem, fix=_REGENERATE_FIX)
            for p in problems
        ]
        content: Any = json.loads(text)
    except SourceError as error:
        code = error.code if error.code == LINK_OUTSIDE else "manifest"
        diagnostics.append(
            Diagnostic(severity="warning", code=code, file=file, line=0, problem=error.problem, fix=error.fix)
        )
        return {}, diagnostics
    except RecursionError:
        warn("nested too deeply; ignored", _REGENERATE_FIX)
        return {}, diagnostics
    except ValueError as error:
        warn(f"not valid JSON: {error}; ignored", _REGENERATE_FIX, getattr(error, "lineno", 0))
        return {}, diagnostics
    items: Any = cast("dict[str, Any]", content).get("skills") if isinstance(content, dict) else content
    if not isinstance(items, list):
        warn("no `skills` list; ignored", 'write {"skills": [{"name": ..., "path": ...}]}')
        return {}, diagnostics
    entries: dict[str, ManifestEntry] = {}
    for number, item in enumerate(cast("list[Any]", items), 1):
        entry, entry_problems = _parse_entry(item, file)
        for problem in entry_problems:
            warn(f"entry {number} of `skills`: {problem}", "fix it")
        if entry is None:
            continue
        key = normalize_name(entry.name)
        if key in entries:
            warn(f"duplicate entry {entry.name!r}; the first one is used", "remove one")
        else:
            entries[key] = entry
    return entries, diagnostics


def _parse_entry(item: Any, file: str) -> tuple[ManifestEntry | None, list[str]]:
    """The entry, and the problems with it."""
    fields = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
    name = _to_text(fields, "name")
    if not name:
        return None, ["no `name`; skipped"]
    problems: list[str] = []
    description = collapse_whitespace(_to_text(fields, "description"))
    hidden = find_disguises(description)
    if hidden:
        problems.append(f"`description` contains hidden characters, removed: {format_code_points(hidden)}")
    budget = fields.get("token_budget")
    if budget is not None and (not isinstance(budget, int) or isinstance(budget, bool) or budget <= 0):
        problems.append("`token_budget` must be a positive integer; ignored")
        budget = None
    capabilities: Any = fields.get("capabilities")
    capability_fields = cast("dict[str, Any]", capabilities) if isinstance(capabilities, dict) else {}
    entry = ManifestEntry(
        name=name,
        version=_to_text(fields, "version"),
        description=remove_hidden(description),
        path=_to_text(fields, "path"),
        token_budget=budget,
        tier=_to_text(fields, "tier"),
        references=_to_strings(fields.get("references")),
        inputs=_to_strings(capability_fields.get("inputs")),
        outputs=_to_strings(capability_fields.get("outputs")),
        dispatch_triggers=_to_strings(capability_fields.get("dispatch_triggers")),
        file=file,
    )
    return entry, problems


def _to_text(fields: "dict[str, Any]", key: str) -> str:
    """A string, or a number as a string; empty for any other type."""
    value: Any = fields.get(key)
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value).strip()
    return ""


def _to_strings(value: Any) -> tuple[str, ...]:
    """The strings of a list; a single string counts as a list of one."""
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    return tuple(item for item in items if isinstance(item, str) and item)


def apply_manifest(
    root: Root, skills: list[Skill], diagnostics: list[Diagnostic]
) -> tuple[list[Skill], dict[str, ManifestEntry]]:
    """The skills of a root, completed from its manifest, and the manifest entries by skill path."""
    entries, problems = read_manifest(root)
    diagnostics.extend(problems)
    if not entries:
        return skills, {}
    merged: list[Skill] = []
    by_path: dict[str, ManifestEntry] = {}
    by_directory = {_entry_directory(root, entry): entry for entry in entries.values()}
    directories = [os.path.normpath(skill.path if skill.flags & FLAT else skill.directory) for skill in skills]
    # An entry whose path is a skill's directory describes that skill, not another one with the same name.
    used_directories = set(directories)
    by_name = {key: entry for key, entry in entries.items() if _entry_directory(root, entry) not in used_directories}
    for skill, directory in zip(skills, directories, strict=True):
        entry = by_directory.get(directory) or by_name.get(normalize_name(skill.name))
        if entry is not None:
            by_path[skill.path] = entry
            skill = _apply_entry(skill, entry, diagnostics)
        merged.append(skill)
    used = {entry.name for entry in by_path.values()}
    unused = [entry for entry in entries.values() if entry.name not in used]
    folder = os.path.realpath(root.path)
    known_paths = {os.path.join(folder, skill.location) for skill in skills} if unused else set[str]()
    for entry in unused:
        skill = _load_sibling_skill(root, entry, known_paths, diagnostics)
        if skill is not None:
            by_path[skill.path] = entry
            merged.append(_apply_entry(skill, entry, diagnostics))
    return merged, by_path


def _entry_directory(root: Root, entry: ManifestEntry) -> str:
    """The directory of the entry's skill; a path to SKILL.md means its directory."""
    path = entry.path.removesuffix("/SKILL.md") or os.path.join(os.path.basename(root.path), entry.name)
    return os.path.normpath(os.path.join(os.path.dirname(root.path), path))


def _apply_entry(skill: Skill, entry: ManifestEntry, diagnostics: list[Diagnostic]) -> Skill:
    """Fills a missing description from the manifest; the skill's own frontmatter wins."""
    if not entry.description or entry.description == collapse_whitespace(skill.description):
        return skill
    if skill.flags & NO_DESCRIPTION:
        return skill._replace(description=entry.description, flags=skill.flags & ~NO_DESCRIPTION)
    problem = f"the description of {skill.name!r} differs from the one in the skill's own file; the skill's own is used"
    diagnostics.append(
        Diagnostic(
            severity="info", code="manifest-differs", file=entry.file, line=0, problem=problem, fix=_REGENERATE_FIX
        )
    )
    return skill


def _load_sibling_skill(
    root: Root, entry: ManifestEntry, known_paths: set[str], diagnostics: list[Diagnostic]
) -> Skill | None:
    """Loads a skill that only the manifest lists; it must be below the parent of the skills folder."""
    base = os.path.realpath(os.path.dirname(root.path))
    try:
        directory = os.path.realpath(_entry_directory(root, entry))
    except ValueError:  # not a valid file name
        directory = base
    path = os.path.join(directory, "SKILL.md")
    if path in known_paths:
        return None
    if os.path.commonpath((base, directory)) != base or directory == base:
        problem, fix = f"the path of {entry.name!r} is outside {base}; ignored", "use a path inside that directory"
    elif not os.path.exists(path):
        problem, fix = f"lists {entry.name!r}, which does not exist", _REGENERATE_FIX
    else:
        try:
            skill, problems = read_skill(root, path, path, os.path.basename(directory))
        except OSError:  # deleted meanwhile
            return None
        diagnostics.extend(problems)
        return skill
    diagnostics.append(
        Diagnostic(severity="warning", code="manifest", file=entry.file, line=0, problem=problem, fix=fix)
    )
    return None
