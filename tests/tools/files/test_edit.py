"""Edit, on real files: what is replaced, what stays byte for byte, and what an error tells a model."""

import asyncio
import codecs
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitbag.tools.files.edit import EDIT, MAX_ROW_CHARS, MAX_ROWS
from kitbag.tools.files.read import READ
from kitbag.tools.files.write import WRITE
from kitbag.tools.seen_files import MAX_BYTES, SeenFiles
from support.matrix import examples, long
from support.using import Bench, text_of
from tools.changing_files import Keeper, editing, every_file, swapping

PROGRAM = (
    "import os\n\n\ndef first(items):\n\tfor item in items:\n\t\tprint('one', item)\n\n\ndef second():\n    return 2\n"
)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return editing(tmp_path)


def edit(bench: Bench, old: str, new: str, **more: Any) -> str:
    return text_of(bench.use(EDIT, **{"file_path": "a.py", "old_string": old, "new_string": new, **more}))


def test_the_text_is_replaced_and_the_lines_around_it_are_shown(bench: Bench) -> None:
    path = bench.write("src/a.py", PROGRAM)
    outcome = bench.use(
        EDIT, file_path="src/a.py", old_string="    return 2\n", new_string="    value = 2\n    return value\n"
    )
    assert path.read_text() == PROGRAM.replace("    return 2\n", "    value = 2\n    return value\n")
    assert text_of(outcome) == (
        "Edited src/a.py. It now reads:\n     8\t\n     9\tdef second():\n    10\t    value = 2\n    11\t    return value"
    )
    assert outcome.summary == "src/a.py +2 -1"
    assert outcome.details.splitlines() == [
        "--- src/a.py", "+++ src/a.py", "@@ -7,4 +7,5 @@", " ", " ", " def second():",
        "-    return 2", "+    value = 2", "+    return value",
    ]  # fmt: skip


def test_line_numbers_are_right_wherever_the_difference_begins(bench: Bench) -> None:
    lines = [f"line {number}" for number in range(1, 41)]
    bench.write("a.py", "\n".join(lines))
    answer = edit(bench, "\n".join(lines[9:20]), "\n".join([*lines[9:19], "new"]))
    assert answer.splitlines()[1:] == [
        f"{number:6d}\t{'new' if number == 20 else f'line {number}'}" for number in range(8, 23)
    ]
    assert edit(bench, "line 1\n", "first\n").splitlines()[1:] == [
        "     1\tfirst", "     2\tline 2", "     3\tline 3",
    ]  # fmt: skip


def test_a_text_that_occurs_several_times_is_not_guessed_at(bench: Bench) -> None:
    path = bench.write("a.py", "x = 1\ny = 2\nx = 1\n\nx = 1\n")
    answer = edit(bench, "x = 1", "x = 3")
    assert answer.startswith("Error: old_string occurs 3 times in a.py, on lines 1, 3, 5. ")
    assert "replace_all" in answer
    assert path.read_text() == "x = 1\ny = 2\nx = 1\n\nx = 1\n"
    assert edit(bench, "y = 2\nx = 1", "y = 2\nx = 3").startswith("Edited")


def test_places_that_overlap_are_several(bench: Bench) -> None:
    path = bench.write("a.py", "aaa")
    assert "occurs 2 times" in edit(bench, "aa", "b")
    assert path.read_text() == "aaa"


def test_all_are_replaced_when_all_are_meant(bench: Bench) -> None:
    path = bench.write("a.py", "x = 1\ny = x\n" * 20)
    outcome = bench.use(EDIT, file_path="a.py", old_string="x", new_string="long_name", replace_all=True)
    assert path.read_text() == "long_name = 1\ny = long_name\n" * 20
    lines = text_of(outcome).splitlines()
    assert lines[:3] == [
        "Replaced 40 occurrences in a.py. It now reads:",
        "     1\tlong_name = 1",
        "     2\ty = long_name",
    ]
    assert lines[-1] == "[and 30 more occurrences]"
    assert outcome.summary == "a.py +40 -40"


