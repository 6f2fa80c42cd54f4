"""A skill's block where the conversation has it already: only what is new of it, or as much as fits.

Used by session_skills. Works on whole lines of the block, and in time that grows with its length, whatever is in it.
"""

from kitbag.packing.skill_delivery import CLOSING_TAG
from kitbag.text.tokens import estimate_tokens
from kitbag.text.truncate import truncate_by_lines

_MAX_COMPARED_LINES = 400
"""Lines on each side that are compared one by one; comparing takes their product."""


def render_changes(name: str, reason: str, old: str, new: str) -> str:
    """The lines that came and those that went; the whole block where that would be no shorter."""
    came, went = _difference(old.splitlines(), new.splitlines())
    pieces = [f"The skill {name} is loaded already, but {reason}."]
    if came:
        pieces += ["These lines of it are new:", *came]
    if went:
        pieces += ["These lines of it hold no longer:", *went]
    text = "\n".join(pieces)
    return text if len(text) * 2 < len(new) else new


def _difference(old: list[str], new: list[str]) -> tuple[list[str], list[str]]:
    start = 0
    for mine, theirs in zip(old, new, strict=False):
        if mine != theirs:
            break
        start += 1
    end = 0
    for mine, theirs in zip(reversed(old[start:]), reversed(new[start:]), strict=False):
        if mine != theirs:
            break
        end += 1
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    if len(old) > _MAX_COMPARED_LINES or len(new) > _MAX_COMPARED_LINES:
        return new, old
    import difflib

    came: list[str] = []
    went: list[str] = []
    for tag, first, last, start, end in difflib.SequenceMatcher(None, old, new).get_opcodes():
        if tag != "equal":
            came += new[start:end]
            went += old[first:last]
    return came, went


def truncate_block(block: str, tokens: int) -> str:
    """The block with as many of its first lines as fit, and with its closing tag; nothing where none fits."""
    if estimate_tokens(block) <= tokens:
        return block
    inside = block.removesuffix(f"\n{CLOSING_TAG}")
    room = tokens - estimate_tokens(f"\n{CLOSING_TAG}") - 1
    cut = truncate_by_lines(inside, room, estimate_tokens).text if room > 0 else ""
    text = f"{cut}\n{CLOSING_TAG}"
    return text if cut.count("\n") > 1 and estimate_tokens(text) <= tokens else ""
