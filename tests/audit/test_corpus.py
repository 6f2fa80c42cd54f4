"""SECURITY D49: forty planted skills and forty honest ones. Each planted one says what it must be found for."""

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from kitbag.audit.run import AuditReport, report_to_json, run_audit

CORPUS = Path(__file__).parent / "corpus"
EXPECTED: dict[str, list[str]] = tomllib.loads((CORPUS / "expected.toml").read_text())
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bad() -> AuditReport:
    return run_audit((str(CORPUS / "bad"),))


@pytest.fixture(scope="module")
def benign() -> AuditReport:
    return run_audit((str(CORPUS / "benign"),))


def test_the_corpus_has_forty_of_each() -> None:
    assert len(EXPECTED) >= 40
    assert sorted(EXPECTED) == sorted(path.name for path in (CORPUS / "bad").iterdir())
    assert len(list((CORPUS / "benign").iterdir())) >= 40


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_planted_skill_is_found_for_what_it_does(bad: AuditReport, name: str) -> None:
    found = {f"{f.severity} {f.rule}" for f in bad.findings if Path(f.item).name == name}
    assert set(EXPECTED[name]) <= found


def test_no_honest_skill_has_a_high_finding(benign: AuditReport) -> None:
    assert [(f.location, f.rule) for f in benign.findings if f.severity == "high"] == []


def test_hardly_any_honest_skill_fails_an_audit(benign: AuditReport) -> None:
    assert {Path(f.item).name for f in benign.findings if f.severity == "medium"} <= {"rust-setup", "scanner-tool"}


@pytest.mark.parametrize("path", ["examples", "src/kitbag/builtin"])
def test_what_ships_has_no_finding_that_fails_an_audit(path: str) -> None:
    assert [
        (f.location, f.rule) for f in run_audit((str(REPOSITORY / path),)).findings if f.severity in ("high", "medium")
    ] == []


def test_each_finding_says_where_what_and_has_a_fingerprint_of_its_own(bad: AuditReport) -> None:
    for finding in bad.findings:
        assert (Path(bad.root) / finding.file).exists()
        assert finding.excerpt
        assert finding.excerpt.isprintable()
    prints = [finding.fingerprint for finding in bad.findings]
    assert len(prints) == len(set(prints))


def test_two_audits_of_the_same_files_say_the_same_in_the_same_order(tmp_path: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(CORPUS, tmp_path / name / "corpus")
        subprocess.run(["git", "init", "-q", str(tmp_path / name)], check=True)
    first, second = (run_audit((str(tmp_path / name),)) for name in ("one", "two"))
    assert report_to_json(first, first.findings) == report_to_json(second, second.findings)
