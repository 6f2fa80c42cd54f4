"""What a decision, a sandboxed command and a look at a workspace cost, each beside a floor, in one run; and which share
of everyday commands needs an approval.

    python bench/permissions.py [--quick]

Decisions are CPU time beside splitting the same text with `shlex`, or beside `os.stat` of the same path. The sandbox
is elapsed time beside the same command in a bare subprocess. Trust is CPU time beside reading the same files.
Goals: a typical command under 1 ms, 10,000 hostile characters under 200 ms, the sandbox under 30 ms more.
"""

import argparse
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.pop(0)  # this file is named like a folder of tests
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from kitbag.library.scopes import Places
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import Effect, SandboxProfile, SandboxSupport, Workspace
from kitbag.permissions.rules.rule import PermissionRules, parse_rules
from kitbag.permissions.trust.workspace_trust import check_trust
from kitbag.processes.command_runner import ShellCommand
from kitbag.sandbox.confine import detect_sandbox, run_confined
from kitbag.sandbox.confinement import Confinement
from kitbag.shell.analysis import analyze
from permissions import command_lists

TYPICAL = (
    "git status",
    "ls -la src",
    "cat README.md | head -20",
    "git log --oneline -5 -- src/a.py",
    "grep -rn 'def main' src --include='*.py' | wc -l",
    "cd src && python3 -m pytest -q tests/test_a.py -k 'one or two' 2>&1 | tail -5",
    'for f in src/*.py; do wc -l "$f"; done',
    "npm run build && git add -A && git commit -m 'Say what was done'",
    "sed -i 's/one/two/g' src/a.py && git diff --stat",
    "curl -s https://example.com/api | jq '.items[] | .name'",
)
HOSTILE = {
    "commands in a row": "true;" * 2_000,
    "a pipe": "a|" * 5_000,
    "folders to look at": "cat " + " ".join(f"f{number}" for number in range(1_600)),
    "wrappers": "sudo -u x " * 1_000,
    "options": "a" + " -x" * 3_300,
    "open brackets": "(" * 10_000,
    "substitutions": "$(" * 5_000,
    "quotes": "'" * 9_999,
    "backticks": "`" * 10_000,
    "here documents": "<<E\n" * 2_500,
    "expansions": "${x" * 3_333,
    "braces": "{a," * 3_333,
    "assignments": "x=1 " * 2_500,
    "find -exec": "find . -exec " * 769,
    "shell in shell": "bash -c '" * 1_111,
    "redirects": "a>b " * 2_500,
    "values of a variable": "for x in {1..60}; do " + 'echo "$x" a$x;' * 700,
    "assignments of one variable": "x=1;" * 1_500 + "echo $x;" * 400,
    "globs": "cat /usr/bin/* src/*;" * 450,
    "braces in a row": "echo " + "{a,b}" * 1_900,
    "quotes in substitutions": 'echo "$(' * 1_100,
    "pieces of a word": "for x in {1..60}; do echo $x" + "''a" * 3_000,
    "escapes": "\\" * 10_000,
    "words of a denied command": "echo curl; " * 909,
}
RULES: dict[Effect, tuple[str, ...]] = {
    "allow": ("Bash(git log:*)", "Bash(npm run:*)", "Bash(git add:*)", "Read(./docs/**)", "Edit(./src/**)"),
    "ask": ("Bash(git push:*)", "Bash(npm publish:*)"),
    "deny": ("Bash(curl:*)", "Bash(rm -rf:*)", "Read(./secrets/**)", "Read(.env)", "Bash(*--no-verify*)"),
}
CHARACTERS = 10_000


def least(work: Callable[[], object], rounds: int) -> float:
    best = 1e9
    for _ in range(rounds):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def make_workspace(base: Path) -> Workspace:
    (base / "workspace" / "src").mkdir(parents=True)
    (base / "home").mkdir()
    (base / "workspace/src/a.py").write_text("one\n")
    (base / "workspace/README.md").write_text("words\n" * 100)
    subprocess.run(["git", "init", "-q"], cwd=base / "workspace", check=True)
    root = os.path.realpath(base / "workspace")
    return Workspace(root=root, home=str(base / "home"), kitbag_home=str(base / "home/.kitbag"))


def make_permissions(workspace: Workspace, held: SandboxSupport) -> Permissions:
    rules = [
        rule
        for effect, texts in RULES.items()
        for text in texts
        for rule in parse_rules(text, effect, "bench", "user", workspace.kitbag_home)
    ]
    return Permissions(workspace, "acceptEdits", PermissionRules(rules), held)


def show(what: str, cost: float, floor: float, goal: float | None = None) -> None:
    verdict = "" if goal is None else f"  goal {goal * 1e3:g} ms{'' if cost < goal else '  MISSED'}"
    print(f"{what:<44} {cost * 1e3:9.3f} ms   floor {floor * 1e3:8.4f} ms{verdict}")


def decide_anew(made: Permissions, command: str) -> None:
    """As for a command that was not parsed before."""
    analyze.cache_clear()
    made.decide("Bash", {"command": command})


def decisions(made: Permissions, rounds: int) -> None:
    print(f"decisions with {len(made.rules.all)} rules, CPU; the floor is shlex")
    worst = 0.0
    costs: list[float] = []
    for command in TYPICAL:
        cost = least(lambda command=command: decide_anew(made, command), rounds)
        floor = least(lambda command=command: shlex.split(command), rounds)
        show(f"  {command[:40]}", cost, floor, 1e-3)
        costs.append(cost)
        worst = max(worst, cost)
    print(f"  {'median':<42} {statistics.median(costs) * 1e3:9.3f} ms, worst {worst * 1e3:.3f} ms")
    print(f"hostile commands of {CHARACTERS:,} characters, CPU")
    for name, text in HOSTILE.items():
        cut = text[:CHARACTERS]
        cost = least(lambda cut=cut: decide_anew(made, cut), 3)
        show(f"  {name}", cost, least(cut.split, 3), 0.2)


