"""Running the calls of a reply: what is allowed is what runs, each call has one result, in the model's order."""

import asyncio
import json
from typing import Any

import pytest
from msgspec import structs

from agent.talking import FREE, Anything, Talk, assert_valid, call, echo, script, tool
from kitbag.agent import execute
from kitbag.agent.execute import CANCELLED, NOT_STARTED
from kitbag.agent.transcript import UNKNOWN_OUTCOME
from kitbag.events import Notice, ToolFinished, ToolStarted
from kitbag.messages import Text
from kitbag.permissions.approvals.approval import ApprovalAnswer, ApprovalRequest
from kitbag.permissions.decisions.command import decide_command
from kitbag.shell.analysis import analyze
from kitbag.store.private_files import StoreError
from kitbag.testing import Step
from kitbag.tools.base import ToolContext, ToolOutput, text_output
from kitbag.tools.shell.bash import BASH, NO_OUTPUT
from support.clock import Clock
from support.cost import calls as counting
from support.waiting import TEST_TIMEOUT

WRITES = "NotebookEdit"


def three(name: str) -> Step:
    return Step(calls=tuple(call(f"c{n}", name, f'{{"text": "{n}"}}') for n in range(3)))


def test_calls_that_only_read_run_side_by_side_and_answer_in_order(talk) -> None:
    running: list[str] = []
    all_there = asyncio.Event()

    async def work(given: Anything, context: ToolContext) -> ToolOutput:
        running.append(given.text)
        if len(running) == 3:
            all_there.set()
        await all_there.wait()  # hangs where they run one after another
        for _ in range(3 - int(given.text)):  # the first is the last to be done
            await asyncio.sleep(0)
        return text_output(f"did {given.text}", given.text)

    one: Talk = talk(script(three(FREE["a"]), "Done."), tool(FREE["a"], work))
    assert one.run("Hi").status == "completed"
    assert one.results() == ["did 0", "did 1", "did 2"]


def test_what_is_wrong_with_arguments_is_told_in_few_words_however_long_they_are(talk) -> None:  # D58
    one: Talk = talk(script(Step(calls=(call("c1", FREE["a"], json.dumps({"x" * 100_000: 1})),)), "Done."))
    assert one.run("Hi").status == "completed"
    (told,) = one.results()
    assert told.startswith(f"Error: {FREE['a']} was not run: Object contains unknown field")
    assert len(told) < 1_000


def test_the_others_run_one_after_another(talk) -> None:
    log: list[str] = []

    async def work(given: Anything, context: ToolContext) -> ToolOutput:
        log.append(f"begin {given.text}")
        await asyncio.sleep(0)
        log.append(f"end {given.text}")
        return text_output("ok", "ok")

    one: Talk = talk(script(three("TodoWrite"), "Done."), tool("TodoWrite", work, reads_only=False))
    one.run("Hi")
    assert log == [f"{word} {n}" for n in range(3) for word in ("begin", "end")]
    kinds = [record.kind for record in one.journal.read("session/talk")]
    assert kinds[3:9] == ["intent", "result"] * 3


def test_a_crash_in_calls_with_effects_that_run_side_by_side_leaves_their_outcome_unknown(talk) -> None:
    seen: list[list[tuple[object, ...]]] = []
    running: list[str] = []
    all_there = asyncio.Event()

    async def work(given: Anything, context: ToolContext) -> ToolOutput:
        running.append(given.text)
        if len(running) == 3:
            # What would be there after a crash now.
            seen.append([result.content for result in one.resumed().messages()[-1].results])
            all_there.set()
        await all_there.wait()
        return text_output("ok", "ok")

    beside = structs.replace(tool("TodoWrite", work, reads_only=False), concurrent=True)
    one: Talk = talk(script(three("TodoWrite"), "Done."), beside)
    assert one.run("Hi").status == "completed"
    assert seen == [[(Text(UNKNOWN_OUTCOME),)] * 3]


def test_each_start_has_one_end_whatever_becomes_of_the_call(talk) -> None:
    async def broken(given: Anything, context: ToolContext) -> ToolOutput:
        raise ZeroDivisionError("oops")

    calls = (
        call("good", FREE["a"]),
        call("unknown", "Nothing"),
        call("unreadable", FREE["a"], "{"),
        call("refused", "Write", "{}"),
        call("broken", FREE["b"]),
    )
    tools = (tool(FREE["a"], echo), tool("Write", echo, reads_only=False), tool(FREE["b"], broken))
    one: Talk = talk(script(Step(calls=calls), "Done."), *tools)
    assert one.run("Hi").status == "completed"
    started, finished = one.of(ToolStarted), one.of(ToolFinished)
    assert sorted(event.call_id for event in started) == sorted(event.call_id for event in finished)
    assert {event.call_id: event.is_error for event in finished} == {
        "good": False, "unknown": True, "unreadable": True, "refused": True, "broken": True
    }  # fmt: skip
    assert "failed with an internal error: ZeroDivisionError" in one.results()[-1]


class Person:
    """Answers in the order in which it was told to."""

    one_at_a_time = True

    def __init__(self, *answers: ApprovalAnswer) -> None:
        self.answers = list(answers)
        self.asked: list[ApprovalRequest] = []

    async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(question)
        return self.answers.pop(0)


async def tells_rules(given: Anything, context: ToolContext) -> ToolOutput:
    effect = context.permissions.decide(WRITES, {"notebook_path": given.text}, context.directory).effect
    judged = context.decision.effect if context.decision else "nothing"
    return text_output(f"{effect}, {judged}", "told")


def asks(call_id: str, path: str = "a.ipynb") -> Step:
    return Step(calls=(call(call_id, "Custom", f'{{"text": "{path}"}}'),))


