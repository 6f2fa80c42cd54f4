"""Grep, with ripgrep and without: the same answers, and nothing of what may not be read."""

import asyncio
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import structs

from kitbag.library.dialects.tool_lists import parse_tools
from kitbag.tools.search import grep, ripgrep
from kitbag.tools.search.glob import MAX_CHARS
from kitbag.tools.search.grep import GREP
from kitbag.tools.search.grep_results import MAX_LINE_CHARS
from kitbag.tools.search.search_process import MAX_FILE_BYTES
from support.cost import bytes_read
from support.matrix import examples, sample
from support.using import Bench, children, listed, memory_growth, text_of, without_override
from support.waiting import until_true

with_both = pytest.mark.usefixtures("engine")
GROWTH = 100 << 20


@with_both
def test_files_come_newest_first(bench: Bench) -> None:
    bench.write("old.py", "needle", age=9)
    bench.write("new.py", "a needle here")
    bench.write("none.py", "nothing")
    outcome = bench.use(GREP, pattern="needle")
    assert listed(outcome) == ["new.py", "old.py"]
    assert outcome.summary == "2 files"


@with_both
def test_content_comes_with_path_and_line_in_the_order_of_paths(bench: Bench) -> None:
    bench.write("b.py", "x\nneedle 1\ny\nneedle 2\n")
    bench.write("a/c.py", "needle 3")
    outcome = bench.use(GREP, pattern=r"needle \d", output_mode="content")
    assert listed(outcome) == ["a/c.py:1:needle 3", "b.py:2:needle 1", "b.py:4:needle 2"]
    assert outcome.summary == "3 lines"
    assert listed(bench.use(GREP, pattern="needle 3", output_mode="content", _n=False)) == ["a/c.py:needle 3"]


@with_both
def test_lines_around_a_match_are_marked_and_groups_set_apart(bench: Bench) -> None:
    bench.write("a.txt", "1\n2\nhit\n4\n5\n6\n7\nhit\nhit\n10\n")
    assert listed(bench.use(GREP, pattern="hit", output_mode="content", _C=1)) == [
        "a.txt-2-2", "a.txt:3:hit", "a.txt-4-4", "--", "a.txt-7-7", "a.txt:8:hit", "a.txt:9:hit", "a.txt-10-10",
    ]  # fmt: skip
    assert listed(bench.use(GREP, pattern="4", output_mode="content", _A=1, _B=2)) == [
        "a.txt-2-2", "a.txt-3-hit", "a.txt:4:4", "a.txt-5-5",
    ]  # fmt: skip


@with_both
def test_counts_are_by_file(bench: Bench) -> None:
    bench.write("b.py", "x\nx y x\n")
    bench.write("a.py", "x")
    outcome = bench.use(GREP, pattern="x", output_mode="count")
    assert listed(outcome) == ["a.py:1", "b.py:2"]
    assert outcome.summary == "3 in 2 files"


@with_both
def test_a_single_file_is_searched_whatever_it_is_called_and_ignored_or_not(bench: Bench) -> None:
    bench.write(".gitignore", "*.log")
    bench.write("-e.log", "one\ntwo\n")
    for mode, expected in (("content", ["-e.log:2:two"]), ("count", ["-e.log:1"]), ("files_with_matches", ["-e.log"])):
        assert listed(bench.use(GREP, pattern="two", path="-e.log", output_mode=mode)) == expected
        assert listed(bench.use(GREP, pattern="three", path="-e.log", output_mode=mode)) == []


