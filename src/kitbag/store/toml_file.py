"""Edits a TOML file: atomic, one process at a time, preserving comments and order.

Used by settings, by rules/save_rule for approved rules, and by setup.
"""

import os
from collections.abc import Callable
from typing import Any

from kitbag.errors import InvalidError
from kitbag.store import private_files


def edit_toml(path: str, edit: Callable[[Any], None]) -> None:
    """`edit` receives tomlkit's document; if it changes nothing, nothing is written. Raises InvalidError if the file
    can't be edited."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    base, name = os.path.split(path)
    with private_files.hold_directory_lock(base):
        data = private_files.read(base, name) or b""
        try:
            document: Any = tomlkit.parse(data.decode())
            edit(document)
        except (UnicodeDecodeError, TOMLKitError, TypeError, AttributeError) as error:
            raise InvalidError(f"cannot edit {path}: {error}", "fix the file") from error
        changed = tomlkit.dumps(document).encode()
        if changed != data:
            private_files.write(base, name, changed)