def test_a_rule_that_was_agreed_to_counts_for_the_tool_itself(talk) -> None:
    person = Person(ApprovalAnswer(choice="allow", scope="session", rule="Custom"))
    one: Talk = talk(script(asks("c1"), asks("c2"), "Done."), tool("Custom", tells_rules), approver=person)
    one.run("Hi")
    assert len(person.asked) == 1
    assert one.results() == ["ask, allow", "ask, allow"]


@pytest.mark.parametrize("one_at_a_time", [True, False])
def test_a_command_is_parsed_once_and_decided_when_it_is_asked_about_and_when_it_runs(talk, one_at_a_time) -> None:
    person = Person(ApprovalAnswer(choice="allow"))
    person.one_at_a_time = one_at_a_time
    command = call("c1", "Bash", '{"command": "sleep 0"}')
    one: Talk = talk(script(Step(calls=(command,)), "Done."), BASH, approver=person)
    analyze.cache_clear()
    with counting(analyze.__wrapped__, decide_command) as counted:
        one.run("Hi")
        parsed, decided = counted()
    assert [asked.suggestion for asked in person.asked] == ["Bash(sleep 0)"]
    assert one.results() == [NO_OUTPUT]
    assert (parsed, decided) == (1, 2)


def test_what_a_person_refuses_is_not_run(talk) -> None:
    person = Person(ApprovalAnswer(choice="deny", reason="not today"))
    one: Talk = talk(script(asks("c1"), "Done."), tool("Custom", tells_rules), approver=person)
    one.run("Hi")
    assert "the user denied this action: not today" in one.results()[0]
    assert "intent" not in [record.kind for record in one.journal.read("session/talk")]


def test_how_long_a_person_thought_is_not_the_time_of_the_call(talk, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, execute)

    class Slow(Person):
        async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
            clock.let_pass(3_600)
            return await super().ask(question)

    one: Talk = talk(
        script(asks("c1"), "Done."), tool("Custom", tells_rules), approver=Slow(ApprovalAnswer(choice="allow"))
    )
    one.run("Hi")
    assert one.of(ToolFinished)[0].seconds < 3_600


def test_what_went_wrong_beside_an_answer_is_told_to_the_person(talk) -> None:
    person = Person(ApprovalAnswer(choice="allow", scope="session", rule="Bash(((("))
    one: Talk = talk(script(asks("c1"), "Done."), tool("Custom", tells_rules), approver=person)
    one.run("Hi")
    assert any("could not be saved" in notice.text for notice in one.of(Notice))


def test_arguments_that_change_after_they_were_shown_are_not_run(talk) -> None:
    ran: list[str] = []

    async def work(given: Anything, context: ToolContext) -> ToolOutput:
        ran.append(given.text)
        return text_output("ran", "ran")

    class Cheat(Person):
        async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
            made = one.session.open_calls[0].arguments
            made["text"] = "rm -rf /"
            return await super().ask(question)

    one: Talk = talk(
        script(asks("c1"), "Done."),
        tool("Custom", work, reads_only=False),
        approver=Cheat(ApprovalAnswer(choice="allow")),
    )
    one.run("Hi")
    assert ran == []
    assert "not the action that was approved" in one.results()[0]


class Gate:
    """A tool that waits until it is cancelled."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.left = False

    async def __call__(self, given: Anything, context: ToolContext) -> ToolOutput:
        self.entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left = True
        raise AssertionError


def cancel_when(one: Talk, gate: Gate, times: int = 1) -> Any:
    async def go() -> Any:
        async with asyncio.timeout(TEST_TIMEOUT), one.begun("Hi") as run:
            await gate.entered.wait()
            for _ in range(times):
                run.cancel()
                await asyncio.sleep(0)
            one.events = [event async for event in run]
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return run.ended

    return asyncio.run(go())


def test_cancelling_a_tool_leaves_one_result_for_each_call_of_the_reply(talk) -> None:
    gate = Gate()
    step = Step(calls=(call("c0", FREE["a"]), call("c1", "TodoWrite"), call("c2", "TodoWrite")))
    one: Talk = talk(script(step, "Fine."), tool(FREE["a"], echo), tool("TodoWrite", gate, reads_only=False))
    ended = cancel_when(one, gate)
    assert ended.status == "cancelled"
    assert gate.left
    assert one.results() == ["heard ", CANCELLED, NOT_STARTED]
    assert_valid(one.session.messages())
    assert one.resumed().messages() == one.session.messages()
    assert one.resumed().warnings == []
    assert [event.call_id for event in one.of(ToolFinished)] == ["c0", "c1"]
    assert one.run("Go on").status == "completed"


def test_cancelling_it_over_and_over_changes_nothing(talk) -> None:
    gate = Gate()
    one: Talk = talk(script(three(FREE["a"]), "Fine."), tool(FREE["a"], gate))
    ended = cancel_when(one, gate, times=5)
    assert ended.status == "cancelled"
    assert len(one.results()) == 3
    records = [record for record in one.journal.read("session/talk") if record.kind == "result"]
    assert len(records) == 3
    assert next(reversed(list(one.journal.read("session/talk")))).kind == "ended"


def test_where_nothing_can_be_written_any_more_the_run_ends_and_says_why(talk) -> None:
    async def work(given: Anything, context: ToolContext) -> ToolOutput:
        one.journal.close()
        return text_output("did it", "did it")

    one: Talk = talk(script(three(FREE["a"]), "Done."), tool(FREE["a"], work))
    ended = one.run("Hi")
    assert ended.status == "failed"
    assert "is closed" in ended.error
    assert isinstance(one.error, StoreError)