@with_both
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"glob": "*.ts"}, ["src/a.ts"]),
        ({"glob": "*.{ts,tsx}"}, ["src/a.ts", "src/b.tsx"]),
        ({"glob": "*.ts,*.tsx"}, ["src/a.ts", "src/b.tsx"]),
        ({"glob": "*.ts *.py"}, [".hidden.py", "c.py", "src/a.ts"]),
        ({"glob": "!*.ts"}, [".hidden.py", "c.py", "src/b.tsx", "src/lib/d.rs"]),
        ({"glob": "src/**"}, ["src/a.ts", "src/b.tsx", "src/lib/d.rs"]),
        ({"glob": "**/lib/*"}, ["src/lib/d.rs"]),
        ({"glob": "src/**", "path": "src"}, ["src/a.ts", "src/b.tsx", "src/lib/d.rs"]),
        ({"glob": "lib/*", "path": "src"}, ["src/lib/d.rs"]),
        ({"type": "py"}, [".hidden.py", "c.py"]),
        ({"type": "rust"}, ["src/lib/d.rs"]),
        ({"type": "typescript"}, ["src/a.ts", "src/b.tsx"]),
        ({"type": "ts", "glob": "a.*"}, ["src/a.ts"]),
        ({"glob": "*.log"}, []),
        ({"path": "src/lib"}, ["src/lib/d.rs"]),
        ({"path": "ignored"}, ["ignored/e.log"]),
        ({}, [".hidden.py", "c.py", "src/a.ts", "src/b.tsx", "src/lib/d.rs"]),
    ],
)
def test_glob_and_type_and_path_choose_the_files(bench: Bench, arguments: dict[str, str], expected: list[str]) -> None:
    bench.write(".gitignore", "ignored/\n*.log\n")
    paths = ["src/a.ts", "src/b.tsx", "c.py", "src/lib/d.rs", ".hidden.py", "ignored/e.log", "f.log", ".git/x.py"]
    for path in paths:
        bench.write(path, "needle")
    found = listed(bench.use(GREP, pattern="needle", output_mode="count", **arguments))
    assert found == [f"{path}:1" for path in expected]


@with_both
@pytest.mark.parametrize(
    ("pattern", "more", "expected"),
    sample(
        [
            ("HELLO", {"_i": True}, ["1:hello world"]),
            ("hello$", {}, []),
            ("world$", {}, ["1:hello world"]),
            (r"\bwor", {}, ["1:hello world"]),
            (r"^\s+indent", {}, ["2:  indent()"]),
            (r"indent\(\)", {}, ["2:  indent()"]),
            ("grün|ß", {}, ["3:grün"]),
            ("GRÜN", {"_i": True}, ["3:grün"]),
            (r"indent\(\).*gr", {"multiline": True}, ["2:  indent()", "3:grün"]),
            (r"indent\(\)\n\w+$", {"multiline": True}, ["2:  indent()", "3:grün"]),
            ("hello(?= world)", {}, ["1:hello world"]),
            (r"(l)\1", {}, ["1:hello world"]),
            ("--help", {}, ["4:--help"]),
            ("-e", {}, []),
        ],
        5,
        unpack=True,
    ),
)
def test_patterns_mean_the_same_whoever_searches(
    bench: Bench, pattern: str, more: dict[str, Any], expected: list[str]
) -> None:
    bench.write("a.txt", "hello world\r\n  indent()\ngrün\n--help\n")
    for path in ({}, {"path": "a.txt"}):
        found = listed(bench.use(GREP, pattern=pattern, output_mode="content", **more, **path))
        assert found == [f"a.txt:{line}" for line in expected]


@with_both
@pytest.mark.parametrize("pattern", ["(", "[", "*a", "a{2,1}", "(?P<x", "\\"])
def test_a_pattern_that_can_not_be_read_is_an_error_that_says_so(bench: Bench, pattern: str) -> None:
    bench.write("a.txt", "a")
    for path in ({}, {"path": "a.txt"}):
        outcome = bench.use(GREP, pattern=pattern, **path)
        assert outcome.is_error
        assert "the search failed: " in text_of(outcome)


@with_both
def test_a_pattern_across_lines_without_the_option_is_told_about_it(bench: Bench) -> None:
    bench.write("a.txt", "a\nb\n")
    assert "set multiline" in text_of(bench.use(GREP, pattern=r"a\nb"))
    assert listed(bench.use(GREP, pattern=r"a\nb", multiline=True)) == ["a.txt"]


@with_both
@pytest.mark.parametrize(
    "arguments", [{"pattern": "a\0b"}, {"pattern": "\ud800"}, {"pattern": "a", "glob": "{a,b}" * 20}, {"pattern": "a", "type": "klingon"}]
)  # fmt: skip
def test_arguments_that_make_no_sense_are_errors(bench: Bench, arguments: dict[str, str]) -> None:
    bench.write("a.txt", "a")
    outcome = bench.use(GREP, **arguments)
    assert outcome.is_error
    text_of(outcome).encode()


