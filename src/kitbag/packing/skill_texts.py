"""The texts of skills that are packed: frontmatter, body and references, each read once per Packer.

References are the files in `references/` and those that the manifest names. Used by pack; uses library.skill_files.
"""

import os

import msgspec

from kitbag.errors import Diagnostic, InvalidError
from kitbag.library.registry import Registry
from kitbag.library.skill_files import list_resources
from kitbag.library.skills import Skill
from kitbag.packing.references.policy import ReferencePolicy, ReferenceSource
from kitbag.text.frontmatter_fences import split_frontmatter
from kitbag.text.hidden_characters import find_disguises, format_code_points, reveal_hidden
from kitbag.text.source_files import SourceError, read_text


class SkillText(msgspec.Struct, frozen=True, kw_only=True):
    frontmatter: str
    body: str
    body_line: int
    problems: tuple[Diagnostic, ...]


class SkillReferences(msgspec.Struct, frozen=True, kw_only=True):
    texts: tuple[tuple[str, str], ...]
    """(path relative to the skill's directory, text)."""
    problems: tuple[Diagnostic, ...]


class SkillTexts:
    def __init__(self, registry: Registry, policy: ReferencePolicy) -> None:
        """`policy`: decides whether a file that a manifest names may be read."""
        self._registry = registry
        self._policy = policy
        self.reads = 0
        """Number of skill files read so far."""
        self._texts: dict[str, SkillText] = {}
        self._references: dict[str, SkillReferences] = {}

    def read(self, skill: Skill) -> SkillText:
        """Raises InvalidError if the file can't be read."""
        text = self._texts.get(skill.path)
        if text is None:
            text = self._texts[skill.path] = self._read_skill(skill)
        return text

    def read_references(self, skill: Skill) -> tuple[tuple[tuple[str, str], ...], tuple[Diagnostic, ...]]:
        found = self._references.get(skill.path)
        if found is None:
            found = self._references[skill.path] = self._read_references(skill)
        return found.texts, found.problems

    def _read_skill(self, skill: Skill) -> SkillText:
        try:
            text, _, _ = read_text(skill.path, skill.root.boundary)
        except SourceError as error:
            raise InvalidError(f"{skill.path}: {error.problem}", error.fix) from error
        self.reads += 1
        parts = split_frontmatter(text)
        hidden = find_disguises(parts.body)
        problem = f"the body contains hidden characters, shown as [U+...]: {format_code_points(hidden)}"
        return SkillText(
            frontmatter=f"---\n{reveal_hidden(parts.frontmatter).strip()}\n---" if parts.frontmatter else "",
            body=reveal_hidden(parts.body).strip("\n"),
            body_line=parts.body_line + len(parts.body) - len(parts.body.lstrip("\n")),
            problems=(_warning("hidden-characters", skill.path, parts.body_line, problem, "remove them"),)
            if hidden
            else (),
        )

    def _read_references(self, skill: Skill) -> SkillReferences:
        listed = list_resources(skill)
        problems = list(listed.problems)
        paths = [os.path.join(skill.directory, file.path) for file in listed.files if file.group == "references"]
        paths += [path for path in self._manifest_references(skill, problems) if path not in paths]
        texts: list[tuple[str, str]] = []
        for path in paths:
            try:
                text = reveal_hidden(read_text(path, skill.root.boundary)[0])
                texts.append((os.path.relpath(path, skill.directory), text))
            except SourceError as error:
                problems.append(_warning("reference-unreadable", path, 0, f"omitted: {error.problem}", error.fix))
        return SkillReferences(texts=tuple(texts), problems=tuple(problems))

    def _manifest_references(self, skill: Skill, problems: list[Diagnostic]) -> list[str]:
        """Files that the manifest names, relative to the parent of `skills/`, and that may be read."""
        entry = self._registry.manifest_entry(skill)
        if entry is None:
            return []
        folder, root = skill.root.path, skill.root.plugin_path or self._registry.places.project
        source = ReferenceSource(text="", path=entry.file, scope=skill.root.scope, base=folder, root=root)
        found: list[str] = []
        for written in entry.references:
            path = os.path.normpath(os.path.join(os.path.dirname(folder), written))
            if os.path.realpath(path) == os.path.realpath(skill.path):
                continue
            decisions = [self._policy.read(each, source) for each in dict.fromkeys((path, os.path.realpath(path)))]
            denied = next((decision for decision in decisions if decision.verdict != "allow"), None)
            if denied is None:
                found.append(path)
            else:
                problem = f"the reference {written} is omitted: {denied.reason or 'denied by policy'}"
                problems.append(_warning("reference-refused", entry.file, 0, problem, "remove it from the manifest"))
        return found


def _warning(code: str, file: str, line: int, problem: str, fix: str) -> Diagnostic:
    return Diagnostic(severity="warning", code=code, file=file, line=line, problem=problem, fix=fix)
