"""Glob, with ripgrep and without: what it finds, in which order, and what it never names."""

import asyncio
import os
from typing import Any

import pytest

from kitbag.tools.search.glob import GLOB, MAX_SHOWN
from support.matrix import sample
from support.using import Bench, children, listed, text_of, without_override

pytestmark = pytest.mark.usefixtures("engine")


def test_files_come_newest_first_and_then_by_name(bench: Bench) -> None:
    bench.write("old.py", age=100)
    bench.write("src/b.py", age=10)
    bench.write("src/a.py", age=10)
    bench.write("new.py")
    outcome = bench.use(GLOB, pattern="**/*.py")
    assert listed(outcome) == ["new.py", "src/a.py", "src/b.py", "old.py"]
    assert outcome.summary == "4 files"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"pattern": "*.md"}, ["top.md"]),
        ({"pattern": "**/*.md"}, ["docs/deep/b.md", "docs/a.md", "top.md"]),
        ({"pattern": "docs/*.md"}, ["docs/a.md"]),
        ({"pattern": "*.md", "path": "docs"}, ["docs/a.md"]),
        ({"pattern": "d*/**/[ab].md"}, ["docs/deep/b.md", "docs/a.md"]),
        ({"pattern": "{top,docs/a}.md"}, ["docs/a.md", "top.md"]),
        ({"pattern": "{root}/docs/*.md"}, ["docs/a.md"]),
        ({"pattern": "docs/a.md"}, ["docs/a.md"]),
        ({"pattern": "docs/deep/../*.md"}, ["docs/a.md"]),
        ({"pattern": "app/[id]/page.tsx"}, ["app/[id]/page.tsx"]),
        ({"pattern": "**/page.tsx", "path": "app"}, ["app/[id]/page.tsx"]),
        ({"pattern": "*.none"}, []),
    ],
)
def test_a_pattern_finds_its_files(bench: Bench, arguments: dict[str, str], expected: list[str]) -> None:
    for age, path in enumerate(["docs/deep/b.md", "docs/a.md", "top.md", "app/[id]/page.tsx"]):
        bench.write(path, age=age)
    arguments = {key: value.replace("{root}", str(bench.root)) for key, value in arguments.items()}
    assert listed(bench.use(GLOB, **arguments)) == expected


def test_hidden_files_are_found_when_the_pattern_has_their_dot(bench: Bench) -> None:
    for path in (".github/workflows/ci.yml", "a.yml", ".hidden.yml"):
        bench.write(path)
    assert listed(bench.use(GLOB, pattern="**/*.yml")) == ["a.yml"]
    assert listed(bench.use(GLOB, pattern="**/.*.yml")) == [".hidden.yml"]
    assert listed(bench.use(GLOB, pattern=".github/**/*.yml")) == [".github/workflows/ci.yml"]


def test_what_git_ignores_is_left_out_unless_it_is_named(bench: Bench) -> None:
    bench.write(".gitignore", "dist/\n*.log\n")
    for path in ("dist/a.js", "src/a.js", "x.log"):
        bench.write(path)
    assert listed(bench.use(GLOB, pattern="**/*.js")) == ["src/a.js"]
    assert listed(bench.use(GLOB, pattern="dist/*.js")) == ["dist/a.js"]
    assert listed(bench.use(GLOB, pattern="*.js", path="dist")) == ["dist/a.js"]
    assert listed(bench.use(GLOB, pattern="x.log")) == ["x.log"]
    assert listed(bench.use(GLOB, pattern="*.log")) == []


def test_a_long_result_says_how_many_more_there_are(bench: Bench) -> None:
    for number in range(MAX_SHOWN + 25):
        bench.write(f"f{number:03}.txt", age=number)
    outcome = bench.use(GLOB, pattern="*.txt")
    assert listed(outcome) == [f"f{number:03}.txt" for number in range(MAX_SHOWN)]
    assert text_of(outcome).endswith("[25 more match: narrow the pattern]")
    assert outcome.truncation == "25 more match: narrow the pattern"


