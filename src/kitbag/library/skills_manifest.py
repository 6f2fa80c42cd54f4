"""`manifest.json` in a skills root (the CLEO shape, seed 001 §8.1), read beside the heads of its skills.

What a skill's own head says beats the manifest; the manifest fills what the head leaves out, and may
list skills that lie beside the skills folder. Used by the registry.
"""

import os
from typing import Any, NamedTuple, cast

from kitbag.errors import Diagnostic
from kitbag.library.scopes import Root
from kitbag.library.skills import FLAT, NO_DESCRIPTION, Skill, read_skill
from kitbag.text.hidden_characters import collapse_whitespace, find_hidden, format_code_points, remove_hidden
from kitbag.text.source_files import LINK_OUTSIDE, SourceError, read_text

_MAX_BYTES = 8 * 1024 * 1024
_REGENERATE_FIX = "`kitbag skills index` writes a new one"


class ManifestEntry(NamedTuple):
    name: str
    version: str
    description: str
    path: str
    """As written: relative to the folder that holds `skills/`."""
    token_budget: int | None
    tier: str
    references: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dispatch_triggers: tuple[str, ...]
    file: str


def read_manifest(root: Root) -> tuple[dict[str, ManifestEntry], list[Diagnostic]]:
    """Entries by lower-case name; empty when there is no manifest."""
    file = os.path.join(root.path, "manifest.json")
    found: list[Diagnostic] = []
    if not os.path.isfile(file):
        return {}, found

    def note(problem: str, fix: str, line: int = 0) -> None:
        found.append(Diagnostic("warning", "manifest", file, line, problem, fix))

    import json

    try:
        text, _, problems = read_text(file, root.boundary, _MAX_BYTES)
        found += [Diagnostic("warning", p.code, file, p.line, p.problem, _REGENERATE_FIX) for p in problems]
        content: Any = json.loads(text)
    except SourceError as error:
        code = error.code if error.code == LINK_OUTSIDE else "manifest"
        found.append(Diagnostic("warning", code, file, 0, error.problem, error.fix))
        return {}, found
    except RecursionError:
        note("nested too deeply; not used", _REGENERATE_FIX)
        return {}, found
    except ValueError as error:
        note(f"not valid JSON, so not used: {error}", _REGENERATE_FIX, getattr(error, "lineno", 0))
        return {}, found
    listed: Any = cast("dict[str, Any]", content).get("skills") if isinstance(content, dict) else content
    if not isinstance(listed, list):
        note("has no list `skills`; not used", 'write {"skills": [{"name": ..., "path": ...}]}')
        return {}, found
    entries: dict[str, ManifestEntry] = {}
    for at, item in enumerate(cast("list[Any]", listed), 1):
        entry, wrong = _parse_entry(item, file)
        for problem in wrong:
            note(f"entry {at} of `skills`: {problem}", "correct it")
        if entry is None:
            continue
        if entry.name.lower() in entries:
            note(f"{entry.name!r} is listed twice; the first one counts", "remove one")
        else:
            entries[entry.name.lower()] = entry
    return entries, found


def _parse_entry(item: Any, file: str) -> tuple[ManifestEntry | None, list[str]]:
    """The entry, and what in it was not used."""
    fields = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
    name = _to_text(fields, "name")
    if not name:
        return None, ["no `name`; skipped"]
    wrong: list[str] = []
    description = collapse_whitespace(_to_text(fields, "description"))
    hidden = find_hidden(description)
    if hidden:
        wrong.append(f"`description` has hidden characters, left out: {format_code_points(hidden)}")
    budget = fields.get("token_budget")
    if budget is not None and (not isinstance(budget, int) or isinstance(budget, bool) or budget <= 0):
        wrong.append("`token_budget` is not a number above 0; not used")
        budget = None
    capabilities: Any = fields.get("capabilities")
    able = cast("dict[str, Any]", capabilities) if isinstance(capabilities, dict) else {}
    entry = ManifestEntry(
        name, _to_text(fields, "version"), remove_hidden(description), _to_text(fields, "path"), budget,
        _to_text(fields, "tier"), _to_strings(fields.get("references")), _to_strings(able.get("inputs")),
        _to_strings(able.get("outputs")), _to_strings(able.get("dispatch_triggers")), file,
    )  # fmt: skip
    return entry, wrong


