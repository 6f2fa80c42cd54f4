"""How well messages find the skills they need, beside simpler ways, and what it costs.

    python bench/routing.py [--quick] [--model DIR] [--skills DIR] [--json FILE]

For the evaluation set in bench/data/routing (300 skills with near neighbors, 250 messages in several languages, logs,
several needs, none) and half of the development set in bench/data/metatool (the weights were trained on both;
scripts/train_ranking reports them cross-validated): the first skill is a needed one (Hit@1), one of the first five is
(Hit@5), suggestions contain some or all needed skills, and how many messages that need none get suggestions. Beside an
alphabetical cut, a cut by usage and textbook BM25. Then CPU time for a message and memory with 6,726 and 10,000
generated skills. `--model`: a sentence encoder, for a row with vectors. `--skills`: a folder of real skills, for the
tasks in bench/data/routing/tasks_check.txt: no weight was fitted on them, but features were chosen with them in sight;
and for the everyday messages in everyday_check.txt.
"""

import argparse
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from kitbag.text.frontmatter_fences import split_frontmatter
from kitbag.text.frontmatter_fields import parse_metadata

DATA = Path(__file__).parent / "data"
CUT = 5


class RoutingMessage(NamedTuple):
    text: str
    needs: frozenset[str]
    """Each of these skills is a hit."""
    alternatives: tuple[frozenset[str], ...] = ()
    """For each need, the skills of which one is enough; empty: all of `needs`."""

    def has_all(self, names: set[str]) -> bool:
        if self.alternatives:
            return all(not one.isdisjoint(names) for one in self.alternatives)
        return self.needs <= names


class EvaluationSet(NamedTuple):
    name: str
    skills: dict[str, tuple[str, str]]
    """Description and body by name."""
    messages: list[RoutingMessage]