@with_both
@pytest.mark.parametrize(
    "given", [{"glob": "\0"}, {"glob": "[z-a]"}, {"path": "a\0"}, {"path": "none"}, {"path": "\ud800"}]
)
def test_odd_files_and_places_give_an_answer(bench: Bench, given: dict[str, str]) -> None:
    bench.write("a.txt", "a")
    text_of(bench.use(GREP, pattern="a", **given)).encode()


@with_both
def test_limits_are_held_and_said(bench: Bench) -> None:
    for number in range(30):
        bench.write(f"f{number:02}.txt", "hit\n" * 30, age=number)
    content = bench.use(GREP, pattern="hit", output_mode="content", head_limit=7)
    assert len(listed(content)) == 7
    assert content.truncation == "more lines match: narrow the search or raise head_limit"
    files = bench.use(GREP, pattern="hit", head_limit=4)
    assert listed(files) == ["f00.txt", "f01.txt", "f02.txt", "f03.txt"]
    assert files.truncation.startswith("26 more files match")
    counts = bench.use(GREP, pattern="hit", output_mode="count", head_limit=5)
    assert len(listed(counts)) == 5
    assert counts.truncation.startswith("25 more files match")
    assert len(listed(bench.use(GREP, pattern="hit", output_mode="content", head_limit=0))) == 900


@with_both
def test_long_lines_are_cut_and_long_results_too(bench: Bench) -> None:
    bench.write("a.txt", ("x" * 3_000 + "\n") * 300)
    bench.write("b.txt", "ü" * 900)
    outcome = bench.use(GREP, pattern="x", path="a.txt", output_mode="content", head_limit=1_000)
    assert listed(outcome)[0] == "a.txt:1:" + "x" * MAX_LINE_CHARS + " [line truncated]"
    assert len(text_of(outcome)) < MAX_CHARS + 1_000
    assert outcome.truncation
    assert listed(bench.use(GREP, pattern="ü", output_mode="content")) == [
        "b.txt:1:" + "ü" * MAX_LINE_CHARS + " [line truncated]"
    ]


@with_both
def test_binary_files_are_passed_over_and_other_encodings_are_searched(bench: Bench) -> None:
    bench.write("a.bin", b"needle\0\n")
    bench.write("utf16.txt", "a needle\n".encode("utf-16"))
    bench.write("bom.txt", b"\xef\xbb\xbfneedle\n")
    bench.write("latin.txt", b"needle \xfc\n")
    assert listed(bench.use(GREP, pattern="needle", output_mode="content")) == [
        "bom.txt:1:needle",
        "latin.txt:1:needle ü",
        "utf16.txt:1:a needle",
    ]
    assert listed(bench.use(GREP, pattern="^a needle$", path="utf16.txt", output_mode="count")) == ["utf16.txt:1"]
    assert bench.use(GREP, pattern="needle", path="a.bin").is_error


@with_both
def test_hidden_characters_are_shown_and_names_stay_on_one_line(bench: Bench) -> None:
    bench.write("a.txt", "needle\u202e\u200b\x1b[2J")
    bench.write("b\n./a.txt", "needle")
    bench.write("c\u202e.txt", "needle")
    lines = listed(bench.use(GREP, pattern="needle", output_mode="content"))
    assert lines == ["a.txt:1:needle[U+202E][U+200B][U+001B][2J", "c[U+202E].txt:1:needle"]


@with_both
def test_nothing_of_a_file_that_may_not_be_read_is_shown(bench: Bench) -> None:
    for path in ("a.txt", "secret/b.txt", ".env", "keys/id_rsa"):
        bench.write(path, "needle")
    bench.allowing(deny="Read(secret/**)")
    for mode in ("content", "count", "files_with_matches"):
        outcome = bench.use(GREP, pattern="needle", output_mode=mode)
        assert [line.partition(":")[0] for line in listed(outcome)] == ["a.txt"]
        assert outcome.truncation == "3 omitted: no permission to read"
    for path in ("secret", "secret/b.txt"):
        outcome = bench.use(GREP, pattern="needle", path=path, output_mode="content")
        assert outcome.is_error
        assert ":1:needle" not in text_of(outcome)


