"""The results of skill tests as a JUnit report, which CI systems read. Used by `kitbag skills test --junit`."""

import re
from collections.abc import Iterable, Sequence
from typing import Final
from xml.sax.saxutils import quoteattr

from kitbag.errors import Diagnostic
from kitbag.packing.skill_tests import CaseOutcome, CaseResult
from kitbag.text.hidden_characters import reveal_hidden

_NOT_IN_XML: Final = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MAX_NAME: Final = 120


def junit_report(results: Sequence[CaseResult], problems: Iterable[Diagnostic] = ()) -> str:
    """One suite for each skill; a problem with a file is a test case with an error."""
    suites: dict[str, list[str]] = {}
    outcomes: dict[str, list[CaseOutcome]] = {}
    for result in results:
        skill = result.case.skill
        name = f"{result.case.id}: {result.case.message[:_MAX_NAME]}"
        seconds = f"{result.seconds:.3f}"
        start = f'    <testcase classname={_attribute(skill)} name={_attribute(name)} time="{seconds}"'
        if result.outcome == "passed":
            line = f"{start}/>"
        else:
            tag = "failure" if result.outcome == "failed" else result.outcome
            line = f"{start}><{tag} message={_attribute(result.reason)}/></testcase>"
        suites.setdefault(skill, []).append(line)
        outcomes.setdefault(skill, []).append(result.outcome)
    broken = [
        f'    <testcase classname={_attribute(one.file)} name="readable">'
        f"<error message={_attribute(f'{one.place}: {one.problem}; {one.fix}')}/></testcase>"
        for one in problems
    ]
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>"]
    for skill, cases in suites.items():
        failed, errors, skipped = (outcomes[skill].count(one) for one in ("failed", "error", "skipped"))
        counts = f'tests="{len(cases)}" failures="{failed}" errors="{errors}" skipped="{skipped}"'
        lines.append(f"  <testsuite name={_attribute(skill)} {counts}>")
        lines += [*cases, "  </testsuite>"]
    if broken:
        lines.append(f'  <testsuite name="test files" tests="{len(broken)}" failures="0" errors="{len(broken)}">')
        lines += [*broken, "  </testsuite>"]
    return "\n".join((*lines, "</testsuites>", ""))


def _attribute(text: str) -> str:
    return quoteattr(_NOT_IN_XML.sub("\ufffd", reveal_hidden(text)), {"\n": "&#10;", "\t": "&#9;"})
