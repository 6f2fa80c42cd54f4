"""The line at the bottom: what stands in it, and what is left out when it is narrow."""

import msgspec
import pytest

from kitbag.chat.terminal.status_line import status_line
from kitbag.chat.ui import ChatStatus
from kitbag.text.terminal_width import text_width

FULL = ChatStatus(
    model="anthropic/claude-sonnet",
    mode="acceptEdits",
    persona="support",
    used=46_000,
    window=200_000,
    cost=0.123,
    tasks=2,
    questions=1,
    directory="/home/me/project",
)


def line(status: ChatStatus, width: int) -> str:
    return "".join(text for _, text in status_line(status, width, str))


def test_everything_stands_in_a_wide_one() -> None:
    assert line(FULL, 120) == (
        "  1 question pending · acceptEdits · anthropic/claude-sonnet · support · ▰▱▱▱▱▱ 23% · $0.12 · 2 tasks"
        " · /home/me/project"
    )


@pytest.mark.parametrize("width", range(130))
def test_it_never_needs_more_than_there_is(width: int) -> None:
    for status in (FULL, msgspec.structs.replace(FULL, model="模型" * 20, persona="é" * 40)):
        assert text_width(line(status, width)) <= width


def test_what_matters_most_stays_longest() -> None:
    assert line(FULL, 107) == (
        "  1 question pending · acceptEdits · claude-sonnet · support · ▰▱▱▱▱▱ 23% · $0.12 · 2 tasks · project"
    )
    assert line(FULL, 84) == "  1 question pending · acceptEdits · claude-sonnet · support · 23% · $0.12 · 2 tasks"
    assert line(FULL, 80) == "  1 question pending · acceptEdits · claude-sonnet · support · 23% · 2 tasks"
    assert line(FULL, 50) == "  1 question pending · acceptEdits · support · 23%"
    assert line(FULL, 40) == "  1 question pending · acceptEdits · 23%"
    assert line(FULL, 20) == "  1 question pending"
    assert line(FULL, 5) == "  1?"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (ChatStatus(), ""),
        (ChatStatus(cost=None), "  cost unknown"),
        (ChatStatus(cost=0.001), "  <$0.01"),
        (ChatStatus(used=1500), "  1.5k tokens"),
        (ChatStatus(used=0, window=100), "  ▱▱▱▱▱▱ 0%"),
        (ChatStatus(used=250, window=100), "  ▰▰▰▰▰▰ 250%"),
        (ChatStatus(used=-5, window=100), "  ▱▱▱▱▱▱ 0%"),
        (ChatStatus(tasks=1), "  1 task"),
    ],
)
def test_each_part_in_words(status: ChatStatus, words: str) -> None:
    assert line(status, 80) == words


def test_a_window_that_is_nearly_full_is_seen() -> None:
    tones = [status_line(ChatStatus(used=used, window=100), 80, str)[1][0] for used in (50, 75, 95)]
    assert tones == ["dim", "ansiyellow", "ansired"]
