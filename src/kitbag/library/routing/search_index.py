"""In-memory full-text index of all skills (SQLite FTS5): which skill has a word, and in which column.

Used by skill_search, which scores the matches; built once per state of the library. Raises
SearchIndexUnavailableError without FTS5. Scripts without spaces between words are indexed as bigrams.
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
"""Letters of scripts without spaces between words (Chinese, Japanese), and Korean, whose words take suffixes."""
_UNSPACED_RUN = re.compile(f"{UNSPACED_LETTERS}+")
_BRITISH = re.compile(r"(?<=[iy])s(?=(?:e[drs]?|ing|ations?)$)")
_AMERICAN = re.compile(r"(?<=[iy])z(?=(?:e[drs]?|ing|ations?)$)")
_MENT = re.compile(r"ments?$")


class SearchIndexUnavailableError(Exception):
    """Python was built without SQLite, or SQLite without FTS5."""


class IndexedSkill(NamedTuple):
    skill: Skill
    slugs: tuple[str, str]
    """The slugs of its name and full name."""
    length: int
    """Number of words in its summary."""
    phrases: tuple[str, ...]
    """Its triggers as slugs."""
    patterns: "tuple[re.Pattern[str], ...]"
    """Its triggers that are regular expressions."""


class WordOccurrences(NamedTuple):
    """The skills that contain a word, by column, as positions in `SearchIndex.documents`."""

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
        for position, skill in enumerate(registry.skills):
            tags, triggers = _read_keywords(skill)
            entry = registry.manifest_entry(skill)
            triggers = (*triggers, *(entry.dispatch_triggers if entry else ()))
            name = split_into_bigrams(
                f"{skill.full_name} {skill.name}" if skill.full_name != skill.name else skill.name
            )
            summary = split_into_bigrams(skill.summary)
            patterns = [
                pattern
                for trigger in triggers
                if is_regex_trigger(trigger) and (pattern := compile_trigger(trigger)[0])
            ]
            phrases = [phrase for trigger in triggers if (phrase := slugify(trigger))]
            slugs = (slugify(skill.name), slugify(skill.full_name))
            length = summary.count(" ") + 1
            self.documents.append(
                IndexedSkill(skill=skill, slugs=slugs, length=length, phrases=tuple(phrases), patterns=tuple(patterns))
            )
            rows.append((position, name, split_into_bigrams(" ".join((*tags, *triggers))), summary))
        try:
            self._connection.execute(
                "CREATE VIRTUAL TABLE skills USING fts5(name, triggers, summary,"
                " tokenize = 'porter unicode61 remove_diacritics 2')"
            )
        except sqlite3.OperationalError as error:
            raise SearchIndexUnavailableError from error
        self._connection.executemany("INSERT INTO skills(rowid, name, triggers, summary) VALUES (?, ?, ?, ?)", rows)

    def find_word(self, word: str) -> WordOccurrences:
        """Finds a word of letters and digits; if nothing contains it, words of names and triggers that start with it:
        `kube` finds `kubernetes`."""
        terms = " OR ".join(f'"{form}"' for form in _word_forms(word))
        with self._lock:
            occurrences = WordOccurrences(*(self._rows(f"{column} : ({terms})") for column in INDEX_COLUMNS))
        return occurrences if len(word) < 3 or occurrences.everywhere else self._find_prefix(word)

    def _rows(self, query: str) -> frozenset[int]:
        rows = self._connection.execute("SELECT rowid FROM skills WHERE skills MATCH ?", (query,))
        return frozenset(row[0] for row in rows)

    @cached_property
    def _word_prefixes(self) -> list[tuple[str, int, bool]]:
        """(word, position, is in the name) of every word in names and triggers, sorted."""
        names = [
            (word, position, True)
            for position, document in enumerate(self.documents)
            for word in document.slugs[1].split("-")
        ]
        phrases = [
            (phrase, position) for position, document in enumerate(self.documents) for phrase in document.phrases
        ]
        return sorted(
            [*names, *((word, position, False) for phrase, position in phrases for word in phrase.split("-"))]
        )

    def _find_prefix(self, word: str) -> WordOccurrences:
        words = self._word_prefixes
        names: set[int] = set()
        triggers: set[int] = set()
        for index in range(bisect.bisect_left(words, (word, -1, False)), len(words)):
            candidate, document, in_name = words[index]
            if not candidate.startswith(word):
                break
            (names if in_name else triggers).add(document)
        return WordOccurrences(frozenset(names), frozenset(triggers), frozenset())


def _word_forms(word: str) -> set[str]:
    """Variants that the stemmer does not unify: deploy and deployment, organise and organize."""
    forms = {word, _BRITISH.sub("z", word), _AMERICAN.sub("s", word)}
    if len(word) > 4:
        base = _MENT.sub("", word)
        forms |= {base, f"{base}ment"}
    return forms


def split_into_bigrams(text: str) -> str:
    """`代码审查` becomes `代码 码审 审查 查`, so that any part of it can be found."""
    if text.isascii():
        return text
    text = text.encode("utf-8", "replace").decode()  # replaces lone surrogates, which SQLite can't store
    return _UNSPACED_RUN.sub(lambda run: f" {' '.join(_bigrams(run[0]))} ", text)


def _bigrams(run: str) -> Iterable[str]:
    return [run[start : start + 2] for start in range(len(run))]


def query_bigrams(run: str) -> Iterable[str]:
    """The bigrams of a query, without the last single letter, which would match everywhere."""
    return [run[start : start + 2] for start in range(max(1, len(run) - 1))]


def _read_keywords(skill: Skill) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tags and triggers. Few files have any, so only a file that mentions such a field is parsed."""
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
    frontmatter = data[:end] if end >= 0 else data
    if not any(field in frontmatter for field in _KEYWORD_FIELDS) and (end >= 0 or len(data) < _FRONTMATTER_BYTES):
        return (), ()
    details = read_skill_details(skill)
    return details.tags, details.triggers
