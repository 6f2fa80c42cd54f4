"""The model calls of a session with the exact text of each request, reconstructed from the journal.

Used by runtime/context_calls and what shows them. Messages, prompt and tools come from the records before a reply;
sent_requests recorded the tool list and the size, so that a request that can't be reproduced exactly is noticed.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from kitbag.agent.compact import summary_request
from kitbag.agent.context_ledger import count_request_bytes
from kitbag.agent.resume import DAMAGE_ERRORS, SessionReplay
from kitbag.agent.sent_requests import SENT_FIELDS, SentRequest, read_tools
from kitbag.agent.session import REWOUND, STREAM_PREFIX, Session
from kitbag.agent.session_records import COMPACTION_FIELDS, SessionHeader, SkillUse
from kitbag.errors import NotFoundError
from kitbag.ledger import full_entry
from kitbag.messages import Message, Usage, usage_from_record
from kitbag.models.provider import ToolSpec
from kitbag.store.journal import Journal, JournalRecord
from kitbag.text.tokens import estimate_tokens

CallKind = Literal["turn", "compaction"]


class DroppedSkill(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    tokens: int


class CallNotes(msgspec.Struct, frozen=True, kw_only=True):
    """What happened before a call and explains what it lacks."""

    dropped: Mapping[str, DroppedSkill]
    """Skills that were unloaded, by name."""
    truncated: Mapping[str, str]
    """Call id -> what a limit cut off its result."""
    one_message: Mapping[str, int]
    """Skills that were shown for one message -> tokens."""
    compacted: tuple[int, int, int]
    """Of the last compaction: messages that the summary replaces, tokens before and after."""
    is_rewound: bool
    """The session was rewound since the previous call."""


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request and the reply to it. Only calls with a reply are recorded: not attempts that failed."""

    number: int
    """From 1; 0: of the session that this one was forked from."""
    seq: int
    at: str
    kind: CallKind
    model: str
    """As the provider reports it."""
    header: SessionHeader
    usage: Usage
    cost: float | None
    incomplete: str
    """Why the reply is not complete; empty if it is."""
    prompt: tuple[dict[str, Any], ...]
    """The ledger entries of the system prompt, with their texts."""
    tools: tuple[ToolSpec, ...] | None
    """None: not recorded."""
    tool_names: tuple[str, ...]
    """Recorded with the prompt, without those of servers; for journals of earlier versions."""
    sent: tuple[Message, ...]
    skills: Mapping[str, SkillUse]
    turn: int
    """The number of the reply, compactions not counted."""
    first_turn: int
    """The number of the first reply in the request."""
    recorded_bytes: int | None
    """The size of the text when it was sent; None: not recorded."""
    notes: CallNotes

    def messages(self) -> tuple[Message, ...]:
        return self.sent

    @property
    def provider(self) -> str:
        return str(self.header.model).partition("/")[0]

    @property
    def difference(self) -> int | None:
        """Bytes that the request had more than its reconstruction: 0 if that is exact, None if unknown. Redacted
        secrets make a difference."""
        if self.recorded_bytes is None or self.tools is None:
            return None
        system = (str(entry["text"]) for entry in self.prompt)
        return self.recorded_bytes - count_request_bytes(system, self.tools, self.sent)


class CallHistory(msgspec.Struct, frozen=True, kw_only=True):
    session: Session
    """As it is now."""
    calls: tuple[ModelCall, ...]
    origin: ModelCall | None
    """The last call of the session that this one was forked from."""
    notes: CallNotes
    """What happened since the last call."""

    def next_request(self) -> ModelCall:
        """What would be sent now, without a new message; its number is that of the next call."""
        session, last = self.session, next((one for one in reversed(self.calls) if one.kind == "turn"), self.origin)
        messages = session.messages()
        replies = len(messages) // 2  # roles alternate, and the user begins
        return ModelCall(
            number=len(self.calls) + 1,
            seq=0,
            at="",
            kind="turn",
            model=session.header.model.rpartition("/")[2],
            header=session.header,
            usage=Usage(),
            cost=None,
            incomplete="",
            prompt=session.prompt,
            tools=last.tools if last is not None and last.prompt == session.prompt else None,
            tool_names=tuple(map(str, session.prompt_inputs.get("tools", ()))),
            sent=messages,
            skills=dict(session.skills),
            turn=session.totals.turns + 1,
            first_turn=max(session.totals.turns - replies, 0) + 1,
            recorded_bytes=None,
            notes=self.notes,
        )

    def find(self, number: int) -> ModelCall:
        """Negative numbers count from the end. Raises NotFoundError."""
        index = number - 1 if number > 0 else len(self.calls) + number
        if not self.calls or not 0 <= index < len(self.calls) or not number:
            count = len(self.calls)
            fix = f"use a number from 1 to {count}" if count else "send a message first"
            raise NotFoundError(f"no model call {number} in session {self.session.id}", fix)
        return self.calls[index]

    def before(self, call: ModelCall) -> ModelCall | None:
        """The previous turn, whose request the provider may have cached."""
        earlier = [one for one in self.calls[: max(call.number - 1, 0)] if one.kind == "turn"]
        return earlier[-1] if earlier else self.origin


