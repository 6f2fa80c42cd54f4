"""How the offline model looks for something: search by words and by numbers, read the best files, and what they name.

Used by offline. Everything goes through Grep, Glob and Read, and follows from what came of the calls before.
"""

import os
import re
from collections.abc import Iterable
from typing import Final

from kitbag.library.routing.agent_search import find_paths
from kitbag.library.routing.skill_search import stem_words
from kitbag.messages import ToolCall
from kitbag.models.offline.conversation import GrepHit, OfflineConversation, ToolStep, is_config_path, parse_hits

_NAME = re.compile(r"[\w./-]{3,}")
_NUMBER = re.compile(r"(?<![\w#])#(\d{1,9})(?!\w)")
_ROW = re.compile(r"^ *\d+\t", re.MULTILINE)
README_PATTERN: Final = "README*"
_FILES, _READ_LINES, _RECORD_LINES, _MOST_NAMED, _MOST_WORDS = 2, 16, 60, 4, 4


def search_words(talk: OfflineConversation, wanted: set[str]) -> list[str]:
    """As they are written, the longest first: short words are everywhere."""
    spoken = _NAME.findall(talk.prompt)
    kept = [word.strip(".-/") for word in spoken if stem_words(word) & wanted and len(word) > 3]
    return sorted(dict.fromkeys(kept), key=len, reverse=True)[:_MOST_WORDS]


def first_search_calls(talk: OfflineConversation, wanted: set[str]) -> list[ToolCall]:
    named = find_paths(talk.prompt)[:_FILES]
    if "Read" in talk.tools and named:
        return [_read_call(talk, path, 1) for path in named]
    calls: list[ToolCall] = []
    patterns = [rf"\b{number}\b" for number in _issue_numbers(talk)]
    patterns += [re.escape(word) for word in search_words(talk, wanted)]
    if "Grep" in talk.tools and patterns:
        common = {"output_mode": "content", "ignore_case": True, "numbers": True, "head_limit": 200}
        calls.append(talk.make_call("Grep", pattern="|".join(patterns), **common))
    if "Glob" in talk.tools:
        calls += [talk.make_call("Glob", pattern=f"**/*{number}*") for number in _issue_numbers(talk)]
    return calls


def next_read_calls(talk: OfflineConversation, wanted: set[str]) -> list[ToolCall]:
    """Files to read, once for what was found, and once more for what a record that was found by its number names."""
    if "Read" not in talk.tools:
        return []
    records = _numbered_files(talk)
    read = talk.steps_of("Read")
    if not read:
        if records:
            return [_read_call(talk, path, 1, _RECORD_LINES) for path in records]
        found = _best_files(matching_lines(talk), wanted) or [(path, 1) for path in _readme_files(talk)]
        return [_read_call(talk, path, line) for path, line in found]
    seen = {step.path for step in read}
    if not records or seen != set(records):
        return []
    texts = "\n".join(_ROW.sub("", step.text) for step in read if not step.is_error)
    more = [path for path in find_paths(texts) if path not in seen]
    return [_read_call(talk, path, 1, _RECORD_LINES) for path in more[:_MOST_NAMED]]


def matching_lines(talk: OfflineConversation) -> list[GrepHit]:
    """Without skills, agents and settings, where anything else was found: the catalog was searched already. None where
    a record was found by its number: words say less."""
    if _numbered_files(talk):
        return []
    found, _ = parse_hits(step.text for step in talk.steps_of("Grep") if not step.is_error)
    hits = [hit._replace(text=hit.text.strip()) for hit in found]
    return [hit for hit in hits if not is_config_path(hit.path)] or hits


def _issue_numbers(talk: OfflineConversation) -> list[str]:
    """`#456`: of an incident, a pull request, an issue."""
    return list(dict.fromkeys(_NUMBER.findall(talk.prompt)))[:_FILES]


def _numbered_files(talk: OfflineConversation) -> list[str]:
    """Files that have such a number for a name or in it."""
    numbers = "|".join(_issue_numbers(talk))
    if not numbers:
        return []
    named = re.compile(rf"(?<!\d)(?:{numbers})(?!\d)")
    rows = [row for step in _glob_steps(talk) for row in step.text.splitlines()]
    found = [row for row in rows if not is_config_path(row) and named.search(os.path.basename(row)) and _is_path(row)]
    return sorted(found, key=lambda path: (len(path), path))[:_FILES]


def _is_path(row: str) -> bool:
    return row in find_paths(row)


def _readme_files(talk: OfflineConversation) -> list[str]:
    rows = [row for step in _glob_steps(talk) for row in step.text.splitlines()]
    return [row for row in rows if row.startswith("README")][:_FILES]


def _glob_steps(talk: OfflineConversation) -> list[ToolStep]:
    return [step for step in talk.steps_of("Glob") if not step.is_error]


def _read_call(talk: OfflineConversation, path: str, line: int, limit: int = _READ_LINES) -> ToolCall:
    return talk.make_call("Read", file_path=path, offset=max(1, line - 5), limit=limit)


def _best_files(hits: Iterable[GrepHit], wanted: set[str]) -> list[tuple[str, int]]:
    """The files whose lines and names cover most of the request, each with its best line."""
    covered: dict[str, set[str]] = {}
    lines: dict[str, tuple[int, int]] = {}
    for path, line, text in hits:
        shared = stem_words(text) & wanted
        covered.setdefault(path, stem_words(os.path.basename(path)) & wanted).update(shared)
        if len(shared) > lines.get(path, (-1, 0))[0]:
            lines[path] = (len(shared), line)
    order = sorted(covered, key=lambda path: (is_config_path(path), -len(covered[path]), -lines[path][0], path))
    return [(path, lines[path][1]) for path in order[:_FILES]]
