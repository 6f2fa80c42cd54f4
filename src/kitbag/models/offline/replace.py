"""Replaces a word in many files, through tools: search, read, edit each file, search again, run the tests.

Replaces whole words only: `total`, but not in `total_cents`. Edit replaces plain text, so if a file has both, the edit
includes the character before or after the word to tell them apart. Used by offline.model.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from kitbag.messages import Part, Text, ToolCall
from kitbag.models.offline.commands import ReplaceRequest
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
from kitbag.models.offline.run_command import describe_denials, describe_run
from kitbag.models.offline.skills import find_test_command, load_skill_calls, read_readme_calls

MAX_FILES: Final = 100
_BATCH_SIZE: Final = 20
_MAX_LINES: Final = 2_000
_READ_LINES, _MAX_LISTED = 7, 30
_CUT: Final = " [line truncated]"
_NOT_ALL: Final = "head_limit"


class _File(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    lines: tuple[int, ...]
    """Line numbers with the word."""
    places: int
    edits: tuple[tuple[str, str], ...]
    """(old, new) pairs that together change these occurrences and no others."""
    problem: str = ""
    """Why the file is not changed."""


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    files: tuple[_File, ...]
    """Files to change."""
    skipped: tuple[_File, ...]
    config_paths: tuple[str, ...]
    """Configuration files, changed only if the user names their directory."""
    notes: tuple[str, ...]


def next_replace_step(request: ReplaceRequest, conversation: OfflineConversation) -> list[Part]:
    if "Grep" not in conversation.tools:
        return [_answer("Nothing was done: Grep is not available in this run.")]
    if request.old == request.new:
        return [_answer(f"Nothing was done: {code_span(request.old)} would be replaced with itself.")]
    paths = request.paths or ("",)
    searches = conversation.steps_of("Grep")
    if not searches:
        return [*load_skill_calls(conversation), *_search_calls(request, conversation)]
    first, again = searches[: len(paths)], searches[len(paths) :]
    plan = _plan(request, first)
    if isinstance(plan, str):
        return [_answer(plan)]
    edits = conversation.steps_of("Edit")
    if not again and "Edit" in conversation.tools:
        calls = _next_edits(plan, conversation, edits)
        if calls:
            return list(calls)
    changed = any(not step.is_error for step in edits)
    if changed:
        calls = _check_calls(request, conversation, searched=bool(again))
        if calls:
            return list(calls)
    return [_answer(*_report(request, plan, conversation, again))]


def _answer(*pieces: str) -> Text:
    return Text("\n\n".join([FIXED_RULES_LINE, *(piece for piece in pieces if piece)]))


def _search_calls(request: ReplaceRequest, conversation: OfflineConversation) -> list[ToolCall]:
    """Searches for the text; whether it is a whole word is checked per line."""
    common = {"pattern": escape_regex(request.old), "output_mode": "content", "numbers": True, "head_limit": _MAX_LINES}
    return [
        conversation.make_call("Grep", **common, **({"path": path} if path else {})) for path in request.paths or ("",)
    ]


def _next_edits(plan: _Plan, conversation: OfflineConversation, edits: list[ToolStep]) -> list[ToolCall]:
    """Reads, then edits one batch of files. Stops if all edits so far were denied."""
    if edits and all(step.is_denied for step in edits):
        return []
    read = {step.path for step in conversation.steps_of("Read")}
    edited = {step.path for step in edits}
    batch = [file for file in plan.files if file.path not in edited][:_BATCH_SIZE]
    unread = [file for file in batch if file.path not in read]
    if unread and "Read" in conversation.tools:
        return [
            conversation.make_call("Read", file_path=file.path, offset=max(1, file.lines[0] - 3), limit=_READ_LINES)
            for file in unread
        ]
    return [
        conversation.make_call("Edit", file_path=file.path, old_string=old, new_string=new, replace_all=True)
        for file in batch
        for old, new in file.edits
    ]


def _check_calls(request: ReplaceRequest, conversation: OfflineConversation, searched: bool) -> list[ToolCall]:
    """Searches for remaining occurrences and runs the tests."""
    calls = [] if searched else _search_calls(request, conversation)
    if conversation.steps_of("Bash") or "Bash" not in conversation.tools:
        return calls
    test_command = find_test_command(conversation, readme=request.run_tests)
    if test_command is not None:
        return [*calls, conversation.make_call("Bash", command=test_command.command, description="Run the tests")]
    return [*calls, *(read_readme_calls(conversation) if request.run_tests else ())]


# Planning


def _plan(request: ReplaceRequest, searches: Sequence[ToolStep]) -> _Plan | str:
    """The plan, or a message why nothing can be done."""
    failed = next((step for step in searches if step.is_error), None)
    if failed is not None:
        return f"Nothing was changed: the search failed. {failed.problem}"
    hits, notes = parse_hits(step.text for step in searches)
    if any(_NOT_ALL in note for note in notes):
        return f"Nothing was changed: too many lines contain {code_span(request.old)}. Specify where: `... in FOLDER`."
    includes_config = any(is_config_path(path) for path in request.paths)
    by_path: dict[str, list[GrepHit]] = {}
    for hit in hits:
        by_path.setdefault(hit.path, []).append(hit)
    files = [
        _plan_file(request, path, path_hits)
        for path, path_hits in by_path.items()
        if includes_config or not is_config_path(path)
    ]
    files = [file for file in files if file.places or file.problem]
    config_paths = [
        path
        for path, path_hits in by_path.items()
        if not includes_config and is_config_path(path) and _count_words(request, path_hits)
    ]
    if not files:
        hint = f" It occurs in {', '.join(config_paths[:3])}, which must be named explicitly." if config_paths else ""
        return (
            f"Nothing was changed: no file {_format_paths(request)} contains the word {code_span(request.old)}.{hint}"
        )
    if len(files) > MAX_FILES:
        limit = f"the limit is {MAX_FILES} files. Specify where: `... in FOLDER`."
        return f"Nothing was changed: {len(files):,} files contain {code_span(request.old)}; {limit}"
    changeable, unchangeable = [file for file in files if not file.problem], [file for file in files if file.problem]
    return _Plan(
        files=tuple(changeable), skipped=tuple(unchangeable), config_paths=tuple(config_paths), notes=tuple(notes)
    )


def _plan_file(request: ReplaceRequest, path: str, hits: list[GrepHit]) -> _File:
    if any(hit.text.endswith(_CUT) for hit in hits):
        return _File(
            path=path,
            lines=tuple(hit.line for hit in hits),
            places=0,
            edits=(),
            problem="its lines are too long to match whole words",
        )
    words: list[tuple[str, str]] = []
    parts: list[tuple[str, str]] = []
    lines: list[int] = []
    for hit in hits:
        occurrences = _occurrences(request, hit)
        words += [(occurrence.before, occurrence.after) for occurrence in occurrences if occurrence.is_word]
        parts += [(occurrence.before, occurrence.after) for occurrence in occurrences if not occurrence.is_word]
        lines += [hit.line] if any(occurrence.is_word for occurrence in occurrences) else []
    if not parts:
        return _File(path=path, lines=tuple(lines), places=len(words), edits=((request.old, request.new),))
    edits = dict.fromkeys(_distinguishing_context(before, after, parts) for before, after in words)
    edit_pairs = tuple(
        (f"{occurrence[0]}{request.old}{occurrence[1]}", f"{occurrence[0]}{request.new}{occurrence[1]}")
        for occurrence in edits
        if occurrence is not None
    )
    problem = "" if edit_pairs or not words else "it also occurs inside longer words that cannot be distinguished"
    return _File(path=path, lines=tuple(lines), places=len(words), edits=edit_pairs, problem=problem)


class _Occurrence(NamedTuple):
    is_word: bool
    before: str
    """The character before it; empty at the start of the file."""
    after: str


def _occurrences(request: ReplaceRequest, hit: GrepHit) -> list[_Occurrence]:
    """Occurrences inside the new name don't count as words: `total` in `order.total`."""
    old, new, text = request.old, request.new, hit.text
    new_spans = [at.span() for at in re.finditer(re.escape(new), text)] if old in new else []
    found: list[_Occurrence] = []
    for match in re.finditer(re.escape(old), text):
        start, end = match.span()
        before = text[start - 1] if start else ("\n" if hit.line > 1 else "")
        after = text[end] if end < len(text) else "\n"
        is_part_of_word = (_is_word_character(before) and _is_word_character(old[0])) or (
            _is_word_character(after) and _is_word_character(old[-1])
        )
        is_inside_new = any(first <= start and end <= last for first, last in new_spans)
        found.append(_Occurrence(not is_part_of_word and not is_inside_new, before, after))
    return found


