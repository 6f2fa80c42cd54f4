"""Draws the status line: model, mode, persona, context use, cost, background tasks, pending questions.

Used by layout. Parts that do not fit are shortened, then omitted, the least important first.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from kitbag.chat.terminal.text_fragments import STYLES, FragmentLine
from kitbag.chat.ui import ChatStatus
from kitbag.text.human_format import format_thousands
from kitbag.text.terminal_width import text_width, truncate_to_width
from kitbag.views.blocks import Tone

_BAR_CELLS: Final = 6
_SEPARATOR: Final = " · "
_MARGIN: Final = "  "
_MODES: Final[dict[str, Tone]] = {"plan": "accent", "acceptEdits": "warning", "autonomous": "bad"}


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    importance: int
    texts: tuple[str, ...]
    """From longest to shortest; after the last the part is omitted."""
    tone: Tone = "dim"
    shorten_importance: int = 99
    """Importance of the longest text, if less than `importance`."""

    @property
    def priority(self) -> int:
        """The part with the smallest value is shortened first."""
        return min(self.shorten_importance, self.importance) if len(self.texts) > 1 else self.importance


def status_line(status: ChatStatus, width: int, clean: Callable[[str], str], editing: str = "") -> FragmentLine:
    """`editing`: how keys edit the input line, if not as usual."""
    parts = [part for part in (_Part(importance=10, texts=_distinct(editing)), *_parts(status, clean)) if part.texts]
    while parts and _width(parts) > width:
        at = min(range(len(parts)), key=lambda index: parts[index].priority)
        shorter = msgspec.structs.replace(parts[at], texts=parts[at].texts[1:], shorten_importance=99)
        parts[at : at + 1] = [shorter] if shorter.texts else []
    line: FragmentLine = []
    for part in parts:
        line.append(("dim", _SEPARATOR if line else _MARGIN))
        line.append((STYLES[part.tone], part.texts[0]))
    return line


def hint_line(text: str, width: int) -> FragmentLine:
    return [(STYLES["warning"], truncate_to_width(_MARGIN + text, width))]


def _width(parts: list[_Part]) -> int:
    texts = sum(text_width(part.texts[0]) for part in parts)
    return len(_MARGIN) + texts + len(_SEPARATOR) * (len(parts) - 1)


def _parts(status: ChatStatus, clean: Callable[[str], str]) -> list[_Part]:
    model, mode, persona = clean(status.model), clean(status.mode), clean(status.persona)
    directory = clean(status.directory)
    folder = directory.rstrip("/").rpartition("/")[2]
    shorter_model = model.rpartition("/")[2]
    return [
        _Part(
            importance=9, texts=_count(status.questions, "question pending", "questions pending", "?"), tone="warning"
        ),
        _Part(importance=8, texts=(mode,) if mode else (), tone=_MODES.get(status.mode, "dim")),
        _Part(
            importance=5,
            texts=_distinct(model, shorter_model, truncate_to_width(shorter_model, 16)),
            shorten_importance=0,
        ),
        _Part(importance=6, texts=_distinct(persona, truncate_to_width(persona, 12)), tone="accent"),
        _context(status),
        _Part(importance=3, texts=_cost(status.cost)),
        _Part(importance=4, texts=_count(status.tasks, "task", "tasks", "t"), tone="accent"),
        _Part(importance=1, texts=_distinct(directory, folder), shorten_importance=0),
    ]


def _distinct(*texts: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text))


def _count(number: int, one: str, many: str, sign: str) -> tuple[str, ...]:
    return (f"{number} {one if number == 1 else many}", f"{number}{sign}") if number > 0 else ()


def _context(status: ChatStatus) -> _Part:
    if status.window <= 0:
        return _Part(importance=7, texts=(f"{format_thousands(status.used)} tokens",) if status.used > 0 else ())
    share = min(max(status.used / status.window, 0.0), 9.99)
    filled_cells = min(round(share * _BAR_CELLS), _BAR_CELLS) if share else 0
    percent = f"{share:.0%}"
    tone: Tone = "bad" if share >= 0.9 else "warning" if share >= 0.7 else "dim"
    return _Part(
        importance=7,
        texts=(f"{'▰' * filled_cells}{'▱' * (_BAR_CELLS - filled_cells)} {percent}", percent),
        tone=tone,
        shorten_importance=2,
    )


def _cost(dollars: float | None) -> tuple[str, ...]:
    if dollars is None:
        return ("cost unknown", "$?")
    if dollars <= 0:
        return ()
    return (f"${dollars:.2f}",) if dollars >= 0.005 else ("<$0.01",)
