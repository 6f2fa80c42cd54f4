"""Renders the changing parts of a chat as HTML: what the agent does now, and the status bar.

Used by the web UI, which replaces the content of `.live` and `.statusbar` with it. The browser counts the seconds on
from `data-started-ago`.
"""

import time
from typing import Final

from kitbag.chat.ui import ChatStatus, LiveState, RunningCall
from kitbag.text.human_format import format_count, format_thousands, shorten_path
from kitbag.views.blocks import ReplyBlock
from kitbag.views.rendering.styled_text import Cleaner
from kitbag.web.html.blocks import Redact, block_html
from kitbag.web.html.elements import EMPTY, Html, element, meter

_MAX_ITEMS: Final = 50
_TODO_STATES: Final = {"completed": "done", "in_progress": "in progress", "pending": "to do"}


def render_live(live: LiveState, redact: Redact, now: float | None = None) -> str:
    """`now`: time.monotonic(). Empty while nothing happens."""
    now = time.monotonic() if now is None else now
    clean = Cleaner(redact, keeps_tabs=True)
    parts = [
        element("div", block_html(ReplyBlock(live.tail, begins=False), clean), css="live-tail")
        if live.tail.strip()
        else EMPTY,
        _list("live-calls", [_running(call, now, clean) for call in live.running[:_MAX_ITEMS]], len(live.running)),
        _activity(live, now, clean) if live.activity else EMPTY,
        _list("todos", [_todo(status, text, clean) for status, text in live.todos[:_MAX_ITEMS]], len(live.todos)),
        _waiting(live, clean),
    ]
    return "".join(parts)


def _list(css: str, items: list[Html], count: int) -> Html:
    more = element("li", f"{count - len(items):,} more", css="omitted") if count > len(items) else EMPTY
    return element("ul", *items, more, css=css) if items else EMPTY


def _spinner() -> Html:
    return element("span", EMPTY, css="spinner", attributes={"aria-hidden": "true"})


def _elapsed(started_at: float, now: float) -> Html:
    if not started_at:
        return EMPTY
    seconds = max(now - started_at, 0.0)
    return element("span", f"{seconds:.0f}s", css="elapsed", attributes={"data-started-ago": round(seconds, 1)})


def _activity(live: LiveState, now: float, clean: Cleaner) -> Html:
    tokens = (
        element("span", f"{format_thousands(live.tokens)} token{'' if live.tokens == 1 else 's'}", css="tokens")
        if live.tokens
        else EMPTY
    )
    label = element("span", clean.line(live.activity), css="activity")
    return element("p", _spinner(), label, _elapsed(live.started_at, now), tokens, css="live-activity")


def _running(call: RunningCall, now: float, clean: Cleaner) -> Html:
    return element(
        "li",
        _spinner(),
        element("span", clean.line(call.name), css="tool-name"),
        element("span", clean.line(call.title), css="tool-title") if call.title else EMPTY,
        element("span", clean.line(call.progress), css="tool-summary") if call.progress else EMPTY,
        _elapsed(call.started_at, now),
        css="tool-line",
    )


def _todo(status: str, text: str, clean: Cleaner) -> Html:
    status = status if status in _TODO_STATES else "pending"
    mark = element(
        "span",
        "✓" if status == "completed" else "",
        css="task-box task-done" if status == "completed" else "task-box",
        attributes={"role": "img", "aria-label": _TODO_STATES[status]},
    )
    return element("li", mark, element("span", clean.line(text)), css=f"todo todo-{status}")


def _waiting(live: LiveState, clean: Cleaner) -> Html:
    """`next`: the model gets the message after the running tool calls."""
    waiting = [*(("next", text) for text in live.steering), *(("queued", text) for text in live.queued)]
    items = [
        element("li", element("span", kind, css="badge"), element("span", clean.line(text), css="waiting-text"))
        for kind, text in waiting[:_MAX_ITEMS]
    ]
    return _list("waiting", items, len(waiting))


def render_status(status: ChatStatus, redact: Redact = str) -> str:
    clean = Cleaner(redact)
    mode, model, persona = clean.line(status.mode), clean.line(status.model), clean.line(status.persona)
    questions = format_count(status.questions, "approval") + " pending" if status.questions > 0 else ""
    items = [
        _item("questions", questions),
        _choice("mode", mode, f"mode-{status.mode}" if status.mode.isalnum() and status.mode.isascii() else ""),
        _choice("model", model),
        _choice("persona", persona or ("no persona" if model else "")),
        _context(status),
        _item("cost", _cost(status.cost)),
        _item("tasks", format_count(status.tasks, "task") if status.tasks > 0 else ""),
        _item("directory", clean.line(shorten_path(status.directory))),
    ]
    return "".join(items)


def _item(kind: str, text: str, css: str = "") -> Html:
    if not text:
        return EMPTY
    return element(
        "span", text, css=f"status-item status-{kind} {css}".rstrip(), attributes={"title": f"{kind}: {text}"}
    )


def _choice(kind: str, text: str, css: str = "") -> Html:
    """Opens the choices of the command with this name."""
    if not text:
        return EMPTY
    attributes: dict[str, str | int | float | bool] = {
        "type": "button", "name": "command", "value": f"/{kind}", "title": f"{kind}: {text}"
    }  # fmt: skip
    return element("button", text, css=f"status-item status-{kind} {css}".rstrip(), attributes=attributes)


def _context(status: ChatStatus) -> Html:
    if status.window <= 0:
        return _item("context", f"{format_thousands(status.used)} tokens" if status.used > 0 else "")
    share = min(max(status.used / status.window, 0.0), 9.99)
    label = f"{status.used:,} of {status.window:,} tokens of the context window are used"
    return element(
        "span", meter(share, label), f"{share:.0%}", css="status-item status-context", attributes={"title": label}
    )


def _cost(dollars: float | None) -> str:
    if dollars is None:
        return "cost unknown"
    if dollars <= 0:
        return ""
    return f"${dollars:.2f}" if dollars >= 0.005 else "<$0.01"
