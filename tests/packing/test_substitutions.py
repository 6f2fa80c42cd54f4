"""Arguments stand where the skill's author put them, once, and nowhere else."""

import shlex
import subprocess

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from kitbag.packing.substitutions import ArgumentSubstitution, InvocationArguments
from support.cost import processor_limit


def put(text: str, given: InvocationArguments, **paths: str) -> str:
    return ArgumentSubstitution(given, text, paths).substitute_in_text(text)


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        ("Fix $ARGUMENTS now", "the bug", "Fix the bug now"),
        ("Fix $ARGUMENTS", "", "Fix "),
        ("Fix $ARGUMENTS", '  "as  typed"  ', 'Fix   "as  typed"  '),
        ("$0 and $1", '"hello world" second', "hello world and second"),
        ("$ARGUMENTS[1]-$ARGUMENTS[0]", "a b", "b-a"),
        ("$ARGUMENTS[7] $ARGUMENTS[99999999999999999999]", "a", "$ARGUMENTS[7] $ARGUMENTS[99999999999999999999]"),
        ("$ARGUMENTS[x] $ARGUMENTS[", "a", "a[x] a["),
        ("costs $5 and $12", "a b", "costs $5 and $12"),
        ("$0 $7", "a", "a $7"),
        ("$0.50 or $0,", "a", "a.50 or a,"),
        ("${0} $$ $ $-1 ${ARGUMENTS}", "a", "${0} $$ $ $-1 ${ARGUMENTS}"),
        ("$" + "9" * 5_000, "a", "$" + "9" * 5_000),
        ("$１ and $٣", "a b c d", "$１ and $٣"),
        ("$ARGUMENTSX $ARGUMENTS_ $10k $arguments", "a", "$ARGUMENTSX $ARGUMENTS_ $10k $arguments"),
        ("```\ngh issue view $0\n```", "12", "```\ngh issue view 12\n```"),
        ("$ARGUMENTS", "$0 $ARGUMENTS !`id` ${SKILL_ROOT}", "$0 $ARGUMENTS !`id` ${SKILL_ROOT}"),
        ("$0", "it's open", "it's"),
        ("$0|$1", "'' x", "|x"),
    ],
)
def test_each_form_is_replaced_by_its_rule(text: str, arguments: str, expected: str) -> None:
    assert put(text, InvocationArguments(text=arguments), SKILL_ROOT="/s") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\$0 \$ARGUMENTS \$ARGUMENTS[0] \$place", "$0 $ARGUMENTS $ARGUMENTS[0] $place"),
        (r"\$5", "$5"),
        (r"\\$0", r"\\a"),
        (r"\\\$0", r"\\$0"),
        (r"\$HOME $HOME \$other", r"\$HOME $HOME \$other"),
        (r"\${SKILL_ROOT}", r"\/s"),
        ("\\", "\\"),
    ],
)
def test_a_backslash_keeps_what_would_be_replaced_and_nothing_else(text: str, expected: str) -> None:
    assert put(text, InvocationArguments(text="a", names=("place",)), SKILL_ROOT="/s") == expected


def test_declared_names_are_replaced_and_missing_ones_are_empty() -> None:
    given = InvocationArguments(text="prod", names=("place", "tag", "issue-number"))
    assert put("deploy $place [$tag] $other $placeholder $Place", given) == "deploy prod [] $other $placeholder $Place"
    assert put("$issue-number $place-x", InvocationArguments(text="a b c", names=given.names)) == "c a-x"


def test_a_name_that_is_a_number_declares_nothing() -> None:
    assert put("$1 $0", InvocationArguments(append=True, text="a b", names=("1", "", "x.y"))) == "b a"


def test_opencode_counts_from_one_and_its_last_number_takes_the_rest() -> None:
    given = InvocationArguments(text="a b c d", one_based=True)
    assert put("$1 then $2; $0", given) == "a then b c d; $0"
    assert put("$1 then $2; $5", given) == "a then b; $5"
    assert put("$ARGUMENTS[1]", given) == "a"


def test_the_last_number_is_that_of_the_whole_text_and_not_of_a_piece() -> None:
    whole = ArgumentSubstitution(InvocationArguments(text="a b c d", one_based=True), "$1 and later $3")
    assert whole.substitute_in_text("$1 and") == "a and"
    assert whole.substitute_in_text(" later $3") == " later c d"
    assert whole.substitute_in_command("echo $1").text == "echo a"


