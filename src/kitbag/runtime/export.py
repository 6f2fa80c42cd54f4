"""A conversation as a document: Markdown for people, JSON for programs.

Used by `/export`. Made from the records, so it has also what was compacted since; secrets are taken out once more by
what the journal's redactor knows now. Blocks: a caller with a loop uses a thread.
"""

import html
import json
import re
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kitbag.agent.context_ledger import split_said
from kitbag.agent.resume import records_of
from kitbag.agent.session import Session
from kitbag.agent.session_records import Header, Totals
from kitbag.errors import KitbagError
from kitbag.messages import Image, Part, Text, Thinking, ToolCall, ToolResult, message_from_json, part_from_json
from kitbag.store.journal import Journal, Record
from kitbag.text.hidden_characters import one_line, reveal_hidden
from kitbag.text.human_format import count, money

FORMAT: Final = "kitbag-conversation"
_KINDS: Final = ("user", "note", "reply", "result", "skill", "skill-dropped", "switched", "compacted", "ended")
_TICKS = re.compile(r"`{3,}")
_CODE_OR_TAG = re.compile(r"(`+)[^`\n]+\1(?!`)|<(?=[A-Za-z/!?])(?!https?://[^\s<>]*>)")
"""Code inside of a line; and where something begins that a viewer would take for HTML."""
_LARGEST: Final = 500_000
"""Characters of a reply in which code blocks are looked for."""
_BESIDE: Final = {"changes": "What had changed in the library", "suggestions": "Skills that were suggested"}


class About(NamedTuple):
    """What a document says at its head."""

    session: str
    header: Header
    totals: Totals
    others: float
    """What agents cost that this one started."""


def about(session: Session, others: float = 0.0) -> About:
    """Taken where the session lives; the rest may be done in another thread."""
    return About(session.id, session.header, session.totals, others)


def as_json(journal: Journal, told: About) -> str:
    """The records that make up the conversation, in their order, each with its time."""
    totals = told.totals
    entries = [
        {"kind": record.kind, "at": record.at, **record.body}
        for record in records_of(journal, told.session)
        if record.kind in _KINDS
    ]
    document = {
        "format": FORMAT,
        "version": 1,
        "session": told.session,
        **{name: getattr(told.header, name) for name in ("directory", "model", "mode", "agent", "team", "persona")},
        "started": told.header.started,
        "totals": {
            "turns": totals.turns,
            "usage": totals.usage._asdict(),
            "cost": None if totals.unpriced else totals.cost,
            "cost_of_other_agents": told.others,
        },
        "entries": entries,
    }
    # Only ASCII: what is hidden in a text is seen as what it is.
    return json.dumps(journal.redactor.value(document), indent=2) + "\n"


def as_markdown(journal: Journal, told: About) -> str:
    writer = _Writer()
    for record in records_of(journal, told.session):
        try:
            writer.take(record)
        except (KitbagError, KeyError, TypeError, ValueError, IndexError, AttributeError):
            writer.pieces.append("*A record can't be read; what it says is left out.*")
    writer.close_calls()
    text = "\n\n".join((*_head(told), *writer.pieces, *_foot(told))) + "\n"
    return journal.redactor.text(reveal_hidden(text))


def _head(told: About) -> Iterator[str]:
    header = told.header
    yield f"# Conversation {told.session}"
    who = header.persona or header.team
    facts = (
        ("Started", header.started.replace("T", " ").removesuffix("Z")),
        ("Model", header.model),
        ("Mode", header.mode),
        ("Agent", header.agent),
        ("Persona", who),
        ("Directory", header.directory),
    )
    yield "\n".join(f"- {label}: {_inline(value)}" for label, value in facts if value)


def _foot(told: About) -> Iterator[str]:
    totals, usage = told.totals, told.totals.usage
    sent = usage.shown_to_model
    cost = f"at least {money(totals.cost)}" if totals.unpriced else money(totals.cost)
    others = f", and {money(told.others)} by other agents" if told.others else ""
    yield "---"
    yield f"{count(totals.turns, 'turn')} · {sent:,} tokens sent, {usage.output:,} said · {cost}{others}"


