"""The keys of the chat: what they do, and which of them the setting `chat.keys` can change.

Used by terminal_ui, which binds them, and by every UI that lists them in /help.
"""

import re
from collections.abc import Mapping, Sequence
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
_EFFECTS: Final = (
    ("Enter", "send; while the agent is working, steer it: it gets the message after its running tool calls"),
    ("Tab", "while the agent is working: queue the message until the agent is done"),
    ("Alt-Enter", "insert a line break"),
    ("! prefix", "run a command in your shell, as in `!git status`"),
    ("Esc", "interrupt the agent and send pending messages; changes so far are kept"),
    ("Esc Esc", "at an empty prompt: rewind to an earlier message"),
    ("Ctrl-C", "interrupt the agent, or clear the input; press twice to exit"),
    ("{mode}", "cycle the permission mode: default, acceptEdits, plan"),
    ("{background}", "move the running command or agent to the background"),
    ("{details}", "expand or collapse tool results and thinking"),
    ("Up", "take back the last pending message, or recall earlier input"),
    ("Ctrl-R", "search the input history"),
    ("{image}", "paste an image from the clipboard"),
    ("{edit}", "edit the message in $EDITOR"),
    ("{redraw}", "redraw the screen"),
)
_CONFIGURABLE_KEY: Final = re.compile(r"ctrl-[a-z]|f(?:[1-9]|1\d|2[0-4])|shift-tab")
_FIXED_KEYS: Final = ("c-c", "c-d", "c-h", "c-i", "c-j", "c-m", "c-x", "c-z")
_FIXED_LETTERS: Final = ", ".join(key[-1] for key in _FIXED_KEYS)


def parse_keys(entries: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The keys of all actions, and what is wrong with the entries of `chat.keys`."""
    wanted, problems = dict[str, tuple[str, str]](), list[str]()
    for entry in entries:
        action, _, name = (part.strip().lower() for part in entry.partition("="))
        key = name.replace("ctrl-", "c-").replace("shift-", "s-")
        if action not in DEFAULT_KEYS:
            problems.append(f"unknown action in chat.keys: {entry!r}; use one of {', '.join(DEFAULT_KEYS)}")
        elif not _CONFIGURABLE_KEY.fullmatch(name) or key in _FIXED_KEYS:
            fix = f"use shift-tab, f1 to f24, or ctrl-LETTER (not {_FIXED_LETTERS})"
            problems.append(f"unusable key in chat.keys: {entry!r}; {fix}")
        else:
            wanted[action] = key, entry
    while True:  # all at once, so that two actions can swap their keys
        keys = DEFAULT_KEYS | {action: key for action, (key, _) in wanted.items()}
        used = list(keys.values())
        taken = next((action for action, (key, _) in wanted.items() if used.count(key) > 1), None)
        if taken is None:
            return keys, problems
        problems.append(f"key in chat.keys already has an effect: {wanted.pop(taken)[1]!r}")


def key_label(key: str) -> str:
    """As users read it: "Ctrl-O" for "c-o"."""
    return key.replace("c-", "ctrl-").replace("s-", "shift-").title()


def list_keys(keys: Mapping[str, str] = DEFAULT_KEYS) -> tuple[tuple[str, str], ...]:
    """Keys and their effects. `keys`: those of all actions."""
    labels = {action: key_label(key) for action, key in keys.items()}
    return tuple((key.format(**labels), effect) for key, effect in _EFFECTS)
