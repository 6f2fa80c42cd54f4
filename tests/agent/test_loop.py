"""The loop: from a request to its end, through every way in which a turn can go."""

import json
from itertools import pairwise

import msgspec
import pytest

from agent.talking import FREE, Talk, assert_valid, call, echo, script, tool
from kitbag.agent.budget import Caps
from kitbag.agent.loop import CUT_OFF_MARKER
from kitbag.agent.turn_limits import Limits
from kitbag.errors import UsageError
from kitbag.events import Discarded, MessageAdded, Notice, Retrying, RunEnded, RunStarted, TextDelta, TurnEnded
from kitbag.messages import Text, Usage
from kitbag.testing import Fault, Rule, Script, Step
from kitbag.tools.base import ToolContext, ToolOutput, text_output

ASK = Step(calls=(call("c1", FREE["a"], '{"text": "one"}'),))


def test_without_calls_the_first_reply_is_the_end(talk) -> None:
    one: Talk = talk(script("Hello."))
    ended = one.run("Hi")
    assert (ended.status, ended.text, ended.turns) == ("completed", "Hello.", 1)
    assert [type(event) for event in one.events] == [RunStarted, TextDelta, MessageAdded, TurnEnded, RunEnded]


def test_a_call_is_run_and_its_result_goes_back(talk) -> None:
    one: Talk = talk(script(ASK, "Done."))
    ended = one.run("Hi")
    assert (ended.status, ended.turns) == ("completed", 2)
    assert one.results() == ["heard one"]
    assert_valid(one.session.messages())
    assert one.resumed().messages() == one.session.messages()


def test_what_was_sent_before_is_sent_again_byte_for_byte(talk) -> None:
    steps = [Step(calls=(call(f"c{n}", FREE["a"], f'{{"number": {n}}}'),)) for n in range(5)]
    one: Talk = talk(script(*steps, "Done."))
    one.run("Hi")
    one.run("And now?")
    requests = one.model.requests
    for before, after in pairwise(requests):
        assert after.messages[: len(before.messages)] == before.messages
        assert (after.system, after.tools, after.model) == (before.system, before.tools, before.model)


def test_an_empty_answer_has_a_status_of_its_own(talk) -> None:
    assert talk(script(Step(text=""))).run("Hi").status == "empty"


@pytest.mark.parametrize(("stop", "word"), [("length", "truncated"), ("refusal", "declined")])
def test_an_answer_that_is_none_is_not_called_completed(talk, stop: str, word: str) -> None:
    ended = talk(script(Step(text="I was about", stop=stop))).run("Hi")  # type: ignore[arg-type]
    assert ended.status == "failed"
    assert ended.text == "I was about"
    assert word in ended.error


class TestLimits:
    def test_turns_end_it_with_a_status_and_a_conversation_that_can_go_on(self, talk) -> None:
        one: Talk = talk(script(ASK, Step(calls=(call("c2", FREE["a"]),)), "Done."), limits=Limits(turns=1))
        ended = one.run("Hi")
        assert (ended.status, ended.turns) == ("max-turns", 1)
        assert one.results() == ["heard one"]
        assert_valid(one.session.messages())

    def test_they_count_over_the_whole_session(self, talk) -> None:
        one: Talk = talk(script("One.", "Two.", "Three."), limits=Limits(turns=2))
        assert one.run("a").status == "completed"
        assert one.run("b").status == "completed"
        ended = one.run("c")
        assert (ended.status, ended.turns) == ("max-turns", 0)
        one.session = one.resumed()
        assert one.run("d").status == "max-turns"
        assert len(one.model.requests) == 2

    def test_tokens(self, talk) -> None:
        asks = msgspec.structs.replace(ASK, usage=Usage(input=60, cache_read=400, output=50))
        one: Talk = talk(script(asks, "Done."), caps=Caps(tokens=600))
        ended = one.run("Hi")
        assert (ended.status, len(one.model.requests)) == ("over-budget", 1)
        assert_valid(one.session.messages())
        one.account = msgspec.structs.replace(one.account, caps=Caps(tokens=2_000))
        assert one.run("Continue.").status == "completed"

    def test_cost(self, talk) -> None:
        one: Talk = talk(script(ASK, "Done."), caps=Caps(cost=0.5), price=lambda _: 0.5)
        ended = one.run("Hi")
        assert (ended.status, ended.cost) == ("over-budget", 0.5)

    def test_a_reply_is_no_longer_than_the_budget_allows(self, talk) -> None:
        one: Talk = talk(script(Step(text="A long", stop="length")), caps=Caps(tokens=1_000))
        ended = one.run("Hi")
        assert (ended.status, ended.text) == ("over-budget", "A long")
        assert 256 <= one.model.requests[0].max_output < 1_000

    def test_one_that_can_t_be_kept_is_refused_before_anything_is_sent(self, talk) -> None:
        one: Talk = talk(script("Hello."), caps=Caps(cost=0.5), price=lambda _: None)
        ended = one.run("Hi")
        assert ended.status == "failed"
        assert "price" in ended.error
        assert isinstance(one.error, UsageError)
        assert one.model.requests == []


