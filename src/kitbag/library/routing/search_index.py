"""The search index of a registry: the text stores of its roots, and the keywords of its skills.

Built by ranking at the first message. Names and descriptions are indexed at once; bodies, tags and triggers of many
new skills in a background thread, so that no request waits for them. A damaged store is deleted and built again, and
a store that can't be used is replaced by one in memory: an index costs time but never raises.
"""

import contextlib
import os
import re
import threading
import time
import weakref
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kitbag.errors import Diagnostic
from kitbag.library.index import MIN_INDEXED_SKILLS
from kitbag.library.names import slugify
from kitbag.library.registry import Registry
from kitbag.library.routing.index_problems import describe_failure, store_path
from kitbag.library.routing.path_index import PathIndex, list_globs
from kitbag.library.routing.postings import Postings, count_body, count_fields
from kitbag.library.routing.skill_text import (
    SkillProfile,
    read_profile,
    read_skill_text,
    summary_without_exclusions,
)
from kitbag.library.routing.terms import BodyTermCounter, term_keys
from kitbag.library.routing.text_store import (
    BodyTexts,
    FieldTexts,
    ForeignStoreError,
    StoredDocument,
    TextStore,
    TextStoreUnavailableError,
    delete_store,
    keyword_lines,
)
from kitbag.library.routing.triggers import compile_trigger, is_regex_trigger
from kitbag.library.routing.vectors.find_encoder import find_encoder
from kitbag.library.scopes import Places, Root
from kitbag.library.skills import Skill

if TYPE_CHECKING:
    from kitbag.library.routing.vectors.skill_vectors import SkillVectors
    from kitbag.library.skills_manifest import ManifestEntry

MAX_IMMEDIATE_BODIES: Final = 256
"""So many new bodies are indexed at once, in about 50 ms; more are left to a thread."""
_CHUNK: Final = 512
"""So many bodies are written at once. More need more memory; fewer are slower, as a filled store is extended slowly."""
_MEMORY_CHUNK: Final = 128
"""The same for a store in memory, which messages can't read meanwhile."""
_MIN_FILE_AGE_NS: Final = 2_000_000_000
"""A younger file may change again without changing its stamp: it is indexed in memory only."""
_MAX_DEAD_SHARE: Final = 0.3
_MAX_PATTERNS: Final = 20
_ESCAPE = re.compile(r"\\.")
_PATTERN_WORD = re.compile(r"[^\W\d_]{3,}")
_MAX_COMPLETIONS: Final = 8
_MAX_PROFILES: Final = 1_000


class IndexedRoot(NamedTuple):
    """The store of a root, or of all small roots."""

    store: TextStore
    positions: list[int]
    """Positions in the index by row; -1 for rows of changed or deleted skills."""
    rows: dict[int, int]
    """The other way round."""
    dead: list[int]
    """The rows of changed or deleted skills."""

    def find_in_fields(self, terms: Sequence[str]) -> dict[str, Postings]:
        """The postings of each term that occurs, for rows in `positions`."""
        with self._noting_damage():
            return self.store.find_in_fields(terms, len(self.positions))
        return {}

    def find_in_bodies(self, terms: Sequence[str]) -> dict[str, dict[str, Postings]]:
        """By term and form."""
        with self._noting_damage():
            return self.store.find_in_bodies(terms, len(self.positions))
        return {}

    @contextlib.contextmanager
    def _noting_damage(self) -> Generator[None, None, None]:
        """Finds nothing in a store that is locked or damaged; one that is damaged is built again."""
        import sqlite3

        try:
            yield
        except (sqlite3.Error, ForeignStoreError) as error:
            if not _is_locked(error):
                self.store.mark_damaged()


