"""Write, on real files: what is made, what is kept, what is refused, and what others do meanwhile."""

import asyncio
import json
import os
import socket
import stat
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from kitbag.tools.files.read import READ
from kitbag.tools.files.write import WRITE
from kitbag.tools.seen_files import MAX_BYTES, SeenFiles
from support.matrix import examples, rounds
from support.using import Bench, text_of
from tools.changing_files import Keeper, editing, every_file, swapping


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return editing(tmp_path)


def test_a_new_file_is_made_with_the_folders_above_it(bench: Bench) -> None:
    outcome = bench.use(WRITE, file_path="src/deep/a.py", content="import os\n\nx = 1\n")
    assert (bench.root / "src/deep/a.py").read_bytes() == b"import os\n\nx = 1\n"
    assert text_of(outcome) == "Created src/deep/a.py: 3 lines, 17 bytes."
    assert outcome.summary == "src/deep/a.py +3 (new)"
    assert outcome.details.splitlines() == [
        "--- /dev/null", "+++ src/deep/a.py", "@@ -0,0 +1,3 @@", "+import os", "+", "+x = 1",
    ]  # fmt: skip
    assert outcome.truncation == ""


def test_a_new_file_gets_the_usual_rights_and_one_that_exists_keeps_its_own(bench: Bench) -> None:
    usual = bench.write("usual")
    bench.use(WRITE, file_path="new", content="x")
    assert (bench.root / "new").stat().st_mode == usual.stat().st_mode
    script = bench.write("run.sh", "")
    script.chmod(0o750)
    bench.use(WRITE, file_path="run.sh", content="#!/bin/sh\n")
    assert stat.S_IMODE(script.stat().st_mode) == 0o750


def test_a_file_that_was_read_is_replaced_and_the_diff_is_for_the_person(bench: Bench) -> None:
    bench.write("a.txt", "".join(f"line {number}\n" for number in range(1, 21)))
    bench.use(READ, file_path="a.txt")
    content = "".join(f"line {number}\n" for number in range(1, 21) if number != 12).replace("line 3\n", "line three\n")
    outcome = bench.use(WRITE, file_path="a.txt", content=content)
    assert (bench.root / "a.txt").read_text() == content
    assert outcome.summary == "a.txt +1 -2"
    assert "line 12" not in text_of(outcome)
    assert outcome.details.splitlines() == [
        "--- a.txt", "+++ a.txt",
        "@@ -1,6 +1,6 @@", " line 1", " line 2", "-line 3", "+line three", " line 4", " line 5", " line 6",
        "@@ -9,7 +9,6 @@", " line 9", " line 10", " line 11", "-line 12", " line 13", " line 14", " line 15",
    ]  # fmt: skip


def test_what_was_not_read_is_not_overwritten(bench: Bench) -> None:
    path = bench.write("a.txt", "precious")
    outcome = bench.use(WRITE, file_path="a.txt", content="new")
    assert outcome.is_error
    assert text_of(outcome) == (
        "Error: a.txt exists and has not been read in this session. Read it first, or use Edit."
    )
    assert path.read_text() == "precious"


def test_what_changed_since_it_was_read_is_not_overwritten(bench: Bench) -> None:
    path = bench.write("a.txt", "one")
    bench.use(READ, file_path="a.txt")
    path.write_text("two")
    outcome = bench.use(WRITE, file_path="a.txt", content="new")
    assert text_of(outcome) == "Error: a.txt has changed since it was last read. Read it again before changing it."
    assert path.read_text() == "two"
    bench.use(READ, file_path="a.txt")
    assert not bench.use(WRITE, file_path="a.txt", content="new").is_error


def test_what_was_only_touched_counts_as_seen(bench: Bench) -> None:
    path = bench.write("a.txt", "one")
    bench.use(READ, file_path="a.txt")
    path.write_text("two")
    path.write_text("one")
    path.chmod(0o755)
    assert not bench.use(WRITE, file_path="a.txt", content="new").is_error


def test_what_it_wrote_itself_it_may_write_again(bench: Bench) -> None:
    for content in ("one", "two", "three"):
        assert not bench.use(WRITE, file_path="a.txt", content=content).is_error
    assert (bench.root / "a.txt").read_text() == "three"


