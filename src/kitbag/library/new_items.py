"""Creates skills, agents, personas and commands from templates: new files only, never through a link.

Used by `kitbag new` and `kitbag init`. The templates are in builtin/templates.
"""

import errno
import json
import os
import re
from typing import Final, Literal, get_args

import msgspec

from kitbag.errors import InvalidError, UsageError
from kitbag.library.names import normalize_name

ItemKind = Literal["skill", "agent", "persona", "command"]
ITEM_KINDS: Final[tuple[ItemKind, ...]] = get_args(ItemKind)
_TEMPLATES: Final = os.path.join(os.path.dirname(os.path.dirname(__file__)), "builtin", "templates")
_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_NAME: Final = 64
_DESCRIPTIONS: Final[dict[ItemKind, str]] = {
    "skill": "Does one thing, in one sentence. Use when the user asks for it.",
    "agent": "Does one kind of task, in one sentence. Use for tasks of this kind.",
    "persona": "The role of the agent, in one sentence.",
    "command": "Does one thing.",
}


class NewItem(msgspec.Struct, frozen=True, kw_only=True):
    kind: ItemKind
    name: str
    path: str
    text: str


def plan_item(kind: ItemKind, name: str, base: str, description: str = "", template: str = "") -> NewItem:
    """Where the item would be below `base`, a `.kitbag` directory, and its text; writes nothing. Raises UsageError for
    a name that some tool could not use."""
    _check_name(kind, name)
    places = {
        "skill": os.path.join("skills", name, "SKILL.md"),
        "agent": os.path.join("agents", f"{name}.md"),
        "persona": os.path.join("personas", f"{name}.yaml"),
        "command": os.path.join("commands", f"{name}.md"),
    }
    ending = "yaml" if kind == "persona" else "md"
    with open(os.path.join(_TEMPLATES, f"{template or kind}.{ending}"), encoding="utf-8") as file:
        text = file.read()
    one_line = " ".join((description or _DESCRIPTIONS[kind]).split())
    # A JSON string is valid YAML; a plain one reads better where it means the same.
    quoted = one_line if re.fullmatch(r"[A-Za-z][\w ,.;()/'-]*", one_line) else json.dumps(one_line, ensure_ascii=False)
    title = name.replace("-", " ").capitalize()
    for variable, value in (("NAME", name), ("TITLE", title), ("DESCRIPTION", quoted)):
        text = text.replace(f"{{{{{variable}}}}}", value)
    return NewItem(kind=kind, name=name, path=os.path.join(base, places[kind]), text=text)


def write_item(item: NewItem, base: str) -> None:
    """Raises InvalidError if the file exists, or a directory on its way is a link or can't be made."""
    if existing := existing_file(item):
        raise InvalidError(f"{existing} already exists", "edit it, or choose another name")
    make_directories(base, os.path.relpath(os.path.dirname(item.path), base))
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(item.path, flags, 0o644)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(item.text)
        except OSError:
            os.unlink(item.path)
            raise
    except OSError as error:
        raise _creation_error(item.path, error) from error


def existing_file(item: NewItem) -> str:
    """The file that has this name already, in whatever spelling; empty if there is none."""
    directory, name = os.path.split(item.path)
    if item.kind == "skill":
        directory, name = os.path.split(directory)
    stem = normalize_name(os.path.splitext(name)[0])
    try:
        taken = [one for one in os.listdir(directory) if normalize_name(os.path.splitext(one)[0]) == stem]
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise InvalidError(f"can't read {directory}: {error.strerror}", "check the directory") from error
    return os.path.join(directory, taken[0]) if taken else ""


def make_directories(base: str, relative: str) -> None:
    """Raises InvalidError if one of them is a link or can't be made."""
    parts = relative.split(os.sep)
    for depth in range(len(parts) + 1):
        path = os.path.join(base, *parts[:depth])
        if os.path.islink(path):
            raise InvalidError(f"{path} is a symbolic link; nothing was written", "replace the link with a directory")
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise _creation_error(path, error) from error


def _creation_error(path: str, error: OSError) -> InvalidError:
    fix = "free up disk space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "check the directory"
    return InvalidError(f"can't create {path}: {error.strerror}", fix)


def _check_name(kind: ItemKind, name: str) -> None:
    if _NAME.fullmatch(name) and len(name) <= _MAX_NAME:
        return
    usable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_MAX_NAME].strip("-")
    fix = f"for example: {usable}" if usable else f"for example: my-{kind}"
    raise UsageError(f"{name[:80]!r} is not a valid name: use lowercase letters, digits and hyphens", fix)
