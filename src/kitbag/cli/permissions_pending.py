"""`kitbag permissions pending` and `answer`: shows and answers approval questions of background tasks."""

import contextlib
import os
from collections.abc import Generator
from typing import Any

import click

from kitbag.assembly.open_journal import open_journal
from kitbag.cli import output
from kitbag.cli.block_lines import block_lines
from kitbag.cli.library_options import json_option
from kitbag.dialogs.approver import approval_blocks
from kitbag.dialogs.change_preview import preview_change
from kitbag.errors import NotFoundError, UsageError
from kitbag.library.scopes import find_places
from kitbag.permissions.approvals.approval import ApprovalAnswer
from kitbag.permissions.approvals.queue import CONTAINS_CREDENTIALS, ApprovalQueue, PendingApproval, require_person
from kitbag.store.journal import journal_path


@contextlib.contextmanager
def _open_queue() -> Generator[ApprovalQueue | None, None, None]:
    """None if there is no journal: reading questions creates none."""
    home = find_places().kitbag_home
    if not os.path.lexists(journal_path(home)):
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
        answer = f"kitbag permissions answer {waiting.request.id} {'allow|deny' if waiting.is_complete else 'deny'}"
        output.echo(f"{output.style('answer:', 'bold')} {output.clean(answer)}\n")
    output.remark(output.style(f"{output.format_count(len(found), 'question')} waiting", "dim"))
    return None


@click.command()
@click.argument("question", metavar="ID")
@click.argument("choice", type=click.Choice(["allow", "deny"]))
@click.option(
    "--reason", default="", metavar="TEXT", help="Tell the agent why, or what to do instead.", show_default="none"
)
@click.option("--session", is_flag=True, help="Allow exactly this call until the requesting agent ends, not just once.")
@json_option
def answer(question: str, choice: Any, reason: str, session: bool, as_json: bool) -> None:
    """Answer a pending approval by its ID or a unique prefix. The first answer counts."""
    if session and choice == "deny":
        raise UsageError("--session can only be used with `allow`", "remove --session")
    require_person()
    with _open_queue() as queue:
        if queue is None:
            raise NotFoundError(
                f"no pending approval with ID {question!r}", "list them with `kitbag permissions pending`"
            )
        waiting = queue.find(question)
        queue.answer(
            waiting.request.id,
            ApprovalAnswer(choice=choice, scope="session" if session else "once", reason=reason),
            "cli",
        )
    if as_json:
        return output.as_json({**_question_json(waiting), "choice": choice, "scope": "session" if session else "once"})
    _print_question(waiting)
    done = "denied" if choice == "deny" else "allowed for the session" if session else "allowed once"
    return output.echo(output.style(done, "red" if choice == "deny" else "green"))


def _print_question(waiting: PendingApproval) -> None:
    output.block("\n".join([*block_lines(approval_blocks(waiting.request)), f"asked at {waiting.asked_at}"]))
    if not waiting.is_complete:
        output.remark(f"can only be denied: {CONTAINS_CREDENTIALS}")


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
