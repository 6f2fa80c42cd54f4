"""Quotes the sections of a skill that share most words with the request, and finds words that the skill doesn't cover.

Used by offline.model, for the answer and to decide whether files have more to say.
"""

from collections.abc import Set as AbstractSet
from typing import Final

from kitbag.library.routing.agent_search import find_paths
from kitbag.library.routing.common_words import common_share
from kitbag.library.routing.light_stems import light_stems
from kitbag.library.routing.terms import term_keys
from kitbag.models.offline.agents import is_question
from kitbag.models.offline.conversation import OfflineConversation, find_blocks
from kitbag.models.offline.search import issue_numbers
from kitbag.models.offline.skills import parse_skill_catalog
from kitbag.text.sections import MarkdownSection, parse_sections

_MAX_LINES, _MAX_SECTIONS = 24, 3
_MAX_SECTION_LINES: Final = 14
_COMMON_SHARE: Final = 0.1
"""A word that so many texts contain says nothing about a request."""


def is_answerable(conversation: OfflineConversation) -> bool:
    """Whether a skill alone may answer: a question about how to do something, not about a file or an issue."""
    is_asked = "?" in conversation.prompt or is_question(conversation)
    return is_asked and not issue_numbers(conversation) and not find_paths(conversation.prompt)


def uncovered_words(conversation: OfflineConversation, keywords: set[str]) -> set[str]:
    """The rare words of the request that no loaded or invoked skill contains, unless they are the smaller part of it;
    all words if there is no skill, or if the user wants more than an answer."""
    if not is_answerable(conversation):
        return keywords
    steps = [step for step in conversation.steps_of("Skill") if not step.is_error]
    message = conversation.message
    texts = [step.text for step in steps]
    texts += [message[start:end] for start, end in find_blocks(message, "skill-invocation")]
    if not texts:
        return keywords
    catalog = parse_skill_catalog(conversation.request, message)
    texts += [catalog.get(str(step.call.arguments.get("skill", "")), "") for step in steps]
    uncovered = keywords - light_stems("\n".join(texts)) - _common_stems(conversation.prompt)
    return uncovered if 2 * len(uncovered) >= len(keywords) else set()


def _common_stems(text: str) -> set[str]:
    """`create` and `write` are in any repository."""
    common = (word for word in text.split() if any(common_share(key) >= _COMMON_SHARE for key in term_keys(word)))
    return {stem for word in common for stem in light_stems(word)}


def quote_skill(name: str, block: str, keywords: AbstractSet[str]) -> str:
    """The best sections in their order, or the start if none shares a word."""
    skill_block = block[max(block.find("<skill-invocation"), 0) :]
    body = skill_block.partition("\n\n")[2].partition("</skill-invocation>")[0].strip()
    pieces = _choose_pieces(body, keywords)
    quoted = "\n".join(f"> {row}".rstrip() for row in "\n…\n".join(pieces).splitlines())
    remaining = len(body.splitlines()) - sum(len(piece.splitlines()) for piece in pieces)
    more = f"\n>\n> ({remaining} more lines)" if remaining > 0 else ""
    return f"The skill {name} says:\n\n{quoted}{more}"


def _choose_pieces(body: str, keywords: AbstractSet[str]) -> list[str]:
    sections = [one for one in parse_sections(body) if body[one.start : one.end].strip()]
    scores = {one.start: _score(body, one, keywords) for one in sections}
    best = sorted((one for one in sections if scores[one.start]), key=lambda one: (-scores[one.start], one.start))
    # A weaker section is worth quoting only if it shares at least half as much as the best one.
    chosen = [one for one in best[:_MAX_SECTIONS] if 2 * scores[one.start] >= scores[best[0].start]]
    if not chosen:
        return [_first_lines(body, _MAX_SECTION_LINES)]
    pieces: list[tuple[int, str]] = []
    room = _MAX_LINES
    for one in chosen:
        piece = _first_lines(body[one.start : one.end].strip("\n"), min(room, _MAX_SECTION_LINES))
        pieces.append((one.start, piece))
        room -= len(piece.splitlines())
        if room < 3:
            break
    return [piece for _, piece in sorted(pieces)]


def _score(body: str, section: MarkdownSection, keywords: AbstractSet[str]) -> int:
    """A heading counts twice, but not the title: it says what the skill is about, which is why it was loaded. A section
    that has nothing but its heading has nothing to say."""
    whole = body[section.start : section.end]
    heading, _, text = whole.partition("\n") if section.level else ("", "", whole)
    if not text.strip():
        return 0
    in_heading = light_stems(heading) & keywords if section.level > 1 else frozenset[str]()
    return 2 * len(in_heading) + len(light_stems(text) & keywords)


def _first_lines(text: str, most: int) -> str:
    return "\n".join(text.splitlines()[:most]).rstrip()