def test_a_change_of_many_lines_is_shown_at_its_ends(bench: Bench) -> None:
    bench.write("a.py", "start\nend\n")
    new = "".join(f"line {number}\n" for number in range(1_000)) + "x" * 1_000 + "\nend"
    lines = edit(bench, "end", new).splitlines()
    assert len(lines) == MAX_ROWS + 2
    assert lines[1] == "     1\tstart"
    assert "[987 more lines]" in lines
    assert lines[-2] == f"  1002\t{'x' * MAX_ROW_CHARS} [800 more characters in this line]"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "a\nx\nb", b"a\r\nx\r\nb\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "\nb", "", b"a\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b\n", "", b"a\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "a\r\nb\r\n", "a\nb\n", b"a\nb\nc\r\n"),
        (b"a\nb\n", "a\r\nb", "x\r\ny", b"x\ny\n"),
        (b"a\nb\r\nc\n", "a\nb\nc", "a\nx\nc", b"a\nx\r\nc\n"),
        (b"a\nb\r\nc\nd\r\n", "b", "x\ny", b"a\nx\r\ny\r\nc\nd\r\n"),
        (b"a\nb\r\nc\nd\r\n", "c", "x\ny", b"a\nb\r\nx\ny\nd\r\n"),
        (b"a\nb\r\nc", "c", "x\ny", b"a\nb\r\nx\r\ny"),
        (b"a\rb\rc", "b", "x", b"a\rx\rc"),
        (b"no end", "end", "final line end", b"no final line end"),
        (b"a\n", "a", "b", b"b\n"),
        (b"\xef\xbb\xbfa\nb\n", "a", "ä", b"\xef\xbb\xbf\xc3\xa4\nb\n"),
        ("grün\r\nß".encode("utf-16"), "ß", "ä\nö", "grün\r\nä\r\nö".encode("utf-16")),
        (codecs.BOM_UTF16_BE + "a🙂b".encode("utf-16-be"), "🙂", "→", codecs.BOM_UTF16_BE + "a→b".encode("utf-16-be")),
        (b"gr\xfcn\x81 rot\n", "gr\xfcn", "bl\xe4u", b"bl\xe4u\x81 rot\n"),
        (b"gr\xfcn\x81 rot\n", "rot", "€", b"gr\xfcn\x81 \x80\n"),
        ("größer, schöner\n".encode() + b"\xff\n", "größer", "süßer", "süßer, schöner\n".encode() + b"\xff\n"),
        ("größer, schöner\n".encode() + b"\xff\n", "\n", "ä", None),
        (b"x\x0cy\x1bz\xe2\x80\xa8w", "y", "Y", b"x\x0cY\x1bz\xe2\x80\xa8w"),
    ],
)
def test_the_rest_of_the_file_stays_as_it_was(
    bench: Bench, before: bytes, old: str, new: str, after: bytes | None
) -> None:
    path = bench.write("a.py", before)
    answer = edit(bench, old, new)
    answer.encode()
    assert path.read_bytes() == (before if after is None else after), answer


@settings(max_examples=examples(150))
@given(data=st.data(), newline=st.sampled_from(["\n", "\r\n"]), mark=st.booleans(), every=st.booleans())
def test_an_edit_is_what_replacing_in_the_text_is(data: st.DataObject, newline: str, mark: bool, every: bool) -> None:
    letters = st.text(st.sampled_from("ab \tä\n"), max_size=6)
    text = data.draw(st.text(st.sampled_from("ab \tä€\n"), min_size=1, max_size=60))
    old = data.draw(st.one_of(letters.filter(bool), st.integers(0, len(text) - 1).map(lambda at: text[at : at + 4])))
    new = data.draw(letters.filter(lambda new: new != old))
    encoding = "utf-8-sig" if mark else "utf-8"
    newline = newline if "\n" in text else "\n"
    with tempfile.TemporaryDirectory() as folder:
        bench = editing(Path(folder))
        path = bench.write("a.py", text.replace("\n", newline).encode(encoding))
        outcome = bench.use(EDIT, file_path="a.py", old_string=old, new_string=new, replace_all=every)
        at = text.find(old)
        if at < 0 or (not every and text.find(old, at + 1) >= 0):
            assert outcome.is_error
            expected = text
        else:
            assert not outcome.is_error, text_of(outcome)
            expected = text.replace(old, new)
        assert path.read_bytes() == expected.replace("\n", newline).encode(encoding)


