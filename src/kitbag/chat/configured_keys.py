"""The keys of the chat that the setting `chat.keys` can change.

Used by terminal_ui, which binds them, and /help, which lists them.
"""

import re
from collections.abc import Sequence
from typing import Final

DEFAULT_KEYS: Final[dict[str, str]] = {
    "background": "c-b",
    "details": "c-o",
    "edit": "c-g",
    "image": "c-v",
    "mode": "s-tab",
    "redraw": "c-l",
}
"""Actions whose keys can be set, with prompt_toolkit's names of the keys."""
_CONFIGURABLE_KEY: Final = re.compile(r"ctrl-[a-z]|f(?:[1-9]|1\d|2[0-4])|shift-tab")
_FIXED_KEYS: Final = frozenset(("c-c", "c-d", "c-h", "c-i", "c-j", "c-m", "c-x", "c-z"))


def parse_keys(entries: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The keys of all actions, and what is wrong with the entries of `chat.keys`."""
    keys, problems = dict(DEFAULT_KEYS), list[str]()
    for entry in entries:
        action, _, name = (part.strip().lower() for part in entry.partition("="))
        key = name.replace("ctrl-", "c-").replace("shift-", "s-")
        if action not in keys:
            problems.append(f"unknown action in chat.keys: {entry!r}; use one of {', '.join(keys)}")
        elif not _CONFIGURABLE_KEY.fullmatch(name) or key in _FIXED_KEYS:
            problems.append(f"unusable key in chat.keys: {entry!r}; use ctrl-LETTER, shift-tab or f1 to f24")
        elif any(key == used for other, used in keys.items() if other != action):
            problems.append(f"key in chat.keys already has an effect: {entry!r}")
        else:
            keys[action] = key
    return keys, problems


def key_label(key: str) -> str:
    """As users read it: "Ctrl-O" for "c-o"."""
    return key.replace("c-", "ctrl-").replace("s-", "shift-").title()