@with_both
def test_an_agent_without_read_still_searches_and_one_with_a_limit_sees_no_more(bench: Bench) -> None:
    for path in ("docs/a.md", "b.md", ".env"):
        bench.write(path, "needle")
    whole = bench.allowing(deny="Read(b.md)")
    for tools, expected in (
        ("Grep", ["docs/a.md"]),
        ("Grep, Read(docs/**)", ["docs/a.md"]),
        ("Grep, Read", ["docs/a.md"]),
    ):
        context = structs.replace(whole, permissions=whole.permissions.restricted_to(parse_tools(tools)[0], "agent.md"))
        assert listed(bench.use(GREP, context, pattern="needle")) == expected, tools


@with_both
def test_links_are_not_followed(bench: Bench) -> None:  # D07
    (bench.outside / "x").write_text("needle")
    bench.write("real/a.txt", "needle")
    (bench.root / "link").symlink_to(bench.outside)
    (bench.root / "file").symlink_to(bench.outside / "x")
    (bench.root / "inside").symlink_to("real")
    assert listed(bench.use(GREP, pattern="needle")) == ["real/a.txt"]
    for path in ("link", "file", "link/x"):
        outcome = bench.use(GREP, pattern="needle", path=path, output_mode="content")
        assert outcome.is_error
        assert ":needle" not in text_of(outcome)
    assert listed(bench.use(GREP, pattern="needle", path="inside")) == ["inside/a.txt"]
    bench.allowing(deny="Read(inside/**)")
    assert "a.txt" not in text_of(bench.use(GREP, pattern="needle", path="inside"))


@with_both
@pytest.mark.parametrize("path", ["../app-evil", "{root}/../app-evil", "//{evil}", "~/../w/app-evil", "../app-evil/x"])
def test_outside_is_refused_where_nobody_asks(bench: Bench, path: str) -> None:  # D06
    (bench.outside / "x").write_text("needle")
    (bench.outside / ".env").write_text("needle")
    path = path.replace("{root}", str(bench.root)).replace("{evil}", str(bench.outside).lstrip("/"))
    for mode in ("plan", "locked", "autonomous"):
        outcome = bench.use(GREP, bench.allowing(mode=mode), pattern="needle", path=path, output_mode="content")
        assert outcome.is_error
        assert ":needle" not in text_of(outcome)
    outcome = bench.use(GREP, bench.allowing(), pattern="needle", path=path)
    assert listed(outcome) == [f"{bench.outside}/x"]  # somebody agreed to the folder, and not to its secrets


@with_both
def test_what_is_no_file_is_refused_or_passed_over(bench: Bench) -> None:  # D12
    bench.write("a.txt", "needle")
    os.mkfifo(bench.root / "pipe")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(bench.root / "socket"))
    with listening:
        assert listed(bench.use(GREP, pattern="needle")) == ["a.txt"]
        for path in ("pipe", "socket", "/dev/zero", "/proc/self/environ", "/proc"):
            assert bench.use(GREP, pattern="needle", path=path).is_error, path


@with_both
def test_huge_files_are_searched_in_little_time_and_memory(bench: Bench) -> None:  # D12
    with open(bench.root / "sparse", "wb") as file:
        file.truncate(5 << 30)
    with open(bench.root / "begins-as-text", "wb") as file:
        file.write(b"needle\n" * 3_000)
        file.truncate(5 << 30)
    with open(bench.root / "one-line", "wb") as file:
        file.write(b"needle")
        for _ in range(200):
            file.write(b"x" * (1 << 20))
    for path in ("sparse", "begins-as-text", "one-line", "."):
        for mode in ("content", "count"):
            with memory_growth() as growth, bytes_read() as read:
                outcome = bench.use(GREP, pattern="needle", path=path, output_mode=mode)
                assert read() < 1 << 30, path
            assert growth() < GROWTH, path
            assert len(text_of(outcome)) < MAX_CHARS
            assert outcome.is_error or outcome.truncation, path
    assert listed(bench.use(GREP, pattern="needle", path="begins-as-text", output_mode="count")) == [
        "begins-as-text:3000"
    ]