def test_a_file_is_known_under_every_name_it_has(bench: Bench) -> None:
    bench.write("AGENTS.txt", "be kind")
    (bench.root / "link").symlink_to("AGENTS.txt")
    bench.use(READ, file_path="link")
    assert not bench.use(WRITE, file_path=f"{bench.root}/AGENTS.txt", content="be brief").is_error
    assert not bench.use(WRITE, file_path="link", content="be both").is_error
    assert (bench.root / "link").is_symlink()
    assert (bench.root / "AGENTS.txt").read_text() == "be both"


def test_an_empty_file_needs_no_reading_and_the_same_content_no_writing(bench: Bench) -> None:
    keeper = Keeper()
    bench.allowing(mode="acceptEdits", seen_files=SeenFiles(), change_recorder=keeper)
    bench.write("empty")
    assert not bench.use(WRITE, file_path="empty", content="x\n").is_error
    path = bench.write("same", "abc\n")
    before = path.stat()
    outcome = bench.use(WRITE, file_path="same", content="abc\n")
    assert text_of(outcome) == "same already has exactly this content."
    assert (path.stat().st_ino, path.stat().st_mtime) == (before.st_ino, before.st_mtime)
    assert len(keeper.kept) == 1


def test_an_emptied_file_says_so(bench: Bench) -> None:
    bench.write("a.txt", "a\nb\n")
    bench.use(READ, file_path="a.txt")
    outcome = bench.use(WRITE, file_path="a.txt", content="")
    assert (bench.root / "a.txt").read_bytes() == b""
    assert outcome.summary == "a.txt +0 -2"


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"a\r\nb\r\n", "a\nc\n", b"a\r\nc\r\n"),
        (b"a\r\nb\r\n", "a\r\nc\n", b"a\r\nc\n"),
        (b"a\r\nb\n", "a\nc\n", b"a\nc\n"),
        (b"a\r\nb\r\n", "#!/bin/sh\nls\n", b"#!/bin/sh\nls\n"),
        (b"\xef\xbb\xbfa\n", "b\n", b"\xef\xbb\xbfb\n"),
        ("grün\r\n".encode("utf-16"), "blau\n", "blau\r\n".encode("utf-16")),
        (b"\xfe\xff" + "x".encode("utf-16-be"), "ß", b"\xfe\xff" + "ß".encode("utf-16-be")),
        (b"gr\xfcn\n", "gr\xfcner\n", b"gr\xfcner\n"),
        (b"gr\xfcn\n", "→\n", "→\n".encode()),
        (b"a\n", "b", b"b"),
    ],
)
def test_the_way_a_file_was_written_is_kept(bench: Bench, before: bytes, content: str, after: bytes) -> None:
    path = bench.write("a.txt", before)
    bench.use(READ, file_path="a.txt")
    outcome = bench.use(WRITE, file_path="a.txt", content=content)
    assert not outcome.is_error, text_of(outcome)
    assert path.read_bytes() == after


def test_what_was_kept_of_the_way_is_said(bench: Bench) -> None:
    bench.write("a.txt", b"gr\xfcn\r\n")
    bench.use(READ, file_path="a.txt")
    text = text_of(bench.use(WRITE, file_path="a.txt", content="blä\n"))
    assert "\\r\\n line endings preserved; Windows-1252 preserved" in text
    assert "converted from Windows-1252 to UTF-8" in text_of(bench.use(WRITE, file_path="a.txt", content="→\n"))


def test_what_is_about_to_change_is_kept_first(bench: Bench) -> None:
    path = bench.write("a.txt", "")
    seen: list[bytes] = []
    keeper = Keeper(lambda: seen.append(path.read_bytes()))
    context = bench.allowing(mode="acceptEdits", change_recorder=keeper, call_id="call-1")
    bench.use(WRITE, context, file_path="a.txt", content="one")
    bench.use(WRITE, context, file_path="a.txt", content="two")
    bench.use(WRITE, context, file_path="new/b.txt", content="b")
    assert keeper.kept == [
        ("call-1", str(path), b"", b"one"),
        ("call-1", str(path), b"one", b"two"),
        ("call-1", str(bench.root / "new/b.txt"), None, b"b"),
    ]
    assert seen == [b"", b"one", b"two"]


