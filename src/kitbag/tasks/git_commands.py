"""Git for Kitbag's own work in repositories that may be hostile: no hooks, filters, monitors or nested repositories,
and no transport but for `fetch`.

Used by worktree and git_workspace.
"""

import os
import subprocess
from collections.abc import Iterable, Mapping
from typing import Final

from kitbag.errors import InvalidError
from kitbag.sandbox.git_environment import git_environment

_GIT_TIMEOUT: Final = 120
_FETCH_TIMEOUT: Final = 1_800
_SAFE_CONFIG: Final = (
    "core.attributesFile=/dev/null",
    "commit.gpgSign=false",
    "protocol.allow=never",
    "diff.ignoreSubmodules=all",
)
"""Besides those of `git_environment`."""
_FETCH_CONFIG: Final = (
    "core.hooksPath=/dev/null",
    "gc.auto=0",
    "maintenance.auto=false",
    "fetch.recurseSubmodules=false",
    "submodule.recurse=false",
    "fetch.writeCommitGraph=false",
)
_REPOSITORY_SCOPES: Final = ("local", "worktree")


def git(directory: str, *arguments: str, check: bool = True) -> str:
    """What it prints. Raises InvalidError."""
    return git_bytes(directory, *arguments, check=check).decode(errors="replace")


def git_bytes(
    directory: str,
    *arguments: str,
    check: bool = True,
    stdin: bytes | None = None,
    variables: Mapping[str, str] | None = None,
) -> bytes:
    options = [word for setting in (*_SAFE_CONFIG, *_filter_overrides(directory)) for word in ("-c", setting)]
    environment = {**_environment(), **git_environment(read_only=True), **(variables or {})}
    return _run(directory, [*options, *arguments], environment, _GIT_TIMEOUT, check=check, stdin=stdin)


def fetch(repository: str, url: str, *refspecs: str, protocols: Iterable[str]) -> None:
    """Into a repository of our own. The user's git configuration and keys apply; git asks no questions. Raises
    InvalidError."""
    environment = {
        **_environment(),
        **git_environment(read_only=False),
        "GIT_ALLOW_PROTOCOL": ":".join(protocols),
        "GIT_TERMINAL_PROMPT": "0",
    }
    options = [word for setting in _FETCH_CONFIG for word in ("-c", setting)]
    command = [*options, "fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--", url, *refspecs]
    _run(repository, command, environment, _FETCH_TIMEOUT, check=True, stdin=None)


def _filter_overrides(directory: str) -> list[str]:
    """Options that disable every filter, diff and merge program of the repository's own configuration. Raises
    InvalidError for names that can't be overridden."""
    arguments = ["config", "--null", "--show-scope", "--name-only", "--get-regexp", r"^(filter|diff|merge)\."]
    environment = {**_environment(), **git_environment(read_only=True)}
    found = _run(directory, arguments, environment, _GIT_TIMEOUT, check=False, stdin=None)
    fields = found.decode(errors="replace").split("\0")
    of_repository = [
        name for scope, name in zip(fields[::2], fields[1::2], strict=False) if scope in _REPOSITORY_SCOPES
    ]
    names = [name for name in of_repository if name.rpartition(".")[2] in ("clean", "smudge", "process", "driver")]
    if any("=" in name for name in names):
        raise InvalidError(
            f"the git configuration of {directory} has a filter with `=` in its name", "remove the filter, or rename it"
        )
    drivers = {name.rpartition(".")[0] for name in names if name.startswith("filter.")}
    return [*(f"{name}=" for name in names), *(f"{driver}.required=false" for driver in sorted(drivers))]


def _environment() -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**environment, "LC_ALL": "C.UTF-8"}


def _run(
    directory: str,
    arguments: list[str],
    environment: Mapping[str, str],
    timeout: float,
    *,
    check: bool,
    stdin: bytes | None,
) -> bytes:
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            ["git", *arguments],  # noqa: S607 - the user's git
            cwd=directory,
            env=environment,
            input=b"" if stdin is None else stdin,
            capture_output=True,
            timeout=timeout,
            check=False,
            start_new_session=True,  # without a terminal, at which ssh would ask
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidError(f"cannot run git: {error}", "install git and check the repository") from error
    if check and done.returncode:
        stderr = done.stderr.decode(errors="replace").strip()
        raise InvalidError(f"git {arguments[-1]} failed in {directory}: {stderr[:500]}", "check the repository")
    return done.stdout
