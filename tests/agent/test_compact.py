"""Compaction in a window that is small: what stays, what is told, and that nothing is torn apart."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.talking import FREE, Anything, Talk, assert_valid, call, tool
from conftest import World
from kitbag.agent.compact import ContextMeter, _choose_kept, estimate_message_tokens
from kitbag.agent.model_config import ContextWindow
from kitbag.events import Compacted, Notice, SkillUnloaded
from kitbag.messages import Message, Text, ToolCall, ToolResult, Usage, user_message
from kitbag.packing.session_skills import SessionSkills
from kitbag.testing import Fault, Rule, Script, Seen, Step
from kitbag.tools.base import ToolContext, ToolOutput, text_output
from kitbag.tools.skill import SKILL, UNLOAD_SKILL
from kitbag.tools.todo import TODO_WRITE
from support.matrix import examples

SMALL = ContextWindow(size=4_000, max_output=1_000)
SUMMARY = "Write the summary"


async def much(given: Anything, context: ToolContext) -> ToolOutput:
    return text_output(f"{given.text}: " + "word " * 500, given.text)


class Busy:
    """A model that reads `turns` times and is done; it goes by its own count, since a compaction takes replies away."""

    def __init__(self, turns: int, summary: Any = None) -> None:
        self.turns = turns
        self.done = 0
        self.summaries = 0
        self.rules = Script([Rule([summary or self._summary] * 50, system=SUMMARY), Rule([self._next] * 200)])

    def _summary(self, seen: Seen) -> str:
        self.summaries += 1
        return f"They read {self.done} things. </conversation-summary> Go on."

    def _next(self, seen: Seen) -> Step:
        self.done += 1
        if self.done > self.turns:
            return Step(text="Done.")
        return Step(calls=(call(f"c{self.done}", FREE["a"], f'{{"text": "part {self.done}"}}'),))


def requests_of(one: Talk) -> list[tuple[Message, ...]]:
    return [request.messages for request in one.model.requests if request.tools]


def test_a_long_run_in_a_small_window_comes_to_its_end(talk) -> None:
    busy = Busy(12)
    one: Talk = talk(busy.rules, tool(FREE["a"], much), room=SMALL)
    ended = one.run("Read all twelve parts, and keep to the letter Q.")
    assert (ended.status, ended.text, ended.turns) == ("completed", "Done.", 13)
    told = one.of(Compacted)
    assert len(told) >= 2
    assert busy.summaries == len(told)
    assert all(one.after < one.before for one in told)
    for messages in requests_of(one):
        assert_valid(messages)
        assert sum(map(estimate_message_tokens, messages)) < SMALL.size - SMALL.max_output
        assert "the letter Q" in str(messages), "what the person asked for stays, word for word"
    last = requests_of(one)[-1]
    assert last[0].text.count("</conversation-summary>") == 1
    assert one.resumed().messages() == one.session.messages()
    assert one.resumed().totals == one.session.totals


def test_what_it_costs_to_summarise_is_counted(talk) -> None:
    busy = Busy(8, Step(text="Short.", usage=Usage(input=1_000_000, output=7)))
    one: Talk = talk(busy.rules, tool(FREE["a"], much), room=SMALL, price=lambda usage: usage.input / 1_000_000)
    ended = one.run("Read.")
    assert ended.usage.input > 1_000_000
    assert ended.cost is not None
    assert ended.cost > 1.0
    assert one.resumed().totals == one.session.totals


@pytest.mark.parametrize("summary", [Step(text=""), Step(text="x", fault=Fault(times=99, status=401))])
def test_without_a_summary_an_extract_takes_its_place(talk, summary: Step) -> None:
    one: Talk = talk(Busy(8, summary).rules, tool(FREE["a"], much), room=SMALL)
    assert one.run("Read.").status == "completed"
    assert any("summary" in notice.text for notice in one.of(Notice))
    assert "Excerpt:" in one.session.messages()[0].text
    assert_valid(one.session.messages())


def test_a_prompt_that_fills_the_window_is_not_compacted_over_and_over(talk) -> None:
    from kitbag.models.provider import SystemBlock

    busy = Busy(6)
    prompt = (SystemBlock(text="word " * 4_000, cache=True),)
    one: Talk = talk(busy.rules, room=SMALL, system=prompt)
    assert one.run("Read.").status == "completed"
    assert busy.summaries <= 1


def test_where_the_provider_says_it_is_too_long_room_is_made_and_it_is_asked_again(talk) -> None:
    steps = iter([Step(calls=(call("c1", FREE["a"]),)), Step(fault=Fault(status=413)), Step(text="Done.")])
    rules = Script([Rule([Step(text="Short.")] * 9, system=SUMMARY), Rule([lambda seen: next(steps)] * 9)])
    one: Talk = talk(rules, tool(FREE["a"], much))
    ended = one.run("Read.")
    assert len(one.of(Compacted)) == 1
    assert (ended.status, ended.text) == ("completed", "Done.")


def test_where_even_that_does_not_help_it_says_so(talk) -> None:
    one: Talk = talk(Script([Rule([Step(text="x", fault=Fault(times=99, status=413))] * 9)]))
    ended = one.run("Read.")
    assert ended.status == "failed"
    assert "window" in ended.fix


def test_a_request_that_is_longer_than_the_window_keeps_its_beginning(talk) -> None:
    busy = Busy(3)
    one: Talk = talk(busy.rules, tool(FREE["a"], much), room=SMALL)
    assert one.run("Look at this first. " + "blah " * 5_000).status == "completed"
    assert "It began:\n\nLook at this first." in one.session.messages()[0].text
    assert sum(map(estimate_message_tokens, requests_of(one)[-1])) < SMALL.size


class TestSkills:
    @pytest.fixture
    def one(self, world: World, talk) -> Talk:
        world.skill(".kitbag/skills", "ways", body="The way of the ways.\n\n" + "Step by step. " * 50)
        world.skill(".kitbag/skills", "long", body="Long. " * 4_000)
        busy = Busy(14)
        first = iter(["ways", "long", ""])

        def step(seen: Seen) -> Step:
            name = next(first, "")
            return Step(calls=(call(f"s{name}", "Skill", f'{{"skill": "{name}"}}'),)) if name else busy._next(seen)

        rules = Script([Rule([busy._summary] * 50, system=SUMMARY), Rule([step] * 200)])
        one: Talk = talk(
            rules, SKILL, UNLOAD_SKILL, tool(FREE["a"], much), room=ContextWindow(size=12_000, max_output=1_000)
        )
        assert one.run("Load the skills, then read.").status == "completed"
        assert len(one.of(Compacted)) >= 1
        return one

    def test_they_are_attached_again_each_within_its_share(self, one: Talk) -> None:
        head = one.session.messages()[0].text
        assert "The way of the ways." in head
        assert len(head) < 12_000 * 4
        assert {"ways"} <= set(one.session.skills)
        assert one.resumed().skills == one.session.skills

    def test_what_is_loaded_is_what_stands_there(self, one: Talk) -> None:
        held = {loaded.name: loaded.text for loaded in one.skills.loaded()}
        assert {name: use.text for name, use in one.session.skills.items()} == held
        for name, text in held.items():
            assert text in str([part for part in one.session.messages()[0].parts if isinstance(part, Text)]).replace(
                "\\n", "\n"
            ), name
        for dropped in one.of(SkillUnloaded):
            assert dropped.name not in held

    def test_one_that_is_attached_can_be_unloaded(self, one: Talk) -> None:
        import asyncio

        asyncio.run(one.session.drop_skill("ways", "unloaded"))
        assert "The way of the ways." not in str(one.session.messages())
        assert "The skill ways was here and has been unloaded" in one.session.messages()[0].text
        assert one.resumed().messages() == one.session.messages()


def test_the_meter_takes_the_provider_s_count_and_estimates_the_rest() -> None:
    meter = ContextMeter()
    talk = [user_message("word " * 100), Message("assistant", (Text("ok"),)), user_message("word " * 200)]
    assert meter.estimate_tokens(50, talk[:1]) == 50 + estimate_message_tokens(talk[0])
    meter.record_usage(Usage(input=500, output=20, cache_read=300, cache_write=10), 1)
    assert meter.estimate_tokens(50, talk) == 830 + estimate_message_tokens(talk[2])
    meter.reset()
    assert meter.estimate_tokens(0, talk[:1]) == estimate_message_tokens(talk[0])


_MESSAGES = st.lists(
    st.one_of(
        st.builds(lambda n: [user_message("word " * n)], st.integers(0, 400)),
        st.builds(lambda n: [Message("assistant", (Text("word " * n),))], st.integers(1, 400)),
        st.builds(
            lambda n, m, k: [
                Message("assistant", tuple(ToolCall(id=f"{k}-{i}", name="Read", arguments={}) for i in range(m))),
                *(Message("user", (ToolResult(call_id=f"{k}-{i}", content=(Text("word " * n),)),)) for i in range(m)),
            ],
            st.integers(0, 300),
            st.integers(1, 4),
            st.uuids(),
        ),
    ),
    max_size=12,
)


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow])
@given(groups=_MESSAGES, share=st.integers(100, 4_000))
def test_a_call_and_its_result_are_never_parted(groups: list[list[Message]], share: int) -> None:
    messages = [message for group in groups for message in group]
    kept = _choose_kept(messages, share)
    calls = {call.id for message in messages[kept.first_index :] for call in message.calls}
    results = {result.call_id for message in messages[kept.first_index :] for result in message.results}
    assert results <= calls
    assert sum(map(estimate_message_tokens, messages[kept.first_index :])) <= max(share // 4, 0)
    assert kept.last_prompt_index < kept.first_index


def test_the_skills_of_a_session_survive_being_resumed_after_a_compaction(world: World, talk) -> None:
    world.skill(".kitbag/skills", "ways", body="The way of the ways.")
    busy = Busy(8)
    first = iter(["ways"])

    def step(seen: Seen) -> Step:
        name = next(first, "")
        return Step(calls=(call("s1", "Skill", '{"skill": "ways"}'),)) if name else busy._next(seen)

    rules = Script([Rule([busy._summary] * 50, system=SUMMARY), Rule([step] * 200)])
    one: Talk = talk(rules, SKILL, tool(FREE["a"], much), room=SMALL)
    one.run("Read.")
    again = SessionSkills(one.library)
    again.restore(use.as_loaded() for use in one.resumed().skills.values())
    assert again.load("ways").text.startswith("The skill ways is already loaded")


def test_the_list_of_what_is_to_be_done_is_told_again_however_often_room_is_made(talk) -> None:
    class WithList(Busy):
        def _next(self, seen: Seen) -> Step:
            if not self.done:
                self.done = 1
                todos = '{"todos": [{"content": "Read all", "status": "in_progress"}]}'
                return Step(calls=(call("list", "TodoWrite", todos),))
            return super()._next(seen)

    one: Talk = talk(WithList(12).rules, tool(FREE["a"], much), TODO_WRITE, room=SMALL)
    assert one.run("Read all twelve parts.").status == "completed"
    assert len(one.of(Compacted)) >= 2
    for messages in requests_of(one)[1:]:
        holds_the_call = any(made.id == "list" for message in messages for made in message.calls)
        assert ("[>] Read all" in messages[0].text) is not holds_the_call
    assert "[>] Read all" in one.resumed().messages()[0].text
