"""The words of all skills in SQLite's full-text index, in memory: which skill has a word where, by its stem.

Used by the router, which weighs what is found. Made once for each state of the library. Raises NoIndexError where
SQLite has no FTS5. Scripts that put no blanks between words are cut into pairs of letters, in texts and in requests.
"""

import bisect
import os
import re
import threading
import weakref
from collections.abc import Iterable
from functools import cached_property
from typing import Final, NamedTuple

from kitbag.library.names import slug
from kitbag.library.registry import Registry
from kitbag.library.routing.triggers import is_pattern, read_pattern
from kitbag.library.skill_files import read_details
from kitbag.library.skills import Skill
from kitbag.text.source_files import SourceError, open_regular

COLUMNS: Final = ("name", "triggers", "summary")
_HEAD = 4_096
_FIELDS = (b"\ntrigger", b"\ntags", b"\nkeywords")
JOINED: Final = "[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]"
"""Letters that are written without blanks between words: Chinese, Japanese; and Korean, whose words grow endings."""
_JOINED = re.compile(f"{JOINED}+")
_BRITISH = re.compile(r"(?<=[iy])s(?=(?:e[drs]?|ing|ations?)$)")
_AMERICAN = re.compile(r"(?<=[iy])z(?=(?:e[drs]?|ing|ations?)$)")
_MENT = re.compile(r"ments?$")


class NoIndexError(Exception):
    """This Python has no SQLite, or its SQLite no FTS5."""


class Document(NamedTuple):
    skill: Skill
    slugs: tuple[str, str]
    """Of its name and its full name."""
    length: int
    """Words of its summary."""
    phrases: tuple[str, ...]
    """Its triggers, each as a slug."""
    patterns: "tuple[re.Pattern[str], ...]"
    """Those of its triggers that are regular expressions."""


class Where(NamedTuple):
    """In which documents a word stands, by column; documents are named by their place in the list."""

    name: frozenset[int]
    triggers: frozenset[int]
    summary: frozenset[int]

    @property
    def anywhere(self) -> frozenset[int]:
        return self.name | self.triggers | self.summary


class SearchIndex:
    def __init__(self, registry: Registry) -> None:
        try:
            import sqlite3

            self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        except ImportError as error:
            raise NoIndexError from error
        weakref.finalize(self, self._connection.close)
        self._lock = threading.Lock()
        self.documents: list[Document] = []
        rows: list[tuple[int, str, str, str]] = []
        for at, skill in enumerate(registry.skills):
            tags, triggers = _more_words(skill)
            entry = registry.manifest_entry(skill)
            triggers = (*triggers, *(entry.dispatch_triggers if entry else ()))
            name = in_pairs(f"{skill.full_name} {skill.name}" if skill.full_name != skill.name else skill.name)
            summary = in_pairs(skill.summary)
            patterns = [pattern for one in triggers if is_pattern(one) and (pattern := read_pattern(one)[0])]
            phrases = [phrase for one in triggers if (phrase := slug(one))]
            slugs = (slug(skill.name), slug(skill.full_name))
            length = summary.count(" ") + 1
            self.documents.append(Document(skill, slugs, length, tuple(phrases), tuple(patterns)))
            rows.append((at, name, in_pairs(" ".join((*tags, *triggers))), summary))
        try:
            self._connection.execute(
                "CREATE VIRTUAL TABLE skills USING fts5(name, triggers, summary,"
                " tokenize = 'porter unicode61 remove_diacritics 2')"
            )
        except sqlite3.OperationalError as error:
            raise NoIndexError from error
        self._connection.executemany("INSERT INTO skills(rowid, name, triggers, summary) VALUES (?, ?, ?, ?)", rows)

    def where(self, word: str) -> Where:
        """Of a word in letters and digits. One that stands nowhere may still begin a name or a trigger: `kube` finds
        `kubernetes`."""
        asked = " OR ".join(f'"{form}"' for form in _forms(word))
        with self._lock:
            found = Where(*(self._rows(f"{column} : ({asked})") for column in COLUMNS))
        return found if len(word) < 3 or found.anywhere else self._beginning_with(word)

    def _rows(self, query: str) -> frozenset[int]:
        rows = self._connection.execute("SELECT rowid FROM skills WHERE skills MATCH ?", (query,))
        return frozenset(row[0] for row in rows)

    @cached_property
    def _beginnings(self) -> list[tuple[str, int, bool]]:
        """Each word of a name or a trigger, where it stands, and whether in a name; sorted."""
        names = [(word, at, True) for at, one in enumerate(self.documents) for word in one.slugs[1].split("-")]
        phrases = [(phrase, at) for at, one in enumerate(self.documents) for phrase in one.phrases]
        return sorted([*names, *((word, at, False) for phrase, at in phrases for word in phrase.split("-"))])

    def _beginning_with(self, word: str) -> Where:
        words = self._beginnings
        names: set[int] = set()
        triggers: set[int] = set()
        for at in range(bisect.bisect_left(words, (word, -1, False)), len(words)):
            found, document, in_name = words[at]
            if not found.startswith(word):
                break
            (names if in_name else triggers).add(document)
        return Where(frozenset(names), frozenset(triggers), frozenset())


def _forms(word: str) -> set[str]:
    """What the stems don't bring together: deploy and deployment, organise and organize."""
    forms = {word, _BRITISH.sub("z", word), _AMERICAN.sub("s", word)}
    if len(word) > 4:
        base = _MENT.sub("", word)
        forms |= {base, f"{base}ment"}
    return forms


def in_pairs(text: str) -> str:
    """`代码审查` becomes `代码 码审 审查 查`: whatever part of it is asked for is there."""
    if text.isascii():
        return text
    text = text.encode("utf-8", "replace").decode()  # half a character, which YAML can write and SQLite can't store
    return _JOINED.sub(lambda run: f" {' '.join(_pairs(run[0]))} ", text)


def _pairs(run: str) -> Iterable[str]:
    return [run[at : at + 2] for at in range(len(run))]


def pairs_asked(run: str) -> Iterable[str]:
    """Of a request: the last letter alone would be found everywhere."""
    return [run[at : at + 2] for at in range(max(1, len(run) - 1))]


def _more_words(skill: Skill) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tags and triggers. Few files have any, so only a file that may have some is read as YAML."""
    try:
        descriptor, _ = open_regular(skill.path, skill.root.boundary)
    except SourceError:
        return (), ()
    try:
        data = os.read(descriptor, _HEAD)
    except OSError:
        return (), ()
    finally:
        os.close(descriptor)
    end = data.find(b"\n---", 3)
    head = data[:end] if end >= 0 else data
    if not any(field in head for field in _FIELDS) and (end >= 0 or len(data) < _HEAD):
        return (), ()
    details = read_details(skill)
    return details.tags, details.triggers
