"""A git worktree for an agent with `isolation: worktree`; its changes come back as a branch.

Used by runner. The repository may be hostile: git runs without its hooks, filters and monitors, fetches nothing, and
does not enter nested repositories. A worktree with changes is never deleted; one without changes is removed.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Final

import msgspec

from kitbag.assembly.parent_context import ParentContext
from kitbag.errors import InvalidError
from kitbag.permissions.model import Workspace
from kitbag.permissions.workspace_identity import WorkspaceIdentity
from kitbag.tasks.git_commands import git

_MAX_NESTED_REPOSITORIES: Final = 1_000


class Worktree(msgspec.Struct, frozen=True, kw_only=True):
    repository: str
    path: str
    branch: str
    base: str = "HEAD"
    """The commit it began with, as the repository names it."""


def worktree_path(kitbag_home: str, task_id: str) -> str:
    return os.path.join(os.path.realpath(kitbag_home), "worktrees", task_id)


def find_unmerged_work(kitbag_home: str, task_id: str) -> str:
    """Why the task's worktree must stay; empty if there is none, or if everything in it is merged."""
    path = worktree_path(kitbag_home, task_id)
    if not os.path.isdir(path):
        return ""
    try:
        repository = _repository_of(path)
        if any(True for _ in _nested_repositories(path)):
            return f"its worktree {path} contains other repositories"
        if git(path, "status", "--porcelain", "--untracked-files=all").strip():
            return f"its worktree {path} has uncommitted changes"
        commit = git(path, "rev-parse", "HEAD").strip()
        if git(repository, "rev-list", "--max-count=1", commit, "--not", "HEAD").strip():
            return f"its worktree {path} has commits that are not merged"
    except InvalidError as error:
        return f"its worktree {path} can't be checked ({error.problem})"
    return ""


def remove_worktree(kitbag_home: str, task_id: str) -> None:
    """Call only if `find_unmerged_work` finds nothing: git refuses as well. Raises InvalidError."""
    path = worktree_path(kitbag_home, task_id)
    repository = _repository_of(path)
    git(repository, "worktree", "remove", path)
    git(repository, "branch", "--quiet", "-d", f"kitbag/{task_id}", check=False)


def _repository_of(path: str) -> str:
    """Raises InvalidError if an agent has replaced the link to our repository."""
    common = os.path.realpath(os.path.join(path, git(path, "rev-parse", "--git-common-dir").strip()))
    repository = os.path.dirname(common)
    _check_worktree_link(Worktree(repository=repository, path=path, branch=""))
    return repository


def create_worktree(repository: str, kitbag_home: str, task_id: str) -> Worktree:
    """The task's worktree, which may exist from an earlier run. Raises InvalidError."""
    worktree = Worktree(
        repository=repository,
        path=worktree_path(kitbag_home, task_id),
        branch=f"kitbag/{task_id}",
    )
    if os.path.isdir(worktree.path):
        return worktree
    if not os.path.exists(os.path.join(repository, ".git")):
        raise InvalidError(
            f"{repository} is not a git repository, so the agent can't have a worktree", "run `git init`"
        )
    os.makedirs(os.path.dirname(worktree.path), mode=0o700, exist_ok=True)
    git(repository, "worktree", "add", "--quiet", "-b", worktree.branch, worktree.path, "HEAD")
    return worktree


def commit_changes(worktree: Worktree, message: str, *, in_use: bool = False) -> str:
    """Commits the changes and returns the branch. Without changes, removes the worktree unless it is in use, and
    returns an empty string. Raises InvalidError."""
    _check_worktree_link(worktree)
    # Git would apply their own configuration and run the programs it names.
    nested = list(_nested_repositories(worktree.path))
    if len(nested) > _MAX_NESTED_REPOSITORIES:
        raise InvalidError(f"too many git repositories in {worktree.path}", "check it manually")
    git(worktree.path, "add", "--all", "--", ".", *(f":(exclude,literal){path}" for path in nested))
    changed = bool(git(worktree.path, "diff-index", "--cached", "--name-only", "HEAD").strip())
    if changed:
        identity = (
            ("-c", "user.name=Kitbag", "-c", "user.email=kitbag@localhost") if not _has_identity(worktree) else ()
        )
        git(
            worktree.path,
            *identity,
            "commit",
            "--quiet",
            "--no-verify",
            f"--message={message or 'Changes by an agent'}",
        )
    base = git(worktree.repository, "rev-parse", worktree.base).strip()
    if changed or nested or in_use or git(worktree.path, "rev-parse", "HEAD").strip() != base:
        return worktree.branch
    git(worktree.repository, "worktree", "remove", worktree.path)
    git(worktree.repository, "branch", "--quiet", "-D", worktree.branch)
    return ""


def move_to_worktree(inherited: ParentContext, worktree: Worktree) -> ParentContext:
    """The same environment and rules, with the worktree as the workspace."""
    environment = inherited.environment
    old = environment.workspace
    inside = os.path.relpath(os.path.realpath(environment.places.cwd), old.root)
    same_directory = os.path.normpath(os.path.join(worktree.path, inside))
    cwd = same_directory if os.path.isdir(same_directory) else worktree.path
    workspace = Workspace(
        root=worktree.path,
        home=old.home,
        kitbag_home=old.kitbag_home,
        extra_write_roots=(),
        extra_read_roots=old.extra_read_roots,
        identity=WorkspaceIdentity.of_directory(worktree.path),
    )
    permissions = inherited.permissions.with_workspace(workspace)
    environment = msgspec.structs.replace(environment, workspace=workspace, places=environment.places._replace(cwd=cwd))
    return msgspec.structs.replace(inherited, environment=environment, permissions=permissions)


def _check_worktree_link(worktree: Worktree) -> None:
    """An agent may have replaced our repository with another. Raises InvalidError."""
    common = os.path.join(worktree.repository, git(worktree.repository, "rev-parse", "--git-common-dir").strip())
    link, text = os.path.join(worktree.path, ".git"), ""
    with contextlib.suppress(OSError), open(os.open(link, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        text = file.read(10_000)
    leads_to = os.path.realpath(text.removeprefix("gitdir: ").rstrip("\n"))
    if os.path.dirname(leads_to) != os.path.join(os.path.realpath(common), "worktrees"):
        raise InvalidError(f"{link} no longer points to {worktree.repository}", "check what the agent did there")


def _nested_repositories(folder: str) -> Iterator[str]:
    """Paths of nested repositories, relative to the folder, as git would find them."""
    for directory, folders, files in os.walk(folder):
        if directory == folder:
            folders[:] = [name for name in folders if name != ".git"]
        elif ".git" in folders or ".git" in files:
            folders.clear()
            yield os.path.relpath(directory, folder)


def _has_identity(worktree: Worktree) -> bool:
    return bool(git(worktree.path, "config", "user.email", check=False).strip())
