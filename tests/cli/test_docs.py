"""The generated pages say what the program says, and the examples in the README run."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kitbag
from conftest import World
from support.waiting import TEST_TIMEOUT

ROOT = Path(__file__).resolve().parents[2]


def generator() -> object:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["commands.md", "settings.md", "fields.md"])
def test_the_generated_pages_are_up_to_date(page: str) -> None:
    pages = generator().PAGES  # type: ignore[attr-defined]
    assert page in pages
    assert len(pages) == 3
    assert (ROOT / "docs" / page).read_text() == pages[page](), "run: make docs"


def test_the_page_of_commands_lists_every_key_of_their_json(world: World) -> None:
    documented = generator().KEYS  # type: ignore[attr-defined]

    def keys_of(command: str) -> set[str]:
        text = documented[command]
        named = [key for other in re.findall(r"keys of `([\w ]+)`", text) for key in keys_of(other)]
        return {*re.findall(r"`(\w+)`", text), *named}

    shutil.rmtree(world.workspace)
    shutil.copytree(ROOT / "examples" / "workspace", world.workspace)
    (world.workspace / ".git").mkdir()
    world.write(".mcp.json", '{"mcpServers": {"files": {"command": "files"}}}')
    world.ok("trust", "--yes")
    world.ok("plugins", "install", str(ROOT / "examples" / "plugins" / "release-kit"))
    world.ok("-p", "Collect every TODO into TODO.md", "--permission-mode", "acceptEdits", "--model", "offline")
    for command, *arguments in (
        ("skills list",), ("skills show", "code-review"), ("skills which", "rounding"), ("skills search", "money"),
        ("skills explain", "money"), ("skills budget",), ("skills usage",), ("skills lint",),
        ("skills validate", ".kitbag/skills/rounding"), ("skills set", "rounding", "on"), ("agents list",),
        ("agents show", "Explore"), ("agents search", "review"), ("personas list",), ("personas show", "support"),
        ("plugins list",), ("pack", "SHOP-41"), ("setup",), ("config get",), ("config where",), ("sessions list",),
        ("context",), ("undo", "--list"), ("servers list",), ("permissions test", "ls"), ("permissions list",),
        ("trust show",), ("trust list",), ("audit",), ("lock",), ("doctor",),
    ):  # fmt: skip
        printed = json.loads(world.run(*command.split(), *arguments, "--json").stdout)
        [first, *_] = printed if isinstance(printed, list) else [printed]
        assert set(first) <= keys_of(command), f"kitbag {command}: add them to KEYS in docs/generate.py"


def test_the_python_example_of_the_readme_runs(tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len([line for line in example.splitlines() if line.strip()]) <= 12
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=ROOT, env=env, capture_output=True, text=True, timeout=TEST_TIMEOUT
    )
    assert done.returncode == 0, done.stderr
    assert re.match(r"loaded rounding: \d+ tokens\n", done.stdout)
    assert "The skill rounding says:" in done.stdout


def test_the_first_skill_of_the_readme_works_as_printed(tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text().partition("## Your first skill")[2]
    [example] = re.findall(r"```sh\n(.*?)```", section.partition("\n## ")[0], re.S)
    work = tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    env = {"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", "-e", "-c", example], cwd=work, env=env, capture_output=True, text=True, timeout=TEST_TIMEOUT
    )
    assert done.returncode == 0, done.stderr
    assert "The skill commit-style says:" in done.stdout
    assert re.search(r"\d+ tokens listed, \d+ loaded", done.stdout)


def test_every_public_name_can_be_imported() -> None:
    for name in kitbag.__all__:
        assert getattr(kitbag, name) is not None
    assert dir(kitbag) == kitbag.__all__


def test_importing_kitbag_imports_nothing_of_it() -> None:
    code = "import sys, kitbag; print([m for m in sys.modules if m.startswith('kitbag.')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_listing_plain_skills_imports_nothing_heavy(tmp_path: Path) -> None:
    skill = tmp_path / ".kitbag" / "skills" / "x"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: x\ndescription: d\n---\nbody\n")
    code = (
        "import sys; sys.argv = ['kitbag', 'skills', 'list']\n"
        "from kitbag.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'yaml', 'json', 'rich', 'tomllib', 'tomlkit', 'pathspec', 'dataclasses', 'pathlib', 'asyncio', 'httpx2', 'msgspec'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-S", "-c", "import site; site.main()\n" + code], cwd=tmp_path, env=env, capture_output=True, text=True)  # fmt: skip
    assert done.stderr.splitlines()[-1] == "[]", done.stderr


def test_the_tour_of_make_run_works_and_leaves_the_sample_as_it_was() -> None:
    script = Path(sys.executable).with_name("kitbag")
    done = subprocess.run(["sh", "examples/tour.sh", str(script)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) <= 140, "four screens"
    before, changed, after = re.split(r"\n\$ kitbag (?:-p 'Replace|undo)", done.stdout)
    assert "The skill rounding says:" in before
    assert re.search(r"\d+ tokens listed, \d+ loaded, \d\d,\d{3} if all were", before)
    assert "in app/: 4 places in 2 files." in changed
    assert "`python3 -m unittest`, the test command from the skill rounding, passed:" in changed
    assert "2 files changed, 4 insertions(+), 4 deletions(-)" in changed
    assert "(no difference)" in after
