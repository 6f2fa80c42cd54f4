"""Memory files: instructions of the user and the project for every session (AGENTS.md, CLAUDE.md and similar).

Project files are read only if the caller says that the workspace is trusted. `@path` imports another file of the same
directory or workspace: at most four levels deep, each file once, no files with secrets. Used by main_prompt; uses
memory_syntax.
"""

import bisect
import os
import re
from typing import Final, NamedTuple

import msgspec

from kitbag.errors import Diagnostic
from kitbag.library.scopes import Places, project_boundary, user_boundary
from kitbag.packing.memory_syntax import MAX_IMPORTS, find_block_comments, find_imports
from kitbag.permissions.model import is_inside
from kitbag.text.frontmatter import parse_frontmatter
from kitbag.text.frontmatter_fences import split_frontmatter
from kitbag.text.hidden_characters import collapse_whitespace, find_disguises, format_code_points, reveal_hidden
from kitbag.text.secret_paths import secret_path_reason, special_path_reason
from kitbag.text.source_files import PathBoundary, SourceError, directory_boundary, read_text, with_trailing_slash

PROJECT_MEMORY_FILES: Final = (
    "AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", "GEMINI.md", ".github/copilot-instructions.md", ".kitbag/AGENTS.md",
    "CLAUDE.local.md",
)  # fmt: skip
MAX_CHARACTERS: Final = 40_000
"""Sum over all files."""
MAX_IMPORT_DEPTH: Final = 4
_MAX_FILES = 100
_MAX_FOLDERS = 100
_ONLY_IMPORTS = re.compile(r"(?:[\s>*+-]|@\S+)*+")
"""Matches a file with nothing but imports that were already inserted elsewhere or could not be read."""
_RULE_FIELDS = frozenset(("paths", "description", "globs"))
_FILE_BYTES = 1 << 20
_TOTAL_CHARACTERS = 4 << 20
_TEXT_SUFFIXES = (".md", ".mdc", ".markdown", ".txt")


