"""Skill files as resources: `skill://NAME/SKILL.md`, `skill://plugin/NAME/references/a.md`.

Maps URIs to files and reads them. Files outside the skill (through links) and files that the rules deny do not exist
here. Used by resources and skills_extension.
"""

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from kitbag.assembly.environment import AgentEnvironment
from kitbag.errors import InvalidError, NotFoundError
from kitbag.library.skill_files import resolve_skill_file
from kitbag.library.skills import COMMAND, FLAT, Skill
from kitbag.permissions.model import is_inside
from kitbag.permissions.safe_open import open_for_reading
from kitbag.text.unicode_forms import fold

SCHEME: Final = "skill://"
MAIN_FILE: Final = "SKILL.md"
MAX_BYTES: Final = 16 * 1024 * 1024
MAX_FILES: Final = 512
MAX_DEPTH: Final = 12
MAX_DIGESTS: Final = 200_000
_SKIPPED_DIRECTORIES: Final = frozenset((".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv"))
_DISAMBIGUATOR: Final = "from"
"""The prefix of a path that would otherwise lie below another skill's."""


ResourceStamp = tuple[int, int, int, int]
"""Inode, size, mtime and ctime: equal stamps mean equal content."""


class ServedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is served."""

    path: str
    """Relative to the skill, such as `SKILL.md` or `references/a.md`."""
    resolved: str
    stamp: ResourceStamp

    @property
    def size(self) -> int:
        return self.stamp[1]


class SkillLocation(msgspec.Struct, frozen=True, kw_only=True):
    skill: Skill
    path: str
    """The path after the skill in the URI; empty: the skill's directory."""


DigestCache = dict[tuple[str, ResourceStamp], tuple[str, int]]