class _Writer:
    """One record after the other."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._calls: dict[str, ToolCall] = {}
        """Without a result so far."""

    def take(self, record: Record) -> None:
        body = record.body
        match record.kind:
            case "user":
                self.close_calls()
                shown = {int(index): str(name) for index, name in body.get("one_turn", ())}
                self.pieces.append(f"## You, {record.at[:16].replace('T', ' ')}")
                for at, part in enumerate(message_from_json(body["message"]).parts):
                    self.pieces += [_skill(shown[at], part)] if at in shown else _said(part)
            case "note":
                self.pieces.append(_folded("Background work", _fenced(message_from_json(body["message"]).text)))
            case "reply":
                self.close_calls()
                self._reply(body)
            case "result":
                self._result(body)
            case "skill":
                by = {"model": "the model", "user": "you"}.get(str(body.get("by")), str(body.get("by")))
                told = f"{_inline(str(body['name']))}, {int(body['tokens']):,} tokens, by {by}"
                self.pieces.append(f"*Skill loaded: {told}*")
            case "skill-dropped":
                self.pieces.append(f"*Skill unloaded: {_inline(str(body['name']))}: {_inline(str(body['reason']))}*")
            case "switched":
                told = [
                    f"{one['what']} {one['before'] or 'none'} → {one['after'] or 'none'}" for one in body["changes"]
                ]
                self.pieces.append(f"*Changed: {_inline(', '.join(told))}*")
            case "compacted":
                sizes = f"from {int(body['before']):,} to {int(body['after']):,} tokens"
                self.pieces.append(
                    _folded(f"Here the conversation was made shorter, {sizes}", _fenced(str(body["summary"])))
                )
            case "ended" if body.get("status") != "completed":
                self.close_calls()
                error = f": {_inline(str(body['error']))}" if body.get("error") else ""
                self.pieces.append(f"*It ended: {_inline(str(body['status']))}{error}*")
            case _:
                pass

    def _reply(self, body: Any) -> None:
        self.pieces.append(f"## {_inline(str(body.get('model') or 'The model'))}")
        for part in message_from_json(body["message"]).parts:
            match part:
                case Text():
                    self.pieces.append(_markdown(part.text.strip("\n")))
                case Thinking():
                    self.pieces.append(_folded("Thought", _fenced(part.text)))
                case ToolCall():
                    self._calls[part.id] = part
                case _:
                    self.pieces += _said(part)
        if body.get("incomplete"):
            self.pieces.append(f"*The reply was cut off: {_inline(str(body['incomplete']))}*")

    def _result(self, body: Any) -> None:
        result = part_from_json(body["result"])
        if not isinstance(result, ToolResult):
            return
        call = self._calls.pop(result.call_id, None)
        name = call.name if call is not None else "A tool"
        summary = one_line(str(body.get("summary", "")))
        failed = " (failed)" if result.is_error else ""
        texts = [_fenced(part.text) if isinstance(part, Text) else _image(part) for part in result.content]
        inner = "\n\n".join((*([_arguments(call)] if call is not None else []), *texts))
        self.pieces.append(_folded(f"{name}{failed}: {summary}" if summary else f"{name}{failed}", inner))

    def close_calls(self) -> None:
        """Those of which no outcome is known."""
        for call in self._calls.values():
            self.pieces.append(_folded(f"{call.name} (no result)", _arguments(call)))
        self._calls = {}


def _arguments(call: ToolCall) -> str:
    return _fenced(json.dumps(call.arguments, ensure_ascii=False, indent=2), "json")


def _said(part: Part) -> list[str]:
    """The person's words as they are, quoted, and what was put beside them folded."""
    if isinstance(part, Image):
        return [_image(part)]
    if not isinstance(part, Text):
        return []
    found: list[str] = []
    for kind, name, text in split_said(part.text):
        if kind in ("user", "summary") and text.strip():
            found.append("\n".join(f"> {line}".rstrip() for line in text.strip("\n").split("\n")))
        elif kind in _BESIDE:
            found.append(_folded(_BESIDE[kind], _fenced(text)))
        elif text.strip():
            found.append(_folded(f"@{name}" if kind == "mentioned" else f"Skill {name}", _fenced(text)))
    return found


def _skill(name: str, part: Part) -> str:
    text = part.text if isinstance(part, Text) else ""
    return _folded(f"Skill {name}, for this message", _fenced(text))


def _image(part: Image) -> str:
    return f"*[an image, {_inline(part.media_type)}, {len(part.data) * 3 // 4:,} bytes]*"


def _folded(title: str, inner: str) -> str:
    return f"<details>\n<summary>{html.escape(one_line(title))}</summary>\n\n{inner}\n\n</details>"


def _fenced(text: str, language: str = "") -> str:
    """With more ticks than any line of it has, so that nothing in it ends it."""
    longest = max((len(found) for found in _TICKS.findall(text)), default=2)
    ticks = "`" * (longest + 1)
    return f"{ticks}{language}\n{text.strip(chr(10))}\n{ticks}"


def _markdown(text: str) -> str:
    """What a model wrote, so that it hides nothing, neither in it nor behind it: an open comment or an open code block
    would take in all that follows."""
    lines = text.split("\n")
    code, closing = _code_lines(text, lines) if len(text) <= _LARGEST else (set[int](), "")
    shown = [line if at in code else _CODE_OR_TAG.sub(_seen, line) for at, line in enumerate(lines)]
    return "\n".join([*shown, closing] if closing else shown)


def _seen(found: re.Match[str]) -> str:
    return found[0] if found[1] else "&lt;"


def _code_lines(text: str, lines: list[str]) -> tuple[set[int], str]:
    """Where code blocks are, and what closes the last one where nothing does."""
    from markdown_it import MarkdownIt

    # Without what stands in the lines: only blocks are looked for.
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


def _inline(text: str) -> str:
    """One line of words that is no markup."""
    return re.sub(r"([\\`*_<\[\]#|])", r"\\\1", one_line(text))


def usual_name(session_id: str, ending: str = "md") -> str:
    return f"kitbag-{time.strftime('%Y-%m-%d')}-{session_id}.{ending}"
