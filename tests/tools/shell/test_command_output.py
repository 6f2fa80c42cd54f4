"""What a command printed, bounded, whatever it was and in whatever pieces it came."""

import random

import pytest

from kitbag.tools.shell.command_output import HEAD_CHARS, MAX_CHARS, CommandOutput
from support.using import memory_growth


def printed(*chunks: bytes) -> CommandOutput:
    output = CommandOutput()
    for chunk in chunks:
        output.feed(chunk)
    return output


@pytest.mark.parametrize("size", [1, 3, 1_000, 65_536])
def test_the_pieces_in_which_it_comes_make_no_difference(size: int) -> None:
    data = "".join(f"{number} größe 🎉\n" for number in range(30_000)).encode()
    whole = printed(data).render()
    assert printed(*(data[at : at + size] for at in range(0, len(data), size))).render() == whole
    assert "\ufffd" not in whole.text
    assert whole.lines == 30_000


@pytest.mark.parametrize("length", [MAX_CHARS - 1, MAX_CHARS, MAX_CHARS + 1, 60_000, 400_000, 5_000_000])
@pytest.mark.parametrize("line", [40, 3_000, 10**9])
def test_what_is_shown_and_what_is_left_out_is_all_there_was(length: int, line: int) -> None:
    source = random.Random(7)
    data = "".join("\n" if at % line == line - 1 else source.choice("abcdef") for at in range(min(length, 400_000)))
    data = data * (length // len(data))
    shown = printed(data.encode()).render()
    assert len(shown.text) < MAX_CHARS + 200
    if length <= MAX_CHARS:
        assert (shown.text, shown.truncation) == (data.rstrip("\n"), "")
        return
    first, _, rest = shown.text.partition("\n\n[... ")
    left, _, last = rest.partition(" omitted ...]\n\n")
    assert data.startswith(first)
    assert data.rstrip("\n").endswith(last)
    assert HEAD_CHARS // 2 <= len(first) <= HEAD_CHARS
    if "line" in left:
        lines = int(left.split()[0].replace(",", ""))
        assert abs(lines + first.count("\n") + last.count("\n") + 2 - shown.lines) <= 1


def test_the_last_line_is_what_stands_on_the_screen() -> None:
    assert printed().last_line() == ""
    assert printed(b"one\ntwo").last_line() == "two"
    assert printed(b"one\n\n  \n").last_line() == "one"
    assert printed(b"one\n10%\r20%\r").last_line() == "20%"
    assert printed(b"x" * 100_000).last_line() == "x" * 200
    assert printed(b"\x1b[31mred\x1b[0m\n").last_line() == "red"


def test_a_flood_takes_little_memory() -> None:
    output, chunk = CommandOutput(), b"y\n" * 32_768
    with memory_growth() as growth:
        for _ in range(2_000):
            output.feed(chunk)
        assert output.render().lines == 2_000 * 32_768
        assert growth() < 20 << 20


def test_many_hidden_characters_do_not_make_it_longer() -> None:
    shown = printed("\u200b".encode() * 60_000).render()
    assert len(shown.text) < MAX_CHARS + 200
