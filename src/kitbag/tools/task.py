"""Task, TaskOutput, TaskStop: work that other agents do, in contexts of their own (seed 004).

Used by the loop. Delegation does the work; here are the arguments and the texts. An agent's answer is data: it is
delimited, and can't close what delimits it.
"""

import re
from typing import Annotated, Final

from msgspec import Meta

from kitbag.text.hidden_characters import one_line, reveal_hidden
from kitbag.text.human_format import count, duration
from kitbag.tools.base import Arguments, Context, Outcome, Tool, answer, description
from kitbag.tools.delegation import Delegation, Errand, Report

LONGEST_ANSWER: Final = 40_000
"""Characters of an answer at once; TaskOutput gives the rest."""
LONGEST_WAIT: Final = 600_000
_TAG: Final = "agent-answer"
_COMMAND_TAG: Final = "command-output"
_TAGS: Final = (
    _TAG,
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
_OF_OURS: Final = re.compile(rf"<(\s*/?\s*(?:{'|'.join(_TAGS)}))", re.IGNORECASE)
"""What begins or ends a part of the conversation, also where it is written a little differently."""


class TaskArguments(Arguments, frozen=True):
    subagent_type: Annotated[str, Meta(min_length=1, max_length=200, description="The agent's name.")]
    prompt: Annotated[str, Meta(min_length=1, max_length=200_000, description="All that it needs to know.")]
    description: Annotated[str, Meta(max_length=200, description="In 3 to 5 words.")] = ""
    run_in_background: Annotated[bool, Meta(description="Return a task id at once.")] = False
    model: Annotated[str, Meta(max_length=200, description="Another model, such as sonnet, opus or haiku.")] = ""
    max_turns: Annotated[int, Meta(ge=0, le=10_000, description="0: as the agent says.")] = 0
    resume: Annotated[str, Meta(max_length=100, description="The id of a task that is to go on.")] = ""


class TaskOutputArguments(Arguments, frozen=True):
    task_id: Annotated[str, Meta(min_length=1, max_length=100)]
    block: Annotated[bool, Meta(description="Wait for its end.")] = True
    timeout: Annotated[float, Meta(ge=0, le=LONGEST_WAIT, description="Milliseconds to wait.")] = 30_000
    offset: Annotated[int, Meta(ge=0, description="Where in the output to begin, as an earlier result says.")] = 0


class TaskStopArguments(Arguments, frozen=True):
    task_id: Annotated[str, Meta(min_length=1, max_length=100)]


def _delegation(context: Context) -> Delegation:
    assert context.delegation is not None, "the tools are there only where it is"
    return context.delegation


def _facts(arguments: TaskArguments, context: Context) -> tuple[tuple[str, str], ...]:
    return _delegation(context).facts(arguments.subagent_type, arguments.resume)


async def _start(arguments: TaskArguments, context: Context) -> Outcome:
    errand = Errand(
        arguments.subagent_type,
        arguments.prompt,
        one_line(reveal_hidden(arguments.description)),
        arguments.run_in_background,
        arguments.model,
        arguments.max_turns,
        arguments.resume,
    )
    report = await _delegation(context).start(errand, context.progress)
    if not report.is_finished:
        text = (
            f"Agent: {report.name}\nTask: {report.id}\nStatus: started in the background\n\n"
            f'You will be told when it ends. Look at it with TaskOutput(task_id="{report.id}", block=false), stop it'
            f' with TaskStop(task_id="{report.id}").'
        )
        text += "".join(f"\nWarning: {one_line(warning)}" for warning in report.warnings)
        return answer(text, f"{report.name} started in the background, task {report.id}")
    return told(report, 0)


async def _output(arguments: TaskOutputArguments, context: Context) -> Outcome:
    seconds = arguments.timeout / 1_000 if arguments.block else 0.0
    report = await _delegation(context).report(arguments.task_id, seconds, arguments.offset)
    return told(report, arguments.offset)


async def _stop(arguments: TaskStopArguments, context: Context) -> Outcome:
    stopped = await _delegation(context).stop(arguments.task_id)
    report = stopped.report
    if stopped.was_finished:
        return answer(f"Task {report.id} had ended already: {report.status}.", f"{report.id} had ended already")
    others = f" {stopped.others} tasks that it had begun were stopped with it." if stopped.others else ""
    text = f"Task {report.id} ({report.name}) is stopped: {report.status}.{others} Processes left: {stopped.processes}."
    kept = f'\nWhat it had done until then: TaskOutput(task_id="{report.id}").' if report.text else ""
    warnings = "".join(f"\nWarning: {one_line(delimited(warning))}" for warning in report.warnings)
    return answer(text + kept + warnings, f"{report.name} stopped, {stopped.processes} processes left")


def told(report: Report, offset: int = 0) -> Outcome:
    lines = [f"Agent: {report.name}", f"Task: {report.id}"]
    lines.append(f"Status: {report.status if report.is_finished else _running(report.status)}")
    lines += [f"Turns: {report.turns}", f"Tokens: {report.tokens}"]
    if report.cost:
        lines.append(f"Cost: ${report.cost:.4f}")
    if report.code is not None and not report.error:
        lines.append(f"Exit code: {report.code}")
    if report.is_finished:
        lines.append(f"Duration: {duration(report.seconds)}")
    elif report.activity:
        lines.append(f"Activity: {one_line(delimited(report.activity))}")
    if report.error:
        lines.append(f"Error: {one_line(delimited(report.error))}")
    if report.branch:
        lines.append(f"Branch: {report.branch} (its changes; merge what you want)")
    lines += [f"Warning: {one_line(delimited(warning))}" for warning in report.warnings]
    tag = _COMMAND_TAG if report.is_command else _TAG
    shown, cut = (report.text, _more(report)) if report.is_command else _cut(report.text, offset)
    if shown:
        lines += ["", "Output:", f"<{tag}>", delimited(shown.rstrip("\n")), f"</{tag}>"]
    elif report.is_command:
        lines += ["", "(no more output)" if offset else "(no output)"]
    if cut:
        follows = report.next if report.is_command else offset + len(shown)
        lines.append(f'[{cut} Go on with TaskOutput(task_id="{report.id}", offset={follows}).]')
    elif report.is_command and not report.is_finished:
        lines.append(f'[What it prints from now on: TaskOutput(task_id="{report.id}", offset={report.next}).]')
    if not report.is_finished:
        lines += [
            "",
            "Options:",
            f'  - Wait longer: TaskOutput(task_id="{report.id}", timeout=60000)',
            f'  - Check status: TaskOutput(task_id="{report.id}", block=false)',
            f'  - Stop: TaskStop(task_id="{report.id}")',
        ]
    figures = [f"exit {report.code}"] if report.code is not None else [f"{report.size:,} bytes printed"]
    figures = figures if report.is_command else [count(report.turns, "turn"), count(report.tokens, "token")]
    summary = ", ".join((f"{report.name}: {report.status}", *figures))
    failed = report.is_finished and report.status in ("failed", "interrupted")
    return answer("\n".join(lines), summary, cut)._replace(is_error=failed, details=reveal_hidden(shown))


def _running(status: str) -> str:
    return "still running" if status == "running" else status


def _cut(text: str, offset: int) -> tuple[str, str]:
    shown = text[offset : offset + LONGEST_ANSWER]
    left = len(text) - offset - len(shown)
    return shown, f"{left:,} more characters." if left > 0 else ""


def _more(report: Report) -> str:
    """Of what a command has printed, behind the piece that is shown."""
    left = report.size - report.next
    if left <= LONGEST_ANSWER:
        return f"{left:,} more bytes." if left else ""
    return f"{left:,} more bytes; the last of them begin at offset={report.size - LONGEST_ANSWER}."


def delimited(text: str) -> str:
    """Data that can't end the block it stands in, nor pass for a part of the conversation."""
    return _OF_OURS.sub(r"<\\\1", reveal_hidden(text))


TASK: Final = Tool("Task", description("Task"), TaskArguments, _start, facts=_facts, side_by_side=True)
TASK_OUTPUT: Final = Tool("TaskOutput", description("TaskOutput"), TaskOutputArguments, _output, reads_only=True)
TASK_STOP: Final = Tool("TaskStop", description("TaskStop"), TaskStopArguments, _stop)