@with_both
def test_files_that_are_too_large_for_a_folder_are_said_when_nothing_is_found(bench: Bench) -> None:
    with open(bench.root / "large.log", "wb") as file:
        file.write(b"needle\n")
        file.truncate(MAX_FILE_BYTES + 1)
    bench.write("a.txt", "x")
    assert "1 files over 32 MB were not searched" in text_of(bench.use(GREP, pattern="needle"))
    assert "over 32 MB" not in text_of(bench.use(GREP, pattern="needle", glob="*.txt"))


@with_both
@pytest.mark.parametrize("mode", ["files_with_matches", "content", "count"])
def test_what_can_not_be_opened_is_said_with_its_name(bench: Bench, mode: str) -> None:
    bench.write("a.txt", "needle")
    bench.write("shut.txt", "needle").chmod(0)
    bench.write("closed/b.txt", "needle").parent.chmod(0)
    outcome = without_override(lambda: bench.use(GREP, pattern="needle", output_mode=mode))
    (bench.root / "closed").chmod(0o755)
    assert [line.partition(":")[0] for line in listed(outcome)] == ["a.txt"]
    assert "2 files or directories could not be opened: " in outcome.truncation
    assert set(outcome.truncation.partition(": ")[2].split(", ")) == {"closed", "shut.txt"}
    assert text_of(outcome).endswith(f"[{outcome.truncation}]")


@with_both
def test_nothing_that_may_not_be_read_is_named_among_what_could_not_be_opened(bench: Bench) -> None:
    for number in range(8):
        bench.write(f"open/{number}.txt", "needle").chmod(0)
    bench.write("secret/plans.txt", "needle").chmod(0)
    context = bench.allowing(deny="Read(./secret/**)")
    outcome = without_override(lambda: bench.use(GREP, context, pattern="needle"))
    assert text_of(outcome).startswith("No matches (9 files or directories could not be opened: ")
    assert "more" in outcome.truncation
    assert "plans" not in text_of(outcome)


@with_both
@pytest.mark.parametrize("many", [3, 3_000])
def test_lines_come_in_the_order_of_their_paths(bench: Bench, many: int) -> None:
    paths = ["b.txt", "a/z.txt", "a/b/c.txt", "a.txt", "a-b.txt"]
    for path in paths:
        bench.write(path, "a needle in a line that is long enough to be many bytes\n" * many)
    outcome = bench.use(GREP, pattern="needle", output_mode="content", head_limit=2_000)
    shown = [tuple(line.split(":")[:2]) for line in listed(outcome)]
    expected = [
        (path, str(line)) for path in sorted(paths, key=lambda one: one.split("/")) for line in range(1, many + 1)
    ]
    assert shown == expected[: len(shown)]
    assert (len(shown) == len(expected)) == (many == 3)
    assert ("more lines match" in outcome.truncation) == (many == 3_000)


@with_both
def test_a_question_mark_stands_for_one_character_of_any_length(bench: Bench) -> None:
    for name in ("é.txt", "a.txt", "ab.txt"):
        bench.write(name, "needle")
    assert sorted(listed(bench.use(GREP, pattern="needle", glob="?.txt"))) == ["a.txt", "é.txt"]


def test_a_pattern_that_never_ends_is_stopped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ripgrep, "EXECUTABLE", "no-such-rg")
    monkeypatch.setattr(grep, "TIMEOUT_SECONDS", 0.5)
    bench.write("a.txt", "a" * 5_000 + "\n")
    for path in ({}, {"path": "a.txt"}):
        outcome = bench.use(GREP, pattern="(a+)+b", **path)
        assert "timed out" in text_of(outcome)
        assert not children()


