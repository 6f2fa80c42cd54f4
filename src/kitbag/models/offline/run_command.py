"""Runs a command through Bash: the one the user wrote in backticks, or the documented test command.

Used by offline.model; replace and collect use its reports about test runs and denied calls.
"""

from collections.abc import Sequence
from typing import Final

from kitbag.messages import Part, Text
from kitbag.models.offline.commands import RunCommandRequest, RunTestsRequest
from kitbag.models.offline.conversation import FIXED_RULES_LINE, OfflineConversation, ToolStep, code_block, code_span
from kitbag.models.offline.skills import DocumentedCommand, find_test_command, load_skill_calls, read_readme_calls

_LAST_LINES: Final = 25
_TOOL_ERROR: Final = "Error: "
"""Prefix of the tool's own errors; the output of a failed command starts with its exit code."""
_NO_BASH: Final = "Bash is not available in this run: the mode, the agent or --allowed-tools excludes it."
_NO_COMMAND: Final = (
    "No test command found: neither a loaded skill nor README.md has a one-line code block after text such as"
    " `Run the tests:`. Specify it: Run `COMMAND`."
)


def next_run_step(request: RunCommandRequest | RunTestsRequest, conversation: OfflineConversation) -> list[Part]:
    if "Bash" not in conversation.tools:
        return [_answer(f"Nothing was run. {_NO_BASH}")]
    if conversation.steps_of("Bash"):
        test_command = None if isinstance(request, RunCommandRequest) else find_test_command(conversation)
        return [_answer(describe_run(conversation, test_command, was_requested=True))]
    if isinstance(request, RunCommandRequest):
        return [conversation.make_call("Bash", command=request.command)]
    test_command = find_test_command(conversation)
    if test_command is not None:
        return [conversation.make_call("Bash", command=test_command.command, description="Run the tests")]
    if not conversation.steps and (calls := [*load_skill_calls(conversation), *read_readme_calls(conversation)]):
        return list(calls)
    return [_answer(f"Nothing was run. {_NO_COMMAND}")]


def _answer(text: str) -> Text:
    return Text(f"{FIXED_RULES_LINE}\n\n{text}")


def describe_run(conversation: OfflineConversation, test_command: DocumentedCommand | None, was_requested: bool) -> str:
    """The result of the last command; or why none was run, if the user asked for it."""
    runs = conversation.steps_of("Bash")
    if not runs:
        if not was_requested:
            return ""
        return f"The tests were not run. {_NO_BASH if 'Bash' not in conversation.tools else _NO_COMMAND}"
    run = runs[-1]
    command = str(run.call.arguments.get("command", ""))
    origin = (
        f", the test command from {test_command.source},"
        if test_command is not None and test_command.command == command
        else ""
    )
    if run.is_denied:
        return f"{code_span(command)}{origin} was not run.\n\n{describe_denials(runs)}"
    if run.text.startswith(_TOOL_ERROR):
        return f"{code_span(command)}{origin} was not run: {run.problem}"
    outcome = "failed" if run.is_error else ("passed" if origin else "succeeded")
    rows = run.text.rstrip().splitlines()
    note = f" (the last {_LAST_LINES} of {len(rows):,} lines)" if len(rows) > _LAST_LINES else ""
    output = code_block("\n".join(rows[-_LAST_LINES:])) if rows else ""
    return f"{code_span(command)}{origin} {outcome}{note}{':' if output else '.'}\n\n{output}".rstrip()


def describe_denials(steps: Sequence[ToolStep]) -> str:
    """Why calls were denied, and what would allow them; empty if none were."""
    denied = [step for step in steps if step.is_denied]
    if not denied:
        return ""
    reasons = dict.fromkeys(f"Denied: {step.problem}" for step in denied)
    from kitbag.permissions.approvals.approval import DENIED_BY_USER

    if f" {DENIED_BY_USER}" in denied[0].text:
        return "\n".join(reasons)
    return "\n".join([*list(reasons)[:5], _suggest_permission(denied[0])])


def _suggest_permission(step: ToolStep) -> str:
    if step.call.name == "Task":
        rule = f"Task({step.call.arguments.get('subagent_type', '')})"
        return (
            f"To allow it, add {code_span(rule)} to permissions.allow in your settings (`kitbag config where`). With"
            " `--permission-mode plan`, agents start without approval and are read-only."
        )
    if step.call.name != "Bash":
        return "`--permission-mode acceptEdits` allows edits to files in the workspace."
    command = str(step.call.arguments.get("command", ""))
    if not command.isprintable() or "'" in command:
        return "Run `kitbag permissions test` to see whether a command is allowed and why."
    return (
        f"To allow it, add 'Bash({command})' to permissions.allow in your settings (`kitbag config where`);"
        f" `kitbag permissions test '{command}'` explains the decision."
    )
