"""Writes search results with links into a Markdown file, through tools: search, check the file, write.

Overwrites an existing file only if it was written by this request before; its third line says so. Used by
offline.model.
"""

import os
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from kitbag.messages import Part, Text
from kitbag.models.offline.commands import CollectRequest
from kitbag.models.offline.conversation import (
    FIXED_RULES_LINE,
    GrepHit,
    OfflineConversation,
    ToolStep,
    code_span,
    escape_regex,
    format_count,
    is_config_path,
    parse_hits,
)
from kitbag.models.offline.run_command import describe_denials
from kitbag.models.offline.skills import significant_words

GENERATED_MARKER: Final = "<!-- Lines found by words, written by Kitbag; the same request writes this file anew. -->"
_UNCHANGED: Final = "has exactly this content already"
_MAX_LINES: Final = 2_000
_MAX_LINE: Final = 200
_MAX_LISTED: Final = 20


def next_collect_step(request: CollectRequest, conversation: OfflineConversation) -> list[Part]:
    if missing := conversation.missing_tools("Grep", "Read", "Write"):
        names = " and ".join(missing)
        verb = "is" if len(missing) == 1 else "are"
        return [_answer(f"Nothing was written: {names} {verb} not among the tools of this run.")]
    words = _search_words(request)
    if not words:
        return [_answer("Nothing was written: there is no word in the request to search for.")]
    writes = conversation.steps_of("Write")
    if not conversation.steps_of("Grep"):
        path_argument = {"path": request.path} if request.path else {}
        common = {"output_mode": "content", "numbers": True, "head_limit": _MAX_LINES}
        return [
            conversation.make_call(
                "Grep", pattern=_pattern(words, request.exact), ignore_case=not request.exact, **common, **path_argument
            ),
            conversation.make_call("Read", file_path=request.file, offset=1, limit=5),
        ]
    hits, notes = _find_hits(request, conversation)
    if not writes:
        problem = _blocking_problem(request, conversation, hits)
        if problem:
            return [_answer(f"Nothing was written: {problem}")]
        return [
            conversation.make_call("Write", file_path=request.file, content=render_page(request, words, hits, notes))
        ]
    return [_report(request, words, writes[-1], hits, notes)]


def _report(
    request: CollectRequest, words: tuple[str, ...], written: ToolStep, hits: list[GrepHit], notes: list[str]
) -> Text:
    if written.is_error:
        denials = describe_denials([written]) or written.problem
        return _answer(f"{request.file} was not written. It would have {_format_amount(hits)}.", denials)
    rows = [f"- {path}: {format_count(count, 'line')}" for path, count in _count_by_file(hits).items()]
    more = [f"- and {format_count(len(rows) - _MAX_LISTED, 'more file')}"] if len(rows) > _MAX_LISTED else []
    is_new = _UNCHANGED not in written.text
    action = f"Wrote {request.file}" if is_new else f"{request.file} is up to date"
    return _answer(
        f"{action}: {_format_amount(hits)} with {_join_words(words)}.",
        "\n".join([*rows[:_MAX_LISTED], *more]),
        f"Not all: {'; '.join(notes)}." if notes else "",
        "`kitbag undo` takes it back." if is_new else "",
    )


def _answer(*pieces: str) -> Text:
    return Text("\n\n".join([FIXED_RULES_LINE, *(piece for piece in pieces if piece)]))


def _search_words(request: CollectRequest) -> tuple[str, ...]:
    """Exact words unchanged; for a topic, stems without stop words, to match all word forms."""
    if request.exact:
        return request.words
    return tuple(dict.fromkeys(stem for word in request.words for stem in sorted(significant_words(word))))


def _pattern(words: Iterable[str], exact: bool) -> str:
    return "|".join(_whole_word(word) if exact else rf"(?:\b|_){escape_regex(word)}" for word in words)


def _whole_word(word: str) -> str:
    edges = [r"\b" if character.isalnum() or character == "_" else "" for character in (word[0], word[-1])]
    return f"{edges[0]}{escape_regex(word)}{edges[1]}"


def _find_hits(request: CollectRequest, conversation: OfflineConversation) -> tuple[list[GrepHit], list[str]]:
    """Without the output file; for a topic also without configuration files."""
    hits, notes = parse_hits(step.text for step in conversation.steps_of("Grep") if not step.is_error)
    target = os.path.normpath(request.file)
    hits = [hit for hit in hits if os.path.normpath(hit.path) != target]
    return (hits if request.exact else [hit for hit in hits if not is_config_path(hit.path)]), notes


def _blocking_problem(request: CollectRequest, conversation: OfflineConversation, hits: list[GrepHit]) -> str:
    search, file = conversation.steps_of("Grep")[0], conversation.steps_of("Read")[0]
    if search.is_error:
        return f"the search failed. {search.problem}"
    if not hits:
        location = f" in {request.path}" if request.path else ""
        return f"no line{location} has {_join_words(_search_words(request))}."
    if file.is_error and "does not exist" not in file.text:
        return f"{request.file} can't be looked at first. {file.problem}"
    if not file.is_error and GENERATED_MARKER not in file.text and not file.text.rstrip().endswith(" is empty."):
        return f"{request.file} is there already, and was not written by this. Name another file, or remove it."
    return ""


def render_page(request: CollectRequest, words: Iterable[str], hits: list[GrepHit], notes: list[str]) -> str:
    """The Markdown page, grouped by file."""
    title = _join_words(words, "and") if request.exact else " ".join(request.words)
    rows = [f"# {title}", "", GENERATED_MARKER, "", f"{_format_amount(hits).capitalize()}."]
    rows += [f"Not all: {'; '.join(notes)}."] if notes else []
    last = ""
    for hit in hits:
        if hit.path != last:
            rows += ["", f"## {hit.path}", ""]
            last = hit.path
        text = hit.text.strip()
        text = text if len(text) <= _MAX_LINE else f"{text[:_MAX_LINE]} ..."
        rows.append(
            f"- [{_escape_path(hit.path)}:{hit.line}]({_link(request.file, hit)}): {code_span(text)}" if text else ""
        )
    return "\n".join(rows) + "\n"


def _link(file: str, hit: GrepHit) -> str:
    """Relative to the output file, as repository websites expect."""
    path = hit.path
    if not os.path.isabs(path) and not os.path.isabs(file):
        path = os.path.relpath(path, os.path.dirname(file) or ".")
    return f"{quote(path, errors='replace')}#L{hit.line}"


def _escape_path(path: str) -> str:
    return "".join(f"\\{character}" if character in "\\[]`*_<>" else character for character in path)


def _count_by_file(hits: list[GrepHit]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for hit in hits:
        counts[hit.path] = counts.get(hit.path, 0) + 1
    return counts


def _format_amount(hits: list[GrepHit]) -> str:
    return f"{format_count(len(hits), 'line')} in {format_count(len(_count_by_file(hits)), 'file')}"


def _join_words(words: Iterable[str], conjunction: str = "or") -> str:
    *first, last = [code_span(word) for word in words]
    return f"{', '.join(first)} {conjunction} {last}" if first else last
