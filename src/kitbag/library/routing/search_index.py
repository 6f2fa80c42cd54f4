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

from kitbag.library.names import slugify
from kitbag.library.registry import Registry
from kitbag.library.routing.triggers import compile_trigger, is_regex_trigger
from kitbag.library.skill_files import read_skill_details
from kitbag.library.skills import Skill
from kitbag.text.source_files import SourceError, open_regular_file

INDEX_COLUMNS: Final = ("name", "triggers", "summary")
_FRONTMATTER_BYTES = 4_096
_KEYWORD_FIELDS = (b"\ntrigger", b"\ntags", b"\nkeywords")
UNSPACED_LETTERS: Final = "[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]"
"""Letters that are written without blanks between words: Chinese, Japanese; and Korean, whose words grow endings."""
_UNSPACED_RUN = re.compile(f"{UNSPACED_LETTERS}+")
_BRITISH = re.compile(r"(?<=[iy])s(?=(?:e[drs]?|ing|ations?)$)")
_AMERICAN = re.compile(r"(?<=[iy])z(?=(?:e[drs]?|ing|ations?)$)")
_MENT = re.compile(r"ments?$")


class SearchIndexUnavailableError(Exception):
    """This Python has no SQLite, or its SQLite no FTS5."""


class IndexedSkill(NamedTuple):
    skill: Skill
    slugs: tuple[str, str]
    """Of its name and its full name."""
    length: int
    """Words of its summary."""
    phrases: tuple[str, ...]
    """Its triggers, each as a slug."""
    patterns: "tuple[re.Pattern[str], ...]"
    """Those of its triggers that are regular expressions."""


class WordOccurrences(NamedTuple):
    """In which documents a word stands, by column; documents are named by their place in the list."""

    name: frozenset[int]
    triggers: frozenset[int]
    summary: frozenset[int]

    @property
    def everywhere(self) -> frozenset[int]:
        return self.name | self.triggers | self.summary


class SearchIndex:
    def __init__(self, registry: Registry) -> None:
        try:
            import sqlite3

            self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        except ImportError as error:
            raise SearchIndexUnavailableError from error
        weakref.finalize(self, self._connection.close)
        self._lock = threading.Lock()
        self.documents: list[IndexedSkill] = []
        rows: list[tuple[int, str, str, str]] = []
        for at, skill in enumerate(registry.skills):
            tags, triggers = _read_keywords(skill)
            entry = registry.manifest_entry(skill)
            triggers = (*triggers, *(entry.dispatch_triggers if entry else ()))
            name = split_into_bigrams(
                f"{skill.full_name} {skill.name}" if skill.full_name != skill.name else skill.name
            )
            summary = split_into_bigrams(skill.summary)
            patterns = [pattern for one in triggers if is_regex_trigger(one) and (pattern := compile_trigger(one)[0])]
            phrases = [phrase for one in triggers if (phrase := slugify(one))]
            slugs = (slugify(skill.name), slugify(skill.full_name))
            length = summary.count(" ") + 1
            self.documents.append(IndexedSkill(skill, slugs, length, tuple(phrases), tuple(patterns)))
            rows.append((at, name, split_into_bigrams(" ".join((*tags, *triggers))), summary))
        try:
            self._connection.execute(
                "CREATE VIRTUAL TABLE skills USING fts5(name, triggers, summary,"
                " tokenize = 'porter unicode61 remove_diacritics 2')"
            )
        except sqlite3.OperationalError as error:
            raise SearchIndexUnavailableError from error
        self._connection.executemany("INSERT INTO skills(rowid, name, triggers, summary) VALUES (?, ?, ?, ?)", rows)

    def find_word(self, word: str) -> WordOccurrences:
        """Of a word in letters and digits. One that stands nowhere may still begin a name or a trigger: `kube` finds
        `kubernetes`."""
        asked = " OR ".join(f'"{form}"' for form in _word_forms(word))
        with self._lock:
            found = WordOccurrences(*(self._rows(f"{column} : ({asked})") for column in INDEX_COLUMNS))
        return found if len(word) < 3 or found.everywhere else self._find_prefix(word)

    def _rows(self, query: str) -> frozenset[int]:
        rows = self._connection.execute("SELECT rowid FROM skills WHERE skills MATCH ?", (query,))
        return frozenset(row[0] for row in rows)

    @cached_property
    def _word_prefixes(self) -> list[tuple[str, int, bool]]:
        """Each word of a name or a trigger, where it stands, and whether in a name; sorted."""
        names = [(word, at, True) for at, one in enumerate(self.documents) for word in one.slugs[1].split("-")]
        phrases = [(phrase, at) for at, one in enumerate(self.documents) for phrase in one.phrases]
        return sorted([*names, *((word, at, False) for phrase, at in phrases for word in phrase.split("-"))])

    def _find_prefix(self, word: str) -> WordOccurrences:
        words = self._word_prefixes
        names: set[int] = set()
        triggers: set[int] = set()
        for at in range(bisect.bisect_left(words, (word, -1, False)), len(words)):
            found, document, in_name = words[at]
            if not found.startswith(word):
                break
            (names if in_name else triggers).add(document)
        return WordOccurrences(frozenset(names), frozenset(triggers), frozenset())


def _word_forms(word: str) -> set[str]:
    """What the stems don't bring together: deploy and deployment, organise and organize."""
    forms = {word, _BRITISH.sub("z", word), _AMERICAN.sub("s", word)}
    if len(word) > 4:
        base = _MENT.sub("", word)
        forms |= {base, f"{base}ment"}
    return forms


def split_into_bigrams(text: str) -> str:
    """`代码审查` becomes `代码 码审 审查 查`: whatever part of it is asked for is there."""
    if text.isascii():
        return text
    text = text.encode("utf-8", "replace").decode()  # half a character, which YAML can write and SQLite can't store
    return _UNSPACED_RUN.sub(lambda run: f" {' '.join(_bigrams(run[0]))} ", text)


def _bigrams(run: str) -> Iterable[str]:
    return [run[at : at + 2] for at in range(len(run))]


def query_bigrams(run: str) -> Iterable[str]:
    """Of a request: the last letter alone would be found everywhere."""
    return [run[at : at + 2] for at in range(max(1, len(run) - 1))]


def _read_keywords(skill: Skill) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tags and triggers. Few files have any, so only a file that may have some is read as YAML."""
    try:
        descriptor, _ = open_regular_file(skill.path, skill.root.boundary)
    except SourceError:
        return (), ()
    try:
        data = os.read(descriptor, _FRONTMATTER_BYTES)
    except OSError:
        return (), ()
    finally:
        os.close(descriptor)
    end = data.find(b"\n---", 3)
    head = data[:end] if end >= 0 else data
    if not any(field in head for field in _KEYWORD_FIELDS) and (end >= 0 or len(data) < _FRONTMATTER_BYTES):
        return (), ()
    details = read_skill_details(skill)
    return details.tags, details.triggers
