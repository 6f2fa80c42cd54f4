"""Recognizes paths that hold secrets or are not regular files, by name alone.

Used by source_files for files reached through a link, and by permissions for every path. Names are compared as the
most lenient file system does: ignoring case, trailing dots and spaces, streams and ignorable characters.
"""

import re
from functools import lru_cache
from typing import Final

from kitbag.text.unicode_forms import fold

_PRIVATE_PARTS: Final = frozenset(
    (
        ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".oci", ".terraform.d", ".mozilla",
        ".thunderbird", ".bluemix", ".config/gcloud", ".config/gh", ".config/op", ".config/doctl", ".config/hub",
        ".config/chromium", ".config/google-chrome", ".config/rclone", ".config/git/credentials",
        ".local/share/keyrings", ".local/share/kwalletd", "library/keychains", ".cargo/credentials",
        ".cargo/credentials.toml", ".gem/credentials",
    )
)  # fmt: skip
_PRIVATE_FIRST_PARTS: Final = frozenset(private.partition("/")[0] for private in _PRIVATE_PARTS)
_PRIVATE_FILE = re.compile(
    r"(?!.*\.(?:example|sample|template|dist|pub)$)(?!(?:example|sample|template)\.env$)(?:"
    r"\.?\.env(?:[.~_-].*)?|.+\.env|\.envrc"
    r"|[._](?:netrc|npmrc|pypirc|pgpass|git-credentials|htpasswd|my\.cnf|mylogin\.cnf|s3cfg|boto|dockercfg|vault-token)"
    r"|\.\w*_history|id_(?:rsa|dsa|ecdsa|ed25519|xmss).*|ssh_host_\w+_key"
    r"|\.?(?:credentials|client_secret.*|service[_-]account.*)\.json"
    r"|.*\.(?:pem|key|p8|p12|pfx|pkcs12|kdb|kdbx|keystore|jks|ppk|agekey|tfstate))",
    re.DOTALL,
)
_SECRET_SYSTEM_FILE = re.compile(r"/etc/(?:g?shadow|sudoers)(?:[-.].*|/.*)?")

_IGNORED = (
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
)
_SHORT_NAME = re.compile(r"(git|gitmod)~\d+")
_SEPARATORS = re.compile(r"[/\\]+")


@lru_cache(maxsize=4096)
def normalize_path_part(part: str) -> str:
    """Normalizes one path part: `.GIT`, `.git.`, `.g\u200cit`, `git~1` and `.git::$INDEX` are `.git`."""
    if not part.isascii():
        part = re.sub(_IGNORED, "", part)
    part = fold(part.partition(":")[0].rstrip(". "))
    if short := _SHORT_NAME.fullmatch(part):
        return ".git" if short[1] == "git" else ".gitmodules"
    return part


def normalize_path_parts(path: str) -> list[str]:
    return [normalize_path_part(part) for part in _SEPARATORS.split(path) if part]


def secret_path_reason(path: str) -> str:
    """Why a path holds secrets, by its name; empty if it does not."""
    parts = normalize_path_parts(path)
    if not _PRIVATE_FIRST_PARTS.isdisjoint(parts):
        joined = f"/{'/'.join(parts)}/"
        for private in _PRIVATE_PARTS:
            if f"/{private}/" in joined:
                return f"`{private}` holds secrets"
    if parts and _PRIVATE_FILE.fullmatch(parts[-1]):
        return "files with this name hold secrets"
    if ".git" in parts and parts[-1] in ("config", "credentials"):
        return "git may store credentials there"
    if _SECRET_SYSTEM_FILE.fullmatch(path):
        return "holds system passwords or access rules"
    return ""


def special_path_reason(path: str) -> str:
    """Why a path is not for regular files: devices and kernel interfaces; empty if it is. `/dev/null` is harmless."""
    for place in ("/proc", "/sys", "/dev"):
        if path == place or path.startswith(place + "/"):
            # Shared memory, used like any other directory.
            if path == "/dev/null" or path == "/dev/shm" or path.startswith("/dev/shm/"):  # noqa: S108
                return ""
            return "not a regular file (device)" if place == "/dev" else "not a regular file (kernel interface)"
    return ""