def _is_word_character(character: str) -> bool:
    return character.isalnum() or character == "_"


def _distinguishing_context(before: str, after: str, parts: list[tuple[str, str]]) -> tuple[str, str] | None:
    """The fewest characters around the word that no longer word also has; None if there are none."""
    if after and all(after != other for _, other in parts):
        return "", after
    if before and all(before != other for other, _ in parts):
        return before, ""
    if before and after and (before, after) not in parts:
        return before, after
    return None


def _count_words(request: ReplaceRequest, hits: Sequence[GrepHit]) -> int:
    return sum(occurrence.is_word for hit in hits for occurrence in _occurrences(request, hit))


# Reporting


def _report(
    request: ReplaceRequest, plan: _Plan, conversation: OfflineConversation, again: list[ToolStep]
) -> list[str]:
    edits = conversation.steps_of("Edit")
    failed = {step.path for step in edits if step.is_error}
    changed = [file for file in plan.files if any(step.path == file.path and not step.is_error for step in edits)]
    replacement = (
        f"{code_span(request.old)} with {code_span(request.new)}"
        if request.new
        else f"{code_span(request.old)} with nothing"
    )
    if not changed:
        found = (
            f"{format_count(sum(file.places for file in plan.files), 'place')} in"
            f" {format_count(len(plan.files), 'file')}"
        )
        return [
            f"Nothing was changed. Replacing {replacement} {_format_paths(request)} would change {found}:",
            _list_files(plan.files),
            _explain_no_change(conversation, edits),
            _list_skipped(plan),
        ]
    remaining, verification = _verify(request, again, plan)
    count = sum(file.places for file in changed)
    files = format_count(len(changed), "file")
    summary = f"Replaced {replacement} {_format_paths(request)}: {format_count(count, 'place')} in {files}."
    if remaining:
        summary = f"Replaced {replacement} {_format_paths(request)}, in {files}, but not everywhere."
    problems = [
        f"- {step.path}: {step.problem}" for step in edits if step.is_error and step.path in failed and remaining
    ]
    return [
        summary,
        _list_files(changed),
        verification,
        "\n".join(dict.fromkeys(problems)),
        describe_denials(edits) if remaining else "",
        _list_skipped(plan),
        describe_run(conversation, find_test_command(conversation, request.run_tests), request.run_tests),
        "Run `kitbag undo` to review and undo the changes.",
    ]


