"""Edits one of the user's TOML files: locked, atomic, preserving comments and order.

Used by rules/save_rule for approved rules, and by setup.
"""

import os
from collections.abc import Callable
from typing import Any

from kitbag.errors import InvalidError
from kitbag.store import private_files


def edit_toml(path: str, edit: Callable[[Any], None]) -> None:
    """`edit` receives tomlkit's document. Raises InvalidError if nothing was written."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    base, name = os.path.split(path)
    with private_files.hold_lock(base, f".{name}.lock"):
        data = private_files.read(base, name) or b""
        try:
            document: Any = tomlkit.parse(data.decode())
            edit(document)
        except (UnicodeDecodeError, TOMLKitError, TypeError, AttributeError) as error:
            raise InvalidError(f"cannot edit {path}: {error}", "fix the file") from error
        private_files.write(base, name, tomlkit.dumps(document).encode())
