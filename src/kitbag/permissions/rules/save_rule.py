"""Saves an approved rule to the user's settings; preserves the rest of the file, including comments.

Used by `approvals/approval`.
"""

from typing import Any

from kitbag.store.toml_file import edit_toml


def save_rule(settings_file: str, text: str) -> None:
    """Append it to `permissions.allow`. Raises InvalidError if nothing was written."""
    edit_toml(settings_file, lambda document: _add(document, text))


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
