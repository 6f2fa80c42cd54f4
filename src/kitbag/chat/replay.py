"""Rebuilds the last exchanges of a resumed session as blocks.

Used by event_blocks. Messages come from the session; summaries and details of tool results come from the journal.
"""

import contextlib
import html
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from kitbag.agent.session import CONTINUATION_PREFIX, NOTIFICATION_PREFIX, STREAM_PREFIX, Session, is_user_message
from kitbag.agent.user_text import split_user_text
from kitbag.chat.tool_titles import call_summary, call_title, parse_todos
from kitbag.errors import KitbagError
from kitbag.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, usage_from_record
from kitbag.text.human_format import format_count
from kitbag.views.blocks import Block, ReplyBlock, ThinkingBlock, ToolBlock, UserBlock, text_block

_MAX_FORKS: Final = 20
_NOTIFICATION = re.compile(r'<task-notification task-id="([^"]*)" status="([^"]*)" agent="([^"]*)"')
_APPENDED_TAGS: Final = ("suggested-skills", "library-changes", "session-changes")
"""Elements that Kitbag appended to the user's message for the model."""


_DAMAGED: Final = (KeyError, TypeError, ValueError, AttributeError)


class SessionReplay(msgspec.Struct, frozen=True, kw_only=True):
    blocks: tuple[Block, ...]
    used_tokens: int
    """Tokens of the last request and its reply."""
    todos: tuple[tuple[str, str], ...]
    """Empty if all are completed."""


class _ShownResult(NamedTuple):
    summary: str = ""
    details: str = ""


def replay_session(session: Session, exchanges: int) -> SessionReplay:
    lines = session.recorded_messages()
    user_messages = [at for at, (seq, message) in enumerate(lines) if seq and is_user_message(message)]
    start = user_messages[-exchanges] if len(user_messages) >= exchanges else 0
    shown = [(seq, message) for seq, message in lines[start:] if seq]
    result_texts, used_tokens = _read_results(session, shown[0][0] if shown else 0)
    results = {result.call_id: result for _, message in shown for result in message.results}
    directory = session.header.directory
    blocks: list[Block] = []
    if shown and (len(user_messages) > exchanges or len(shown) < len(lines[start:])):
        blocks.append(text_block(f"… {_earlier(len(user_messages) - exchanges)}", "dim"))
    for _, message in shown:
        blocks += (
            _user_blocks(message)
            if message.role == "user"
            else _reply_blocks(message, results, result_texts, directory)
        )
    return SessionReplay(blocks=tuple(blocks), used_tokens=used_tokens, todos=_todos(session))


def _earlier(more: int) -> str:
    return f"{format_count(more, 'earlier message')} not shown" if more > 0 else "earlier messages are summarized"


def _todos(session: Session) -> tuple[tuple[str, str], ...]:
    calls = [call for call in session.calls.values() if call.name == "TodoWrite" and call.id in session.started_calls]
    todos = parse_todos(calls[-1].arguments) if calls else ()
    return todos if any(status != "completed" for status, _ in todos) else ()


def _read_results(session: Session, since: int) -> tuple[dict[str, _ShownResult], int]:
    """Reads what was shown for each tool result since then, and the tokens of the last reply."""
    result_texts: dict[str, _ShownResult] = {}
    used_tokens = 0
    stream: str = session.stream
    for _ in range(_MAX_FORKS):
        origin = ""
        for body, kind in _read_records(session, stream, since):
            if kind == "session":
                origin = str(body.get("forked_from") or "")
            elif kind == "result":
                with contextlib.suppress(*_DAMAGED):  # a record of another version is shown without a summary
                    call = str(body["result"].get("call_id", ""))
                    result_texts.setdefault(
                        call, _ShownResult(str(body.get("summary", "")), str(body.get("details", "")))
                    )
            elif kind == "reply" and stream == session.stream:
                with contextlib.suppress(*_DAMAGED):
                    usage = usage_from_record(body.get("usage", ()))
                    used_tokens = usage.total_input + usage.output or used_tokens
        origin = origin or (session.header.forked_from if stream == session.stream else "")
        if not origin:
            break
        stream = STREAM_PREFIX + origin
    return result_texts, used_tokens


def _read_records(session: Session, stream: str, since: int) -> Iterator[tuple[dict[str, Any], str]]:
    """Stops at the first unreadable record: opening the session reports the damage."""
    try:
        for record in session.journal.read(stream, max(since - 1, 0)):
            if record.kind in ("session", "result", "reply"):
                yield dict(record.body), record.kind
    except (KitbagError, *_DAMAGED):
        return


def _user_blocks(message: Message) -> Iterator[Block]:
    """Shows a user message or one line per task notification; results are shown with their calls."""
    if message.results:
        return
    if message.text.startswith(NOTIFICATION_PREFIX):
        for task, status, agent in _NOTIFICATION.findall(message.text):
            yield text_block(html.unescape(f"task {task} ({agent}): {status}"), "dim")
        return
    if message.text.startswith(CONTINUATION_PREFIX):
        return
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    images = sum(isinstance(part, Image) for part in message.parts)
    yield UserBlock(_user_text(texts[-1]) if texts else "", images)  # a called skill comes before it


def _user_text(text: str) -> str:
    """Without attached files: the user did not write them."""
    parts = [part for kind, _, part in split_user_text(_without_appended(text)) if kind != "mentioned"]
    return "".join(parts).rstrip("\n")


def _without_appended(text: str) -> str:
    while ends := [tag for tag in _APPENDED_TAGS if text.rstrip().endswith(f"</{tag}>")]:
        start = text.rfind(f"<{ends[0]}>\n")
        if start < 0:
            break
        text = text[:start].rstrip("\n")
    return text


def _reply_blocks(
    message: Message, results: dict[str, ToolResult], result_texts: dict[str, _ShownResult], directory: str
) -> Iterator[Block]:
    for text in [part.text for part in message.parts if isinstance(part, Thinking) and part.text.strip()]:
        yield ThinkingBlock(text, 0.0)
    if message.text.strip():
        yield ReplyBlock(message.text)
    for call in message.calls:
        yield _tool_block(call, results.get(call.id), result_texts.get(call.id, _ShownResult()), directory)


def _tool_block(call: ToolCall, result: ToolResult | None, shown: _ShownResult, directory: str) -> ToolBlock:
    about = call_title(call.name, call.arguments, directory=directory)
    if result is None:
        return ToolBlock(name=call.name, title=about, summary="interrupted", is_error=True, seconds=0.0)
    summary = call_summary(call.name, about, shown.summary, result.is_error)
    return ToolBlock(
        name=call.name, title=about, summary=summary, is_error=result.is_error, seconds=0.0, details=shown.details
    )
