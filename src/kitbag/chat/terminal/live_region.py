"""Draws the state of the running agent: the unfinished end of the reply, running calls, todos, queued messages.

Used by layout. Fits any height: the activity stays, the rest is truncated.
"""

from collections.abc import Callable
from typing import Final

from kitbag.chat.terminal.reflow import RewrapRoom
from kitbag.chat.terminal.text_fragments import STYLES, FragmentLine, cut_line, visible_range
from kitbag.chat.ui import LiveState, RunningCall
from kitbag.text.human_format import format_thousands
from kitbag.text.terminal_width import truncate_to_width

SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_SECONDS: Final = 0.1
"""Duration of a spinner frame."""
_MAX_QUEUED: Final = 3
_TODO_MARKS: Final = {"completed": ("✓", "dim"), "in_progress": ("▸", "bold"), "pending": ("○", "")}

RenderTail = Callable[[str, int, int], list[FragmentLine]]
"""Takes (Markdown, width, height) and returns the last lines, sanitized."""


def is_working(live: LiveState) -> bool:
    return bool(live.activity or live.running or live.tail)


def live_lines(
    live: LiveState,
    width: int,
    height: int,
    now: float,
    clean: Callable[[str], str],
    tail: RenderTail,
    *,
    can_stop: bool = True,
    room: RewrapRoom | None = None,
) -> list[FragmentLine]:
    """At most `height` lines. `can_stop`: Esc interrupts the agent."""
    if height <= 0:
        return []
    spinner = SPINNER[int(now / FRAME_SECONDS) % len(SPINNER)]
    activity = [_activity(live, spinner, now, clean, can_stop)] if live.activity else []
    left = height - len(activity)
    running = _truncate(
        [_running(call, spinner, now, clean) for call in live.running[: height + 1]],
        len(live.running),
        min(left, max(1, height // 3)),
        "more running",
    )
    left -= len(running)
    waiting = [*(f"pending: {text}" for text in live.steering), *(f"queued: {text}" for text in live.queued)]
    queued = _truncate(
        [[("dim", f"  {clean(text)}")] for text in waiting[: _MAX_QUEUED + 1]],
        len(waiting),
        min(left, _MAX_QUEUED),
        "more",
    )
    left -= len(queued)
    todos = _todos(live.todos, left if not live.tail else left // 2, clean)
    left -= len(todos)
    lines = [cut_line(line, width) for line in (*running, *activity, *todos, *queued)]
    lines = room.cut(lines) if room else lines
    tail_lines = tail(live.tail, width, left)[-left:] if live.tail and left > 0 else []
    if tail_lines and lines and len(tail_lines) < left:
        tail_lines = [*tail_lines, []]
    return [*(room.fit_tail(tail_lines, lines) if room else tail_lines), *lines]


def _activity(live: LiveState, spinner: str, now: float, clean: Callable[[str], str], can_stop: bool) -> FragmentLine:
    facts = [format_elapsed(now - live.started_at)] if live.started_at else []
    if live.tokens:
        facts.append(f"{format_thousands(live.tokens)} token{'' if live.tokens == 1 else 's'}")
    if can_stop:
        facts.append("Esc to interrupt and send" if live.steering else "Esc to interrupt")
    facts_text = f" ({' · '.join(facts)})" if facts else ""
    return [(STYLES["accent"], f"{spinner} {clean(live.activity)}"), ("dim", facts_text)]


def _running(call: RunningCall, spinner: str, now: float, clean: Callable[[str], str]) -> FragmentLine:
    line: FragmentLine = [(STYLES["accent"], f"{spinner} "), ("bold", clean(call.name))]
    if call.title:
        line.append(("", f" {truncate_to_width(clean(call.title), 60)}"))
    if call.started_at and now - call.started_at >= 1:
        line.append(("dim", f" {format_elapsed(now - call.started_at)}"))
    if call.progress:
        line.append(("dim", f" · {clean(call.progress)}"))
    return line


def _todos(todos: tuple[tuple[str, str], ...], height: int, clean: Callable[[str], str]) -> list[FragmentLine]:
    if not todos or height <= 0:
        return []
    current = next((at for at, (status, _) in enumerate(todos) if status != "completed"), len(todos) - 1)
    shown = visible_range(len(todos), current, height)
    lines: list[FragmentLine] = []
    for at in shown:
        status, text = todos[at]
        mark, style = _TODO_MARKS.get(status, _TODO_MARKS["pending"])
        lines.append([(style, f"  {mark} {clean(text)}")])
    return lines


def _truncate(lines: list[FragmentLine], count: int, height: int, more: str) -> list[FragmentLine]:
    if count <= height:
        return lines
    if height <= 1:
        return [[("dim", f"1 of {count} "), *lines[0]]] if height == 1 else []
    return [*lines[: height - 1], [("dim", f"  … and {count - height + 1} {more}")]]


def format_elapsed(seconds: float) -> str:
    whole = max(int(seconds), 0)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02}m"
