"""Memory files: what a person and a project want every conversation to know (AGENTS.md, CLAUDE.md and their kin).

Used by the main prompt. A project's files are read only where the caller says that the workspace is trusted. `@path`
brings in another file: of the same folder or workspace, at most four deep, each file once, nothing that holds secrets.
"""

import bisect
import os
import re
from itertools import islice
from typing import Final, NamedTuple

from kitbag.errors import Diagnostic
from kitbag.library.scopes import Places, project_boundary, user_boundary
from kitbag.packing.memory_syntax import MAX_IMPORTS, find_block_comments, find_imports
from kitbag.permissions.model import is_inside
from kitbag.text.frontmatter import parse_frontmatter, split_frontmatter
from kitbag.text.hidden_characters import collapse_whitespace, find_hidden, format_code_points, reveal_hidden
from kitbag.text.secret_paths import secret_path_reason, special_path_reason
from kitbag.text.source_files import PathBoundary, SourceError, directory_boundary, read_text, with_trailing_slash

PROJECT_MEMORY_FILES: Final = (
    "AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", "GEMINI.md", ".github/copilot-instructions.md", ".kitbag/AGENTS.md",
    "CLAUDE.local.md",
)  # fmt: skip
MAX_CHARACTERS: Final = 40_000
"""Of all files together."""
MAX_IMPORT_DEPTH: Final = 4
_MAX_FILES = 100
_MAX_FOLDERS = 100
_ONLY_IMPORTS = re.compile(r"(?:[\s>*+-]|@\S+)*+")
"""What is left of a file whose imports stand elsewhere already, or could not be read."""
_RULE_FIELDS = frozenset(("paths", "description", "globs"))
_FILE_BYTES = 1 << 20
_TOTAL_CHARACTERS = 4 << 20
_TEXT_SUFFIXES = (".md", ".mdc", ".markdown", ".txt")


class MemoryFile(NamedTuple):
    path: str
    scope: str
    text: str
    omitted: str = ""
    """What the limit kept out."""


class MemoryFiles(NamedTuple):
    files: tuple[MemoryFile, ...]
    problems: tuple[Diagnostic, ...]


class ImportEdit(NamedTuple):
    start: int
    end: int
    text: str


class MemoryLocation(NamedTuple):
    path: str
    scope: str
    root: str
    """What its imports may not leave."""
    boundary: PathBoundary
    """What its links may not lead out of."""
    is_rule: bool = False
    """A file with a head, which may say that it is only for some files: then it is not for every conversation."""


def find_memory_files(places: Places, trusted: bool = True, link_targets: tuple[str, ...] = ()) -> list[MemoryLocation]:
    """Those that exist, the most general first: the person's own, then from the project's root down."""
    claude = os.path.join(places.user_home, ".claude")
    inside = project_boundary(places)
    at_home, own = (user_boundary(places, folder, link_targets) for folder in (claude, places.kitbag_home))
    candidates = [
        MemoryLocation(os.path.join(claude, "CLAUDE.md"), "user", claude, at_home),
        *(MemoryLocation(path, "user", claude, at_home, is_rule=True) for path in _list_rule_files(claude, at_home)),
        MemoryLocation(os.path.join(places.kitbag_home, "AGENTS.md"), "user", places.kitbag_home, own),
    ]
    for directory in reversed(places.project_dirs) if trusted else ():
        for name in PROJECT_MEMORY_FILES:
            candidates.append(MemoryLocation(os.path.join(directory, name), "project", places.project, inside))
            if name == ".claude/CLAUDE.md":
                rules = _list_rule_files(os.path.join(directory, ".claude"), inside)
                candidates += [MemoryLocation(rule, "project", places.project, inside, is_rule=True) for rule in rules]
    return [place for place in candidates if os.path.lexists(place.path)]