def read_evaluation_set() -> EvaluationSet:
    skills: dict[str, tuple[str, str]] = {}
    family: list[tuple[str, str]] = [("", "")]
    for line in (DATA / "routing" / "skills.txt").read_text("utf-8").splitlines():
        if line.startswith("@"):
            pairs = [value.partition(":") for value in line[1:].split(",")]
            family = [(name, tool or name) for name, _, tool in pairs]
        elif not line:
            family = [("", "")]
        elif not line.startswith("#"):
            for value, tool in family:
                filled = line.replace("*1", tool).replace("*", value)
                name, description, body = (part.strip() for part in filled.split("|"))
                skills[name] = (description, f"# {name}\n\n{description}\n\n## Details\n\n{body}\n")
    messages: list[RoutingMessage] = []
    for line in (DATA / "routing" / "messages.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            needs, _, text = line.partition("\t")
            messages.append(RoutingMessage(text.replace("\\n", "\n"), frozenset(needs.split(",")) - {"-"}))
    unknown = {need for message in messages for need in message.needs} - skills.keys()
    assert not unknown, sorted(unknown)
    return EvaluationSet("evaluation set", skills, messages)


def read_development_set() -> EvaluationSet:
    tools = json.loads((DATA / "metatool" / "tools.json").read_text("utf-8"))
    names = sorted(tools)
    random.Random(3).shuffle(names)
    half = set(names[::2])
    lines = (DATA / "metatool" / "messages.jsonl").read_text("utf-8").splitlines()
    messages = [RoutingMessage(one["message"], frozenset(one["needs"])) for one in map(json.loads, lines)]
    messages = [message for message in messages if message.needs <= half]
    return EvaluationSet("development set, half of its tools", {name: (tools[name], "") for name in tools}, messages)


def read_skill_folders(folder: Path) -> dict[str, tuple[str, str]]:
    """Description and body of each skill below a folder, by the name of its own folder."""
    skills: dict[str, tuple[str, str]] = {}
    for file in sorted(folder.rglob("SKILL.md")):
        parts = split_frontmatter(file.read_text("utf-8", "replace"))
        description = parse_metadata(parts.frontmatter or "", 2, frozenset({"description"}), []).get("description")
        if description:
            skills[file.parent.name] = (str(description), parts.body)
    return skills


def read_tasks(folder: Path) -> EvaluationSet:
    """Tasks on which nothing was trained, over the skills below a folder."""
    skills = read_skill_folders(folder)
    tasks = re.split(r"^@ ", (DATA / "routing" / "tasks_check.txt").read_text("utf-8"), flags=re.MULTILINE)[1:]
    messages: list[RoutingMessage] = []
    for needs, _, text in (task.partition("\n") for task in tasks):
        alternatives = tuple(frozenset(one.split("|")) for one in needs.split(", "))
        messages.append(RoutingMessage(text.strip(), frozenset().union(*alternatives), alternatives))
    return EvaluationSet("tasks", skills, messages)


def read_everyday(folder: Path) -> list[EvaluationSet]:
    """Messages that need no skill, over technical skills: 189 of those below a folder, and all."""
    skills = read_skill_folders(folder)
    lines = (DATA / "routing" / "everyday_check.txt").read_text("utf-8").splitlines()
    messages = [RoutingMessage(line, frozenset()) for line in lines]
    some = random.Random(2).sample(sorted(skills), 189)
    return [
        EvaluationSet("everyday messages over few skills", {name: skills[name] for name in some}, messages),
        EvaluationSet("everyday messages over many skills", skills, messages),
    ]


class TextbookBM25:
    """Robertson's formula over all words of a text, with the usual parameters."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._names = sorted(texts)
        counts = [Counter(self._words(texts[name])) for name in self._names]
        self._lengths = [sum(count.values()) for count in counts]
        self._mean = sum(self._lengths) / len(self._lengths)
        self._rows: dict[str, list[tuple[int, int]]] = {}
        for at, count in enumerate(counts):
            for word, number in count.items():
                self._rows.setdefault(word, []).append((at, number))

    @staticmethod
    def _words(text: str) -> list[str]:
        return re.findall(r"\w+", text.lower())

    def rank(self, message: str) -> list[str]:
        scores: dict[int, float] = {}
        for word in self._words(message):
            rows = self._rows.get(word, [])
            weight = math.log(1 + (len(self._names) - len(rows) + 0.5) / (len(rows) + 0.5))
            for at, number in rows:
                norm = 1.5 * (0.25 + 0.75 * self._lengths[at] / self._mean)
                scores[at] = scores.get(at, 0.0) + weight * number * 2.5 / (number + norm)
        return [self._names[at] for at in sorted(scores, key=lambda at: -scores[at])[:CUT]]


def write_library(folder: Path, skills: dict[str, tuple[str, str]]) -> None:
    for name, (description, body) in skills.items():
        file = folder / ".kitbag" / "skills" / name / "SKILL.md"
        file.parent.mkdir(parents=True)
        file.write_text(f"---\nname: {name}\ndescription: {json.dumps(description)}\n---\n{body}\n", "utf-8")


def score(
    evaluated: EvaluationSet, rank: Callable[[str], list[str]], suggest: Callable[[str], list[str]] | None = None
) -> dict[str, float]:
    needing = [message for message in evaluated.messages if message.needs]
    others = [message for message in evaluated.messages if not message.needs]
    ranked = [rank(message.text) for message in needing]
    hits = (
        {}
        if not needing
        else {
            "Hit@1": sum(
                not message.needs.isdisjoint(names[:1]) for message, names in zip(needing, ranked, strict=True)
            ),
            "Hit@5": sum(
                not message.needs.isdisjoint(names[:5]) for message, names in zip(needing, ranked, strict=True)
            ),
        }
    )
    if suggest is not None and needing:
        suggested = [set(suggest(message.text)) for message in needing]
        pairs = list(zip(needing, suggested, strict=True))
        hits["some suggested"] = sum(not message.needs.isdisjoint(names) for message, names in pairs)
        hits["all suggested"] = sum(message.has_all(names) for message, names in pairs)
    result = {name: 100 * count / len(needing) for name, count in hits.items()}
    if suggest is not None and others:
        result["suggested for none"] = 100 * sum(bool(suggest(message.text)) for message in others) / len(others)
    return result


def measure_set(evaluated: EvaluationSet, scratch: Path, model: str) -> dict[str, dict[str, float]]:
    from kitbag.library.registry import Registry
    from kitbag.library.routing.skill_search import get_search_index, search_skills
    from kitbag.library.scopes import find_places
    from kitbag.packing.suggestions import suggest_skills

    names = sorted(evaluated.skills)
    usage = random.Random(1).sample(names, len(names))
    short = TextbookBM25({name: f"{name} {name} {text}" for name, (text, _) in evaluated.skills.items()})
    whole = TextbookBM25({name: f"{name} {name} {text} {body}" for name, (text, body) in evaluated.skills.items()})
    rows = {
        "alphabetical cut": score(evaluated, lambda _: names[:CUT]),
        "usage-ranked cut": score(evaluated, lambda _: usage[:CUT]),
        "textbook BM25, name x 2 + description": score(evaluated, short.rank),
        "textbook BM25, + body": score(evaluated, whole.rank),
    }
    folder = scratch / evaluated.name.split(",")[0].replace(" ", "-")
    write_library(folder, evaluated.skills)
    for label, vectors in (("Kitbag", "off"), ("Kitbag, vectors", model)):
        if vectors:
            home = scratch / f"home-{label}"
            home.mkdir(exist_ok=True)
            (home / "settings.toml").write_text(f"[routing]\nvectors = {json.dumps(vectors)}\n")
            os.environ["KITBAG_HOME"] = str(home)
            registry = Registry(find_places(str(folder)))
            get_search_index(registry, wait=1_000)

            def rank(message: str, registry: Registry = registry) -> list[str]:
                hits = search_skills(registry, message, CUT + 3)
                return [hit.skill.name for hit in hits if hit.skill.root.scope != "built-in"][:CUT]

            def suggest(message: str, registry: Registry = registry) -> list[str]:
                return re.findall(r"^- ([^:\n]+)", suggest_skills(registry, message, ""), re.MULTILINE)

            rows[label] = score(evaluated, rank, suggest)
    return rows


COST = """
import json, os, re, sys, time
from kitbag.library.registry import Registry
from kitbag.library.routing.skill_search import get_search_index, search_skills
from kitbag.library.scopes import find_places

def memory():
    with open("/proc/self/status") as status:
        return int(re.search(r"VmRSS:\\s+(\\d+)", status.read())[1]) / 1024

registry = Registry(find_places(sys.argv[1]))
paths = [skill.path for skill in registry.skills]
started = time.process_time()
for path in paths:
    with open(path, "rb") as file:
        file.read()
reading = time.process_time() - started
before, started = memory(), time.process_time()
index = get_search_index(registry)
ready = time.process_time() - started
index.wait_until_filled(1_000)
building = time.process_time() - started
messages = json.loads(open(sys.argv[2]).read())
times = []
for message in messages:
    started = time.process_time()
    search_skills(registry, message)
    times.append(time.process_time() - started)
times.sort()
print(json.dumps({
    "CPU per message (ms)": 1000 * sum(times) / len(times), "95% (ms)": 1000 * times[len(times) * 95 // 100],
    "memory (MB)": memory() - before, "first message waits (ms)": 1000 * ready, "index (s)": building,
    "reading all files (s)": reading,
}))
"""


def generate_library(folder: Path, count: int, evaluated: EvaluationSet) -> list[str]:
    """Skills and messages of made-up words with the frequencies of natural language, and of words of the set."""
    chance = random.Random(count)
    known = sorted(
        {
            word
            for text, body in evaluated.skills.values()
            for word in re.findall(r"[a-z]{3,}", f"{text} {body}".lower())
        }
    )
    syllables = [a + b for a in "bcdfghklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "on")]
    made_up = ["".join(chance.sample(syllables, chance.randint(2, 4))) for _ in range(40_000)]
    words = chance.sample(known, len(known)) + made_up

    def text(length: int) -> str:
        picked = [words[min(int(len(words) ** chance.random()), len(words) - 1)] for _ in range(length)]
        return " ".join(picked)

    skills = {
        f"{text(2).replace(' ', '-')}-{number}": (
            f"{text(30)}.",
            "\n\n".join(f"## {text(4)}\n\n{text(120)}." for _ in range(chance.randint(3, 12))),
        )
        for number in range(count)
    }
    write_library(folder, skills)
    return [". ".join(text(18) for _ in range(chance.randint(1, 20))) for _ in range(60)]


def measure_cost(count: int, scratch: Path, evaluated: EvaluationSet) -> dict[str, float]:
    folder, messages = scratch / f"{count}-skills", scratch / f"{count}.json"
    messages.write_text(json.dumps(generate_library(folder, count, evaluated)))
    time.sleep(2.5)  # younger files are not indexed on disk
    environment = {**os.environ, "KITBAG_HOME": str(scratch / f"home-{count}")}
    done = subprocess.run(
        [sys.executable, "-c", COST, str(folder), str(messages)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def print_rows(title: str, rows: dict[str, dict[str, float]]) -> None:
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    print(f"\n{title}")
    print(f"  {'':38}" + "".join(f"{name:>22}" for name in columns))
    for label, row in rows.items():
        print(f"  {label:38}" + "".join(f"{row[name]:22.1f}" if name in row else f"{'-':>22}" for name in columns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only 1,000 generated skills")
    parser.add_argument("--model", default="", help="folder of a sentence encoder")
    parser.add_argument("--skills", type=Path, help="folder of real skills, to measure tasks with")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp())
    results: dict[str, Any] = {}
    try:
        sets = [read_evaluation_set(), read_development_set()]
        if options.skills:
            sets += [read_tasks(options.skills), *read_everyday(options.skills)]
        for evaluated in sets:
            title = f"{evaluated.name}: {len(evaluated.skills)} skills, {len(evaluated.messages)} messages (%)"
            results[title] = measure_set(evaluated, scratch, options.model)
            print_rows(title, results[title])
        counts = (1_000,) if options.quick else (6_726, 10_000)
        results["cost"] = {f"{count:,} skills": measure_cost(count, scratch, sets[0]) for count in counts}
        print_rows("cost", results["cost"])
    finally:
        shutil.rmtree(scratch)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
