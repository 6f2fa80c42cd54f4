"""A conversation that is kept: every step is in the journal before anybody hears of it, and the messages a model is
sent are a view of those records. Resuming and forking are the same view, made anew.

Used by the loop and by whoever shows a session. Uses store/journal for what is durable, transcript for what is sent.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kitbag.agent.recorded_message import Line
from kitbag.agent.session_records import (
    CHANGEABLE,
    COMPACTION,
    HEADER,
    SKILL_USE,
    SWITCH,
    Compaction,
    Header,
    SkillUse,
    Switch,
    Totals,
)
from kitbag.agent.shield import to_its_end
from kitbag.agent.transcript import well_formed, whole, whole_part
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
from kitbag.store.fault_points import point
from kitbag.store.journal import Entry, Journal, Record

PREFIX = "session/"
"""Streams of sessions begin so."""
NOTE = "<task-notification "
"""Messages that nobody said begin so."""
_LONGEST_ABOUT = 120


class Session:
    def __init__(self, journal: Journal, session_id: str) -> None:
        self.id = session_id
        self.journal = journal
        self.header = Header("", "", "default")
        self.prompt: tuple[dict[str, Any], ...] = ()
        """The entries of the system prompt's ledger, with their texts, as last sent."""
        self.made_for: dict[str, Any] = {}
        """What the prompt was made for: as long as that is the same, so is the prompt."""
        self.about = ""
        """The first words of the person."""
        self.status = ""
        """How it ended last; empty while it runs, and after a crash."""
        self.untold: list[Switch] = []
        """Changes that the model has not heard of."""
        self.skills: dict[str, SkillUse] = {}
        self.totals = Totals()
        self.warnings: list[str] = []
        self.directory = ""
        """Where the next call starts; empty: where the session did."""
        self._lines: list[Line] = []
        self.called: dict[str, ToolCall] = {}
        """Every call that was ever made, by its id."""
        self.began: set[str] = set()
        """Calls with an intent: without a result, their outcome is not known."""
        self._open: dict[str, ToolCall] = {}
        """Calls of the last reply that have no result yet."""
        self._delivered: dict[str, list[str]] = {}
        """Skill -> the calls whose results hold its text."""
        self._unloaded: dict[str, str] = {}
        """Call -> the skill that was unloaded, whose text it still holds."""
        self._detached: set[str] = set()
        """Skills that stood behind the summary and were unloaded."""
        self._one_turn = False
        """A skill is shown that goes with the next thing a person says."""
        self._view: list[Message] | None = None
        self._held: list[Entry] = []
        """What is written with the next record."""

    @property
    def stream(self) -> str:
        return PREFIX + self.id

    # What is written

    async def start(self, header: Header, *, later: bool = False) -> None:
        """`later`: with the next record, in one commit; until then there is no such session."""
        self.header = header._replace(started=header.started or _now())
        await self._write("session", HEADER.write(self.header), later=later)

    async def set_prompt(self, ledger: Ledger, made_for: Mapping[str, Any], *, later: bool = False) -> None:
        """Written only when it changed: all that is before the conversation stays byte for byte the same."""
        entries = _prompt_entries(ledger)
        if entries != self.prompt or made_for != self.made_for:
            self.prompt, self.made_for = entries, dict(made_for)
            await self._write("prompt", {"entries": list(entries), "made_for": self.made_for}, later=later)

    async def switch(
        self,
        made: Sequence[Switch],
        header: Header,
        dropped: Iterable[tuple[str, str]] = (),
        prompt: tuple[Ledger, Mapping[str, Any]] | None = None,
    ) -> None:
        """Another persona, model or mode from here on, with the prompt and without the skills (name, why) that go with
        it: in one commit, or not at all."""
        entries = [
            Entry(self.stream, "skill-dropped", {"name": name, "reason": whole(reason)}) for name, reason in dropped
        ]
        if prompt is not None:
            body = {"entries": list(_prompt_entries(prompt[0])), "made_for": dict(prompt[1])}
            entries.append(Entry(self.stream, "prompt", body))
        changes = [SWITCH.write(one._replace(told=whole(one.told))) for one in made]
        now = {name: getattr(header, name) for name in CHANGEABLE}
        entries.append(Entry(self.stream, "switched", {"changes": changes, "now": now, **self._listing(), **now}))

        async def both() -> None:
            for seq, entry in zip(await self._write_all(entries), entries, strict=True):
                self.apply(Record(seq, entry.stream, "", entry.kind, entry.body))

        await to_its_end(both())

    async def add_user(self, parts: Iterable[Part], one_turn: Iterable[tuple[int, str]] = ()) -> None:
        message = Message("user", tuple(whole_part(part) for part in parts))
        shown = tuple(one_turn)
        body = {"message": message_to_json(message), "one_turn": [list(pair) for pair in shown]}
        await self._write("user", body, lambda seq: self._apply_user(message, seq, shown))

    async def add_note(self, text: str) -> None:
        """Something that the model is told and nobody said. It begins with the mark that says so."""
        message = Message("user", (Text(whole(text)),))
        body = {"message": message_to_json(message)}
        await self._write("note", body, lambda seq: self._add(Line(message, seq)))

    async def add_reply(
        self, message: Message, usage: Usage, cost: float | None, model: str, *, incomplete: str = ""
    ) -> Message:
        """As it is kept: without half characters."""
        kept = Message(message.role, tuple(whole_part(part) for part in message.parts))
        body = {
            "message": message_to_json(kept),
            "usage": list(usage),
            "cost": cost,
            "model": whole(model),
            "incomplete": incomplete,
        }
        await self._write("reply", body, lambda seq: self._apply_reply(kept, seq, usage, cost, bool(incomplete)))
        return kept

    async def begin(self, call: ToolCall) -> None:
        """Before an effect."""
        body = {"call": call.id, "tool": call.name, "arguments": call.arguments}
        await self._write("intent", body, lambda _: self.began.add(call.id))
        point("intent-written")

    async def finish(self, result: ToolResult, summary: str = "", cut: str = "", details: str = "") -> None:
        kept = whole_part(result)
        body = {"result": part_to_json(kept), "summary": whole(summary), "cut": cut, "details": whole(details)}
        point("tool-done")
        await self._write("result", body, lambda seq: self._apply_result(kept, seq))
        point("result-written")

    async def move(self, directory: str) -> None:
        """A command has changed the directory in which the next call starts."""

        def apply(_: int) -> None:
            self.directory = directory

        await self._write("moved", {"directory": whole(directory)}, apply)

    async def add_skill(self, use: SkillUse) -> None:
        kept = use._replace(text=whole(use.text), arguments=whole(use.arguments))
        await self._write("skill", SKILL_USE.write(kept), lambda _: self._apply_skill(kept))

    async def drop_skill(self, name: str, reason: str) -> None:
        await self._write("skill-dropped", {"name": name, "reason": reason}, lambda _: self._apply_drop(name))

    async def compact(self, made: Compaction) -> None:
        body = {
            **COMPACTION.write(made),
            "attached": [list(pair) for pair in made.attached],
            "skills": [SKILL_USE.write(use) for use in made.skills],
            "usage": list(made.usage),
        }
        await self._write("compacted", body, lambda _: self._apply_compaction(made))

    async def end(self, status: str, error: str = "") -> None:
        """With what a listing needs, so that it need not read all."""

        def apply(_: int) -> None:
            self.status = status

        now = {name: getattr(self.header, name) for name in CHANGEABLE}
        await self._write("ended", {**self._listing(), **now, "status": status, "error": error}, apply)

    def _listing(self) -> dict[str, Any]:
        totals = self.totals
        cost = None if totals.unpriced else totals.cost
        return {"status": self.status, "turns": totals.turns, "cost": cost, "about": self.about}

    async def _write(
        self, kind: str, body: Mapping[str, Any], apply: Callable[[int], None] | None = None, *, later: bool = False
    ) -> None:
        """Written and applied, or neither, also when this is cancelled meanwhile."""
        if later:
            self._held.append(Entry(self.stream, kind, dict(body)))
            return

        async def both() -> None:
            if self._held:
                [seq] = await self._write_all([Entry(self.stream, kind, body)])
            else:
                seq = await self.journal.write(self.stream, kind, body)
            if apply is not None:
                apply(seq)

        await to_its_end(both())

    async def _write_all(self, entries: Sequence[Entry]) -> list[int]:
        """Behind what is held."""
        held, self._held = self._held, []
        try:
            return (await self.journal.write_all([*held, *entries]))[len(held) :]
        except BaseException:
            self._held = [*held, *self._held]
            raise

    # What is sent

    def messages(self) -> tuple[Message, ...]:
        """The conversation as the next request carries it."""
        if self._view is None:
            mended = well_formed(self._shown(), frozenset(self.began))
            self.warnings += [problem for problem in mended.problems if problem not in self.warnings]
            self._view = list(mended.messages)
        return tuple(self._view)

    def lines(self) -> list[tuple[int, Message]]:
        """With the number of the record each came from; for compaction."""
        return [(line.seq, line.message) for line in self._lines]

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        return tuple(self._open.values())

    def _shown(self) -> Iterator[Message]:
        last_user = max((at for at, line in enumerate(self._lines) if is_said(line.message)), default=-1)
        for at, line in enumerate(self._lines):
            yield line.shown(is_over=at < last_user, detached=self._detached, unloaded=self._unloaded)

    def _add(self, line: Line) -> None:
        """Appended to the view where that is all there is to do, so that a turn costs the same in a long session."""
        expires = self._one_turn and is_said(line.message)
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
                self.header = HEADER.read(body)
            case "prompt":
                self.prompt, self.made_for = tuple(body["entries"]), dict(body.get("made_for", {}))
            case "user":
                shown = tuple((int(index), str(name)) for index, name in body.get("one_turn", ()))
                self._apply_user(_read_message(body["message"]), record.seq, shown)
            case "reply":
                message, usage = _read_message(body["message"]), Usage(*body.get("usage", ()))
                self._apply_reply(message, record.seq, usage, body.get("cost"), bool(body.get("incomplete")))
            case "note":
                self._add(Line(_read_message(body["message"]), record.seq))
            case "intent":
                self.began.add(body["call"])
            case "result":
                result = whole_part(part_from_json(body["result"]))
                if isinstance(result, ToolResult):
                    self._apply_result(result, record.seq)
            case "moved":
                self.directory = str(body["directory"])
            case "switched":
                now = body["now"]
                self.header = self.header._replace(**{name: now[name] for name in CHANGEABLE if name in now})
                self.untold += [SWITCH.read(one) for one in body["changes"]]
            case "ended":
                self.status = str(body.get("status", ""))
            case "skill":
                self._apply_skill(_read_use(body))
            case "skill-dropped":
                self._apply_drop(body["name"])
            case "compacted":
                known = COMPACTION.known(body)
                known["attached"] = tuple((str(name), str(text)) for name, text in body.get("attached", ()))
                known["skills"] = tuple(_read_use(use) for use in body.get("skills", ()))
                known["usage"] = Usage(*body.get("usage", ()))
                self._apply_compaction(Compaction(**known))
            case _:
                pass  # of a kind that says nothing about the conversation

    def _apply_user(self, message: Message, seq: int, one_turn: tuple[tuple[int, str], ...]) -> None:
        texts = [part.text for part in message.parts if isinstance(part, Text)]
        self.about = self.about or " ".join((texts[-1] if texts else "").split())[:_LONGEST_ABOUT]
        self.status, self.untold = "", []
        self._add(Line(message, seq, one_turn))

    def _apply_reply(self, message: Message, seq: int, usage: Usage, cost: float | None, incomplete: bool) -> None:
        self._open = {}
        self._add(Line(message, seq))
        self._open = {call.id: call for call in message.calls}
        self.called |= self._open
        self._count(0 if incomplete else 1, usage, cost)

    def _count(self, turns: int, usage: Usage, cost: float | None) -> None:
        self.totals = Totals(
            self.totals.turns + turns,
            self.totals.usage + usage,
            self.totals.cost + (cost or 0.0),
            self.totals.unpriced or cost is None,
        )

    def _apply_result(self, result: ToolResult, seq: int) -> None:
        self._open.pop(result.call_id, None)
        self._lines.append(Line(Message("user", (result,)), seq))
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

    def _apply_skill(self, use: SkillUse) -> None:
        self.skills[use.name] = use
        if use.call_id:
            self._delivered.setdefault(use.name, []).append(use.call_id)

    def _apply_drop(self, name: str) -> None:
        self.skills.pop(name, None)
        self._unloaded.update(dict.fromkeys(self._delivered.pop(name, ()), name))
        self._detached.add(name)
        self._view = None

    def _apply_compaction(self, made: Compaction) -> None:
        texts = (made.summary, *(text for _, text in made.attached))
        standing = tuple((at, name) for at, (name, _) in enumerate(made.attached, 1))
        head = Line(Message("user", tuple(Text(text) for text in texts)), 0, attached=standing)
        kept = [line for line in self._lines if line.seq >= made.keep_from or line.seq == (made.keep_also or -1)]
        self._lines = [head, *kept]
        self.skills = {use.name: use for use in made.skills}
        self._detached = set()
        self._view = None
        self._count(0, made.usage, made.cost)


def _prompt_entries(ledger: Ledger) -> tuple[dict[str, Any], ...]:
    return tuple({**entry.to_json(), "text": whole(entry.text)} for entry in ledger.entries)


def _read_message(value: object) -> Message:
    """Raises for what is no message, down to the types of its texts."""
    read = message_from_json(value)
    return Message(read.role, tuple(whole_part(part) for part in read.parts))


def _read_use(body: Mapping[str, Any]) -> SkillUse:
    return SKILL_USE.read(body)


def is_said(message: Message) -> bool:
    """A person's message, not a tool's result and not a note."""
    return message.role == "user" and not message.results and not message.text.startswith(NOTE)


def new_id() -> str:
    return os.urandom(6).hex()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
