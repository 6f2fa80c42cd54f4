"""What a subagent returned, held against what it was asked for."""

import json
from pathlib import Path

import pytest

from kitbag.packing.output_contract import check_output, make_contract

CONTRACT = make_contract("T1", "manifest+file", "2026-01-01")
LINE = "T1 complete. See .kitbag/output/MANIFEST.jsonl for summary."


def deliver(workspace: Path, **changes: object) -> None:
    folder = workspace / ".kitbag" / "output"
    folder.mkdir(parents=True)
    (folder / "T1.md").write_text("The result.\n")
    entry = {"id": "T1", "file": CONTRACT.output_file, "title": "t", "date": "d", "status": "complete"}
    entry |= {"key_findings": ["a"], "needs_followup": [], **changes}
    (folder / "MANIFEST.jsonl").write_text('{"id": "other"}\nnot json\n' + json.dumps(entry) + "\n")


def test_a_delivery_that_keeps_the_contract_is_valid(tmp_path: Path) -> None:
    deliver(tmp_path)
    report = check_output(LINE, CONTRACT, str(tmp_path))
    assert (report.outcome, report.problems, report.valid) == ("complete", (), True)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("", "empty"),
        ("All done!", "does not end with"),
        (f"Here is what I found.\n{LINE}", "2 lines"),
        ("T2 complete. See .kitbag/output/MANIFEST.jsonl for summary.", "does not end with"),
        ("T1 partial. See .kitbag/output/MANIFEST.jsonl for summary.", "says partial"),
    ],
)
def test_an_answer_that_breaks_it_is_told_how(tmp_path: Path, answer: str, problem: str) -> None:
    deliver(tmp_path)
    report = check_output(answer, CONTRACT, str(tmp_path))
    assert not report.valid
    assert any(problem in text for text in report.problems)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"key_findings": "a"}, "key_findings"),
        ({"status": "blocked"}, "says blocked"),
        ({"file": "elsewhere.md"}, "another file"),
        ({"id": "T2"}, "no entry for T1"),
    ],
)
def test_a_manifest_line_that_breaks_it_is_told_how(tmp_path: Path, changes: dict[str, object], problem: str) -> None:
    deliver(tmp_path, **changes)
    report = check_output(LINE, CONTRACT, str(tmp_path))
    assert any(problem in text for text in report.problems), report


def test_files_that_were_not_written_are_missed(tmp_path: Path) -> None:
    report = check_output(LINE, CONTRACT, str(tmp_path))
    assert len(report.problems) == 2


@pytest.mark.parametrize(
    ("answer", "valid"), [("Result.\n\nstatus: complete", True), ("status: complete", False), ("Result.", False)]
)
def test_a_text_answer_ends_with_its_status(tmp_path: Path, answer: str, valid: bool) -> None:
    assert check_output(answer, make_contract("T1", "text", "d"), str(tmp_path)).valid is valid


def test_an_id_never_leads_out_of_the_output_folder() -> None:
    file = make_contract("../../etc/passwd", "manifest+file", "d").output_file
    assert file.startswith(".kitbag/output/etc-passwd-")
    assert ".." not in file


def test_two_ids_never_share_a_file_and_an_id_is_never_scanned() -> None:
    ids = ("задача", "任务", "a/b", "a-b", "x" * 70, "x" * 71)
    assert len({make_contract(one, "manifest+file", "d").output_file for one in ids}) == len(ids)
    assert '"id": "{{OUTPUT_FILE}}x"' in make_contract("{{OUTPUT_FILE}}x", "manifest+file", "d").render()
