"""Runs a command, through Bash: the one the person wrote in backticks, or the test command that a text tells.

Used by offline, and by offline_replace for what it says about the tests and about calls that were refused.
"""

from collections.abc import Sequence
from typing import Final

from kitbag.messages import Part, Text
from kitbag.models.offline.commands import RunCommandRequest, RunTestsRequest
from kitbag.models.offline.conversation import FIXED_RULES_LINE, OfflineConversation, ToolStep, code_block, code_span
from kitbag.models.offline.skills import DocumentedCommand, find_test_command, load_skill_calls, read_readme_calls

_LAST_LINES: Final = 25
_TOOL_ERROR: Final = "Error: "
"""Begins what the tool says about itself; what a command says begins with its exit code."""
_NO_BASH: Final = "Bash is not among the tools of this run: the mode, an agent or --allowed-tools leaves it out."
_NO_COMMAND: Final = (
    "No test command is told: neither a loaded skill nor README.md has a fenced block of one line below words such as"
    " `Run the tests:`. Name it: Run `COMMAND`."
)


def next_run_step(request: RunCommandRequest | RunTestsRequest, talk: OfflineConversation) -> list[Part]:
    if "Bash" not in talk.tools:
        return [_answer(f"Nothing was run. {_NO_BASH}")]
    if talk.steps_of("Bash"):
        told = None if isinstance(request, RunCommandRequest) else find_test_command(talk)
        return [_answer(describe_run(talk, told, asked=True))]
    if isinstance(request, RunCommandRequest):
        return [talk.make_call("Bash", command=request.command)]
    told = find_test_command(talk)
    if told is not None:
        return [talk.make_call("Bash", command=told.command, description="Run the tests")]
    if not talk.steps and (calls := [*load_skill_calls(talk), *read_readme_calls(talk)]):
        return list(calls)
    return [_answer(f"Nothing was run. {_NO_COMMAND}")]


def _answer(text: str) -> Text:
    return Text(f"{FIXED_RULES_LINE}\n\n{text}")


def describe_run(talk: OfflineConversation, told: DocumentedCommand | None, asked: bool) -> str:
    """How the command went that was run last; or why none was, where the person asked for it."""
    runs = talk.steps_of("Bash")
    if not runs:
        if not asked:
            return ""
        return f"The tests were not run. {_NO_BASH if 'Bash' not in talk.tools else _NO_COMMAND}"
    run = runs[-1]
    command = str(run.call.arguments.get("command", ""))
    of = f", the test command of {told.source}," if told is not None and told.command == command else ""
    if run.is_denied:
        return f"{code_span(command)}{of} was not run.\n\n{describe_denials(runs)}"
    if run.text.startswith(_TOOL_ERROR):
        return f"{code_span(command)}{of} was not run: {run.problem}"
    how = "failed" if run.is_error else ("passed" if of else "ended well")
    rows = run.text.rstrip().splitlines()
    cut = f" (the last {_LAST_LINES} of {len(rows):,} lines)" if len(rows) > _LAST_LINES else ""
    printed = code_block("\n".join(rows[-_LAST_LINES:])) if rows else ""
    return f"{code_span(command)}{of} {how}{cut}{':' if printed else '.'}\n\n{printed}".rstrip()


def describe_denials(steps: Sequence[ToolStep]) -> str:
    """Why the permissions refused, and what would allow it. Empty when they did not."""
    refused = [step for step in steps if step.is_denied]
    if not refused:
        return ""
    reasons = dict.fromkeys(f"Refused: {step.problem}" for step in refused)
    if " the user said no" in refused[0].text:
        return "\n".join(reasons)
    return "\n".join([*list(reasons)[:5], _suggest_permission(refused[0])])


def _suggest_permission(step: ToolStep) -> str:
    if step.call.name == "Task":
        rule = f"Task({step.call.arguments.get('subagent_type', '')})"
        return (
            f"To allow it, add {code_span(rule)} to permissions.allow in your own settings (`kitbag config"
            " where`). With"
            " `--permission-mode plan` agents start without a question, and only read."
        )
    if step.call.name != "Bash":
        return "`--permission-mode acceptEdits` allows changes to the files of the workspace."
    command = str(step.call.arguments.get("command", ""))
    if not command.isprintable() or "'" in command:
        return "`kitbag permissions test` explains what would become of a command, and why."
    return (
        f"To allow it, add 'Bash({command})' to permissions.allow in your own settings (`kitbag config where`);"
        f" `kitbag permissions test '{command}'` explains the decision."
    )