@settings(max_examples=examples(100))
@given(before=st.binary(max_size=60), after=st.binary(max_size=60))
def test_bytes_of_any_encoding_stay_as_they_are_around_an_edit(before: bytes, after: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = editing(Path(folder))
        path = bench.write("a.py", before + b"@@here@@" + after)
        outcome = bench.use(EDIT, file_path="a.py", old_string="@@here@@", new_string="there")
        text_of(outcome).encode()
        outcome.details.encode()
        expected = b"@@here@@" if outcome.is_error else b"there"
        if path.read_bytes() != before + expected + after:  # then the whole is UTF-16, and the text was in it as such
            assert before.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def test_the_mode_of_a_file_is_kept_and_a_link_stays_one(bench: Bench) -> None:
    path = bench.write("run.sh", "echo one\n")
    path.chmod(0o755)
    (bench.root / "a.py").symlink_to("run.sh")
    assert edit(bench, "one", "two").startswith("Edited a.py.")
    assert (bench.root / "a.py").is_symlink()
    assert path.read_text() == "echo two\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_what_an_encoding_can_not_hold_is_refused_by_its_name(bench: Bench) -> None:
    path = bench.write("a.py", b"gr\xfcn\n")
    assert edit(bench, "gr\xfcn", "→") == (
        "Error: new_string contains U+2192, which cannot be encoded in a.py: the file is Windows-1252. "
        "Use another character, or convert the file to UTF-8 first."
    )
    assert path.read_bytes() == b"gr\xfcn\n"


# What is not found.


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("    for item in items:\n        print('one', item)", "lines 5-6: the file has tabs where you sent spaces"),
        ("def second():\n  return 2", "lines 9-10: indentation differs"),
        ("def second():   \n    return 2", "lines 9-10: the file has no trailing whitespace"),
        ("print(‘one’, item)", "line 6: quotation marks, dashes or special spaces differ"),
        ("def Second():", "line 9: letter case differs"),
        ("def third():\n    return 2", "lines 9-10."),
        ("def second(items):", "line 9."),
        ("retrun 2", "line 10."),
        ("secnd", "line 9."),
    ],
)
def test_a_near_miss_says_where_it_is_near_and_what_differs(bench: Bench, old: str, said: str) -> None:
    path = bench.write("a.py", PROGRAM)
    answer = edit(bench, old, "new")
    assert answer.startswith("Error: old_string was not found in a.py. Closest match at "), answer
    assert said in answer
    assert path.read_text() == PROGRAM


def test_a_near_miss_shows_what_was_sent_beside_what_is_there(bench: Bench) -> None:
    bench.write("a.py", PROGRAM)
    assert edit(bench, "def second():\n    return 3\n", "x").splitlines()[1:] == [
        "       9\tdef second():",
        "-       \t    return 3",
        "+     10\t    return 2",
    ]
    answer = edit(bench, "\tfor item in items:\n\tprint('one', item)", "x")
    assert answer.endswith(
        "(· is a space, → a tab):\n       5\t\tfor item in items:\n-       \t→print('one', item)\n+      6\t→→print('one', item)"
    )


def test_line_numbers_that_were_pasted_are_recognised(bench: Bench) -> None:
    bench.write("a.py", PROGRAM)
    assert "line 9 without the line numbers" in edit(bench, "     9\tdef second():\n    10\t    return 2", "x")


