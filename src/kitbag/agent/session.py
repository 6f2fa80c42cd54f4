"""A conversation that is kept: every step is in the journal before anybody hears of it, and the messages a model is
sent are a view of those records. Resuming and forking are the same view, made anew.

Used by the loop and by whoever shows a session. Uses store/journal for what is durable, transcript for what is sent.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kitbag.agent.transcript import well_formed
from kitbag.errors import KitbagError, NotFoundError
from kitbag.ledger import Ledger
from kitbag.messages import (
    Message,
    Part,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    message_from_json,
    message_to_json,
    part_from_json,
    part_to_json,
)
from kitbag.packing.session_skills import By
from kitbag.store.journal import Journal, Record
from kitbag.store.private_files import StoreError

PREFIX = "session/"
"""Streams of sessions begin so."""


class Header(NamedTuple):
    """What a session began with, and what it is resumed with."""

    directory: str
    model: str
    mode: str
    agent: str = ""
    team: str = ""
    persona: str = ""
    forked_from: str = ""
    forked_at: int = 0
    """The last record of the other session that counts here too."""
    started: str = ""


class SkillUse(NamedTuple):
    """A skill that was delivered to this conversation; the fields of session_skills.Loaded, and where it stands."""

    name: str
    tokens: int
    at: str
    by: By
    digest: str
    arguments: str
    text: str
    call_id: str = ""
    """The call whose result holds it."""


class Totals(NamedTuple):
    turns: int = 0
    usage: Usage = Usage()
    cost: float = 0.0
    unpriced: bool = False
    """Some of it has no known price, so `cost` is less than the truth."""


class _Line(NamedTuple):
    """A message of the view, and which skills stand in it for one turn: (part, name)."""

    message: Message
    seq: int
    one_turn: tuple[tuple[int, str], ...] = ()


class Session:
    def __init__(self, journal: Journal, session_id: str) -> None:
        self.id = session_id
        self.journal = journal
        self.header = Header("", "", "default")
        self.prompt: tuple[dict[str, Any], ...] = ()
        """The entries of the system prompt's ledger, with their texts, as last sent."""
        self.skills: dict[str, SkillUse] = {}
        self.totals = Totals()
        self.last_usage = Usage()
        self.warnings: list[str] = []
        self._lines: list[_Line] = []
        self.began: set[str] = set()
        """Calls with an intent: without a result, their outcome is not known."""
        self._open: dict[str, ToolCall] = {}
        """Calls of the last reply that have no result yet."""
        self._unloaded: dict[str, str] = {}
        """Call -> the skill that was unloaded, whose text it still holds."""
        self._one_turn = False
        """A skill is shown that goes with the next thing a person says."""
        self._view: list[Message] | None = None

    @property
    def stream(self) -> str:
        return PREFIX + self.id

    # What is written

    async def start(self, header: Header) -> None:
        self.header = header._replace(started=header.started or _now())
        await self._write("session", self.header._asdict())

    async def set_prompt(self, ledger: Ledger) -> None:
        """Written only when it changed: all that is before the conversation stays byte for byte the same."""
        entries = tuple({**entry.to_json(), "text": entry.text} for entry in ledger.entries)
        if entries != self.prompt:
            self.prompt = entries
            await self._write("prompt", {"entries": list(entries)})

    async def add_user(self, parts: Iterable[Part], one_turn: Iterable[tuple[int, str]] = ()) -> None:
        message = Message("user", tuple(parts))
        shown = tuple(one_turn)
        body = {"message": message_to_json(message), "one_turn": [list(pair) for pair in shown]}
        seq = await self._write("user", body)
        self._add(_Line(message, seq, shown))

    async def add_reply(
        self, message: Message, usage: Usage, cost: float | None, model: str, *, incomplete: str = ""
    ) -> None:
        body = {
            "message": message_to_json(message),
            "usage": list(usage),
            "cost": cost,
            "model": model,
            "incomplete": incomplete,
        }
        seq = await self._write("reply", body)
        self._apply_reply(message, seq, usage, cost)

    async def begin(self, call: ToolCall) -> None:
        """Before an effect."""
        await self._write("intent", {"call": call.id, "tool": call.name, "arguments": call.arguments})
        self.began.add(call.id)

    async def finish(self, result: ToolResult, summary: str = "", cut: str = "") -> None:
        body = {"result": part_to_json(result), "summary": summary, "cut": cut}
        seq = await self._write("result", body)
        self._apply_result(result, seq)

    async def add_skill(self, use: SkillUse) -> None:
        await self._write("skill", use._asdict())
        self.skills[use.name] = use
        self._unloaded.pop(use.call_id, None)

    async def drop_skill(self, name: str, reason: str) -> None:
        await self._write("skill-dropped", {"name": name, "reason": reason})
        self._apply_drop(name)

    async def compacted(self, summary: str, keep_from: int, before: int, after: int) -> None:
        body = {"summary": summary, "keep_from": keep_from, "before": before, "after": after}
        await self._write("compacted", body)
        self._apply_compaction(summary, keep_from)

    async def end(self, status: str, error: str = "") -> None:
        await self._write("ended", {"status": status, "error": error, "turns": self.totals.turns})

    async def _write(self, kind: str, body: Mapping[str, Any]) -> int:
        return await self.journal.write(self.stream, kind, dict(body))

    # What is sent

    def messages(self) -> tuple[Message, ...]:
        """The conversation as the next request carries it."""
        if self._view is None:
            mended = well_formed(self._shown(), frozenset(self.began))
            self.warnings += mended.problems
            self._view = list(mended.messages)
        return tuple(self._view)

    def lines(self) -> list[tuple[int, Message]]:
        """With the number of the record each came from; for compaction."""
        return [(line.seq, line.message) for line in self._lines]

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        return tuple(self._open.values())

    def _shown(self) -> Iterator[Message]:
        last_user = max((at for at, line in enumerate(self._lines) if _is_said(line.message)), default=-1)
        for at, line in enumerate(self._lines):
            parts = list(line.message.parts)
            for index, name in line.one_turn:
                if at < last_user and index < len(parts):
                    parts[index] = Text(f"[The skill {name} was shown here for one turn.]")
            for index, part in enumerate(parts):
                if isinstance(part, ToolResult) and part.call_id in self._unloaded:
                    stub = Text(f"[The skill {self._unloaded[part.call_id]} was here and has been unloaded.]")
                    parts[index] = part._replace(content=(stub,))
            yield Message(line.message.role, tuple(parts))

    def _add(self, line: _Line) -> None:
        """Appended to the view where that is all there is to do, so that a turn costs the same in a long session."""
        expires = self._one_turn and _is_said(line.message)
        simple = self._view is not None and not self._open and not expires
        self._lines.append(line)
        self._one_turn = bool(line.one_turn) or (self._one_turn and not expires)
        if not simple or self._view is None:
            self._view = None
        elif self._view and self._view[-1].role == line.message.role:
            self._view[-1] = Message(line.message.role, (*self._view[-1].parts, *line.message.parts))
        else:
            self._view.append(line.message)

    # What is read

    def apply(self, record: Record) -> None:
        """A record that was written before. Raises for one that can't be what was written."""
        body = record.body
        match record.kind:
            case "session":
                known = {name: body[name] for name in Header._fields if name in body}
                self.header = Header(**known)
            case "prompt":
                self.prompt = tuple(body["entries"])
            case "user":
                shown = tuple((int(index), str(name)) for index, name in body.get("one_turn", ()))
                self._add(_Line(message_from_json(body["message"]), record.seq, shown))
            case "reply":
                usage = Usage(*body.get("usage", ()))
                self._apply_reply(message_from_json(body["message"]), record.seq, usage, body.get("cost"))
            case "intent":
                self.began.add(body["call"])
            case "result":
                result = part_from_json(body["result"])
                if isinstance(result, ToolResult):
                    self._apply_result(result, record.seq)
            case "skill":
                use = SkillUse(**{name: body[name] for name in SkillUse._fields})
                self.skills[use.name] = use
            case "skill-dropped":
                self._apply_drop(body["name"])
            case "compacted":
                self._apply_compaction(body["summary"], int(body["keep_from"]))
            case _:
                pass  # of a kind that says nothing about the conversation

    def _apply_reply(self, message: Message, seq: int, usage: Usage, cost: float | None) -> None:
        self._open = {}
        self._add(_Line(message, seq))
        self._open = {call.id: call for call in message.calls}
        self.last_usage = usage
        self.totals = Totals(
            self.totals.turns + 1,
            self.totals.usage + usage,
            self.totals.cost + (cost or 0.0),
            self.totals.unpriced or cost is None,
        )

    def _apply_result(self, result: ToolResult, seq: int) -> None:
        self._open.pop(result.call_id, None)
        self._lines.append(_Line(Message("user", (result,)), seq))
        if not self._open:
            self._view = self._with_results()

    def _with_results(self) -> list[Message] | None:
        """The view, after the last open call was answered: the results of one reply are one message."""
        if self._view is None or not self._view or self._view[-1].role != "assistant":
            return None
        calls = self._view[-1].calls
        order = {call.id: at for at, call in enumerate(calls)}
        results: dict[str, ToolResult] = {}
        for line in reversed(self._lines):
            if line.message.role == "assistant":
                break
            results.update({result.call_id: result for result in line.message.results})
        if set(results) != set(order):
            return None
        ordered = sorted(results.values(), key=lambda result: order[result.call_id])
        self._view.append(Message("user", tuple(ordered)))
        return self._view

    def _apply_drop(self, name: str) -> None:
        use = self.skills.pop(name, None)
        if use is not None and use.call_id:
            self._unloaded[use.call_id] = name
        self._view = None

    def _apply_compaction(self, summary: str, keep_from: int) -> None:
        head = _Line(Message("user", (Text(summary),)), 0)
        self._lines = [head, *(line for line in self._lines if line.seq >= keep_from)]
        self._view = None


