"""Announces skills with `paths` when the model reads or changes a file that matches one of their patterns.

Used by agent/execute, which appends the notice to a tool result. Uses library/path_patterns.
"""

import os
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kitbag.library.path_patterns import PathPattern, base_directories, matches_file, parse_patterns, split_globs
from kitbag.library.skill_files import read_skill_details
from kitbag.library.skills import Skill, is_path_activated
from kitbag.packing.session_skills import SessionSkills
from kitbag.packing.suggestions import MAX_SUGGESTIONS, extract_suggestions, list_suggested, suggest_skills_for_file

FILE_ARGUMENTS: Final = {
    "Read": "file_path",
    "Write": "file_path",
    "Edit": "file_path",
    "NotebookEdit": "notebook_path",
}
"""The tools that work on one file, and the argument with its path."""


class _PathSkill(NamedTuple):
    skill: Skill
    base_directories: tuple[str, ...]
    """The resolved directories that the patterns are relative to."""
    patterns: tuple[PathPattern, ...]


class PathSkills:
    """Of one conversation: each skill is announced once."""

    def __init__(self, skills: SessionSkills, earlier_texts: Callable[[], Iterable[str]] = tuple) -> None:
        """`earlier_texts`: those of messages and tool results already in a resumed session."""
        self._skills = skills
        self._earlier_texts = earlier_texts
        self._announced: set[str] | None = None
        """Full names."""
        self._path_skills: list[_PathSkill] | None = None
        self._patterns_by_file: dict[tuple[str, int], tuple[PathPattern, ...]] = {}
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
                    yield _PathSkill(skill, base_directories(skill.root, library.places), self._patterns_by_file[key])

    def _notice_for_path(self, path: str) -> str:
        paths = tuple(dict.fromkeys((os.path.realpath(path), path)))
        matching = [
            one.skill for one in self._path_skills or () if matches_file(one.patterns, one.base_directories, paths)
        ]
        if not matching:
            return ""
        if self._announced is None:
            self._announced = {
                name for text in self._earlier_texts() for name in list_suggested("\n".join(extract_suggestions(text)))
            }
        loaded = {one.name for one in self._skills.loaded()}
        new = [
            skill
            for skill in matching
            if skill.full_name not in self._announced
            and skill.full_name not in loaded
            and not self._skills.is_suggested(skill.full_name)
        ][:MAX_SUGGESTIONS]
        self._announced.update(skill.full_name for skill in new)
        self._skills.note_found((skill.full_name for skill in new), "suggestion")
        return suggest_skills_for_file(new)
