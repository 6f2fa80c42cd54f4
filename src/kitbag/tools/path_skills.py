"""Announces skills with `paths` when the model reads or changes a file that matches one of their patterns.

Used by agent/execute, which appends the notice to a tool result. Uses glob_patterns, so matching is linear. Patterns
follow .gitignore, plus braces, relative to the skill's folder and to the project's root.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from kitbag.library.scopes import Places
from kitbag.library.skill_files import read_skill_details
from kitbag.library.skills import Skill, is_path_activated, to_text
from kitbag.packing.catalog import render_entry
from kitbag.packing.session_skills import SessionSkills
from kitbag.packing.suggestions import MAX_SUGGESTIONS, extract_suggestions, suggest_skills_for_file
from kitbag.permissions.model import is_inside
from kitbag.text.plain_frontmatter import YamlValue
from kitbag.tools.search.glob_patterns import GlobError, expand_braces, path_regex

FILE_ARGUMENTS: Final = {
    "Read": "file_path",
    "Write": "file_path",
    "Edit": "file_path",
    "NotebookEdit": "notebook_path",
}
"""The tools that work on one file, and the argument with its path."""
_MAX_PATTERNS: Final = 200


class _Pattern(NamedTuple):
    regex: re.Pattern[str]
    includes: bool
    """False for `!pattern`, which excludes what it matches."""
    directories_only: bool


class _PathSkill(NamedTuple):
    skill: Skill
    base_directories: tuple[str, ...]
    """The resolved directories that the patterns are relative to."""
    patterns: tuple[_Pattern, ...]


class PathSkills:
    """Of one conversation: each skill is announced once."""

    def __init__(self, skills: SessionSkills, earlier_results: Callable[[], Iterable[str]] = tuple) -> None:
        """`earlier_results`: the tool results already in a resumed session."""
        self._skills = skills
        self._earlier_results = earlier_results
        self._announced: set[str] | None = None
        """Full names; for an earlier run, the lines that announced them."""
        self._path_skills: list[_PathSkill] | None = None
        self._patterns_by_file: dict[tuple[str, int], tuple[_Pattern, ...]] = {}
        """By path and mtime stamp, so that each file's frontmatter is read once."""

    def refresh(self) -> None:
        """Call when the library may have changed."""
        self._path_skills = None

    def notice_for(self, tool: str, arguments: "dict[str, object]", directory: str) -> str:
        """The notice to append to a tool result; usually empty."""
        path = arguments.get(FILE_ARGUMENTS.get(tool, ""))
        if not isinstance(path, str) or not path or "\0" in path:
            return ""
        if self._path_skills is None:
            self._path_skills = list(self._find_path_skills())
        if not self._path_skills:
            return ""
        return self._notice_for_path(os.path.normpath(os.path.join(directory, os.path.expanduser(path))))

    def _find_path_skills(self) -> Iterable[_PathSkill]:
        library = self._skills.library
        view = library.visibility_context()
        for skill in library.skills:
            if is_path_activated(skill) and library.evaluate(skill, view).model:
                key = (skill.path, skill.stamp)
                if key not in self._patterns_by_file:
                    self._patterns_by_file[key] = tuple(
                        parse_patterns(split_globs(read_skill_details(skill).fields.get("paths")))
                    )
                if self._patterns_by_file[key]:
                    yield _PathSkill(skill, _base_directories(skill, library.places), self._patterns_by_file[key])

    def _notice_for_path(self, path: str) -> str:
        paths = tuple(dict.fromkeys((os.path.realpath(path), path)))
        matching = [one.skill for one in self._path_skills or () if _matches_skill(one, paths)]
        if not matching:
            return ""
        if self._announced is None:
            self._announced = {line for text in self._earlier_results() for line in extract_suggestions(text)}
        loaded = {one.name for one in self._skills.loaded()}
        new = [
            skill
            for skill in matching
            if self._announced.isdisjoint((skill.full_name, render_entry(skill))) and skill.full_name not in loaded
        ][:MAX_SUGGESTIONS]
        self._announced.update(skill.full_name for skill in new)
        self._skills.note_found((skill.full_name for skill in new), "suggestion")
        return suggest_skills_for_file(new)


def _base_directories(skill: Skill, places: Places) -> tuple[str, ...]:
    own = [folder for folder in places.project_dirs if is_inside(skill.root.path, folder)]
    return tuple(dict.fromkeys(map(os.path.realpath, (*own[:1], places.project))))


def split_globs(value: YamlValue | None) -> list[str]:
    """From a list, or from text with commas or line breaks between patterns. A comma inside braces does not split."""
    if isinstance(value, list):
        return [glob for item in value for glob in split_globs(to_text(item))]
    text = to_text(value).strip() if value is not None else ""
    if text.startswith("[") and text.endswith("]"):  # a list that YAML could not read because of its braces or stars
        text = text[1:-1]
    globs: list[str] = []
    start = depth = 0
    for at, char in enumerate(text):
        depth += (char == "{") - (char == "}" and depth > 0)
        if char == "\n" or (char == "," and not depth):
            globs.append(text[start:at])
            start, depth = at + 1, 0
    globs.append(text[start:])
    found = [glob.strip().removeprefix("- ").strip().strip("\"'`").strip() for glob in globs]
    return [glob for glob in found if glob][:_MAX_PATTERNS]


def parse_patterns(globs: Sequence[str]) -> Iterable[_Pattern]:
    """As in .gitignore, a pattern without a slash matches at any depth. Invalid patterns match nothing."""
    for glob in globs:
        counts = not glob.startswith("!")
        try:
            alternatives = expand_braces(glob if counts else glob[1:])
            split_patterns = [_split_pattern(alternative.strip()) for alternative in alternatives]
            regex = "|".join(f"(?:{path_regex(parts, hidden=True)})" for parts in split_patterns if parts)
        except GlobError:
            continue
        if regex:
            yield _Pattern(re.compile(regex), counts, glob.endswith("/"))


def _split_pattern(pattern: str) -> list[str]:
    pattern = pattern.replace("\\", "/") if "/" not in pattern else pattern
    anchored = pattern.startswith(("./", "/")) or "/" in pattern.rstrip("/")
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if ".." in parts:
        return []
    return parts if anchored or not parts else ["**", *parts]


def _matches_skill(path_skill: _PathSkill, paths: Sequence[str]) -> bool:
    return any(
        matches_path(path_skill.patterns, os.path.relpath(path, base))
        for base in path_skill.base_directories
        for path in paths
        if path != base and is_inside(path, base)
    )


def matches_path(patterns: Sequence[_Pattern], path: str) -> bool:
    """The last pattern that matches the file or one of its parent folders decides."""
    parts = path.split("/")
    folders = ["/".join(parts[:end]) for end in range(1, len(parts))]
    for pattern in reversed(patterns):
        if (not pattern.directories_only and pattern.regex.fullmatch(path)) or any(
            pattern.regex.fullmatch(folder) for folder in folders
        ):
            return pattern.includes
    return False
