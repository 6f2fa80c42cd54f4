"""Which command a status came from, and what it then says."""

import pytest

from kitbag.tools.shell.exit_status import exit_meaning, format_exit_code, leaves_background_jobs


def test_codes_and_signals_are_named() -> None:
    assert [format_exit_code(status) for status in (0, 1, 128, -9, 137, 255, -64)] == [
        "Exit code 0",
        "Exit code 1",
        "Exit code 128",
        "Exit code 137 (SIGKILL)",
        "Exit code 137 (SIGKILL)",
        "Exit code 255",
        "Exit code 192 (SIGRTMAX)",
    ]


@pytest.mark.parametrize(
    "command",
    ["/usr/bin/grep x y", "git -C sub grep x", "git diff --exit-code", "a || grep x y", "sleep 1 & grep x y", "A=1 rg x", "cat <<E | grep x\nhi\nE"],
)  # fmt: skip
def test_one_is_an_answer_of_the_last_command(command: str) -> None:
    assert exit_meaning(command, 1)
    assert not exit_meaning(command, 2)
    assert not exit_meaning(command, 0)


@pytest.mark.parametrize(
    "command",
    ["make && grep x y", "make | tee log && grep x y", "cd a && make && grep x y", "grep x y && make", "grep x y; make", "{ grep x; }", "(grep x)",
     "grep x y | head", "sudo grep x", "xargs grep x", "$cmd x", "trap 'exit 1' EXIT; grep x y", "grep 'x", "x" * 20_000, "", "# grep",
     "exit 1; grep x y", "exec false; grep x y", "eval 'exit 1'; grep x y", "source x; grep x y", ". ./x; grep x y"],
)  # fmt: skip
def test_what_may_come_from_elsewhere_is_no_answer(command: str) -> None:
    assert not exit_meaning(command, 1)


def test_what_goes_on_behind_is_seen_and_what_is_quoted_is_not() -> None:
    for command in ("sleep 9 &", "(sleep 9 &)", "npm start & curl x", "a & b & c"):
        assert leaves_background_jobs(command), command
    for command in ("a && b", "a 2>&1", "a &> b", "curl 'x?a=1&b=2'", "a & b & wait", "echo '&'", "a |& b"):
        assert not leaves_background_jobs(command), command
