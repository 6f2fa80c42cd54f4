"""`manifest.json` in a skills root (the CLEO shape, seed 001 §8.1), read beside the heads of its skills.

What a skill's own head says beats the manifest; the manifest fills what the head leaves out, and may
list skills that lie beside the skills folder. Used by the registry.
"""

import os
from typing import Any, NamedTuple, cast

from kitbag.errors import Diagnostic
from kitbag.library.scopes import Root
from kitbag.library.skills import NO_DESCRIPTION, Skill, read_skill
from kitbag.text.source import SourceError, read_text

_LIMIT = 8 * 1024 * 1024


class ManifestEntry(NamedTuple):
    name: str
    version: str
    description: str
    path: str
    token_budget: int | None
    tier: str
    references: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dispatch_triggers: tuple[str, ...]
    file: str


def read_manifest(root_path: str) -> tuple[dict[str, ManifestEntry], list[Diagnostic]]:
    """Entries by lower-case name; empty when there is no manifest."""
    file = os.path.join(root_path, "manifest.json")
    found: list[Diagnostic] = []
    if not os.path.isfile(file):
        return {}, found

    def note(problem: str, fix: str, line: int = 0) -> None:
        found.append(Diagnostic("warning", "manifest", file, line, problem, fix))

    import json

    try:
        text, _, _ = read_text(file, _LIMIT)
        content: Any = json.loads(text)
    except SourceError as error:
        note(error.problem, error.fix)
        return {}, found
    except RecursionError:
        note("nested too deeply; not used", "`kitbag skills index` writes a new one")
        return {}, found
    except ValueError as error:
        note(
            f"not valid JSON, so not used: {error}",
            "`kitbag skills index` writes a new one",
            getattr(error, "lineno", 0),
        )
        return {}, found
    listed: Any = cast("dict[str, Any]", content).get("skills") if isinstance(content, dict) else content
    if not isinstance(listed, list):
        note("has no list `skills`; not used", '{"skills": [{"name": ..., "path": ...}]}')
        return {}, found
    entries: dict[str, ManifestEntry] = {}
    for at, item in enumerate(cast("list[Any]", listed)):
        entry = _entry(item, file)
        if entry is None:
            note(f"entry {at + 1} of `skills` has no `name`; skipped", "add `name`")
        elif entry.name.lower() in entries:
            note(f"{entry.name!r} is listed twice; the first one counts", "remove one")
        else:
            entries[entry.name.lower()] = entry
    return entries, found


def _entry(item: Any, file: str) -> ManifestEntry | None:
    if not isinstance(item, dict):
        return None
    fields = cast("dict[str, Any]", item)
    name = fields.get("name")
    if not isinstance(name, str) or not name.strip():
        return None
    capabilities: Any = fields.get("capabilities")
    able = cast("dict[str, Any]", capabilities) if isinstance(capabilities, dict) else {}
    budget = fields.get("token_budget")
    return ManifestEntry(
        name.strip(),
        str(fields.get("version", "")),
        str(fields.get("description", "")),
        str(fields.get("path", "")),
        budget if isinstance(budget, int) and not isinstance(budget, bool) and budget > 0 else None,
        str(fields.get("tier", "")),
        _strings(fields.get("references")),
        _strings(able.get("inputs")),
        _strings(able.get("outputs")),
        _strings(able.get("dispatch_triggers")),
        file,
    )


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(str(item) for item in cast("list[Any]", value)) if isinstance(value, list) else ()


def apply_manifest(
    root: Root, skills: list[Skill], diagnostics: list[Diagnostic]
) -> tuple[list[Skill], dict[str, ManifestEntry]]:
    """The skills of a root as its manifest completes them, and the entries by the path of their skill."""
    entries, found = read_manifest(root.path)
    diagnostics.extend(found)
    if not entries:
        return skills, {}
    by_directory = {os.path.normpath(_directory(root, entry)): entry for entry in entries.values()}
    merged: list[Skill] = []
    by_path: dict[str, ManifestEntry] = {}
    for skill in skills:
        entry = entries.get(skill.name.lower()) or by_directory.get(os.path.normpath(skill.directory))
        if entry is not None:
            by_path[skill.path] = entry
            skill = _merge(skill, entry, diagnostics)
        merged.append(skill)
    used = {entry.name for entry in by_path.values()}
    for entry in entries.values():
        skill = None if entry.name in used else _beside(root, entry, diagnostics)
        if skill is not None:
            by_path[skill.path] = entry
            merged.append(_merge(skill, entry, diagnostics))
    return merged, by_path


def _directory(root: Root, entry: ManifestEntry) -> str:
    return os.path.join(os.path.dirname(root.path), entry.path or entry.name)


def _merge(skill: Skill, entry: ManifestEntry, diagnostics: list[Diagnostic]) -> Skill:
    """The head beats the manifest; the manifest fills what the head leaves out."""
    if not entry.description or entry.description == skill.description:
        return skill
    if skill.flags & NO_DESCRIPTION:
        return skill._replace(description=entry.description, flags=skill.flags & ~NO_DESCRIPTION)
    what = f"describes {skill.name!r} otherwise than its own file, which counts"
    diagnostics.append(
        Diagnostic("info", "manifest-differs", entry.file, 0, what, "`kitbag skills index` writes a new one")
    )
    return skill


def _beside(root: Root, entry: ManifestEntry, diagnostics: list[Diagnostic]) -> Skill | None:
    """A skill that the manifest lists and the walk did not meet; it must lie beside the skills folder."""
    base = os.path.realpath(os.path.dirname(root.path))
    directory = os.path.realpath(os.path.join(base, entry.path or entry.name))
    if os.path.commonpath((base, directory)) != base or directory == base:
        what, fix = f"the path of {entry.name!r} leads out of {base}; not used", "use a path below it"
    else:
        path = os.path.join(directory, "SKILL.md")
        try:
            skill, found = read_skill(root, os.path.relpath(path, root.path), path, os.path.basename(directory))
        except OSError:
            what, fix = f"lists {entry.name!r}, which is not there", "`kitbag skills index` writes a new one"
        else:
            diagnostics.extend(found)
            return skill
    diagnostics.append(Diagnostic("warning", "manifest", entry.file, 0, what, fix))
    return None
