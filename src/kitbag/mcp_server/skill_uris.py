"""Skills and their files as resources: `skill://NAME/SKILL.md`, `skill://plugin/NAME/references/a.md`.

Which address leads to which file of which skill, what may be read, and its bytes. A file that a link leads out of the
skill to, or that the rules keep from being read, is not there. Used by resources and skill_entries.
"""

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from kitbag.assembly.environment import Ground
from kitbag.errors import InvalidError, NotFoundError
from kitbag.library.skill_files import resolved_file
from kitbag.library.skills import COMMAND, FLAT, Skill
from kitbag.permissions.model import is_inside
from kitbag.permissions.safe_open import open_to_read

SCHEME: Final = "skill://"
MAIN: Final = "SKILL.md"
LARGEST: Final = 16 * 1024 * 1024
MOST_FILES: Final = 512
DEEPEST: Final = 12
MOST_DIGESTS: Final = 200_000
_SKIPPED: Final = frozenset((".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv"))
_ELSEWHERE: Final = "from"
"""Before an address that would else lie inside that of another skill."""


class SkillFile(NamedTuple):
    """A file as it is served."""

    path: str
    """In the skill, such as `SKILL.md` or `references/a.md`."""
    resolved: str
    stamp: tuple[int, int, int, int]
    """Inode, size, times: two that are equal are the same bytes."""

    @property
    def size(self) -> int:
        return self.stamp[1]


class Found(NamedTuple):
    skill: Skill
    path: str
    """What follows the skill in the address; empty: the skill's directory."""


Digests = dict[tuple[str, tuple[int, int, int, int]], tuple[str, int]]