class TestCallsThatCanNotBeRun:
    def test_three_in_a_row_end_it(self, talk) -> None:
        bad = [Step(calls=(call(f"c{n}", FREE["a"], '{"text": '),)) for n in range(9)]
        one: Talk = talk(script(*bad))
        ended = one.run("Hi")
        assert (ended.status, ended.turns) == ("failed", 3)
        assert all("not valid JSON" in text for text in one.results())
        assert len(one.results()) == 3
        assert_valid(one.session.messages())

    def test_two_corrections_are_enough_where_the_third_is_right(self, talk) -> None:
        bad = [Step(calls=(call(f"c{n}", FREE["a"], "[1]"),)) for n in range(2)]
        one: Talk = talk(script(*bad, ASK, "Done."))
        assert one.run("Hi").status == "completed"

    @pytest.mark.parametrize(
        "arguments",
        ["[]", "{", '{"number": 1e400}', '{"number": NaN}', '{"text": "\\ud800"}', '{"other": 1}', '{"text": 1}',
         '{"number": "1"}', '{"text": null}', '{"text": "a", "text": "b"}', '"x"', "[" * 3_000, '{"a":' * 3_000],
    )  # fmt: skip
    def test_arguments_that_are_not_what_the_tool_takes_never_run(self, talk, arguments: str) -> None:
        ran: list[str] = []

        async def work(given, context: ToolContext) -> ToolOutput:
            ran.append(given.text)
            return text_output("ran", "ran")

        one: Talk = talk(script(Step(calls=(call("c1", FREE["a"], arguments),)), "Done."), tool(FREE["a"], work))
        assert one.run("Hi").status == "completed"
        assert ran == []
        assert one.results()[0].startswith("Error:")

    def test_one_bad_of_three_leaves_the_others_alone(self, talk) -> None:
        calls = (call("c1", FREE["a"], '{"text": "x"}'), call("c2", FREE["a"], "{"), call("c3", FREE["a"]))
        one: Talk = talk(script(Step(calls=calls), "Done."))
        assert one.run("Hi").status == "completed"
        assert [text.split()[0] for text in one.results()] == ["heard", "Error:", "heard"]

    def test_an_unknown_tool_is_answered_with_what_there_is(self, talk) -> None:
        one: Talk = talk(script(Step(calls=(call("c1", "listloadedskills"),)), "Done."))
        one.run("Hi")
        assert f"Did you mean {FREE['a']}" in one.results()[0]


