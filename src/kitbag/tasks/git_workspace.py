"""Workspaces by git URL and commit, for machines that lack a task's directory: named when a task is created, and
checked out in a worktree of a clone where it runs; its changes are a patch.

Used by the board, the worker and runner. The repository may be hostile (see git_commands); URLs hold no credentials.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit, urlunsplit

import msgspec

from kitbag.errors import InvalidError
from kitbag.store.private_files import hold_lock
from kitbag.tasks.git_commands import fetch, git, git_bytes
from kitbag.tasks.task_patches import patch_hash
from kitbag.tasks.worktree import Worktree, worktree_path

GIT_KEY: Final = "git"
"""The option of a request that names its repository."""
WorkspaceMode = Literal["auto", "path", "git"]
MAX_UNCOMMITTED_BYTES: Final = 1_000_000
MAX_PATCH_BYTES: Final = 20_000_000
_IDENTITY: Final = ("-c", "user.name=Kitbag", "-c", "user.email=kitbag@localhost")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_SCP_LIKE: Final = re.compile(r"(?:[\w.-]+@)?[\w.-]+:(?!/?/)[^\s\\]+")
_CLONE_LOCK_SECONDS: Final = 1_800.0


class GitWorkspace(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    commit: str
    folder: str = ""
    """The task's directory inside the repository."""
    uncommitted: str = ""
    """The hash of the patch with uncommitted changes."""
    always: bool = False
    """Also on a machine that has the directory."""

    def to_record(self) -> dict[str, Any]:
        return msgspec.to_builtins(self)


def parse_git_workspace(options: Mapping[str, Any]) -> GitWorkspace | None:
    """Raises InvalidError for what no Kitbag wrote."""
    if (stored := options.get(GIT_KEY)) is None:
        return None
    try:
        workspace = msgspec.convert(stored, GitWorkspace)
    except msgspec.ValidationError as error:
        raise InvalidError(f"the task's repository can't be read: {error}", "start a new task") from error
    folder = os.path.normpath(workspace.folder or ".")
    if not _COMMIT.fullmatch(workspace.commit) or os.path.isabs(folder) or folder.startswith(".."):
        raise InvalidError("the task's repository has an invalid commit or directory", "start a new task")
    return workspace


# Naming a workspace, where a task is created


def describe_git_workspace(directory: str, mode: WorkspaceMode) -> tuple[GitWorkspace, bytes] | None:
    """The repository and the patch with uncommitted changes. None: it has only a path. Raises InvalidError if `mode` is
    git and that can't be."""
    try:
        return _describe(directory, mode)
    except InvalidError:
        if mode == "git":
            raise
        return None


def _describe(directory: str, mode: WorkspaceMode) -> tuple[GitWorkspace, bytes] | None:
    instead = "use `tasks.workspace = path`"
    root = git(directory, "rev-parse", "--show-toplevel", check=False).strip()
    if not root:
        raise InvalidError(f"{directory} is not in a git repository", f"run `git init` and push it, or {instead}")
    url = clean_url(_remote_url(root))
    if not url:
        raise InvalidError(
            f"{root} has no remote repository", f"add one with `git remote add origin URL`, or {instead}"
        )
    commit = git(root, "rev-parse", "--verify", "HEAD", check=False).strip()
    if not commit or not git(root, "for-each-ref", "--count=1", "--contains", commit, "refs/remotes").strip():
        raise InvalidError(f"the last commit of {root} is not in {url}", f"run `git push`, or {instead}")
    is_dirty = bool(git(root, "status", "--porcelain", "--untracked-files=all").strip())
    if is_dirty and mode == "auto":
        return None
    patch = _uncommitted_changes(root) if is_dirty else b""
    if len(patch) > MAX_UNCOMMITTED_BYTES:
        size = f"{len(patch) / 1e6:.1f} MB"
        fix = f"commit and push them, or {instead}"
        raise InvalidError(f"the uncommitted changes in {root} are too large to send ({size}, at most 1 MB)", fix)
    folder = os.path.relpath(os.path.realpath(directory), os.path.realpath(root))
    return GitWorkspace(
        url=url,
        commit=commit,
        folder="" if folder == "." else folder,
        uncommitted=patch_hash(patch) if patch else "",
        always=mode == "git",
    ), patch


