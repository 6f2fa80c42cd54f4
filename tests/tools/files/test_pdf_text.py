"""The text of a PDF: which pages, how much of them, and what a document can't do to us."""

import asyncio
import subprocess
import sys
import threading
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.tools.files import pdf_text
from kitbag.tools.files.pdf_text import MAX_CHARS, PageRangeError, format_page_ranges, parse_page_ranges
from kitbag.tools.files.read import READ
from support import needs
from support.using import Bench, children, memory_growth, text_of
from support.waiting import TEST_TIMEOUT, until_true
from tools.pdfs import ENCRYPTED, document, shown, stream, whole

HELLO = shown("Hello there")


@pytest.fixture(autouse=True)
def installed() -> None:
    needs.package("pypdfium2")


def numbered(count: int) -> bytes:
    return document(*(shown(f"this is page {number}") for number in range(1, count + 1)))


def test_pages_come_with_their_marks(bench: Bench) -> None:
    bench.write("a.pdf", numbered(2))
    outcome = bench.use(READ, file_path="a.pdf")
    assert text_of(outcome) == "--- page 1 of 2 ---\nthis is page 1\n--- page 2 of 2 ---\nthis is page 2"
    assert (outcome.summary, outcome.truncation) == ("2 pages of a.pdf", "")


def test_without_pages_the_first_twenty_are_shown_and_the_end_says_how_to_go_on(bench: Bench) -> None:
    bench.write("a.pdf", numbered(45))
    first = bench.use(READ, file_path="a.pdf")
    assert "this is page 20" in text_of(first)
    assert "this is page 21" not in text_of(first)
    assert text_of(first).endswith('[Showing pages 1-20 of 45; continue with pages="21-40".]')
    assert first.truncation == 'showing pages 1-20 of 45; continue with pages="21-40"'
    rest = bench.use(READ, file_path="a.pdf", pages="41-")
    assert text_of(rest).startswith("--- page 41 of 45 ---")
    assert rest.truncation == ""


@pytest.mark.parametrize(
    ("pages", "expected"),
    [("3", [3]), ("1-3", [1, 2, 3]), ("5,2", [2, 5]), (" 2 - 3 , 3", [2, 3]), ("4-", [4, 5]), ("4-99", [4, 5])],
)
def test_the_pages_that_are_asked_for_are_shown(bench: Bench, pages: str, expected: list[int]) -> None:
    bench.write("a.pdf", numbered(5))
    text = text_of(bench.use(READ, file_path="a.pdf", pages=pages))
    assert [line for line in text.splitlines() if line.startswith("this")] == [f"this is page {n}" for n in expected]


@pytest.mark.parametrize("pages", ["x", "0", "0-3", "3-0", "5-2", "1,,2", "-3", "1-2-3", "1.5", "9" * 400, "\0"])
def test_pages_that_can_not_be_read_are_an_error_that_says_how(bench: Bench, pages: str) -> None:
    bench.write("a.pdf", numbered(5))
    outcome = bench.use(READ, file_path="a.pdf", pages=pages)
    assert outcome.is_error
    assert 'Use a form such as "3"' in text_of(outcome)


def test_a_page_that_is_not_there_is_an_error_that_says_how_many_there_are(bench: Bench) -> None:
    bench.write("a.pdf", numbered(5))
    outcome = bench.use(READ, file_path="a.pdf", pages="7-9")
    assert text_of(outcome) == "Error: a.pdf has 5 pages, so there is no page 7. Use pages up to 5."


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 5)), min_size=1, max_size=6))
def test_ranges_are_put_in_order_and_can_be_read_again(given_ranges: list[tuple[int, int]]) -> None:
    made = parse_page_ranges(",".join(f"{first}-{first + more}" for first, more in given_ranges))
    meant = {page for first, more in given_ranges for page in range(first, first + more + 1)}
    assert [page for first, last in made for page in range(first, last + 1)] == sorted(meant)
    assert parse_page_ranges(format_page_ranges(made)) == made


@given(st.text("0123456789-, ;x", max_size=12))
def test_any_text_is_ranges_or_an_error(text: str) -> None:
    try:
        ranges = parse_page_ranges(text)
    except PageRangeError:
        return
    assert all(first > 0 and (last == 0 or last >= first) for first, last in ranges)


