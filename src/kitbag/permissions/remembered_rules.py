"""Writes a rule that a person agreed to into their settings; the rest of the file stays as it is, comments too.

Used by approvals; uses private_files.
"""

import os
from typing import Any

from kitbag.errors import InvalidError
from kitbag.store import private_files


def remember_rule(settings_file: str, text: str) -> None:
    """Adds it to `permissions.allow`. Raises InvalidError, and then nothing was written."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    base, name = os.path.split(settings_file)
    with private_files.locked(base, f".{name}.lock"):
        data = private_files.read(base, name) or b""
        try:
            document: Any = tomlkit.parse(data.decode())
            _add(document, text)
        except (UnicodeDecodeError, TOMLKitError, TypeError, AttributeError) as error:
            raise InvalidError(f"{settings_file} can't be changed: {error}", "mend the file") from error
        private_files.write(base, name, tomlkit.dumps(document).encode())


def _add(document: Any, text: str) -> None:
    import tomlkit
    from tomlkit.items import AoT

    if "permissions" not in document:
        document["permissions"] = tomlkit.table()
    table: Any = document["permissions"]
    if "allow" not in table:
        table["allow"] = tomlkit.array().multiline(True)
    known: Any = table["allow"]
    if text in known:
        return
    # `[[permissions.allow]]` is a list of tables, to which only a table can be added.
    known.append(tomlkit.table().append("rule", text) if isinstance(known, AoT) else text)
