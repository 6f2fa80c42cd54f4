"""What a sandboxed command sees of the file system: where it may write, and what is hidden.

Used by both sandboxes. Lists only existing paths, resolved, since the target of a link is what must be hidden.
"""

import os
import stat
from collections.abc import Collection, Mapping

import msgspec

from kitbag.permissions.model import Workspace, is_inside
from kitbag.processes.command_runner import MARKER_VARIABLE
from kitbag.sandbox.environment import scrub_environment

SCRATCH_DIRECTORIES = ("/tmp", "/var/tmp")  # noqa: S108 - covered by private ones, not used
"""Empty, writable and private to the command."""
RUNTIME_DIRECTORIES = ("/run", "/var/run")
"""Where daemons listen. Sockets accept connections even on a read-only mount, so these are hidden."""
_RUNTIME_NEEDED = ("/run/current-system", "/run/opengl-driver", "/run/wrappers")

_SECRET_FOLDERS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".terraform.d", ".fly", ".mozilla"),
    *(".config/gcloud", ".config/gh", ".config/glab-cli", ".config/op", ".config/rclone", ".config/doctl"),
    *(".config/github-copilot", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".thunderbird"),
    *(".local/share/keyrings", ".local/share/kwalletd", ".bitcoin", ".ethereum", ".electrum"),
)
_SECRET_FILES = (
    *(".netrc", ".npmrc", ".pypirc", ".git-credentials", ".config/git/credentials", ".pgpass", ".my.cnf", ".s3cfg"),
    *(".boto", ".vault-token", ".terraformrc", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials"),
    *(".m2/settings.xml", ".composer/auth.json", ".config/composer/auth.json", ".config/containers/auth.json"),
    *(".config/hub", ".huggingface/token", ".cache/huggingface/token", ".claude.json", ".claude/.credentials.json"),
    *(".codex/auth.json", ".gemini/oauth_creds.json", ".local/share/opencode/auth.json", ".Xauthority"),
    *(".bash_history", ".zsh_history", ".sh_history", ".python_history", ".node_repl_history", ".psql_history"),
    *(".mysql_history", ".sqlite_history", ".rediscli_history", ".local/share/fish/fish_history"),
)
_SYSTEM_SECRETS = ("/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/etc/gshadow-", "/etc/security/opasswd")
_KITBAG_SHOWN = ("skills", "agents", "commands", "personas", "plugins")
"""Parts of the Kitbag home that stay visible; the rest is settings, state and approvals."""
_SOCKET_VARIABLES = (
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "DOCKER_HOST",
    "CONTAINER_HOST",
)


class FilesystemView(msgspec.Struct, frozen=True, kw_only=True):
    hidden_folders: tuple[str, ...]
    hidden_files: tuple[str, ...]
    shown: tuple[str, ...]
    """Needed paths inside hidden directories."""


def with_real_paths(workspace: Workspace) -> Workspace:
    """Resolve all paths, as mounts and kernel rules require."""
    real = os.path.realpath
    return msgspec.structs.replace(
        workspace,
        root=real(workspace.root),
        home=real(workspace.home),
        kitbag_home=real(workspace.kitbag_home),
        extra_write_roots=tuple(map(real, workspace.extra_write_roots)),
        extra_read_roots=tuple(map(real, workspace.extra_read_roots)),
    )


def build_view(workspace: Workspace, network: bool, writable: tuple[str, ...]) -> FilesystemView:
    """`writable`: the writable roots. Sockets inside them stay reachable."""
    home, kitbag_home = workspace.home, workspace.kitbag_home
    places = [
        *SCRATCH_DIRECTORIES,
        *RUNTIME_DIRECTORIES,
        *(os.path.join(home, name) for name in _SECRET_FOLDERS),
        kitbag_home,
    ]
    folders = {os.path.realpath(path) for path in places if os.path.isdir(path)} - {"/"}
    needed = [*workspace.read_roots, *(os.path.join(kitbag_home, name) for name in _KITBAG_SHOWN), *_RUNTIME_NEEDED]
    needed += ["/etc/resolv.conf"] if network else []
    real_paths = {os.path.realpath(path) for path in needed if os.path.exists(path)}
    covered = {*folders, "/dev"}  # a new /dev has no files of the machine's
    shown = {path for path in real_paths if any(is_inside(path, folder) for folder in covered)}
    files = {os.path.realpath(os.path.join(home, name)) for name in _SECRET_FILES} | set(_SYSTEM_SECRETS)
    files |= {path for path in _listening_sockets() if not any(is_inside(path, root) for root in writable)}
    hidden = {path for path in files if _is_non_directory(path) and _is_visible(path, folders, shown)}
    return FilesystemView(
        hidden_folders=tuple(sorted(folders)), hidden_files=tuple(sorted(hidden)), shown=tuple(sorted(shown))
    )


def _is_visible(path: str, hidden: Collection[str], shown: Collection[str]) -> bool:
    """The innermost mount decides."""
    covered = max((len(folder) for folder in hidden if is_inside(path, folder)), default=0)
    return covered <= max((len(place) for place in shown if is_inside(path, place)), default=0)


def command_environment(environment: Mapping[str, str], home: str, scratch: str) -> dict[str, str]:
    """Without secrets and socket addresses; the command runner sets the marker."""
    kept = {
        name: value
        for name, value in scrub_environment(environment.items()).items()
        if name not in (MARKER_VARIABLE, *_SOCKET_VARIABLES)
    }
    return kept | {"HOME": home, "TMPDIR": scratch, "TMP": scratch, "TEMP": scratch}


def launcher_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """For the sandbox program itself, not the command: LD_LIBRARY_PATH may name a directory it can write."""
    return {name: value for name, value in environment.items() if name == MARKER_VARIABLE}


def _is_non_directory(path: str) -> bool:
    """Exists and is not a directory."""
    try:
        return not stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _listening_sockets() -> set[str]:
    """Unix sockets that a process of this machine listens on: docker, agents, databases."""
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read(4 << 20).splitlines()[1:]
    except OSError:
        return set()
    paths = (line.split(maxsplit=7)[7:] for line in lines)
    real_paths = {os.path.realpath(path[0]) for path in paths if path and path[0].startswith("/")}
    return {path for path in real_paths if _is_socket(path)}


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
