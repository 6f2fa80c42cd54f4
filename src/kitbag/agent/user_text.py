"""Splits the text of a user message into what the user wrote and what Kitbag attached: mentioned files, library
changes, suggestions, skills.

Used by context_ledger, listings of sessions, and whatever shows a recorded message.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from kitbag.messages import Message, Text

SKILL_STUB = r"\[The skill (.+?) was (?:shown here until the next user message|here and has been unloaded)\.\]"
SKILL_BLOCK = r'<skill-invocation name="([^"]*)"'
# Files, folders and agents mentioned with `@`, and commands run with `!`. Their text can't open or close such a block.
_MENTION_BLOCK = re.compile(
    r'^<mentioned-(file|folder|agent|command) (?:path|name)="([^"\n]*)"[^\n>]*?(?: images="(\d{1,3})")?>$', re.MULTILINE
)
# Attachments after the user's text; each starts at its tag.
_TAIL_TAGS: Final = (
    ("<session-changes>", "changes"),
    ("<library-changes>", "changes"),
    ("<suggested-skills>", "suggestions"),
)


def split_user_text(text: str) -> Iterator[tuple[str, str, str]]:
    """Yields (kind, name, text) for a user message: what the user wrote and what Kitbag attached to it."""
    if stub := re.fullmatch(SKILL_STUB, text):
        yield "stub", stub[1], text
    elif block := re.match(SKILL_BLOCK, text):
        yield "one-message", block[1], text
    elif text.startswith("<conversation-summary>"):
        yield "summary", "", text
    else:
        position = 0
        for block in _find_mention_blocks(text):
            yield from _split_tail(text[position : block.start])
            yield "mentioned", block.name, text[block.start : block.end]
            position = block.end
        yield from _split_tail(text[position:])


def _split_tail(text: str) -> Iterator[tuple[str, str, str]]:
    kind = "user"
    for tag, next_kind in _TAIL_TAGS:
        before, separator, rest = text.partition(tag)
        if separator:
            if before:
                yield kind, "", before
            kind, text = next_kind, separator + rest
    if text:
        yield kind, "", text


class _Mention(msgspec.Struct, frozen=True, kw_only=True):
    start: int
    end: int
    name: str
    image_count: int


def _find_mention_blocks(text: str) -> Iterator[_Mention]:
    """Takes linear time, even for blocks without an end tag."""
    if "<mentioned-" not in text:
        return
    from html import unescape

    position = 0
    unclosed_kinds: set[str] = set()
    while (opening := _MENTION_BLOCK.search(text, position)) is not None:
        kind, position = opening[1], opening.end()
        closing = f"\n</mentioned-{kind}>"
        end = -1 if kind in unclosed_kinds else text.find(closing, position)
        if end < 0:
            unclosed_kinds.add(kind)
            continue
        position = end + len(closing)
        while text.startswith("\n", position):
            position += 1
        name = unescape(opening[2])
        label = {"agent": f"agent {name}", "command": f"! {name}"}.get(kind, name)
        yield _Mention(start=opening.start(), end=position, name=label, image_count=int(opening[3] or 0))


def list_image_names(text: str) -> list[str]:
    """The file name of each image that the text announces."""
    return [block.name for block in _find_mention_blocks(text) for _ in range(block.image_count)]


def written_text(text: str) -> str:
    """Only what the user wrote."""
    return "".join(piece for kind, _, piece in split_user_text(text) if kind == "user").strip()


def text_of_user(message: Message) -> str:
    """What the user wrote in a message. The text of an invoked skill comes before it."""
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    return written_text(texts[-1]) if texts else ""
