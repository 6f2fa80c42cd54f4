"""Questions to the person: how they reach whoever asks, and what the model hears of the answers."""

import asyncio
from typing import Any

import msgspec
import pytest

from kitbag.errors import KitbagError
from kitbag.tools.ask_user import ASK_USER
from kitbag.tools.base import UserQuestion
from support.using import Bench, text_of


class Person:
    def __init__(self, *answers: str) -> None:
        self.answers = answers
        self.asked: tuple[UserQuestion, ...] = ()

    async def ask(self, questions: tuple[UserQuestion, ...]) -> tuple[str, ...]:
        self.asked = questions
        return self.answers


class Nobody:
    async def ask(self, questions: tuple[UserQuestion, ...]) -> tuple[str, ...]:
        raise KitbagError("the terminal is gone")


DATABASE = {
    "question": "Which database?",
    "header": "Storage",
    "options": [{"label": "Postgres", "description": "Larger"}, {"label": "SQLite"}],
    "multiSelect": True,
}


def test_the_person_gets_the_questions_and_the_model_the_answers(bench: Bench) -> None:
    person = Person("Postgres, SQLite", "In March.")
    outcome = bench.use(ASK_USER, bench.allowing(asker=person), questions=[DATABASE, {"question": "When?"}])
    assert person.asked == (
        UserQuestion(
            text="Which database?",
            header="Storage",
            options=(("Postgres", "Larger"), ("SQLite", "")),
            multi_select=True,
        ),
        UserQuestion(text="When?"),
    )
    assert text_of(outcome) == "Which database?\n-> Postgres, SQLite\n\nWhen?\n-> In March."
    assert outcome.summary == "Postgres, SQLite; In March."
    assert "When?\n  In March." in outcome.details


def test_no_answer_is_told_and_no_error(bench: Bench) -> None:
    outcome = bench.use(ASK_USER, bench.allowing(asker=Person("", " ")), questions=[DATABASE, {"question": "When?"}])
    assert not outcome.is_error
    assert text_of(outcome).count("no answer from the user; decide yourself") == 2
    assert outcome.summary == "no answer; no answer"


@pytest.mark.parametrize("person", [None, Nobody()], ids=["none", "gone"])
def test_where_nobody_can_be_asked_the_model_is_told_what_to_do(bench: Bench, person: Any) -> None:
    outcome = bench.use(ASK_USER, bench.allowing(asker=person), questions=[DATABASE])
    assert outcome.is_error
    assert text_of(outcome).endswith("Decide yourself and state your assumptions in your answer.")


def test_to_wait_for_the_person_can_be_cancelled(bench: Bench) -> None:
    class Silent:
        async def ask(self, questions: tuple[UserQuestion, ...]) -> tuple[str, ...]:
            began.set()
            await asyncio.Event().wait()
            return ()

    async def run() -> None:
        asking = asyncio.create_task(bench.using(ASK_USER, {"questions": [DATABASE]}, bench.allowing(asker=Silent())))
        await began.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    began = asyncio.Event()
    asyncio.run(run())


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"questions": []},
        {"questions": [{"question": "a?"}] * 5},
        {"questions": "a?"},
        {"questions": ["a?"]},
        {"questions": [{"question": " "}]},
        {"questions": [{"question": "x" * 2_001}]},
        {"questions": [{"question": "a?", "options": [{"label": "A"}, {"label": " a "}]}]},
        {"questions": [{"question": "a?", "options": [{"label": ""}]}]},
        {"questions": [{"question": "a?", "options": ["A", "B"]}]},
        {"questions": [{"question": "a?", "options": [{"label": str(n)} for n in range(11)]}]},
        {"questions": [{"question": "a?", "multiSelect": "yes"}]},
        {"questions": [{"question": "a?", "default": "A"}]},
    ],
    ids=lambda wrong: str(wrong)[:50],
)
def test_questions_that_are_none_are_refused(wrong: dict[str, Any]) -> None:  # D58
    with pytest.raises(msgspec.ValidationError):
        ASK_USER.parse_arguments(wrong)


def test_hidden_characters_of_an_answer_can_be_seen(bench: Bench) -> None:
    outcome = bench.use(ASK_USER, bench.allowing(asker=Person("yes\u202e\ud800")), questions=[{"question": "a\u200b?"}])
    assert "a[U+200B]?\n-> yes[U+202E]" in text_of(outcome)
    text_of(outcome).encode()
    assert "$ref" not in str(ASK_USER.spec.schema)
