"""The output that a packed task requires from a subagent, and the check whether the answer meets it.

The contract is rendered into the payload (`output_*.md`); the answer must say exactly complete, partial or blocked.
Used by pack and tasks.
"""

import hashlib
import os
import re
from typing import Any, Final, Literal, cast

import msgspec

from kitbag.record_fields import RecordFields
from kitbag.text.source_files import SourceError, directory_boundary, read_text

OutputKind = Literal["manifest+file", "text", "json"]
"""`json`: for a task with an output schema, which stands in the agent's prompt and is checked instead."""
OUTPUT_KINDS: tuple[OutputKind, ...] = ("manifest+file", "text")
ContractOutcome = Literal["complete", "partial", "blocked"]
CONTRACT_OUTCOMES: tuple[ContractOutcome, ...] = ("complete", "partial", "blocked")
_MANIFEST_KEYS = {
    "id": str,
    "file": str,
    "title": str,
    "date": str,
    "status": str,
    "key_findings": list,
    "needs_followup": list,
}
_STATUS_LINE = re.compile(r"status: (complete|partial|blocked)")


class OutputContract(msgspec.Struct, frozen=True, kw_only=True):
    kind: OutputKind
    task_id: str
    output_file: str
    """Relative to the workspace."""
    manifest_file: str
    date: str

    def render(self) -> str:
        name = f"output_{self.kind.replace('+', '_')}.md"
        with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
            text = file.read()
        values = {
            "TASK_ID": self.task_id,
            "OUTPUT_FILE": self.output_file,
            "MANIFEST_FILE": self.manifest_file,
            "DATE": self.date,
        }
        return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], text)


CONTRACT_FIELDS: Final = RecordFields(OutputContract, "kind", "task_id", "output_file", "manifest_file", "date")
"""Names in a stored task request."""


def make_contract(task_id: str, kind: OutputKind, date: str) -> OutputContract:
    """File names derive from the task id, reduced to characters that are safe in a path."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", task_id).strip(".-")[:64] or "task"
    if safe != task_id:  # keeps the file name unique per task id
        safe += f"-{hashlib.sha256(task_id.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    return OutputContract(
        kind=kind,
        task_id=task_id,
        output_file=f".kitbag/output/{safe}.md",
        manifest_file=".kitbag/output/MANIFEST.jsonl",
        date=date,
    )


class OutputReport(msgspec.Struct, frozen=True, kw_only=True):
    outcome: ContractOutcome | None
    """None if the answer has no valid status."""
    problems: tuple[str, ...]

    @property
    def valid(self) -> bool:
        return self.outcome is not None and not self.problems


def check_output(answer: str, contract: OutputContract, workspace: str) -> OutputReport:
    """Checks the answer and the files that the contract names; changes nothing."""
    lines = [line.strip() for line in answer.strip().split("\n") if line.strip()]
    if not lines:
        return OutputReport(outcome=None, problems=("the answer is empty",))
    if contract.kind == "text":
        match = _STATUS_LINE.fullmatch(lines[-1])
        if match is None:
            return OutputReport(
                outcome=None, problems=("the last line is not `status: complete`, `partial` or `blocked`",)
            )
        missing = () if len(lines) > 1 else ("no result above the status line",)
        return OutputReport(outcome=cast(ContractOutcome, match[1]), problems=missing)
    problems: list[str] = []
    if len(lines) > 1:
        problems.append(f"the answer has {len(lines)} lines instead of one")
    outcome = _parse_outcome(lines[-1], contract)
    if outcome is None:
        expected = f"{contract.task_id} complete. See {contract.manifest_file} for summary."
        problems.append(f"the answer does not end with `{expected}` (or partial, blocked)")
    problems += _check_files(contract, workspace, outcome)
    return OutputReport(outcome=outcome, problems=tuple(problems))


def _parse_outcome(line: str, contract: OutputContract) -> ContractOutcome | None:
    for outcome in CONTRACT_OUTCOMES:
        if line == f"{contract.task_id} {outcome}. See {contract.manifest_file} for summary.":
            return outcome
    return None


def _check_files(contract: OutputContract, workspace: str, outcome: ContractOutcome | None) -> list[str]:
    problems: list[str] = []
    path = os.path.join(workspace, contract.output_file)
    if not os.path.isfile(path):
        if outcome != "blocked":
            problems.append(f"the file {contract.output_file} was not written")
    elif os.path.getsize(path) == 0:
        problems.append(f"the file {contract.output_file} is empty")
    try:
        text, _, _ = read_text(os.path.join(workspace, contract.manifest_file), directory_boundary(workspace))
    except SourceError:
        return [*problems, f"{contract.manifest_file} was not written"]
    entries = [
        entry
        for entry in map(_parse_manifest_line, text.split("\n"))
        if entry is not None and entry.get("id") == contract.task_id
    ]
    if not entries:
        return [*problems, f"{contract.manifest_file} has no entry for {contract.task_id}"]
    entry = entries[-1]
    for key, kind in _MANIFEST_KEYS.items():
        if not isinstance(entry.get(key), kind):
            problems.append(f"the entry in {contract.manifest_file} has no `{key}` of type {kind.__name__}")
    if outcome is not None and entry.get("status") != outcome:
        problems.append(f"the answer says {outcome}, {contract.manifest_file} says {entry.get('status')}")
    if entry.get("file") not in (contract.output_file, None):
        problems.append(f"the entry in {contract.manifest_file} names another file: {entry.get('file')}")
    return problems


def _parse_manifest_line(line: str) -> dict[str, Any] | None:
    import json

    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