class SkillKeywords:
    """What triggers, tags and `paths` say, by position. Few skills have any."""

    def __init__(self, places: Places) -> None:
        self.paths = PathIndex(places)
        self.phrases: dict[str, list[tuple[str, int]]] = {}
        """Triggers that are no patterns, as slugs, by their first word."""
        self.patterns: list[tuple[re.Pattern[str], int]] = []
        self.words: dict[str, list[int]] = {}
        """Positions by the keys of the words of triggers and tags. Lists, as they grow while messages read them."""
        self.keys: dict[int, set[str]] = {}
        """The same, by position."""

    def add(self, position: int, root: Root, lines: Sequence[str]) -> None:
        """Lines as in `text_store.keyword_lines`."""
        patterns = 0
        if globs := list_globs(lines):
            self.paths.add(position, root, globs)
        for line in lines:
            mark, text = line[:1], line[1:]
            if mark == "/":
                continue
            if mark == "!" and is_regex_trigger(text):
                pattern = compile_trigger(text)[0] if patterns < _MAX_PATTERNS else None
                if pattern is not None:
                    self.patterns.append((pattern, position))
                patterns += 1
                text = " ".join(_PATTERN_WORD.findall(_ESCAPE.sub(" ", text)))
                mark = ""
            known = self.keys.setdefault(position, set())
            for key in term_keys(text):
                if key not in known:
                    known.add(key)
                    self.words.setdefault(key, []).append(position)
            if mark == "!" and (phrase := slugify(text)):
                self.phrases.setdefault(phrase.split("-", 1)[0], []).append((phrase, position))


