"""`scripts/strings` lists what users and models read, and nothing else."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "strings"


def strings(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=60)


def test_help_errors_and_prompts_are_listed_and_docstrings_are_not() -> None:
    lines = strings("cli/undo.py", "tools/Bash.md", "tools/files/edit.py").stdout.splitlines()
    assert any(line.startswith("cli/undo.py:") and "--yes" in line for line in lines)
    assert any(line.startswith("tools/Bash.md:1: ") for line in lines)
    assert any(line.startswith("tools/files/edit.py:") for line in lines)
    source = (SCRIPT.parents[1] / "src/kitbag/tools/files/edit.py").read_text()
    docstring = source.split('"""')[1].splitlines()[0]
    assert not any(docstring in line for line in lines)


def test_a_place_that_does_not_exist_is_an_error() -> None:
    done = strings("nowhere")
    assert done.returncode == 1
    assert "nowhere" in done.stderr