class SkillUris:
    """For one snapshot of the library."""

    def __init__(self, environment: AgentEnvironment, digests: DigestCache | None = None) -> None:
        self._environment = environment
        self._read_permissions = environment.permissions.with_mode("default")
        """Rules alone decide what is readable, whatever the agents' mode is."""
        self.digests: DigestCache = digests if digests is not None else {}
        library = environment.library
        view = library.visibility_context()
        verdicts = [(skill, library.evaluate(skill, view)) for skill in library.skills]
        served = [(skill, verdict.listed) for skill, verdict in verdicts if verdict.model and not skill.flags & COMMAND]
        self._by_key: dict[str, Skill] = {}
        self._paths: dict[str, str] = {}
        # Short paths first: a longer one must not lie below them.
        for skill, _ in sorted(served, key=lambda pair: (_skill_path(pair[0]).count("/"), pair[0].full_name)):
            path = _skill_path(skill)
            while self._is_taken(path):
                path = f"{_DISAMBIGUATOR}/{path}"
            self._by_key[_lookup_key(path)] = skill
            self._paths[skill.full_name] = path
        self.listed = sorted((self._paths[skill.full_name], skill) for skill, listed in served if listed)

    def _is_taken(self, path: str) -> bool:
        parts = _lookup_key(path).split("/")
        return any("/".join(parts[:length]) in self._by_key for length in range(1, len(parts) + 1))

    def uri(self, skill: Skill, path: str = MAIN_FILE) -> str:
        tail = "/".join(map(_quote_segment, path.split("/")))
        return f"{SCHEME}{self._paths[skill.full_name]}/{tail}" if path else f"{SCHEME}{self._paths[skill.full_name]}"

    def find(self, uri: str) -> SkillLocation:
        """Raises NotFoundError."""
        if uri.lower().startswith(SCHEME) and len(uri) < 4_096:
            parts = uri[len(SCHEME) :].split("/")
            for length in range(len(parts), 0, -1):
                skill = self._by_key.get(_lookup_key("/".join(parts[:length])))
                if skill is not None:
                    return SkillLocation(skill=skill, path="/".join(unquote(part) for part in parts[length:]))
        raise NotFoundError(f"no skill at {uri[:300]}", "list the resources to see available skills")

    # Files

    def file(self, skill: Skill, path: str) -> ServedFile:
        """Raises NotFoundError if no such file is served, InvalidError if the skill can't be read any more."""
        main = resolve_skill_file(skill)
        parts = path.split("/")
        if self._read_permissions.decide("Skill", {"skill": skill.full_name}).effect != "allow":
            resolved = ""
        elif path == MAIN_FILE:
            resolved = main
        elif skill.flags & FLAT or any(part in ("", ".", "..") or "\0" in part for part in parts):
            resolved = ""
        else:
            resolved = os.path.realpath(os.path.join(os.path.dirname(main), path))
            if not _is_below(resolved, os.path.dirname(main)) or any(part in _SKIPPED_DIRECTORIES for part in parts):
                resolved = ""
        file = self._stat_file(path, resolved) if resolved else None
        if file is None:
            raise NotFoundError(
                f"the skill {skill.full_name} has no file {path[:300]!r}", "the skill's entry lists its files"
            )
        return file

    def _stat_file(self, path: str, resolved: str) -> ServedFile | None:
        try:
            status = os.lstat(resolved)
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(status.st_mode) or not self._can_read(resolved):
            return None
        return ServedFile(
            path=path, resolved=resolved, stamp=(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        )

    def _can_read(self, resolved: str) -> bool:
        return self._read_permissions.decide("Read", {"file_path": resolved}).effect == "allow"

    def files(self, skill: Skill) -> list[ServedFile]:
        """All served files, the main file first, then sorted. Raises InvalidError for too many."""
        files = [self.file(skill, MAIN_FILE)]
        for file in self._walk(skill):
            files.append(file)
            if len(files) > MAX_FILES or sum(one.size for one in files) > MAX_BYTES:
                limit = f"{MAX_FILES} files or {MAX_BYTES:,} bytes"
                raise InvalidError(f"the skill {skill.full_name} has more than {limit}", "make the skill smaller")
        return [files[0], *sorted(files[1:], key=lambda file: file.path)]

    def _walk(self, skill: Skill) -> Iterator[ServedFile]:
        main = resolve_skill_file(skill)
        top = os.path.dirname(main)
        pending = [""] if not skill.flags & FLAT else []
        visited = 0
        while pending:
            folder = pending.pop()
            try:
                names = sorted(os.listdir(os.path.join(top, folder)))
            except OSError:
                continue
            visited += len(names)
            if visited > 20 * MAX_FILES:
                raise InvalidError(f"the skill {skill.full_name} has too many files", "make the skill smaller")
            for name in names:
                path = f"{folder}/{name}" if folder else name
                full_path = os.path.join(top, path)
                if os.path.isdir(full_path) and not os.path.islink(full_path):
                    if name not in _SKIPPED_DIRECTORIES and path.count("/") < MAX_DEPTH:
                        pending.append(path)
                    continue
                resolved = os.path.realpath(full_path)
                if path == MAIN_FILE or resolved == main or not _is_below(resolved, top) or not _is_encodable(path):
                    continue
                file = self._stat_file(path, resolved)
                if file is not None:
                    yield file

    def children(self, skill: Skill, folder: str) -> list[tuple[str, bool]]:
        """The names in a directory of a skill, and whether each is a directory. Raises NotFoundError."""
        main = resolve_skill_file(skill)
        top = os.path.dirname(main)
        parts = folder.split("/") if folder else []
        directory = os.path.join(top, folder)
        wrong = any(part in ("", ".", "..") or part in _SKIPPED_DIRECTORIES or "\0" in part for part in parts)
        if not folder and skill.flags & FLAT:
            return [(MAIN_FILE, False)]
        if (
            wrong
            or skill.flags & FLAT
            or not os.path.isdir(directory)
            or os.path.realpath(directory) != directory.rstrip("/")
        ):
            raise NotFoundError(f"{self.uri(skill, folder)} is not a directory resource", "")
        children: set[tuple[str, bool]] = set()
        for name in os.listdir(directory):
            path = f"{folder}/{name}" if folder else name
            if os.path.isdir(os.path.join(top, path)):
                if name not in _SKIPPED_DIRECTORIES and not os.path.islink(os.path.join(top, path)):
                    children.add((name, True))
            elif os.path.realpath(os.path.join(top, path)) == main:
                children.add((MAIN_FILE, False))
            elif _is_encodable(path):
                with contextlib.suppress(NotFoundError):
                    children.add((self.file(skill, path).path.rpartition("/")[2], False))
        return sorted(children)

    def read(self, file: ServedFile) -> bytes:
        """Raises InvalidError."""
        if file.size > MAX_BYTES:
            raise InvalidError(f"{file.path} is larger than {MAX_BYTES:,} bytes", "read it from the skill's directory")
        descriptor = open_for_reading(file.resolved, self._environment.workspace, expected_resolved=file.resolved)
        with open(descriptor, "rb") as opened:
            data = opened.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise InvalidError(f"{file.path} is larger than {MAX_BYTES:,} bytes", "read it from the skill's directory")
        return data

    def digest(self, file: ServedFile) -> tuple[str, int]:
        """Digest and size, computed once per state of the file."""
        key = file.resolved, file.stamp
        known = self.digests.get(key)
        if known is None:
            data = self.read(file)
            known = self.digests[key] = compute_digest(data), len(data)
            if len(self.digests) > MAX_DIGESTS:
                self.digests.pop(next(iter(self.digests)))
        return known


def compute_digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _skill_path(skill: Skill) -> str:
    return "/".join(_quote_segment(part) for part in (skill.root.plugin or skill.team, skill.name) if part)


def _quote_segment(text: str) -> str:
    return quote(text, safe="", errors="surrogateescape")


def _lookup_key(path: str) -> str:
    """Some clients write the first part of a URI in lower case."""
    return "/".join(fold(unquote(part)) for part in path.split("/"))


def _is_below(resolved: str, top: str) -> bool:
    return is_inside(resolved, top) and resolved != top


def _is_encodable(path: str) -> bool:
    """Whether a URI can hold the name."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