@pytest.mark.parametrize("meanwhile", ["changed", "vanished", "folder"])
def test_a_file_that_changes_in_this_moment_is_left_alone(bench: Bench, meanwhile: str) -> None:
    path = bench.write("a.txt", "one")

    def act() -> None:
        path.unlink()
        if meanwhile == "changed":
            path.write_text("theirs")
        elif meanwhile == "folder":
            path.mkdir()

    bench.allowing(mode="acceptEdits", change_recorder=Keeper(act))
    outcome = bench.use(WRITE, file_path="a.txt", content="mine")
    assert outcome.is_error
    assert "a.txt" in text_of(outcome)
    assert every_file(bench.root) == ({"a.txt": b"theirs"} if meanwhile == "changed" else {})


def test_a_file_that_appears_in_this_moment_is_left_alone(bench: Bench) -> None:
    bench.allowing(mode="acceptEdits", change_recorder=Keeper(lambda: bench.write("a.txt", "theirs")))
    outcome = bench.use(WRITE, file_path="a.txt", content="mine")
    assert text_of(outcome) == ("Error: a.txt was created during this edit; nothing was written. Read it again.")
    assert every_file(bench.root) == {"a.txt": b"theirs"}


def test_where_nothing_can_be_kept_nothing_is_changed(bench: Bench) -> None:
    def fail() -> None:
        raise OSError("no space left")

    bench.allowing(mode="acceptEdits", change_recorder=Keeper(fail))
    with pytest.raises(OSError, match="no space left"):
        bench.use(WRITE, file_path="a.txt", content="x")
    assert every_file(bench.root) == {}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("a\nb\0c", "content contains a NUL character on line 2"),
        ("\ud800", "content contains an unpaired surrogate (U+D800) on line 1"),
        ("x" * (MAX_BYTES + 1), "content is too long: 10,000,001 characters, maximum 10,000,000"),
        ("ß" * (MAX_BYTES // 2 + 1), "the file would be too large: 10.0 MB, maximum 10.0 MB"),
    ],
    ids=["NUL", "surrogate", "characters", "bytes"],
)
def test_content_that_is_no_text_or_too_much_is_refused(bench: Bench, content: str, problem: str) -> None:
    outcome = bench.use(WRITE, file_path="a.txt", content=content)
    assert outcome.is_error
    assert problem in text_of(outcome)
    assert every_file(bench.root) == {}


def test_what_can_not_be_a_file_is_refused_with_the_reason(bench: Bench) -> None:  # D12
    bench.write("folder/x")
    bench.write("picture", b"\x89PNG\r\n\x1a\n\0\0\0")
    bench.write("large", b"x" * (MAX_BYTES + 1))
    os.mkfifo(bench.root / "pipe")
    (bench.root / "to-pipe").symlink_to("pipe")
    (bench.root / "circle").symlink_to("circle")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(bench.root / "socket"))
    reasons = {
        "folder": "is a directory",
        "folder/": "is a directory, not a file",
        "folder/x/y": "is not a directory",
        "picture": "is a binary file of 11 bytes",
        "large": "too large to edit: 10.0 MB",
        "pipe": "named pipe",
        "to-pipe": "named pipe",
        "socket": "socket",
        "circle": "too many levels",
        "/dev/null": "cannot use",
        "/dev/zero": "device",
        "/proc/self/comm": "kernel interface",
        "/sys/x": "kernel interface",
        "a\0b": "NUL",
        "\ud800": "unpaired surrogate",
        "x" * 4_000: "too long",
        "~nobody-here/x": "no user named",
    }
    with listening:
        for path, reason in reasons.items():
            outcome = bench.use(WRITE, file_path=path, content="x")
            assert outcome.is_error, path
            assert reason in text_of(outcome), path
            text_of(outcome).encode()


def test_without_the_right_to_write_the_reason_is_said_before_anything_is_kept(bench: Bench) -> None:
    if not os.geteuid():
        pytest.skip("root writes everywhere")
    keeper = Keeper()
    bench.allowing(mode="acceptEdits", change_recorder=keeper)
    bench.write("a.txt", "x").chmod(0o444)
    assert "a.txt is read-only" in text_of(bench.use(WRITE, file_path="a.txt", content="y"))
    (bench.root / "closed").mkdir(mode=0o555)
    assert "no write permission for directory" in text_of(bench.use(WRITE, file_path="closed/new/a.txt", content="y"))
    assert keeper.kept == []
    assert every_file(bench.root) == {"a.txt": b"x"}


