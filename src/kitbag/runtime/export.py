"""Exports a session: Markdown for people, JSON for programs.

Used by `/export`. Built from the records, so compacted messages are included; the journal's redactor removes secrets
that became known later. Blocks: callers with an event loop use a thread.
"""

import html
import json
import re
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from kitbag.agent.resume import read_session_records
from kitbag.agent.session import Session
from kitbag.agent.session_records import SessionHeader, SessionTotals
from kitbag.agent.user_text import split_user_text
from kitbag.errors import KitbagError
from kitbag.messages import (
    Image,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    message_from_json,
    part_from_json,
    usage_to_json,
)
from kitbag.store.journal import Journal, JournalRecord
from kitbag.text.hidden_characters import collapse_whitespace, reveal_hidden
from kitbag.text.human_format import format_cost, format_count

EXPORT_FORMAT: Final = "kitbag-conversation"
_KINDS: Final = ("user", "note", "reply", "result", "skill", "skill-dropped", "switched", "compacted", "ended")
_TICKS = re.compile(r"`{3,}")
_CODE_OR_TAG = re.compile(r"(`+)[^`\n]+\1(?!`)|<(?=[A-Za-z/!?])(?!https?://[^\s<>]*>)")
"""Inline code, or the start of what a viewer would treat as HTML."""
_MAX_PARSED_CHARS: Final = 500_000
"""Code blocks are not searched for in longer replies."""
_ATTACHMENT_TITLES: Final = {"changes": "Library changes", "suggestions": "Suggested skills"}


class ExportInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the header and footer of a document say."""

    session: str
    header: SessionHeader
    totals: SessionTotals
    other_agents_cost: float
    """Cost of the agents that this one started."""


def collect_export_info(session: Session, other_agents_cost: float = 0.0) -> ExportInfo:
    """Call in the session's thread; the rest can run in another."""
    return ExportInfo(
        session=session.id, header=session.header, totals=session.totals, other_agents_cost=other_agents_cost
    )


def export_json(journal: Journal, info: ExportInfo) -> str:
    """The records of the conversation in order, each with its time."""
    totals = info.totals
    entries = [
        {"kind": record.kind, "at": record.at, **record.body}
        for record in read_session_records(journal, info.session)
        if record.kind in _KINDS
    ]
    document = {
        "format": EXPORT_FORMAT,
        "version": 1,
        "session": info.session,
        **{name: getattr(info.header, name) for name in ("directory", "model", "mode", "agent", "team", "persona")},
        "started": info.header.started,
        "totals": {
            "turns": totals.turns,
            "usage": usage_to_json(totals.usage),
            "cost": None if totals.unpriced else totals.cost,
            "cost_of_other_agents": info.other_agents_cost,
        },
        "entries": entries,
    }
    # ASCII only, so that hidden characters are visible.
    return json.dumps(journal.redactor.redact_value(document), indent=2) + "\n"


def export_markdown(journal: Journal, info: ExportInfo) -> str:
    writer = _MarkdownWriter()
    for record in read_session_records(journal, info.session):
        try:
            writer.add(record)
        except (KitbagError, KeyError, TypeError, ValueError, IndexError, AttributeError):
            writer.pieces.append("*An unreadable record was omitted.*")
    writer.close_calls()
    text = "\n\n".join((*_render_header(info), *writer.pieces, *_render_footer(info))) + "\n"
    return journal.redactor.redact_text(reveal_hidden(text))


def _render_header(info: ExportInfo) -> Iterator[str]:
    header = info.header
    yield f"# Session {info.session}"
    persona = header.persona or header.team
    facts = (
        ("Started", header.started.replace("T", " ").removesuffix("Z")),
        ("Model", header.model),
        ("Mode", header.mode),
        ("Agent", header.agent),
        ("Persona", persona),
        ("Directory", header.directory),
    )
    yield "\n".join(f"- {label}: {_escape_inline(value)}" for label, value in facts if value)


