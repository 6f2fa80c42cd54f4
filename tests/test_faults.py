"""The deliberate faults that measure these tests: each still fits the code, and the script that applies them counts right."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from support.matrix import long

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "faults"
FAULTS: list[dict[str, Any]] = tomllib.loads((ROOT / "scripts" / "faults.toml").read_text())["fault"]
WITHOUT = {"builtin", "errors", "events", "ledger", "setting_list", "version"}
"""Files without code, and values without logic."""


def faults(*arguments: str, root: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(SCRIPT), "--root", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_every_fault_still_fits_the_code() -> None:
    done = faults("--check")
    assert done.returncode == 0, done.stderr


def test_there_are_thirty_and_every_package_has_one() -> None:
    assert len(FAULTS) >= 30
    found = (ROOT / "src" / "kitbag").iterdir()
    packages = {path.stem for path in found if (path.is_dir() or path.suffix == ".py") and path.stem[:2] != "__"}
    assert {Path(fault["file"]).parts[0].removesuffix(".py") for fault in FAULTS} >= packages - WITHOUT
    for fault in FAULTS:
        assert fault["id"].startswith(Path(fault["file"]).parts[0].removesuffix(".py")), fault["id"]


CODE = "def add(a, b):\n    return a + b\n\n\ndef limit(a):\n    return min(a, 3)\n"
TESTS = "import kitbag\n\n\ndef test_it_adds():\n    assert kitbag.add(1, 2) == 3\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project of its own, with one fault that its tests notice and one that they don't."""
    root = tmp_path / "small"
    entries = (("kitbag-add", "a + b", "a - b"), ("kitbag-limit", "min(a, 3)", "max(a, 3)"))
    fields = 'kind = "wrong value"\nfile = "__init__.py"\nbreaks = "it"\ntests = ["test_it.py"]\n'
    made = "".join(f'[[fault]]\nid = "{name}"\nold = "{old}"\nnew = "{new}"\n{fields}' for name, old, new in entries)
    for path, text in (
        ("src/kitbag/__init__.py", CODE),
        ("tests/test_it.py", TESTS),
        ("scripts/faults.toml", made),
        ("pyproject.toml", "[tool.pytest.ini_options]\n"),
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    return root


def files_in(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@long
def test_what_the_tests_notice_is_caught_and_the_working_tree_stays_as_it_is(project: Path) -> None:
    before = files_in(project)
    done = faults("--workers", "1", "--json", root=project)
    found = json.loads(done.stdout)
    assert [(one["id"], one["status"], one["by"], one["test"]) for one in found["results"]] == [
        ("kitbag-add", "caught", "likely", "tests/test_it.py::test_it_adds"),
        ("kitbag-limit", "missed", "", ""),
    ]
    assert found["totals"] == {"faults": 2, "caught": 1, "not_caught": 1}
    assert done.returncode == 1
    assert files_in(project) == before


@long
def test_a_test_that_fails_anyway_catches_nothing(project: Path) -> None:
    (project / "tests" / "test_it.py").write_text("def test_it_fails():\n    assert False\n")
    done = faults("--workers", "1", "--likely-only", "--only", "kitbag-add", root=project)
    assert done.stdout.startswith("unclear  kitbag-add")
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (CODE.replace("a + b", "b + a"), "`old` occurs 0 times"),
        (CODE + "c = lambda a, b: a + b\n", "`old` occurs 2 times"),
    ],
)
def test_a_fault_that_no_longer_fits_is_named(project: Path, code: str, problem: str) -> None:
    (project / "src" / "kitbag" / "__init__.py").write_text(code)
    done = faults("--check", root=project)
    assert done.returncode == 1
    assert f"kitbag-add: {problem}" in done.stderr


def test_an_unknown_id_is_refused() -> None:
    done = faults("--only", "nothing")
    assert done.returncode == 2
    assert "no fault named nothing" in done.stderr
