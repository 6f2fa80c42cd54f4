"""Read, on real files: every kind, every size, and what happens between the decision and the opening."""

import base64
import os
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from kitbag.messages import Image
from kitbag.tools.files.read import MAX_CHARS, MAX_IMAGE_BYTES, MAX_LINE_CHARS, READ, format_size
from support.cost import bytes_read
from support.matrix import long, rounds
from support.using import Bench, memory_growth, text_of
from support.waiting import TEST_TIMEOUT

GROWTH = 100 << 20
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


def test_lines_come_with_their_numbers(bench: Bench) -> None:
    bench.write("src/a.py", "import os\n\nx = 1\n")
    outcome = bench.use(READ, file_path="src/a.py")
    assert text_of(outcome) == "     1\timport os\n     2\t\n     3\tx = 1"
    assert outcome.summary == "3 lines of src/a.py"
    assert outcome.truncation == ""


@pytest.mark.parametrize("spelling", ["{root}/a.txt", "./a.txt", "sub/../a.txt", "~/../w/app/a.txt"])
def test_a_path_may_be_written_in_any_way(bench: Bench, spelling: str) -> None:
    bench.write("a.txt", "hello")
    bench.write("sub/b.txt")
    assert text_of(bench.use(READ, file_path=spelling.format(root=bench.root))) == "     1\thello"


def test_an_offset_and_a_limit_choose_lines_and_the_end_says_how_to_go_on(bench: Bench) -> None:
    bench.write("a.txt", "".join(f"line {number}\n" for number in range(1, 101)))
    outcome = bench.use(READ, file_path="a.txt", offset=41, limit=3)
    assert text_of(outcome).splitlines() == [
        "    41\tline 41",
        "    42\tline 42",
        "    43\tline 43",
        "[Showing lines 41-43 of 100 lines. Continue with offset=44.]",
    ]
    assert outcome.truncation == "lines 41-43 of 100 lines"


def test_the_last_lines_have_no_remark(bench: Bench) -> None:
    bench.write("a.txt", "a\nb\nc")
    assert text_of(bench.use(READ, file_path="a.txt", offset=2, limit=2)) == "     2\tb\n     3\tc"
    assert text_of(bench.use(READ, file_path="a.txt", offset=0)) == "     1\ta\n     2\tb\n     3\tc"


@pytest.mark.parametrize("text", ["a\nb\n", "a\nb"])
def test_an_offset_after_the_end_says_how_long_the_file_is(bench: Bench, text: str) -> None:
    bench.write("a.txt", text)
    outcome = bench.use(READ, file_path="a.txt", offset=3)
    assert outcome.is_error
    assert "a.txt has 2 lines, so there is no line 3" in text_of(outcome)


def test_two_thousand_lines_at_most_come_by_themselves(bench: Bench) -> None:
    bench.write("a.txt", "x\n" * 5_000)
    lines = text_of(bench.use(READ, file_path="a.txt")).splitlines()
    assert len(lines) == 2_001
    assert lines[-1] == "[Showing lines 1-2,000 of 5,000 lines. Continue with offset=2001.]"


def test_a_long_line_is_cut_and_says_by_how_much(bench: Bench) -> None:
    bench.write("a.txt", "é" * 5_000 + "\nnext\n")
    outcome = bench.use(READ, file_path="a.txt")
    first, second = text_of(outcome).splitlines()
    assert first == "     1\t" + "é" * MAX_LINE_CHARS + " [3,000 more characters in this line]"
    assert second == "     2\tnext"
    assert outcome.truncation == "1 long line truncated"


def test_a_result_stays_within_its_limit_and_says_where_to_go_on(bench: Bench) -> None:
    bench.write("a.txt", ("x" * 1_000 + "\n") * 200)
    text = text_of(bench.use(READ, file_path="a.txt"))
    assert len(text) < MAX_CHARS + 200
    last = int(text.splitlines()[-2].split("\t")[0])
    assert f"Continue with offset={last + 1}." in text


def test_an_empty_file_is_said_to_be_empty(bench: Bench) -> None:
    bench.write("a.txt")
    outcome = bench.use(READ, file_path="a.txt")
    assert (text_of(outcome), outcome.is_error) == ("a.txt is empty.", False)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        ("grün\nß\n".encode("utf-16"), ["grün", "ß"]),
        ("grün\nß\n".encode("utf-16-be").join((b"\xfe\xff", b"")), ["grün", "ß"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\n", ["a[U+000D]b"]),
        (b"safe\xe2\x80\x8b\xe2\x80\xaeevil\n", ["safe[U+200B][U+202E]evil"]),
        (b"\x1b[31mred\n", ["[U+001B][31mred"]),
    ],
)
def test_the_usual_encodings_are_read_and_nothing_in_a_line_is_hidden(
    bench: Bench, data: bytes, shown: list[str]
) -> None:
    bench.write("a.txt", data)
    lines = text_of(bench.use(READ, file_path="a.txt")).splitlines()
    assert lines == [f"{number:6d}\t{line}" for number, line in enumerate(shown, 1)]