class MemoryFile(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    scope: str
    text: str
    omitted: str = ""
    """Text dropped by the limit."""


class MemoryFiles(msgspec.Struct, frozen=True, kw_only=True):
    files: tuple[MemoryFile, ...]
    problems: tuple[Diagnostic, ...]


class ImportEdit(NamedTuple):
    start: int
    end: int
    text: str


class MemoryLocation(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    scope: str
    root: str
    """Imports may not leave this directory."""
    boundary: PathBoundary
    """Symlinks may not leave this boundary."""
    is_rule: bool = False
    """True for a rule file; if its frontmatter limits it to some `paths`, it is not included."""


def find_memory_files(
    places: Places, trusted: bool, link_targets: tuple[str, ...], problems: list[Diagnostic]
) -> list[MemoryLocation]:
    """Existing memory files, most general first: the user's, then from the project root down."""
    claude = os.path.join(places.user_home, ".claude")
    project_limits = project_boundary(places)
    claude_limits, kitbag_limits = (
        user_boundary(places, folder, link_targets) for folder in (claude, places.kitbag_home)
    )
    candidates = [
        MemoryLocation(path=os.path.join(claude, "CLAUDE.md"), scope="user", root=claude, boundary=claude_limits),
        *(
            MemoryLocation(path=path, scope="user", root=claude, boundary=claude_limits, is_rule=True)
            for path in _list_rule_files(claude, claude_limits, problems)
        ),
        MemoryLocation(
            path=os.path.join(places.kitbag_home, "AGENTS.md"),
            scope="user",
            root=places.kitbag_home,
            boundary=kitbag_limits,
        ),
    ]
    for directory in reversed(places.project_dirs) if trusted else ():
        for name in PROJECT_MEMORY_FILES:
            candidates.append(
                MemoryLocation(
                    path=os.path.join(directory, name), scope="project", root=places.project, boundary=project_limits
                )
            )
            if name == ".claude/CLAUDE.md":
                rules = _list_rule_files(os.path.join(directory, ".claude"), project_limits, problems)
                candidates += [
                    MemoryLocation(
                        path=rule, scope="project", root=places.project, boundary=project_limits, is_rule=True
                    )
                    for rule in rules
                ]
    return [location for location in candidates if os.path.lexists(location.path)]


def _list_rule_files(claude: str, boundary: PathBoundary, problems: list[Diagnostic]) -> list[str]:
    """`rules/**/*.md`, sorted; symlinked directories are not followed. A directory symlink that leaves the boundary is
    included, so that reading it reports the problem."""

    def leaves_boundary(folder: str) -> bool:
        return bool(boundary.violation(with_trailing_slash(os.path.realpath(folder))))

    top = os.path.join(claude, "rules")
    if os.path.isdir(top) and leaves_boundary(top):
        return [top]
    paths: list[str] = []
    for count, (directory, folders, names) in enumerate(os.walk(top)):
        if count == _MAX_FOLDERS:
            problems.append(_limit_diagnostic(top, f"more than {_MAX_FOLDERS} directories"))
            break
        folders.sort()
        paths += [os.path.join(directory, name) for name in names if name.endswith(".md")]
        linked = (path for name in folders if os.path.islink(path := os.path.join(directory, name)))
        paths += [path for path in linked if leaves_boundary(path)]
    if len(paths) > _MAX_FILES:
        problems.append(_limit_diagnostic(top, f"more than {_MAX_FILES} rules"))
    return sorted(paths)[:_MAX_FILES]


def _limit_diagnostic(folder: str, limit: str) -> Diagnostic:
    problem = f"{limit}; the rest are not read"
    return Diagnostic(
        severity="warning", code="too-many-rules", file=folder, line=0, problem=problem, fix="merge or remove rules"
    )


def read_memory_files(
    places: Places, trusted: bool, limit: int = MAX_CHARACTERS, link_targets: tuple[str, ...] = ()
) -> MemoryFiles:
    reader = _MemoryReader(places.user_home)
    files: list[MemoryFile] = []
    for location in find_memory_files(places, trusted, link_targets, reader.problems):
        text = reader.read_location(location)
        if text and all(text != other.text for other in files):  # skips the same text under another name
            files.append(MemoryFile(path=location.path, scope=location.scope, text=text))
    return MemoryFiles(files=tuple(_fit_to_limit(files, limit, reader.problems)), problems=tuple(reader.problems))


class _MemoryReader:
    """Reads each file once, up to a total limit."""

    def __init__(self, user_home: str) -> None:
        self.problems: list[Diagnostic] = []
        self._home = user_home
        self._read: set[str] = set()
        """Resolved paths."""
        self._characters_left = _TOTAL_CHARACTERS

    def read_location(self, location: MemoryLocation) -> str:
        resolved = os.path.realpath(location.path)
        if resolved in self._read:
            return ""
        root = os.path.realpath(location.root)
        problem = _denial_reason(location.path, resolved) or location.boundary.violation(resolved)
        if problem:
            self._warn(location.path, 0, f"ignored: {problem}", "replace it with a regular file")
            return ""
        roots = (root,) if location.scope == "project" else (root, os.path.dirname(resolved))
        text = self._read_with_imports(location.path, resolved, location.boundary, roots, 0)
        if text and location.is_rule:
            text = (
                "" if parse_frontmatter(text, [], _RULE_FIELDS).metadata.get("paths") else split_frontmatter(text).body
            )
        return reveal_hidden(text).strip() if text and _ONLY_IMPORTS.fullmatch(text) is None else ""

    def _read_with_imports(
        self, path: str, resolved: str, boundary: PathBoundary, roots: tuple[str, ...], depth: int
    ) -> str | None:
        """The text with its imports inserted; None if it can't be read."""
        try:
            text, _, problems = read_text(resolved, boundary, _FILE_BYTES)
        except SourceError as error:
            self._warn(path, 0, error.problem, error.fix)
            return None
        self._read.add(resolved)
        self._characters_left -= len(text)
        for problem in problems:
            self.problems.append(
                Diagnostic(
                    severity="warning",
                    code=problem.code,
                    file=path,
                    line=problem.line,
                    problem=problem.problem,
                    fix=problem.fix,
                )
            )
        if hidden := find_disguises(text):
            problem_text = f"contains hidden characters, shown as [U+...]: {format_code_points(hidden)}"
            line = text.count("\n", 0, hidden[0][0]) + 1
            self.problems.append(
                Diagnostic(
                    severity="warning",
                    code="hidden-characters",
                    file=path,
                    line=line,
                    problem=problem_text,
                    fix="remove them",
                )
            )
        imports = find_imports(text)
        if len(imports) == MAX_IMPORTS:
            self._warn(path, 0, f"only the first {MAX_IMPORTS} `@` imports are used", "import fewer files")
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
        """The imported text, and the part of `written` that names the file; None if the import stays as text."""
        requested, name = self._find_import(written, path, resolved)
        if requested is None:
            if written.endswith(_TEXT_SUFFIXES) or written.startswith(("./", "../")):
                self._note(
                    "info", path, line, f"{_display_import(written)} does not exist; kept as text", "check the path"
                )
            return None, ""
        target = os.path.realpath(requested)
        if target in self._read:
            return None, ""  # already imported, or a circular import
        problem = _denial_reason(requested, target)
        root = next((root for root in roots if is_inside(target, root)), "")
        if not problem and not root:
            problem = f"it is outside {roots[0]}"
        if not problem and depth >= MAX_IMPORT_DEPTH:
            problem = f"imports are nested more than {MAX_IMPORT_DEPTH} levels deep"
        if not problem and (len(self._read) >= _MAX_FILES or self._characters_left <= 0):
            problem = "too many files, or files too large"
        if problem:
            self._note(
                "warning", path, line, f"{_display_import(written)} is not imported: {problem}", "copy the content here"
            )
            return None, ""
        return self._read_with_imports(requested, target, directory_boundary(root), roots, depth + 1), name

    def _find_import(self, written: str, path: str, resolved: str) -> tuple[str | None, str]:
        """The named file, relative to the importing file's path or its resolved path; None if there is none."""
        for name in dict.fromkeys((written, written.rstrip(".,:;!?)]}*_\"'"), written.partition("#")[0])):
            if name.startswith("~/"):
                candidates = [os.path.join(self._home, name[2:])]
            else:
                candidates = [os.path.join(os.path.dirname(importer), name) for importer in (path, resolved)]
            for candidate in candidates if name else ():
                if os.path.isfile(candidate):
                    return candidate, name
        return None, ""

    def _warn(self, path: str, line: int, problem: str, fix: str) -> None:
        self.problems.append(
            Diagnostic(severity="warning", code="memory", file=path, line=line, problem=problem, fix=fix)
        )

    def _note(self, severity: "str", path: str, line: int, problem: str, fix: str) -> None:
        level = "info" if severity == "info" else "warning"
        self.problems.append(
            Diagnostic(severity=level, code="memory-import", file=path, line=line, problem=problem, fix=fix)
        )


def _denial_reason(requested: str, resolved: str) -> str:
    """Why a file must not be shown to a model, by its path and its resolved path; empty if it may."""
    for path in (os.path.abspath(requested), resolved):
        if reason := secret_path_reason(path) or special_path_reason(path):
            return reason
        if ".git" in path.casefold().split(os.sep):
            return "it is inside a .git directory"
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


def _fit_to_limit(files: list[MemoryFile], limit: int, problems: list[Diagnostic]) -> list[MemoryFile]:
    """Keeps short files whole; long files share the remaining limit, with a note about what is missing."""
    share, remaining = limit, limit
    for at, length in enumerate(sorted(len(memory.text) for memory in files)):
        share = remaining // (len(files) - at)
        if length > share:
            break
        remaining -= length
    else:
        return files
    kept: list[MemoryFile] = []
    for memory in files:
        if len(memory.text) > share:
            text = memory.text[:share]
            text = text[: text.rfind("\n") + 1] or text
            missing = memory.text[len(text) :]
            problem = f"{len(missing):,} characters omitted: memory files are limited to {limit:,} in total"
            problems.append(
                Diagnostic(
                    severity="warning",
                    code="memory-cut",
                    file=memory.path,
                    line=0,
                    problem=problem,
                    fix="shorten it, or turn it into a skill",
                )
            )
            note = f"[{len(missing):,} more characters omitted. Use Read to see the whole file.]"
            memory = msgspec.structs.replace(memory, text=f"{text.rstrip()}\n{note}", omitted=missing)
        kept.append(memory)
    return kept
