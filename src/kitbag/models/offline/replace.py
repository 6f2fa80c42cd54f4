"""Replaces a word by another, through tools: search, read, edit each file, search again, run the tests.

Used by offline. Whole words only: `total` is not in `total_cents`. Edit replaces text and knows no words, so where a
file has both, what is replaced takes along the sign before or after it, which tells them apart.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

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
_CUT: Final = " [line cut]"
_NOT_ALL: Final = "head_limit"


class _File(NamedTuple):
    path: str
    lines: tuple[int, ...]
    """Where the word stands."""
    places: int
    edits: tuple[tuple[str, str], ...]
    """Text to text; together they change these places and no others."""
    problem: str = ""
    """Why it is left as it is."""


class _Plan(NamedTuple):
    files: tuple[_File, ...]
    """To be changed."""
    skipped: tuple[_File, ...]
    config_paths: tuple[str, ...]
    """Files of skills, agents and tools: changed only where the person names their folder."""
    notes: tuple[str, ...]


def next_replace_step(request: ReplaceRequest, talk: OfflineConversation) -> list[Part]:
    if "Grep" not in talk.tools:
        return [_answer("Nothing was done: Grep is not among the tools of this run.")]
    if request.old == request.new:
        return [_answer(f"Nothing was done: {code_span(request.old)} is what it would be replaced by.")]
    places = request.paths or ("",)
    searches = talk.steps_of("Grep")
    if not searches:
        return [*load_skill_calls(talk), *_search_calls(request, talk)]
    first, again = searches[: len(places)], searches[len(places) :]
    plan = _plan(request, first)
    if isinstance(plan, str):
        return [_answer(plan)]
    edits = talk.steps_of("Edit")
    if not again and "Edit" in talk.tools:
        calls = _next_edits(plan, talk, edits)
        if calls:
            return list(calls)
    changed = any(not step.is_error for step in edits)
    if changed:
        calls = _check_calls(request, talk, searched=bool(again))
        if calls:
            return list(calls)
    return [_answer(*_report(request, plan, talk, again))]


def _answer(*pieces: str) -> Text:
    return Text("\n\n".join([FIXED_RULES_LINE, *(piece for piece in pieces if piece)]))


def _search_calls(wish: ReplaceRequest, talk: OfflineConversation) -> list[ToolCall]:
    """For the letters, wherever they are: whether they are a word is told line by line."""
    common = {"pattern": escape_regex(wish.old), "output_mode": "content", "numbers": True, "head_limit": _MAX_LINES}
    return [talk.make_call("Grep", **common, **({"path": place} if place else {})) for place in wish.paths or ("",)]


def _next_edits(plan: _Plan, talk: OfflineConversation, edits: list[ToolStep]) -> list[ToolCall]:
    """Some files at a time: first they are read, then changed. Where all is refused, no more is tried."""
    if edits and all(step.is_denied for step in edits):
        return []
    read = {step.path for step in talk.steps_of("Read")}
    edited = {step.path for step in edits}
    batch = [file for file in plan.files if file.path not in edited][:_BATCH_SIZE]
    unread = [file for file in batch if file.path not in read]
    if unread and "Read" in talk.tools:
        return [
            talk.make_call("Read", file_path=file.path, offset=max(1, file.lines[0] - 3), limit=_READ_LINES)
            for file in unread
        ]
    return [
        talk.make_call("Edit", file_path=file.path, old_string=old, new_string=new, replace_all=True)
        for file in batch
        for old, new in file.edits
    ]


def _check_calls(wish: ReplaceRequest, talk: OfflineConversation, searched: bool) -> list[ToolCall]:
    """Whether any is left, and whether the tests pass."""
    calls = [] if searched else _search_calls(wish, talk)
    if talk.steps_of("Bash") or "Bash" not in talk.tools:
        return calls
    told = find_test_command(talk, readme=wish.run_tests)
    if told is not None:
        return [*calls, talk.make_call("Bash", command=told.command, description="Run the tests")]
    return [*calls, *(read_readme_calls(talk) if wish.run_tests else ())]


# What is to be changed


def _plan(wish: ReplaceRequest, searches: Sequence[ToolStep]) -> _Plan | str:
    """A text: why nothing can be done."""
    failed = next((step for step in searches if step.is_error), None)
    if failed is not None:
        return f"Nothing was changed: the search failed. {failed.problem}"
    hits, notes = parse_hits(step.text for step in searches)
    if any(_NOT_ALL in note for note in notes):
        return f"Nothing was changed: too many lines have {code_span(wish.old)}. Say where: `... in FOLDER`."
    names_setup = any(is_config_path(place) for place in wish.paths)
    by_path: dict[str, list[GrepHit]] = {}
    for hit in hits:
        by_path.setdefault(hit.path, []).append(hit)
    files = [
        _plan_file(wish, path, found) for path, found in by_path.items() if names_setup or not is_config_path(path)
    ]
    files = [file for file in files if file.places or file.problem]
    setup = [
        path
        for path, found in by_path.items()
        if not names_setup and is_config_path(path) and _count_words(wish, found)
    ]
    if not files:
        beside = f" It stands in {', '.join(setup[:3])}, which are changed only by name." if setup else ""
        return f"Nothing was changed: no file {_format_paths(wish)} has the word {code_span(wish.old)}.{beside}"
    if len(files) > MAX_FILES:
        most = f"I change {MAX_FILES} at most at once. Say where: `... in FOLDER`."
        return f"Nothing was changed: {len(files):,} files have {code_span(wish.old)}; {most}"
    ready, left = [file for file in files if not file.problem], [file for file in files if file.problem]
    return _Plan(tuple(ready), tuple(left), tuple(setup), tuple(notes))


def _plan_file(wish: ReplaceRequest, path: str, hits: list[GrepHit]) -> _File:
    if any(hit.text.endswith(_CUT) for hit in hits):
        return _File(path, tuple(hit.line for hit in hits), 0, (), "its lines are too long to tell words apart")
    words: list[tuple[str, str]] = []
    parts: list[tuple[str, str]] = []
    lines: list[int] = []
    for hit in hits:
        found = _occurrences(wish, hit)
        words += [(one.before, one.after) for one in found if one.is_word]
        parts += [(one.before, one.after) for one in found if not one.is_word]
        lines += [hit.line] if any(one.is_word for one in found) else []
    if not parts:
        return _File(path, tuple(lines), len(words), ((wish.old, wish.new),))
    edits = dict.fromkeys(_distinguishing_context(before, after, parts) for before, after in words)
    made = tuple((f"{one[0]}{wish.old}{one[1]}", f"{one[0]}{wish.new}{one[1]}") for one in edits if one is not None)
    problem = "" if made or not words else "it is also part of longer words, which can't be told apart there"
    return _File(path, tuple(lines), len(words), made, problem)


class _Occurrence(NamedTuple):
    is_word: bool
    before: str
    """The sign before it; empty at the beginning of the file."""
    after: str


def _occurrences(wish: ReplaceRequest, hit: GrepHit) -> list[_Occurrence]:
    """What is already part of the new name is left as it is: `total` in `order.total`."""
    old, new, text = wish.old, wish.new, hit.text
    taken = [at.span() for at in re.finditer(re.escape(new), text)] if old in new else []
    found: list[_Occurrence] = []
    for match in re.finditer(re.escape(old), text):
        start, end = match.span()
        before = text[start - 1] if start else ("\n" if hit.line > 1 else "")
        after = text[end] if end < len(text) else "\n"
        joined = (_is_word_character(before) and _is_word_character(old[0])) or (
            _is_word_character(after) and _is_word_character(old[-1])
        )
        inside = any(first <= start and end <= last for first, last in taken)
        found.append(_Occurrence(not joined and not inside, before, after))
    return found


def _is_word_character(sign: str) -> bool:
    return sign.isalnum() or sign == "_"


def _distinguishing_context(before: str, after: str, parts: list[tuple[str, str]]) -> tuple[str, str] | None:
    """The fewest signs around the word that no longer word has too. None: there are none."""
    if after and all(after != other for _, other in parts):
        return "", after
    if before and all(before != other for other, _ in parts):
        return before, ""
    if before and after and (before, after) not in parts:
        return before, after
    return None


def _count_words(wish: ReplaceRequest, hits: Sequence[GrepHit]) -> int:
    return sum(one.is_word for hit in hits for one in _occurrences(wish, hit))


# What is told


def _report(wish: ReplaceRequest, plan: _Plan, talk: OfflineConversation, again: list[ToolStep]) -> list[str]:
    edits = talk.steps_of("Edit")
    failed = {step.path for step in edits if step.is_error}
    done = [file for file in plan.files if any(step.path == file.path and not step.is_error for step in edits)]
    what = f"{code_span(wish.old)} by {code_span(wish.new)}" if wish.new else f"{code_span(wish.old)} by nothing"
    if not done:
        found = (
            f"{format_count(sum(file.places for file in plan.files), 'place')} in"
            f" {format_count(len(plan.files), 'file')}"
        )
        return [
            f"Nothing was changed. To replace {what} {_format_paths(wish)} would change {found}:",
            _list_files(plan.files),
            _explain_no_change(talk, edits),
            _list_skipped(plan),
        ]
    rest, proof = _verify(wish, again, plan)
    count = sum(file.places for file in done)
    files = format_count(len(done), "file")
    head = f"Replaced {what} {_format_paths(wish)}: {format_count(count, 'place')} in {files}."
    if rest:
        head = f"Replaced {what} {_format_paths(wish)}, in {files}, but not everywhere."
    problems = [f"- {step.path}: {step.problem}" for step in edits if step.is_error and step.path in failed and rest]
    return [
        head,
        _list_files(done),
        proof,
        "\n".join(dict.fromkeys(problems)),
        describe_denials(edits) if rest else "",
        _list_skipped(plan),
        describe_run(talk, find_test_command(talk, wish.run_tests), wish.run_tests),
        "`kitbag undo` shows what was changed and takes it back.",
    ]


def _format_paths(wish: ReplaceRequest) -> str:
    return f"in {' and '.join(wish.paths)}" if wish.paths else "here"


def _list_files(files: Sequence[_File]) -> str:
    rows = [f"- {file.path}: {_format_lines(file.lines)}" for file in files[:_MAX_LISTED]]
    more = len(files) - _MAX_LISTED
    return "\n".join([*rows, f"- and {format_count(more, 'more file')}"] if more > 0 else rows)


def _format_lines(lines: tuple[int, ...]) -> str:
    shown = ", ".join(str(line) for line in lines[:12])
    return f"line {shown}" if len(lines) == 1 else f"lines {shown}{' ...' if len(lines) > 12 else ''}"


def _explain_no_change(talk: OfflineConversation, edits: list[ToolStep]) -> str:
    if "Edit" not in talk.tools:
        return "Edit is not among the tools of this run: the mode, an agent or --allowed-tools leaves it out."
    return describe_denials(edits) or "\n".join(f"- {step.path}: {step.problem}" for step in edits if step.is_error)


def _verify(wish: ReplaceRequest, again: list[ToolStep], plan: _Plan) -> tuple[int, str]:
    """How many are left, and what the second search says about it."""
    if not again or any(step.is_error for step in again):
        return 0, "Whether any is left was not searched for."
    hits, notes = parse_hits(step.text for step in again)
    hits = [hit for hit in hits if hit.path not in plan.config_paths]
    rest = [hit for hit in hits if _count_words(wish, [hit])]
    if not rest:
        seen = f" ({'; '.join(notes)})" if notes else ""
        return 0, f"A second search found none left{seen}."
    rows = [f"- {hit.path}:{hit.line}: {code_span(hit.text.strip()[:120])}" for hit in rest[:_MAX_LISTED]]
    return len(rest), "\n".join(["Still there:", "", *rows])


def _list_skipped(plan: _Plan) -> str:
    rows = [f"- {file.path}: {file.problem}" for file in plan.skipped[:_MAX_LISTED]]
    if plan.config_paths:
        names = ", ".join(plan.config_paths[:5])
        rows.append(f"- {names}: files of skills, agents and tools are changed only where you name their folder")
    return "\n".join(["Left as they are:", "", *rows]) if rows else ""