def _render_footer(info: ExportInfo) -> Iterator[str]:
    totals, usage = info.totals, info.totals.usage
    sent = usage.total_input
    cost = f"at least {format_cost(totals.cost)}" if totals.unpriced else format_cost(totals.cost)
    others = f", and {format_cost(info.other_agents_cost)} by other agents" if info.other_agents_cost else ""
    yield "---"
    yield f"{format_count(totals.turns, 'turn')} · {sent:,} tokens sent, {usage.output:,} generated · {cost}{others}"


class _MarkdownWriter:
    """Adds one record at a time."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._open_calls: dict[str, ToolCall] = {}
        """Calls without a result so far."""

    def add(self, record: JournalRecord) -> None:
        body = record.body
        match record.kind:
            case "user":
                self.close_calls()
                one_turn_skills = {int(index): str(name) for index, name in body.get("one_turn", ())}
                self.pieces.append(f"## You, {record.at[:16].replace('T', ' ')}")
                for position, part in enumerate(message_from_json(body["message"]).parts):
                    self.pieces += (
                        [_render_skill(one_turn_skills[position], part)]
                        if position in one_turn_skills
                        else _render_user_part(part)
                    )
            case "note":
                self.pieces.append(_render_details("Background task", _fence(message_from_json(body["message"]).text)))
            case "reply":
                self.close_calls()
                self._add_reply(body)
            case "result":
                self._add_result(body)
            case "skill":
                by = {"model": "the model", "user": "you"}.get(str(body.get("by")), str(body.get("by")))
                details = f"{_escape_inline(str(body['name']))}, {int(body['tokens']):,} tokens, by {by}"
                self.pieces.append(f"*Skill loaded: {details}*")
            case "skill-dropped":
                self.pieces.append(
                    f"*Skill unloaded: {_escape_inline(str(body['name']))}: {_escape_inline(str(body['reason']))}*"
                )
            case "switched":
                details = [
                    f"{change['what']} {change['before'] or 'none'} → {change['after'] or 'none'}"
                    for change in body["changes"]
                ]
                self.pieces.append(f"*Changed: {_escape_inline(', '.join(details))}*")
            case "compacted":
                sizes = f"from {int(body['before']):,} to {int(body['after']):,} tokens"
                self.pieces.append(_render_details(f"Session compacted {sizes}", _fence(str(body["summary"]))))
            case "ended" if body.get("status") != "completed":
                self.close_calls()
                error = f": {_escape_inline(str(body['error']))}" if body.get("error") else ""
                self.pieces.append(f"*Ended: {_escape_inline(str(body['status']))}{error}*")
            case _:
                pass

    def _add_reply(self, body: Any) -> None:
        self.pieces.append(f"## {_escape_inline(str(body.get('model') or 'The model'))}")
        for part in message_from_json(body["message"]).parts:
            match part:
                case Text():
                    self.pieces.append(_escape_markdown(part.text.strip("\n")))
                case Thinking():
                    self.pieces.append(_render_details("Thought", _fence(part.text)))
                case ToolCall():
                    self._open_calls[part.id] = part
                case _:
                    self.pieces += _render_user_part(part)
        if body.get("incomplete"):
            self.pieces.append(f"*Incomplete reply: {_escape_inline(str(body['incomplete']))}*")

    def _add_result(self, body: Any) -> None:
        result = part_from_json(body["result"])
        if not isinstance(result, ToolResult):
            return
        call = self._open_calls.pop(result.call_id, None)
        name = call.name if call is not None else "A tool"
        summary = collapse_whitespace(str(body.get("summary", "")))
        failed = " (failed)" if result.is_error else ""
        texts = [_fence(part.text) if isinstance(part, Text) else _render_image(part) for part in result.content]
        inner = "\n\n".join((*([_render_arguments(call)] if call is not None else []), *texts))
        self.pieces.append(_render_details(f"{name}{failed}: {summary}" if summary else f"{name}{failed}", inner))

    def close_calls(self) -> None:
        """Calls whose outcome is unknown."""
        for call in self._open_calls.values():
            self.pieces.append(_render_details(f"{call.name} (no result)", _render_arguments(call)))
        self._open_calls = {}


def _render_arguments(call: ToolCall) -> str:
    return _fence(json.dumps(call.arguments, ensure_ascii=False, indent=2), "json")


def _render_user_part(part: Part) -> list[str]:
    """Quotes the user's text; attachments are collapsed."""
    if isinstance(part, Image):
        return [_render_image(part)]
    if not isinstance(part, Text):
        return []
    blocks: list[str] = []
    for kind, name, text in split_user_text(part.text):
        if kind in ("user", "summary") and text.strip():
            blocks.append("\n".join(f"> {line}".rstrip() for line in text.strip("\n").split("\n")))
        elif kind in _ATTACHMENT_TITLES:
            blocks.append(_render_details(_ATTACHMENT_TITLES[kind], _fence(text)))
        elif text.strip():
            blocks.append(_render_details(f"@{name}" if kind == "mentioned" else f"Skill {name}", _fence(text)))
    return blocks