def test_backslashes_and_entities_too_many_are_recognised(bench: Bench) -> None:
    bench.write("a.py", 'x = 1\nif a < b:\n    print("c")\n')
    assert "line 2 without the backslashes" in edit(bench, 'if a < b:\\n    print(\\"c\\")', "x")
    assert "line 2 with &, < and >" in edit(bench, "if a &lt; b:", "x")


def test_a_change_that_was_made_before_is_recognised(bench: Bench) -> None:
    bench.write("a.py", "value = compute(2)\n")
    assert "new_string is already at line 1" in edit(bench, "qqq(1)", "compute(2)")


def test_a_hidden_character_that_read_shows_by_its_name_is_explained(bench: Bench) -> None:
    bench.write("a.py", "password = 'a\u200bb'\n")
    answer = edit(bench, "password = 'a[U+200B]b'", "x")
    assert "one hidden character" in answer
    assert "\u200b" not in answer


def test_where_nothing_comes_near_that_is_said(bench: Bench) -> None:
    bench.write("a.py", PROGRAM)
    assert "no similar text" in edit(bench, "zzzz qqqq", "x")
    assert "no similar text" in edit(bench, "§§§", "x")


def test_what_may_not_be_read_is_not_shown_by_an_edit_that_fails(bench: Bench) -> None:
    bench.write(".env", "TOKEN=sesame\nOTHER=1\n")
    bench.allowing(allow="Edit(.env)")
    for old in ("TOKEN=sesam!", "     1\tTOKEN=sesame", "x" * 20):
        assert "sesame" not in edit(bench, old, "TOKEN=sesame", file_path=".env")
    outcome = bench.use(EDIT, file_path=".env", old_string="OTHER=1", new_string="OTHER=2")
    assert text_of(outcome) == "Edited .env."


# What is refused.


def test_a_file_that_was_not_read_may_be_edited_because_its_text_was_known(bench: Bench) -> None:
    bench.write("a.py", "one")
    assert edit(bench, "one", "two").startswith("Edited")


def test_what_changed_since_it_was_read_has_to_be_read_again(bench: Bench) -> None:
    path = bench.write("a.py", "one\n")
    bench.use(READ, file_path="a.py")
    path.write_text("one\ntwo\n")
    assert edit(bench, "one", "x") == (
        "Error: a.py has changed since it was last read. Read it again before changing it."
    )
    bench.use(READ, file_path="a.py")
    assert edit(bench, "one", "x").startswith("Edited")


def test_after_its_own_write_and_edit_no_reading_is_needed(bench: Bench) -> None:
    bench.use(WRITE, file_path="a.py", content="one\n")
    assert edit(bench, "one", "two").startswith("Edited")
    assert edit(bench, "two", "three").startswith("Edited")
    assert not bench.use(WRITE, file_path="a.py", content="four\n").is_error


def test_an_empty_old_text_makes_a_new_file_and_nothing_else(bench: Bench) -> None:
    assert edit(bench, "", "new\n", file_path="deep/b.py") == "Created deep/b.py: 1 line, 4 bytes."
    bench.write("empty.py")
    assert not edit(bench, "", "x", file_path="empty.py").startswith("Error")
    path = bench.write("a.py", "old")
    assert "old_string is empty, but a.py" in edit(bench, "", "new")
    assert path.read_text() == "old"


def test_what_changes_nothing_is_an_error(bench: Bench) -> None:
    bench.write("a.py", "one\r\n")
    assert "are identical" in edit(bench, "one", "one")
    assert "differ only in line endings" in edit(bench, "one\n", "one\r\n")


