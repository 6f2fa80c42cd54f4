"""Skills as the offline model uses them: the one whose words a request shares, and the test command that one tells.

Used by offline and its pieces of work. A command is taken from a text only where it is labelled beyond doubt: a fenced
block of a single line, below a line such as `Run the tests:` or `## Tests`.
"""

import html
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from kitbag.library.routing.agent_search import find_topic_words, share_stem
from kitbag.library.routing.skill_search import stem_words
from kitbag.messages import Text, ToolCall
from kitbag.models.offline.conversation import CATALOG_TAGS, OfflineConversation, ToolStep, find_blocks, typed_text
from kitbag.models.provider import ModelRequest

_ENTRY = re.compile(r"^- (\S+?)(?:: (.*))?$", re.MULTILINE)
README: Final = "README.md"
_SKILL_TAG: Final = "skill-invocation"
_NAME = re.compile(r'<skill-invocation name="([^"\n]{1,200})"')
_FENCE = re.compile(r"\s{0,12}(`{3,}|~{3,})\s*(\w*)\s*$")
_SHELLS: Final = frozenset(("", "sh", "bash", "shell", "zsh", "console"))
_LABEL = re.compile(
    r"(?i)\btest command\b|\brun(?:s|ning)?\b.*\btests?\b|\btests?\b.*\brun\b|^#+\s+(?:the\s+)?test(?:s|ing)?\s*$"
)
_SENTENCES = re.compile(r"(?<=[.!?])\s+")
_UNLESS = re.compile(r"(?i)\b(?:not|never|without|unless|instead)\b|n['’]t\b")
_NUMBERED = re.compile(r"^ *\d+\t", re.MULTILINE)
_EMPTY_WORDS: Final = frozenset(
    stem_words(
        "what which where who why does did do can could would should please show tell find give make want need help me"
        " my our your have has about into file files code project repository repo work works there here"
    )
)


class SkillMatch(NamedTuple):
    name: str
    words: list[str]
    score: float


class DocumentedCommand(NamedTuple):
    command: str
    source: str
    """Who tells it, in words."""


def significant_words(text: str) -> set[str]:
    return stem_words(text) - _EMPTY_WORDS


def match_skill(talk: OfflineConversation) -> SkillMatch | None:
    """The skill for the request; None when there is none, or the person has named one."""
    if "Skill" not in talk.tools or f"<{_SKILL_TAG}" in talk.message:
        return None
    return best_skill(talk.request, talk.message, find_topic_words(talk.prompt) - _EMPTY_WORDS)


def load_skill_calls(talk: OfflineConversation, found: SkillMatch | None = None) -> list[ToolCall]:
    """Loads it, and says why."""
    found = found or match_skill(talk)
    if found is None:
        return []
    reason = f"the request has: {', '.join(found.words)}" if found.words else "the request names it"
    return [talk.make_call("Skill", skill=found.name, reason=reason)]


def best_skill(request: ModelRequest, said: str, wanted: set[str]) -> SkillMatch | None:
    """From the catalog in the prompt and the suggestions beside the message."""
    catalogs = [block.text for block in request.system] + [said]
    best: SkillMatch | None = None
    for text in catalogs:
        for start, end in (place for tag in CATALOG_TAGS for place in find_blocks(text, tag)):
            for entry in _ENTRY.finditer(text[start:end]):
                found = _score(html.unescape(entry[1]), html.unescape(entry[2] or ""), said, wanted)
                if found.score >= 2.0 and (best is None or _is_better(found, best)):
                    best = found
    return best


def _is_better(found: SkillMatch, than: SkillMatch) -> bool:
    """Of equal ones, a team's own is nearer to whoever works in it."""
    return (found.score, "/" in found.name) > (than.score, "/" in than.name)


def _score(name: str, description: str, said: str, wanted: set[str]) -> SkillMatch:
    parts = stem_words(name.replace("-", " ").replace(":", " "))
    in_name = {word for word in wanted if any(share_stem(word, part) for part in parts)}
    in_description = (wanted & stem_words(description)) - in_name
    score = 2.0 * len(in_name) + len(in_description)
    if re.search(rf"(?<![\w-]){re.escape(name.lower())}(?![\w-])", typed_text(said).lower()):
        score += 10
    return SkillMatch(name, sorted(in_name | in_description), score)


def find_test_command(talk: OfflineConversation, readme: bool = True) -> DocumentedCommand | None:
    """Of the skill that was loaded last and tells one; else of README.md, where that was read for it."""
    for block in _loaded_skills(talk.request):
        command = find_labeled_command(block)
        if command:
            name = _NAME.match(block)
            return DocumentedCommand(command, f"the skill {html.unescape(name[1])}" if name else "a skill")
    for step in _readme_reads(talk) if readme else []:
        command = find_labeled_command(_NUMBERED.sub("", step.text)) if not step.is_error else ""
        if command:
            return DocumentedCommand(command, README)
    return None


def read_readme_calls(talk: OfflineConversation) -> list[ToolCall]:
    """Reads it, whole and once, for what it says about the tests."""
    return [talk.make_call("Read", file_path=README)] if "Read" in talk.tools and not _readme_reads(talk) else []


def _readme_reads(talk: OfflineConversation) -> list[ToolStep]:
    return [step for step in talk.steps_of("Read") if step.path == README and "limit" not in step.call.arguments]


def _loaded_skills(request: ModelRequest) -> Iterator[str]:
    """The newest first. Only what came as a skill counts, not what a file says it is."""
    texts = [block.text for block in request.system]
    skill_calls = {call.id for message in request.messages for call in message.calls if call.name == "Skill"}
    for message in request.messages:
        texts += [message.text] if message.role == "user" else []
        for result in message.results:
            if result.call_id in skill_calls and not result.is_error:
                texts += [part.text for part in result.content if isinstance(part, Text)]
    for text in reversed(texts):
        for start, end in reversed(list(find_blocks(text, _SKILL_TAG))):
            yield text[start:end]


def find_labeled_command(text: str) -> str:
    """Empty when there is none."""
    said: list[str] = []
    fence, shell = "", False
    body: list[str] = []
    is_apart = False
    for row in text.splitlines():
        mark = _FENCE.match(row)
        if fence and (mark is None or mark[2] or not mark[1].startswith(fence)):
            body.append(row.strip())
        elif fence:
            rows = [line.removeprefix("$ ") for line in body if line and not line.startswith("#")]
            if shell and len(rows) == 1 and not rows[0].endswith("\\") and _is_label(said):
                return rows[0]
            fence, said = "", []
        elif mark is not None:
            fence, shell, body = mark[1], mark[2].lower() in _SHELLS, []
        elif row.strip():
            said = [row.strip()[:500]] if is_apart else [*said[-5:], row.strip()[:500]]
        is_apart = not row.strip() or row.startswith("#")
    return ""


def _is_label(paragraph: list[str]) -> bool:
    """Its last sentence speaks of running the tests, and not of leaving it."""
    sentence = _SENTENCES.split(" ".join(paragraph))[-1]
    return bool(_LABEL.search(sentence)) and not _UNLESS.search(sentence)