def _list_rule_files(claude: str, boundary: PathBoundary) -> list[str]:
    """`rules/**/*.md`, in the order of their names; links to folders are not followed. A folder that a link leads out
    of bounds is among them, so that it is told."""

    def leads_out(folder: str) -> bool:
        return bool(boundary.violation(with_trailing_slash(os.path.realpath(folder))))

    top = os.path.join(claude, "rules")
    if os.path.isdir(top) and leads_out(top):
        return [top]
    found: list[str] = []
    for where, folders, names in islice(os.walk(top), _MAX_FOLDERS):
        found += [os.path.join(where, name) for name in names if name.endswith(".md")]
        linked = (path for name in folders if os.path.islink(path := os.path.join(where, name)))
        found += [path for path in linked if leads_out(path)]
    return sorted(found)[:_MAX_FILES]


def read_memory_files(
    places: Places, trusted: bool, limit: int = MAX_CHARACTERS, link_targets: tuple[str, ...] = ()
) -> MemoryFiles:
    reader = _MemoryReader(places.user_home)
    found: list[MemoryFile] = []
    for place in find_memory_files(places, trusted, link_targets):
        text = reader.read_location(place)
        if text and all(text != other.text for other in found):  # one text under two names
            found.append(MemoryFile(place.path, place.scope, text))
    return MemoryFiles(tuple(_fit_to_limit(found, limit, reader.problems)), tuple(reader.problems))


class _MemoryReader:
    """Reads each file once, and as much as is reasonable altogether."""

    def __init__(self, user_home: str) -> None:
        self.problems: list[Diagnostic] = []
        self._home = user_home
        self._read: set[str] = set()
        """Resolved."""
        self._characters_left = _TOTAL_CHARACTERS

    def read_location(self, place: MemoryLocation) -> str:
        resolved = os.path.realpath(place.path)
        if resolved in self._read:
            return ""
        root = os.path.realpath(place.root)
        why = _denial_reason(place.path, resolved) or place.boundary.violation(resolved)
        if why:
            self._warn(place.path, 0, f"not used: {why}", "put a file of your own here")
            return ""
        roots = (root,) if place.scope == "project" else (root, os.path.dirname(resolved))
        text = self._read_with_imports(place.path, resolved, place.boundary, roots, 0)
        if text and place.is_rule:
            text = (
                "" if parse_frontmatter(text, [], _RULE_FIELDS).metadata.get("paths") else split_frontmatter(text).body
            )
        return reveal_hidden(text).strip() if text and _ONLY_IMPORTS.fullmatch(text) is None else ""

    def _read_with_imports(
        self, path: str, resolved: str, boundary: PathBoundary, roots: tuple[str, ...], depth: int
    ) -> str | None:
        """With its imports in it; None when it can't be read."""
        try:
            text, _, problems = read_text(resolved, boundary, _FILE_BYTES)
        except SourceError as error:
            self._warn(path, 0, error.problem, error.fix)
            return None
        self._read.add(resolved)
        self._characters_left -= len(text)
        for problem in problems:
            self.problems.append(Diagnostic("warning", problem.code, path, problem.line, problem.problem, problem.fix))
        if hidden := find_hidden(text):
            what = f"hidden characters, shown as [U+...]: {format_code_points(hidden)}"
            line = text.count("\n", 0, hidden[0][0]) + 1
            self.problems.append(Diagnostic("warning", "hidden-characters", path, line, what, "remove them"))
        imports = find_imports(text)
        if len(imports) == MAX_IMPORTS:
            self._warn(path, 0, f"only the first {MAX_IMPORTS} of its `@` are looked at", "import fewer files")
        edits = [ImportEdit(start, end, "") for start, end in find_block_comments(text)]
        ends = [edit.end for edit in edits]
        line, seen = 1, 0
        for start, end, written in imports:
            after = bisect.bisect_right(ends, start)
            if after < len(ends) and edits[after].start <= start:
                continue  # in a comment
            line, seen = line + text.count("\n", seen, start), start
            inserted, name = self._resolve_import(written, path, resolved, line, roots, depth)
            if inserted is not None:
                edits.append(ImportEdit(start, end - len(written) + len(name), inserted.strip()))
        return _apply_edits(text, sorted(edits))

    def _resolve_import(
        self, written: str, path: str, resolved: str, line: int, roots: tuple[str, ...], depth: int
    ) -> tuple[str | None, str]:
        """The text that takes its place, and as much of what is written as names the file; None: it stays."""
        requested, name = self._find_import(written, path, resolved)
        if requested is None:
            if written.endswith(_TEXT_SUFFIXES) or written.startswith(("./", "../")):
                self._note(
                    "info", path, line, f"{_display_import(written)} does not exist; left as text", "check the path"
                )
            return None, ""
        target = os.path.realpath(requested)
        if target in self._read:
            return None, ""  # it stands elsewhere, or would import itself
        why = _denial_reason(requested, target)
        root = next((root for root in roots if is_inside(target, root)), "")
        if not why and not root:
            why = f"it is outside {roots[0]}"
        if not why and depth >= MAX_IMPORT_DEPTH:
            why = f"imports go {MAX_IMPORT_DEPTH} deep"
        if not why and (len(self._read) >= _MAX_FILES or self._characters_left <= 0):
            why = "there are too many files, or they are too large"
        if why:
            self._note(
                "warning", path, line, f"{_display_import(written)} is not imported: {why}", "copy what is needed"
            )
            return None, ""
        return self._read_with_imports(requested, target, directory_boundary(root), roots, depth + 1), name

    def _find_import(self, written: str, path: str, resolved: str) -> tuple[str | None, str]:
        """The file that is named, beside the importing one as it is reached or as it is; None when there is none."""
        for name in dict.fromkeys((written, written.rstrip(".,:;!?)]}*_\"'"), written.partition("#")[0])):
            if name.startswith("~/"):
                places = [os.path.join(self._home, name[2:])]
            else:
                places = [os.path.join(os.path.dirname(one), name) for one in (path, resolved)]
            for place in places if name else ():
                if os.path.isfile(place):
                    return place, name
        return None, ""

    def _warn(self, path: str, line: int, problem: str, fix: str) -> None:
        self.problems.append(Diagnostic("warning", "memory", path, line, problem, fix))

    def _note(self, severity: "str", path: str, line: int, problem: str, fix: str) -> None:
        level = "info" if severity == "info" else "warning"
        self.problems.append(Diagnostic(level, "memory-import", path, line, problem, fix))


