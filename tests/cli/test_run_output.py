"""How a run is told: one result for each request, and no secret in any of it."""

import json
import sys

import msgspec
import pytest

from kitbag.cli.run_output import JsonOutput, RunOutput, StreamJsonOutput, TextOutput
from kitbag.errors import KitbagError
from kitbag.events import Discarded, MessageAdded, Notice, RunEnded, RunStarted, TextDelta, ToolFinished, ToolStarted
from kitbag.messages import Message, Text, ToolCall, Usage

SECRET = "tok-0123456789abcdef"
STARTED = RunStarted(session="s1", model="m", mode="default", directory="/w", skills=0, agents=0, tools=())
ENDED = RunEnded(status="completed", text=f"It is {SECRET}.", turns=1, usage=Usage(input=1, output=2), cost=None)
REPORTS: list[type[RunOutput]] = [TextOutput, JsonOutput, StreamJsonOutput]


def told(report: RunOutput, *events: object) -> None:
    for event in events:
        report.event(event)  # type: ignore[arg-type]
    report.end()


@pytest.mark.parametrize("kind", REPORTS)
def test_no_secret_is_told(kind: type[RunOutput], capsys: pytest.CaptureFixture[str]) -> None:
    notice = Notice(severity="error", text=f"bad {SECRET}", fix=f"not {SECRET}")
    failed = ToolFinished(call_id="c", name="Read", is_error=True, summary=f"no {SECRET}", seconds=0.1)
    told(
        kind((SECRET,)),
        STARTED,
        notice,
        failed,
        TextDelta(f"a {SECRET}"),
        msgspec.structs.replace(ENDED, status="failed", error=SECRET),
    )
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err
    assert "It is [REDACTED]." in said.out


@pytest.mark.parametrize("kind", REPORTS)
def test_a_fault_is_told_once_and_its_place_goes_to_stderr(
    kind: type[RunOutput], capsys: pytest.CaptureFixture[str]
) -> None:
    report = kind((SECRET,))
    report.event(STARTED)
    report.internal_error(f"ZeroDivisionError: {SECRET}", f"Traceback:\n  x = '{SECRET}'\x1b[31m")
    said = capsys.readouterr()
    assert "Traceback:" in said.err
    assert "\x1b" not in said.err
    assert SECRET not in said.out + said.err
    assert "internal error" in said.out + said.err
    report = kind()
    report.event(STARTED)
    report.event(msgspec.structs.replace(ENDED, status="failed", text="", error="oops"))
    report.internal_error("ZeroDivisionError", "Traceback:")
    said = capsys.readouterr()
    assert (said.out + said.err).count("oops") == 1
    assert "internal error" not in said.out + said.err


def test_of_several_requests_a_document_tells_all(capsys: pytest.CaptureFixture[str]) -> None:
    report = JsonOutput()
    for text in ("one", "two"):
        report.event(STARTED)
        report.event(msgspec.structs.replace(ENDED, text=text))
    report.fail(KitbagError("no more", "stop"))
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["error"]) == ("failed", "no more")
    assert [earlier["result"] for earlier in found["earlier"]] == ["one", "two"]
    report.end()
    assert capsys.readouterr().out == ""


class TestText:
    REFUSED = ToolFinished(
        call_id="c1", name="Edit", is_error=True, summary="Edit is not allowed: nobody can be asked", seconds=0.1
    )

    def test_without_a_terminal_what_was_refused_is_told_once_at_the_end(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        bash = ToolFinished(call_id="c2", name="Bash", is_error=True, summary="Bash is not allowed: no", seconds=0.1)
        failed = ToolFinished(call_id="c3", name="Read", is_error=True, summary="it is not there", seconds=0.1)
        report = TextOutput()
        told(report, STARTED, self.REFUSED, bash, bash, failed, ENDED)
        said = capsys.readouterr()
        assert said.out == f"It is {SECRET}.\n"
        assert "warning: denied: Edit, Bash (2 times)\n  fix: --permission-mode" in said.err
        told(report, STARTED, ENDED)
        assert capsys.readouterr().err == ""

    def test_at_a_terminal_words_calls_and_results_are_told_as_they_come(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        monkeypatch.setenv("NO_COLOR", "1")
        one, two = (
            ToolStarted(call_id="c1", name="Edit", arguments={}, title="Edit(a.py)"),
            ToolStarted(call_id="c2", name="Grep", arguments={}, title="Grep(x)"),
        )
        spoken = MessageAdded(
            Message("assistant", (Text("I look.\nThen I act."), ToolCall(id="c1", name="Edit", arguments={})))
        )
        found = ToolFinished(call_id="c2", name="Grep", is_error=False, summary="2 files", seconds=0.1)
        told(TextOutput(), STARTED, spoken, one, two, found, self.REFUSED, ENDED)
        said = capsys.readouterr()
        assert said.out == f"It is {SECRET}.\n"
        assert said.err.splitlines()[1:] == [
            "I look.",
            "Then I act.",
            "  Edit(a.py)",
            "  Grep(x)",
            "    2 files",
            "    Edit(a.py): Edit is not allowed: nobody can be asked",
        ]


class TestPieces:
    def test_what_was_taken_back_is_not_shown_later(self, capsys: pytest.CaptureFixture[str]) -> None:
        told(
            StreamJsonOutput((SECRET,)),
            STARTED,
            TextDelta("the tok-012"),
            Discarded("broke"),
            TextDelta("Fine."),
            ENDED,
        )
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [line["text"] for line in lines if line["type"] == "text"] == ["the ", "Fine."]
