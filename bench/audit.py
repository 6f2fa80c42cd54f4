"""How right `kitbag audit` is, and what it costs: precision and recall on the evaluation set, CPU per 100 items.

    python bench/audit.py [--show] [--realistic COUNT] [--json FILE]

Precision is the share of malicious items among those with a finding of severity `high`. CPU is the process time
of audits, the least of several, beside reading every file: of the set, whose items are small, and of realistic items
made from documentation and scripts that are installed on this machine.
"""

import argparse
import json
import sys
import sysconfig
import tempfile
import time
from collections import defaultdict
from pathlib import Path

sys.path.pop(0)  # this file is named like a folder of tests
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kitbag.audit.run import run_audit
from support.audit_set import (
    MALICIOUS_PARTS,
    EvaluationItem,
    find_by_item,
    read_evaluation_set,
    read_held_out_set,
)

Findings = dict[str, list[tuple[str, str, str]]]


def lay_out(items: list[EvaluationItem], folder: Path) -> None:
    for item in items:
        item.write(folder / item.label)


def audit(folder: Path) -> Findings:
    return {
        name: [(one.severity, one.rule, one.location) for one in found] for name, found in find_by_item(folder).items()
    }


def rates(items: list[EvaluationItem], findings: Findings) -> dict[str, dict[str, float]]:
    """For each part, how many items it has and the share of them with a finding of at least a severity."""
    result: dict[str, dict[str, float]] = {}
    malicious = [("malicious", part) for part in (*MALICIOUS_PARTS, "held out")]
    for label, part in (("benign", "benign"), ("benign", "blind"), ("benign", "held out"), *malicious):
        own = [item for item in items if (item.label, item.part) == (label, part)]
        found = [{severity for severity, _, _ in findings.get(item.name, [])} for item in own]
        if label == "benign" and part != "benign":
            part = f"benign, {part}"
        result[part] = {"items": len(found)}
        for worst, severities in {
            "high": {"high"},
            "medium": {"high", "medium"},
            "low": {"high", "medium", "low"},
        }.items():
            result[part][worst] = 100 * sum(bool(one & severities) for one in found) / len(found)
    return result


def precision(items: list[EvaluationItem], findings: Findings) -> float:
    high = [item for item in items if any(severity == "high" for severity, _, _ in findings.get(item.name, []))]
    return 100 * sum(item.label == "malicious" for item in high) / len(high)


def cpu_per_100(folder: Path, count: int, rounds: int = 5) -> tuple[float, float]:
    """Process time for 100 items: of the audit, and of only reading every file."""

    def least(work: object) -> float:
        times: list[float] = []
        for _ in range(rounds):
            start = time.process_time()
            work()  # type: ignore[operator]
            times.append(time.process_time() - start)
        return min(times) * 100 / count

    def read() -> None:
        for path in folder.rglob("*"):
            if path.is_file():
                path.read_bytes()

    return least(lambda: run_audit((str(folder),))), least(read)


SOURCES = ("/usr/lib/node_modules", "/usr/share/doc", sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))
MAX_SOURCE, MAX_KINDS = 100_000, 12


def lay_out_realistic(folder: Path, count: int) -> int:
    """Skills of one Markdown file and two scripts each; returns the number of bytes."""
    texts, scripts = [], []
    for source in SOURCES:
        for path in sorted(Path(source).rglob("*")):
            if path.suffix in (".md", ".py", ".js", ".sh") and path.is_file() and path.stat().st_size <= MAX_SOURCE:
                (texts if path.suffix == ".md" else scripts).append(path)
    if not texts or not scripts:
        return 0
    size = 0
    for number in range(count):
        item = folder / f"item-{number}"
        (item / "scripts").mkdir(parents=True)
        head = f"---\nname: item-{number}\ndescription: Helps with item {number}.\n---\n\n".encode()
        text = head + texts[number * 7919 % len(texts)].read_bytes()
        (item / "SKILL.md").write_bytes(text)
        size += len(text)
        for part in (0, 1):
            script = scripts[(2 * number + part) * 7919 % len(scripts)]
            (item / "scripts" / f"{part}-{script.name}").write_bytes(script.read_bytes())
            size += script.stat().st_size
    return size


def misses(items: list[EvaluationItem], findings: Findings) -> list[str]:
    lines: list[str] = []
    for item in items:
        found = findings.get(item.name, [])
        worst = min((severity for severity, _, _ in found), key=("high", "medium", "low", "info").index, default="none")
        if (item.label == "malicious") != (worst == "high"):
            rules = ", ".join(f"{severity} {rule} {place}" for severity, rule, place in found if severity != "info")
            lines.append(f"  {item.label} {item.kind}/{item.name}: {worst}  {rules}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true", help="list every item rated wrong")
    parser.add_argument("--realistic", type=int, default=300, metavar="COUNT", help="items to make; 0: none")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    items, held_out = read_evaluation_set(), read_held_out_set()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lay_out(items + held_out, folder)
        findings = audit(folder)
        results = rates(items + held_out, findings)
        cost, floor = cpu_per_100(folder, len(items + held_out))
    realistic = measure_realistic(options.realistic) if options.realistic else {}
    print("Share of items with such a finding or a worse one:")
    print(f"{'part':<18}{'items':>8}{'high':>9}{'medium':>9}{'low':>9}")
    for part, values in results.items():
        shares = "".join(f"{values[severity]:>8.1f}%" for severity in ("high", "medium", "low"))
        print(f"{part:<18}{values['items']:>8.0f}{shares}")
    print(f"precision of high: {precision(items, findings):.1f}%, held out {precision(held_out, findings):.1f}%")
    print(f"\nmissed malicious items by kind (all/missed): {by_kind(items, findings)}")
    print(f"CPU per 100 items: {cost:.2f} s; reading the files only: {floor:.3f} s")
    if realistic:
        print(
            "realistic items: {items:.0f} of {kilobytes:.0f} KB, {high:.0f} with a high finding; "
            "CPU per 100 items: {cpu_per_100:.2f} s; reading the files only: {read_per_100:.3f} s".format(**realistic)
        )
    if options.show:
        print("\n".join(misses(items, findings)))
    if options.json:
        Path(options.json).write_text(
            json.dumps({"rates": results, "cpu_per_100": cost, "read_per_100": floor, "realistic": realistic})
        )


def measure_realistic(count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = lay_out_realistic(folder, count)
        if not size:
            return {}
        high = {finding.item for finding in run_audit((name,)).findings if finding.severity == "high"}
        cost, floor = cpu_per_100(folder, count, rounds=2)
    return {
        "items": count,
        "kilobytes": size / count / 1000,
        "high": len(high),
        "cpu_per_100": cost,
        "read_per_100": floor,
    }


def by_kind(items: list[EvaluationItem], findings: Findings) -> str:
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for item in items:
        if item.label == "malicious":
            counts[item.kind][0] += 1
            counts[item.kind][1] += not any(severity == "high" for severity, _, _ in findings.get(item.name, []))
    worst = sorted(counts.items(), key=lambda one: (-one[1][1], one[0]))[:MAX_KINDS]
    return ", ".join(f"{kind} {whole}/{missed}" for kind, (whole, missed) in worst if missed) or "none"


if __name__ == "__main__":
    main()