def _render_skill(name: str, part: Part) -> str:
    text = part.text if isinstance(part, Text) else ""
    return _render_details(f"Skill {name}, for this message", _fence(text))


def _render_image(part: Image) -> str:
    return f"*[image, {_escape_inline(part.media_type)}, {len(part.data) * 3 // 4:,} bytes]*"


def _render_details(title: str, inner: str) -> str:
    return f"<details>\n<summary>{html.escape(collapse_whitespace(title))}</summary>\n\n{inner}\n\n</details>"


def _fence(text: str, language: str = "") -> str:
    """Uses more backticks than any line of the text, so that nothing in it closes the fence."""
    longest = max((len(ticks_found) for ticks_found in _TICKS.findall(text)), default=2)
    ticks = "`" * (longest + 1)
    return f"{ticks}{language}\n{text.strip(chr(10))}\n{ticks}"


def _escape_markdown(text: str) -> str:
    """Escapes a model's text so that it hides nothing: an unclosed comment or code block would swallow what follows."""
    lines = text.split("\n")
    code, closing = _find_code_lines(text, lines) if len(text) <= _MAX_PARSED_CHARS else (set[int](), "")
    escaped = [line if index in code else _CODE_OR_TAG.sub(_escape_tag, line) for index, line in enumerate(lines)]
    return "\n".join([*escaped, closing] if closing else escaped)


def _escape_tag(match: re.Match[str]) -> str:
    return match[0] if match[1] else "&lt;"


def _find_code_lines(text: str, lines: list[str]) -> tuple[set[int], str]:
    """The lines inside code blocks, and what closes the last block if it is open."""
    from markdown_it import MarkdownIt

    # Only block structure is needed.
    tokens = MarkdownIt("commonmark", {"html": False}).disable(["inline", "html_block"]).parse(text)
    code: set[int] = set()
    closing = ""
    for token in tokens:
        if token.type in ("fence", "code_block") and token.map is not None:
            first, end = token.map
            code.update(range(first, end))
            last = lines[end - 1].strip() if token.type == "fence" and not token.level else ""
            is_closed = end - first > 1 and last.startswith(token.markup) and not last.strip(token.markup[0])
            closing = token.markup if token.type == "fence" and not token.level and not is_closed else ""
    return code, closing


def _escape_inline(text: str) -> str:
    """One line without markup."""
    return re.sub(r"([\\`*_<\[\]#|])", r"\\\1", collapse_whitespace(text))


def default_file_name(session_id: str, ending: str = "md") -> str:
    return f"kitbag-{time.strftime('%Y-%m-%d')}-{session_id}.{ending}"
