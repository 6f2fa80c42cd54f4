"""Replaces a word by another, through tools: search, read, edit each file, search again, run the tests.

Used by offline. Whole words only: `total` is not in `total_cents`. Edit replaces text and knows no words, so where a
file has both, what is replaced takes along the sign before or after it, which tells them apart.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from kitbag.messages import Part, Text, ToolCall
from kitbag.models.offline.commands import Replace
from kitbag.models.offline.conversation import WORK_LINE, Hit, Step, Talk, code, hits_in, is_setup, literal, number_of
from kitbag.models.offline.run_command import about_run, refusals
from kitbag.models.offline.skills import readme_call, skill_call, told_test_command

MOST_FILES: Final = 100
_AT_ONCE: Final = 20
_MOST_LINES: Final = 2_000
_READ_LINES, _MOST_TOLD = 7, 30
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
    left: tuple[_File, ...]
    setup: tuple[str, ...]
    """Files of skills, agents and tools: changed only where the person names their folder."""
    notes: tuple[str, ...]


def next_in_replacing(wish: Replace, talk: Talk) -> list[Part]:
    if "Grep" not in talk.tools:
        return [_answer("Nothing was done: Grep is not among the tools of this run.")]
    if wish.old == wish.new:
        return [_answer(f"Nothing was done: {code(wish.old)} is what it would be replaced by.")]
    places = wish.places or ("",)
    searches = talk.of("Grep")
    if not searches:
        return [*skill_call(talk), *_searches(wish, talk)]
    first, again = searches[: len(places)], searches[len(places) :]
    plan = _plan(wish, first)
    if isinstance(plan, str):
        return [_answer(plan)]
    edits = talk.of("Edit")
    if not again and "Edit" in talk.tools:
        calls = _next_edits(plan, talk, edits)
        if calls:
            return list(calls)
    changed = any(not step.is_error for step in edits)
    if changed:
        calls = _checks(wish, talk, searched=bool(again))
        if calls:
            return list(calls)
    return [_answer(*_told(wish, plan, talk, again))]


def _answer(*pieces: str) -> Text:
    return Text("\n\n".join([WORK_LINE, *(piece for piece in pieces if piece)]))


def _searches(wish: Replace, talk: Talk) -> list[ToolCall]:
    """For the letters, wherever they are: whether they are a word is told line by line."""
    common = {"pattern": literal(wish.old), "output_mode": "content", "numbers": True, "head_limit": _MOST_LINES}
    return [talk.call("Grep", **common, **({"path": place} if place else {})) for place in wish.places or ("",)]


def _next_edits(plan: _Plan, talk: Talk, edits: list[Step]) -> list[ToolCall]:
    """Some files at a time: first they are read, then changed. Where all is refused, no more is tried."""
    if edits and all(step.is_refused for step in edits):
        return []
    read = {step.path for step in talk.of("Read")}
    edited = {step.path for step in edits}
    batch = [file for file in plan.files if file.path not in edited][:_AT_ONCE]
    unread = [file for file in batch if file.path not in read]
    if unread and "Read" in talk.tools:
        return [
            talk.call("Read", file_path=file.path, offset=max(1, file.lines[0] - 3), limit=_READ_LINES)
            for file in unread
        ]
    return [
        talk.call("Edit", file_path=file.path, old_string=old, new_string=new, replace_all=True)
        for file in batch
        for old, new in file.edits
    ]


def _checks(wish: Replace, talk: Talk, searched: bool) -> list[ToolCall]:
    """Whether any is left, and whether the tests pass."""
    calls = [] if searched else _searches(wish, talk)
    if talk.of("Bash") or "Bash" not in talk.tools:
        return calls
    told = told_test_command(talk, readme=wish.tests)
    if told is not None:
        return [*calls, talk.call("Bash", command=told.command, description="Run the tests")]
    return [*calls, *(readme_call(talk) if wish.tests else ())]


# What is to be changed


def _plan(wish: Replace, searches: Sequence[Step]) -> _Plan | str:
    """A text: why nothing can be done."""
    failed = next((step for step in searches if step.is_error), None)
    if failed is not None:
        return f"Nothing was changed: the search failed. {failed.problem}"
    hits, notes = hits_in(step.text for step in searches)
    if any(_NOT_ALL in note for note in notes):
        return f"Nothing was changed: too many lines have {code(wish.old)}. Say where: `... in FOLDER`."
    names_setup = any(is_setup(place) for place in wish.places)
    by_path: dict[str, list[Hit]] = {}
    for hit in hits:
        by_path.setdefault(hit.path, []).append(hit)
    files = [_file(wish, path, found) for path, found in by_path.items() if names_setup or not is_setup(path)]
    files = [file for file in files if file.places or file.problem]
    setup = [path for path, found in by_path.items() if not names_setup and is_setup(path) and _words_in(wish, found)]
    if not files:
        beside = f" It stands in {', '.join(setup[:3])}, which are changed only by name." if setup else ""
        return f"Nothing was changed: no file {_where(wish)} has the word {code(wish.old)}.{beside}"
    if len(files) > MOST_FILES:
        most = f"I change {MOST_FILES} at most at once. Say where: `... in FOLDER`."
        return f"Nothing was changed: {len(files):,} files have {code(wish.old)}; {most}"
    ready, left = [file for file in files if not file.problem], [file for file in files if file.problem]
    return _Plan(tuple(ready), tuple(left), tuple(setup), tuple(notes))


def _file(wish: Replace, path: str, hits: list[Hit]) -> _File:
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
    edits = dict.fromkeys(_with_signs(before, after, parts) for before, after in words)
    made = tuple((f"{one[0]}{wish.old}{one[1]}", f"{one[0]}{wish.new}{one[1]}") for one in edits if one is not None)
    problem = "" if made or not words else "it is also part of longer words, which can't be told apart there"
    return _File(path, tuple(lines), len(words), made, problem)


class _Occurrence(NamedTuple):
    is_word: bool
    before: str
    """The sign before it; empty at the beginning of the file."""
    after: str


def _occurrences(wish: Replace, hit: Hit) -> list[_Occurrence]:
    """What is already part of the new name is left as it is: `total` in `order.total`."""
    old, new, text = wish.old, wish.new, hit.text
    taken = [at.span() for at in re.finditer(re.escape(new), text)] if old in new else []
    found: list[_Occurrence] = []
    for match in re.finditer(re.escape(old), text):
        start, end = match.span()
        before = text[start - 1] if start else ("\n" if hit.line > 1 else "")
        after = text[end] if end < len(text) else "\n"
        joined = (_is_letter(before) and _is_letter(old[0])) or (_is_letter(after) and _is_letter(old[-1]))
        inside = any(first <= start and end <= last for first, last in taken)
        found.append(_Occurrence(not joined and not inside, before, after))
    return found


def _is_letter(sign: str) -> bool:
    return sign.isalnum() or sign == "_"


def _with_signs(before: str, after: str, parts: list[tuple[str, str]]) -> tuple[str, str] | None:
    """The fewest signs around the word that no longer word has too. None: there are none."""
    if after and all(after != other for _, other in parts):
        return "", after
    if before and all(before != other for other, _ in parts):
        return before, ""
    if before and after and (before, after) not in parts:
        return before, after
    return None


def _words_in(wish: Replace, hits: Sequence[Hit]) -> int:
    return sum(one.is_word for hit in hits for one in _occurrences(wish, hit))


# What is told


def _told(wish: Replace, plan: _Plan, talk: Talk, again: list[Step]) -> list[str]:
    edits = talk.of("Edit")
    failed = {step.path for step in edits if step.is_error}
    done = [file for file in plan.files if any(step.path == file.path and not step.is_error for step in edits)]
    what = f"{code(wish.old)} by {code(wish.new)}" if wish.new else f"{code(wish.old)} by nothing"
    if not done:
        found = f"{number_of(sum(file.places for file in plan.files), 'place')} in {number_of(len(plan.files), 'file')}"
        return [
            f"Nothing was changed. To replace {what} {_where(wish)} would change {found}:",
            _listed(plan.files),
            _why_not(talk, edits),
            _left_out(plan),
        ]
    rest, proof = _proof(wish, again, plan)
    count = sum(file.places for file in done)
    files = number_of(len(done), "file")
    head = f"Replaced {what} {_where(wish)}: {number_of(count, 'place')} in {files}."
    if rest:
        head = f"Replaced {what} {_where(wish)}, in {files}, but not everywhere."
    problems = [f"- {step.path}: {step.problem}" for step in edits if step.is_error and step.path in failed and rest]
    return [
        head,
        _listed(done),
        proof,
        "\n".join(dict.fromkeys(problems)),
        refusals(edits) if rest else "",
        _left_out(plan),
        about_run(talk, told_test_command(talk, wish.tests), wish.tests),
        "`kitbag undo` shows what was changed and takes it back.",
    ]


def _where(wish: Replace) -> str:
    return f"in {' and '.join(wish.places)}" if wish.places else "here"


def _listed(files: Sequence[_File]) -> str:
    rows = [f"- {file.path}: {_lines(file.lines)}" for file in files[:_MOST_TOLD]]
    more = len(files) - _MOST_TOLD
    return "\n".join([*rows, f"- and {number_of(more, 'more file')}"] if more > 0 else rows)


def _lines(lines: tuple[int, ...]) -> str:
    shown = ", ".join(str(line) for line in lines[:12])
    return f"line {shown}" if len(lines) == 1 else f"lines {shown}{' ...' if len(lines) > 12 else ''}"


def _why_not(talk: Talk, edits: list[Step]) -> str:
    if "Edit" not in talk.tools:
        return "Edit is not among the tools of this run: the mode, an agent or --allowed-tools leaves it out."
    return refusals(edits) or "\n".join(f"- {step.path}: {step.problem}" for step in edits if step.is_error)


def _proof(wish: Replace, again: list[Step], plan: _Plan) -> tuple[int, str]:
    """How many are left, and what the second search says about it."""
    if not again or any(step.is_error for step in again):
        return 0, "Whether any is left was not searched for."
    hits, notes = hits_in(step.text for step in again)
    hits = [hit for hit in hits if hit.path not in plan.setup]
    rest = [hit for hit in hits if _words_in(wish, [hit])]
    if not rest:
        seen = f" ({'; '.join(notes)})" if notes else ""
        return 0, f"A second search found none left{seen}."
    rows = [f"- {hit.path}:{hit.line}: {code(hit.text.strip()[:120])}" for hit in rest[:_MOST_TOLD]]
    return len(rest), "\n".join(["Still there:", "", *rows])


def _left_out(plan: _Plan) -> str:
    rows = [f"- {file.path}: {file.problem}" for file in plan.left[:_MOST_TOLD]]
    if plan.setup:
        names = ", ".join(plan.setup[:5])
        rows.append(f"- {names}: files of skills, agents and tools are changed only where you name their folder")
    return "\n".join(["Left as they are:", "", *rows]) if rows else ""