def shares(base: Path, held: SandboxSupport) -> None:
    """Approvals for the lists in tests/permissions/data. A session asks once for each kind of check."""
    workspace = command_lists.make_workspace(base / "ordinary")
    hostile = command_lists.make_workspace(base / "hostile", hostile=True)
    print("everyday commands that need an approval; dangerous ones that are allowed though they were not when recorded")
    for mode in ("default", "acceptEdits", "autonomous"):
        made = Permissions(workspace, mode, PermissionRules([]), held)
        everyday = command_lists.everyday_commands()
        asked = [one for one in everyday if made.decide("Bash", {"command": one.text}).effect != "allow"]
        reads = sum(one.kind == "read" for one in everyday)
        asked_reads = sum(one.kind == "read" for one in asked)
        dangerous = command_lists.dangerous_commands()
        letter, made = command_lists.MODE_LETTERS[mode], Permissions(hostile, mode, PermissionRules([]), held)
        newly = sum(
            letter not in one.allowed_before and made.decide("Bash", {"command": one.text}).effect == "allow"
            for one in dangerous
        )
        print(
            f"  {mode:<12} all {len(asked)} of {len(everyday)} ({len(asked) / len(everyday):.0%}),"
            f" read-only {asked_reads} of {reads}, dangerous {newly} of {len(dangerous)}"
        )


def paths(made: Permissions, rounds: int) -> None:
    print("paths, CPU; the floor is os.stat of the same path, or of the folder above")
    root = made.workspace.root
    os.symlink("src", f"{root}/link")
    for tool, path in (("Read", "src/a.py"), ("Write", "src/new.py"), ("Read", "link/a.py"), ("Write", ".git/config")):
        full = os.path.join(root, path)
        floor = least(lambda full=full: os.path.exists(full), rounds)
        cost = least(lambda tool=tool, path=path: made.decide(tool, {"file_path": path}), rounds)
        show(f"  {tool} {path}", cost, floor)


def elapsed(work: Callable[[], object], rounds: int) -> float:
    best = 1e9
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def sandbox(workspace: Workspace, held: SandboxSupport, rounds: int) -> None:
    if held.kind == "none":
        print(f"sandbox: none runs here ({held.problem})")
        return
    print(f"one command, elapsed, the best of {rounds}; the floor is a bare subprocess ({held.kind} {held.version})")
    environment = {"PATH": os.environ["PATH"]}
    for text in ("true", "git status --short"):
        command = ShellCommand(
            text=text, directory=workspace.root, environment=environment, timeout=60, max_characters=10_000
        )

        def bare(text: str = text) -> object:
            words = ["/bin/bash", "-c", text]
            return subprocess.run(words, check=False, cwd=workspace.root, env=environment, capture_output=True)

        floor = elapsed(bare, rounds)
        profiles: tuple[SandboxProfile, ...] = ("read-only", "workspace") if held.carve_outs else ("read-only",)
        for profile in profiles:
            confinement = Confinement(profile=profile)
            cost = elapsed(lambda: run_confined(command, confinement=confinement, workspace=workspace), rounds)  # noqa: B023
            show(f"  {text}, {profile}", cost, floor)
            more = cost - floor
            print(f"  {'':<42} {more * 1e3:9.1f} ms more   goal 30 ms{'' if more < 0.03 else '  MISSED'}")


def trust(base: Path, number: int, rounds: int) -> None:
    root = base / f"trust-{number}"
    files: list[Path] = []
    for at in range(number):
        folder = root / f".kitbag/skills/skill-{at}"
        (folder / "scripts").mkdir(parents=True)
        body = "Read the change before you judge it.\n" * 60 + "!`git status`\n"
        (folder / "SKILL.md").write_text(f"---\nname: skill-{at}\ndescription: Does part {at}.\n---\n{body}")
        (folder / "scripts/run.sh").write_text("#!/bin/sh\necho done\n")
        files += [folder / "SKILL.md", folder / "scripts/run.sh"]
    (root / ".git").mkdir()
    places = Places(str(root), str(base / "home"), str(base / "home/.kitbag"), (str(root),))
    assert len(check_trust(places).items) == number
    floor = least(lambda: [path.read_bytes() for path in files], rounds)
    cost = least(lambda: check_trust(places), rounds)
    show(f"  {number:,} skills with a script and a command", cost, floor)
    print(f"  {'':<42} {cost / floor:9.1f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    quick = parser.parse_args().quick
    base = Path(tempfile.mkdtemp(prefix="kitbag-bench-"))
    try:
        workspace = make_workspace(base)
        made = make_permissions(workspace, SandboxSupport(kind="bubblewrap", version="", carve_outs=True))
        start = time.process_time()
        made.decide("Bash", {"command": "ls"})
        first = time.process_time() - start
        print(f"the first decision, which loads the grammar and the table: {first * 1e3:.0f} ms CPU")
        decisions(made, 20 if quick else 200)
        shares(base / "everyday", SandboxSupport(kind="bubblewrap", version="", carve_outs=True))
        paths(made, 100 if quick else 1000)
        sandbox(workspace, detect_sandbox(), 10 if quick else 40)
        print("trust of a workspace, CPU; the floor is reading the same files")
        for number in (100, 1_000):
            trust(base, number, 2 if quick else 5)
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
