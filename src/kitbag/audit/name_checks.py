"""Detects names that imitate others: look-alikes of other items, built-in items and tools.

Used by run.
"""

import os
import unicodedata
from collections.abc import Iterable
from typing import Final, NamedTuple

from kitbag.audit.file_checks import FileRemark
from kitbag.library.dialects.tool_aliases import CANONICAL_TOOLS
from kitbag.library.library_checks import CHAT_COMMANDS
from kitbag.library.names import confusable_skeleton, normalize_name
from kitbag.library.scopes import ITEM_KINDS
from kitbag.text.hidden_characters import format_code_points, remove_hidden

_BUILTIN: Final = os.path.join(os.path.dirname(os.path.dirname(__file__)), "builtin")


class NamedItem(NamedTuple):
    path: str
    name: str
    builtin: bool
    """It is one of the built-in items."""


def builtin_names() -> frozenset[str]:
    names: set[str] = set()
    for kind in ITEM_KINDS:
        folder = os.path.join(_BUILTIN, kind)
        if os.path.isdir(folder):
            names.update(os.path.splitext(name)[0] for name in os.listdir(folder))
    return frozenset(names)


def is_builtin(folder: str) -> bool:
    return folder == _BUILTIN or folder.startswith(_BUILTIN + os.sep)


def check_names(items: Iterable[NamedItem]) -> dict[str, list[FileRemark]]:
    """Remarks by the item's path."""
    named = [item for item in items if item.name]
    protected = {*CANONICAL_TOOLS, *CHAT_COMMANDS, *builtin_names()}
    by_skeleton: dict[str, set[str]] = {}
    for name in (*protected, *(item.name for item in named)):
        by_skeleton.setdefault(confusable_skeleton(remove_hidden(name)), set()).add(name)
    keys = {normalize_name(name) for name in protected}
    remarks_by_path: dict[str, list[FileRemark]] = {}
    for item in named:
        remarks = remarks_by_path.setdefault(item.path, [])
        if normalize_name(item.name) in keys:
            if not item.builtin:
                # The chat's own commands always win, and a different case reads as a different word.
                shadows = item.name in protected and item.name not in CHAT_COMMANDS
                remarks.append(FileRemark(rule="reserved-name", severity=None if shadows else "low", excerpt=item.name))
            continue
        others = {
            other
            for other in by_skeleton[confusable_skeleton(remove_hidden(item.name))]
            if normalize_name(other) != normalize_name(item.name)
        }
        # Of two look-alikes, the plainer one is the original.
        imitated = max(others, key=lambda other: (_plainness(other, protected), other), default="")
        if imitated and _plainness(imitated, protected) > _plainness(item.name, protected):
            remarks.append(
                FileRemark(
                    rule="look-alike-name",
                    severity=None,
                    excerpt=item.name,
                    note=f"looks like {imitated!r}{_describe_non_ascii(item.name)}",
                )
            )
        elif _mixes_alphabets(item.name):
            remarks.append(
                FileRemark(
                    rule="look-alike-name",
                    severity=None,
                    excerpt=item.name,
                    note=f"mixes alphabets{_describe_non_ascii(item.name)}",
                )
            )
    return remarks_by_path


def _plainness(name: str, protected: set[str]) -> tuple[bool, bool, int]:
    return (name in protected, name.isascii(), -sum(char.isdigit() for char in name))


def _describe_non_ascii(name: str) -> str:
    points = [(0, ord(char)) for char in name if not char.isascii()]
    return f" ({format_code_points(points)})" if points else ""


def _mixes_alphabets(name: str) -> bool:
    """Latin mixed with Cyrillic or Greek letters in one word."""
    for word in name.replace("_", "-").replace(" ", "-").split("-"):
        alphabets = {unicodedata.name(char, "").split(" ")[0] for char in word if char.isalpha()}
        if "LATIN" in alphabets and alphabets & {"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"}:
            return True
    return False
