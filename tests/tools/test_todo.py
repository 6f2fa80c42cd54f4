"""The list of what is to be done: what the model and the person are told, and that it is told again."""

from typing import Any

import msgspec
import pytest

from kitbag.messages import ToolCall
from kitbag.tools.todo import TODO_WRITE, render_last_todos
from support.using import Bench, text_of


def item(content: str, status: str = "pending", **more: Any) -> dict[str, Any]:
    return {"content": content, "status": status, **more}


LIST = [
    item("Read the code", "completed"),
    item("Write tests", "in_progress", activeForm="Writing tests", priority="high", id="2"),
    item("Tell the user", id=3),
]


def test_the_person_sees_the_list_and_how_far_it_is(bench: Bench) -> None:
    outcome = bench.use(TODO_WRITE, todos=LIST)
    assert outcome.summary == "1 of 3 done: Writing tests"
    assert outcome.details.splitlines() == ["[x] Read the code", "[>] Write tests (high)", "[ ] Tell the user"]
    assert text_of(outcome) == "Todo list updated: 1 of 3 done."


def test_the_model_is_reminded_to_work_at_one_thing(bench: Bench) -> None:
    none, two = [item("a"), item("b")], [item("a", "in_progress"), item("b", "in_progress")]
    assert text_of(bench.use(TODO_WRITE, todos=none)).endswith("0 todos are in_progress; keep exactly one.")
    assert text_of(bench.use(TODO_WRITE, todos=two)).endswith("2 todos are in_progress; keep exactly one.")
    done = bench.use(TODO_WRITE, todos=[item("a", "completed")])
    assert (text_of(done), done.summary) == ("Todo list updated: 1 of 1 done.", "1 of 1 done")


def test_an_empty_list_ends_it(bench: Bench) -> None:
    assert text_of(bench.use(TODO_WRITE, todos=[])) == "Todo list cleared."


@pytest.mark.parametrize("mode", ["default", "plan", "locked", "acceptEdits", "autonomous"])
def test_it_needs_no_answer_in_any_mode_but_obeys_rules(bench: Bench, mode: Any) -> None:
    assert bench.allowing(mode=mode).permissions.decide("TodoWrite", {"todos": LIST}).effect == "allow"
    assert bench.allowing(mode=mode, deny="TodoWrite").permissions.decide("TodoWrite", {"todos": LIST}).effect == "deny"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"todos": None},
        {"todos": "Write tests"},
        {"todos": [None]},
        {"todos": [{}]},
        {"todos": [{"content": "a"}]},
        {"todos": [item("a", "done")]},
        {"todos": [item("")]},
        {"todos": [item(" \n\t")]},
        {"todos": [item("x" * 501)]},
        {"todos": [item("a", more=1)]},
        {"todos": [item("a", priority="urgent")]},
        {"todos": [item("a", id=1.5)]},
        {"todos": [item("a")] * 101},
        {"todos": [], "list": []},
    ],
    ids=lambda wrong: str(wrong)[:40],
)
def test_a_list_that_is_none_is_refused(wrong: dict[str, Any]) -> None:  # D58
    with pytest.raises(msgspec.ValidationError):
        TODO_WRITE.parse_arguments(wrong)


def test_whatever_stands_in_an_item_is_one_line_that_can_be_sent(bench: Bench) -> None:
    outcome = bench.use(TODO_WRITE, todos=[item("a\n[x] b\u202e\x1b[2J", "in_progress")])
    assert outcome.details == "[>] a [x] b[U+202E][U+001B][2J"
    assert "\n" not in outcome.summary


def test_its_schema_stands_on_its_own() -> None:
    assert "$ref" not in str(TODO_WRITE.spec.schema)
    items = TODO_WRITE.spec.schema["properties"]["todos"]["items"]
    assert items["required"] == ["content", "status"]
    assert set(items["properties"]) == {"activeForm", "content", "status"}


def test_fields_that_other_agents_send_are_accepted_and_not_advertised() -> None:
    todo = {"content": "x", "status": "pending", "priority": "high", "id": 1}
    assert TODO_WRITE.parse_arguments({"todos": [todo]}).todos[0].priority == "high"
    assert "priority" not in str(TODO_WRITE.spec.schema)


def calls(*lists: list[Any]) -> dict[str, ToolCall]:
    made = [ToolCall(id=f"c{at}", name="TodoWrite", arguments={"todos": todos}) for at, todos in enumerate(lists)]
    return {call.id: call for call in made}


def test_the_last_list_that_was_written_is_told_again() -> None:
    called = calls([item("old")], LIST, [item("never run")])
    told = render_last_todos(called, {"c0", "c1"}, ())
    assert told.splitlines()[2:-1] == ["[x] Read the code", "[>] Write tests (high)", "[ ] Tell the user"]


def test_a_list_that_the_conversation_still_holds_is_not_told_again() -> None:
    assert render_last_todos(calls(LIST), {"c0"}, {"c0"}) == ""
    assert render_last_todos(calls(LIST, []), {"c0", "c1"}, ()) == ""
    assert render_last_todos({}, (), ()) == ""


def test_a_long_list_is_told_without_what_is_done_and_closes_no_tag() -> None:
    many = [item(f"done {n}", "completed") for n in range(40)] + [
        item(f"</todo-list> {n} {'x' * 400}") for n in range(30)
    ]
    told = render_last_todos(calls(many), {"c0"}, ())
    assert told.count("</todo-list>") == 1
    assert "done 1" not in told
    assert "(40 more, 40 of them done.)" in told
    assert len(told) < 8_000
