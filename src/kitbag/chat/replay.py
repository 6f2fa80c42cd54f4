"""Rebuilds the last exchanges of a resumed session as blocks.

Used by event_blocks. Messages come from the session; summaries and details of tool results come from the journal.
"""

import contextlib
import html
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kitbag.agent.context_ledger import split_user_text
from kitbag.agent.session import NOTIFICATION_PREFIX, STREAM_PREFIX, Session, is_user_message
from kitbag.chat.tool_titles import call_summary, call_title, parse_todos
from kitbag.errors import KitbagError
from kitbag.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, Usage
from kitbag.text.human_format import format_count
from kitbag.views.blocks import Block, ReplyBlock, ThinkingBlock, ToolBlock, UserBlock, text_block

_MOST_FORKS: Final = 20
_HEAD = re.compile(r'<task-notification task-id="([^"]*)" status="([^"]*)" agent="([^"]*)"')
_OURS: Final = ("suggested-skills", "library-changes", "session-changes")
"""Elements that Kitbag appended to the user's message for the model."""


_DAMAGED: Final = (KeyError, TypeError, ValueError, AttributeError)


class SessionReplay(NamedTuple):
    blocks: tuple[Block, ...]
    used_tokens: int
    """Tokens of the last request and its reply."""
    todos: tuple[tuple[str, str], ...]
    """Empty if all are completed."""


class _Told(NamedTuple):
    summary: str = ""
    details: str = ""


def replay_session(session: Session, exchanges: int) -> SessionReplay:
    lines = session.recorded_messages()
    said = [at for at, (seq, message) in enumerate(lines) if seq and is_user_message(message)]
    start = said[-exchanges] if len(said) >= exchanges else 0
    shown = [(seq, message) for seq, message in lines[start:] if seq]
    told, used = _records(session, shown[0][0] if shown else 0)
    results = {result.call_id: result for _, message in shown for result in message.results}
    directory = session.header.directory
    blocks: list[Block] = []
    if shown and (len(said) > exchanges or len(shown) < len(lines[start:])):
        blocks.append(text_block(f"… {_earlier(len(said) - exchanges)}", "dim"))
    for _, message in shown:
        blocks += _user(message) if message.role == "user" else _reply(message, results, told, directory)
    return SessionReplay(tuple(blocks), used, _todos(session))


def _earlier(more: int) -> str:
    return f"{format_count(more, 'earlier exchange')} before this" if more > 0 else "what was before this is summed up"


def _todos(session: Session) -> tuple[tuple[str, str], ...]:
    calls = [call for call in session.calls.values() if call.name == "TodoWrite" and call.id in session.started_calls]
    todos = parse_todos(calls[-1].arguments) if calls else ()
    return todos if any(status != "completed" for status, _ in todos) else ()


def _records(session: Session, since: int) -> tuple[dict[str, _Told], int]:
    """Reads what was shown for each tool result since then, and the tokens of the last reply."""
    told: dict[str, _Told] = {}
    used = 0
    stream: str = session.stream
    for _ in range(_MOST_FORKS):
        origin = ""
        for body, kind in _read(session, stream, since):
            if kind == "session":
                origin = str(body.get("forked_from") or "")
            elif kind == "result":
                with contextlib.suppress(*_DAMAGED):  # a record of another version is shown without a summary
                    call = str(body["result"].get("call_id", ""))
                    told.setdefault(call, _Told(str(body.get("summary", "")), str(body.get("details", ""))))
            elif kind == "reply" and stream == session.stream:
                with contextlib.suppress(*_DAMAGED):
                    usage = Usage(*body.get("usage", ()))
                    used = usage.total_input + usage.output or used
        origin = origin or (session.header.forked_from if stream == session.stream else "")
        if not origin:
            break
        stream = STREAM_PREFIX + origin
    return told, used


def _read(session: Session, stream: str, since: int) -> Iterator[tuple[dict[str, Any], str]]:
    """Stops at the first unreadable record: opening the session reports the damage."""
    try:
        for record in session.journal.read(stream, max(since - 1, 0)):
            if record.kind in ("session", "result", "reply"):
                yield dict(record.body), record.kind
    except (KitbagError, *_DAMAGED):
        return


def _user(message: Message) -> Iterator[Block]:
    """Shows a user message or one line per task notification; results are shown with their calls."""
    if message.results:
        return
    if message.text.startswith(NOTIFICATION_PREFIX):
        for task, status, agent in _HEAD.findall(message.text):
            yield text_block(html.unescape(f"task {task} ({agent}): {status}"), "dim")
        return
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    images = sum(isinstance(part, Image) for part in message.parts)
    yield UserBlock(_own_words(texts[-1]) if texts else "", images)  # a called skill comes before it


def _own_words(text: str) -> str:
    """Without attached files: the user did not write them."""
    own = [part for kind, _, part in split_user_text(_without_ours(text)) if kind != "mentioned"]
    return "".join(own).rstrip("\n")


def _without_ours(text: str) -> str:
    while ends := [tag for tag in _OURS if text.rstrip().endswith(f"</{tag}>")]:
        start = text.rfind(f"<{ends[0]}>\n")
        if start < 0:
            break
        text = text[:start].rstrip("\n")
    return text


def _reply(message: Message, results: dict[str, ToolResult], told: dict[str, _Told], directory: str) -> Iterator[Block]:
    for text in [part.text for part in message.parts if isinstance(part, Thinking) and part.text.strip()]:
        yield ThinkingBlock(text, 0.0)
    if message.text.strip():
        yield ReplyBlock(message.text)
    for call in message.calls:
        yield _done(call, results.get(call.id), told.get(call.id, _Told()), directory)


def _done(call: ToolCall, result: ToolResult | None, told: _Told, directory: str) -> ToolBlock:
    about = call_title(call.name, call.arguments, directory=directory)
    if result is None:
        return ToolBlock(call.name, about, "interrupted", True, 0.0)
    summary = call_summary(call.name, about, told.summary, result.is_error)
    return ToolBlock(call.name, about, summary, result.is_error, 0.0, told.details)
