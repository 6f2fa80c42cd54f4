"""Where a path leads, and what that place is: the one function that every tool, reference and redirect asks.

Nothing here decides: `decide` does, from the facts. Links are followed one by one as the kernel follows them, and
every spelling on the way is looked at. Opening what was judged, without races, is `beneath`'s.
"""

import errno
import os
import re
from functools import lru_cache
from typing import Final, NamedTuple

from kitbag.permissions.control_paths import control_reason, kind_reason
from kitbag.permissions.model import Workspace, is_inside
from kitbag.store.api_keys import FILE as KEYS
from kitbag.text.secret_paths import private_reason, special_reason

MOST_LINKS: Final = 40
"""As in the kernel."""
_MOST_STEPS = 5000
_LONGEST_PATH = 4096
_LONGEST_PART = 255
_CHECKOUT = re.compile("/worktrees/[^/]+/.")


class Facts(NamedTuple):
    requested: str
    """Absolute, and normalised by its words alone."""
    resolved: str
    """With all links followed, as far as they exist: what would be opened or created."""
    readable: bool
    """Requested and resolved are inside the roots that may be read, and nothing is special. So is `/dev/null`."""
    writable: bool
    control: str = ""
    """Why writing there changes what programs do unasked. For each of these: empty when it does not."""
    private: str = ""
    """Why it holds secrets."""
    special: str = ""
    """Why it can't be judged or is no file: then it is neither readable nor writable."""
    between: tuple[str, ...] = ()
    """What it is called on the way, when a link leads to a link: a rule that names one of them means it."""

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every name it has: a rule that denies denies it if it matches one of them."""
        return tuple(dict.fromkeys((self.requested, *self.between, self.resolved)))


class Followed(NamedTuple):
    resolved: str
    between: tuple[str, ...] = ()
    problem: str = ""


def examine(path: str, workspace: Workspace, directory: str = "") -> Facts:
    """Never raises. `directory` is where a relative path starts: the workspace's root when it is not given."""
    written, problem = _absolute(path, workspace, directory)
    problem = problem or _unusable(written)
    if not problem:
        # One spelling for one name: bytes that were escaped one by one are the characters they make up.
        written = os.fsdecode(os.fsencode(written))
    requested = _normal(written)
    followed = Followed(requested) if problem else follow(written)
    resolved = followed.resolved
    spellings = tuple(dict.fromkeys((requested, *followed.between, resolved)))
    special = problem or followed.problem
    special = special or next((reason for one in spellings if (reason := special_reason(one))), "")
    special = special or _kind(resolved)
    control = next((reason for one in spellings if (reason := control_reason(one))), "")
    return Facts(
        requested,
        resolved,
        readable=not special and _is_open(requested, resolved, workspace.read_roots),
        writable=not special and _is_open(requested, resolved, workspace.write_roots),
        control=control or _own(spellings, workspace),
        private=next((reason for one in spellings if (reason := private_reason(one))), "")
        or _own_secret(spellings, workspace),
        special=special,
        between=followed.between,
    )


def follow(path: str) -> Followed:
    """Where an absolute path leads. `link/..` is the parent of the link's target, as it is for the kernel.

    What does not exist is taken by its words, so a link to nothing leads to what would be created.
    """
    pending = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    at, links, steps = "", 0, 0
    between: list[str] = []
    while pending:
        part = pending.pop()
        steps += 1
        if steps > _MOST_STEPS:
            return Followed(_rest(at, part, pending), tuple(between), "its links are too long to follow")
        if part == "..":
            at = at.rpartition("/")[0]
            continue
        here = f"{at}/{part}"
        try:
            target = os.readlink(here)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
                problem = f"it can't be looked at: {error.strerror}"
                return Followed(_rest(at, part, pending), tuple(between), problem)
            at = here
            continue
        links += 1
        if links > MOST_LINKS:
            return Followed(_rest(at, part, pending), tuple(between), "its links lead in a circle")
        at = "" if target.startswith("/") else at
        pending.extend(part for part in reversed(target.split("/")) if part not in ("", "."))
        between.append(_normal(f"{at}/{'/'.join(reversed(pending))}"))
    resolved = at or "/"
    return Followed(resolved, tuple(one for one in between if one != resolved))


def _rest(at: str, part: str, pending: list[str]) -> str:
    return _normal("/".join((at, part, *reversed(pending))))


def _normal(path: str) -> str:
    return "/" + os.path.normpath(path).lstrip("/")


def _absolute(path: str, workspace: Workspace, directory: str) -> tuple[str, str]:
    """The path from `/` on, its `..` untouched, and what is wrong with it."""
    if not path:
        return workspace.root, "the path is empty"
    if path.startswith("~"):
        name, _, below = path[1:].partition("/")
        home = workspace.home if not name else _home_of(name)
        if not home:
            return f"{workspace.root}/{path}", f"`~{name}` is nobody's home here (a file of that name is `./~{name}`)"
        return f"{home}/{below}", ""
    # An absolute part throws away what stands before it.
    return os.path.join("/", workspace.root, directory, path), ""


def _home_of(name: str) -> str:
    import pwd

    try:
        return pwd.getpwnam(name).pw_dir
    except (KeyError, ValueError, OSError):
        return ""


def _unusable(path: str) -> str:
    if "\0" in path:
        return "it holds a NUL character"
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        return "it holds half a character, which no name can"
    if len(encoded) >= _LONGEST_PATH or any(len(part) > _LONGEST_PART for part in encoded.split(b"/")):
        return "it is too long for a path"
    return ""


def _kind(resolved: str) -> str:
    if resolved == "/dev/null":
        return ""
    try:
        return kind_reason(os.lstat(resolved).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:
        return f"it can't be looked at: {getattr(error, 'strerror', '') or error}"


def _is_open(requested: str, resolved: str, roots: tuple[str, ...]) -> bool:
    if resolved == "/dev/null":
        return requested == resolved or _is_inside_one(requested, roots)
    if not _is_inside_one(resolved, roots):
        return False
    return _is_inside_one(requested, roots) or _is_alias(requested, roots)


def _is_inside_one(path: str, roots: tuple[str, ...]) -> bool:
    return any(is_inside(path, root) for root in roots)


def _is_alias(requested: str, roots: tuple[str, ...]) -> bool:
    """A root under another name: `/link/app/x`, where `/link` leads to the folder that holds the root."""
    while requested != "/":
        requested = os.path.dirname(requested)
        if follow(requested).resolved in roots:
            return True
    return False


def _own(spellings: tuple[str, ...], workspace: Workspace) -> str:
    """What only this user's places say."""
    for place in _names_of(workspace.kitbag_home):
        for one in spellings:
            # Checkouts in its `worktrees` hold ordinary files.
            if is_inside(one, place) and not _CHECKOUT.match(one, len(place)):
                return "it belongs to Kitbag itself: settings, rules and what was agreed to"
    if any(is_inside(one, place) for place in _names_of(f"{workspace.home}/bin") for one in spellings):
        return "programs there are run by their names"
    return ""


def _own_secret(spellings: tuple[str, ...], workspace: Workspace) -> str:
    """The keys that setup keeps, wherever the Kitbag home is."""
    places = {f"{place}/{KEYS}" for place in _names_of(workspace.kitbag_home)}
    return "your keys for models are kept there" if not places.isdisjoint(spellings) else ""


@lru_cache(maxsize=64)
def _names_of(place: str) -> tuple[str, str]:
    """Remembered: where the user's own folders are does not change while we run."""
    return place, follow(place).resolved
