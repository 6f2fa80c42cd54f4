"""`kitbag undo`: shows and reverts what a user message caused, if the files are still as the agent left them."""

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from kitbag.cli import output
from kitbag.cli.library_options import json_option
from kitbag.cli.number_types import IntRange
from kitbag.errors import NotFoundError, UsageError
from kitbag.library.scopes import find_places
from kitbag.text.hidden_characters import escape_for_terminal

if TYPE_CHECKING:
    from kitbag.agent.undo.plan import MessageChanges, UndoStep
    from kitbag.agent.undo.restore import RestoreResult
    from kitbag.runtime.undo import SessionUndo, UndoPlan

_COLOURS = {"created": "red", "changed": "yellow", "deleted": "green"}
_MAX_SHOWN = 200


def _rename_option(name: str) -> str:
    return "message" if name == "turn" else name  # `--turn` is the former name


@click.command(context_settings={"token_normalize_func": _rename_option})
@click.option(
    "--session",
    "session_id",
    default="",
    metavar="ID",
    help="Undo changes made in this session.",
    show_default="the newest in this directory",
)
@click.option(
    "--message",
    type=IntRange(1),
    metavar="N",
    help="Undo what your Nth message of the session caused.",
    show_default="the last one that changed files",
)
@click.option("--list", "as_list", is_flag=True, help="List your messages that caused file changes.")
@click.option("--show", is_flag=True, help="Show the changes as a diff without applying them.")
@click.option("--redo", is_flag=True, help="Re-apply the changes that were undone last, or those of --message N.")
@click.option("--force", is_flag=True, help="Overwrite files that have changed since then.")
@click.option("--yes", is_flag=True, help="Do not ask; required without an interactive terminal.")
@json_option
def command(
    session_id: str,
    message: int | None,
    as_list: bool,
    show: bool,
    redo: bool,
    force: bool,
    yes: bool,
    as_json: bool,
) -> Any:
    """Undo file changes made by an agent.

    This undoes everything that one of your messages caused: created files are removed, changed files get their
    previous content and permissions, deleted files are restored. Run it again to undo the previous message.

    If a file has changed since then, nothing is restored (exit code 6) unless you add --force; overwritten content
    is kept, so --redo restores it. Not covered: changes by commands to files that git ignores, to `.git`, to files
    over 5 MB and to files outside the workspace. An edit that you save while a command runs counts as the
    command's.
    """
    if as_list and (show or yes or force or redo):
        raise UsageError("--list can't be combined with other options", "remove the other options")
    if show and yes:
        raise UsageError("--show and --yes can't be combined", "remove one of them")
    from kitbag.assembly.open_store import has_journal, open_store
    from kitbag.runtime.undo import INTERRUPTED_NOTICE, SessionUndo
    from kitbag.store.redaction import Redactor

    places = find_places()
    if not has_journal(places.kitbag_home):
        raise NotFoundError(
            "no sessions yet, so there is nothing to undo", 'start one with `kitbag` or `kitbag -p "PROMPT"`'
        )
    with open_store(places.kitbag_home, Redactor.from_environment(os.environ)) as journal:
        undo = SessionUndo(journal, places, session_id)
        if undo.recovered:
            output.remark(INTERRUPTED_NOTICE)
        if notice := undo.running_notice():
            output.remark(notice)
        undo_command = _UndoCommand(undo, as_json)
        if as_list:
            return undo_command.list_messages()
        planned = undo.make_plan(message, redo)
        if show:
            return undo_command.show(planned)
        return undo_command.restore(planned, force=force, yes=yes)