def test_arguments_without_a_place_stand_at_the_end() -> None:
    def delivered(text: str, given: InvocationArguments) -> str:
        substitution = ArgumentSubstitution(given, text)
        return substitution.append_unused_arguments(substitution.substitute_in_text(text))

    assert delivered("Do it.", InvocationArguments(append=True, text="a b")) == "Do it.\n\nARGUMENTS: a b"
    assert (
        delivered(r"For \$0, $9 or $HOME.", InvocationArguments(append=True, text="a b"))
        == "For $0, $9 or $HOME.\n\nARGUMENTS: a b"
    )
    assert delivered("Do $1.", InvocationArguments(append=True, text="a b")) == "Do b."
    assert delivered("Do $x.", InvocationArguments(append=True, text="a b", names=("y", "z", "x"))) == "Do ."
    assert delivered("Do it.", InvocationArguments(text=" ")) == "Do it."


def test_paths_are_put_in_with_the_arguments_in_one_pass() -> None:
    text = put("${SKILL_ROOT}/a $0 ${OTHER}", InvocationArguments(text="${SKILL_ROOT}"), SKILL_ROOT="/has $0 in it")
    assert text == "/has $0 in it/a ${SKILL_ROOT} ${OTHER}"


NASTY = [
    "x; touch CANARY",
    "$(touch CANARY)",
    "`touch CANARY`",
    "-f /etc/passwd",
    "a\nb",
    "'",
    '"',
    "' ; touch CANARY ; '",
    '" ; touch CANARY ; "',
    "$HOME ${HOME} $0",
    "*",
    "{{ARGUMENT_0}}",
    "a=b",
    "\\",
    "!x",
    "~",
    "#",
]


@pytest.mark.parametrize("value", NASTY)
@pytest.mark.parametrize(
    "command", ["printf '%s\\n' $ARGUMENTS", "printf '%s\\n' \"$ARGUMENTS\"", "printf '%s\\n' '$ARGUMENTS'"]
)
def test_inside_a_command_an_argument_is_one_word_that_is_never_code(
    command: str, value: str, tmp_path: "object"
) -> None:
    filled = ArgumentSubstitution(InvocationArguments(text=value), command).substitute_in_command(command)
    assert filled.unsafe == ""
    done = subprocess.run(["/bin/sh", "-c", filled.text], capture_output=True, text=True, cwd=str(tmp_path))
    assert done.stdout == f"{value}\n"
    assert done.returncode == 0


@for_all(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1))
def test_whatever_an_argument_holds_it_is_one_word(value: str) -> None:
    filled = ArgumentSubstitution(InvocationArguments(text=value), "").substitute_in_command("grep $ARGUMENTS file")
    assert shlex.split(filled.text) == ["grep", value, "file"]


def test_a_place_where_a_value_could_be_code_is_named() -> None:
    for command in ("cat <<EOF\n$0\nEOF", 'sh -c "echo $0"', "echo `echo $0`", "awk '{print $0}' f", "true # $0"):
        assert (
            ArgumentSubstitution(InvocationArguments(text="'x y;z'"), command).substitute_in_command(command).unsafe
        ), command


def test_an_argument_that_nobody_gave_is_no_word_at_all() -> None:
    filled = ArgumentSubstitution(InvocationArguments(text="", names=("name",)), "").substitute_in_command(
        'git log $ARGUMENTS -- "$name" $1'
    )
    assert filled.text == 'git log  -- "" $1'


def test_an_escape_in_a_command_is_for_the_shell_s_own_variables() -> None:
    filled = ArgumentSubstitution(InvocationArguments(text="x"), "").substitute_in_command(r"awk '{print \$1}' f $0")
    assert "awk '{print $1}' f" in filled.text


def test_a_value_in_double_braces_that_the_author_wrote_stays_as_it_is() -> None:
    filled = ArgumentSubstitution(InvocationArguments(text="{{x}}"), "").substitute_in_command(
        "docker ps --format '{{.Names}} {{name}} {{ARGUMENT_0}}' $0"
    )
    assert filled.text == "docker ps --format '{{.Names}} {{name}} {{ARGUMENT_0}}' '{{x}}'"


def test_a_path_with_blanks_is_one_word_in_a_command() -> None:
    command = '${SKILL_ROOT}/run.sh "${SKILL_ROOT}"'
    filled = ArgumentSubstitution(InvocationArguments(), "", {"SKILL_ROOT": "/my skills/$(x)"}).substitute_in_command(
        command
    )
    assert shlex.split(filled.text) == ["/my skills/$(x)/run.sh", "/my skills/$(x)"]


@pytest.mark.parametrize(
    "text", ["\\" * 200_000, "\\$" * 100_000, "$" * 200_000, "$1" * 100_000, "$ARGUMENTS[" * 20_000]
)
def test_no_text_costs_more_than_its_length_asks_for(text: str) -> None:
    with processor_limit():
        ArgumentSubstitution(
            InvocationArguments(append=True, text="a b", names=("x",), one_based=True), text, {"SKILL_ROOT": "/"}
        ).substitute_in_text(text)