def test_a_file_that_does_not_exist_is_said_with_names_that_are_close(bench: Bench) -> None:
    bench.write("src/agent.py", "x")
    assert edit(bench, "x", "y", file_path="src/agnet.py") == (
        "Error: src/agnet.py does not exist. Did you mean src/agent.py?"
    )
    bench.write("empty.py")
    assert "empty.py is empty" in edit(bench, "x", "y", file_path="empty.py")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("a", "b\0", "new_string contains a NUL character on line 1"),
        ("\udc80", "b", "old_string contains an unpaired surrogate"),
        ("a", "\ud83d", "new_string contains an unpaired surrogate"),
        ("a", "x" * (MAX_BYTES + 1), "new_string is too long: 10,000,001 characters"),
        ("a", "ß" * MAX_BYTES, "would be too large: 20.0 MB, maximum 10.0 MB"),
    ],
    ids=["NUL", "old", "new", "characters", "bytes"],
)
def test_text_that_no_file_can_hold_is_refused(bench: Bench, old: str, new: str, problem: str) -> None:
    path = bench.write("a.py", b"a")
    assert problem in edit(bench, old, new)
    assert path.read_bytes() == b"a"


def test_what_would_grow_without_measure_is_refused_before_it_does(bench: Bench) -> None:
    path = bench.write("a.py", "a" * 1_000_000)
    assert "a.py would be too large: 1,000,000,000,000 characters" in edit(
        bench, "a", "b" * 1_000_000, replace_all=True
    )
    assert path.stat().st_size == 1_000_000


def test_what_is_no_text_file_is_refused(bench: Bench) -> None:  # D12
    bench.write("folder/x")
    bench.write("binary", b"abc\0def")
    bench.write("broken", codecs.BOM_UTF16_LE + b"abc")
    bench.write("large", b"x" * (MAX_BYTES + 1))
    os.mkfifo(bench.root / "pipe")
    reasons = {
        "folder": "is a directory",
        "folder/": "is a directory, not a file",
        "folder/x/y": "is not a directory",
        "binary": "binary file of 7 bytes",
        "broken": "not valid UTF-16",
        "large": "too large to edit: 10.0 MB",
        "pipe": "named pipe",
        "/dev/zero": "device",
        "/proc/self/environ": "kernel interface",
    }
    for path, reason in reasons.items():
        answer = edit(bench, "abc", "x", file_path=path)
        assert answer.startswith("Error: "), path
        assert reason in answer, path


@long
def test_a_huge_file_with_no_such_text_is_answered_in_little_time(bench: Bench) -> None:
    lines = "".join(f"line {number} with some words {number * 7_919 % 100_003}\n" for number in range(200_000))
    bench.write("a.py", lines)
    assert "line 150,001" in edit(bench, "line 150000 with some wrods", "x")
    bench.write("a.py", "word and " * 1_000_000)
    assert edit(bench, "word and wrod", "x").startswith("Error: old_string was not found in a.py")
    one_line = '{"key": [' + ",".join(f'{{"id": {number}}}' for number in range(100_000)) + "]}"
    bench.write("a.py", one_line)
    assert '"id": 77777}' in edit(bench, '{"id":  77777}', "x")
    assert edit(bench, one_line.replace("77777", "88888"), "x").startswith("Error: old_string was not found in a.py")


def test_read_only_files_are_refused(bench: Bench) -> None:
    if not os.geteuid():
        pytest.skip("root writes everywhere")
    bench.write("a.py", "x").chmod(0o444)
    assert "a.py is read-only" in edit(bench, "x", "y")


# Others.


def test_what_is_about_to_change_is_kept_first(bench: Bench) -> None:
    path = bench.write("a.py", "one")
    keeper = Keeper()
    bench.allowing(mode="acceptEdits", seen_files=SeenFiles(), change_recorder=keeper, call_id="call-7")
    edit(bench, "one", "two")
    edit(bench, "missing", "two")
    assert keeper.kept == [("call-7", str(path), b"one", b"two")]


@pytest.mark.parametrize(
    ("theirs", "said"), [(b"one and more", "was changed by another process"), (None, "was deleted")]
)
def test_a_file_that_changes_in_this_moment_is_left_alone(bench: Bench, theirs: bytes | None, said: str) -> None:
    path = bench.write("a.py", "one")
    bench.allowing(
        mode="acceptEdits",
        change_recorder=Keeper(lambda: path.unlink() if theirs is None else path.write_bytes(theirs)),
    )
    assert said in edit(bench, "one", "two")
    assert every_file(bench.root) == ({} if theirs is None else {"a.py": theirs})