def test_what_is_not_utf_8_is_shown_as_windows_1252_and_says_so(bench: Bench) -> None:
    bench.write("a.txt", b"gr\xfcn\n")
    assert text_of(bench.use(READ, file_path="a.txt")).splitlines() == [
        "     1\tgrün",
        "[The file is not UTF-8; decoded as Windows-1252.]",
    ]


@given(data=st.binary(max_size=300), offset=st.integers(0, 12), limit=st.integers(1, 12))
def test_whatever_bytes_a_file_has_reading_it_gives_an_answer(data: bytes, offset: int, limit: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        bench.write("a", data)
        outcome = bench.use(READ, file_path="a", offset=offset, limit=limit)
        for part in outcome.content:
            if not isinstance(part, Image):
                part.text.encode()
        if not outcome.is_error and b"\r" not in data and b"\n" in data[:-1] and data.isascii() and offset <= 1:
            rows = text_of(outcome).splitlines()
            assert len([row for row in rows if not row.startswith("[")]) == min(limit, len(data.split(b"\n")) - data.endswith(b"\n"))  # fmt: skip


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"abc\0def", "a binary file of 7 bytes"),
        (b"%PDF-1.7\n...", " PDF"),
        (b"PK\x03\x04....", "a ZIP archive"),
        (b"\x7fELF\x02\x01", "a program"),
    ],
)
def test_a_binary_file_is_refused_with_its_kind_and_size(bench: Bench, data: bytes, kind: str) -> None:
    bench.write("a.bin", data)
    outcome = bench.use(READ, file_path="a.bin")
    assert outcome.is_error
    assert kind in text_of(outcome)


@pytest.mark.parametrize(
    ("head", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0" + b"\0" * 20, "image/jpeg"),
        (b"GIF89a" + b"\0" * 20, "image/gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
def test_an_image_is_known_by_its_bytes_and_given_as_one(bench: Bench, head: bytes, media_type: str) -> None:
    bench.write("picture.txt", head)
    outcome = bench.use(READ, file_path="picture.txt")
    assert outcome.content == (Image(media_type=media_type, data=base64.b64encode(head).decode()),)
    assert media_type in outcome.summary


def test_an_image_that_is_too_large_is_refused_with_its_size(bench: Bench) -> None:
    bench.write("a.png", PNG + b"x" * MAX_IMAGE_BYTES)
    outcome = bench.use(READ, file_path="a.png")
    assert outcome.is_error
    assert "image of 3.8 MB" in text_of(outcome)


def test_for_a_folder_glob_is_suggested(bench: Bench) -> None:
    bench.write("src/a.py")
    outcome = bench.use(READ, file_path="src")
    assert outcome.is_error
    assert "is a directory. Use Glob" in text_of(outcome)


def test_for_a_missing_file_close_names_are_suggested_but_none_that_may_not_be_read(bench: Bench) -> None:
    for name in ("README.md", "readme.secret", "other"):
        bench.write(name)
    bench.allowing(deny="Read(*.secret)")
    text = text_of(bench.use(READ, file_path="readme.mdd"))
    assert "readme.mdd does not exist. Did you mean README.md?" in text
    assert "secret" not in text
    assert (
        text_of(bench.use(READ, file_path="no/such/file")) == "Error: no/such/file does not exist. Use Glob to find it."
    )
    assert "does not exist" in text_of(bench.use(READ, file_path="other/below"))


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "x" * 4_000, "a/" * 2_000, "~nobody-here/x", "bad\u202ename"])
def test_a_path_that_can_be_no_file_is_an_error_that_can_be_sent(bench: Bench, path: str) -> None:
    outcome = bench.use(READ, file_path=path)
    assert outcome.is_error
    assert "\u202e" not in text_of(outcome)
    text_of(outcome).encode()


def test_what_is_no_file_is_refused_at_once(bench: Bench) -> None:  # D12
    os.mkfifo(bench.root / "pipe")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(bench.root / "socket"))
    (bench.root / "link").symlink_to("pipe")
    (bench.root / "environment").symlink_to("/proc/self/environ")
    with listening:
        for path in (
            "pipe",
            "socket",
            "link",
            "environment",
            "/dev/zero",
            "/dev/tty",
            "/proc/self/environ",
            "/dev/null",
        ):
            outcome = bench.use(READ, file_path=path)
            assert outcome.is_error, path
            assert "cannot use" in text_of(outcome), path


