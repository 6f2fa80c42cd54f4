"""How right `kitbag audit` is, and what it costs: precision and recall on the evaluation set, CPU per 100 items.

    python bench/audit.py [--half HALF] [--show] [--json FILE]

An item counts as accused if it has a finding of severity `high`. Precision is the share of malicious items among
accused ones, recall the share of accused items among malicious ones; `found` counts any finding but `info`. CPU is
the process time of audits of the whole set, the least of five, beside reading every file of it.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

sys.path.pop(0)  # this file is named like a folder of tests
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kitbag.audit.run import run_audit
from support.audit_set import HALVES, EvaluationItem, read_evaluation_set

Findings = dict[str, list[tuple[str, str, str]]]


def lay_out(items: list[EvaluationItem], folder: Path) -> None:
    for item in items:
        item.write(folder / item.half / item.label / item.kind)


def audit(folder: Path) -> Findings:
    findings: Findings = defaultdict(list)
    for finding in run_audit((str(folder),)).findings:
        findings[Path(finding.item).name].append((finding.severity, finding.rule, f"{finding.file}:{finding.line}"))
    return findings


def rates(items: list[EvaluationItem], findings: Findings) -> dict[str, float]:
    def share(part: int, whole: int) -> float:
        return 100 * part / whole if whole else 0.0

    def severe(item: EvaluationItem, *severities: str) -> bool:
        return any(severity in severities for severity, _, _ in findings[item.name])

    bad = [item for item in items if item.label == "malicious"]
    good = [item for item in items if item.label == "benign"]
    high = [item for item in items if severe(item, "high")]
    return {
        "benign": len(good),
        "malicious": len(bad),
        "precision": share(sum(item.label == "malicious" for item in high), len(high)),
        "recall": share(sum(item.label == "malicious" for item in high), len(bad)),
        "found": share(sum(severe(item, "high", "medium", "low") for item in bad), len(bad)),
        "benign high": share(sum(severe(item, "high") for item in good), len(good)),
        "benign failing": share(sum(severe(item, "high", "medium") for item in good), len(good)),
    }


def cpu_per_100(folder: Path, count: int) -> tuple[float, float]:
    """Process time for 100 items: of the audit, and of only reading every file."""

    def least(work: object) -> float:
        times: list[float] = []
        for _ in range(5):
            start = time.process_time()
            work()  # type: ignore[operator]
            times.append(time.process_time() - start)
        return min(times) * 100 / count

    def read() -> None:
        for path in folder.rglob("*"):
            if path.is_file():
                path.read_bytes()

    return least(lambda: run_audit((str(folder),))), least(read)


def misses(items: list[EvaluationItem], findings: Findings) -> list[str]:
    lines: list[str] = []
    for item in items:
        found = findings[item.name]
        worst = min((severity for severity, _, _ in found), key=("high", "medium", "low", "info").index, default="none")
        if (item.label == "malicious") != (worst == "high"):
            rules = ", ".join(f"{severity} {rule} {place}" for severity, rule, place in found if severity != "info")
            lines.append(f"  {item.label} {item.kind}/{item.name}: {worst}  {rules}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=HALVES)
    parser.add_argument("--show", action="store_true", help="list every item rated wrong; only with a tuning half")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    items = [item for item in read_evaluation_set() if options.half in (None, item.half)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lay_out(items, folder)
        findings = audit(folder)
        results = {
            half: rates([item for item in items if item.half == half], findings)
            for half in HALVES
            if options.half in (None, half)
        }
        cost, floor = cpu_per_100(folder, len(items))
    columns = list(next(iter(results.values())))
    print(f"{'half':<16}" + "".join(f"{column:>16}" for column in columns))
    for half, values in results.items():
        cells = (f"{values[c]:>16.0f}" if c in ("benign", "malicious") else f"{values[c]:>15.1f}%" for c in columns)
        print(f"{half:<16}" + "".join(cells))
    print(f"\nmissed malicious items by kind (all/missed): {by_kind(items, findings)}")
    print(f"CPU per 100 items: {cost:.2f} s; reading the files only: {floor:.3f} s")
    if options.show and options.half in ("tuning", "fresh tuning"):
        print("\n".join(misses(items, findings)))
    if options.json:
        Path(options.json).write_text(json.dumps({"rates": results, "cpu_per_100": cost, "read_per_100": floor}))


def by_kind(items: list[EvaluationItem], findings: Findings) -> str:
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for item in items:
        if item.label == "malicious":
            counts[item.kind][0] += 1
            counts[item.kind][1] += not any(severity == "high" for severity, _, _ in findings[item.name])
    return ", ".join(f"{kind} {whole}/{missed}" for kind, (whole, missed) in sorted(counts.items()) if missed) or "none"


if __name__ == "__main__":
    main()
