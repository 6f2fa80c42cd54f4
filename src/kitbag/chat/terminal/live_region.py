"""What is drawn over while it works: the reply's unfinished end, running calls, todos, what waits to be said.

Used by the terminal face. Whatever height there is, it fits: the activity stays, the rest is shortened.
"""

from collections.abc import Callable
from typing import Final

from kitbag.chat.terminal.status_line import thousands
from kitbag.chat.terminal.text_fragments import STYLES, Drawn, around, cut_line
from kitbag.chat.ui import Live, Running
from kitbag.text.terminal_width import cut

SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_SECONDS: Final = 0.1
"""How long a picture of the spinner stands."""
_MOST_QUEUED: Final = 3
_TODO_MARKS: Final = {"completed": ("✓", "dim"), "in_progress": ("▸", "bold"), "pending": ("○", "")}

Tail = Callable[[str, int, int], list[Drawn]]
"""(Markdown, width, height): its last lines, cleaned."""


def is_working(live: Live) -> bool:
    return bool(live.activity or live.running or live.tail)


def live_lines(
    live: Live, width: int, height: int, now: float, clean: Callable[[str], str], tail: Tail, *, can_stop: bool = True
) -> list[Drawn]:
    """At most `height`. `can_stop`: Esc does it."""
    if height <= 0:
        return []
    picture = SPINNER[int(now / FRAME_SECONDS) % len(SPINNER)]
    activity = [_activity(live, picture, now, clean, can_stop)] if live.activity else []
    left = height - len(activity)
    running = _at_most(
        [_running(call, picture, now, clean) for call in live.running[: height + 1]],
        len(live.running),
        min(left, max(1, height // 3)),
        "more at work",
    )
    left -= len(running)
    queued = _at_most(
        [[("dim", f"  queued: {clean(text)}")] for text in live.queued[: _MOST_QUEUED + 1]],
        len(live.queued),
        min(left, _MOST_QUEUED, max(1, height // 4)),
        "more queued",
    )
    left -= len(queued)
    todos = _todos(live.todos, left if not live.tail else left // 2, clean)
    left -= len(todos)
    lines = [*running, *activity, *todos, *queued]
    tail_lines = tail(live.tail, width, left)[-left:] if live.tail and left > 0 else []
    if tail_lines and lines and len(tail_lines) < left:
        tail_lines = [*tail_lines, []]
    return [*tail_lines, *(cut_line(line, width) for line in lines)]


def _activity(live: Live, picture: str, now: float, clean: Callable[[str], str], can_stop: bool) -> Drawn:
    facts = [elapsed(now - live.since)] if live.since else []
    if live.tokens:
        facts.append(f"{thousands(live.tokens)} token{'' if live.tokens == 1 else 's'}")
    if can_stop:
        facts.append("Esc stops it")
    told = f" ({' · '.join(facts)})" if facts else ""
    return [(STYLES["accent"], f"{picture} {clean(live.activity)}"), ("dim", told)]


def _running(call: Running, picture: str, now: float, clean: Callable[[str], str]) -> Drawn:
    line: Drawn = [(STYLES["accent"], f"{picture} "), ("bold", clean(call.name))]
    if call.title:
        line.append(("", f" {cut(clean(call.title), 60)}"))
    if call.since and now - call.since >= 1:
        line.append(("dim", f" {elapsed(now - call.since)}"))
    if call.progress:
        line.append(("dim", f" · {clean(call.progress)}"))
    return line


def _todos(todos: tuple[tuple[str, str], ...], height: int, clean: Callable[[str], str]) -> list[Drawn]:
    if not todos or height <= 0:
        return []
    current = next((at for at, (status, _) in enumerate(todos) if status != "completed"), len(todos) - 1)
    shown = around(len(todos), current, height)
    lines: list[Drawn] = []
    for at in shown:
        status, text = todos[at]
        mark, style = _TODO_MARKS.get(status, _TODO_MARKS["pending"])
        lines.append([(style, f"  {mark} {clean(text)}")])
    return lines


def _at_most(lines: list[Drawn], count: int, height: int, more: str) -> list[Drawn]:
    if count <= height:
        return lines
    if height <= 1:
        return lines[:height]
    return [*lines[: height - 1], [("dim", f"  … and {count - height + 1} {more}")]]


def elapsed(seconds: float) -> str:
    whole = max(int(seconds), 0)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02}m"
