"""Memory files: what a person and a project want every conversation to know (AGENTS.md, CLAUDE.md and their kin).

Used by the main prompt. A project's files are read only where the caller says that the workspace is trusted; `@path`
imports stay inside the folder they belong to, at most four deep, and nothing in code is an import.
"""

import os
import re
from typing import Final, NamedTuple

from kitbag.errors import Diagnostic
from kitbag.library.scopes import Places
from kitbag.permissions.model import is_inside
from kitbag.text.hidden import reveal_hidden
from kitbag.text.source import SourceError, read_text

IN_PROJECTS: Final = (
    "AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", "GEMINI.md", ".github/copilot-instructions.md", "CLAUDE.local.md",
)  # fmt: skip
MOST_CHARACTERS: Final = 40_000
DEEPEST: Final = 4
_COMMENT = re.compile(r"^<!--.*?-->[ \t]*\n?", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"(?ms)^(`{3,}|~{3,})[^\n]*\n.*?^\1[`~]*[ \t]*$|``.*?``|`[^`\n]*`")
_IMPORT = re.compile(r"(?<!\S)@((?:\.{1,2}/|~/|/)?[\w.-][\w./-]*)")


class Memory(NamedTuple):
    path: str
    scope: str
    text: str
    cut: int
    """Characters that the limit kept out."""


class Memories(NamedTuple):
    files: tuple[Memory, ...]
    problems: tuple[Diagnostic, ...]


def memory_files(places: Places) -> list[tuple[str, str, str]]:
    """(path, scope, the folder its imports may not leave), the most general first; those that exist."""
    home = [
        (os.path.join(places.kitbag_home, "AGENTS.md"), "user", places.kitbag_home),
        (os.path.join(places.user_home, ".claude", "CLAUDE.md"), "user", os.path.join(places.user_home, ".claude")),
    ]
    project = [
        (os.path.join(directory, name), "project", places.project)
        for directory in reversed(places.project_dirs)
        for name in IN_PROJECTS
    ]
    return [found for found in home + project if os.path.isfile(found[0])]


def read_memory(places: Places, trusted: bool, limit: int = MOST_CHARACTERS) -> Memories:
    problems: list[Diagnostic] = []
    found: list[Memory] = []
    seen: set[str] = set()
    left = limit
    for path, scope, root in memory_files(places):
        if scope == "project" and not trusted:
            continue
        text = _read(path, os.path.realpath(root), 0, [], problems).strip()
        if not text or text in seen:  # AGENTS.md and CLAUDE.md are often one text under two names
            continue
        seen.add(text)
        kept = text[:left]
        left -= len(kept)
        cut = len(text) - len(kept)
        if cut:
            what = f"{cut:,} characters are left out: memory files may have {limit:,} together"
            problems.append(Diagnostic("warning", "memory-cut", path, 0, what, "shorten it, or make it a skill"))
        found.append(Memory(path, scope, kept, cut))
    return Memories(tuple(found), tuple(problems))


def _read(path: str, root: str, depth: int, above: list[str], problems: list[Diagnostic]) -> str:
    try:
        text, _, _ = read_text(path, 1 << 20)
    except SourceError as error:
        problems.append(Diagnostic("warning", error.code, path, 0, error.problem, error.fix))
        return ""
    text = reveal_hidden(_COMMENT.sub("", text))
    code = [found.span() for found in _CODE.finditer(text)]
    pieces: list[str] = []
    last = 0
    for found in _IMPORT.finditer(text):
        if any(start <= found.start() < end for start, end in code):
            continue
        target = _target(found[1], path)
        if not os.path.isfile(target):
            continue  # an e-mail address, a user's name, a package: not every @ is an import
        line = text.count("\n", 0, found.start()) + 1
        inserted = _imported(target, path, line, root, depth, above, problems)
        if inserted is not None:
            pieces += [text[last : found.start()], inserted]
            last = found.end()
    return "".join([*pieces, text[last:]])


def _target(written: str, path: str) -> str:
    written = os.path.expanduser(written.rstrip("."))
    return os.path.realpath(os.path.join(os.path.dirname(path), written))


def _imported(
    target: str, path: str, line: int, root: str, depth: int, above: list[str], problems: list[Diagnostic]
) -> str | None:
    what = fix = ""
    if not is_inside(target, root):
        what, fix = f"the import of {target} is left out: it is outside {root}", "copy what is needed into the folder"
    elif depth >= DEEPEST:
        what, fix = f"the import of {target} is left out: more than {DEEPEST} deep", "import it higher up"
    elif target in above or target == os.path.realpath(path):
        what, fix = f"the import of {target} is left out: it imports itself", "remove one of the imports"
    if what:
        problems.append(Diagnostic("warning", "memory-import", path, line, what, fix))
        return None
    return _read(target, root, depth + 1, [*above, os.path.realpath(path)], problems).strip()