class _UndoCommand:
    def __init__(self, undo: "SessionUndo", as_json: bool) -> None:
        self.undo = undo
        self.as_json = as_json

    def list_messages(self) -> None:
        from kitbag.agent.undo.plan import list_net_effects
        from kitbag.runtime.undo import ACTION_VERBS

        session_id = self.undo.session_id
        rows = [(message, list_net_effects(message.changes)) for message in self.undo.messages]
        if self.as_json:
            listed = [_message_json(message, net) for message, net in rows]
            return output.as_json({"session": session_id, "messages": listed})
        table: list[tuple[str, ...]] = []
        for message, net in rows:
            done = list(net.values())
            counts = [f"{done.count(kind):,} {kind}" for kind in ACTION_VERBS if kind in done]
            what = ", ".join(counts) if counts else message.problem or "no net change"
            state = "undone" if message.undone else ""
            table.append((str(message.number), message.at[:16].replace("T", " "), what, state, message.about))
        output.table(("TURN", "AT", "FILES", "STATE", "ABOUT"), table)
        output.remark(
            output.style(f"session {session_id} · {output.format_count(len(rows), 'message')}", "dim", sys.stderr)
        )
        return None

    def show(self, planned: "UndoPlan") -> None:
        if self.as_json:
            files = [self._step_json(step, with_diff=True) for step in planned.steps]
            return output.as_json({**self._summary_json(planned), "files": files})
        self._print_plan(planned)
        for step in planned.steps:
            diff = self.undo.diff_step(step)
            if diff is not None and diff.text:
                output.echo()
                for line in diff.text.split("\n"):
                    color = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
                    output.echo(output.style(escape_for_terminal(line), color) if color else escape_for_terminal(line))
        return None

    def _print_plan(self, planned: "UndoPlan") -> None:
        from kitbag.runtime.undo import ACTION_VERBS, INTERRUPTED_NOTICE

        message, steps = planned.message, planned.steps
        verb = "Redo" if planned.redo else "Undo"
        about = f": {output.clean(message.about)}" if message.about else ""
        output.echo(f"{output.style(f'{verb} message {message.number}', 'bold')}{about}")
        if message.interrupted:
            output.echo(f"{INTERRUPTED_NOTICE[0].upper()}{INTERRUPTED_NOTICE[1:]}.")
        width = max((len(ACTION_VERBS[step.effect]) for step in steps), default=0)
        shown = steps if output.terminal_width() is None else steps[:_MAX_SHOWN]
        for step in shown:
            word = output.style(ACTION_VERBS[step.effect].ljust(width), _COLOURS[step.effect])
            detail = self.undo.describe_step(step)
            detail = output.style(detail if detail == "/" else f"  {detail}", "dim")
            mark = output.style(f"  {output.clean(step.problem)}", "red") if step.problem else ""
            output.echo(f"  {word}  {output.clean(output.shorten_path(step.path))}{detail}{mark}")
        if len(shown) < len(steps):
            output.echo(f"  and {len(steps) - len(shown):,} more")

    def restore(self, planned: "UndoPlan", *, force: bool, yes: bool) -> None:
        if planned.steps and not planned.message.problem and not self.as_json:
            self._print_plan(planned)
            sys.stdout.flush()
        self.undo.check(planned, force=force)
        if not yes and not self._confirm():
            output.remark("no files were changed")
            sys.exit(1)
        self._print_result(planned, self.undo.restore(planned))

    def _confirm(self) -> bool:
        if self.as_json or not (sys.stdin and sys.stdin.isatty()) or not sys.stdout.isatty():
            raise UsageError("needs an interactive terminal", "review with --show, then add --yes")
        return click.confirm("Apply?", err=True)

    def _print_result(self, planned: "UndoPlan", restored: "RestoreResult") -> None:
        from kitbag.runtime.undo import ACTION_RESULTS, describe_result, failure_error

        if self.as_json:
            output.as_json(
                {
                    **self._summary_json(planned),
                    "restored": [{"path": step.path, "action": ACTION_RESULTS[step.effect]} for step in restored.done],
                    "left": [{"path": path, "reason": why} for path, why in restored.skipped],
                    "failed": [{"path": path, "reason": why} for path, why in restored.failed],
                }
            )
        else:
            output.echo(describe_result(planned, restored))
            if not planned.redo and not restored.failed:
                output.remark(output.style("to re-apply: kitbag undo --redo", "dim", sys.stderr))
        for path, why in restored.skipped:
            output.remark(f"left: {output.clean(output.shorten_path(path))}: {output.clean(why)}")
        error = failure_error(restored)
        if error is not None:
            raise error

    def _summary_json(self, planned: "UndoPlan") -> dict[str, Any]:
        message = planned.message
        return {
            "session": self.undo.session_id,
            "message": message.number,
            "about": message.about,
            "redo": planned.redo,
        }

    def _step_json(self, step: "UndoStep", *, with_diff: bool) -> dict[str, Any]:
        diff = self.undo.diff_step(step)
        return {
            "path": step.path,
            "change": step.effect,
            "kind": step.kind,
            "added": diff.added if diff is not None else None,
            "removed": diff.removed if diff is not None else None,
            "problem": step.problem,
            **({"diff": diff.text if diff is not None else None} if with_diff else {}),
        }


def _message_json(message: "MessageChanges", net: dict[str, Any]) -> dict[str, Any]:
    return {
        "message": message.number,
        "at": message.at,
        "about": message.about,
        "tools": list(message.tools),
        "undone": bool(message.undone),
        "interrupted": message.interrupted,
        "problem": message.problem,
        "files": [{"path": path, "change": done} for path, done in net.items()],
    }
