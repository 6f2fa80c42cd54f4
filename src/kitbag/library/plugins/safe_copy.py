"""Copies untrusted files into a new directory: checks every path, counts every byte.

Used by archives (zip and tar entries) and store (directories). A refusal is an InvalidError with the entry
and the reason. Never executes anything. A link inside the package becomes a copy of its target; one that leads out
is refused. Of two texts whose names differ only in case, the second is skipped.
"""

import os
import re
import stat
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterator

from kitbag.errors import InvalidError, KitbagError
from kitbag.text.hidden_characters import escape_for_terminal, find_hidden, format_code_points
from kitbag.text.source_files import PathBoundary, SourceError, open_regular_file, with_trailing_slash

MAX_ENTRIES = 10_000
MAX_TOTAL = 200_000_000
MAX_FILE = 50_000_000
MAX_DEPTH = 20
MAX_NAME = 400
DIRECTORY_MODE, FILE_MODE = 0o755, 0o644
SKIPPED_NAMES = frozenset((".git", "node_modules", "__pycache__"))
PROSE_SUFFIXES = (".md", ".markdown", ".mdx", ".txt", ".rst")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".ico", ".pdf", ".ttf", ".otf", ".woff", ".woff2")
INERT_NAMES = frozenset(("license", "licence", "notice", "authors", "readme", "changelog", "copying", ".gitignore"))
_COMPONENT_FOLDERS = frozenset(
    ("skills", "agents", "commands", "prompts", "personas", "hooks", "bin", "monitors", "scripts", "workflows")
)
_MAX_PART = 255
_MAX_LINKS = 40
_CHUNK = 1 << 18
_DRIVE = re.compile(r"[A-Za-z]:")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class PackageWriter:
    """Writes below `root`, a private directory of the caller; if `root` is empty, only checks and counts."""

    def __init__(self, root: str, origin: str) -> None:
        self.root = root
        self.origin = escape_for_terminal(origin)
        self.total = 0
        self.entries = 0
        self._spelling: dict[str, str] = {}
        """Each path and its parents, keyed as a case-insensitive file system compares them."""
        self._directory: dict[str, bool] = {}
        self._named: set[str] = set()
        self._links: dict[str, str] = {}
        """Targets of links, both relative to the package."""
        self.skipped: list[tuple[str, str]] = []
        """Files and links without a copy, and why."""

    def refusal(self, name: str, reason: str) -> InvalidError:
        """The error to raise, with the name shortened and safe to print."""
        shown = escape_for_terminal(name if len(name) <= MAX_NAME else name[:80] + "…").replace("\n", "\\n")
        return InvalidError(
            f"{self.origin}: rejected because of {shown!r}: {reason}",
            "nothing was written; ask the author for a package without this entry",
        )

    def count_entry(self, name: str) -> None:
        self.entries += 1
        if self.entries > MAX_ENTRIES:
            raise self.refusal(name, f"more than {MAX_ENTRIES:,} entries")

    def check_path(self, name: str, is_directory: bool) -> str | None:
        """The checked relative path; empty for the root itself, None if it must be skipped. Call once per entry."""
        relative = name.removesuffix("/") if is_directory else name
        if relative == "." and is_directory:
            return ""
        while relative.startswith("./"):
            relative = relative[2:]
        reason = path_problem(relative)
        if reason:
            raise self.refusal(name, reason)
        return relative if self._reserve(name, relative, is_directory) else None

    def _reserve(self, name: str, relative: str, is_directory: bool) -> bool:
        """False for a text whose name another file has on a case-insensitive file system. Components are refused there:
        which of two was installed would depend on the machine. Directories of texts may share a name."""
        if relative in self._named:
            raise self.refusal(name, "duplicate entry")
        self._named.add(relative)
        end = 0
        while end < len(relative):
            end = relative.find("/", end + 1)
            end = len(relative) if end < 0 else end
            path = relative[:end]
            must_be_directory = is_directory or path != relative
            existing = self._spelling.setdefault(_fold(path), path)
            if existing != path and existing in self._links:  # the link would be a copy of something anyway
                del self._links[existing]
                self.skipped.append((existing, f"a symbolic link named like {path} except for case"))
                self._spelling[_fold(path)] = path
            elif existing != path:
                if self._directory[existing] != must_be_directory or not _is_text(path, must_be_directory):
                    raise self.refusal(name, f"conflicts with {existing!r} on case-insensitive file systems")
                if not must_be_directory:
                    self.skipped.append((path, f"named like {existing} except for case"))
                    return False
            if self._directory.setdefault(path, must_be_directory) != must_be_directory:
                raise self.refusal(name, f"{path!r} is both a file and a directory")
        return True

    def make_directory(self, relative: str) -> None:
        """Also creates its parents."""
        if not self.root:
            return
        path = self.root
        try:
            for part in relative.split("/") if relative else ():
                path = os.path.join(path, part)
                if not os.path.lexists(path):
                    os.mkdir(path)
                    os.chmod(path, DIRECTORY_MODE)
        except OSError as error:
            raise write_error(path, error) from error

    def add_link(self, name: str, target: str, kind: str = "symbolic link") -> None:
        """Adds a link, resolved by `resolve_links`. The target of a hard link is not relative to the link."""
        existing = self._spelling.get(_fold(name.removeprefix("./")), "")
        if existing not in ("", name.removeprefix("./")) and not path_problem(name.removeprefix("./")):
            self.skipped.append((name, f"a {kind} named like {existing} except for case"))
            return
        relative = self.check_path(name, False)
        if relative is None or is_omitted(relative):
            return
        base = "" if kind == "hard link" else os.path.dirname(relative)
        path = os.path.normpath(os.path.join(base, target)) if target else "."
        if leads_out(path) or "\0" in target or "\\" in target:
            raise self.refusal(name, f"{kind} to a path outside the package")
        self._links[relative] = path

    def resolve_links(self) -> None:
        """Copies the targets of the links, once everything else is written."""
        if not self.root or not self._links:
            return
        files = {
            os.path.relpath(os.path.join(folder, name), self.root)
            for folder, _, names in os.walk(self.root)
            for name in names
        }
        entries = sorted(files.union(self._links))
        for relative in self._links:
            target = self._follow_link(relative)
            if reason := self._skip_reason(relative, target, files):
                self.skipped.append((relative, reason))
            elif target in files:
                self._copy_within(target, relative)
            else:
                self.make_directory(relative)
                start, end = (bisect_left(entries, f"{target}{after}") for after in ("/", "0"))  # `0` follows `/`
                for path in entries[start:end]:
                    self._copy_linked(path, relative + path[len(target) :], files)

    def _copy_linked(self, path: str, copied: str, files: set[str]) -> None:
        """Copies a file below a linked directory. A link to a file is copied too; one to a directory could lead to the
        next without end."""
        if problem := path_problem(copied):
            raise self.refusal(copied, problem)
        self.count_entry(copied)
        target = self._follow_link(path) if path in self._links else path
        if target in files:
            self._copy_within(target, copied)
        else:
            reason = self._skip_reason(path, target, files) or "a symbolic link to a directory, inside another link"
            self.skipped.append((copied, reason))

    def _skip_reason(self, link: str, target: str, files: set[str]) -> str:
        """Why a link inside the package has no copy; empty if it may have one."""
        if is_omitted(target):
            return "a symbolic link into a directory that is not installed"
        if link == target:
            return "a symbolic link that leads back to itself"
        if target == "." or f"{link}/".startswith(f"{target}/"):
            return "a symbolic link to a directory that contains it"
        return "" if target in files or self._directory.get(target) else "a link without a target"

    def _follow_link(self, relative: str) -> str:
        """The path that a link leads to, through other links; the link itself for a loop."""
        target = self._links[relative]
        for _ in range(_MAX_LINKS):
            parts = target.split("/")
            prefixes = ("/".join(parts[:end]) for end in range(1, len(parts) + 1))
            link = next((prefix for prefix in prefixes if prefix in self._links), None)
            if link is None:
                return target
            target = os.path.normpath(self._links[link] + target[len(link) :])
            if leads_out(target):
                raise self.refusal(relative, "symbolic link to a path outside the package")
        return relative

    def _copy_within(self, source: str, relative: str) -> None:
        try:
            descriptor = os.open(os.path.join(self.root, source), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise write_error(relative, error) from error
        try:
            executable = bool(os.fstat(descriptor).st_mode & stat.S_IXUSR)
            self.write_file(relative, executable, lambda size: os.read(descriptor, size))
        finally:
            os.close(descriptor)

    def write_file(self, relative: str, executable: bool, read: Callable[[int], bytes]) -> None:
        """`read` returns up to the given number of bytes, none at the end; counts the bytes actually read."""
        if not self.root:
            for _ in self._count_bytes(relative, read):
                pass
            return
        self.make_directory(os.path.dirname(relative))
        path = os.path.join(self.root, relative)
        try:
            descriptor = os.open(path, _CREATE, 0o600)
        except OSError as error:
            raise write_error(path, error) from error
        try:
            for chunk in self._count_bytes(relative, read):
                _write_all(descriptor, chunk, path)
            os.fchmod(descriptor, FILE_MODE | (stat.S_IXUSR if executable else 0))
        finally:
            os.close(descriptor)

    def _count_bytes(self, relative: str, read: Callable[[int], bytes]) -> Iterator[bytes]:
        size = 0
        while chunk := read(_CHUNK):
            size += len(chunk)
            self.total += len(chunk)
            if size > MAX_FILE:
                raise self.refusal(relative, f"larger than {MAX_FILE // 1_000_000} MB")
            if self.total > MAX_TOTAL:
                raise self.refusal(relative, f"more than {MAX_TOTAL // 1_000_000} MB in total")
            yield chunk


def _fold(path: str) -> str:
    """The path as a case-insensitive file system compares it."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _is_text(path: str, is_directory: bool) -> bool:
    """Whether a file is prose or an image outside the folders of components, or a directory may have such files."""
    *folders, name = path.casefold().split("/")
    if not _COMPONENT_FOLDERS.isdisjoint((*folders, name)) or name == "skill.md":
        return False
    return is_directory or name.endswith((*PROSE_SUFFIXES, *IMAGE_SUFFIXES)) or name in INERT_NAMES


def leads_out(path: str) -> bool:
    """Whether a normalized relative path leads out of the package."""
    return path.startswith("/") or path.split("/")[0] == ".."


def is_omitted(path: str) -> bool:
    """Whether a relative path is in a folder that is never copied."""
    return any(part.casefold() in SKIPPED_NAMES for part in path.split("/"))


def path_problem(relative: str) -> str:
    """Why this relative path is refused; empty if it is accepted."""
    if not relative:
        return "empty name"
    if relative.startswith("/"):
        return "absolute path"
    if "\\" in relative or _DRIVE.match(relative):
        return "backslash or drive letter in the path"
    if _CONTROL.search(relative):
        return "control characters in the name"
    if len(relative) > MAX_NAME:
        return f"path longer than {MAX_NAME} characters"
    hidden = find_hidden(relative)
    if hidden:
        return f"hidden or invalid characters in the name: {format_code_points(hidden)}"
    parts = relative.split("/")
    if ".." in parts:
        return "path outside the package (..)"
    if "" in parts or "." in parts:
        return "empty or `.` component in the path"
    if len(parts) > MAX_DEPTH:
        return f"more than {MAX_DEPTH} directories deep"
    if any(len(part.encode()) > _MAX_PART for part in parts):
        return f"name longer than {_MAX_PART} bytes"
    return ""


def mode_problem(mode: int) -> str:
    """Why an entry with this mode is refused; a mode without a file type is a plain file."""
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFLNK:
        return "symbolic link"
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "device, pipe or socket"
    if mode & (stat.S_ISUID | stat.S_ISGID):
        return "setuid or setgid bit"
    return ""


def write_error(path: str, error: OSError) -> KitbagError:
    reason = (error.strerror or str(error)).lower()
    return KitbagError(f"cannot write {path}: {reason}", "check free disk space and permissions")


def _write_all(descriptor: int, chunk: bytes, path: str) -> None:
    view = memoryview(chunk)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as error:
        raise write_error(path, error) from error


def copy_tree(source: str, writer: PackageWriter, boundary: str = "", prefix: str = "") -> None:
    """Copies a directory or a file to `prefix`. A link to something inside `boundary`, by default the directory itself,
    becomes a copy; a link out of it is refused."""
    top = os.path.realpath(source)
    inside = os.path.realpath(boundary) if boundary else top
    place = os.path.relpath(top, inside)
    if leads_out(place) or is_omitted(place):
        raise writer.refusal(prefix, "symbolic link to a path outside the package")
    if prefix and not os.path.isdir(top):
        _copy_file(top, prefix, inside, writer)
        return
    pending = [(prefix, top, False)]
    while pending:
        folder, path, is_linked = pending.pop()
        try:
            with os.scandir(path) as listing:
                # One more than the limit is enough to detect an excess.
                entries = [entry for entry, _ in zip(listing, range(MAX_ENTRIES + 1), strict=False)]
        except OSError as error:
            raise writer.refusal(folder or ".", f"cannot list directory: {error.strerror}") from error
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.casefold() in SKIPPED_NAMES:
                continue
            name = f"{folder}/{entry.name}" if folder else entry.name
            writer.count_entry(name)
            target = _link_target(entry, name, inside, writer) if entry.is_symlink() else entry.path
            if entry.is_symlink() and is_omitted(os.path.relpath(target, inside)):
                writer.skipped.append((name, "a symbolic link into a directory that is not installed"))
            elif not os.path.isdir(target):
                if not os.path.islink(target) and os.path.lexists(target):
                    _copy_file(target, name, inside, writer)
                else:
                    writer.skipped.append((name, "a link without a target"))
            elif entry.is_symlink() and (is_linked or f"{entry.path}/".startswith(f"{target}/")):
                writer.skipped.append((name, "a symbolic link to a directory that contains it or another link"))
            elif (relative := writer.check_path(name, True)) is not None:
                writer.make_directory(relative)
                pending.append((name, target, is_linked or entry.is_symlink()))


def _link_target(entry: "os.DirEntry[str]", name: str, inside: str, writer: PackageWriter) -> str:
    target = os.path.realpath(entry.path)
    if leads_out(os.path.relpath(target, inside)):
        raise writer.refusal(name, "symbolic link to a path outside the package")
    return target


def _copy_file(path: str, name: str, inside: str, intake: PackageWriter) -> None:
    relative = intake.check_path(name, False)
    if relative is None:
        return
    try:
        kind = os.lstat(path).st_mode
        if not stat.S_ISREG(kind):
            raise intake.refusal(name, mode_problem(kind) or "not a regular file")
        # Checked again on the open file: a link may have been put in place meanwhile.
        descriptor, status = open_regular_file(path, PathBoundary((with_trailing_slash(inside),)))
    except OSError as error:
        raise intake.refusal(name, f"cannot read file: {error.strerror}") from error
    except SourceError as error:
        raise intake.refusal(name, error.problem) from error
    try:
        mode = status.st_mode
        if reason := mode_problem(mode):
            raise intake.refusal(name, reason)
        intake.write_file(relative, bool(mode & stat.S_IXUSR), lambda size: os.read(descriptor, size))
    finally:
        os.close(descriptor)