class TestCutOffReplies:
    def test_none_of_its_calls_runs_and_each_has_one_result(self, talk) -> None:
        calls = tuple(call(f"c{n}", FREE["a"], '{"text": "x"}') for n in range(3))
        one: Talk = talk(script(Step(text="Look.", calls=calls, stop="length"), "Done."))
        assert one.run("Hi").status == "completed"
        assert len(one.results()) == 3
        assert all("output limit" in text for text in one.results())
        assert [notice.severity for notice in one.of(Notice)] == ["warning"]
        assert_valid(one.session.messages())
        assert one.resumed().messages() == one.session.messages()
        assert all(one_call.problem for one_call in one.resumed().calls.values())

    def test_two_corrections_are_enough_where_the_third_is_complete(self, talk) -> None:
        bad = [Step(calls=(call(f"b{n}", FREE["a"], '{"text": "x"}'),), stop="length") for n in range(2)]
        one: Talk = talk(script(*bad, ASK, "Done."))
        assert one.run("Hi").status == "completed"
        assert one.results()[-1] == "heard one"

    def test_they_and_calls_that_can_t_be_read_count_together(self, talk) -> None:
        unreadable = Step(calls=(call("c0", FREE["a"], "{"),))
        bad = [Step(calls=(call(f"b{n}", FREE["a"]),), stop="length") for n in range(9)]
        ended = talk(script(unreadable, *bad)).run("Hi")
        assert (ended.status, ended.turns) == ("failed", 3)
        assert "output limit" in ended.error

    @pytest.mark.parametrize(
        ("step", "word"),
        [
            (Step(stop="refusal"), "declined"),
            (Step(stop_reason="pause_turn"), "pause_turn"),
            (Step(stop="other"), "without"),
        ],
    )
    def test_the_end_after_two_corrections_says_why(self, talk, step: Step, word: str) -> None:
        bad = [msgspec.structs.replace(step, calls=(call(f"b{n}", FREE["a"]),)) for n in range(9)]
        ended = talk(script(*bad)).run("Hi")
        assert (ended.status, ended.turns) == ("failed", 3)
        assert word in ended.error

    def test_the_same_call_under_the_same_id_may_be_sent_again(self, talk) -> None:
        ran: list[str] = []

        async def work(given, context: ToolContext) -> ToolOutput:
            ran.append(given.text)
            return text_output("ran", "ran")

        whole = Step(calls=(call("c1", "TodoWrite", '{"text": "x"}'),))
        one: Talk = talk(
            script(msgspec.structs.replace(whole, stop="length"), whole, "Done."),
            tool("TodoWrite", work, reads_only=False),
        )
        assert one.run("Hi").status == "completed"
        assert ran == ["x"]
        assert_valid(one.session.messages())


class TestIdsThatComeAgain:
    def test_the_same_call_twice_in_one_reply_is_run_once(self, talk) -> None:
        calls = (call("same", FREE["a"], '{"text": "x"}'), call("same", FREE["a"], '{"text": "x"}'))
        one: Talk = talk(script(Step(calls=calls), "Done."))
        assert one.run("Hi").status == "completed"
        assert one.results() == ["heard x"]
        assert any("same tool call twice" in notice.text for notice in one.of(Notice))
        assert_valid(one.session.messages())

    @pytest.mark.parametrize("call_id", ["same", "", "a b", "x" * 41])
    def test_different_calls_of_one_reply_that_share_an_id_all_run(self, talk, call_id: str) -> None:
        calls = tuple(call(call_id, FREE["a"], json.dumps({"text": text})) for text in "xyz")
        one: Talk = talk(script(Step(calls=calls), "Done."))
        assert one.run("Hi").status == "completed"
        assert one.results() == ["heard x", "heard y", "heard z"]
        assert_valid(one.session.messages())
        assert one.resumed().messages() == one.session.messages()

    def test_in_a_later_reply_it_is_another_call(self, talk) -> None:
        again = Step(calls=(call("c1", FREE["a"], '{"text": "two"}'),))
        one: Talk = talk(script(ASK, again, again, "Done."))
        assert one.run("Hi").status == "completed"
        assert one.results() == ["heard one", "heard two", "heard two"]
        assert_valid(one.session.messages())
        assert one.resumed().messages() == one.session.messages()

    def test_what_has_an_effect_is_not_done_twice(self, talk) -> None:
        ran: list[str] = []

        async def work(given, context: ToolContext) -> ToolOutput:
            ran.append(given.text)
            return text_output("ran", "ran")

        one_call = Step(calls=(call("c1", "TodoWrite", '{"text": "x"}'),))
        one: Talk = talk(script(one_call, one_call, "Done."), tool("TodoWrite", work, reads_only=False))
        assert one.run("Hi").status == "completed"
        assert ran == ["x"]
        assert "not run again" in one.results()[1]


