"""`kitbag skills validate` and `kitbag skills index`."""

import os
from typing import Any

from kitbag.cli import output
from kitbag.errors import NotFoundError, UsageError
from kitbag.library.discover import scan_root
from kitbag.library.names import normalize_name
from kitbag.library.portability import check_portable
from kitbag.library.registry import Registry
from kitbag.library.scopes import (
    Root,
    check_path_links,
    extra_roots,
    find_places,
    user_boundary,
)
from kitbag.library.skill_files import read_skill_details
from kitbag.library.skills import COMMAND, FLAT, Skill
from kitbag.library.skills_manifest import ManifestEntry, read_manifest
from kitbag.packing.skill_checks import check_skill, explicit_root
from kitbag.packing.skill_delivery import render_skill
from kitbag.settings import load_settings


def validate(registry: Registry, targets: tuple[str, ...], portable: bool, as_json: bool) -> int:
    """Returns exit code 0 or 1."""
    paths = _paths(registry, targets)
    if portable and not targets:  # the specification knows only directories
        single_files = [path for path in paths if not os.path.isdir(path)]
        paths = [path for path in paths if path not in single_files]
        if single_files:
            output.remark(f"not checked: {output.format_count(len(single_files), 'file')} (commands and flat skills)")
    if not paths:
        raise NotFoundError("no skills to check", "pass a name or a path")
    if portable:
        verdicts = {path: check_portable(path) for path in paths}
        bad = {path: messages for path, messages in verdicts.items() if messages}
        if as_json:
            output.as_json(
                [{"path": path, "valid": not results, "errors": results} for path, results in verdicts.items()]
            )
        else:
            _print_portable(verdicts)
        return 1 if bad else 0
    results = {path: check_skill(registry, path) for path in paths}
    failed = any(d.severity != "info" for diagnostics in results.values() for d in diagnostics)
    if as_json:
        output.as_json(
            [
                {
                    "path": path,
                    "valid": not any(d.severity != "info" for d in diagnostics),
                    "problems": [output.diagnostic_json(d) for d in diagnostics],
                }
                for path, diagnostics in results.items()
            ]
        )
        return 1 if failed else 0
    for path, diagnostics in results.items():
        if not diagnostics:
            output.echo(f"{output.style('ok', 'green')}: {output.clean(output.shorten_path(path))}")
        for diagnostic in diagnostics:
            for line in output.diagnostic_lines(diagnostic):
                output.echo(line)
    return 1 if failed else 0


def _paths(registry: Registry, targets: tuple[str, ...]) -> list[str]:
    """The path of each target's directory or file; a folder of skills stands for all in it."""
    if not targets:
        return [_checked_path(skill) for skill in registry.skills]
    paths: list[str] = []
    for target in targets:
        check_path_links(target, registry.places.project)
        if not os.path.lexists(target):
            if os.sep in target:
                raise NotFoundError(
                    f"{target}: no such file or directory", "pass a skill's name, directory or SKILL.md"
                )
            skill = registry.find_skill(target)
            paths.append(_checked_path(skill))
        elif os.path.isdir(target) and not _has_skill_file(target):
            below = scan_root(explicit_root(os.path.abspath(target))).skills
            paths += [skill.directory for skill in below] or [target]
        else:
            paths.append(target)
    return list(dict.fromkeys(paths))


def _checked_path(skill: Skill) -> str:
    return skill.path if skill.flags & (COMMAND | FLAT) else skill.directory


def _has_skill_file(directory: str) -> bool:
    return any(os.path.lexists(os.path.join(directory, name)) for name in ("SKILL.md", "skill.md"))


def _print_portable(verdicts: dict[str, list[str]]) -> None:
    for path, messages in verdicts.items():
        shown = output.clean(path)
        if not messages:
            output.echo(f"Valid skill: {shown}")
            continue
        output.remark(f"Validation failed for {shown}:")
        for message in messages:
            output.remark(f"  - {output.clean(message)}")


def write_index(root: str | None, target: str | None, as_json: bool) -> None:
    source = _index_root(root)
    file = target or os.path.join(source.path, "manifest.json")
    for path in (source.path, os.path.dirname(file)):
        check_path_links(path)
    scan = scan_root(source)
    known = read_manifest(source)[0]
    entries = [_manifest_entry(skill, source.path, known.get(normalize_name(skill.name))) for skill in scan.skills]
    manifest = {"skills": entries}
    for diagnostic in scan.diagnostics:
        for line in output.diagnostic_lines(diagnostic):
            output.remark(line)
    if target == "-" or as_json:
        return output.as_json(manifest)
    _write_json(file, manifest)
    output.echo(f"wrote {output.clean(output.shorten_path(file))}: {output.format_count(len(scan.skills), 'skill')}")
    return None


def _index_root(root: str | None) -> Root:
    if root is not None:
        if not os.path.isdir(root):
            raise UsageError(f"{root}: not a directory", "pass a directory of skills")
        roots = extra_roots(root, "skills")
        return roots[0] if roots else explicit_root(os.path.abspath(root))
    places = find_places()
    for directory in places.project_dirs:
        if os.path.isdir(path := os.path.join(directory, ".kitbag", "skills")):
            return explicit_root(path)
    if os.path.isdir(path := os.path.join(places.kitbag_home, "skills")):
        targets = load_settings(places.kitbag_home, ()).get("library.link_targets")
        return explicit_root(path)._replace(boundary=user_boundary(places, path, tuple(targets)))
    raise NotFoundError("no .kitbag/skills in this project", "pass a directory: kitbag skills index DIR")


def _manifest_entry(skill: Skill, root: str, known: ManifestEntry | None) -> dict[str, Any]:
    details = read_skill_details(skill)
    folder = os.path.basename(root)
    base = skill.location if skill.flags & FLAT else os.path.dirname(skill.location)
    delivery = render_skill(skill)
    return {
        "name": skill.name,
        "version": details.version or (known.version if known else "") or "0.0.0",
        "description": skill.description,
        "path": f"{folder}/{base}",
        # A budget limits the skill from then on, so it is only preserved, never invented.
        **({"token_budget": known.token_budget} if known and known.token_budget else {}),
        "tier": int(tier)
        if (tier := str(details.fields.get("tier", known.tier if known else "") or 1)).isdigit()
        else tier,
        "references": [f"{folder}/{skill.location}"]
        + [f"{folder}/{base}/{r.path}" for r in delivery.resources if r.group == "references"],
        "capabilities": {
            "inputs": list(known.inputs) if known else [],
            "outputs": list(known.outputs) if known else [],
            "dispatch_triggers": list(details.triggers or (known.dispatch_triggers if known else ()) or details.tags),
        },
    }


def _write_json(file: str, value: Any) -> None:
    import json
    import tempfile

    directory = os.path.dirname(os.path.abspath(file))
    if not os.path.isdir(directory):
        raise UsageError(f"{directory}: not a directory", "use an existing directory")
    descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=".manifest-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(value, stream, indent=2, ensure_ascii=False)
        stream.write("\n")
    os.chmod(temporary, 0o644)
    os.replace(temporary, file)
