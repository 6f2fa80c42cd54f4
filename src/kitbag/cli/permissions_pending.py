"""`kitbag permissions pending` and `answer`: shows and answers approval questions of background tasks."""

import contextlib
from collections.abc import Generator, Iterator
from typing import Any

import click

from kitbag.assembly.open_journal import open_journal
from kitbag.assembly.open_store import has_journal
from kitbag.cli import output
from kitbag.cli.block_lines import block_lines
from kitbag.cli.library_options import json_option
from kitbag.dialogs.approver import approval_blocks
from kitbag.dialogs.change_preview import preview_change
from kitbag.errors import NotFoundError, UsageError
from kitbag.library.scopes import find_places
from kitbag.permissions.approvals.approval import ApprovalAnswer
from kitbag.permissions.approvals.question_view import GUTTER, visible_lines
from kitbag.permissions.approvals.queue import CONTAINS_CREDENTIALS, ApprovalQueue, PendingApproval, require_person
from kitbag.views.tasks import format_time


@contextlib.contextmanager
def _open_queue() -> Generator[ApprovalQueue | None, None, None]:
    """None if there is no journal: reading questions creates none."""
    home = find_places().kitbag_home
    if not has_journal(home):
        yield None
        return
    with open_journal(home) as journal:
        yield ApprovalQueue(journal)


@click.command()
@json_option
def pending(as_json: bool) -> None:
    """List pending approvals in full, with hidden characters made visible."""
    with _open_queue() as queue:
        found = queue.pending() if queue is not None else []
    if as_json:
        return output.as_json([_question_json(waiting) for waiting in found])
    for waiting in found:
        _print_question(waiting)
        choices = "deny" if not waiting.is_complete else "--answer TEXT" if _is_question(waiting) else "allow|deny"
        answer = f"kitbag permissions answer {waiting.request.id} {choices}"
        output.echo(f"{output.style('answer:', 'bold')} {output.clean(answer)}\n")
    output.remark(output.style(f"{output.format_count(len(found), 'question')} waiting", "dim"))
    return None


@click.command()
@click.argument("question", metavar="ID")
@click.argument("choice", type=click.Choice(["allow", "deny"]), required=False)
@click.option(
    "--reason", default="", metavar="TEXT", help="Tell the agent why, or what to do instead.", show_default="none"
)
@click.option(
    "--answer",
    "answers",
    multiple=True,
    metavar="TEXT",
    help="Answer a question of AskUser: your words, or the number of an option. Once for each question.",
    show_default="none",
)
@click.option("--session", is_flag=True, help="Allow exactly this call until the requesting agent ends, not just once.")
@json_option
def answer(question: str, choice: Any, reason: str, answers: tuple[str, ...], session: bool, as_json: bool) -> None:
    """Answer a pending approval, or an agent's question, by its ID or a unique prefix. The first answer counts."""
    if session and choice == "deny":
        raise UsageError("--session can only be used with `allow`", "remove --session")
    require_person()
    with _open_queue() as queue:
        if queue is None:
            raise NotFoundError(
                f"no pending approval with ID {question!r}", "list them with `kitbag permissions pending`"
            )
        waiting = queue.find(question)
        texts = _match_answers(waiting, choice, answers)
        choice = choice or "allow"
        queue.answer(
            waiting.request.id,
            ApprovalAnswer(choice=choice, scope="session" if session else "once", reason=reason, answers=texts),
            "cli",
        )
    if as_json:
        given = {"choice": choice, "scope": "session" if session else "once", "answers": list(texts)}
        return output.as_json({**_question_json(waiting), **given})
    _print_question(waiting)
    if texts:
        return output.echo(output.style(f"answered: {output.clean('; '.join(texts))}", "green"))
    done = "denied" if choice == "deny" else "allowed for the session" if session else "allowed once"
    return output.echo(output.style(done, "red" if choice == "deny" else "green"))


def _is_question(waiting: PendingApproval) -> bool:
    return waiting.request.tool == "AskUser"


def _match_answers(waiting: PendingApproval, choice: str | None, answers: tuple[str, ...]) -> tuple[str, ...]:
    """The texts that the agent gets; the number of an option becomes its label. Raises UsageError."""
    name = waiting.request.id
    if not _is_question(waiting):
        if answers:
            raise UsageError(f"{name} is not a question", f"kitbag permissions answer {name} allow|deny")
        if choice is None:
            raise UsageError("missing answer: allow or deny", f"kitbag permissions answer {name} allow|deny")
        return ()
    if choice == "deny" and not answers:
        return ()
    from kitbag.tools.ask_user import parse_questions

    questions = parse_questions(waiting.request.arguments)
    if choice == "deny" or len(answers) != len(questions):
        fix = f"kitbag permissions answer {name}{' --answer TEXT' * len(questions)}, or deny"
        raise UsageError(f"{name} needs {output.format_count(len(questions), 'answer')}", fix)
    texts: list[str] = []
    for question, text in zip(questions, answers, strict=True):
        labels = {str(number): label for number, (label, _) in enumerate(question.options, 1)}
        texts.append(labels.get(text.strip(), text))
    return tuple(texts)


def _print_question(waiting: PendingApproval) -> None:
    lines = block_lines(approval_blocks(waiting.request))
    if _is_question(waiting) and waiting.is_complete:
        lines = [lines[0], *_question_lines(waiting)]
    output.block("\n".join([*lines, f"asked at {format_time(waiting.asked_at)}"]))
    if not waiting.is_complete:
        output.remark(f"can only be denied: {CONTAINS_CREDENTIALS}")


def _question_lines(waiting: PendingApproval) -> Iterator[str]:
    """The agent's words behind a gutter, so that they can't pass for ours."""
    from kitbag.tools.ask_user import parse_questions

    for question in parse_questions(waiting.request.arguments):
        yield from (f"{GUTTER}{line}" for line in visible_lines(question.text, None))
        for number, (label, description) in enumerate(question.options, 1):
            text = f"{label}: {description}" if description.strip() else label
            yield from (f"{GUTTER}  {number}) {line}" for line in visible_lines(text, None))


def _question_json(waiting: PendingApproval) -> dict[str, Any]:
    import json

    question = waiting.request
    return {
        "id": question.id,
        "tool": question.tool,
        "arguments": json.loads(question.arguments) if waiting.is_complete else question.arguments,
        "directory": question.directory,
        "digest": question.digest,
        "asked_by": question.asked_by,
        "asked_at": waiting.asked_at,
        "whole": waiting.is_complete,
        "reason": question.decision.reason,
        "parts": [part.to_json() for part in question.decision.parts],
        "sandbox": question.decision.sandbox,
        "network": question.decision.network,
        "facts": [list(fact) for fact in question.facts],
        "suggested_rule": question.suggestion,
        "diff": preview_change(question).diff,
        "shown": block_lines(approval_blocks(question)),
    }