def _is_said(message: Message) -> bool:
    """A person's message, not a tool's result."""
    return message.role == "user" and not message.results


def resume(journal: Journal, session_id: str) -> Session:
    """From the records, as far as they can be read. Raises NotFoundError, and StoreError where not one can be."""
    session = Session(journal, session_id)
    found = 0
    try:
        for record in _records(journal, session.stream):
            session.apply(record)
            found += 1
    except (KitbagError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        if not found and isinstance(error, StoreError):
            raise
        what = f"record {found + 1} of session {session_id} is damaged; what follows it is left out, and kept"
        session.warnings.append(what)
        found += 1
    if not found:
        raise NotFoundError(f"there is no session {session_id!r}", "`kitbag sessions` lists them")
    session.messages()
    return session


def _records(journal: Journal, stream: str, until: int = 0) -> Iterator[Record]:
    """Of a fork, first those of the session that it was forked from."""
    for record in journal.read(stream):
        if until and record.seq > until:
            return
        origin = record.body.get("forked_from") if record.kind == "session" else ""
        if origin:
            yield from _records(journal, PREFIX + origin, int(record.body["forked_at"]))
        yield record


async def fork(journal: Journal, session: Session, header: Header) -> Session:
    """A session that goes on from here; the other one stays as it is."""
    copy = Session(journal, new_id())
    last = journal.last(session.stream)
    await copy.start(header._replace(forked_from=session.id, forked_at=last.seq if last else 0))
    return resume(journal, copy.id)


def new_id() -> str:
    return os.urandom(6).hex()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