def test_of_edits_side_by_side_none_that_says_it_was_done_is_lost(bench: Bench) -> None:
    """Agents that were started together work on one file."""
    bench.allowing(mode="acceptEdits")

    async def together() -> list[bool]:
        edits = [{"file_path": "a.py", "old_string": f"{at}=0", "new_string": f"{at}=1"} for at in range(8)]
        return [not done.is_error for done in await asyncio.gather(*(bench.using(EDIT, one) for one in edits))]

    for _ in range(40):
        path = bench.write("a.py", "\n".join(f"{at}=0" for at in range(8)))
        done = asyncio.run(together())
        assert path.read_text().split("\n") == [f"{at}={int(was)}" for at, was in enumerate(done)]


def test_a_link_that_leads_out_is_not_edited(bench: Bench) -> None:  # D08
    (bench.outside / "existing").write_text("secret one")
    (bench.root / "d").symlink_to(bench.outside)
    answer = edit(bench, "one", "two", file_path="d/existing")
    assert "which was not approved" in answer
    assert "secret" not in answer
    assert every_file(bench.outside) == {"existing": b"secret one"}


def test_a_folder_that_is_exchanged_for_a_link_never_leads_out(bench: Bench) -> None:  # D09
    bench.allowing(mode="acceptEdits")
    (bench.outside / "f").write_text("secret 0")
    (bench.root / "d").mkdir()
    (bench.root / "d" / "f").write_text("mine 0")

    async def edit_often() -> set[str]:
        arguments = {"file_path": "d/f", "old_string": "0", "new_string": "0", "replace_all": True}
        answers: set[str] = set()
        for number in range(500):
            change = {"old_string": str(number % 2), "new_string": str((number + 1) % 2)}
            answers.add(text_of(await bench.using(EDIT, arguments | change)))
        return answers

    with swapping(bench.root / "d", bench.outside):
        answers = asyncio.run(edit_often())
    assert every_file(bench.outside) == {"f": b"secret 0"}
    assert not [answer for answer in answers if "secret" in answer]


def test_what_is_denied_now_is_refused(bench: Bench) -> None:
    path = bench.write("a.py", "one")
    for rule in ("Edit(*.py)", "Read(a.py)"):
        bench.allowing(mode="acceptEdits", deny=rule)
        assert edit(bench, "one", "two").startswith("Error: cannot use a.py"), rule
    bench.allowing(mode="plan")
    assert edit(bench, "one", "two").startswith("Error: cannot use a.py")
    assert path.read_text() == "one"


def test_the_schema_is_short_and_as_models_know_it() -> None:
    assert set(EDIT.spec.schema["properties"]) == {"file_path", "old_string", "new_string", "replace_all"}
    assert EDIT.spec.schema["required"] == ["file_path", "old_string", "new_string"]
    assert not EDIT.read_only
    assert len(EDIT.description) < 500
    assert len(json.dumps(EDIT.spec.schema)) < 500


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"file_path": "a", "old_string": "x"},
        {"file_path": "a", "new_string": "x"},
        {"old_string": "a", "new_string": "x"},
        {"file_path": "", "old_string": "a", "new_string": "x"},
        {"file_path": "a", "old_string": None, "new_string": "x"},
        {"file_path": "a", "old_string": "a", "new_string": ["x"]},
        {"file_path": "a", "old_string": "a", "new_string": "x", "replace_all": "true"},
        {"file_path": "a", "old_string": "a", "new_string": "x", "replace_all": 1},
        {"file_path": "a", "old_string": "a", "new_string": "x", "count": 1},
    ],
    ids=repr,
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any]) -> None:  # D58
    with pytest.raises(msgspec.ValidationError):
        EDIT.parse_arguments(arguments)
