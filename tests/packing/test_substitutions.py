"""Arguments stand where the skill's author put them, once, and nowhere else."""

import pytest

from kitbag.packing.substitutions import Given, in_command, substitute, uses_arguments


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        ("Fix $ARGUMENTS now", "the bug", "Fix the bug now"),
        ("Fix $ARGUMENTS", "", "Fix "),
        ("$0 and $1", '"hello world" second', "hello world and second"),
        ("$ARGUMENTS[1]-$ARGUMENTS[0]", "a b", "b-a"),
        ("costs $5 and $12", "a b", "costs $5 and $12"),
        ("$0 $7", "a", "a $7"),
        (r"\$0 \$ARGUMENTS", "a", "$0 $ARGUMENTS"),
        (r"\\$0", "a", r"\\a"),
        (r"\$HOME $HOME", "a", r"\$HOME $HOME"),
        ("$ARGUMENTSX $ARGUMENTS_ $10k", "a", "$ARGUMENTSX $ARGUMENTS_ $10k"),
        ("$ARGUMENTS", "$0 $ARGUMENTS !`id`", "$0 $ARGUMENTS !`id`"),
        ("$0", "it's open", "it's"),
    ],
)
def test_each_form_is_replaced_by_its_rule(text: str, arguments: str, expected: str) -> None:
    assert substitute(text, Given(arguments)) == expected


def test_declared_names_are_replaced_and_missing_ones_are_empty() -> None:
    given = Given("prod", ("place", "tag"))
    assert substitute("deploy $place [$tag] $other", given) == "deploy prod [] $other"


def test_opencode_counts_from_one_and_its_last_number_takes_the_rest() -> None:
    given = Given("a b c d", from_one=True)
    assert substitute("$1 then $2; $0", given) == "a then b c d; $0"


def test_inside_a_command_an_argument_is_a_value_that_is_quoted_later() -> None:
    command, values = in_command("grep $0 $ARGUMENTS f", Given("x; touch y"), "m")
    assert command == "grep {{ARGUMENT_m_0}} {{ARGUMENT_m_1}} f"
    assert values == {"ARGUMENT_m_0": "x;", "ARGUMENT_m_1": "x; touch y"}


def test_a_text_without_places_for_arguments_is_known() -> None:
    assert not uses_arguments(r"price \$1 $HOME", Given("a"))
    assert uses_arguments("for $1", Given("a"))