def _remote_url(root: str) -> str:
    names = git(root, "remote").split()
    name = "origin" if "origin" in names else next(iter(names), "")
    return git(root, "remote", "get-url", name, check=False).strip() if name else ""


def _uncommitted_changes(root: str) -> bytes:
    """With new files, without ignored ones. The index stays as it is."""
    with tempfile.TemporaryDirectory(prefix="kitbag-") as folder:
        variables = {"GIT_INDEX_FILE": os.path.join(folder, "index")}
        git_bytes(root, "read-tree", "HEAD", variables=variables)
        git_bytes(root, "add", "--all", "--", ".", variables=variables)
        return git_bytes(root, *_DIFF, "--cached", "HEAD", variables=variables)


_DIFF: Final = ("diff", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")


def clean_url(url: str) -> str:
    """Without a password or token. A path is a file URL."""
    if url.startswith("/"):
        return f"file://{url}"
    if "://" not in url:
        return url
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    keeps_user = parts.scheme in ("ssh", "git+ssh") and at
    netloc = f"{user.partition(':')[0]}@{host}" if keeps_user else host
    return urlunsplit((parts.scheme, netloc, parts.path, "", ""))


def check_url(url: str, protocols: Iterable[str]) -> None:
    """Raises InvalidError for a protocol that this machine does not use."""
    allowed = tuple(protocols)
    scheme = url.partition("://")[0] if "://" in url else "ssh" if _SCP_LIKE.fullmatch(url) else ""
    scheme = "ssh" if scheme == "git+ssh" else scheme
    host = urlsplit(url).netloc.rpartition("@")[2] if "://" in url else url.rpartition("@")[2]
    if (
        not scheme
        or url.startswith("-")
        or host.startswith("-")
        or any(ord(character) <= ord(" ") for character in url)
    ):
        raise InvalidError(f"{url[:200]!r} is not a git URL that Kitbag fetches", "use an https or ssh URL")
    if scheme not in allowed:
        listed = ", ".join(allowed) or "none"
        problem = f"this machine does not fetch {url[:200]} ({scheme}; allowed: {listed})"
        raise InvalidError(problem, "add the protocol to `tasks.git_protocols` in the settings of the worker's user")


# Checking it out, where a task runs


class LostCheckoutError(InvalidError):
    """The files of an earlier run are on another machine."""


def checkout(
    kitbag_home: str, task_id: str, workspace: GitWorkspace, protocols: Iterable[str], *patches: bytes
) -> Worktree:
    """The task's worktree, which may exist from an earlier run here. `patches`: the uncommitted changes of the
    submission, if there are any, and what an earlier run on another machine returned. Raises InvalidError."""
    allowed = tuple(protocols)
    check_url(workspace.url, allowed)
    worktree = checkout_of(kitbag_home, task_id, workspace)
    if has_checkout(worktree):
        return worktree
    lock = os.path.join("repositories", f"{os.path.basename(worktree.repository)}.lock")
    with hold_lock(kitbag_home, lock, timeout=_CLONE_LOCK_SECONDS):
        _fetch_commit(worktree.repository, workspace, allowed)
        _add_worktree(worktree, workspace, patches)
    return worktree


def checkout_of(kitbag_home: str, task_id: str, workspace: GitWorkspace) -> Worktree:
    """Where it is, or would be."""
    name = hashlib.sha256(workspace.url.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return Worktree(
        repository=os.path.join(os.path.realpath(kitbag_home), "repositories", name),
        path=worktree_path(kitbag_home, task_id),
        branch=f"kitbag/{task_id}",
        base=f"refs/kitbag/{task_id}",
    )


def has_checkout(worktree: Worktree) -> bool:
    """Whether it is complete: its base is named last."""
    if not os.path.isdir(worktree.path) or not os.path.isdir(worktree.repository):
        return False
    return bool(git(worktree.repository, "rev-parse", "--quiet", "--verify", worktree.base, check=False).strip())


def _fetch_commit(repository: str, workspace: GitWorkspace, protocols: tuple[str, ...]) -> None:
    if not os.path.isdir(os.path.join(repository, ".git")):
        os.makedirs(repository, mode=0o700, exist_ok=True)
        git(repository, "init", "--quiet", "--template=")
    if _has_commit(repository, workspace.commit):
        return
    try:
        fetch(repository, workspace.url, workspace.commit, protocols=protocols)
    except InvalidError:  # some servers send only branches
        try:
            fetch(repository, workspace.url, "+refs/heads/*:refs/fetched/*", protocols=protocols)
        except InvalidError as error:
            reason = (error.problem.partition(": ")[2] or error.problem).rstrip(".")
            fix = "check the URL and this machine's access to it, then retry with `kitbag fleet retry`"
            raise InvalidError(f"cannot fetch {workspace.url}: {reason}", fix) from error
    if not _has_commit(repository, workspace.commit):
        fix = "push it, then retry with `kitbag fleet retry`"
        raise InvalidError(f"{workspace.url} does not have commit {workspace.commit[:12]}", fix)
    git(repository, "update-ref", f"refs/fetched/commits/{workspace.commit}", workspace.commit)


def _has_commit(repository: str, commit: str) -> bool:
    return bool(git(repository, "rev-parse", "--quiet", "--verify", f"{commit}^{{commit}}", check=False).strip())


def _add_worktree(worktree: Worktree, workspace: GitWorkspace, patches: Iterable[bytes]) -> None:
    """What a killed process left of it is removed: no agent worked there yet."""
    repository = worktree.repository
    git(repository, "worktree", "remove", "--force", worktree.path, check=False)
    shutil.rmtree(worktree.path, ignore_errors=True)
    git(repository, "worktree", "prune")
    git(repository, "branch", "--quiet", "-D", worktree.branch, check=False)
    os.makedirs(os.path.dirname(worktree.path), mode=0o700, exist_ok=True)
    git(repository, "worktree", "add", "--quiet", "-b", worktree.branch, worktree.path, workspace.commit)
    submitted, *returned = [*patches] if workspace.uncommitted else [b"", *patches]
    if submitted:
        apply_patch(worktree.path, submitted, "--index")
        git(worktree.path, *_IDENTITY, "commit", "--quiet", "--no-verify", "--message=Uncommitted changes of the task")
    base = git(worktree.path, "rev-parse", "HEAD").strip()
    for patch in returned:
        apply_patch(worktree.path, patch)
    git(repository, "update-ref", worktree.base, base)


def apply_patch(directory: str, patch: bytes, *options: str) -> list[str]:
    """All of it or nothing. Returns the changed files. Raises InvalidError."""
    try:
        git_bytes(directory, "apply", "--binary", "--whitespace=nowarn", *options, "-", stdin=patch)
    except InvalidError as error:
        reason = error.problem.partition(": ")[2]
        raise InvalidError(f"the patch does not apply in {directory}: {reason}", PATCH_FIX) from error
    return patch_files(directory, patch)


def apply_to_repository(directory: str, patch: bytes) -> list[str]:
    """Of this directory. Raises InvalidError."""
    # Not in the directory itself: there, git would ignore changes of files outside of it.
    if top := git_bytes(directory, "rev-parse", "--show-toplevel", check=False).rstrip(b"\n"):
        return apply_patch(os.fsdecode(top), patch)
    raise InvalidError(f"{directory} is not in a git repository", "change to a clone of the task's repository")


PATCH_FIX: Final = "nothing was changed; commit or stash your own changes, and update to the commit the task began with"


def patch_files(directory: str, patch: bytes) -> list[str]:
    found = git_bytes(directory, "apply", "--numstat", "-z", "-", stdin=patch).split(b"\0")
    return [line.split(b"\t", 2)[2].decode(errors="replace") for line in found if line.count(b"\t") >= 2]


def changes_since_base(worktree: Worktree) -> bytes:
    """The committed changes of the task as a patch. Raises InvalidError if it is too large to be sent."""
    patch = git_bytes(worktree.path, *_DIFF, worktree.base, "HEAD")
    if len(patch) > MAX_PATCH_BYTES:
        size = f"{len(patch) / 1e6:.0f} MB"
        fix = f"fetch the branch {worktree.branch} from {worktree.repository} on that machine"
        raise InvalidError(f"the changes are too large to return ({size})", fix)
    return patch
