"""Selects a skill for the offline model by shared words, and finds the test command that a skill or README documents.

A command is taken only if it is clearly labeled: a fenced block of one line below a line such as `Run the tests:` or
`## Tests`. Used by offline.model, replace and run_command.
"""

import html
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from kitbag.library.routing.agent_search import find_topic_words, share_stem
from kitbag.library.routing.description_search import score_descriptions
from kitbag.library.routing.light_stems import light_stems
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
    light_stems(
        "what which where who why does did do can could would should please show tell find give make want need help me"
        " my our your have has about into file files code project repository repo work works there here"
    )
)
_NAMED_SCORE: Final = 10.0
_CLEAR_SCORE, _CLEAR_RANK = 3.0, 9.0
"""Shared words, or the ranking of skills over name and description: one generic verb reaches neither."""


class CatalogSkillMatch(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    words: list[str]
    score: float


class DocumentedCommand(msgspec.Struct, frozen=True, kw_only=True):
    command: str
    source: str
    """Where it is documented, for users."""


def significant_words(text: str) -> set[str]:
    return light_stems(text) - _EMPTY_WORDS


def match_skill(conversation: OfflineConversation) -> CatalogSkillMatch | None:
    """The best skill for the request; None if there is none or the user already invoked one."""
    if "Skill" not in conversation.tools or f"<{_SKILL_TAG}" in conversation.message:
        return None
    return best_skill(conversation.request, conversation.message, find_topic_words(conversation.prompt) - _EMPTY_WORDS)


def load_skill_calls(conversation: OfflineConversation, match: CatalogSkillMatch | None = None) -> list[ToolCall]:
    """The call that loads the skill, with a reason."""
    match = match or match_skill(conversation)
    if match is None:
        return []
    reason = f"the prompt contains: {', '.join(match.words)}" if match.words else "the prompt names it"
    return [conversation.make_call("Skill", skill=match.name, reason=reason)]


def parse_skill_catalog(request: ModelRequest, message: str) -> dict[str, str]:
    """Name to description."""
    entries: dict[str, str] = {}
    for text in [*(block.text for block in request.system), message]:
        for start, end in (span for tag in CATALOG_TAGS for span in find_blocks(text, tag)):
            for entry in _ENTRY.finditer(text[start:end]):
                entries.setdefault(html.unescape(entry[1]), html.unescape(entry[2] or ""))
    return entries


def best_skill(request: ModelRequest, message: str, keywords: set[str]) -> CatalogSkillMatch | None:
    """Searches the catalog in the prompt and the suggestions in the message."""
    entries = parse_skill_catalog(request, message)
    matches = [_score(name, description, message, keywords) for name, description in entries.items()]
    candidates = [match for match in matches if match.score > 0]
    if not candidates:
        return None
    ranks = dict(zip(entries, score_descriptions(list(entries.items()), typed_text(message)), strict=True))
    fitting = [match for match in candidates if match.score >= _CLEAR_SCORE or ranks[match.name] >= _CLEAR_RANK]
    # A skill that is named wins; on equal ranks, a team's own skill.
    return max(
        fitting,
        key=lambda match: (match.score >= _NAMED_SCORE, ranks[match.name], match.score, "/" in match.name),
        default=None,
    )


def _score(name: str, description: str, message: str, keywords: set[str]) -> CatalogSkillMatch:
    parts = light_stems(name.replace("-", " ").replace(":", " "))
    in_name = {word for word in keywords if any(share_stem(word, part) for part in parts)}
    in_description = (keywords & light_stems(description)) - in_name
    score = 2.0 * len(in_name) + len(in_description)
    if re.search(rf"(?<![\w-]){re.escape(name.lower())}(?![\w-])", typed_text(message).lower()):
        score += _NAMED_SCORE
    return CatalogSkillMatch(name=name, words=sorted(in_name | in_description), score=score)


def find_test_command(conversation: OfflineConversation, readme: bool = True) -> DocumentedCommand | None:
    """From the most recently loaded skill that documents one, else from README.md if it was read for this."""
    for block in _loaded_skills(conversation.request):
        command = find_labeled_command(block)
        if command:
            name = _NAME.match(block)
            return DocumentedCommand(
                command=command, source=f"the skill {html.unescape(name[1])}" if name else "a skill"
            )
    for step in _readme_reads(conversation) if readme else []:
        command = find_labeled_command(_NUMBERED.sub("", step.text)) if not step.is_error else ""
        if command:
            return DocumentedCommand(command=command, source=README)
    return None


def read_readme_calls(conversation: OfflineConversation) -> list[ToolCall]:
    """Reads all of README.md once, to find the test command."""
    return (
        [conversation.make_call("Read", file_path=README)]
        if "Read" in conversation.tools and not _readme_reads(conversation)
        else []
    )


def _readme_reads(conversation: OfflineConversation) -> list[ToolStep]:
    return [
        step for step in conversation.steps_of("Read") if step.path == README and "limit" not in step.call.arguments
    ]


def _loaded_skills(request: ModelRequest) -> Iterator[str]:
    """Newest first. Only blocks delivered as a skill count, not file contents that look like one."""
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
    """Empty if there is none."""
    paragraph: list[str] = []
    fence, shell = "", False
    body: list[str] = []
    starts_paragraph = False
    for row in text.splitlines():
        fence_line = _FENCE.match(row)
        if fence and (fence_line is None or fence_line[2] or not fence_line[1].startswith(fence)):
            body.append(row.strip())
        elif fence:
            rows = [line.removeprefix("$ ") for line in body if line and not line.startswith("#")]
            if shell and len(rows) == 1 and not rows[0].endswith("\\") and _is_label(paragraph):
                return rows[0]
            fence, paragraph = "", []
        elif fence_line is not None:
            fence, shell, body = fence_line[1], fence_line[2].lower() in _SHELLS, []
        elif row.strip():
            paragraph = [row.strip()[:500]] if starts_paragraph else [*paragraph[-5:], row.strip()[:500]]
        starts_paragraph = not row.strip() or row.startswith("#")
    return ""


def _is_label(paragraph: list[str]) -> bool:
    """Whether the last sentence is about running the tests, without a negation."""
    sentence = _SENTENCES.split(" ".join(paragraph))[-1]
    return bool(_LABEL.search(sentence)) and not _UNLESS.search(sentence)
