"""Previews what Edit or Write would change, as a diff for the approval question.

Used by approver. For display only: the user approves the arguments of the call, and the tool reads the file again.
"""

import json
import os
import stat
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kitbag.permissions.approvals.approval import ApprovalRequest
from kitbag.permissions.model import Workspace
from kitbag.permissions.paths import examine_path
from kitbag.text.hidden_characters import collapse_whitespace

if TYPE_CHECKING:
    from kitbag.tools.files.diff import UnifiedDiff

SHOWN_IN_DIFF: Final = frozenset(("old_string", "new_string", "content", "replace_all"))
"""Arguments that a diff shows completely."""
_MAX_BYTES: Final = 4 << 20


class ChangePreview(msgspec.Struct, frozen=True, kw_only=True):
    diff: str = ""
    omitted: str = ""
    """Describes what the diff omits."""


NO_PREVIEW: Final = ChangePreview()


def preview_change(question: ApprovalRequest) -> ChangePreview:
    """Empty if no diff is possible: another tool, an unreadable file, a text not in it. Private files are never
    previewed: their content would end up in the scrollback or a log."""
    if question.tool not in ("Edit", "Write"):
        return NO_PREVIEW
    arguments: dict[str, Any] = json.loads(question.arguments)
    path = arguments.get("file_path")
    texts = [arguments.get(name) for name in ("content", "old_string", "new_string") if name in arguments]
    if not isinstance(path, str) or not all(isinstance(text, str) and len(text) <= _MAX_BYTES for text in texts):
        return NO_PREVIEW
    home = os.path.expanduser("~")
    facts = examine_path(
        path, Workspace(root=question.directory, home=home, kitbag_home=f"{home}/.kitbag"), question.directory
    )
    if facts.special_reason or facts.private_reason:
        return NO_PREVIEW
    try:
        before = _read_content(facts.resolved)
        name = collapse_whitespace(path)  # a line break would look like a line of the diff
        preview = (
            _diff_of_write(before, arguments, name)
            if question.tool == "Write"
            else _diff_of_edit(before, arguments, name)
        )
    except (OSError, ValueError):
        return NO_PREVIEW
    return ChangePreview(diff=preview.text, omitted=preview.truncation) if preview is not None else NO_PREVIEW


def _read_content(path: str) -> bytes | None:
    """None if the file does not exist. Raises OSError, or ValueError if it is no regular file or too large."""
    try:
        # Don't block on a FIFO or follow a symbolic link.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("no file")
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ValueError("too long")
    return data


def _diff_of_write(before: bytes | None, arguments: dict[str, Any], path: str) -> "UnifiedDiff | None":
    from kitbag.tools.files.diff import diff
    from kitbag.tools.files.file_text import decode_file
    from kitbag.tools.files.write import encode_content

    if set(arguments) != {"file_path", "content"}:
        return None
    old = decode_file(before) if before is not None else None
    if before is not None and old is None:
        return None
    return diff(old.text if old is not None else None, encode_content(before, arguments["content"]).text, path)


def _diff_of_edit(before: bytes | None, arguments: dict[str, Any], path: str) -> "UnifiedDiff | None":
    from kitbag.tools.files.diff import diff
    from kitbag.tools.files.file_text import decode_file
    from kitbag.tools.files.replace import Replacement, replace_text

    if not {"file_path", "old_string", "new_string"} <= set(arguments) <= {"file_path", *SHOWN_IN_DIFF}:
        return None
    old, new, replace_all = arguments["old_string"], arguments["new_string"], arguments.get("replace_all", False)
    if not before:
        return diff(None, new, path) if not old else None
    decoded = decode_file(before)
    if decoded is None or not old or not isinstance(replace_all, bool):
        return None
    replaced = replace_text(decoded.text, old, new, replace_all=replace_all, max_length=_MAX_BYTES)
    return diff(decoded.text, replaced.text, path) if isinstance(replaced, Replacement) else None
