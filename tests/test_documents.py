import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "kitbag"
DOCUMENTS = ("docs/architecture.md", "AGENTS.md")


def _exists(name: str, below: Path) -> bool:
    """A module, package or data file below a package, or a class or function in one of its modules."""
    if below.suffix == ".py":
        return re.search(rf"^(?:class|def) {re.escape(name)}\b", below.read_text(), re.MULTILINE) is not None
    found = below / name
    return found.exists() or found.with_suffix(".py").exists() or any(below.rglob(f"{name}.py"))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_module_that_a_document_names_exists(document: str) -> None:
    packages = "|".join(path.name for path in SOURCE.iterdir() if path.is_dir() and path.name[0] != "_")
    text = (ROOT / document).read_text()
    named = re.findall(rf"`(?:src/kitbag/)?((?:{packages})/[\w/]+)(?:\.(?:py|\w+))?`", text)
    assert named
    assert [path for path in named if not ((SOURCE / path).exists() or (SOURCE / f"{path}.py").exists())] == []


def test_the_table_of_packages_is_complete_and_names_what_is_in_them() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| (`[\w`, ]+`) \| (.*) \|$", text, re.MULTILINE)
    packages = {name for cell, _ in rows for name in re.findall(r"`(\w+)`", cell)}
    present = {
        path.stem for path in SOURCE.iterdir() if path.name[0] != "_" and (path.is_dir() or path.suffix == ".py")
    }
    assert packages == present
    for cell, contents in rows:
        places = [
            SOURCE / name if (SOURCE / name).is_dir() else SOURCE / f"{name}.py"
            for name in cell.strip("`").split("`, `")
        ]
        unknown = [
            name for name in re.findall(r"`([\w.]+)`", contents) if not any(_exists(name, place) for place in places)
        ]
        assert [name for name in unknown if name not in (".md", "kitbag.lock")] == [], cell


def test_extras_in_all_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    assert set(re.findall(r"\w+", everything.partition("[")[2])) <= set(extras)
