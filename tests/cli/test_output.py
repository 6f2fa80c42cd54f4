"""Tables: what must be whole is whole, what can be spared goes first, and a pipe gets everything."""

import pytest

from kitbag.cli import output

HEADERS = ("ID", "NAME", "STATUS", "COST", "WHAT")
ROW = ("0123456789ab", "a-very-long-name-of-an-agent", "waiting-approval", "$0.0012", "does a long thing " * 9)


def lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int | None) -> list[str]:
    monkeypatch.setattr(output, "terminal_width", lambda: columns)
    output.table(HEADERS, [ROW], whole=("ID", "STATUS"), omit=("COST",))
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("columns", [200, 100, 80, 70, 60])
def test_columns_that_must_be_whole_are_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    head, row = lines(monkeypatch, capsys, columns)
    assert max(map(len, (head, row))) <= columns
    assert ROW[0] in row
    assert ROW[2] in row
    assert ("COST" in head) == (ROW[3] in row)  # a number is whole or omitted


def test_a_pipe_gets_everything(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    head, row = lines(monkeypatch, capsys, None)
    assert head.split() == list(HEADERS)
    assert all(cell.strip() in row for cell in ROW)