def _to_text(fields: "dict[str, Any]", key: str) -> str:
    """A text, or a number as one; nothing for null, lists and maps."""
    value: Any = fields.get(key)
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value).strip()
    return ""


def _to_strings(value: Any) -> tuple[str, ...]:
    """A list of texts; one alone is a list of one."""
    listed = cast("list[Any]", value) if isinstance(value, list) else [value]
    return tuple(item for item in listed if isinstance(item, str) and item)


def apply_manifest(
    root: Root, skills: list[Skill], diagnostics: list[Diagnostic]
) -> tuple[list[Skill], dict[str, ManifestEntry]]:
    """The skills of a root as its manifest completes them, and the entries by the path of their skill."""
    entries, found = read_manifest(root)
    diagnostics.extend(found)
    if not entries:
        return skills, {}
    merged: list[Skill] = []
    by_path: dict[str, ManifestEntry] = {}
    by_place = {_entry_directory(root, entry): entry for entry in entries.values()}
    places = [os.path.normpath(skill.path if skill.flags & FLAT else skill.directory) for skill in skills]
    # An entry whose path leads to a skill speaks of that one, and not of another with its name.
    known = set(places)
    by_name = {key: entry for key, entry in entries.items() if _entry_directory(root, entry) not in known}
    for skill, place in zip(skills, places, strict=True):
        entry = by_place.get(place) or by_name.get(skill.name.lower())
        if entry is not None:
            by_path[skill.path] = entry
            skill = _apply_entry(skill, entry, diagnostics)
        merged.append(skill)
    used = {entry.name for entry in by_path.values()}
    unused = [entry for entry in entries.values() if entry.name not in used]
    folder = os.path.realpath(root.path)
    met = {os.path.join(folder, skill.location) for skill in skills} if unused else set[str]()
    for entry in unused:
        skill = _load_sibling_skill(root, entry, met, diagnostics)
        if skill is not None:
            by_path[skill.path] = entry
            merged.append(_apply_entry(skill, entry, diagnostics))
    return merged, by_path


def _entry_directory(root: Root, entry: ManifestEntry) -> str:
    """Where the entry says its skill lies. The path of a SKILL.md stands for its directory."""
    path = entry.path.removesuffix("/SKILL.md") or os.path.join(os.path.basename(root.path), entry.name)
    return os.path.normpath(os.path.join(os.path.dirname(root.path), path))


def _apply_entry(skill: Skill, entry: ManifestEntry, diagnostics: list[Diagnostic]) -> Skill:
    """The head beats the manifest; the manifest fills what the head leaves out."""
    if not entry.description or entry.description == collapse_whitespace(skill.description):
        return skill
    if skill.flags & NO_DESCRIPTION:
        return skill._replace(description=entry.description, flags=skill.flags & ~NO_DESCRIPTION)
    what = f"describes {skill.name!r} otherwise than its own file, which counts"
    diagnostics.append(Diagnostic("info", "manifest-differs", entry.file, 0, what, _REGENERATE_FIX))
    return skill


def _load_sibling_skill(root: Root, entry: ManifestEntry, met: set[str], diagnostics: list[Diagnostic]) -> Skill | None:
    """A skill that the manifest lists and the walk did not meet; it must lie beside the skills folder."""
    base = os.path.realpath(os.path.dirname(root.path))
    try:
        directory = os.path.realpath(_entry_directory(root, entry))
    except ValueError:  # no file can be called that
        directory = base
    path = os.path.join(directory, "SKILL.md")
    if path in met:
        return None
    if os.path.commonpath((base, directory)) != base or directory == base:
        what, fix = f"the path of {entry.name!r} leads out of {base}; not used", "use a path below it"
    elif not os.path.exists(path):
        what, fix = f"lists {entry.name!r}, which is not there", _REGENERATE_FIX
    else:
        try:
            skill, found = read_skill(root, path, path, os.path.basename(directory))
        except OSError:  # gone since
            return None
        diagnostics.extend(found)
        return skill
    diagnostics.append(Diagnostic("warning", "manifest", entry.file, 0, what, fix))
    return None
