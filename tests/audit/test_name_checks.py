"""SECURITY D38 for the audit: names that pass for others."""

import pytest

from kitbag.audit.name_checks import NamedItem, check_names


def found(*names: str) -> dict[str, list[tuple[str, str | None]]]:
    remarks = check_names(NamedItem(name, name, False) for name in names)
    return {name: [(remark.rule, remark.severity) for remark in listed] for name, listed in remarks.items() if listed}


@pytest.mark.parametrize("name", ["gener\u0430l-purpose", "Expl0re", "R\u0435ad", "writing-ski11s"])
def test_a_look_alike_of_something_built_in_is_found(name: str) -> None:
    assert found(name) == {name: [("look-alike-name", None)]}


def test_of_two_that_look_alike_the_strange_one_is_found() -> None:
    assert found("deploy", "depl\u043ey") == {"depl\u043ey": [("look-alike-name", None)]}
    assert found("code-review", "c0de-review") == {"c0de-review": [("look-alike-name", None)]}


def test_mixed_alphabets_are_found_and_one_alphabet_is_not() -> None:
    assert found("p\u0430ypal") == {"p\u0430ypal": [("look-alike-name", None)]}
    assert found("проверка-кода", "コードレビュー", "git-помощник", "café") == {}


@pytest.mark.parametrize("name", ["Read", "Bash", "general-purpose", "task-executor"])
def test_names_of_tools_and_built_in_things_are_reserved(name: str) -> None:
    assert found(name) == {name: [("reserved-name", None)]}


@pytest.mark.parametrize("name", ["help", "plan", "review"])
def test_what_can_not_be_shadowed_is_only_named(name: str) -> None:
    assert found(name) == {name: [("reserved-name", "low")]}
