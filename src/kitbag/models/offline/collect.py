"""Writes what a search finds into a Markdown file, with links, through tools: search, look at the file, write.

Used by offline. A file that is there is written anew only when it is one of these: its third line says so.
"""

import os
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from kitbag.messages import Part, Text
from kitbag.models.offline.commands import Collect
from kitbag.models.offline.conversation import WORK_LINE, Hit, Step, Talk, code, hits_in, is_setup, literal, number_of
from kitbag.models.offline.run_command import refusals
from kitbag.models.offline.skills import wanted_words

MARK: Final = "<!-- Lines found by words, written by Kitbag; the same request writes this file anew. -->"
_SAME: Final = "has exactly this content already"
_MOST_LINES: Final = 2_000
_LONGEST_LINE: Final = 200
_MOST_TOLD: Final = 20


def next_in_collecting(wish: Collect, talk: Talk) -> list[Part]:
    if missing := talk.missing("Grep", "Read", "Write"):
        names = " and ".join(missing)
        verb = "is" if len(missing) == 1 else "are"
        return [_answer(f"Nothing was written: {names} {verb} not among the tools of this run.")]
    words = _words(wish)
    if not words:
        return [_answer("Nothing was written: there is no word in the request to search for.")]
    written = talk.of("Write")
    if not talk.of("Grep"):
        where = {"path": wish.place} if wish.place else {}
        common = {"output_mode": "content", "numbers": True, "head_limit": _MOST_LINES}
        return [
            talk.call("Grep", pattern=_pattern(words, wish.exact), ignore_case=not wish.exact, **common, **where),
            talk.call("Read", file_path=wish.file, offset=1, limit=5),
        ]
    hits, notes = _found(wish, talk)
    if not written:
        problem = _why_not(wish, talk, hits)
        if problem:
            return [_answer(f"Nothing was written: {problem}")]
        return [talk.call("Write", file_path=wish.file, content=page(wish, words, hits, notes))]
    return [_told(wish, words, written[-1], hits, notes)]


def _told(wish: Collect, words: tuple[str, ...], written: Step, hits: list[Hit], notes: list[str]) -> Text:
    if written.is_error:
        told = refusals([written]) or written.problem
        return _answer(f"{wish.file} was not written. It would have {_amount(hits)}.", told)
    rows = [f"- {path}: {number_of(count, 'line')}" for path, count in _by_file(hits).items()]
    more = [f"- and {number_of(len(rows) - _MOST_TOLD, 'more file')}"] if len(rows) > _MOST_TOLD else []
    is_new = _SAME not in written.text
    what = f"Wrote {wish.file}" if is_new else f"{wish.file} is up to date"
    return _answer(
        f"{what}: {_amount(hits)} with {_in_words(words)}.",
        "\n".join([*rows[:_MOST_TOLD], *more]),
        f"Not all: {'; '.join(notes)}." if notes else "",
        "`kitbag undo` takes it back." if is_new else "",
    )


def _answer(*pieces: str) -> Text:
    return Text("\n\n".join([WORK_LINE, *(piece for piece in pieces if piece)]))


def _words(wish: Collect) -> tuple[str, ...]:
    """As they are written; of a topic, without the small words and without endings, so that all forms are found."""
    if wish.exact:
        return wish.words
    return tuple(dict.fromkeys(stem for word in wish.words for stem in sorted(wanted_words(word))))


def _pattern(words: Iterable[str], exact: bool) -> str:
    return "|".join(_whole(word) if exact else rf"(?:\b|_){literal(word)}" for word in words)


def _whole(word: str) -> str:
    edges = [r"\b" if sign.isalnum() or sign == "_" else "" for sign in (word[0], word[-1])]
    return f"{edges[0]}{literal(word)}{edges[1]}"


def _found(wish: Collect, talk: Talk) -> tuple[list[Hit], list[str]]:
    """Without the file itself; and what is sought by a topic, without the skills and settings of tools."""
    hits, notes = hits_in(step.text for step in talk.of("Grep") if not step.is_error)
    target = os.path.normpath(wish.file)
    hits = [hit for hit in hits if os.path.normpath(hit.path) != target]
    return (hits if wish.exact else [hit for hit in hits if not is_setup(hit.path)]), notes


def _why_not(wish: Collect, talk: Talk, hits: list[Hit]) -> str:
    search, file = talk.of("Grep")[0], talk.of("Read")[0]
    if search.is_error:
        return f"the search failed. {search.problem}"
    if not hits:
        where = f" in {wish.place}" if wish.place else ""
        return f"no line{where} has {_in_words(_words(wish))}."
    if file.is_error and "does not exist" not in file.text:
        return f"{wish.file} can't be looked at first. {file.problem}"
    if not file.is_error and MARK not in file.text and not file.text.rstrip().endswith(" is empty."):
        return f"{wish.file} is there already, and was not written by this. Name another file, or remove it."
    return ""


def page(wish: Collect, words: Iterable[str], hits: list[Hit], notes: list[str]) -> str:
    """Markdown, grouped by file."""
    title = _in_words(words, "and") if wish.exact else " ".join(wish.words)
    rows = [f"# {title}", "", MARK, "", f"{_amount(hits).capitalize()}."]
    rows += [f"Not all: {'; '.join(notes)}."] if notes else []
    last = ""
    for hit in hits:
        if hit.path != last:
            rows += ["", f"## {hit.path}", ""]
            last = hit.path
        text = hit.text.strip()
        text = text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]} ..."
        rows.append(f"- [{_escaped(hit.path)}:{hit.line}]({_link(wish.file, hit)}): {code(text)}" if text else "")
    return "\n".join(rows) + "\n"


def _link(file: str, hit: Hit) -> str:
    """From the file's own folder, as pages that show repositories want it."""
    path = hit.path
    if not os.path.isabs(path) and not os.path.isabs(file):
        path = os.path.relpath(path, os.path.dirname(file) or ".")
    return f"{quote(path, errors='replace')}#L{hit.line}"


def _escaped(path: str) -> str:
    return "".join(f"\\{sign}" if sign in "\\[]`*_<>" else sign for sign in path)


def _by_file(hits: list[Hit]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for hit in hits:
        counts[hit.path] = counts.get(hit.path, 0) + 1
    return counts


def _amount(hits: list[Hit]) -> str:
    return f"{number_of(len(hits), 'line')} in {number_of(len(_by_file(hits)), 'file')}"


def _in_words(words: Iterable[str], joined: str = "or") -> str:
    *first, last = [code(word) for word in words]
    return f"{', '.join(first)} {joined} {last}" if first else last
