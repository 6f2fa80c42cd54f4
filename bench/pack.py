"""What packing costs, beside reading the same files in a plain loop, in one run.

    python bench/pack.py [--quick]

Packs one task with 5 skills, 20 references and 50 tokens to resolve, against a loop that only reads those files;
then 1,000 packs of an epic's children in one process, with the memory before and after.
"""

import argparse
import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kitbag.library.registry import Registry
from kitbag.library.scopes import Places
from kitbag.packing.pack import Packer, PackOptions
from kitbag.packing.task_sources import load_task

SKILLS, REFERENCES, TOKENS = 5, 20, 50


def make_workspace(base: Path) -> list[Path]:
    """The files that a pack reads."""
    files: list[Path] = []
    skills = base / ".kitbag" / "skills"
    docs = base / "docs"
    docs.mkdir(parents=True)
    (base / ".git").mkdir()
    for number in range(TOKENS // 2):
        path = docs / f"note-{number:02d}.md"
        path.write_text(f"Note {number}.\n" * 20)
        files.append(path)
    for number in range(SKILLS):
        folder = skills / f"skill-{number}"
        (folder / "references").mkdir(parents=True)
        lines = [f"Line {at}: read the change before you judge it, and say what you did not read." for at in range(60)]
        for at in range(TOKENS // SKILLS):
            each = number * (TOKENS // SKILLS) + at
            lines[at * 5] += f" @docs/note-{each // 2:02d}.md" if each % 2 else " {{TASK_ID}}"
        head = f"---\nname: skill-{number}\nversion: 1.0.0\ndescription: Does part {number}.\n---\n"
        (folder / "SKILL.md").write_text(head + "## Summary\n\nIn short.\n\n## Steps\n\n" + "\n".join(lines) + "\n")
        files.append(folder / "SKILL.md")
        for at in range(REFERENCES // SKILLS):
            path = folder / "references" / f"ref-{at}.md"
            path.write_text(f"Reference {at} of skill {number}.\n" * 15)
            files.append(path)
    tasks = base / ".kitbag" / "tasks"
    tasks.mkdir()
    (tasks / "T1.json").write_text('{"id": "T1", "title": "Do it", "description": "All of it."}')
    files.append(tasks / "T1.json")
    return files


def least(work: Callable[[], object], rounds: int) -> float:
    best = 1e9
    for _ in range(rounds):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 20 if parser.parse_args().quick else 100
    base = Path(tempfile.mkdtemp(prefix="kitbag-bench-"))
    try:
        files = make_workspace(base)
        places = Places(str(base), str(base / "home"), str(base / "home" / ".kitbag"), (str(base),))
        options = PackOptions(skills=tuple(f"skill-{n}" for n in range(SKILLS)), strategy="comprehensive")

        def read_all() -> list[str]:
            return [path.read_text(encoding="utf-8") for path in files]

        registry = Registry(places)
        _ = registry.skills

        def pack_once() -> object:
            packer = Packer(registry)  # a new one: nothing is remembered
            task, warnings = load_task("T1", packer.source())
            return packer.pack(task, options, warnings)

        floor, cost = least(read_all, rounds), least(pack_once, rounds)
        print(f"{len(files)} files, {SKILLS} skills, {REFERENCES} references, {TOKENS} tokens")
        print(f"{'reading them in a plain loop':<34} {floor * 1e3:8.2f} ms")
        print(f"{'packing them':<34} {cost * 1e3:8.2f} ms  {cost / floor:5.2f}x")
        packer = Packer(registry)
        task, _ = load_task("T1", packer.source())
        for _ in range(100):
            packer.pack(task, options)
        gc.collect()
        before, start = resident(), time.process_time()
        for _ in range(1000):
            packer.pack(task, options)
        spent = time.process_time() - start
        gc.collect()
        grown = (resident() - before) / 1e6
        print(
            f"{'1,000 packs of an epic':<34} {spent * 1e3:8.0f} ms  {spent:5.2f} ms each, memory grew by {grown:.1f} MB"
        )
        print(f"skill files read for those 1,100 packs: {packer.reads}")
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
