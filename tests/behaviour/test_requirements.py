"""The list of promises is true: each names tests that exist, and each test of behaviour is on the list."""

import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent
REQUIREMENTS: list[dict[str, Any]] = tomllib.loads((TESTS / "behaviour" / "requirements.toml").read_text())[
    "requirement"
]
_TEST = re.compile(r"^(?:    )?(?:async )?def (test_\w+)\(", re.MULTILINE)
"""Of a module or a class; parsing them all would take a second."""


def names_in(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    return set(_TEST.findall(path.read_text()))


def test_each_requirement_has_an_id_of_its_own_a_source_a_promise_and_tests_that_exist() -> None:
    ids = Counter(requirement["id"] for requirement in REQUIREMENTS)
    problems = [f"{name}: {count} requirements have this id" for name, count in ids.items() if count > 1]
    files = {test.partition("::")[0] for requirement in REQUIREMENTS for test in requirement["tests"]}
    known = {f"{file}::{name}" for file in files for name in names_in(TESTS / file)}
    for requirement in REQUIREMENTS:
        name = requirement["id"]
        if set(requirement) != {"id", "source", "promise", "tests"}:
            problems.append(f"{name}: needs id, source, promise and tests, and has {sorted(requirement)}")
        elif not requirement["source"] or len(requirement["promise"]) <= 15 or not requirement["tests"]:
            problems.append(f"{name}: source, promise or tests are empty")
        problems += [f"{name}: there is no test {test}" for test in requirement["tests"] if test not in known]
    assert not problems, "\n".join(problems)


def test_every_test_of_behaviour_is_on_the_list() -> None:
    named = {test for requirement in REQUIREMENTS for test in requirement["tests"]}
    files = [path for path in (TESTS / "behaviour").glob("test_*.py") if path != Path(__file__)]
    written = {f"behaviour/{path.name}::{name}" for path in files for name in names_in(path)}
    missing = sorted(written - named)
    assert not missing, "not on the list:\n" + "\n".join(missing)