@long
def test_a_huge_file_gives_a_bounded_answer_in_little_time_and_memory(  # D12
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(bench.root / "sparse", "wb") as file:
        file.truncate(5 << 30)
    with open(bench.root / "begins-as-text", "wb") as file:
        file.write(b"text\n" * 3_000)
        file.truncate(5 << 30)
    with open(bench.root / "one-line", "wb") as file:
        for _ in range(200):
            file.write(b"x" * (1 << 20))
    for arguments in (
        {"file_path": "sparse"},
        {"file_path": "begins-as-text"},
        {"file_path": "begins-as-text", "offset": 3_001},
        {"file_path": "begins-as-text", "offset": 10**9},
        {"file_path": "one-line"},
    ):
        with memory_growth() as growth, bytes_read() as read:
            outcome = bench.use(READ, **arguments)
            assert read() < 1 << 30, arguments
        assert growth() < GROWTH, arguments
        assert len(text_of(outcome)) < MAX_CHARS + 300, arguments
    monkeypatch.setattr("kitbag.tools.files.read.TIMEOUT_SECONDS", TEST_TIMEOUT)  # a busy machine reads slowly
    outcome = bench.use(READ, file_path="one-line")
    assert text_of(outcome).endswith("x [209,713,200 more characters in this line]")


def test_a_line_deep_in_a_large_file_is_reached(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kitbag.tools.files.read.TIMEOUT_SECONDS", TEST_TIMEOUT)
    with open(bench.root / "large", "wb") as file:
        for number in range(40):
            file.write(b"".join(b"%07d\n" % line for line in range(number * 100_000, (number + 1) * 100_000)))
    outcome = bench.use(READ, file_path="large", offset=3_500_001, limit=2)
    assert text_of(outcome).splitlines()[:2] == ["3500001\t3500000", "3500002\t3500001"]


def test_outside_the_workspace_is_refused_unless_it_was_allowed(bench: Bench) -> None:  # D06
    secret = bench.outside / "x"
    secret.write_text("TREASURE")
    for mode in ("plan", "locked", "autonomous"):
        bench.allowing(mode=mode)
        for path in (str(secret), f"{bench.root}/../app-evil/x", f"/{secret}", "../app-evil/x"):
            outcome = bench.use(READ, file_path=path)
            assert outcome.is_error, path
            assert "TREASURE" not in text_of(outcome), path
    bench.allowing(mode="plan", allow=f"Read(/{bench.outside}/**)")
    assert text_of(bench.use(READ, file_path=str(secret))) == "     1\tTREASURE"


@pytest.mark.parametrize("rule", ["Read(link)", "Read(/{outside}/**)", "Read(/{outside}/x)"])
def test_a_rule_that_denies_the_link_or_its_target_holds(bench: Bench, rule: str) -> None:  # D07
    (bench.outside / "x").write_text("outside")
    (bench.root / "link").symlink_to(bench.outside / "x")
    bench.allowing(allow=f"Read(/{bench.outside}/**) Read(link)", deny=rule.format(outside=bench.outside))
    outcome = bench.use(READ, file_path="link")
    assert outcome.is_error
    assert "\toutside" not in text_of(outcome)


def test_a_link_that_leads_out_is_read_only_when_somebody_agreed_to_where_it_leads_now(bench: Bench) -> None:
    (bench.outside / "x").write_text("agreed")
    (bench.outside / "y").write_text("secret")
    link = bench.root / "link"
    link.symlink_to(bench.outside / "x")
    outcome = bench.use(READ, file_path="link")
    assert outcome.is_error
    assert f"Use {bench.outside}/x directly." in text_of(outcome)
    judgement = bench.context.permissions.decide("Read", {"file_path": "link"}, bench.context.directory)
    assert judgement.effect == "ask"
    agreed = structs.replace(bench.context, decision=judgement)
    assert text_of(bench.use(READ, agreed, file_path="link")) == "     1\tagreed"
    link.unlink()
    link.symlink_to(bench.outside / "y")
    outcome = bench.use(READ, agreed, file_path="link")
    assert outcome.is_error
    assert "\tsecret" not in text_of(outcome)
    # What a person allowed by its real name is read.
    assert text_of(bench.use(READ, file_path=str(bench.outside / "x"))) == "     1\tagreed"


def test_a_link_inside_the_workspace_is_followed(bench: Bench) -> None:
    bench.write("AGENTS.md", "be kind")
    (bench.root / "CLAUDE.md").symlink_to("AGENTS.md")
    assert text_of(bench.use(READ, file_path="CLAUDE.md")) == "     1\tbe kind"


def test_a_folder_that_is_exchanged_for_a_link_never_leads_out(bench: Bench) -> None:
    """As in D09, for reading."""
    (bench.outside / "f").write_text("secret")
    bench.write("real/f", "mine")
    (bench.root / "d").mkdir()
    (bench.root / "d" / "f").write_text("mine")
    done = threading.Event()

    def swap() -> None:
        way, aside, link = bench.root / "d", bench.root / "aside", bench.root / "to-outside"
        link.symlink_to(bench.outside)
        while not done.is_set():
            os.rename(way, aside)
            os.rename(link, way)
            os.rename(way, link)
            os.rename(aside, way)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(rounds(300, 50)):
            assert "\tsecret" not in text_of(bench.use(READ, file_path="d/f"))
    finally:
        done.set()
        swapper.join()


def test_sizes_are_said_in_the_unit_that_fits() -> None:
    assert [format_size(size) for size in (1, 999, 1_000, 999_400, 999_999, 5 << 30)] == [
        "1 byte", "999 bytes", "1.0 KB", "999.4 KB", "1.0 MB", "5.4 GB",
    ]  # fmt: skip