def full_page(characters: int) -> bytes:
    """300 lines, all different: what is printed twice in one place is text only once."""
    words = b"x" * (characters // 300 - 5)
    return b"BT /F1 1 Tf 10 780 Td 2 TL " + b"".join(b"(%04d%b) ' " % (line, words) for line in range(300)) + b"ET"


def test_long_documents_are_cut_between_pages(bench: Bench) -> None:
    bench.write("a.pdf", document(*[full_page(15_000)] * 5))
    outcome = bench.use(READ, file_path="a.pdf")
    assert len(text_of(outcome)) < MAX_CHARS + 300
    assert outcome.truncation == 'showing pages 1-3 of 5; continue with pages="4-5"'
    asked = bench.use(READ, file_path="a.pdf", pages="2-")
    assert asked.truncation == 'showing pages 2-4 of 5; continue with pages="5"'


def test_a_page_that_is_too_long_by_itself_is_cut(bench: Bench) -> None:
    bench.write("a.pdf", document(full_page(60_000), HELLO))
    outcome = bench.use(READ, file_path="a.pdf")
    assert "page 1 has more than 50,000 characters and is truncated" in outcome.truncation
    assert 'continue with pages="2"' in outcome.truncation
    assert len(text_of(outcome)) < MAX_CHARS + 300


def test_scanned_pages_are_said_to_have_no_text(bench: Bench) -> None:
    bench.write("a.pdf", document(b"0 0 100 100 re f", b""))
    outcome = bench.use(READ, file_path="a.pdf")
    assert not outcome.is_error
    assert "there is no text on pages 1-2. It may be scanned" in text_of(outcome)
    bench.write("b.pdf", document(b"", HELLO))
    assert "--- page 1 of 2 ---\n[no text: blank page or image]\n" in text_of(bench.use(READ, file_path="b.pdf"))


def test_an_encrypted_document_is_said_to_need_a_password(bench: Bench) -> None:
    bench.write("a.pdf", ENCRYPTED)
    assert "is encrypted and needs a password" in text_of(bench.use(READ, file_path="a.pdf"))


@pytest.mark.parametrize(
    "data",
    [
        b"%PDF-1.4\n",
        b"%PDF-1.7\n" + bytes(range(256)) * 400,
        numbered(2)[:300],
        whole([b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[2 0 R]/Count 1000000000>>"]),
        whole([b"1 0 R"]),
    ],
)
def test_a_damaged_document_is_an_error(bench: Bench, data: bytes) -> None:
    bench.write("a.pdf", data)
    outcome = bench.use(READ, file_path="a.pdf")
    assert outcome.is_error
    assert "a.pdf" in text_of(outcome)
    assert not children()


def test_a_document_without_its_table_is_read_nevertheless(bench: Bench) -> None:
    bench.write("a.pdf", numbered(1).partition(b"xref")[0] + b"trailer\n<</Root 1 0 R>>")
    assert "this is page 1" in text_of(bench.use(READ, file_path="a.pdf"))


def test_what_stands_before_the_document_does_not_matter_when_it_is_called_one(bench: Bench) -> None:
    bench.write("a.pdf", b"some mail\n" + numbered(1))
    assert "this is page 1" in text_of(bench.use(READ, file_path="a.pdf"))
    bench.write("a.txt", "some mail\n%PDF-1.4\n")
    assert "%PDF" in text_of(bench.use(READ, file_path="a.txt"))


def test_hidden_characters_are_shown(bench: Bench) -> None:
    names = b"<</Type/Encoding/Differences[65/uni202E/uni200B]>>"
    font = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding %b>>" % names
    bench.write(
        "a.pdf",
        document(b"BT /F1 12 Tf /F2 12 Tf 72 700 Td (xAy) Tj ET", objects=[font]).replace(b"/F1 3 0 R", b"/F2 4 0 R"),
    )
    assert "\u202e" not in text_of(bench.use(READ, file_path="a.pdf"))


def packed(size: int) -> bytes:
    packer = zlib.compressobj(1)
    return b"".join([*(packer.compress(b"\0" * (1 << 20)) for _ in range(size)), packer.flush()])


def test_a_stream_that_unpacks_without_end_is_stopped_and_the_other_pages_can_be_read(bench: Bench) -> None:
    bomb = zlib.compress(packed(320))
    made = document(HELLO, bomb, HELLO).replace(
        b"<</Length %d>>" % len(bomb), b"<</Length %d/Filter[/FlateDecode/FlateDecode]>>" % len(bomb)
    )
    bench.write("a.pdf", made.partition(b"xref")[0] + b"trailer\n<</Root 1 0 R>>")
    with memory_growth() as growth:
        outcome = bench.use(READ, file_path="a.pdf")
        assert growth() < 100 << 20
    assert "Hello there" in text_of(outcome)
    assert outcome.truncation.startswith("page 2 could not be read: it needs too much memory or is damaged")
    assert 'continue with pages="3"' in outcome.truncation
    assert "cannot read page 2 of a.pdf" in text_of(bench.use(READ, file_path="a.pdf", pages="2"))
    assert not children()


def endless() -> bytes:
    """Forms in forms, ten each, 30 deep."""
    named = b"/Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</X %d 0 R>>>>"
    forms = [stream(b"/X Do " * 10, named % number) for number in range(5, 35)]
    last = stream(HELLO, b"/Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</Font<</F1 3 0 R>>>>")
    return document(b"/X Do", resources=b"/XObject<</X 4 0 R>>", objects=[*forms, last])


def test_a_document_that_never_ends_is_stopped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf_text, "TIMEOUT_SECONDS", 0.5)
    bench.write("a.pdf", endless())
    assert "timed out after 0.5 s" in text_of(bench.use(READ, file_path="a.pdf"))
    assert not children()


def test_cancelling_ends_the_process(bench: Bench) -> None:
    bench.write("a.pdf", endless())

    async def cancelled() -> None:
        running = asyncio.ensure_future(bench.using(READ, {"file_path": "a.pdf"}))
        await until_true(lambda: bool(children()))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelled())
    assert not children()


def test_a_huge_document_is_refused_at_once(bench: Bench) -> None:
    with open(bench.root / "a.pdf", "wb") as file:
        file.write(b"%PDF-1.4\n")
        file.truncate(5 << 30)
    assert "larger than 500 MB" in text_of(bench.use(READ, file_path="a.pdf"))


def test_without_the_package_the_model_is_told_how_to_get_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf_text, "find_spec", lambda _: None)
    bench.write("a.pdf", numbered(1))
    assert "pip install 'kitbag[documents]'" in text_of(bench.use(READ, file_path="a.pdf"))