def test_nothing_found_says_where_and_what_is_not_searched(bench: Bench) -> None:
    bench.write("src/a.py")
    text = text_of(bench.use(GLOB, pattern="*.none", path="src"))
    assert text.startswith("No files match in src.")
    assert "Hidden and git-ignored files" in text


def test_names_that_may_not_be_read_are_left_out_and_counted(bench: Bench) -> None:
    for path in ("a.txt", "secret/b.txt", "deep/secret/c.txt", ".env", "id_rsa"):
        bench.write(path)
    bench.allowing(deny="Read(secret/**)")
    outcome = bench.use(GLOB, pattern="**/*")
    assert listed(outcome) == ["a.txt"]
    assert "3 omitted: no permission to read" in outcome.truncation
    text = text_of(bench.use(GLOB, pattern="**/.*"))
    assert ".env" not in text
    assert "1 omitted" in text


def test_in_locked_mode_only_what_a_rule_allows_is_named(bench: Bench) -> None:
    for path in ("docs/a.md", "b.md"):
        bench.write(path)
    bench.allowing(mode="locked", allow="Glob Read(docs/**)")
    assert listed(bench.use(GLOB, pattern="**/*.md")) == ["docs/a.md"]


def test_links_are_not_followed(bench: Bench) -> None:  # D07
    (bench.outside / "secret.txt").write_text("x")
    bench.write("a.txt")
    (bench.root / "link").symlink_to(bench.outside)
    (bench.root / "link.txt").symlink_to(bench.outside / "secret.txt")
    (bench.root / "loop").symlink_to(".")
    assert listed(bench.use(GLOB, pattern="**/*.txt")) == ["a.txt"]
    for arguments in ({"pattern": "link/*"}, {"pattern": "*", "path": "link"}, {"pattern": "link/secret.txt"}):
        outcome = bench.use(GLOB, **arguments)
        assert outcome.is_error
        assert "secret.txt" not in text_of(outcome).replace("link/secret.txt", "")


@pytest.mark.parametrize("rule", ["Read(link/**)", "Read(//{outside}/**)"])
def test_a_rule_that_denies_a_link_or_its_target_hides_what_is_behind_it(bench: Bench, rule: str) -> None:  # D07
    (bench.outside / "secret.txt").write_text("x")
    (bench.root / "link").symlink_to(bench.outside)
    deny = rule.format(outside=str(bench.outside).lstrip("/"))
    bench.allowing(allow=f"Read(/{bench.outside}/**) Read(link/**)", deny=deny)
    for arguments in ({"pattern": "link/*"}, {"pattern": "*.txt", "path": str(bench.outside)}):
        text = text_of(bench.use(GLOB, **arguments))
        if "Read(link" in rule and "path" in arguments:
            continue  # the rule says nothing about the folder by its own name
        assert "secret.txt" not in text, arguments


@pytest.mark.parametrize(
    "arguments",
    [
        {"pattern": "*", "path": "../app-evil"},
        {"pattern": "../app-evil/*"},
        {"pattern": "{root}/../app-evil/*"},
        {"pattern": "//{evil}/*"},
        {"pattern": "*", "path": "~/../w/app-evil"},
        {"pattern": "~/../w/app-evil/*"},
        {"pattern": "../app-evil/secret.txt"},
    ],
)
def test_outside_is_refused_where_nobody_asks_and_shown_where_somebody_agreed(
    bench: Bench, arguments: dict[str, str]
) -> None:  # D06, D13
    (bench.outside / "secret.txt").write_text("x")
    (bench.outside / "id_rsa").write_text("x")
    words = {"{root}": str(bench.root), "{evil}": str(bench.outside).lstrip("/")}
    given: dict[str, Any] = dict(arguments)
    for key, value in given.items():
        for old, new in words.items():
            given[key] = value = value.replace(old, new)
    for mode in ("plan", "locked", "autonomous"):
        outcome = bench.use(GLOB, bench.allowing(mode=mode), **given)
        assert outcome.is_error
        assert f"{bench.outside}/secret.txt" not in text_of(outcome)
    # In default mode it is asked; that the tool runs means that somebody agreed to this folder, but not to keys in it.
    outcome = bench.use(GLOB, bench.allowing(), **given)
    assert listed(outcome) == [f"{bench.outside}/secret.txt"]