class Addresses:
    """Of one state of the library."""

    def __init__(self, ground: Ground, digests: Digests | None = None) -> None:
        self._ground = ground
        self._reading = ground.permissions.in_mode("default")
        """What may be read is the rules' word, whatever the mode is for agents."""
        self.digests: Digests = digests if digests is not None else {}
        library = ground.library
        view = library.view()
        verdicts = [(skill, library.judge(skill, view)) for skill in library.skills]
        served = [(skill, verdict.listed) for skill, verdict in verdicts if verdict.model and not skill.flags & COMMAND]
        self._by_key: dict[str, Skill] = {}
        self._paths: dict[str, str] = {}
        # Short ones first: a longer one must not lie inside of them.
        for skill, _ in sorted(served, key=lambda pair: (_address(pair[0]).count("/"), pair[0].full_name)):
            path = _address(skill)
            while self._is_taken(path):
                path = f"{_ELSEWHERE}/{path}"
            self._by_key[_key(path)] = skill
            self._paths[skill.full_name] = path
        self.listed = sorted((self._paths[skill.full_name], skill) for skill, listed in served if listed)

    def _is_taken(self, path: str) -> bool:
        parts = _key(path).split("/")
        return any("/".join(parts[:length]) in self._by_key for length in range(1, len(parts) + 1))

    def uri(self, skill: Skill, path: str = MAIN) -> str:
        tail = "/".join(map(_segment, path.split("/")))
        return f"{SCHEME}{self._paths[skill.full_name]}/{tail}" if path else f"{SCHEME}{self._paths[skill.full_name]}"

    def find(self, uri: str) -> Found:
        """Raises NotFoundError."""
        if uri.lower().startswith(SCHEME) and len(uri) < 4_096:
            parts = uri[len(SCHEME) :].split("/")
            for length in range(len(parts), 0, -1):
                skill = self._by_key.get(_key("/".join(parts[:length])))
                if skill is not None:
                    return Found(skill, "/".join(unquote(part) for part in parts[length:]))
        raise NotFoundError(f"no skill is served at {uri[:300]}", "list the resources to see those there are")

    # Files

    def file(self, skill: Skill, path: str) -> SkillFile:
        """Raises NotFoundError when there is none that is served, InvalidError when the skill is not read any more."""
        main = resolved_file(skill)
        parts = path.split("/")
        if self._reading.decide("Skill", {"skill": skill.full_name}).effect != "allow":
            resolved = ""
        elif path == MAIN:
            resolved = main
        elif skill.flags & FLAT or any(part in ("", ".", "..") or "\0" in part for part in parts):
            resolved = ""
        else:
            resolved = os.path.realpath(os.path.join(os.path.dirname(main), path))
            if not _is_served_place(resolved, os.path.dirname(main)) or any(part in _SKIPPED for part in parts):
                resolved = ""
        found = self._look(path, resolved) if resolved else None
        if found is None:
            raise NotFoundError(f"the skill {skill.full_name} has no file {path[:300]!r}", "its entry lists its files")
        return found

    def _look(self, path: str, resolved: str) -> SkillFile | None:
        try:
            status = os.lstat(resolved)
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(status.st_mode) or not self._may_read(resolved):
            return None
        return SkillFile(path, resolved, (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))

    def _may_read(self, resolved: str) -> bool:
        return self._reading.decide("Read", {"file_path": resolved}).effect == "allow"

    def files(self, skill: Skill) -> list[SkillFile]:
        """All that are served, sorted, the main one first. Raises InvalidError when there are too many."""
        found = [self.file(skill, MAIN)]
        for file in self._walk(skill):
            found.append(file)
            if len(found) > MOST_FILES or sum(one.size for one in found) > LARGEST:
                limit = f"{MOST_FILES} files or {LARGEST:,} bytes"
                raise InvalidError(f"the skill {skill.full_name} has more than {limit}", "make it smaller")
        return [found[0], *sorted(found[1:])]

    def _walk(self, skill: Skill) -> Iterator[SkillFile]:
        main = resolved_file(skill)
        top = os.path.dirname(main)
        pending = [""] if not skill.flags & FLAT else []
        looked_at = 0
        while pending:
            folder = pending.pop()
            try:
                names = sorted(os.listdir(os.path.join(top, folder)))
            except OSError:
                continue
            looked_at += len(names)
            if looked_at > 20 * MOST_FILES:
                raise InvalidError(f"the skill {skill.full_name} has too many files", "make it smaller")
            for name in names:
                path = f"{folder}/{name}" if folder else name
                place = os.path.join(top, path)
                if os.path.isdir(place) and not os.path.islink(place):
                    if name not in _SKIPPED and path.count("/") < DEEPEST:
                        pending.append(path)
                    continue
                resolved = os.path.realpath(place)
                if path == MAIN or resolved == main or not _is_served_place(resolved, top) or not _is_text(path):
                    continue
                file = self._look(path, resolved)
                if file is not None:
                    yield file

    def children(self, skill: Skill, folder: str) -> list[tuple[str, bool]]:
        """What lies directly in a folder of a skill: names, and whether each is a folder. Raises NotFoundError."""
        main = resolved_file(skill)
        top = os.path.dirname(main)
        parts = folder.split("/") if folder else []
        place = os.path.join(top, folder)
        wrong = any(part in ("", ".", "..") or part in _SKIPPED or "\0" in part for part in parts)
        if not folder and skill.flags & FLAT:
            return [(MAIN, False)]
        if wrong or skill.flags & FLAT or not os.path.isdir(place) or os.path.realpath(place) != place.rstrip("/"):
            raise NotFoundError(f"{self.uri(skill, folder)} is not a directory resource", "")
        found: set[tuple[str, bool]] = set()
        for name in os.listdir(place):
            path = f"{folder}/{name}" if folder else name
            if os.path.isdir(os.path.join(top, path)):
                if name not in _SKIPPED and not os.path.islink(os.path.join(top, path)):
                    found.add((name, True))
            elif os.path.realpath(os.path.join(top, path)) == main:
                found.add((MAIN, False))
            elif _is_text(path):
                with contextlib.suppress(NotFoundError):
                    found.add((self.file(skill, path).path.rpartition("/")[2], False))
        return sorted(found)

    def read(self, file: SkillFile) -> bytes:
        """Raises InvalidError."""
        if file.size > LARGEST:
            raise InvalidError(f"{file.path} is longer than {LARGEST:,} bytes", "read it from the skill's directory")
        descriptor = open_to_read(file.resolved, self._ground.workspace, expected_resolved=file.resolved)
        with open(descriptor, "rb") as opened:
            data = opened.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise InvalidError(f"{file.path} is longer than {LARGEST:,} bytes", "read it from the skill's directory")
        return data

    def digest(self, file: SkillFile) -> tuple[str, int]:
        """Of its bytes, and how many they are; reckoned once for each state of the file."""
        key = file.resolved, file.stamp
        known = self.digests.get(key)
        if known is None:
            data = self.read(file)
            known = self.digests[key] = digest_of(data), len(data)
            if len(self.digests) > MOST_DIGESTS:
                self.digests.pop(next(iter(self.digests)))
        return known


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _address(skill: Skill) -> str:
    return "/".join(_segment(part) for part in (skill.root.plugin or skill.team, skill.name) if part)


def _segment(text: str) -> str:
    return quote(text, safe="", errors="surrogateescape")


def _key(path: str) -> str:
    """Some clients write the first part of an address in lower case."""
    return "/".join(unquote(part).casefold() for part in path.split("/"))


def _is_served_place(resolved: str, top: str) -> bool:
    return is_inside(resolved, top) and resolved != top


def _is_text(path: str) -> bool:
    """A name that an address can hold."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
