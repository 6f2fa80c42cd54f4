"""What progressive loading saves: tokens of skills in real runs, beside loading every skill at the start.

    python bench/savings.py

Each row is a run of the real program against the scripted model on loopback. Two measures:

- the stricter one: every token of prompt, tools, skills and messages, from the ledger that `kitbag context --json`
  prints, in a copy of the sample workspace;
- the design's: 1.3 tokens per word of the system prompt and the loaded skills, without tools and messages, in a library
  like the design's of ten skills that take 12,000 tokens with everything loaded.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from kitbag.testing import ModelServer, Rule, Script, Step

ROOT = Path(__file__).resolve().parents[1]
KITBAG = [sys.executable, "-m", "kitbag"]


def loads(*names: str) -> list[Step]:
    """A model that loads these skills, then answers."""
    calls = tuple((f"c{at}", "Skill", json.dumps({"skill": name})) for at, name in enumerate(names))
    return [Step(text="I look.", calls=calls), Step(text="Done.")] if calls else [Step(text="Done.")]


SCENARIOS: list[tuple[str, str, list[Step]]] = [
    ("simple query", "What is two plus two?", loads()),
    ("code review", "Review this change.", loads("code-review")),
    ("multi-skill task", "Review the SQL in this change, then add it to the changelog.",
     loads("code-review", "sql-style", "changelog")),
]  # fmt: skip


def ask(workspace: Path, home: Path, request: str, steps: list[Step]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The context afterwards, and the last request."""
    with ModelServer(Script([Rule(steps)])) as server:
        environment = {**os.environ, **server.environment(), "HOME": str(home), "KITBAG_HOME": str(home / ".kitbag")}

        def run(*words: str) -> str:
            done = subprocess.run(
                [*KITBAG, *words],
                check=False,
                cwd=workspace,
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
                stdin=subprocess.DEVNULL,
            )
            if done.returncode:
                sys.exit(f"kitbag {' '.join(words)} failed: {done.stderr}")
            return done.stdout

        run("-p", request, "--model", "anthropic/claude-sonnet-4-5", "--trust-workspace")
        last = server.requests[-1].body
        found: dict[str, Any] = json.loads(run("context", "--json"))
        return found, last


def at_start(found: dict[str, Any]) -> int:
    return sum(piece["tokens"] for piece in found["pieces"] if not piece["turn"])


DESIGN = {"start": 90, "simple query": 88, "code review": 71, "multi-skill task": 58}
"""Per cent saved that the design expected, of 12,000 tokens with everything loaded."""


def row(name: str, everything: int, ours: int) -> None:
    saved = 100 * (1 - ours / everything) if everything else 0.0
    print(f"{name:<24}{everything:>14,}{ours:>12,}{saved:>9.0f}%{DESIGN[name]:>9}%")


def sample(base: Path) -> None:
    workspace, home = base / "shop", base / "home"
    shutil.copytree(ROOT / "examples" / "workspace", workspace)
    (workspace / ".git").mkdir()
    home.mkdir()
    print("sample workspace         all at start     Kitbag    saved   design   (tokens: prompt, tools, skills, talk)")
    first, _ = ask(workspace, home, "Hello.", loads())
    fixed = at_start(first) - first["skills"]["listed"]
    everything = fixed + first["skills"]["possible"]
    row("start", everything, at_start(first))
    skills = first["skills"]
    alone = (
        f"{skills['listed']:,} tokens listed beside {skills['possible']:,}, {skills['listed'] / skills['possible']:.1%}"
    )
    print(f"  of that, {len(skills['each'])} skills alone: {alone} (goal: at most 10%)")
    for name, request, steps in SCENARIOS:
        found, _ = ask(workspace, home, request, steps)
        talk = found["tokens"] - at_start(found) - found["skills"]["loaded"]
        row(name, everything + talk, found["tokens"])


DESIGN_SKILLS = (
    "ado_basics", "git_ops", "telemetry", "code_review", "security_analysis", "incident_investigation",
    "ado_pr_management", "pyspark_optimization", "python_review", "rca",
)  # fmt: skip
DESIGN_WORDS = 875
"""Of each skill, so that ten of them and the prompt take about 12,000 tokens."""
DESIGN_SCENARIOS: list[tuple[str, str, list[Step]]] = [
    ("start", "Hello.", loads()),
    ("simple query", "What is two plus two?", loads()),
    ("code review", "Review this change.", loads("code_review")),
    ("multi-skill task", "Review this change for security and open a pull request.",
     loads("code_review", "security_analysis", "ado_pr_management")),
]  # fmt: skip


def words(text: str) -> float:
    """Tokens as the design's own script counts them."""
    return len(text.split()) * 1.3


def as_designed(base: Path) -> None:
    workspace, home = base / "design", base / "design-home"
    (workspace / ".git").mkdir(parents=True)
    home.mkdir()
    body = " ".join(("Read the change as a whole before you judge a line of it.",) * (DESIGN_WORDS // 13)) + "\n"
    for name in DESIGN_SKILLS:
        folder = workspace / ".kitbag" / "skills" / name
        folder.mkdir(parents=True)
        head = f"---\nname: {name}\ndescription: Guides {name.replace('_', ' ')} of the team, step by step.\n---\n"
        (folder / "SKILL.md").write_text(head + body)
    print(
        "\nas the design counts     all at start     Kitbag    saved   design   (1.3 per word: system prompt, skills)"
    )
    for name, request, steps in DESIGN_SCENARIOS:
        _, last = ask(workspace, home, request, steps)
        prompt = "".join(block["text"] for block in last["system"])
        catalog = prompt[prompt.index("<available-skills>") : prompt.index("</available-skills>")]
        loaded = json.dumps(last["messages"]).count("<skill-invocation ") * words(body)
        everything = words(prompt) - words(catalog) + len(DESIGN_SKILLS) * words(body)
        row(name, round(everything), round(words(prompt) + loaded))


def ten(base: Path) -> None:
    workspace, home = base / "ten", base / "ten-home"
    (workspace / ".git").mkdir(parents=True)
    home.mkdir()
    for number in range(10):
        folder = workspace / ".kitbag" / "skills" / f"skill-{number}"
        folder.mkdir(parents=True)
        head = f"---\nname: skill-{number}\ndescription: Does part {number} of the work, when it is asked for.\n---\n"
        (folder / "SKILL.md").write_text(
            head + "Read the change before you judge it, and say what you left out.\n" * 60
        )
    found, _ = ask(workspace, home, "Hello.", loads())
    listed, possible = found["skills"]["listed"], found["skills"]["possible"]
    print(
        f"\nten skills at start: {listed:,} tokens listed beside {possible:,} with all loaded:"
        f" {listed / possible:.1%} (goal: 10%)"
    )


def main() -> None:
    base = Path(tempfile.mkdtemp(prefix="kitbag-savings-"))
    try:
        sample(base)
        as_designed(base)
        ten(base)
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
