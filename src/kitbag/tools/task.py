"""Task, TaskOutput, TaskStop: work delegated to other agents, each in its own context (seed 004).

Used by the agent loop. Delegation does the work; this module has the arguments and renders the reports. An agent's
answer is untrusted data, so it is enclosed in tags that it can't close.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Final

from msgspec import Meta, structs

from kitbag.text.hidden_characters import collapse_whitespace, reveal_hidden
from kitbag.text.human_format import format_count, format_duration
from kitbag.tools.base import Arguments, Tool, ToolContext, ToolOutput, load_description, text_output
from kitbag.tools.delegation import Delegation, DelegationRequest, TaskReport
from kitbag.tools.pack_arguments import check_task_reference, parse_pack_arguments

MAX_ANSWER_CHARS: Final = 40_000
"""Characters of an answer in one output; TaskOutput returns the rest."""
MAX_WAIT_MS: Final = 600_000
_ANSWER_TAG: Final = "agent-answer"
_COMMAND_TAG: Final = "command-output"
_RESERVED_TAGS: Final = (
    _ANSWER_TAG,
    _COMMAND_TAG,
    "task-notification",
    "system-reminder",
    "skill-invocation",
    "suggested-skills",
    "library-changes",
    "conversation-summary",
    "mentioned-file",
    "mentioned-folder",
    "mentioned-agent",
    "mentioned-command",
)
_RESERVED_TAG: Final = rf"(?i)<(\s*/?\s*(?:{'|'.join(_RESERVED_TAGS)}))"
"""Tags that delimit parts of the conversation, also in variant spellings."""


class TaskArguments(Arguments, frozen=True):
    subagent_type: Annotated[str, Meta(min_length=1, max_length=200)]
    prompt: Annotated[str, Meta(min_length=1, max_length=200_000)]
    description: Annotated[str, Meta(max_length=200, description="In 3 to 5 words.")] = ""
    run_in_background: bool = False
    model: Annotated[str, Meta(max_length=200, description="Such as sonnet, opus or haiku.")] = ""
    max_turns: Annotated[int, Meta(ge=0, le=10_000, description="0: the agent's own limit.")] = 0
    resume: Annotated[str, Meta(max_length=100, description="Task ID to resume.")] = ""
    pack: Annotated[str, Meta(max_length=9_999, description="`kitbag pack` arguments.")] = ""


class TaskOutputArguments(Arguments, frozen=True):
    task_id: Annotated[str, Meta(min_length=1, max_length=100)]
    block: bool = True
    timeout: Annotated[float, Meta(ge=0, le=MAX_WAIT_MS, description="Milliseconds.")] = 30_000
    offset: Annotated[int, Meta(ge=0, description="Output offset, from an earlier result.")] = 0


class TaskStopArguments(Arguments, frozen=True):
    task_id: Annotated[str, Meta(min_length=1, max_length=100)]


def _delegation(context: ToolContext) -> Delegation:
    assert context.delegation is not None, "task tools need a delegation"
    return context.delegation


def _approval_facts(arguments: TaskArguments, context: ToolContext) -> tuple[tuple[str, str], ...]:
    return _delegation(context).approval_facts(arguments.subagent_type, arguments.resume)


async def _start_task(arguments: TaskArguments, context: ToolContext) -> ToolOutput:
    task, selection = parse_pack_arguments(arguments.pack)
    if task:
        check_task_reference(task, context)
    request = DelegationRequest(
        agent=arguments.subagent_type,
        prompt=arguments.prompt,
        description=collapse_whitespace(reveal_hidden(arguments.description)),
        background=arguments.run_in_background,
        model=arguments.model,
        max_turns=arguments.max_turns,
        resume=arguments.resume,
        pack=task,
        pack_selection=selection,
    )
    report = await _delegation(context).start(request, context.progress, context.background_switch)
    if not report.is_finished:
        status = "moved to the background by the user" if report.is_moved else "started in the background"
        text = (
            f"Agent: {report.name}\nTask: {report.id}\nStatus: {status}\n\n"
            f'{_delegation(context).end_notice} Check it with TaskOutput(task_id="{report.id}", block=false), stop it'
            f' with TaskStop(task_id="{report.id}").'
        )
        text = "\n".join((text, *render_warnings(report.warnings)))
        verb = "moved to" if report.is_moved else "started in"
        return text_output(text, f"{report.name} {verb} the background, task {report.id}")
    return render_report(report, 0)


async def _read_task_output(arguments: TaskOutputArguments, context: ToolContext) -> ToolOutput:
    seconds = arguments.timeout / 1_000 if arguments.block else 0.0
    report = await _delegation(context).report(arguments.task_id, seconds, arguments.offset)
    return render_report(report, arguments.offset)


async def _stop_task(arguments: TaskStopArguments, context: ToolContext) -> ToolOutput:
    stopped = await _delegation(context).stop(arguments.task_id)
    report = stopped.report
    if stopped.was_finished:
        return text_output(f"Task {report.id} had already ended: {report.status}.", f"{report.id} had already ended")
    others = f" {stopped.subtask_count} subtasks were stopped with it." if stopped.subtask_count else ""
    text = (
        f"Stopped task {report.id} ({report.name}): {report.status}.{others} Remaining processes:"
        f" {stopped.process_count}."
    )
    output_hint = f'\nRead its output so far with TaskOutput(task_id="{report.id}").' if report.text else ""
    return text_output(
        "\n".join((text + output_hint, *render_warnings(report.further_warnings))),
        f"{report.name} stopped, {stopped.process_count} processes remaining",
    )


def render_report(report: TaskReport, offset: int = 0) -> ToolOutput:
    lines = [f"Agent: {report.name}", f"Task: {report.id}"]
    lines.append(f"Status: {report.status if report.is_finished else _running_status(report.status)}")
    lines += [f"Turns: {report.turns}", f"Tokens: {report.tokens}"]
    if report.cost:
        lines.append(f"Cost: ${report.cost:.4f}")
    if report.exit_code is not None and not report.error:
        lines.append(f"Exit code: {report.exit_code}")
    if report.is_finished:
        lines.append(f"Duration: {format_duration(report.seconds)}")
    elif report.activity:
        lines.append(f"Activity: {collapse_whitespace(escape_tags(report.activity))}")
    if report.error:
        lines.append(f"Error: {collapse_whitespace(escape_tags(report.error))}")
    if report.patch:
        lines.append(f"Changes: a patch; the user applies it with `kitbag tasks apply {report.id}`")
    if report.branch:
        lines.append(f"Branch: {report.branch} (contains the task's changes; merge the ones you want)")
    lines += render_warnings(report.further_warnings)
    tag = _COMMAND_TAG if report.is_command else _ANSWER_TAG
    shown, truncation = (
        (report.text, _describe_remaining_output(report))
        if report.is_command
        else _truncate_answer(report.text, offset)
    )
    if shown:
        lines += ["", "Output:", f"<{tag}>", escape_tags(shown.rstrip("\n")), f"</{tag}>"]
    elif report.is_command:
        lines += ["", "(no more output)" if offset else "(no output)"]
    if truncation:
        follows = report.next_offset if report.is_command else offset + len(shown)
        lines.append(f'[{truncation} Continue with TaskOutput(task_id="{report.id}", offset={follows}).]')
    elif report.is_command and not report.is_finished:
        lines.append(f'[For further output, use TaskOutput(task_id="{report.id}", offset={report.next_offset}).]')
    if not report.is_finished:
        lines += [
            "",
            "Options:",
            f'  - Wait longer: TaskOutput(task_id="{report.id}", timeout=60000)',
            f'  - Check status: TaskOutput(task_id="{report.id}", block=false)',
            f'  - Stop: TaskStop(task_id="{report.id}")',
        ]
    figures = (
        [f"exit {report.exit_code}"] if report.exit_code is not None else [f"{report.output_size:,} bytes printed"]
    )
    figures = (
        figures if report.is_command else [format_count(report.turns, "turn"), format_count(report.tokens, "token")]
    )
    summary = ", ".join((f"{report.name}: {report.status}", *figures))
    failed = report.is_finished and report.status in ("failed", "interrupted")
    return structs.replace(
        text_output("\n".join(lines), summary, truncation),
        is_error=failed,
        details=reveal_hidden(shown),
    )


def render_warnings(warnings: Iterable[str]) -> list[str]:
    return [f"Warning: {collapse_whitespace(escape_tags(warning))}" for warning in warnings]


def _running_status(status: str) -> str:
    return "still running" if status == "running" else status


def _truncate_answer(text: str, offset: int) -> tuple[str, str]:
    shown = text[offset : offset + MAX_ANSWER_CHARS]
    left = len(text) - offset - len(shown)
    return shown, f"{left:,} more characters." if left > 0 else ""


def _describe_remaining_output(report: TaskReport) -> str:
    """How much output follows the range that is shown."""
    left = report.output_size - report.next_offset
    if left <= MAX_ANSWER_CHARS:
        return f"{left:,} more bytes." if left else ""
    return f"{left:,} more bytes; the last part starts at offset={report.output_size - MAX_ANSWER_CHARS}."


def escape_tags(text: str) -> str:
    """Escape untrusted text so that it can't close its enclosing tag or imitate a part of the conversation."""
    return re.sub(_RESERVED_TAG, r"<\\\1", reveal_hidden(text))


TASK: Final = Tool(
    name="Task",
    description=load_description("Task"),
    arguments=TaskArguments,
    run=_start_task,
    approval_facts=_approval_facts,
    concurrent=True,
)
TASK_OUTPUT: Final = Tool(
    name="TaskOutput",
    description=load_description("TaskOutput"),
    arguments=TaskOutputArguments,
    run=_read_task_output,
    read_only=True,
)
TASK_STOP: Final = Tool(
    name="TaskStop", description=load_description("TaskStop"), arguments=TaskStopArguments, run=_stop_task
)
