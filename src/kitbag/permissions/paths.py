"""Resolves a path and collects the facts that permissions need: every tool, reference and redirect uses it.

Nothing here decides; `decisions/decide` does, from these facts. Symbolic links are followed one by one as the kernel
does, and every spelling on the way is checked. `safe_open` opens the resolved path without races.
"""

import errno
import os
import re
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from kitbag.permissions.control_paths import control_reason, file_type_reason
from kitbag.permissions.model import Workspace, is_inside
from kitbag.store.api_keys import KEYS_FILE as KEYS
from kitbag.text.secret_paths import secret_path_reason, special_path_reason
from kitbag.text.unicode_forms import compose

MAX_LINKS: Final = 40
"""Same limit as the Linux kernel."""
_MAX_STEPS = 5000
_MAX_PATH_BYTES = 4096
_MAX_PART_BYTES = 255
_CHECKOUT = re.compile("/worktrees/[^/]+/.")


class PathFacts(msgspec.Struct, frozen=True, kw_only=True):
    requested: str
    """Absolute, normalized lexically."""
    resolved: str
    """With all existing links followed: what would be opened or created."""
    readable: bool
    """Requested and resolved path are inside the readable roots and not special. True for `/dev/null`."""
    writable: bool
    control_reason: str = ""
    """Why writing there changes what programs do without asking. This and the next two are empty if they don't apply.
    """
    private_reason: str = ""
    """Why it holds secrets."""
    special_reason: str = ""
    """Why it can't be checked or is not a regular file; it is then neither readable nor writable."""
    link_spellings: tuple[str, ...] = ()
    """Intermediate names when a link leads to another link; rules that name one of them match."""

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every name of the path: a deny rule that matches one of them denies it."""
        return tuple(dict.fromkeys((self.requested, *self.link_spellings, self.resolved)))


class ResolvedPath(NamedTuple):
    resolved: str
    link_spellings: tuple[str, ...] = ()
    problem: str = ""


def examine_path(path: str, workspace: Workspace, directory: str = "") -> PathFacts:
    """Never raises. A relative path starts from `directory`, by default the workspace root."""
    absolute, problem = _absolute(path, workspace, directory)
    problem = problem or _name_problem(absolute)
    if not problem:
        # Use one spelling per name: combine bytes that were escaped one by one into characters.
        absolute = os.fsdecode(os.fsencode(absolute))
    requested = _normalize(absolute)
    resolution = ResolvedPath(requested) if problem else resolve_links(absolute)
    resolved = resolution.resolved
    spellings = tuple(dict.fromkeys((requested, *resolution.link_spellings, resolved)))
    special_problem = problem or resolution.problem
    special_problem = special_problem or next((reason for one in spellings if (reason := special_path_reason(one))), "")
    special_problem = special_problem or _file_type_problem(resolved)
    control = next((reason for one in spellings if (reason := control_reason(one))), "")
    return PathFacts(
        requested=requested,
        resolved=resolved,
        readable=not special_problem and _is_accessible(requested, resolved, workspace.read_roots),
        writable=not special_problem and _is_accessible(requested, resolved, workspace.write_roots),
        control_reason=control or _kitbag_control_reason(spellings, workspace),
        private_reason=next((reason for one in spellings if (reason := secret_path_reason(one))), "")
        or _kitbag_private_reason(spellings, workspace),
        special_reason=special_problem,
        link_spellings=resolution.link_spellings,
    )


def resolve_links(path: str) -> ResolvedPath:
    """Resolve an absolute path. As in the kernel, `link/..` is the parent of the link's target.

    Components that don't exist are kept as written, so a dangling link resolves to what would be created.
    """
    pending = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    at, links, steps = "", 0, 0
    link_spellings: list[str] = []
    while pending:
        part = pending.pop()
        steps += 1
        if steps > _MAX_STEPS:
            return ResolvedPath(
                _unresolved(at, part, pending), tuple(link_spellings), "symbolic links too long to resolve"
            )
        if part == "..":
            at = at.rpartition("/")[0]
            continue
        here = f"{at}/{part}"
        try:
            target = os.readlink(here)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
                problem = f"cannot be accessed: {error.strerror}"
                return ResolvedPath(_unresolved(at, part, pending), tuple(link_spellings), problem)
            at = here
            continue
        links += 1
        if links > MAX_LINKS:
            return ResolvedPath(
                _unresolved(at, part, pending), tuple(link_spellings), "too many levels of symbolic links"
            )
        at = "" if target.startswith("/") else at
        pending.extend(part for part in reversed(target.split("/")) if part not in ("", "."))
        link_spellings.append(_normalize(f"{at}/{'/'.join(reversed(pending))}"))
    resolved = at or "/"
    return ResolvedPath(resolved, tuple(one for one in link_spellings if one != resolved))


def _unresolved(at: str, part: str, pending: list[str]) -> str:
    return _normalize("/".join((at, part, *reversed(pending))))


def _normalize(path: str) -> str:
    return "/" + os.path.normpath(path).lstrip("/")


def _absolute(path: str, workspace: Workspace, directory: str) -> tuple[str, str]:
    """The absolute path with its `..` untouched, and what is wrong with it."""
    if not path:
        return workspace.root, "the path is empty"
    if path.startswith("~"):
        name, _, below = path[1:].partition("/")
        home = workspace.home if not name else _home_of(name)
        if not home:
            return f"{workspace.root}/{path}", f"no user named `{name}` (for a file of that name, write `./~{name}`)"
        return f"{home}/{below}", ""
    # An absolute component discards everything before it.
    return os.path.join("/", workspace.root, directory, path), ""


def _home_of(name: str) -> str:
    import pwd

    try:
        return pwd.getpwnam(name).pw_dir
    except (KeyError, ValueError, OSError):
        return ""


def _name_problem(path: str) -> str:
    if "\0" in path:
        return "path contains a NUL character"
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        return "path contains an unpaired surrogate"
    if len(encoded) >= _MAX_PATH_BYTES or any(len(part) > _MAX_PART_BYTES for part in encoded.split(b"/")):
        return "path is too long"
    return ""


def _file_type_problem(resolved: str) -> str:
    if resolved == "/dev/null":
        return ""
    try:
        return file_type_reason(os.lstat(resolved).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:
        return f"cannot be accessed: {getattr(error, 'strerror', '') or error}"


def _is_accessible(requested: str, resolved: str, roots: tuple[str, ...]) -> bool:
    if resolved == "/dev/null":
        return requested == resolved or _is_inside_any(requested, roots)
    if not _is_inside_any(resolved, roots):
        return False
    return _is_inside_any(requested, roots) or _is_alias(requested, roots)


def _is_inside_any(path: str, roots: tuple[str, ...]) -> bool:
    return any(is_inside(path, root) for root in roots)


def _is_alias(requested: str, roots: tuple[str, ...]) -> bool:
    """A root reached by another name: `/link/app/x`, where `/link` leads to the directory that holds the root."""
    while requested != "/":
        requested = os.path.dirname(requested)
        if resolve_links(requested).resolved in roots:
            return True
    return False


def _kitbag_control_reason(spellings: tuple[str, ...], workspace: Workspace) -> str:
    """Control paths that depend on the user's own directories."""
    spellings = tuple(map(compose, spellings))
    for place in _spellings_of(workspace.kitbag_home):
        for one in spellings:
            # Checkouts in its `worktrees` hold ordinary files.
            if is_inside(one, place) and not _CHECKOUT.match(one, len(place)):
                return "Kitbag's own settings, permission rules and approvals"
    if any(is_inside(one, place) for place in _spellings_of(f"{workspace.home}/bin") for one in spellings):
        return "`~/bin` may be on your PATH"
    return ""


def _kitbag_private_reason(spellings: tuple[str, ...], workspace: Workspace) -> str:
    """The API keys that `setup` stores, wherever the Kitbag home is."""
    places = {f"{place}/{KEYS}" for place in _spellings_of(workspace.kitbag_home)}
    return "contains your API keys" if not places.isdisjoint(map(compose, spellings)) else ""


@lru_cache(maxsize=64)
def _spellings_of(place: str) -> tuple[str, str]:
    """In NFC. Cached: the user's own directories don't move while Kitbag runs."""
    return compose(place), compose(resolve_links(place).resolved)