def _denial_reason(requested: str, resolved: str) -> str:
    """Why a place is nothing to tell a model about, by its name and by where links lead."""
    for path in (os.path.abspath(requested), resolved):
        if reason := secret_path_reason(path) or special_path_reason(path):
            return reason
        if ".git" in path.casefold().split(os.sep):
            return "those are a repository's insides"
    return ""


def _display_import(written: str) -> str:
    return f"`@{collapse_whitespace(reveal_hidden(written))[:200]}`"


def _apply_edits(text: str, edits: list[ImportEdit]) -> str:
    pieces: list[str] = []
    at = 0
    for edit in edits:
        pieces += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*pieces, text[at:]])


def _fit_to_limit(found: list[MemoryFile], limit: int, problems: list[Diagnostic]) -> list[MemoryFile]:
    """Short files whole; long ones share what is left, and say what is missing."""
    share, left = limit, limit
    for at, length in enumerate(sorted(len(memory.text) for memory in found)):
        share = left // (len(found) - at)
        if length > share:
            break
        left -= length
    else:
        return found
    kept: list[MemoryFile] = []
    for memory in found:
        if len(memory.text) > share:
            text = memory.text[:share]
            text = text[: text.rfind("\n") + 1] or text
            missing = memory.text[len(text) :]
            what = f"{len(missing):,} characters are left out: memory files may have {limit:,} together"
            problems.append(
                Diagnostic("warning", "memory-cut", memory.path, 0, what, "shorten it, or make a skill of it")
            )
            note = f"[{len(missing):,} more characters of this file are left out; Read shows them.]"
            memory = memory._replace(text=f"{text.rstrip()}\n{note}", omitted=missing)
        kept.append(memory)
    return kept