class _NoteTaker:
    def __init__(self) -> None:
        self._dropped: dict[str, DroppedSkill] = {}
        self._truncated: dict[str, str] = {}
        self._one_message: dict[str, int] = {}
        self._compacted = (0, 0, 0)
        self._is_rewound = False

    def add(self, record: JournalRecord, session: Session) -> None:
        """`session`: before the record."""
        body = record.body
        match record.kind:
            case "skill":
                self._dropped.pop(str(body.get("name")), None)
            case "skill-dropped":
                name = str(body["name"])
                tokens = session.skills[name].tokens if name in session.skills else 0
                self._dropped[name] = DroppedSkill(reason=str(body.get("reason", "")), tokens=tokens)
            case "result" if body.get("cut"):
                self._truncated[str(body["result"]["call_id"])] = str(body["cut"])
            case "user":
                for index, name in body.get("one_turn", ()):
                    text = str(body["message"]["parts"][int(index)].get("text", ""))
                    self._one_message[str(name)] = estimate_tokens(text)
            case "compacted":
                count = sum(1 for _ in _compacted_messages(record, session))
                self._compacted = (count, int(body.get("before", 0)), int(body.get("after", 0)))
            case _ if record.kind == REWOUND:
                self._is_rewound = True
            case _:
                pass

    def take(self) -> CallNotes:
        notes = CallNotes(
            dropped=dict(self._dropped),
            truncated=dict(self._truncated),
            one_message=dict(self._one_message),
            compacted=self._compacted,
            is_rewound=self._is_rewound,
        )
        self._is_rewound = False
        return notes


def read_calls(journal: Journal, session_id: str) -> CallHistory:
    """In order, with those that a rewind dropped. Raises NotFoundError, and StoreError if nothing is readable."""
    calls: list[ModelCall] = []
    origin: ModelCall | None = None
    past, notes, turns, record = SessionReplay(journal, session_id), _NoteTaker(), 0, None
    tool_lists: dict[str, tuple[ToolSpec, ...] | None] = {}
    for record in past.records():
        is_own = record.stream == STREAM_PREFIX + session_id
        with contextlib.suppress(*DAMAGE_ERRORS):  # the replay ends here and says so
            if record.kind in ("reply", "compacted"):
                turns += record.kind == "reply" and not record.body.get("incomplete")
                number = len(calls) + 1 if is_own else 0
                call = _read_call(record, past.session, number, turns, notes.take(), tool_lists)
                if is_own:
                    calls.append(call)
                elif call.kind == "turn":
                    origin = call
            notes.add(record, past.session)
    if past.is_damaged and record is not None and calls and calls[-1].seq == record.seq:
        calls.pop()
    if record is None:
        raise NotFoundError(f"no session named {session_id!r}", "list sessions with `kitbag sessions list --all`")
    return CallHistory(session=past.session, calls=tuple(calls), origin=origin, notes=notes.take())


def _read_call(
    record: JournalRecord,
    session: Session,
    number: int,
    turn: int,
    notes: CallNotes,
    tool_lists: dict[str, tuple[ToolSpec, ...] | None],
) -> ModelCall:
    body = record.body
    common: dict[str, Any] = {
        "number": number,
        "seq": record.seq,
        "at": record.at,
        "header": session.header,
        "usage": usage_from_record(body.get("usage", ())),
        "cost": body.get("cost"),
        "turn": turn,
        "notes": notes,
    }
    if record.kind == "compacted":
        return ModelCall(**common, **_compaction_fields(record, session))
    sent = SENT_FIELDS.read(body["sent"]) if isinstance(body.get("sent"), dict) and body["sent"] else None
    messages = session.messages()
    replies = len(messages) // 2  # roles alternate, and the user begins
    turns_before = turn - (not body.get("incomplete"))
    return ModelCall(
        **common,
        kind="turn",
        model=str(body.get("model", "")),
        incomplete=str(body.get("incomplete", "")),
        prompt=session.prompt,
        tools=_find_tools(session.journal, sent, tool_lists),
        tool_names=tuple(map(str, session.prompt_inputs.get("tools", ()))),
        sent=messages,
        skills=dict(session.skills),
        first_turn=max(turns_before - replies, 0) + 1,
        recorded_bytes=sent.bytes if sent is not None else None,
    )


def _find_tools(
    journal: Journal, sent: SentRequest | None, known: dict[str, tuple[ToolSpec, ...] | None]
) -> tuple[ToolSpec, ...] | None:
    if sent is None:
        return None
    if sent.tools not in known:
        known[sent.tools] = read_tools(journal, sent.tools)
    return known[sent.tools]


def _compaction_fields(record: JournalRecord, session: Session) -> dict[str, Any]:
    """The request for a summary, made again from the messages that it replaces."""
    fields = COMPACTION_FIELDS.known_fields(record.body)
    limit = int(fields.get("max_transcript", 0))
    old = [message for _, message in _compacted_messages(record, session)]
    system, messages = summary_request(old, limit, str(fields.get("instructions", ""))) if limit else ((), ())
    entries = [full_entry("base", "compact.md", block.text, estimate_tokens, "built-in") for block in system]
    return {
        "kind": "compaction",
        "model": session.header.model.rpartition("/")[2],
        "incomplete": "",
        "prompt": tuple({**entry.to_json(), "text": entry.text} for entry in entries),
        "tools": () if limit else None,
        "tool_names": (),
        "sent": messages,
        "skills": {},
        "first_turn": 1,
        "recorded_bytes": None,
    }


def _compacted_messages(record: JournalRecord, session: Session) -> Iterator[tuple[int, Message]]:
    keep_from, keep_also = int(record.body["keep_from"]), int(record.body.get("keep_also") or -1)
    for seq, message in session.recorded_messages():
        if seq < keep_from and seq != keep_also:
            yield seq, message