class SearchIndex:
    """All skills of a registry, in the order of their names. Does not hold the registry."""

    def __init__(self, registry: Registry, previous: "SearchIndex | None" = None) -> None:
        """`previous`: the index of an earlier state of the registry, whose stores are used again."""
        self._namespace = registry.skills
        self.skills = list(self._namespace)
        self.manifest: Mapping[str, ManifestEntry] = registry.manifest_entries
        self.keywords = SkillKeywords(registry.places)
        self._profiles: dict[int, SkillProfile] = {}
        self.is_available = True
        """False without SQLite: `stores` is empty."""
        self.problems: list[Diagnostic] = []
        """Why indexes can't be saved. A lock is no problem: another process saves."""
        self.stores: list[IndexedRoot] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._filler: threading.Thread | None = None
        reusable = [one.store for one in previous.stores if one.store.is_reusable] if previous else []
        self._reused = {store.path: store for store in reusable}
        if previous is not None:
            previous.stop()
        self._open_stores(registry)
        self._add_manifest_keywords()
        self.vectors = self._open_vectors(registry)
        """None without the extra `semantic` or without a model."""
        weakref.finalize(self, _stop_all, self._stop, self.vectors)
        self._fill()

    def is_current(self, registry: Registry) -> bool:
        """Whether the registry still has the same skills. Unchanged skills are the same objects, so this is cheap."""
        if self.is_damaged:
            return False
        if registry.skills is self._namespace:
            return True
        if self.manifest == registry.manifest_entries and self.skills == list(registry.skills):
            self._namespace = registry.skills
            return True
        return False

    def _open_vectors(self, registry: Registry) -> "SkillVectors | None":
        encoder = find_encoder(registry)
        if encoder is None:
            return None
        from kitbag.library.routing.vectors.skill_vectors import SkillVectors

        return SkillVectors(encoder, registry.places.kitbag_home, self.skills)

    # -- stores ----------------------------------------------------------------------------------

    def _open_stores(self, registry: Registry) -> None:
        newest = time.time_ns() - _MIN_FILE_AGE_NS
        by_root: dict[int, list[tuple[int, Skill]]] = {}
        for position, skill in enumerate(self.skills):
            by_root.setdefault(id(skill.root), []).append((position, skill))
        unsaved: list[tuple[int, Skill]] = []
        for skills in by_root.values():
            root = skills[0][1].root
            is_saved = registry.uses_index and root.scope != "built-in" and len(skills) >= MIN_INDEXED_SKILLS
            saved = [pair for pair in skills if pair[1].changed <= newest] if is_saved else []
            if len(saved) < MIN_INDEXED_SKILLS or not self._open_saved(registry, root, saved):
                saved = []
            kept = {position for position, _ in saved}
            unsaved += [pair for pair in skills if pair[0] not in kept]
        if unsaved:
            try:
                self.stores.append(_sync_fields(TextStore(), unsaved))
            except TextStoreUnavailableError:
                self.is_available = False
                self._add_keywords_of(unsaved)

    def _open_saved(self, registry: Registry, root: Root, skills: list[tuple[int, Skill]]) -> bool:
        """False if the store can't be used: a read-only home, a lock that is never released."""
        import sqlite3

        path = store_path(registry, root)
        failure: Exception | None = None
        for _ in range(2):
            try:
                store = self._reused.pop(path, None) or TextStore(path, root.path)
                if store.dead_share() > _MAX_DEAD_SHARE:
                    raise ForeignStoreError(path)
                self.stores.append(_sync_fields(store, skills))
            except TextStoreUnavailableError:
                return False
            except (sqlite3.DatabaseError, ForeignStoreError) as error:
                if _is_locked(error):
                    return False
                delete_store(path)
                failure = error
            except OSError as error:
                failure = error
                break
            else:
                return True
        if failure is not None:
            self.problems.append(describe_failure(path, failure))
        return False

    def _add_manifest_keywords(self) -> None:
        if not self.manifest:
            return
        for position, skill in enumerate(self.skills):
            entry = self.manifest.get(skill.path)
            if entry is not None:
                self.keywords.add(position, skill.root, [f"!{trigger}" for trigger in entry.dispatch_triggers])

    def _add_keywords_of(self, skills: Iterable[tuple[int, Skill]]) -> None:
        for position, skill in skills:
            text = read_skill_text(skill)
            self.keywords.add(position, skill.root, keyword_lines(text.tags, text.triggers, text.paths).splitlines())

    # -- bodies ----------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Indexes new bodies: now if they are few, else in a thread."""
        pending: list[tuple[IndexedRoot, list[tuple[int, int, Skill]]]] = []
        for one in self.stores:
            documents = one.store.documents()
            missing = self._add_known_keywords(one, documents)
            if missing:
                pending.append((one, missing))
        if sum(len(missing) for _, missing in pending) <= MAX_IMMEDIATE_BODIES:
            _fill_bodies(pending, self._stop, self.keywords, self.problems)
            return
        self._filler = threading.Thread(
            target=_fill_in_background,
            args=(pending, self._stop, self.keywords, self.problems),
            name="kitbag-search-index",
            daemon=True,
        )
        self._filler.start()

    def _add_known_keywords(
        self, one: IndexedRoot, documents: Sequence[StoredDocument]
    ) -> list[tuple[int, int, Skill]]:
        """Adds the stored keywords and returns (row, position, skill) of the skills without a body."""
        missing: list[tuple[int, int, Skill]] = []
        for document in documents:
            position = one.positions[document.id] if document.id < len(one.positions) else -1
            if position < 0:
                continue
            if not document.has_body:
                missing.append((document.id, position, self.skills[position]))
            elif document.keywords:
                self.keywords.add(position, self.skills[position].root, document.keywords.splitlines())
        return missing

    # -- searching -------------------------------------------------------------------------------

    def find_prefix(self, prefix: str) -> list[str]:
        with _ignoring_store_errors():
            return list(
                dict.fromkeys(word for one in self.stores for word in one.store.find_prefix(prefix, _MAX_COMPLETIONS))
            )
        return []

    def profile(self, position: int) -> SkillProfile:
        """The terms of a skill's name and description, cached for the skills that were candidates last."""
        profile = self._profiles.get(position)
        if profile is None:
            if len(self._profiles) >= _MAX_PROFILES:
                self._profiles.clear()
            profile = self._profiles[position] = read_profile(self.skills[position])
        return profile

    @property
    def is_damaged(self) -> bool:
        """A damaged store was found, and deleted: the index must be built again."""
        return any(one.store.is_damaged for one in self.stores)

    @property
    def is_filled(self) -> bool:
        return self._filler is None or not self._filler.is_alive()

    @property
    def is_saved(self) -> bool:
        """Whether the next process can use what this one indexes."""
        return not self.problems and all(one.store.path for one in self.stores if len(one.rows) > MAX_IMMEDIATE_BODIES)

    def wait_until_filled(self, seconds: float) -> bool:
        """For commands that run once, and tests. Messages in a session never wait."""
        deadline = time.monotonic() + seconds
        if self._filler is not None:
            self._filler.join(seconds)
        if self.vectors is not None:
            self.vectors.wait_until_filled(max(deadline - time.monotonic(), 0.0))
        return self.is_filled

    def stop(self) -> None:
        _stop_all(self._stop, self.vectors)


def _stop_all(stop: threading.Event, vectors: "SkillVectors | None") -> None:
    stop.set()
    if vectors is not None:
        vectors.stop()


def _is_locked(error: Exception) -> bool:
    import sqlite3

    return isinstance(error, sqlite3.OperationalError) and "lock" in str(error)