@pytest.mark.parametrize("pattern", ["*/../../*", "{..,a}/*", "a/{b,..}/*", "**/.."])
def test_a_pattern_that_leads_back_up_is_refused(bench: Bench, pattern: str) -> None:
    outcome = bench.use(GLOB, pattern=pattern)
    assert outcome.is_error


@pytest.mark.parametrize(
    "pattern", sample(["{a,b}" * 20, "[z-a]", "\0", "\ud800*", "*" * 2_000, "{" * 2_000, "a\u202e*"], 3)
)
def test_a_bad_pattern_gives_an_answer(bench: Bench, pattern: str) -> None:
    bench.write("a" * 200)
    text_of(bench.use(GLOB, pattern=pattern)).encode()


def test_names_can_not_pretend_to_be_more_than_one_line(bench: Bench) -> None:
    bench.write("a\nb.txt")
    bench.write("c\u202etxt.exe")
    (bench.root / os.fsdecode(b"bad\xff.txt")).write_text("")
    names = set(listed(bench.use(GLOB, pattern="*")))
    assert names == {"a[U+000A]b.txt", "c[U+202E]txt.exe", "bad[U+DCFF].txt"}


@pytest.mark.parametrize("path", ["none", "a.txt", "a.txt/x", "/proc", "/dev"])
def test_what_is_no_folder_is_an_error(bench: Bench, path: str) -> None:
    bench.write("a.txt")
    assert bench.use(GLOB, pattern="*", path=path).is_error


def test_folders_that_can_not_be_opened_are_said_with_their_names(bench: Bench) -> None:
    bench.write("a.txt")
    for name in ("closed", "secret"):
        bench.write(f"{name}/b.txt").parent.chmod(0)
    context = bench.allowing(deny="Read(./secret/**) Read(./secret)")
    outcome = without_override(lambda: bench.use(GLOB, context, pattern="**/*.txt"))
    for name in ("closed", "secret"):
        (bench.root / name).chmod(0o755)
    assert text_of(outcome) == "a.txt\n[2 files or directories could not be opened: closed, 1 more]"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("**/*.{ts,tsx}", ["a.ts", "b.tsx", "sub/c.ts"]),
        ("*.{ts,tsx}", ["a.ts", "b.tsx"]),
        ("x{a,b}.py", ["x{a,b}.py", "xa.py"]),
        ("?.ts", ["a.ts", "é.ts"]),
        ("**/é*", ["é.ts"]),
        ("sub/**", ["sub/c.ts", "sub/é/d"]),
        ("a[b].md", ["a[b].md", "ab.md"]),
        ("a+@-_.txt", ["a+@-_.txt"]),
        ("!odd", ["!odd"]),
        ("*,x", ["a,x"]),
    ],
)
def test_names_are_found_however_they_are_written(bench: Bench, pattern: str, expected: list[str]) -> None:
    for name in {*expected, "a.ts", "other.md", "sub/é/d", "sub/c.ts", "xc.py", "xa.py", "é.ts", "a.tss"}:
        bench.write(name)
    wanted = expected if "{ts" not in pattern else [*expected, "é.ts"]
    assert sorted(listed(bench.use(GLOB, pattern=pattern))) == sorted(wanted)


def test_a_file_that_vanishes_is_left_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write("a.txt")
    gone = bench.write("b.txt")
    from kitbag.tools.search import glob

    listing = glob.list_files

    def list_and_remove(*arguments: Any) -> Any:
        done = listing(*arguments)
        gone.unlink()
        return done

    monkeypatch.setattr(glob, "list_files", list_and_remove)
    assert listed(bench.use(GLOB, pattern="*.txt")) == ["a.txt"]


def test_cancelling_leaves_nothing_running(bench: Bench) -> None:
    for number in range(300):
        bench.write(f"d{number}/f.txt")

    async def cancelled() -> None:
        for _ in range(10):
            running = asyncio.ensure_future(bench.using(GLOB, {"pattern": "**/*"}))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert not children()

    asyncio.run(cancelled())