@with_both
def test_cancelling_ends_the_search(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write("a.txt", "a" * 60_000 + "\n")
    monkeypatch.setattr(ripgrep, "EXECUTABLE", "no-such-rg")  # only Python's regular expressions run for ever

    async def cancelled(arguments: dict[str, Any]) -> None:
        running = asyncio.ensure_future(bench.using(GREP, {"pattern": "(a+)+b", **arguments}))
        await until_true(lambda: bool(children()))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not children()

    asyncio.run(cancelled({}))
    asyncio.run(cancelled({"path": "a.txt"}))


def test_a_project_can_not_bring_its_own_ripgrep(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:  # D01
    canary = bench.base / "canary"
    fake = bench.write("bin/rg", f"#!/bin/sh\ntouch {canary}\n")
    fake.chmod(0o755)
    (bench.base / "linked").mkdir()
    (bench.base / "linked" / "rg").symlink_to(fake)
    bench.write("a.txt", "needle")
    monkeypatch.chdir(bench.root / "bin")
    monkeypatch.setenv("PATH", f"{bench.root}/bin:.::bin:{bench.base}/linked:{bench.root}/x/../bin")
    with monkeypatch.context() as elsewhere:  # beside our Python stands the one that came with Kitbag
        elsewhere.setattr("sys.executable", "/nowhere/python")
        assert ripgrep.find_ripgrep(bench.workspace) == ""
    assert listed(bench.use(GREP, pattern="^needle")) == ["a.txt"]
    assert not canary.exists()


def test_nothing_of_the_environment_reaches_the_search(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    told = bench.base / "told"
    (bench.base / "tools").mkdir()
    fake = bench.base / "tools" / "rg"
    fake.write_text(f'#!/bin/sh\nenv >> {told}\nprintf "%s\\n" "$@" >> {told}\n')
    fake.chmod(0o755)
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    monkeypatch.setenv("PATH", f"{fake.parent}")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", "/evil")
    monkeypatch.setenv("CANARY_TOKEN", "hunter2")
    bench.use(GREP, pattern="--pre=evil")
    words = told.read_text().splitlines()
    assert "hunter2" not in told.read_text()
    assert not any(word.startswith("RIPGREP") for word in words)
    assert "--no-config" in words
    assert words[words.index("--pre=evil") - 1] == "-e"
    assert words[-2:] == ["--", "./"]


def test_a_ripgrep_that_does_not_run_is_replaced(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    (bench.base / "tools").mkdir()
    fake = bench.base / "tools" / "rg"
    bench.write("a.txt", "needle")
    monkeypatch.setenv("PATH", str(fake.parent))
    for script in ("no program", "#!/bin/sh\necho 'error: unknown option' >&2\nexit 2\n"):
        fake.write_text(script)
        fake.chmod(0o755)
        for path in ({}, {"path": "a.txt"}):
            assert listed(bench.use(GREP, pattern="needle", **path)) == ["a.txt"]


words = st.sampled_from(["foo", "bar", "Foo", " ", "x1", "", "été", "foo bar", "a.b"])
texts = st.lists(st.lists(words, max_size=3).map("".join), max_size=12).map("\n".join)
patterns = st.sampled_from(
    ["foo", "^foo", "bar$", "o+", r"\w\d", ".", "^$", "a.b", r"a\.b", "foo|x1", "é", "[a-f]{2}", r"\bfoo\b", "f(o)(o)?"]
)


@settings(max_examples=examples(25))
@given(
    contents=st.lists(texts, min_size=1, max_size=4),
    pattern=patterns,
    mode=st.sampled_from(["content", "count", "files_with_matches"]),
    around=st.integers(0, 2),
    ignore_case=st.booleans(),
    multiline=st.booleans(),
    single=st.booleans(),
)
def test_both_engines_give_the_same_answer(
    contents: list[str], pattern: str, mode: str, around: int, ignore_case: bool, multiline: bool, single: bool
) -> None:
    assume(not (multiline and pattern == "^$"))  # whether an empty file has an empty line depends on rg's version
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        bench = Bench(Path(folder))
        for number, text in enumerate(contents):
            bench.write(f"f{number}.txt", text, age=number)
        given: dict[str, Any] = {"pattern": pattern, "output_mode": mode, "multiline": multiline and mode != "count"}
        given |= {"_C": around, "_i": ignore_case} | ({"path": "f0.txt"} if single else {})
        patch.setenv("PATH", "/usr/bin")
        by_ripgrep = bench.use(GREP, **given)
        patch.setattr(ripgrep, "EXECUTABLE", "no-such-rg")
        assert bench.use(GREP, **given) == by_ripgrep
