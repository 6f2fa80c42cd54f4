"""Requests that are carried out word for word: what is one of them, and that nothing else is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.models.offline.commands import (
    REQUEST_FORMS,
    CollectRequest,
    ReplaceRequest,
    RunCommandRequest,
    RunTestsRequest,
    UnclearRequest,
    parse_request,
)
from support.cost import processor_limit


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("Replace `a` by `b`", ReplaceRequest(old="a", new="b", paths=())),
        ('Replace "round_down" by "round_half_even" in app/', ReplaceRequest(old="round_down", new="round_half_even", paths=("app/",))),
        ("please rename round_down to half_up everywhere.", ReplaceRequest(old="round_down", new="half_up", paths=())),
        ("Can you change 'old text here' to “new text”?", ReplaceRequest(old="old text here", new="new text", paths=())),
        ("Rename every use of `Line` to `OrderLine` in app and tests", ReplaceRequest(old="Line", new="OrderLine", paths=("app", "tests"))),
        ("rename the function getTotal to total_of in the file app/a.py", ReplaceRequest(old="getTotal", new="total_of", paths=("app/a.py",))),
        ("Replace math.floor with money.half_up in all files", ReplaceRequest(old="math.floor", new="money.half_up", paths=())),
        ("Replace `a` by `` in the whole project", None),
        ('Replace "a" by "" in the whole project', ReplaceRequest(old="a", new="", paths=())),
        ('Replace "it\'s" with "it is" in `my docs/a b.md`', ReplaceRequest(old="it's", new="it is", paths=("my docs/a b.md",))),
        ("Replace `x` by `y` in a/b.py, and run the tests", ReplaceRequest(old="x", new="y", paths=("a/b.py",), run_tests=True)),
        ("Replace `x` by `y` in a/, b/ and c/. Then run all tests!", ReplaceRequest(old="x", new="y", paths=("a/", "b/", "c/"), run_tests=True)),
        ("Replace `x` by `y` in . and run the tests", ReplaceRequest(old="x", new="y", paths=(".",), run_tests=True)),
        ("Collect every TODO and FIXME into docs/todo.md", CollectRequest(words=("TODO", "FIXME"), exact=True, file="docs/todo.md")),
        ("List all TODO comments in app/ to todo.txt", CollectRequest(words=("TODO",), exact=True, file="todo.txt", path="app/")),
        ("Save all lines with `parse_money` to the file uses.md", CollectRequest(words=("parse_money",), exact=True, file="uses.md")),
        ('write every use of "half up", refund_all and XXX to a/b-c.md', CollectRequest(words=("half up", "refund_all", "XXX"), exact=True, file="a/b-c.md")),
        ("Write what you find about refunds to notes.md", CollectRequest(words=("refunds",), exact=False, file="notes.md")),
        ("Save everything about money and tax into ./notes.md, please", CollectRequest(words=("money", "and", "tax"), exact=False, file="./notes.md")),
        ("Run `python3 -m unittest -v`", RunCommandRequest(command="python3 -m unittest -v")),
        ("run the tests", RunTestsRequest()),
        ("Please run all the unit tests again.", RunTestsRequest()),
        ("Run the test suite", RunTestsRequest()),
    ],
)  # fmt: skip
def test_a_form_is_understood(text: str, wish: object) -> None:
    assert wish is None or parse_request(text) == wish
    if wish is None:
        assert isinstance(parse_request(text), UnclearRequest)


@pytest.mark.parametrize("form", REQUEST_FORMS)
def test_the_forms_that_are_told_are_forms(form: str) -> None:
    assert not isinstance(parse_request(form.replace("PATH", "app/").replace("FILE", "a")), UnclearRequest | None)


@pytest.mark.parametrize(
    "text",
    [
        "Replace `a` by `b` in app/ but not in app/billing.py",
        "Replace `a` by `b` unless it is quoted",
        "Do not replace `a` by `b`",
        "Never run the tests",
        "Replace `a` by `b` and `c` by `d`",
        "Replace apples with pears",
        "Rename `docs/a.md` to `docs/b.md`",
        "Rename README.md to readme.md",
        "Replace `` by `b`",
        "Replace by `b`",
        "Replace `a` by",
        "Replace `a` by `b` in",
        "Replace `a` by `b` in the tests that fail",
        "How would I replace `a` by `b`?",
        "Explain: Replace `a` by `b`",
        "Collect every TODO into app/todo.py",
        "Collect every TODO into docs/todo.md and delete them",
        "Collect bugs into docs/todo.md",
        "Write a poem to poem.md",
        'Run "rm -rf /"',
        "Run ` `",
        "Run `ls` unless it is dangerous",
        "Run `ls` and `id`",
        "Run the tests and fix what fails",
        "Run the tests of billing.py only",
        "What does `Run the tests` mean?",
        "",
        "`",
        "Replace `a` by `b`" + " please" * 1000,
    ],
)
def test_a_word_that_has_no_place_in_a_form_makes_it_none(text: str) -> None:
    assert isinstance(parse_request(text), UnclearRequest | None)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("Replace apples with pears", REQUEST_FORMS[0]),
        ("Rename foo to bar", REQUEST_FORMS[0]),
        ("Collect bugs into docs/todo.md", REQUEST_FORMS[1]),
        ("Run the tests and fix what fails", REQUEST_FORMS[3]),
    ],
)
def test_what_begins_like_a_form_is_told_apart_from_a_question(text: str, form: str) -> None:
    assert parse_request(text) == UnclearRequest(form=form)


@pytest.mark.parametrize(
    "text",
    [
        "Find the refund function",
        "List the skills",
        "Write a test for refund",
        "Run away",
        "Change my mind",
        "Put it on",
    ],
)
def test_everyday_requests_are_none_of_this(text: str) -> None:
    assert parse_request(text) is None


@given(st.text(alphabet=st.sampled_from("ab `\"'“”‘’«».,;/\n"), max_size=60))
def test_nothing_breaks_it(text: str) -> None:
    for start in ("", "Replace ", "Replace `a` by ", "Collect ", "Write what is about ", "Run "):
        parse_request(start + text)


@pytest.mark.parametrize("piece", ["`", "`a", '"', "' ", "a.", "in a and ", "A_", ",", "replace `a` by "])
def test_what_is_long_takes_no_longer_than_reading_it(piece: str) -> None:
    with processor_limit():
        for size in (1_900, 1_000_000):
            parse_request(f"Replace `a` by `b` in {piece * (size // len(piece))}"[:size])
