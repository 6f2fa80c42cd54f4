"""The results file of a batch: what it keeps, and which files it refuses."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from kitbag.errors import InvalidError
from kitbag.tasks.batch_results import ResultsFile, RowResult

DONE = RowResult(row=1, key="a", status="completed", output="ö")


def append(path: Path, *results: RowResult) -> None:
    with ResultsFile(str(path)) as file:
        for result in results:
            file.append(result)


def test_the_last_line_of_a_row_counts(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    append(path, RowResult(row=1, key="a", status="failed", error="x"), RowResult(row=2, key="b", status="completed"))
    append(path, DONE)
    with ResultsFile(str(path)) as file:
        assert {key: (one.attempts, one.is_completed) for key, one in file.history.items()} == {
            "a": (2, True),
            "b": (1, True),
        }
    assert json.loads(path.read_text().splitlines()[2]) == {
        "row": 1,
        "key": "a",
        "status": "completed",
        "output": "ö",
        "tokens": 0,
        "cost": 0.0,
        "error": "",
        "task": "",
    }


def test_a_line_that_a_crash_cut_off_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    append(path, DONE)
    whole = path.read_bytes()
    for end in (1, 20, len(whole) - 1):
        path.write_bytes(whole + whole[: len(whole) - end])
        with ResultsFile(str(path)) as file:
            file.append(DONE)
            assert bool(file.notices) is (end > 1), "without its line break, a line is complete"
        assert path.read_bytes() == whole * (3 if end == 1 else 2)


@pytest.mark.parametrize("content", ['{"name": "x"}\n', "text", '{"row": 1, "key": 2, "status": "x"}\n', "[" * 5_000])
def test_a_file_with_something_else_is_refused_and_stays_as_it_is(tmp_path: Path, content: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(content)
    with pytest.raises(InvalidError) as caught:
        ResultsFile(str(path))
    assert "r.jsonl:1: not a result of a row" in caught.value.problem
    assert path.read_text() == content


def test_two_runs_can_not_write_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with ResultsFile(str(path)), pytest.raises(InvalidError) as caught:
        ResultsFile(str(path))
    assert "another run is writing to" in caught.value.problem
    append(path, DONE)


def test_pipes_folders_and_missing_folders_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in ("pipe", "", "none/r.jsonl"):
        with pytest.raises(InvalidError):
            ResultsFile(str(tmp_path / place))


FULL_DISK = f"""
import resource, signal, sys
from kitbag.errors import InvalidError
from kitbag.tasks.batch_results import ResultsFile, RowResult
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with ResultsFile(sys.argv[1]) as file:
    file.append(RowResult(row=1, key="a", status="completed"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (150, {resource.RLIM_INFINITY}))
    try:
        file.append(RowResult(row=2, key="b", status="completed", output="x" * 100))
    except InvalidError as error:
        print(error.problem)
"""


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True)
    assert "can't write" in done.stdout, done.stderr
    assert [json.loads(line)["row"] for line in path.read_text().splitlines()] == [1]
    assert path.read_bytes().endswith(b"\n")
