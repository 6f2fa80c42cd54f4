"""Each call of a session: its pieces and what they cost, what differs, what broke the cache, what it would have cost."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kitbag.agent.model_calls import read_calls
from kitbag.agent.resume import resume
from kitbag.agent.sent_requests import RequestRecorder
from kitbag.agent.session import Session
from kitbag.agent.session_records import Compaction, SessionHeader, SkillUse
from kitbag.errors import NotFoundError
from kitbag.ledger import Entry, Ledger
from kitbag.library.registry import Registry
from kitbag.library.scopes import Places
from kitbag.messages import Message, Text, Thinking, ToolCall, ToolResult, Usage
from kitbag.models.provider import ModelRequest, SystemBlock, ToolSpec
from kitbag.runtime.context_calls import SessionContext
from kitbag.runtime.context_check import check_calls
from kitbag.runtime.context_costs import compute_costs
from kitbag.runtime.context_diff import diff_calls
from kitbag.runtime.context_summaries import summarize_calls
from kitbag.store.journal import Journal
from kitbag.store.redaction import Redactor

READ = ToolSpec(name="Read", description="Reads a file.", schema={"type": "object"})
GREP = ToolSpec(name="Grep", description="Searches files.", schema={"type": "object"})
HEADER = SessionHeader(directory="/w", model="anthropic/claude-sonnet-4-5", mode="default")
BODY = "Write it in capitals.\n" * 40


class Talk:
    """A session that is written as the loop writes it, with a provider whose counts the test decides."""

    def __init__(self, base: Path) -> None:
        self.base = base
        skills = base / "home" / ".kitbag" / "skills" / "sql-style"
        skills.mkdir(parents=True)
        (skills / "SKILL.md").write_text(f"---\nname: sql-style\ndescription: SQL here.\n---\n{BODY}")
        self.journal = Journal.open(str(base / "journal.db"), Redactor(()))
        self.session = Session(self.journal, "x")
        self.tools: tuple[ToolSpec, ...] = (READ, GREP)
        self.calls = 0

    def run(self, work: Any) -> Any:
        return asyncio.run(work)

    def start(self, header: SessionHeader = HEADER) -> None:
        self.run(self.session.start(header))
        self.prompt("Be brief.")

    def prompt(self, text: str) -> None:
        entries = (
            _entry("base", "main_base.md", f"{text}\n\n"),
            _entry("catalog", "skills", "<available-skills>\n- sql-style: SQL here.\n</available-skills>\n"),
            _entry("environment", "main_prompt.environment", "# Environment\n"),
        )
        self.run(self.session.set_prompt(Ledger(entries), {"tools": ["Read", "Grep"], "text": text}))

    def say(self, text: str) -> None:
        self.run(self.session.add_user([Text(text)]))

    def reply(self, *parts: Any, usage: Usage | None = None, cost: float | None = None) -> None:
        """Counted as Kitbag estimates, unless the test says otherwise."""
        self.run(self._reply(parts or (Text("Yes."),), usage or Usage(input=1_000, output=5), cost))

    async def _reply(self, parts: tuple[Any, ...], usage: Usage, cost: float | None) -> None:
        system = tuple(SystemBlock(text=str(entry["text"])) for entry in self.session.prompt)
        request = ModelRequest(model="m", system=system, messages=self.session.messages(), tools=self.tools)
        sent = await RequestRecorder(self.journal).record(request)
        await self.session.add_reply(Message("assistant", parts), usage, cost, "m", sent=sent)

    def load_skill(self, call_id: str = "s1") -> None:
        self.reply(ToolCall(id=call_id, name="Skill", arguments={"skill": "sql-style"}))
        text = f'<skill-invocation name="sql-style">\n{BODY}</skill-invocation>'
        use = SkillUse(
            name="sql-style", tokens=240, at="", by="model", digest="d", arguments="", text=text, call_id=call_id
        )
        self.run(self.session.record_result(ToolResult(call_id=call_id, content=(Text(text),))))
        self.run(self.session.add_skill(use))

    def context(self) -> SessionContext:
        places = Places(str(self.base), str(self.base / "home"), str(self.base / "home" / ".kitbag"), ())
        return SessionContext(read_calls(self.journal, "x"), Registry(places), {})


def _entry(kind: str, source: str, text: str, *, cut: int = 0, reason: str = "") -> Entry:
    return Entry(
        kind=kind, source=source, scope="built-in", level="", text=text, tokens=len(text) // 4 + 1, tokens_cut=cut,
        status="cut" if cut else "kept", reason=reason,
    )  # fmt: skip


@pytest.fixture
def talk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    made = Talk(tmp_path)
    made.start()
    yield made
    made.journal.close()


class TestPieces:
    def test_they_are_the_request_in_the_order_in_which_providers_cache_it(self, talk: Talk) -> None:
        talk.say("How do we write SQL?")
        talk.load_skill()
        talk.reply()
        explained = talk.context().explain(talk.context().history.find(2))
        kinds = [piece.kind for piece in explained.pieces]
        assert kinds == ["tool", "tool", "base", "catalog", "environment", "user", "call", "skill"]
        assert [piece.offset for piece in explained.pieces][:2] == [0, explained.pieces[0].bytes]
        assert explained.bytes == sum(len(piece.text.encode()) for piece in explained.pieces)
        assert explained.call.recorded_bytes == explained.bytes
        assert "the model loaded it" in explained.pieces[-1].reason

    def test_their_costs_add_up_to_what_the_request_cost(self, talk: Talk) -> None:
        talk.say("Hi")
        talk.reply(usage=Usage(input=100, cache_read=700, cache_write=200, output=10), cost=0.1)
        context = talk.context()
        explained = context.explain(context.history.find(1))
        price = context.model_info(explained.call)
        whole = price.cost(Usage(input=100, cache_read=700, cache_write=200))
        assert explained.input_cost == pytest.approx(whole)
        first, last = explained.pieces[0], explained.pieces[-1]
        assert first.cost is not None
        assert last.cost is not None
        assert first.cost / first.tokens < last.cost / last.tokens  # the beginning came from the cache

    def test_without_a_price_or_a_count_a_piece_has_no_cost(self, talk: Talk) -> None:
        talk.say("Hi")
        talk.reply(usage=Usage())
        explained = talk.context().explain(talk.context().history.find(1))
        assert {piece.cost for piece in explained.pieces} == {None}
        assert explained.residual is None

    def test_reasoning_of_another_provider_is_absent(self, talk: Talk) -> None:
        talk.say("Hi")
        talk.reply(Thinking(text="Hm, hm.", provider="openai", opaque="x"), Text("Yes."))
        talk.say("And?")
        talk.reply()
        explained = talk.context().explain(talk.context().history.find(2))
        assert "thinking" not in [piece.kind for piece in explained.pieces]
        assert ("thinking", "openai") in [(item.kind, item.name) for item in explained.absent]
        assert explained.call.difference == 0


class TestAbsentItems:
    def reasons(self, talk: Talk) -> dict[tuple[str, str], str]:
        context = talk.context()
        explained = context.explain(context.history.find(-1))
        return {(item.kind, item.name): item.reason for item in explained.absent}

    def test_a_skill_is_listed_then_loaded_then_unloaded(self, talk: Talk) -> None:
        talk.say("Hi")
        talk.reply()
        assert self.reasons(talk)["skill", "sql-style"] == "listed, not loaded"
        talk.say("Load it.")
        talk.load_skill()
        talk.reply()
        assert ("skill", "sql-style") not in self.reasons(talk)
        talk.run(talk.session.drop_skill("sql-style", "to free context"))
        talk.say("Now?")
        talk.reply()
        assert self.reasons(talk)["skill", "sql-style"] == "unloaded: to free context"

    def test_a_section_that_was_cut_a_result_that_was_cut_and_a_tool_that_is_not_there(self, talk: Talk) -> None:
        entry = _entry("memory", "AGENTS.md", "Long.", cut=50, reason="over the limit for all memory files")
        talk.run(talk.session.set_prompt(Ledger((entry,)), {"new": True}))
        talk.say("Hi")
        talk.reply(ToolCall(id="r1", name="Read", arguments={}))
        result = ToolResult(call_id="r1", content=(Text("a"),))
        talk.run(talk.session.record_result(result, cut="9,000 characters"))
        talk.reply()
        reasons = self.reasons(talk)
        assert reasons["memory", "AGENTS.md"] == "truncated: over the limit for all memory files"
        assert reasons["result", "Read"] == "truncated: 9,000 characters"
        assert ("tool", "Bash") in reasons

    def test_messages_that_a_summary_replaces(self, talk: Talk) -> None:
        _compact(talk)
        assert self.reasons(talk)["messages", "2 messages"] == "compacted: a summary replaces them"


def _compact(talk: Talk) -> None:
    talk.say("One")
    talk.reply()
    talk.say("Two")
    talk.reply()
    kept = talk.session.recorded_messages()[2][0]
    summary = "<conversation-summary>\nThey said one.\n</conversation-summary>"
    talk.run(talk.session.record_compaction(Compaction(summary=summary, keep_from=kept, before=90, after=40)))
    talk.say("Three")
    talk.reply()


class TestDifferences:
    def test_a_request_that_continues_the_one_before_diverges_nowhere(self, talk: Talk) -> None:
        talk.say("Hi")
        talk.reply()
        talk.say("And?")
        talk.reply(usage=Usage(input=50, cache_read=950))
        context = talk.context()
        first, second = context.history.calls
        found = diff_calls(context, first, second)
        assert found.divergence is None
        assert found.shared_bytes == first.recorded_bytes
        assert [(change.change, change.kind) for change in found.changes] == [("added", "reply"), ("added", "user")]
        assert found.reported == 950
        assert found.predicted is not None
        assert 0 < found.predicted < 1_000

    def test_the_first_byte_that_differs_is_found_within_a_piece(self, talk: Talk) -> None:
        talk.say("Hi")
        talk.reply()
        talk.prompt("Be brief and très kind.")
        talk.say("And?")
        talk.reply()
        context = talk.context()
        found = diff_calls(context, *context.history.calls)
        assert found.divergence is not None
        texts = [
            "".join(piece.text for piece in context.request_pieces(call)).encode() for call in context.history.calls
        ]
        at = found.divergence.offset
        assert texts[0][:at] == texts[1][:at]
        assert texts[0][at] != texts[1][at]
        assert (found.divergence.kind, found.divergence.within) == ("base", len("Be brief"))
        assert found.divergence.cause == "the system prompt changed: base main_base.md"
        assert found.predicted == 0
        assert ("changed", "base") in [(change.change, change.kind) for change in found.changes]

    def test_a_skill_that_is_unloaded_breaks_the_cache_where_it_was(self, talk: Talk) -> None:
        talk.say("Hi")
        talk.load_skill()
        talk.reply()
        talk.run(talk.session.drop_skill("sql-style", "unloaded"))
        talk.say("And?")
        talk.reply()
        context = talk.context()
        found = diff_calls(context, context.history.find(2), context.history.find(3))
        assert found.divergence is not None
        assert found.divergence.cause == "the skill sql-style was unloaded"
        place = next(piece.offset for piece in context.explain(context.history.find(2)).pieces if piece.kind == "skill")
        assert found.divergence.offset == place
        assert found.predicted
        changes = [(change.change, change.kind) for change in found.changes]
        assert ("removed", "skill") in changes
        assert ("added", "stub") in changes

    @pytest.mark.parametrize(
        ("tools", "cause"),
        [((READ,), "the tools changed: -Grep"), ((GREP, READ), "the description of a tool changed")],
    )
    def test_other_tools_break_the_cache_from_the_start(self, talk: Talk, tools: Any, cause: str) -> None:
        talk.say("Hi")
        talk.reply()
        talk.tools = tools
        talk.say("And?")
        talk.reply()
        context = talk.context()
        found = diff_calls(context, *context.history.calls)
        assert found.divergence is not None
        assert found.divergence.cause == cause
        assert found.predicted == 0

    def test_a_persona_and_a_compaction_are_named(self, talk: Talk) -> None:
        talk.say("Hi")
        talk.reply()
        changed = SessionHeader(directory="/w", model=HEADER.model, mode="default", persona="boss")
        talk.run(talk.session.switch((), changed))
        talk.prompt("Be a boss.")
        talk.say("And?")
        talk.reply()
        context = talk.context()
        found = diff_calls(context, *context.history.calls)
        assert found.divergence is not None
        assert found.divergence.cause == "the session switched from persona none to boss"
        _compact(talk)
        context = talk.context()
        last = context.history.find(-1)
        before = context.history.before(last)
        assert before is not None
        broken = diff_calls(context, before, last).divergence
        assert broken is not None
        assert broken.cause == "the session was compacted"

    def test_a_call_that_does_not_exist(self, talk: Talk) -> None:
        talk.say("Hi")
        talk.reply()
        history = talk.context().history
        assert history.find(-1).number == 1
        for number in (0, 2, -2):
            with pytest.raises(NotFoundError, match=f"no model call {number}"):
                history.find(number)


class TestChecks:
    def test_a_session_that_adds_up_has_no_problems(self, talk: Talk) -> None:
        talk.say("Hi")
        talk.reply(usage=Usage(input=100, cache_write=2_000, output=5))
        talk.say("And?")
        talk.reply(usage=Usage(input=100, cache_read=2_050, output=5))
        found = check_calls(talk.context())
        assert found.findings == ()
        assert (found.calls, found.exact) == (2, 2)

    def test_a_request_that_the_journal_does_not_reproduce_is_a_problem(self, talk: Talk) -> None:
        talk.say("Hi")
        sent = {"tools": "0" * 24, "bytes": 5}
        talk.reply()
        record = next(record for record in talk.journal.read("session/x") if record.kind == "reply")
        talk.journal.append("session/x", "reply", {**record.body, "sent": {**record.body["sent"], "bytes": 5}})
        found = check_calls(talk.context())
        assert [finding.code for finding in found.problems] == ["bytes"]
        talk.journal.append("session/x", "reply", {**record.body, "sent": sent})
        assert check_calls(talk.context()).findings[-1].code in ("unknown", "break")

    def test_a_count_unlike_the_others_is_an_unexplained_residual(self, talk: Talk) -> None:
        for tokens in (1_000, 1_000, 9_000, 1_000):
            talk.say("Hi")
            talk.reply(usage=Usage(input=tokens))
        problems = check_calls(talk.context()).problems
        assert [(finding.code, finding.call) for finding in problems] == [("residual", 3)]

    def test_a_cache_that_was_not_used_is_a_problem_and_one_that_expired_is_not(self, talk: Talk) -> None:
        talk.say("Hi")
        talk.reply(usage=Usage(cache_write=4_000))
        talk.say("And?")
        talk.reply(usage=Usage(input=4_200))
        found = check_calls(talk.context())
        assert [(finding.severity, finding.code) for finding in found.findings] == [("problem", "cache")]
        assert "0 of" in found.findings[0].text

    def test_a_break_with_a_cause_is_a_note(self, talk: Talk) -> None:
        talk.say("Hi")
        talk.reply()
        talk.prompt("Be kind.")
        talk.say("And?")
        talk.reply()
        found = check_calls(talk.context())
        assert [(finding.severity, finding.code) for finding in found.findings] == [("note", "break")]
        assert "the system prompt changed" in found.findings[0].text

    def test_a_damaged_record_is_a_problem_and_what_is_before_it_is_shown(self, talk: Talk) -> None:
        talk.say("Hi")
        talk.reply()
        talk.journal.append("session/x", "reply", {"message": "nonsense"})
        found = check_calls(talk.context())
        assert found.calls == 1
        assert [finding.code for finding in found.problems] == ["damaged"]


class TestCosts:
    def test_a_skill_costs_its_own_bytes_times_the_requests_that_carried_it(self, talk: Talk) -> None:
        talk.say("Hi")
        talk.load_skill()
        talk.reply(usage=Usage(input=1_000))
        talk.say("And?")
        talk.reply(usage=Usage(input=1_000))
        context = talk.context()
        costs = compute_costs(context)
        [skill] = [skill for skill in costs.skills if skill.name == "sql-style"]
        explained = [context.explain(call) for call in context.history.calls]
        own = [piece for one in explained for piece in one.pieces if piece.kind == "skill"]
        assert (skill.requests, skill.listed_requests) == (2, 3)
        assert skill.tokens == own[0].tokens
        assert skill.total_tokens == 2 * skill.tokens + 3 * skill.listed_tokens
        assert skill.cost is not None
        assert skill.cost > sum(piece.cost or 0.0 for piece in own)

    def test_the_timeline_sums_the_cost_and_a_rewound_call_stays_in_it(self, talk: Talk) -> None:
        talk.say("Hi")
        talk.reply(cost=0.5)
        first = talk.session.recorded_messages()[0][0]
        talk.journal.append("session/x", "rewound", {"to": first})
        talk.session = resume(talk.journal, "x")
        talk.say("Hello")
        talk.reply(cost=0.25)
        context = talk.context()
        rows = compute_costs(context).timeline
        assert [row.total_cost for row in rows] == [0.5, 0.75]
        found = diff_calls(context, *context.history.calls)
        assert found.divergence is not None
        assert found.divergence.cause == "the session was rewound"

    def test_what_is_saved_is_beside_all_skills_loaded(self, talk: Talk) -> None:
        talk.say("Hi")
        talk.reply()
        talk.say("Load it")
        talk.load_skill()
        talk.reply()
        rows = {row.name: row for row in compute_costs(talk.context()).savings.tokens}
        assert rows["first call"].saved > rows["last call"].saved
        assert rows["first call"].everything > rows["first call"].used
        assert rows["all calls"].used == sum(row.tokens for row in compute_costs(talk.context()).timeline)

    def test_everything_is_json(self, talk: Talk) -> None:
        _compact(talk)
        context = talk.context()
        calls = context.history.calls
        made = [
            compute_costs(context).to_json(),
            check_calls(context).to_json(),
            context.explain(calls[-1]).to_json(),
            context.explain(context.history.next_request()).to_json(),
            diff_calls(context, calls[0], calls[-1]).to_json(),
        ]
        assert json.loads(json.dumps(made)) == made


def test_what_would_be_sent_now_is_the_next_call(talk: Talk) -> None:
    talk.say("Hi")
    talk.reply()
    now = talk.context().history.next_request()
    talk.say("And?")
    talk.reply()
    history = talk.context().history
    [*earlier, last] = talk.context().request_pieces(history.find(2))
    assert [piece.text for piece in talk.context().request_pieces(now)] == [piece.text for piece in earlier]
    assert last.text == "And?"
    assert now.number == 2


def test_the_sums_of_all_calls_are_those_of_each(talk: Talk) -> None:
    """One pass over a session counts what counting every request counts."""
    talk.say("Hi")
    talk.load_skill()
    talk.reply(Thinking(text="Hm.", provider="openai", opaque="x"), Text("Yes."))
    talk.say("Drop it")
    talk.run(talk.session.drop_skill("sql-style", "unloaded"))
    talk.reply()
    talk.tools = (READ,)
    talk.say("Other tools")
    talk.reply()
    _compact(talk)
    changed = SessionHeader(directory="/w", model="openai/gpt-5", mode="default")
    talk.run(talk.session.switch((), changed))
    talk.say("Another model")
    talk.load_skill("s2")
    talk.reply()
    context = talk.context()
    for one in summarize_calls(context):
        explained = context.explain(one.call)
        assert one.tokens == explained.tokens
        assert one.difference == one.call.difference
        spans = [(piece.name, piece.tokens) for piece in explained.pieces if piece.kind == "skill"]
        assert [(span.name, span.tokens) for span in one.skills] == spans
        if one.before is not None:
            found = diff_calls(context, one.before, one.call)
            assert one.is_broken == (found.divergence is not None)
            assert one.predicted == found.predicted
