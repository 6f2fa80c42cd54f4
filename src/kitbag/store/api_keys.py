"""API keys that the user entered instead of setting a variable: `keys.toml` in the Kitbag home, readable only by them.

Used by assembly/model_sources, which passes them to the model choice and to the journal's redactor, and by setup.
They never enter the environment of any process.
"""

import json
import os
import re
import stat
from typing import Any, Final, NamedTuple, cast

from kitbag.errors import InvalidError, UsageError
from kitbag.store import private_files

KEYS_FILE: Final = "keys.toml"
_LOCK_FILE: Final = ".keys.toml.lock"
_FILE_HEADER: Final = (
    "# Written by `kitbag setup`; `kitbag setup --forget PROVIDER` removes a key. Keep this file private.\n"
)
_MAX_BYTES: Final = 1 << 16
_MAX_KEY_LENGTH: Final = 4096
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
_ASSIGNMENT: Final = re.compile(r"(?:export\s+)?[A-Z_][A-Z0-9_]*=\S", re.ASCII)


class StoredKeys(NamedTuple):
    keys: dict[str, str]
    """By the name of the environment variable that would hold each."""
    problem: str = ""
    """Why none of the keys is used; empty if nothing is wrong."""
    fix: str = ""


def read_keys(kitbag_home: str) -> StoredKeys:
    """Never raises. Ignores a file that other users could read or write."""
    path = os.path.join(kitbag_home, KEYS_FILE)
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return StoredKeys({})
    if not stat.S_ISREG(status.st_mode):
        return StoredKeys({}, "not a regular file; ignored", "move it elsewhere")
    if status.st_uid != os.geteuid():
        return StoredKeys({}, "owned by another user; ignored", "move it elsewhere")
    if stat.S_IMODE(status.st_mode) & 0o077:
        return StoredKeys({}, "readable by other users; ignored", f"chmod 600 {path}")
    try:
        data = private_files.read(kitbag_home, KEYS_FILE) or b""
        return StoredKeys(_parse_keys(data))
    except private_files.StoreError as error:
        return StoredKeys({}, error.problem, error.fix)
    except ValueError as error:
        return StoredKeys({}, f"cannot read file: {error}; ignored", "fix it, or remove it and run `kitbag setup`")


def _parse_keys(data: bytes) -> dict[str, str]:
    """Raises ValueError; its message never contains a key."""
    import tomllib

    if len(data) > _MAX_BYTES:
        raise ValueError(f"larger than {_MAX_BYTES:,} bytes")
    try:
        content = tomllib.loads(data.decode())
    except (ValueError, RecursionError):
        raise ValueError("not valid TOML") from None
    table = content.get("keys")
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise ValueError("`keys` must be a table")
    return {
        name: value
        for name, value in cast("dict[str, Any]", table).items()
        if isinstance(value, str) and is_variable_name(name) and not key_problem(value)
    }


def store_key(kitbag_home: str, variable: str, key: str) -> None:
    """Raises UsageError for an invalid key or name, InvalidError if the file can't be written."""
    if problem := key_problem(key):
        raise UsageError(problem, "enter only the key, exactly as the provider shows it")
    if not is_variable_name(variable):
        raise UsageError(f"invalid variable name {variable!r}", "use letters, digits and _")
    with private_files.hold_lock(kitbag_home, _LOCK_FILE):
        _write(kitbag_home, {**_load_keys(kitbag_home), variable: key})


def delete_key(kitbag_home: str, variable: str) -> bool:
    """False if no key was stored. Raises InvalidError if the file can't be read or written."""
    if not os.path.lexists(os.path.join(kitbag_home, KEYS_FILE)):
        return False
    with private_files.hold_lock(kitbag_home, _LOCK_FILE):
        keys = _load_keys(kitbag_home)
        if variable not in keys:
            return False
        _write(kitbag_home, {name: key for name, key in keys.items() if name != variable})
        return True


def _load_keys(kitbag_home: str) -> dict[str, str]:
    stored = read_keys(kitbag_home)
    if stored.problem:  # writing would lose its content
        raise InvalidError(f"{os.path.join(kitbag_home, KEYS_FILE)}: {stored.problem}", stored.fix)
    return stored.keys


def _write(kitbag_home: str, keys: dict[str, str]) -> None:
    # A key is printable ASCII, for which a JSON string is also a TOML string.
    lines = [f"{name} = {json.dumps(key)}\n" for name, key in sorted(keys.items())]
    private_files.write(kitbag_home, KEYS_FILE, "".join((_FILE_HEADER, "\n[keys]\n", *lines)).encode())


def is_variable_name(name: str) -> bool:
    return _VARIABLE.fullmatch(name) is not None


def key_problem(key: str) -> str:
    """Why this is not a key, without quoting it; empty if it may be one."""
    if not key:
        return "the key is empty"
    if len(key) > _MAX_KEY_LENGTH:
        return f"the key is longer than {_MAX_KEY_LENGTH:,} characters"
    if any(char.isspace() for char in key):
        return "the key contains whitespace"
    if not key.isascii() or not key.isprintable():
        return "the key contains invalid characters"
    if key[0] in "\"'" or _ASSIGNMENT.match(key):
        return "the key includes quotes or a variable name"
    return ""
