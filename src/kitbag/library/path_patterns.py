"""The patterns of a skill's `paths`, and which files they match: as in .gitignore, plus braces, relative to the
directory of the project that the skill belongs to and to the project's root.

Used by tools/path_skills for files that tools use and by routing for files that a message names. Uses
text/glob_patterns, so matching is linear.
"""

import os
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kitbag.library.scopes import Places, Root
from kitbag.library.skills import to_text
from kitbag.text.glob_patterns import GlobError, expand_braces, path_regex
from kitbag.text.plain_frontmatter import YamlValue

_MAX_PATTERNS: Final = 200


class PathPattern(NamedTuple):
    regex: re.Pattern[str]
    includes: bool
    """False for `!pattern`, which excludes what it matches."""
    directories_only: bool


def base_directories(root: Root, places: Places) -> tuple[str, ...]:
    """The resolved directories that the patterns of skills of a root are relative to."""
    own = [folder for folder in places.project_dirs if _is_inside(root.path, folder)]
    return tuple(dict.fromkeys(map(os.path.realpath, (*own[:1], places.project))))


def _is_inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(os.path.join(directory, ""))


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


def parse_patterns(globs: Sequence[str]) -> Iterable[PathPattern]:
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
            yield PathPattern(re.compile(regex), counts, glob.endswith("/"))


def _split_pattern(pattern: str) -> list[str]:
    pattern = pattern.replace("\\", "/") if "/" not in pattern else pattern
    anchored = pattern.startswith(("./", "/")) or "/" in pattern.rstrip("/")
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if ".." in parts:
        return []
    return parts if anchored or not parts else ["**", *parts]


def matches_file(patterns: Sequence[PathPattern], bases: Sequence[str], paths: Sequence[str]) -> bool:
    """`paths`: the absolute names of one file."""
    return any(
        matches_path(patterns, os.path.relpath(path, base))
        for base in bases
        for path in paths
        if path != base and _is_inside(path, base)
    )


def matches_path(patterns: Sequence[PathPattern], path: str) -> bool:
    """The last pattern that matches the file or one of its parent folders decides."""
    parts = path.split("/")
    folders = ["/".join(parts[:end]) for end in range(1, len(parts))]
    for pattern in reversed(patterns):
        if (not pattern.directories_only and pattern.regex.fullmatch(path)) or any(
            pattern.regex.fullmatch(folder) for folder in folders
        ):
            return pattern.includes
    return False
