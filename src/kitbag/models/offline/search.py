"""Search steps of the offline model: search by words and numbers, read the best files and the files they name.

Works through Grep, Glob and Read only; each step depends on the results before. Used by offline.model.
"""

import os
import re
from collections.abc import Iterable
from typing import Final

import msgspec

from kitbag.library.routing.agent_search import find_paths
from kitbag.library.routing.light_stems import light_stems
from kitbag.messages import ToolCall
from kitbag.models.offline.conversation import GrepHit, OfflineConversation, ToolStep, is_config_path, parse_hits

_NAME = re.compile(r"[\w./-]{3,}")
_NUMBER = re.compile(r"(?<![\w#])#(\d{1,9})(?!\w)")
_ROW = re.compile(r"^ *\d+\t", re.MULTILINE)
README_PATTERN: Final = "README*"
SEARCH_MS: Final = 2_000
"""A greeting in a huge directory must not take longer; what is cut is reported."""
_FILES, _READ_LINES, _RECORD_LINES, _MOST_NAMED, _MOST_WORDS, _RARE_FILES = 2, 16, 60, 4, 4, 5


def search_words(conversation: OfflineConversation, keywords: set[str]) -> list[str]:
    """Words of the request as written, longest first: short words match too much."""
    names = _NAME.findall(conversation.prompt)
    words = [word.strip(".-/") for word in names if light_stems(word) & keywords and len(word) > 3]
    return sorted(dict.fromkeys(words), key=len, reverse=True)[:_MOST_WORDS]


def first_search_calls(conversation: OfflineConversation, keywords: set[str]) -> list[ToolCall]:
    paths = find_paths(conversation.prompt)[:_FILES]
    if "Read" in conversation.tools and paths:
        return [_read_call(conversation, path, 1) for path in paths]
    calls: list[ToolCall] = []
    patterns = [rf"\b{number}\b" for number in issue_numbers(conversation)]
    patterns += [re.escape(word) for word in search_words(conversation, keywords)]
    if "Grep" in conversation.tools and patterns:
        common = {
            "timeout": SEARCH_MS,
            "output_mode": "content",
            "ignore_case": True,
            "numbers": True,
            "head_limit": 200,
        }
        calls.append(conversation.make_call("Grep", pattern="|".join(patterns), **common))
    if "Glob" in conversation.tools:
        numbers = issue_numbers(conversation)
        calls += [conversation.make_call("Glob", pattern=f"**/*{one}*", timeout=SEARCH_MS) for one in numbers]
    return calls


def next_read_calls(
    conversation: OfflineConversation, keywords: set[str], *, only_rare: bool = False
) -> list[ToolCall]:
    """Files to read: first the search results, then the files that a numbered file names."""
    if "Read" not in conversation.tools:
        return []
    numbered = _numbered_files(conversation)
    read = conversation.steps_of("Read")
    if not read:
        if numbered:
            return [_read_call(conversation, path, 1, _RECORD_LINES) for path in numbered]
        best_files = _best_files(matching_lines(conversation, keywords, only_rare=only_rare), keywords) or [
            (path, 1) for path in _readme_files(conversation)
        ]
        return [_read_call(conversation, path, line) for path, line in best_files]
    read_paths = {step.path for step in read}
    if not numbered or read_paths != set(numbered):
        return []
    texts = "\n".join(_ROW.sub("", step.text) for step in read if not step.is_error)
    more = [path for path in find_paths(texts) if path not in read_paths]
    return [_read_call(conversation, path, 1, _RECORD_LINES) for path in more[:_MOST_NAMED]]


def matching_lines(conversation: OfflineConversation, keywords: set[str], *, only_rare: bool = False) -> list[GrepHit]:
    """Grep results without configuration files, unless there are no others: the catalogs already cover those. Empty if
    a file was found by number, which is a better match than words. `only_rare`: beside an answer from a skill."""
    if _numbered_files(conversation):
        return []
    all_hits, _ = parse_hits(step.text for step in conversation.steps_of("Grep") if not step.is_error)
    hits = [msgspec.structs.replace(hit, text=hit.text.strip()) for hit in all_hits]
    hits = [hit for hit in hits if not is_config_path(hit.path)] or hits
    return _with_rare_words(hits, keywords) if only_rare else hits


def _with_rare_words(hits: list[GrepHit], keywords: set[str]) -> list[GrepHit]:
    """Without words that many files contain: those say nothing about the request."""
    stems = [light_stems(hit.text) & keywords for hit in hits]
    files: dict[str, set[str]] = {}
    for hit, words in zip(hits, stems, strict=True):
        for word in words:
            files.setdefault(word, set()).add(hit.path)
    rare = {word for word, paths in files.items() if len(paths) <= _RARE_FILES}
    return [hit for hit, words in zip(hits, stems, strict=True) if words & rare]


def issue_numbers(conversation: OfflineConversation) -> list[str]:
    """`#456`: the number of an incident, pull request or issue."""
    return list(dict.fromkeys(_NUMBER.findall(conversation.prompt)))[:_FILES]


def _numbered_files(conversation: OfflineConversation) -> list[str]:
    """Files with such a number in their name."""
    numbers = "|".join(issue_numbers(conversation))
    if not numbers:
        return []
    pattern = re.compile(rf"(?<!\d)(?:{numbers})(?!\d)")
    rows = [row for step in _glob_steps(conversation) for row in step.text.splitlines()]
    paths = [row for row in rows if not is_config_path(row) and pattern.search(os.path.basename(row)) and _is_path(row)]
    return sorted(paths, key=lambda path: (len(path), path))[:_FILES]


def _is_path(row: str) -> bool:
    return row in find_paths(row)


def _readme_files(conversation: OfflineConversation) -> list[str]:
    rows = [row for step in _glob_steps(conversation) for row in step.text.splitlines()]
    return [row for row in rows if row.startswith("README")][:_FILES]


def _glob_steps(conversation: OfflineConversation) -> list[ToolStep]:
    return [step for step in conversation.steps_of("Glob") if not step.is_error]


def _read_call(conversation: OfflineConversation, path: str, line: int, limit: int = _READ_LINES) -> ToolCall:
    return conversation.make_call("Read", file_path=path, offset=max(1, line - 5), limit=limit)


def _best_files(hits: Iterable[GrepHit], keywords: set[str]) -> list[tuple[str, int]]:
    """The files whose lines and names cover most keywords, each with its best line."""
    covered: dict[str, set[str]] = {}
    lines: dict[str, tuple[int, int]] = {}
    for hit in hits:
        path, shared = hit.path, light_stems(hit.text) & keywords
        covered.setdefault(path, light_stems(os.path.basename(path)) & keywords).update(shared)
        if len(shared) > lines.get(path, (-1, 0))[0]:
            lines[path] = (len(shared), hit.line)
    order = sorted(covered, key=lambda path: (is_config_path(path), -len(covered[path]), -lines[path][0], path))
    return [(path, lines[path][1]) for path in order[:_FILES]]
