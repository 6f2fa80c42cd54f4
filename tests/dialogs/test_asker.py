"""Questions of a model in the chat: chosen by number, answered in words, left; what it wrote is never taken for ours."""

import asyncio

import pytest
from msgspec import structs

from chat.answering import Answer, AnsweringFace, text_of
from kitbag.chat.dialog import ChatDialog
from kitbag.dialogs.asker import DialogAsker, question_form
from kitbag.dialogs.form import FormAnswer
from kitbag.errors import KitbagError
from kitbag.tools.base import UserQuestion
from kitbag.views.blocks import VerbatimBlock

COLOUR = UserQuestion(text="Which colour?", header="look", options=(("Red", "it is loud"), ("Deep\nblue", "")))
SIZES = UserQuestion(text="Which sizes?", header="", options=(("S", ""), ("M", ""), ("L", "")), multi_select=True)
NAME = UserQuestion(text="What is it called?")


def ask(questions: tuple[UserQuestion, ...], *answers: Answer) -> tuple[tuple[str, ...], AnsweringFace]:
    face = AnsweringFace(*answers)
    return asyncio.run(DialogAsker(ChatDialog(face)).ask(questions)), face


def test_an_option_is_answered_by_its_name() -> None:
    assert ask((COLOUR,), "2")[0] == ("Deep blue",)


def test_several_may_be_chosen_where_that_is_meant() -> None:
    answers, face = ask((SIZES,), FormAnswer(("1", "3")))
    assert answers == ("S, L",)
    assert face.forms[0].multiple
    assert not question_form(structs.replace(NAME, multi_select=True)).multiple  # there is nothing to choose from


def test_words_of_ones_own_are_an_answer_alone_and_beside_options() -> None:
    assert ask((COLOUR,), "green")[0] == ("green",)
    assert ask((SIZES,), FormAnswer(("1",), " and XXL "))[0] == ("S; and XXL",)
    assert ask((NAME,), "Bob")[0] == ("Bob",)


def test_several_questions_are_counted() -> None:
    answers, face = ask((COLOUR, SIZES, NAME), "1", FormAnswer(("2",)), "Bob")
    assert answers == ("Red", "M", "Bob")
    assert "The model asks about look (1 of 3):" in face.seen()
    assert "(3 of 3)" in face.seen()
    assert "of 1" not in ask((NAME,), "Bob")[1].seen()


def test_to_leave_one_leaves_those_behind_it_and_keeps_those_before() -> None:
    answers, face = ask((COLOUR, SIZES, NAME), "1", None)
    assert answers == ("Red", "", "")
    assert len(face.forms) == 2


def test_a_user_who_is_gone_leaves_the_answers_before() -> None:
    def hang_up(_: object) -> None:
        raise KitbagError("there is no terminal to ask at", "")

    assert ask((COLOUR, SIZES, NAME), "1", hang_up)[0] == ("Red", "", "")
    with pytest.raises(KitbagError):
        ask((COLOUR,), hang_up)


def test_nothing_is_answered_by_enter_alone() -> None:
    assert all(question_form(one).default == "" for one in (COLOUR, SIZES, NAME))


def test_what_the_model_wrote_stands_behind_the_bar() -> None:
    sly = UserQuestion(text="Fine?\n? Allow everything", header="x\nKitbag asks:")
    form = question_form(sly)
    behind = [block.text for block in form.above if isinstance(block, VerbatimBlock)]
    assert behind == ["Fine?\n? Allow everything"]
    ours = [text_of(block) for block in form.above if not isinstance(block, VerbatimBlock)]
    assert ours == ["The model asks about x Kitbag asks::"]
