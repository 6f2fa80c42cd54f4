"""A conversation that is kept: every step is in the journal before anybody hears of it, and the messages a model is
sent are a view of those records. Resuming and forking are the same view, made anew.

Used by the loop and by whoever shows a session. Uses store/journal for what is durable, transcript for what is sent.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kitbag.agent.recorded_message import RecordedMessage
from kitbag.agent.session_records import (
    COMPACTION_FIELDS,
    HEADER_FIELDS,
    SKILL_USE_FIELDS,
    SWITCH_FIELDS,
    SWITCHABLE_FIELDS,
    Compaction,
    SessionHeader,
    SessionSwitch,
    SessionTotals,
    SkillUse,
)
from kitbag.agent.shield import run_to_completion
from kitbag.agent.transcript import normalize_transcript, replace_part_surrogates, replace_surrogates
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
from kitbag.store.journal import Journal, JournalEntry, JournalRecord

STREAM_PREFIX = "session/"
"""Streams of sessions begin so."""
NOTIFICATION_PREFIX = "<task-notification "
"""Messages that nobody said begin so."""
_MAX_ABOUT_CHARS = 120


class Session:
    def __init__(self, journal: Journal, session_id: str) -> None:
        self.id = session_id
        self.journal = journal
        self.header = SessionHeader("", "", "default")
        self.prompt: tuple[dict[str, Any], ...] = ()
        """The entries of the system prompt's ledger, with their texts, as last sent."""
        self.prompt_inputs: dict[str, Any] = {}
        """What the prompt was made for: as long as that is the same, so is the prompt."""
        self.about = ""
        """The first words of the person."""
        self.status = ""
        """How it ended last; empty while it runs, and after a crash."""
        self.pending_switches: list[SessionSwitch] = []
        """Changes that the model has not heard of."""
        self.skills: dict[str, SkillUse] = {}
        self.totals = SessionTotals()
        self.warnings: list[str] = []
        self.directory = ""
        """Where the next call starts; empty: where the session did."""
        self._recorded: list[RecordedMessage] = []
        self.calls: dict[str, ToolCall] = {}
        """Every call that was ever made, by its id."""
        self.started_calls: set[str] = set()
        """Calls with an intent: without a result, their outcome is not known."""
        self._open_calls: dict[str, ToolCall] = {}
        """Calls of the last reply that have no result yet."""
        self._calls_by_skill: dict[str, list[str]] = {}
        """Skill -> the calls whose results hold its text."""
        self._unloaded_by_call: dict[str, str] = {}
        """Call -> the skill that was unloaded, whose text it still holds."""
        self._detached_skills: set[str] = set()
        """Skills that stood behind the summary and were unloaded."""
        self._has_one_turn_skill = False
        """A skill is shown that goes with the next thing a person says."""
        self._cached_messages: list[Message] | None = None
        self._deferred_entries: list[JournalEntry] = []
        """What is written with the next record."""

    @property
    def stream(self) -> str:
        return STREAM_PREFIX + self.id

    # What is written

    async def start(self, header: SessionHeader, *, deferred: bool = False) -> None:
        """`later`: with the next record, in one commit; until then there is no such session."""
        self.header = header._replace(started=header.started or _now())
        await self._write("session", HEADER_FIELDS.write(self.header), deferred=deferred)

    async def set_prompt(self, ledger: Ledger, prompt_inputs: Mapping[str, Any], *, deferred: bool = False) -> None:
        """Written only when it changed: all that is before the conversation stays byte for byte the same."""
        entries = _prompt_entries(ledger)
        if entries != self.prompt or prompt_inputs != self.prompt_inputs:
            self.prompt, self.prompt_inputs = entries, dict(prompt_inputs)
            await self._write("prompt", {"entries": list(entries), "made_for": self.prompt_inputs}, deferred=deferred)

    async def switch(
        self,
        switches: Sequence[SessionSwitch],
        header: SessionHeader,
        dropped: Iterable[tuple[str, str]] = (),
        prompt: tuple[Ledger, Mapping[str, Any]] | None = None,
    ) -> None:
        """Another persona, model or mode from here on, with the prompt and without the skills (name, why) that go with
        it: in one commit, or not at all."""
        entries = [
            JournalEntry(self.stream, "skill-dropped", {"name": name, "reason": replace_surrogates(reason)})
            for name, reason in dropped
        ]
        if prompt is not None:
            body = {"entries": list(_prompt_entries(prompt[0])), "made_for": dict(prompt[1])}
            entries.append(JournalEntry(self.stream, "prompt", body))
        changes = [SWITCH_FIELDS.write(one._replace(told=replace_surrogates(one.told))) for one in switches]
        now = {name: getattr(header, name) for name in SWITCHABLE_FIELDS}
        entries.append(
            JournalEntry(self.stream, "switched", {"changes": changes, "now": now, **self._summary_fields(), **now})
        )

        async def both() -> None:
            for seq, entry in zip(await self._write_all(entries), entries, strict=True):
                self.apply(JournalRecord(seq, entry.stream, "", entry.kind, entry.body))

        await run_to_completion(both())

    async def add_user(self, parts: Iterable[Part], one_turn: Iterable[tuple[int, str]] = ()) -> None:
        message = Message("user", tuple(replace_part_surrogates(part) for part in parts))
        shown = tuple(one_turn)
        body = {"message": message_to_json(message), "one_turn": [list(pair) for pair in shown]}
        await self._write("user", body, lambda seq: self._apply_user(message, seq, shown))

    async def add_note(self, text: str) -> None:
        """Something that the model is told and nobody said. It begins with the mark that says so."""
        message = Message("user", (Text(replace_surrogates(text)),))
        body = {"message": message_to_json(message)}
        await self._write("note", body, lambda seq: self._append(RecordedMessage(message, seq)))

    async def add_reply(
        self, message: Message, usage: Usage, cost: float | None, model: str, *, incomplete: str = ""
    ) -> Message:
        """As it is kept: without half characters."""
        kept = Message(message.role, tuple(replace_part_surrogates(part) for part in message.parts))
        body = {
            "message": message_to_json(kept),
            "usage": list(usage),
            "cost": cost,
            "model": replace_surrogates(model),
            "incomplete": incomplete,
        }
        await self._write("reply", body, lambda seq: self._apply_reply(kept, seq, usage, cost, bool(incomplete)))
        return kept

    async def record_intent(self, call: ToolCall) -> None:
        """Before an effect."""
        body = {"call": call.id, "tool": call.name, "arguments": call.arguments}
        await self._write("intent", body, lambda _: self.started_calls.add(call.id))
        point("intent-written")

    async def record_result(self, result: ToolResult, summary: str = "", cut: str = "", details: str = "") -> None:
        kept = replace_part_surrogates(result)
        body = {
            "result": part_to_json(kept),
            "summary": replace_surrogates(summary),
            "cut": cut,
            "details": replace_surrogates(details),
        }
        point("tool-done")
        await self._write("result", body, lambda seq: self._apply_result(kept, seq))
        point("result-written")

    async def record_directory(self, directory: str) -> None:
        """A command has changed the directory in which the next call starts."""

        def apply(_: int) -> None:
            self.directory = directory

        await self._write("moved", {"directory": replace_surrogates(directory)}, apply)

    async def add_skill(self, use: SkillUse) -> None:
        kept = use._replace(text=replace_surrogates(use.text), arguments=replace_surrogates(use.arguments))
        await self._write("skill", SKILL_USE_FIELDS.write(kept), lambda _: self._apply_skill(kept))

    async def drop_skill(self, name: str, reason: str) -> None:
        await self._write("skill-dropped", {"name": name, "reason": reason}, lambda _: self._apply_drop(name))

    async def record_compaction(self, compaction: Compaction) -> None:
        body = {
            **COMPACTION_FIELDS.write(compaction),
            "attached": [list(pair) for pair in compaction.attached],
            "skills": [SKILL_USE_FIELDS.write(use) for use in compaction.skills],
            "usage": list(compaction.usage),
        }
        await self._write("compacted", body, lambda _: self._apply_compaction(compaction))

    async def record_end(self, status: str, error: str = "") -> None:
        """With what a listing needs, so that it need not read all."""

        def apply(_: int) -> None:
            self.status = status

        now = {name: getattr(self.header, name) for name in SWITCHABLE_FIELDS}
        await self._write("ended", {**self._summary_fields(), **now, "status": status, "error": error}, apply)

    def _summary_fields(self) -> dict[str, Any]:
        totals = self.totals
        cost = None if totals.unpriced else totals.cost
        return {"status": self.status, "turns": totals.turns, "cost": cost, "about": self.about}

    async def _write(
        self, kind: str, body: Mapping[str, Any], apply: Callable[[int], None] | None = None, *, deferred: bool = False
    ) -> None:
        """Written and applied, or neither, also when this is cancelled meanwhile."""
        if deferred:
            self._deferred_entries.append(JournalEntry(self.stream, kind, dict(body)))
            return

        async def both() -> None:
            if self._deferred_entries:
                [seq] = await self._write_all([JournalEntry(self.stream, kind, body)])
            else:
                seq = await self.journal.write(self.stream, kind, body)
            if apply is not None:
                apply(seq)

        await run_to_completion(both())

    async def _write_all(self, entries: Sequence[JournalEntry]) -> list[int]:
        """Behind what is held."""
        held, self._deferred_entries = self._deferred_entries, []
        try:
            return (await self.journal.write_all([*held, *entries]))[len(held) :]
        except BaseException:
            self._deferred_entries = [*held, *self._deferred_entries]
            raise

    # What is sent

    def messages(self) -> tuple[Message, ...]:
        """The conversation as the next request carries it."""
        if self._cached_messages is None:
            mended = normalize_transcript(self._list_sent_messages(), frozenset(self.started_calls))
            self.warnings += [problem for problem in mended.problems if problem not in self.warnings]
            self._cached_messages = list(mended.messages)
        return tuple(self._cached_messages)

    def recorded_messages(self) -> list[tuple[int, Message]]:
        """With the number of the record each came from; for compaction."""
        return [(line.seq, line.message) for line in self._recorded]

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        return tuple(self._open_calls.values())

    def _list_sent_messages(self) -> Iterator[Message]:
        last_user = max((at for at, line in enumerate(self._recorded) if is_user_message(line.message)), default=-1)
        for at, line in enumerate(self._recorded):
            yield line.as_sent(
                is_expired=at < last_user, detached=self._detached_skills, unloaded=self._unloaded_by_call
            )

    def _append(self, recorded: RecordedMessage) -> None:
        """Appended to the view where that is all there is to do, so that a turn costs the same in a long session."""
        expires = self._has_one_turn_skill and is_user_message(recorded.message)
        simple = self._cached_messages is not None and not self._open_calls and not expires
        self._recorded.append(recorded)
        self._has_one_turn_skill = bool(recorded.one_turn) or (self._has_one_turn_skill and not expires)
        if not simple or self._cached_messages is None:
            self._cached_messages = None
        elif self._cached_messages and self._cached_messages[-1].role == recorded.message.role:
            self._cached_messages[-1] = Message(
                recorded.message.role, (*self._cached_messages[-1].parts, *recorded.message.parts)
            )
        else:
            self._cached_messages.append(recorded.message)

    # What is read

    def apply(self, record: JournalRecord) -> None:
        """A record that was written before. Raises for one that can't be what was written."""
        body = record.body
        match record.kind:
            case "session":
                self.header = HEADER_FIELDS.read(body)
            case "prompt":
                self.prompt, self.prompt_inputs = tuple(body["entries"]), dict(body.get("made_for", {}))
            case "user":
                shown = tuple((int(index), str(name)) for index, name in body.get("one_turn", ()))
                self._apply_user(_read_message(body["message"]), record.seq, shown)
            case "reply":
                message, usage = _read_message(body["message"]), Usage(*body.get("usage", ()))
                self._apply_reply(message, record.seq, usage, body.get("cost"), bool(body.get("incomplete")))
            case "note":
                self._append(RecordedMessage(_read_message(body["message"]), record.seq))
            case "intent":
                self.started_calls.add(body["call"])
            case "result":
                result = replace_part_surrogates(part_from_json(body["result"]))
                if isinstance(result, ToolResult):
                    self._apply_result(result, record.seq)
            case "moved":
                self.directory = str(body["directory"])
            case "switched":
                now = body["now"]
                self.header = self.header._replace(**{name: now[name] for name in SWITCHABLE_FIELDS if name in now})
                self.pending_switches += [SWITCH_FIELDS.read(one) for one in body["changes"]]
            case "ended":
                self.status = str(body.get("status", ""))
            case "skill":
                self._apply_skill(_read_use(body))
            case "skill-dropped":
                self._apply_drop(body["name"])
            case "compacted":
                known = COMPACTION_FIELDS.known_fields(body)
                known["attached"] = tuple((str(name), str(text)) for name, text in body.get("attached", ()))
                known["skills"] = tuple(_read_use(use) for use in body.get("skills", ()))
                known["usage"] = Usage(*body.get("usage", ()))
                self._apply_compaction(Compaction(**known))
            case _:
                pass  # of a kind that says nothing about the conversation

    def _apply_user(self, message: Message, seq: int, one_turn: tuple[tuple[int, str], ...]) -> None:
        texts = [part.text for part in message.parts if isinstance(part, Text)]
        self.about = self.about or " ".join((texts[-1] if texts else "").split())[:_MAX_ABOUT_CHARS]
        self.status, self.pending_switches = "", []
        self._append(RecordedMessage(message, seq, one_turn))

    def _apply_reply(self, message: Message, seq: int, usage: Usage, cost: float | None, incomplete: bool) -> None:
        self._open_calls = {}
        self._append(RecordedMessage(message, seq))
        self._open_calls = {call.id: call for call in message.calls}
        self.calls |= self._open_calls
        self._add_usage(0 if incomplete else 1, usage, cost)

    def _add_usage(self, turns: int, usage: Usage, cost: float | None) -> None:
        self.totals = SessionTotals(
            self.totals.turns + turns,
            self.totals.usage + usage,
            self.totals.cost + (cost or 0.0),
            self.totals.unpriced or cost is None,
        )

    def _apply_result(self, result: ToolResult, seq: int) -> None:
        self._open_calls.pop(result.call_id, None)
        self._recorded.append(RecordedMessage(Message("user", (result,)), seq))
        if not self._open_calls:
            self._cached_messages = self._append_results()

    def _append_results(self) -> list[Message] | None:
        """The view, after the last open call was answered: the results of one reply are one message."""
        if self._cached_messages is None or not self._cached_messages or self._cached_messages[-1].role != "assistant":
            return None
        calls = self._cached_messages[-1].calls
        order = {call.id: at for at, call in enumerate(calls)}
        results: dict[str, ToolResult] = {}
        for line in reversed(self._recorded):
            if line.message.role == "assistant":
                break
            results.update({result.call_id: result for result in line.message.results})
        if set(results) != set(order):
            return None
        ordered = sorted(results.values(), key=lambda result: order[result.call_id])
        self._cached_messages.append(Message("user", tuple(ordered)))
        return self._cached_messages

    def _apply_skill(self, use: SkillUse) -> None:
        self.skills[use.name] = use
        if use.call_id:
            self._calls_by_skill.setdefault(use.name, []).append(use.call_id)

    def _apply_drop(self, name: str) -> None:
        self.skills.pop(name, None)
        self._unloaded_by_call.update(dict.fromkeys(self._calls_by_skill.pop(name, ()), name))
        self._detached_skills.add(name)
        self._cached_messages = None

    def _apply_compaction(self, compaction: Compaction) -> None:
        texts = (compaction.summary, *(text for _, text in compaction.attached))
        standing = tuple((at, name) for at, (name, _) in enumerate(compaction.attached, 1))
        head = RecordedMessage(Message("user", tuple(Text(text) for text in texts)), 0, attached=standing)
        kept = [
            line
            for line in self._recorded
            if line.seq >= compaction.keep_from or line.seq == (compaction.keep_also or -1)
        ]
        self._recorded = [head, *kept]
        self.skills = {use.name: use for use in compaction.skills}
        self._detached_skills = set()
        self._cached_messages = None
        self._add_usage(0, compaction.usage, compaction.cost)


def _prompt_entries(ledger: Ledger) -> tuple[dict[str, Any], ...]:
    return tuple({**entry.to_json(), "text": replace_surrogates(entry.text)} for entry in ledger.entries)


def _read_message(value: object) -> Message:
    """Raises for what is no message, down to the types of its texts."""
    read = message_from_json(value)
    return Message(read.role, tuple(replace_part_surrogates(part) for part in read.parts))


def _read_use(body: Mapping[str, Any]) -> SkillUse:
    return SKILL_USE_FIELDS.read(body)


def is_user_message(message: Message) -> bool:
    """A person's message, not a tool's result and not a note."""
    return message.role == "user" and not message.results and not message.text.startswith(NOTIFICATION_PREFIX)


def new_session_id() -> str:
    return os.urandom(6).hex()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
