"""A session: each step is recorded in the journal before anyone sees it, and the messages sent to a model are derived
from the records. Resuming and forking replay the records.

Used by the loop and by everything that shows a session. Uses store/journal for storage and transcript for the
messages.
"""

import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

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
    about_message,
)
from kitbag.agent.session_table import STREAM_PREFIX as STREAM_PREFIX
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
    usage_from_record,
    usage_to_record,
)
from kitbag.store.fault_points import point
from kitbag.store.journal import Journal, JournalEntry, JournalRecord


class RecordedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message and the skills in it, each as (part index, skill name)."""

    message: Message
    seq: int
    one_turn: tuple[tuple[int, str], ...] = ()
    """Shown until the next user message."""
    attached: tuple[tuple[int, str], ...] = ()
    """Shown until they are unloaded."""
    is_steering: bool = False
    """The user sent it while the agent worked: skills shown for one turn stay."""

    @property
    def starts_turn(self) -> bool:
        """Whether skills that were shown for one turn expire with it."""
        return not self.is_steering and is_user_message(self.message)

    def as_sent(self, *, is_expired: bool, detached: Collection[str], unloaded: Mapping[str, str]) -> Message:
        """`is_expired`: a later user message exists. `detached`: unloaded skills that were attached to the summary.
        `unloaded`: skill name by the call that delivered it."""
        parts = list(self.message.parts)
        for index, name in self.one_turn:
            if is_expired and index < len(parts):
                parts[index] = Text(f"[The skill {name} was shown here until the next user message.]")
        for index, name in self.attached:
            if name in detached and index < len(parts):
                parts[index] = _unloaded_stub(name)
        for index, part in enumerate(parts):
            if isinstance(part, ToolResult) and part.call_id in unloaded:
                parts[index] = msgspec.structs.replace(part, content=(_unloaded_stub(unloaded[part.call_id]),))
        return Message(self.message.role, tuple(parts))


def _unloaded_stub(skill: str) -> Text:
    return Text(f"[The skill {skill} was here and has been unloaded.]")


REWOUND = "rewound"
"""A record: the conversation is again as it was before the record that `to` names (agent/resume)."""
CONVERSATION_KINDS = frozenset(
    ("user", "note", "reply", "intent", "result", "moved", "skill", "skill-dropped", "compacted")
)
"""Records that a rewind can drop; the others stay in force."""
WriteUserRecord = Callable[[JournalEntry], Awaitable[int]]
NOTIFICATION_PREFIX = "<task-notification "
CONTINUATION_PREFIX = "<continuation>"
_NOTE_PREFIXES = (NOTIFICATION_PREFIX, CONTINUATION_PREFIX)
"""Messages that the user did not write start with one of these."""


class Session:
    def __init__(self, journal: Journal, session_id: str) -> None:
        self.id = session_id
        self.journal = journal
        self.header = SessionHeader(directory="", model="", mode="default")
        self.prompt: tuple[dict[str, Any], ...] = ()
        """The ledger entries of the system prompt, with texts, as last sent."""
        self.prompt_inputs: dict[str, Any] = {}
        """What the prompt was built from; while this is unchanged, the prompt is reused."""
        self.about = ""
        """The start of the first user message."""
        self.status = ""
        """How the last run ended; empty while one is running and after a crash."""
        self.pending_switches: list[SessionSwitch] = []
        """Switches that the model has not been notified of."""
        self.sent_tools = ""
        """The hash of the tools of the last request (sent_requests)."""
        self.skills: dict[str, SkillUse] = {}
        self.totals = SessionTotals()
        self.warnings: list[str] = []
        self.directory = ""
        """Working directory of the next call; empty: the session's own."""
        self._recorded: list[RecordedMessage] = []
        self.calls: dict[str, ToolCall] = {}
        """All calls of the session by id."""
        self.started_calls: set[str] = set()
        """Calls with a recorded intent: without a result, their outcome is unknown."""
        self._open_calls: dict[str, ToolCall] = {}
        """Calls of the last reply without a result."""
        self._calls_by_skill: dict[str, list[str]] = {}
        """Skill name -> calls whose results contain its text."""
        self._unloaded_by_call: dict[str, str] = {}
        """Call -> the unloaded skill whose text its result contains."""
        self._detached_skills: set[str] = set()
        """Skills that were attached to the summary and are unloaded."""
        self._has_one_turn_skill = False
        """A skill is shown that expires with the next user message."""
        self._cached_messages: list[Message] | None = None
        self._deferred_entries: list[JournalEntry] = []
        """Written together with the next record."""

    @property
    def stream(self) -> str:
        return STREAM_PREFIX + self.id

    # Writing

    async def start(self, header: SessionHeader, *, deferred: bool = False) -> None:
        """`deferred`: written in one commit with the next record; until then the session does not exist."""
        self.header = msgspec.structs.replace(header, started=header.started or _now())
        await self._write("session", HEADER_FIELDS.write(self.header), deferred=deferred)

    async def set_prompt(self, ledger: Ledger, prompt_inputs: Mapping[str, Any], *, deferred: bool = False) -> None:
        """Recorded only if it changed: an unchanged prompt stays cached byte for byte."""
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
        """Switches persona, model or mode, sets the new prompt and drops skills (name, reason), all in one commit."""
        entries = [
            JournalEntry(self.stream, "skill-dropped", {"name": name, "reason": replace_surrogates(reason)})
            for name, reason in dropped
        ]
        if prompt is not None:
            body = {"entries": list(_prompt_entries(prompt[0])), "made_for": dict(prompt[1])}
            entries.append(JournalEntry(self.stream, "prompt", body))
        changes = [
            SWITCH_FIELDS.write(msgspec.structs.replace(switch, model_notice=replace_surrogates(switch.model_notice)))
            for switch in switches
        ]
        now = {name: getattr(header, name) for name in SWITCHABLE_FIELDS}
        entries.append(
            JournalEntry(self.stream, "switched", {"changes": changes, "now": now, **self._summary_fields(), **now})
        )

        async def write_and_apply() -> None:
            for seq, entry in zip(await self._write_all(entries), entries, strict=True):
                self.apply(JournalRecord(seq=seq, stream=entry.stream, at="", kind=entry.kind, body=entry.body))

        await run_to_completion(write_and_apply())

    async def add_user(
        self,
        parts: Iterable[Part],
        one_turn: Iterable[tuple[int, str]] = (),
        *,
        suggested: Sequence[str] = (),
        is_steering: bool = False,
        write: WriteUserRecord | None = None,
    ) -> bool:
        """`suggested`: names of the skills that the message suggests. `write`: writes the record and returns its
        number, or 0 if it must not be written; then this returns False."""
        message = Message("user", tuple(replace_part_surrogates(part) for part in parts))
        one_turn_skills = tuple(one_turn)
        body: dict[str, Any] = {
            "message": message_to_json(message),
            "one_turn": [list(pair) for pair in one_turn_skills],
            **({"suggested": list(suggested)} if suggested else {}),
            **({"steering": True} if is_steering else {}),
        }

        def apply(seq: int) -> None:
            self._apply_user(message, seq, one_turn_skills, is_steering)

        if write is None:
            await self._write("user", body, apply)
            return True
        is_written = False

        async def write_and_apply() -> None:
            nonlocal is_written
            await self._write_all([])  # what is deferred comes first
            seq = await write(JournalEntry(self.stream, "user", body))
            if seq:
                apply(seq)
                is_written = True

        await run_to_completion(write_and_apply())
        return is_written

    async def add_note(self, text: str) -> None:
        """A message to the model that the user did not write; it starts with one of `_NOTE_PREFIXES`."""
        message = Message("user", (Text(replace_surrogates(text)),))
        body = {"message": message_to_json(message)}
        await self._write("note", body, lambda seq: self._append(RecordedMessage(message=message, seq=seq)))

    async def add_reply(
        self,
        message: Message,
        usage: Usage,
        cost: float | None,
        model: str,
        *,
        incomplete: str = "",
        sent: Mapping[str, Any] | None = None,
    ) -> Message:
        """Returns the message as recorded: without lone surrogates. `sent`: about the request (sent_requests)."""
        recorded = Message(message.role, tuple(replace_part_surrogates(part) for part in message.parts))
        body = {
            "message": message_to_json(recorded),
            "usage": usage_to_record(usage),
            "cost": cost,
            "model": replace_surrogates(model),
            "incomplete": incomplete,
            **({"sent": dict(sent)} if sent is not None else {}),
        }
        await self._write("reply", body, lambda seq: self._apply_reply(recorded, seq, usage, cost, bool(incomplete)))
        self.sent_tools = _read_sent_tools(body)
        return recorded

    async def record_intent(self, call: ToolCall) -> None:
        """Called before a side effect."""
        body = {"call": call.id, "tool": call.name, "arguments": call.arguments}
        await self._write("intent", body, lambda _: self.started_calls.add(call.id))
        point("intent-written")

    async def record_result(
        self, result: ToolResult, summary: str = "", cut: str = "", details: str = "", *, suggested: Sequence[str] = ()
    ) -> None:
        """`suggested`: names of the skills that the result suggests."""
        recorded = replace_part_surrogates(result)
        body = {
            "result": part_to_json(recorded),
            "summary": replace_surrogates(summary),
            "cut": cut,
            "details": replace_surrogates(details),
            **({"suggested": list(suggested)} if suggested else {}),
        }
        point("tool-done")
        await self._write("result", body, lambda seq: self._apply_result(recorded, seq))
        point("result-written")

    async def record_directory(self, directory: str) -> None:
        """The working directory of the next call, after a command changed it."""

        def apply(_: int) -> None:
            self.directory = directory

        await self._write("moved", {"directory": replace_surrogates(directory)}, apply)

    async def add_skill(self, use: SkillUse) -> None:
        recorded = msgspec.structs.replace(
            use, text=replace_surrogates(use.text), arguments=replace_surrogates(use.arguments)
        )
        await self._write("skill", SKILL_USE_FIELDS.write(recorded), lambda _: self._apply_skill(recorded))

    async def drop_skill(self, name: str, reason: str) -> None:
        await self._write("skill-dropped", {"name": name, "reason": reason}, lambda _: self._apply_drop(name))

    async def record_compaction(self, compaction: Compaction) -> None:
        body = {
            **COMPACTION_FIELDS.write(compaction),
            "attached": [list(pair) for pair in compaction.attached],
            "skills": [SKILL_USE_FIELDS.write(use) for use in compaction.skills],
            "usage": usage_to_record(compaction.usage),
        }
        await self._write("compacted", body, lambda _: self._apply_compaction(compaction))

    async def record_end(self, status: str, error: str = "") -> None:
        """Includes the fields of a session listing, so that a listing reads only the last record."""

        def apply(_: int) -> None:
            self.status = status

        now = {name: getattr(self.header, name) for name in SWITCHABLE_FIELDS}
        await self._write("ended", {**self._summary_fields(), **now, "status": status, "error": error}, apply)

    def _summary_fields(self) -> dict[str, Any]:
        totals = self.totals
        cost = None if totals.unpriced else totals.cost
        return {"status": self.status, "turns": totals.turns, "cost": cost, "about": self.about}

    def defer(self, entry: JournalEntry) -> None:
        """Written in one commit with the next record."""
        self._deferred_entries.append(entry)

    async def _write(
        self, kind: str, body: Mapping[str, Any], apply: Callable[[int], None] | None = None, *, deferred: bool = False
    ) -> None:
        """Writes and applies the record, or neither, even if cancelled meanwhile."""
        if deferred:
            self._deferred_entries.append(JournalEntry(self.stream, kind, dict(body)))
            return

        async def write_and_apply() -> None:
            if self._deferred_entries:
                [seq] = await self._write_all([JournalEntry(self.stream, kind, body)])
            else:
                seq = await self.journal.write(self.stream, kind, body)
            if apply is not None:
                apply(seq)

        await run_to_completion(write_and_apply())

    async def _write_all(self, entries: Sequence[JournalEntry]) -> list[int]:
        """Writes the deferred entries first."""
        deferred, self._deferred_entries = self._deferred_entries, []
        try:
            return (await self.journal.write_all([*deferred, *entries]))[len(deferred) :]
        except BaseException:
            self._deferred_entries = [*deferred, *self._deferred_entries]
            raise

    # Messages for the model

    def messages(self) -> tuple[Message, ...]:
        """The conversation as the next request carries it."""
        if self._cached_messages is None:
            transcript = normalize_transcript(self._list_sent_messages(), frozenset(self.started_calls))
            self.warnings += [problem for problem in transcript.problems if problem not in self.warnings]
            self._cached_messages = list(transcript.messages)
        return tuple(self._cached_messages)

    def recorded_messages(self) -> list[tuple[int, Message]]:
        """(record number, message); used by compaction."""
        return [(recorded.seq, recorded.message) for recorded in self._recorded]

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        return tuple(self._open_calls.values())

    def _list_sent_messages(self) -> Iterator[Message]:
        last_user = max((index for index, recorded in enumerate(self._recorded) if recorded.starts_turn), default=-1)
        for index, recorded in enumerate(self._recorded):
            yield recorded.as_sent(
                is_expired=index < last_user, detached=self._detached_skills, unloaded=self._unloaded_by_call
            )

    def _append(self, recorded: RecordedMessage) -> None:
        """Extends the cached messages where possible, so that a turn costs the same in a long session."""
        expires = self._has_one_turn_skill and recorded.starts_turn
        can_extend = self._cached_messages is not None and not self._open_calls and not expires
        self._recorded.append(recorded)
        self._has_one_turn_skill = bool(recorded.one_turn) or (self._has_one_turn_skill and not expires)
        if not can_extend or self._cached_messages is None:
            self._cached_messages = None
        elif self._cached_messages and self._cached_messages[-1].role == recorded.message.role:
            self._cached_messages[-1] = Message(
                recorded.message.role, (*self._cached_messages[-1].parts, *recorded.message.parts)
            )
        else:
            self._cached_messages.append(recorded.message)

    # Replaying records

    def apply(self, record: JournalRecord) -> None:
        """Replays a record. Raises for a damaged one."""
        body = record.body
        match record.kind:
            case "session":
                self.header = HEADER_FIELDS.read(body)
            case "prompt":
                self.prompt, self.prompt_inputs = tuple(body["entries"]), dict(body.get("made_for", {}))
            case "user":
                one_turn_skills = tuple((int(index), str(name)) for index, name in body.get("one_turn", ()))
                is_steering = body.get("steering") is True
                self._apply_user(_read_message(body["message"]), record.seq, one_turn_skills, is_steering)
            case "reply":
                message, usage = _read_message(body["message"]), usage_from_record(body.get("usage", ()))
                self._apply_reply(message, record.seq, usage, body.get("cost"), bool(body.get("incomplete")))
                self.sent_tools = _read_sent_tools(body)
            case "note":
                self._append(RecordedMessage(message=_read_message(body["message"]), seq=record.seq))
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
                self.header = msgspec.structs.replace(
                    self.header, **{name: now[name] for name in SWITCHABLE_FIELDS if name in now}
                )
                self.pending_switches += [SWITCH_FIELDS.read(switch) for switch in body["changes"]]
            case "ended":
                self.status = str(body.get("status", ""))
            case "skill":
                self._apply_skill(_read_use(body))
            case "skill-dropped":
                self._apply_drop(body["name"])
            case "compacted":
                fields = COMPACTION_FIELDS.known_fields(body)
                fields["attached"] = tuple((str(name), str(text)) for name, text in body.get("attached", ()))
                fields["skills"] = tuple(_read_use(use) for use in body.get("skills", ()))
                fields["usage"] = usage_from_record(body.get("usage", ()))
                self._apply_compaction(Compaction(**fields))
            case _:
                pass  # not part of the conversation

    def apply_dropped(self, record: JournalRecord) -> None:
        """A record that a rewind dropped: what it cost is still spent, and ids of its calls are still used."""
        self.apply_spending(record)
        if record.kind == "reply":
            self.calls |= {call.id: call for call in _read_message(record.body["message"]).calls}

    def apply_spending(self, record: JournalRecord) -> None:
        """Only what it cost; a brief is enough."""
        body = record.body
        if record.kind in ("reply", "compacted"):
            turns = 1 if record.kind == "reply" and not body.get("incomplete") else 0
            self._add_usage(turns, usage_from_record(body.get("usage", ())), body.get("cost"))

    def _apply_user(self, message: Message, seq: int, one_turn: tuple[tuple[int, str], ...], is_steering: bool) -> None:
        self.about = self.about or about_message(message)
        self.status, self.pending_switches = "", []
        self._append(RecordedMessage(message=message, seq=seq, one_turn=one_turn, is_steering=is_steering))

    def _apply_reply(self, message: Message, seq: int, usage: Usage, cost: float | None, incomplete: bool) -> None:
        self._open_calls = {}
        self._append(RecordedMessage(message=message, seq=seq))
        self._open_calls = {call.id: call for call in message.calls}
        self.calls |= self._open_calls
        self._add_usage(0 if incomplete else 1, usage, cost)

    def _add_usage(self, turns: int, usage: Usage, cost: float | None) -> None:
        self.totals = SessionTotals(
            turns=self.totals.turns + turns,
            usage=self.totals.usage + usage,
            cost=self.totals.cost + (cost or 0.0),
            unpriced=self.totals.unpriced or cost is None,
        )

    def _apply_result(self, result: ToolResult, seq: int) -> None:
        self._open_calls.pop(result.call_id, None)
        self._recorded.append(RecordedMessage(message=Message("user", (result,)), seq=seq))
        if not self._open_calls:
            self._cached_messages = self._append_results()

    def _append_results(self) -> list[Message] | None:
        """The cached messages after the last open call was answered: one message holds all results of a reply."""
        if self._cached_messages is None or not self._cached_messages or self._cached_messages[-1].role != "assistant":
            return None
        calls = self._cached_messages[-1].calls
        order = {call.id: index for index, call in enumerate(calls)}
        results: dict[str, ToolResult] = {}
        for recorded in reversed(self._recorded):
            if recorded.message.role == "assistant":
                break
            results.update({result.call_id: result for result in recorded.message.results})
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
        attached = tuple((index, name) for index, (name, _) in enumerate(compaction.attached, 1))
        summary = RecordedMessage(
            message=Message("user", tuple(Text(text) for text in texts)), seq=0, attached=attached
        )
        kept = [
            recorded
            for recorded in self._recorded
            if recorded.seq >= compaction.keep_from or recorded.seq == (compaction.keep_also or -1)
        ]
        self._recorded = [summary, *kept]
        self.skills = {use.name: use for use in compaction.skills}
        self._detached_skills = set()
        self._cached_messages = None
        self._add_usage(0, compaction.usage, compaction.cost)


def _prompt_entries(ledger: Ledger) -> tuple[dict[str, Any], ...]:
    return tuple({**entry.to_json(), "text": replace_surrogates(entry.text)} for entry in ledger.entries)


def _read_sent_tools(body: Mapping[str, Any]) -> str:
    sent: dict[str, Any] = body["sent"] if isinstance(body.get("sent"), dict) else {}
    return str(sent.get("tools", ""))


def _read_message(value: object) -> Message:
    """Raises for anything but a valid message, down to the types of its texts."""
    message = message_from_json(value)
    return Message(message.role, tuple(replace_part_surrogates(part) for part in message.parts))


def _read_use(body: Mapping[str, Any]) -> SkillUse:
    return SKILL_USE_FIELDS.read(body)


def is_user_message(message: Message) -> bool:
    """True for what the user wrote; False for tool results and notifications."""
    return message.role == "user" and not message.results and not message.text.startswith(_NOTE_PREFIXES)


def new_session_id() -> str:
    return os.urandom(6).hex()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
