"""The search index beside the library index: what it finds, and that nothing about it can fail a message."""

import os
import shutil
import sqlite3
import threading
from pathlib import Path

import pytest

from conftest import World
from kitbag.cli.progress_line import wait_for_index
from kitbag.library.routing import search_index
from kitbag.library.routing.message_languages import is_foreign
from kitbag.library.routing.postings import (
    MAX_ROW,
    CountedText,
    PostingsBuilder,
    count_body,
    count_fields,
    find_level,
    unpack_postings,
)
from kitbag.library.routing.skill_search import get_search_index, search_skills
from kitbag.library.routing.stemming import porter_stem
from kitbag.library.routing.terms import BodyTermCounter, join_form, list_terms, term_keys
from kitbag.library.routing.text_store import BodyTexts, FieldTexts, TextStore
from support.cost import processor_limit
from support.waiting import TEST_TIMEOUT

WORDS = (
    "deploy deployment deployments relational conditional rationally vietnamization predication operator feudalism"
    " decisiveness hopefulness callousness formality sensitivity sensibility triplicate formative formalize electrical"
    " goodness revival allowance inference airliner gyroscopic adjustable defensible irritant replacement adoption"
    " communism activate effective bowdlerize probate rate cease controlling rolling happy sky agreed plastered bled"
    " motoring sing conflated troubled sized hopping tanned falling hissing fizzed failing filing caresses ponies ties"
    " caress cats feed keys yaml typing yes employ analysis queries indexes kubernetes redis news series"
)


def names(world: World, message: str, wait: float = TEST_TIMEOUT) -> list[str]:
    hits = search_skills(world.registry(), message, wait=wait)
    return [hit.skill.name for hit in hits if hit.skill.root.scope != "built-in"]