def test_outside_the_workspace_nothing_is_written_where_nobody_can_be_asked(bench: Bench) -> None:  # D06
    for mode in ("plan", "locked", "autonomous"):
        bench.allowing(mode=mode)
        for path in (f"{bench.outside}/x", f"{bench.root}/../app-evil/x", f"/{bench.outside}/x", "../app-evil/x"):
            assert bench.use(WRITE, file_path=path, content="x").is_error, path
    assert every_file(bench.outside) == {}
    bench.allowing(allow=f"Edit(/{bench.outside}/**)")
    assert not bench.use(WRITE, file_path=f"{bench.outside}/x", content="x").is_error


def test_what_is_denied_now_is_refused_however_it_was_allowed(bench: Bench) -> None:
    for rule in ("Write(*.txt)", "Edit(a.txt)", "Read(a.txt)"):
        bench.allowing(mode="acceptEdits", deny=rule)
        assert bench.use(WRITE, file_path="a.txt", content="x").is_error, rule
    bench.allowing(mode="plan")
    assert bench.use(WRITE, file_path="a.txt", content="x").is_error
    assert every_file(bench.root) == {}


@pytest.mark.parametrize("rule", ["Edit(link)", "Edit(/{outside}/**)", "Read(/{outside}/x)"])
def test_a_rule_that_denies_the_link_or_its_target_holds(bench: Bench, rule: str) -> None:  # D07
    (bench.outside / "x").write_text("outside")
    (bench.root / "link").symlink_to(bench.outside / "x")
    bench.allowing(allow=f"Edit(/{bench.outside}/**) Edit(link)", deny=rule.format(outside=bench.outside))
    assert bench.use(WRITE, file_path="link", content="x").is_error
    assert every_file(bench.outside) == {"x": b"outside"}


def test_a_link_that_leads_out_writes_nothing_there(bench: Bench) -> None:  # D08, D10
    bench.allowing(mode="acceptEdits")
    (bench.root / "d").symlink_to(bench.outside)
    (bench.home / ".bashrc").write_text("mine")
    (bench.root / "notes").symlink_to(bench.home / ".bashrc")
    for path in ("d/new.txt", "d/deep/new.txt", "notes"):
        outcome = bench.use(WRITE, file_path=path, content="x")
        assert outcome.is_error
        assert "which was not approved" in text_of(outcome)
    assert every_file(bench.outside) == {}
    assert (bench.home / ".bashrc").read_text() == "mine"


def test_a_link_that_leads_out_is_written_only_where_somebody_agreed_to(bench: Bench) -> None:
    link = bench.root / "link"
    link.symlink_to(bench.outside / "x")
    context = bench.allowing()
    arguments = {"file_path": "link", "content": "agreed"}
    judgement = context.permissions.decide("Write", arguments, context.directory)
    assert judgement.effect == "ask"
    agreed = structs.replace(context, decision=judgement)
    assert not bench.use(WRITE, agreed, **arguments).is_error
    assert every_file(bench.outside) == {"x": b"agreed"}
    link.unlink()
    link.symlink_to(bench.outside / "y")
    assert bench.use(WRITE, agreed, **arguments).is_error
    assert every_file(bench.outside) == {"x": b"agreed"}


def test_a_link_inside_is_followed_where_the_same_was_asked_and_never_into_what_steers_programs(bench: Bench) -> None:
    link = bench.root / "link"
    link.symlink_to("a.txt")
    context = bench.allowing()
    arguments = {"file_path": "link", "content": "x"}
    agreed = structs.replace(context, decision=context.permissions.decide("Write", arguments, context.directory))
    assert not bench.use(WRITE, agreed, **arguments).is_error
    assert (bench.root / "a.txt").read_text() == "x"
    for target in (".git/config", ".env", str(bench.outside / "x")):
        link.unlink()
        link.symlink_to(target)
        assert bench.use(WRITE, agreed, **arguments).is_error, target
    assert every_file(bench.root) == {"a.txt": b"x"}
    assert every_file(bench.outside) == {}