def _format_paths(request: ReplaceRequest) -> str:
    return f"in {' and '.join(request.paths)}" if request.paths else "here"


def _list_files(files: Sequence[_File]) -> str:
    rows = [f"- {file.path}: {_format_lines(file.lines)}" for file in files[:_MAX_LISTED]]
    more = len(files) - _MAX_LISTED
    return "\n".join([*rows, f"- and {format_count(more, 'more file')}"] if more > 0 else rows)


def _format_lines(lines: tuple[int, ...]) -> str:
    listed = ", ".join(str(line) for line in lines[:12])
    return f"line {listed}" if len(lines) == 1 else f"lines {listed}{' ...' if len(lines) > 12 else ''}"


def _explain_no_change(conversation: OfflineConversation, edits: list[ToolStep]) -> str:
    if "Edit" not in conversation.tools:
        return "Edit is not available in this run: the mode, the agent or --allowed-tools excludes it."
    return describe_denials(edits) or "\n".join(f"- {step.path}: {step.problem}" for step in edits if step.is_error)


def _verify(request: ReplaceRequest, again: list[ToolStep], plan: _Plan) -> tuple[int, str]:
    """The number of remaining occurrences, and the result of the second search as text."""
    if not again or any(step.is_error for step in again):
        return 0, "Remaining occurrences were not checked."
    hits, notes = parse_hits(step.text for step in again)
    hits = [hit for hit in hits if hit.path not in plan.config_paths]
    remaining = [hit for hit in hits if _count_words(request, [hit])]
    if not remaining:
        notes_text = f" ({'; '.join(notes)})" if notes else ""
        return 0, f"A second search found no remaining occurrences{notes_text}."
    rows = [f"- {hit.path}:{hit.line}: {code_span(hit.text.strip()[:120])}" for hit in remaining[:_MAX_LISTED]]
    return len(remaining), "\n".join(["Remaining:", "", *rows])


def _list_skipped(plan: _Plan) -> str:
    rows = [f"- {file.path}: {file.problem}" for file in plan.skipped[:_MAX_LISTED]]
    if plan.config_paths:
        names = ", ".join(plan.config_paths[:5])
        rows.append(f"- {names}: files of skills, agents and tools are changed only if you name their directory")
    return "\n".join(["Not changed:", "", *rows]) if rows else ""