def _ignoring_store_errors() -> "contextlib.suppress":
    """A lock or a damaged file: what is not indexed now is indexed by the next process."""
    import sqlite3

    return contextlib.suppress(sqlite3.Error, OSError, ForeignStoreError)


@contextlib.contextmanager
def _noting_store_errors(store: TextStore, problems: list[Diagnostic]) -> Generator[None, None, None]:
    import sqlite3

    try:
        yield
    except (sqlite3.Error, OSError, ForeignStoreError) as error:
        if store.path and isinstance(error, sqlite3.OperationalError | OSError) and not _is_locked(error):
            problems.append(describe_failure(store.path, error))


def _fill_in_background(
    pending: Sequence[tuple[IndexedRoot, list[tuple[int, int, Skill]]]],
    stop: threading.Event,
    keywords: SkillKeywords,
    problems: list[Diagnostic],
) -> None:
    for one, missing in pending:
        with _noting_store_errors(one.store, problems):
            _fill_bodies([(one._replace(store=one.store.open_writer()), missing)], stop, keywords, problems)


def _fill_bodies(
    pending: Sequence[tuple[IndexedRoot, list[tuple[int, int, Skill]]]],
    stop: threading.Event,
    keywords: SkillKeywords,
    problems: list[Diagnostic],
) -> None:
    counter = BodyTermCounter()
    for one, missing in pending:
        with _noting_store_errors(one.store, problems):
            chunk = _CHUNK if one.store.path else _MEMORY_CHUNK
            for start in range(0, len(missing), chunk):
                if stop.is_set():
                    return
                texts: list[BodyTexts] = []
                for row, position, skill in missing[start : start + chunk]:
                    text = read_skill_text(skill)
                    lines = keyword_lines(text.tags, text.triggers, text.paths)
                    if skill.root.scope == "built-in":  # their bodies are about everything that a skill may be for
                        text = text._replace(headings="", body="")
                    texts.append(BodyTexts(row, count_body(counter, text.body, text.headings), lines))
                    if lines:
                        keywords.add(position, skill.root, lines.splitlines())
                one.store.add_bodies(texts)


def _sync_fields(store: TextStore, skills: list[tuple[int, Skill]]) -> IndexedRoot:
    """Adds skills that are new or changed, and removes those whose file is gone."""
    documents = store.documents()
    positions, changed, gone = _compare(documents, skills, is_shared=not store.path)
    if changed or gone:
        store.update_fields((_field_texts(skill, not store.path) for _, skill in changed), gone)
        positions, _, _ = _compare(store.documents(), skills, is_shared=not store.path)
    by_row = [-1] * (max(positions, default=0) + 1)
    for row, position in positions.items():
        by_row[row] = position
    dead = [row for row, position in enumerate(by_row) if position < 0]
    return IndexedRoot(store, by_row, {position: row for row, position in positions.items()}, dead)


def _compare(
    documents: Sequence[StoredDocument], skills: Sequence[tuple[int, Skill]], is_shared: bool
) -> tuple[dict[int, int], list[tuple[int, Skill]], list[int]]:
    known = {(document.location, document.name): document for document in documents}
    positions: dict[int, int] = {}
    changed: list[tuple[int, Skill]] = []
    for position, skill in skills:
        document = known.pop((_location(skill, is_shared), _storable(skill.full_name)), None)
        if document is not None and document.stamp == skill.stamp:
            positions[document.id] = position
        else:
            changed.append((position, skill))
    if not known or not skills:
        return positions, changed, []
    base = skills[0][1].root.path
    gone = [one.id for one in known.values() if not os.path.exists(os.path.join(base, one.location))]
    return positions, changed, gone


def _location(skill: Skill, is_shared: bool) -> str:
    return _storable(skill.path if is_shared else skill.location)


def _storable(text: str) -> str:
    """SQLite can't store the lone surrogates of names that are not UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _field_texts(skill: Skill, is_shared: bool) -> FieldTexts:
    names = f"{skill.full_name} {skill.name}" if skill.full_name != skill.name else skill.name
    return FieldTexts(
        location=_location(skill, is_shared),
        name=_storable(skill.full_name),
        stamp=skill.stamp,
        text=count_fields(names, summary_without_exclusions(skill)),
    )