def test_a_folder_that_is_exchanged_for_a_link_never_leads_out(bench: Bench) -> None:  # D09
    bench.allowing(mode="acceptEdits")
    (bench.root / "d").mkdir()

    async def write_often() -> int:
        done = 0
        for number in range(rounds(2_000, 400)):
            outcome = await bench.using(WRITE, {"file_path": "d/f", "content": str(number)})
            done += not outcome.is_error
        return done

    with swapping(bench.root / "d", bench.outside):
        written = asyncio.run(write_often())
    assert every_file(bench.outside) == {}
    assert written > 0
    assert set(every_file(bench.root)) <= {"d/f", "to-outside/f"}


def test_cancelled_at_any_moment_the_file_is_old_or_new(bench: Bench) -> None:  # D60
    old, new = "old" * 300_000, "new" * 300_000

    async def cancel_after(steps: int) -> None:
        bench.write("a.txt", old)
        bench.allowing(mode="acceptEdits", change_recorder=Keeper())
        task = asyncio.ensure_future(bench.using(WRITE, {"file_path": "a.txt", "content": new}))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert (bench.root / "a.txt").read_text() in (old, new)

    for steps in (0, 1, 2, 3, 5, 10, 30, 100, 300, 1_000, 3_000):
        asyncio.run(cancel_after(steps))
    assert set(every_file(bench.root)) == {"a.txt"}


def test_others_see_the_old_or_the_new_content(bench: Bench) -> None:
    bench.allowing(mode="acceptEdits")
    contents = {"1" * 200_000, "2" * 200_000}
    bench.write("a.txt", "1" * 200_000)
    done, seen = threading.Event(), set[str]()

    def watch() -> None:
        while not done.is_set():
            seen.add((bench.root / "a.txt").read_text())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for content in sorted(contents) * 20:
        bench.use(WRITE, file_path="a.txt", content=content)
    done.set()
    watcher.join()
    assert seen <= contents


def test_a_long_diff_is_cut_and_says_so(bench: Bench) -> None:
    outcome = bench.use(WRITE, file_path="a.txt", content="x\n" * 5_000)
    assert outcome.summary == "a.txt +5000 (new)"
    assert outcome.truncation == "4,703 of 5,003 diff lines omitted"
    assert outcome.details.splitlines()[-1] == f"[{outcome.truncation}]"


def test_hidden_characters_can_be_seen_in_the_diff(bench: Bench) -> None:
    outcome = bench.use(WRITE, file_path="a.txt", content="safe\u202eevil\x1b[31m\n")
    assert "+safe[U+202E]evil[U+001B][31m" in outcome.details.splitlines()
    assert (bench.root / "a.txt").read_text() == "safe\u202eevil\x1b[31m\n"


def test_without_a_record_of_what_was_seen_nothing_has_to_be(bench: Bench) -> None:
    bench.write("a.txt", "old")
    bench.allowing(mode="acceptEdits")
    assert not bench.use(WRITE, file_path="a.txt", content="new").is_error


def test_the_schema_is_short_and_as_models_know_it() -> None:
    assert set(WRITE.spec.schema["properties"]) == {"file_path", "content"}
    assert WRITE.spec.schema["required"] == ["file_path", "content"]
    assert not WRITE.read_only
    assert len(WRITE.description) < 500
    assert len(json.dumps(WRITE.spec.schema)) < 400


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"file_path": "a"},
        {"content": "a"},
        {"file_path": "", "content": ""},
        {"file_path": "a", "content": None},
        {"file_path": "a", "content": 1},
        {"file_path": "a", "content": ["x"]},
        {"file_path": ["a"], "content": "x"},
        {"file_path": "a", "content": "x", "mode": 7},
        {"file_path": "x" * 5_000, "content": "x"},
    ],
    ids=repr,
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any]) -> None:  # D58
    with pytest.raises(msgspec.ValidationError):
        WRITE.parse_arguments(arguments)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.one_of(st.text(min_size=1, max_size=12), st.sampled_from(["..", "/", "~", ".", "a/..", "//", "\\", "-"])),
    content=st.text(max_size=40),
)
def test_whatever_comes_it_is_written_as_it_is_or_refused_with_an_answer_that_can_be_sent(
    bench: Bench, path: str, content: str
) -> None:
    bench.allowing(mode="autonomous")
    outcome = bench.use(WRITE, file_path=path, content=content)
    for text in (text_of(outcome), outcome.summary, outcome.details, outcome.truncation):
        text.encode()
    if not outcome.is_error:
        found = bench.root / path
        assert found.read_bytes() == content.encode()
        found.unlink()
    assert every_file(bench.outside) == {}
