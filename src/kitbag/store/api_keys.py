"""Keys of models that a person typed instead of setting a variable: `keys.toml` in the Kitbag home, for them alone.

Used by runtime/sources, which gives them to the choice of a model and to the journal's redactor, and by setup. They are
never put into the environment of this process or of any other.
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
    "# Kept by `kitbag setup`; `kitbag setup --forget PROVIDER` removes one. Nobody else should read this.\n"
)
_MAX_BYTES: Final = 1 << 16
_MAX_KEY_LENGTH: Final = 4096
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
_ASSIGNMENT: Final = re.compile(r"(?:export\s+)?[A-Z_][A-Z0-9_]*=\S", re.ASCII)


class StoredKeys(NamedTuple):
    keys: dict[str, str]
    """By the variable that would hold each."""
    problem: str = ""
    """Why none of them is used; empty: nothing is wrong."""
    fix: str = ""


def read_keys(kitbag_home: str) -> StoredKeys:
    """Never raises. A file that others could read or write is not used."""
    path = os.path.join(kitbag_home, KEYS_FILE)
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return StoredKeys({})
    if not stat.S_ISREG(status.st_mode):
        return StoredKeys({}, "it is no file", "move it away")
    if status.st_uid != os.geteuid():
        return StoredKeys({}, "it belongs to somebody else", "move it away")
    if stat.S_IMODE(status.st_mode) & 0o077:
        return StoredKeys({}, "others can read it, so its keys are not used", f"chmod 600 {path}")
    try:
        data = private_files.read(kitbag_home, KEYS_FILE) or b""
        return StoredKeys(_parse_keys(data))
    except private_files.StoreError as error:
        return StoredKeys({}, error.problem, error.fix)
    except ValueError as error:
        return StoredKeys({}, f"it can't be read: {error}", "mend it, or move it away and run `kitbag setup`")


def _parse_keys(data: bytes) -> dict[str, str]:
    """Raises ValueError, whose words never hold a key."""
    import tomllib

    if len(data) > _MAX_BYTES:
        raise ValueError(f"longer than {_MAX_BYTES:,} bytes")
    try:
        content = tomllib.loads(data.decode())
    except (ValueError, RecursionError):
        raise ValueError("not valid TOML") from None
    table = content.get("keys")
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise ValueError("`keys` is no table")
    return {
        name: value
        for name, value in cast("dict[str, Any]", table).items()
        if isinstance(value, str) and is_variable_name(name) and not key_problem(value)
    }


def store_key(kitbag_home: str, variable: str, key: str) -> None:
    """Raises UsageError for what is no key or no name, InvalidError where it can't be written."""
    if problem := key_problem(key):
        raise UsageError(problem, "give the key alone, as the provider shows it")
    if not is_variable_name(variable):
        raise UsageError(f"{variable!r} is no name of a variable", "letters, digits and _")
    with private_files.hold_lock(kitbag_home, _LOCK_FILE):
        _write(kitbag_home, {**_load_keys(kitbag_home), variable: key})


def delete_key(kitbag_home: str, variable: str) -> bool:
    """False: none was kept. Raises InvalidError where the file can't be read or written."""
    if not os.path.lexists(os.path.join(kitbag_home, KEYS_FILE)):
        return False
    with private_files.hold_lock(kitbag_home, _LOCK_FILE):
        known = _load_keys(kitbag_home)
        if variable not in known:
            return False
        _write(kitbag_home, {name: key for name, key in known.items() if name != variable})
        return True


def _load_keys(kitbag_home: str) -> dict[str, str]:
    found = read_keys(kitbag_home)
    if found.problem:  # what is in it would be lost
        raise InvalidError(f"{os.path.join(kitbag_home, KEYS_FILE)}: {found.problem}", found.fix)
    return found.keys


def _write(kitbag_home: str, keys: dict[str, str]) -> None:
    # A key is printable ASCII, of which JSON makes what TOML reads.
    lines = [f"{name} = {json.dumps(key)}\n" for name, key in sorted(keys.items())]
    private_files.write(kitbag_home, KEYS_FILE, "".join((_FILE_HEADER, "\n[keys]\n", *lines)).encode())


def is_variable_name(name: str) -> bool:
    return _VARIABLE.fullmatch(name) is not None


def key_problem(key: str) -> str:
    """Why that is no key, in words that do not hold it; empty: it may be one."""
    if not key:
        return "there is no key"
    if len(key) > _MAX_KEY_LENGTH:
        return f"a key has no more than {_MAX_KEY_LENGTH:,} characters"
    if any(char.isspace() for char in key):
        return "a key has no blanks and no line breaks"
    if not key.isascii() or not key.isprintable():
        return "it holds characters that no key has"
    if key[0] in "\"'" or _ASSIGNMENT.match(key):
        return "it is more than the key: leave out quotes and the name of a variable"
    return ""