@pytest.fixture
def library(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Skills whose index is on disk, though their files are new."""
    monkeypatch.setattr(search_index, "_MIN_FILE_AGE_NS", -(10**12))
    for number in range(30):
        world.skill(
            ".kitbag/skills", f"part-{number}", description=f"Handles part{number}.", body=f"Uses {gizmo(number)}."
        )
    return world


def gizmo(number: int) -> str:
    """A word of letters that only one skill has: of letters and digits, parts are found too."""
    return f"gizmo{'abcdef'[number // 6]}{'uvwxyz'[number % 6]}"


def store_path(world: World) -> Path:
    get_search_index(world.registry(), TEST_TIMEOUT)
    [path] = world.home.glob(".kitbag/cache/*.routing")
    return path


def test_stems_are_those_of_the_tokenizer_of_sqlite() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5(word, tokenize = 'porter unicode61')")
    connection.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, 'instance')")
    words = WORDS.split()
    connection.executemany("INSERT INTO t(rowid, word) VALUES (?, ?)", enumerate(words))
    stems = dict(connection.execute("SELECT doc, term FROM v"))
    connection.close()
    assert {word: porter_stem(word) for word in words} == {word: stems[at] for at, word in enumerate(words)}


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("parseJsonFile", "parse json"), ("parse_json_file", "parseJsonFile"), ("docker-compose.yml", "docker compose"),
        ("C++", "c++"), ("nodejs", "node.js"), ("e-mail", "email"),
    ],
)  # fmt: skip
def test_identifiers_are_found_whole_and_by_their_parts(written: str, asked: str) -> None:
    assert set(term_keys(written)) & set(term_keys(asked))


@pytest.mark.parametrize("word", [*WORDS.split(), "the", "The", "PDF", "Deploys", "parseJsonFile", "HTTPServer2",
    "python3", "2024", "45951", "3d", "x", "GPLv3", "bc7b7a21", "naïve", "設定ファイル", "a" * 60, "aB" * 9])  # fmt: skip
def test_words_of_bodies_have_the_terms_of_words_in_messages(word: str) -> None:
    assert sorted(BodyTermCounter().count(word)) == sorted({join_form(term) for term in list_terms(word)})


@pytest.mark.parametrize("rows", [[1], [1, 300], [5, 70_000, MAX_ROW]])
def test_postings_are_read_as_they_were_written(rows: list[int]) -> None:
    builder = PostingsBuilder()
    for level, row in enumerate(rows, 253):
        builder.add(row, CountedText({"term": 1}, {1: level}))
    [(term, form, data, levels)] = builder.packed()
    found = unpack_postings(data, levels, MAX_ROW + 1, is_ordered=True)
    assert (term, form, list(found.rows), list(found.levels)) == ("term", "", rows, [253, 254, 255][: len(rows)])


def test_bodies_are_searched_with_their_headings(world: World) -> None:
    world.skill(
        ".kitbag/skills", "ledger", description="Keeps books.", body="## Amortization\n\nUse camelCaseName too."
    )
    world.skill(".kitbag/skills", "other", description="Does others.")
    assert names(world, "which amortization applies") == ["ledger"]
    assert names(world, "camel") == ["ledger"]
    hit = search_skills(world.registry(), "which amortization applies")[0]
    assert (hit.reason, hit.words, list(hit.body_words)) == (
        "its instructions mention amortization",
        {},
        ["amortization"],
    )
    assert not hit.is_confident


def test_what_a_skill_is_not_for_does_not_find_it(world: World) -> None:
    world.skill(".kitbag/skills", "sheets", description="Edits spreadsheets. Do not use for parquet files.")
    assert names(world, "read the parquet") == []


def test_the_index_on_disk_is_used_again_and_follows_edits(library: World) -> None:
    path = store_path(library)
    assert path.stat().st_mode & 0o777 == 0o600
    connection = sqlite3.connect(path)
    connection.execute("UPDATE documents SET keywords = '!xylophone' WHERE name = 'part-7'")
    connection.commit()
    connection.close()
    assert names(library, "xylophone") == ["part-7"]  # from the file: no skill was read again
    registry = library.registry()
    assert search_skills(registry, "zebra") == []
    library.skill(".kitbag/skills", "part-7", description="Draws a zebra.", body="Uses contraptions.")
    library.workspace.joinpath(".kitbag/skills/part-8/SKILL.md").unlink()
    registry.refresh()
    asked = f"zebra contraptions {gizmo(8)} {gizmo(7)}"
    assert [hit.skill.name for hit in search_skills(registry, asked)] == ["part-7"]
    assert search_skills(registry, gizmo(8)) == []
    assert search_skills(registry, gizmo(7)) == []


@pytest.mark.parametrize("damage", ["garbage", "truncated", "other database", "other version", "empty", "directory"])
def test_a_damaged_or_foreign_index_is_built_again(library: World, damage: str) -> None:
    path = store_path(library)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    if damage == "garbage":
        path.write_bytes(os.urandom(5_000))
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:9_000])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "directory":
        path.unlink()
        path.mkdir()
    else:
        path.unlink()
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE t(x)" if damage == "other database" else "PRAGMA user_version = 99")
        connection.commit()
        connection.close()
    assert names(library, gizmo(5)) == ["part-5"]
    assert names(library, f"{gizmo(6)} part6")[0] == "part-6"


def test_a_locked_index_stops_no_message(library: World) -> None:
    path = store_path(library)
    library.skill(".kitbag/skills", "part-31", description="Handles yaks.")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        assert names(library, "yaks") == ["part-31"]
    finally:
        connection.close()


def test_several_registries_build_at_once(library: World) -> None:
    found: list[list[str]] = []

    def search() -> None:
        found.append(names(library, gizmo(3)))

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TEST_TIMEOUT)
    assert found == [["part-3"]] * 4
    assert names(library, gizmo(3)) == ["part-3"]


def test_bodies_that_are_added_in_any_order_are_found(library: World) -> None:
    """As by two processes that build at once."""
    path = store_path(library)
    path.unlink()
    store = TextStore(str(path), str(library.workspace / ".kitbag/skills"))
    skills = [skill for skill in library.registry().skills if skill.name.startswith("part-")]
    counter = BodyTermCounter()
    store.update_fields(
        [FieldTexts(one.location, one.name, one.stamp, count_fields(one.name, "")) for one in skills], []
    )
    documents = store.documents()
    for document in reversed(documents):
        number = int(document.name.removeprefix("part-"))
        store.add_bodies([BodyTexts(document.id, count_body(counter, f"{gizmo(number)} shared", ""), "")])
    found = store.find_in_bodies(["share", gizmo(3)], MAX_ROW)
    shared = found["share"]["shared"]
    assert list(shared.rows) == sorted(document.id for document in documents)
    [row] = next(iter(found[gizmo(3)].values())).rows
    assert {one.id: one.name for one in documents}[row] == "part-3"
    assert find_level(shared, row) == shared.levels[0]
    store.close()


def test_postings_that_are_damaged_are_built_again_for_the_same_message(library: World) -> None:
    """Opening the store does not read them."""
    path = store_path(library)
    connection = sqlite3.connect(path)
    [(pages,)] = connection.execute("PRAGMA page_count")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    data = bytearray(path.read_bytes())
    size = len(data) // pages
    for page in range(1, pages):
        if gizmo(5).encode() in data[page * size : (page + 1) * size]:
            data[page * size : page * size + 100] = bytes(100)
    path.write_bytes(data)
    assert names(library, gizmo(5)) == ["part-5"]
    assert path.read_bytes() != data


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE bodies SET rows = CAST(x'FFFFFFFF' || rows AS BLOB), levels = CAST(x'01' || levels AS BLOB)",
        "UPDATE bodies SET rows = 'text'", "UPDATE bodies SET levels = x''", "UPDATE bodies SET form = x'FF'",
        "DROP TABLE bodies", "DROP TABLE fields", "DELETE FROM state", "UPDATE state SET is_ordered = 'x', dead = 'x'",
        "UPDATE documents SET id = id + 1000000000000", "UPDATE documents SET keywords = x'2123FF'",
        "UPDATE documents SET location = x'FF' || id, name = 5",
    ],
)  # fmt: skip
def test_an_index_that_says_nonsense_is_built_again(library: World, change: str) -> None:
    connection = sqlite3.connect(store_path(library))
    connection.execute(change)
    connection.commit()
    connection.close()
    assert names(library, f"{gizmo(5)} part5")[0] == "part-5"


def test_a_message_is_answered_while_bodies_are_written(library: World) -> None:
    registry = library.registry()
    search_skills(registry, "part5")
    [store] = [one.store for one in get_search_index(registry).stores if one.store.path]
    with store.open_writer()._write():  # pyright: ignore[reportPrivateUsage]
        assert search_skills(registry, f"part7 {gizmo(7)}")[0].skill.name == "part-7"


def test_no_message_waits_for_many_bodies(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "MAX_IMMEDIATE_BODIES", 3)
    begin = threading.Event()
    read = search_index.read_skill_text
    monkeypatch.setattr(search_index, "read_skill_text", lambda skill: begin.wait(TEST_TIMEOUT) and read(skill))
    for number in range(8):
        world.skill(".kitbag/skills", f"part-{number}", description=f"Handles part{number}.", body="Uses gizmos.")
    registry = world.registry()
    assert search_skills(registry, "part5")[0].skill.name == "part-5"
    assert search_skills(registry, "gizmos") == []
    begin.set()
    assert len(search_skills(registry, "gizmos", wait=TEST_TIMEOUT)) == 8


TRACE = 'Traceback (most recent call last):\n  File "/a/b.py", line 3, in f\n    g(x)\nKeyError: "k"\n'
CODE = "for (let i = 0; i < n; i++) { if (a[i] !== b[i]) return foo_bar(a, `${b}`); }\n"


@pytest.mark.parametrize(
    "message",
    [
        "a " * 500_000, "gizmo1 " * 150_000, os.urandom(700_000).hex(), "".join(map(chr, range(0x4E00, 0x9F00))) * 20,
        TRACE * 3_000, CODE * 5_000, "x", "\n" * 100_000, "." * 1_000_000, "\0" * 1_000, "\ud800" * 1_000, "-" * 300_000,
        "a.b-c_d" * 100_000, "(((((" * 10_000, "🙂" * 10_000, "A" * 400_000 + "a" * 400_000,
    ],
    ids=range(16),
)  # fmt: skip
def test_no_message_is_too_much(library: World, message: str) -> None:
    registry = library.registry()
    get_search_index(registry, TEST_TIMEOUT)
    with processor_limit():
        search_skills(registry, message)


def test_a_file_in_the_message_finds_the_skill_for_such_files(world: World) -> None:
    world.skill(".kitbag/skills", "sql", description="Style.", paths='"**/*.sql"')
    world.skill(".kitbag/skills", "docker", description="Images.", paths='"**/Dockerfile.prod"')
    hit = search_skills(world.registry(), "look at db/schema.sql please")[0]
    assert (hit.skill.name, hit.reason) == ("sql", "file matches its paths")


@pytest.mark.parametrize("trigger", ["((((((a))))))*b", "a(b", "(x|a)-b$"])
def test_a_trigger_that_is_a_pattern_is_no_phrase(world: World, trigger: str) -> None:
    """Whether it can be used or not."""
    world.skill(".kitbag/skills", "patterns", "Something else.", triggers=f"['{trigger}', 'plan c']")
    world.skill(".kitbag/skills", "other", "About a-b and ab.")
    found = {
        hit.skill.name: hit for hit in search_skills(world.registry(), "is this an a-b or ab test", wait=TEST_TIMEOUT)
    }
    assert "patterns" not in found
    assert search_skills(world.registry(), "plan c", wait=TEST_TIMEOUT)[0].features.trigger


def test_a_word_is_shown_as_the_message_has_it(world: World) -> None:
    world.skill(".kitbag/skills", "native", "Reviews C++ and C# code, and F# too.")
    (hit,) = search_skills(world.registry(), "review this C++, c# or f# code", wait=TEST_TIMEOUT)
    assert {"c++", "c#", "f#"} <= hit.words.keys()
    assert "c++" in hit.reason


@pytest.mark.parametrize(
    ("paths", "message", "matches"),
    [
        ("src/**/*.{ts,tsx}", "why is src/ui/Button.tsx red", True),
        ("src/**/*.{ts,tsx}", "why is lib/ui/Button.tsx red", False),
        ("'*.sql, !seed.sql'", "run db/seed.sql", False),
        ("'*.sql, !seed.sql'", "run db/users.sql", True),
        ("docs/", "rewrite docs/guide.md", True),
        ("docs/", "read the docs and mydocs/x.md", False),
        ("'**/Dockerfile'", "make the Dockerfile smaller", True),
        ("'**/Dockerfile'", "make the dockerfile smaller", False),
        ("src/**", "what does src/api do", True),
        ("'**'", "this and/or that", False),
        ("'*.sql'", "look at /etc/a.sql", False),
        ("'[ab]*.c'", "look at zebra.c", False),
    ],
)
def test_a_mentioned_file_is_compared_with_the_whole_pattern(
    world: World, paths: str, message: str, matches: bool
) -> None:
    world.skill(".kitbag/skills", "style", "Quiet.", paths=paths)
    hits = [hit for hit in search_skills(world.registry(), message) if hit.skill.name == "style"]
    assert any(hit.features.path for hit in hits) is matches


def test_hostile_patterns_in_paths_cost_no_message_much(world: World) -> None:
    for number in range(50):
        world.skill(".kitbag/skills", f"s{number}", "Quiet.", paths=f"'{'*a' * 200}{number}, {'**/' * 200}x'")
    message = " ".join(f"{'a' * 40}/{'a' * 40}/f{number}.c" for number in range(100))
    registry = world.registry()
    get_search_index(registry, TEST_TIMEOUT)
    with processor_limit():
        search_skills(registry, message)


@pytest.mark.parametrize(
    ("place", "reason", "fix"),
    [
        ("folder", "there is a directory in its place", "move or remove the directory"),
        ("link", "it is a symbolic link", "remove the link"),
        ("parent", "is not a directory", "move or remove that file"),
    ],
)
def test_an_index_that_can_not_be_saved_is_reported_with_its_fix(
    library: World, capsys: pytest.CaptureFixture[str], place: str, reason: str, fix: str
) -> None:
    path = store_path(library)
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    if place == "folder":
        (path / "x").mkdir(parents=True)
    elif place == "link":
        path.symlink_to(library.outside / "elsewhere")
    else:
        shutil.rmtree(path.parent)
        path.parent.write_text("")
    registry = library.registry()
    wait_for_index(registry, TEST_TIMEOUT)
    said = capsys.readouterr().err
    assert said.count("the search index can't be saved, so each command builds it again") == 1
    assert f"{reason}; to fix it, {fix}" in said
    assert "run the command again" not in said
    assert [hit.skill.name for hit in search_skills(registry, gizmo(5))] == ["part-5"]
    [problem] = [one for one in library.json("doctor")["diagnostics"] if one["code"] == "search-index"]
    assert (reason in problem["problem"], problem["fix"], problem["file"]) == (True, fix, str(path))


def test_a_disk_that_is_full_is_reported(library: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite says so when it writes, also in the background."""

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(TextStore, "add_bodies", fail)
    index = get_search_index(library.registry(), TEST_TIMEOUT)
    [problem] = index.problems
    assert (problem.problem.endswith(": the disk is full"), problem.fix) == (True, "free disk space")
    assert not index.is_saved


def test_a_lock_is_no_problem_to_report(library: World) -> None:
    path = store_path(library)
    library.skill(".kitbag/skills", "part-31", description="Handles yaks.")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        assert get_search_index(library.registry(), TEST_TIMEOUT).problems == []
    finally:
        connection.close()
    assert [one for one in library.json("doctor")["diagnostics"] if one["code"] == "search-index"] == []


@pytest.fixture
def translated(world: World) -> World:
    """English skills, and two whose description is partly in Japanese."""
    for number in range(60):
        world.skill(".kitbag/skills", f"part-{number}", description=f"Handles {gizmo(number % 30)} and orders.")
    world.skill(".kitbag/skills", "pdf", description="Read, fill in and merge PDF files.")
    world.skill(".kitbag/skills", "flutter-review", description="Reviews Dart code. フォトのレビュー、チーム。")
    world.skill(".kitbag/skills", "search-tools", description="検索ツール。Finds things in tools.")
    return world


@pytest.mark.parametrize(
    "message",
    [
        "请帮我填写这个PDF表单",
        "このPDFフォームに記入してください",
        "PDFのフォームに入力するのを手伝ってください",
        "이 PDF 양식을 작성해 주세요",
        "Bitte füll dieses PDF-Formular aus",
        "Remplis ce formulaire PDF pour moi s'il te plaît",
        "Ayúdame a rellenar este PDF por favor, lo necesito para mi jefe",
    ],
)
def test_an_english_word_tells_most_in_a_message_of_another_language(translated: World, message: str) -> None:
    best = search_skills(translated.registry(), message, wait=TEST_TIMEOUT)[0]
    assert (best.skill.name, best.is_confident) == ("pdf", True)


@pytest.mark.parametrize("message", ["フォームが好きです", "このフォームを見てください", "Netflixのフォームはどこ？"])
def test_fragments_of_one_word_make_no_skill_sure(translated: World, message: str) -> None:
    hits = search_skills(translated.registry(), message, wait=TEST_TIMEOUT)
    assert [hit.skill.name for hit in hits if hit.is_confident] == []


def test_words_of_other_scripts_still_find_their_skills(translated: World) -> None:
    assert search_skills(translated.registry(), "検索ツール", wait=TEST_TIMEOUT)[0].skill.name == "search-tools"
    assert search_skills(translated.registry(), "フォトのレビュー", wait=TEST_TIMEOUT)[0].skill.name == "flutter-review"


def test_the_plural_of_an_acronym_is_its_word(world: World) -> None:
    world.skill(".kitbag/skills", "pdf", description="Read, fill in and merge PDF files.")
    (hit,) = search_skills(world.registry(), "merge two PDFs", wait=TEST_TIMEOUT)
    assert list(hit.words) == ["pdfs", "merge"]
    assert term_keys("parse URLs, IDs and APIs") == term_keys("parse url id and api")
    assert BodyTermCounter().count("URLs").keys() == BodyTermCounter().count("urls").keys()


@pytest.mark.parametrize(
    "message",
    [
        "no, deploy com.acme.app to the host at acme.com, no matter what",
        "The man in Los Angeles was on a son et lumiere tour; fix his invoice totals and send me a list of them",
    ],
)
def test_an_english_message_with_foreign_names_is_english(message: str) -> None:
    assert not is_foreign(message)