def test_a_process_that_says_something_else_is_not_believed(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    said = ['{"count": 3}', '{"page": 1, "text": "lies"}', '{"page": "x"}', '{"page": 2, "text": "lies"}']
    script = f"print({chr(10).join(said)!r})"
    monkeypatch.setattr(pdf_text, "pdf_command", lambda *_: [sys.executable, "-c", script])
    bench.write("a.pdf", numbered(1))
    outcome = bench.use(READ, file_path="a.pdf")
    assert outcome.is_error
    assert "lies" not in text_of(outcome)


FLOOD = "import sys\nwhile True: sys.stdout.write('x' * 99999)"


def test_a_process_that_floods_us_is_ended(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    monkeypatch.setattr(pdf_text, "pdf_command", lambda *_: [sys.executable, "-c", FLOOD])
    bench.write("a.pdf", numbered(1))
    with memory_growth() as growth:
        assert bench.use(READ, file_path="a.pdf").is_error
        assert growth() < 100 << 20
    assert not children()


@pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")
def test_what_reads_documents_can_open_start_and_reach_nothing() -> None:
    script = """
import os, socket, sys
from kitbag.tools.files.pdf_process import restrict_system_calls
assert restrict_system_calls()
tried = {
    "open": lambda: os.open("/etc/passwd", os.O_RDONLY),
    "write": lambda: os.open("/tmp/kitbag-never", os.O_WRONLY | os.O_CREAT),
    "fork": os.fork,
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "socket": socket.socket,
    "kill": lambda: os.kill(os.getppid(), 0),
    "remove": lambda: os.unlink("/tmp/kitbag-never"),
}
for name, act in tried.items():
    try:
        act()
    except PermissionError:
        os.write(1, f"{name} refused\\n".encode())
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=TEST_TIMEOUT)
    assert done.stdout.split("\n")[:-1] == [
        f"{name} refused" for name in ("open", "write", "fork", "exec", "socket", "kill", "remove")
    ], done.stderr


def test_several_documents_are_read_side_by_side(bench: Bench) -> None:
    for number in range(4):
        bench.write(f"{number}.pdf", document(shown(f"document {number}")))

    async def every() -> list[str]:
        calls = [bench.using(READ, {"file_path": f"{number}.pdf"}) for number in range(4)]
        return [text_of(outcome) for outcome in await asyncio.gather(*calls)]

    assert [text.splitlines()[1] for text in asyncio.run(every())] == [f"document {number}" for number in range(4)]
    assert threading.active_count() < 20