class TestAProviderThatFails:
    def test_what_may_pass_is_asked_again(self, talk) -> None:
        one: Talk = talk(script(Step(text="Hello.", fault=Fault(times=2, status=503))))
        assert one.run("Hi").text == "Hello."
        assert len(one.of(Retrying)) == 2
        assert one.of(Discarded) == []

    def test_what_was_shown_of_a_broken_reply_is_taken_back(self, talk) -> None:
        one: Talk = talk(script(Step(text="Hello, you.", fault=Fault(times=1, kind="cut-text"))))
        assert one.run("Hi").text == "Hello, you."
        assert len(one.of(Discarded)) == 1
        assert one.session.messages()[-1].text == "Hello, you."

    @pytest.mark.parametrize("status", [400, 401, 403])
    def test_what_won_t_pass_is_not(self, talk, status: int) -> None:
        one: Talk = talk(script(Step(text="Hello.", fault=Fault(times=9, status=status))))
        ended = one.run("Hi")
        assert ended.status == "failed"
        assert str(status) in ended.error
        assert len(one.model.requests) == 1

    def test_in_the_end_the_text_is_kept_and_marked_and_the_session_goes_on(self, talk) -> None:
        steps = [Step(text="Hello, you.", fault=Fault(times=3, kind="cut-text")), "Fine."]
        one: Talk = talk(script(*steps))
        ended = one.run("Hi")
        assert (ended.status, ended.text) == ("failed", "Hello")
        assert one.session.messages()[-1].text == f"Hello\n\n{CUT_OFF_MARKER}"
        assert one.session.totals.turns == 0
        assert one.run("Again").status == "completed"
        assert_valid(one.session.messages())
        assert one.resumed().messages() == one.session.messages()


def test_half_characters_are_sent_to_nobody(talk) -> None:
    one: Talk = talk(script(Step(text="odd \ud800 text"), "Fine."))
    assert one.run("Hi \udcff").status == "completed"
    assert one.run("Hi").status == "completed"
    for message in one.session.messages():
        message.text.encode()
    assert "\\udcff" in one.session.messages()[0].text
    assert one.resumed().messages() == one.session.messages()


def test_a_result_that_is_too_long_is_cut_and_says_so(talk) -> None:
    async def work(given, context: ToolContext) -> ToolOutput:
        return ToolOutput(content=(Text("x" * 1_000_000), Text("y" * 1_000_000)), summary="long")

    one: Talk = talk(script(Step(calls=(call("c1", FREE["a"]),)), "Done."), tool(FREE["a"], work))
    one.run("Hi")
    assert len(one.results()[0]) < 61_000
    assert "characters truncated" in one.results()[0]


def test_the_calls_of_a_long_session_cost_no_more_than_those_of_a_short(talk) -> None:
    """By what is looked at, not by time: the view is not made anew with each turn."""
    steps = [Step(calls=(call(f"c{n}", FREE["a"]),)) for n in range(30)]
    one: Talk = talk(script(*steps, "Done."))
    one.run("Hi")
    views = [request.messages for request in one.model.requests]
    assert all(a is b for a, b in zip(views[-2], views[-1], strict=False))


def test_a_rule_may_look_at_what_was_said(talk) -> None:
    rules = Script([Rule([Step(text="one")], first="first"), Rule([Step(text="two")])])
    assert talk(rules, tool(FREE["a"], echo)).run("the first").text == "one"
