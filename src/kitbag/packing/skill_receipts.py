"""Shorter forms of a skill block that the session already has: only the changed lines, or a truncated block.

Works on whole lines, in time linear in the length of the block. Used by session_skills.
"""

from kitbag.packing.skill_delivery import CLOSING_TAG
from kitbag.text.tokens import estimate_tokens
from kitbag.text.truncate import truncate_by_lines

_MAX_COMPARED_LINES = 400
"""Limit for the line diff, which takes quadratic time."""


def render_changes(name: str, reason: str, old: str, new: str) -> str:
    """The added and removed lines; the whole block if that is not much longer."""
    added, removed = _difference(old.splitlines(), new.splitlines())
    pieces = [f"The skill {name} was loaded before, but {reason}."]
    if added:
        pieces += ["Added lines:", *added]
    if removed:
        pieces += ["Removed lines (no longer valid):", *removed]
    text = "\n".join(pieces)
    return text if len(text) * 2 < len(new) else new


def _difference(old: list[str], new: list[str]) -> tuple[list[str], list[str]]:
    start = 0
    for old_line, new_line in zip(old, new, strict=False):
        if old_line != new_line:
            break
        start += 1
    end = 0
    for old_line, new_line in zip(reversed(old[start:]), reversed(new[start:]), strict=False):
        if old_line != new_line:
            break
        end += 1
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    if len(old) > _MAX_COMPARED_LINES or len(new) > _MAX_COMPARED_LINES:
        return new, old
    import difflib

    added: list[str] = []
    removed: list[str] = []
    for tag, first, last, start, end in difflib.SequenceMatcher(None, old, new).get_opcodes():
        if tag != "equal":
            added += new[start:end]
            removed += old[first:last]
    return added, removed


def truncate_block(block: str, tokens: int) -> str:
    """As many leading lines as fit, with the closing tag; empty if none fit."""
    if estimate_tokens(block) <= tokens:
        return block
    content = block.removesuffix(f"\n{CLOSING_TAG}")
    remaining = tokens - estimate_tokens(f"\n{CLOSING_TAG}") - 1
    cut = truncate_by_lines(content, remaining, estimate_tokens).text if remaining > 0 else ""
    text = f"{cut}\n{CLOSING_TAG}"
    return text if cut.count("\n") > 1 and estimate_tokens(text) <= tokens else ""
