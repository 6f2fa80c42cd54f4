"""Diagnostics are shown worst first, each once, always in the same order."""

from kitbag.errors import Diagnostic, worst_first


def test_diagnostics_come_worst_first_and_once_each() -> None:
    info = Diagnostic("info", "a", "f", 1, "p", "x")
    error = Diagnostic("error", "z", "f", 9, "p", "x")
    other = Diagnostic("error", "z", "f", 9, "another", "x")
    assert worst_first([info, error, info, other]) == [other, error, info]


def test_a_place_has_a_line_only_when_there_is_one() -> None:
    assert Diagnostic("info", "a", "f", 0, "p", "x").place == "f"
    assert Diagnostic("info", "a", "f", 3, "p", "x").place == "f:3"
