"""`kitbag undo`: shows what a turn changed and reverts it, if the files are still as the agent left them."""

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from kitbag.cli import output
from kitbag.cli.library_options import json_option
from kitbag.errors import NotFoundError, UsageError
from kitbag.library.scopes import find_places
from kitbag.text.hidden_characters import escape_for_terminal

if TYPE_CHECKING:
    from kitbag.agent.undo.plan import UndoableTurn, UndoStep
    from kitbag.agent.undo.restore import RestoreResult
    from kitbag.runtime.undo import SessionUndo, UndoPlan

_COLOURS = {"created": "red", "changed": "yellow", "deleted": "green"}
_MAX_SHOWN = 200


@click.command()
@click.option("--session", "session_id", default="", metavar="ID", help="Of this session (default: the newest here).")
@click.option(
    "--turn",
    type=click.IntRange(1),
    metavar="N",
    help="What your Nth message of the session caused (default: the last one that changed files).",
)
@click.option("--list", "as_list", is_flag=True, help="List the turns that changed files, and change nothing.")
@click.option("--show", is_flag=True, help="Show what would be restored, as a diff, and change nothing.")
@click.option("--redo", is_flag=True, help="Do again what was undone last, or --turn N.")
@click.option("--force", is_flag=True, help="Also where a file has been changed since.")
@click.option("--yes", is_flag=True, help="Without being asked; needed where nobody can be (else exit code 2).")
@json_option
def command(
    session_id: str,
    turn: int | None,
    as_list: bool,
    show: bool,
    redo: bool,
    force: bool,
    yes: bool,
    as_json: bool,
) -> Any:
    """Take back what an agent did to your files.

    A turn is all that one message of yours caused: files that were created are removed, changed ones get their old
    content and rights, deleted ones come back. Done once more, it takes back the turn before.

    Nothing is restored when a file is no longer what the agent left (exit code 6), unless forced; what is
    overwritten is kept, so --redo brings it back. What commands do to files that git ignores, to `.git` and to files
    over 5 MB can't be taken back, nor what a command changed outside the workspace. An edit of yours that was saved
    while a command ran counts as the command's.
    """
    if as_list and (show or yes or force or redo):
        raise UsageError("--list only lists", "leave out the other options")
    if show and yes:
        raise UsageError("--show changes nothing", "leave out --yes, or leave out --show")
    from kitbag.runtime.undo import INTERRUPTED_NOTICE, SessionUndo
    from kitbag.store.journal import Journal, journal_path
    from kitbag.store.redaction import Redactor

    places = find_places()
    path = journal_path(places.kitbag_home)
    if not os.path.lexists(path):  # reading creates no journal
        raise NotFoundError("there is no session yet, so there is nothing to undo", "start one: kitbag -p …")
    with Journal.open(path, Redactor.from_environment(os.environ)) as journal:
        undo = SessionUndo(journal, places, session_id)
        if undo.recovered:
            output.remark(INTERRUPTED_NOTICE)
        undo_command = _UndoCommand(undo, as_json)
        if as_list:
            return undo_command.list_turns()
        planned = undo.make_plan(turn, redo)
        if show:
            return undo_command.show(planned)
        return undo_command.restore(planned, force=force, yes=yes)


class _UndoCommand:
    def __init__(self, undo: "SessionUndo", as_json: bool) -> None:
        self.undo = undo
        self.as_json = as_json

    def list_turns(self) -> None:
        from kitbag.agent.undo.plan import list_net_effects
        from kitbag.runtime.undo import ACTION_VERBS

        session_id = self.undo.session_id
        rows = [(turn, list_net_effects(turn.changes)) for turn in self.undo.turns]
        if self.as_json:
            listed = [_turn_json(turn, net) for turn, net in rows]
            return output.as_json({"session": session_id, "turns": listed})
        table: list[tuple[str, ...]] = []
        for turn, net in rows:
            done = list(net.values())
            counts = [f"{done.count(kind):,} {kind}" for kind in ACTION_VERBS if kind in done]
            what = ", ".join(counts) if counts else turn.problem or "nothing in the end"
            state = "undone" if turn.undone else ""
            table.append((str(turn.number), turn.at[:16].replace("T", " "), what, state, turn.about))
        output.table(("TURN", "AT", "FILES", "STATE", "ABOUT"), table)
        output.remark(
            output.style(f"session {session_id} · {output.format_count(len(rows), 'turn')}", "dim", sys.stderr)
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

        turn, steps = planned.turn, planned.steps
        verb = "Redo" if planned.redo else "Undo"
        about = f": {output.clean(turn.about)}" if turn.about else ""
        output.echo(f"{output.style(f'{verb} turn {turn.number}', 'bold')}{about}")
        if turn.interrupted:
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
        if planned.steps and not planned.turn.problem and not self.as_json:
            self._print_plan(planned)
            sys.stdout.flush()
        self.undo.check(planned, force=force)
        if not yes and not self._confirm():
            output.remark("nothing was changed")
            sys.exit(1)
        self._print_result(planned, self.undo.restore(planned))

    def _confirm(self) -> bool:
        if self.as_json or not (sys.stdin and sys.stdin.isatty()) or not sys.stdout.isatty():
            raise UsageError("nobody can be asked here", "look at it with --show, then give --yes")
        return click.confirm("Do it?", err=True)

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
                output.remark(output.style("kitbag undo --redo does it again", "dim", sys.stderr))
        for path, why in restored.skipped:
            output.remark(f"left: {output.clean(output.shorten_path(path))}: {output.clean(why)}")
        error = failure_error(restored)
        if error is not None:
            raise error

    def _summary_json(self, planned: "UndoPlan") -> dict[str, Any]:
        turn = planned.turn
        return {
            "session": self.undo.session_id,
            "turn": turn.number,
            "about": turn.about,
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


def _turn_json(turn: "UndoableTurn", net: dict[str, Any]) -> dict[str, Any]:
    return {
        "turn": turn.number,
        "at": turn.at,
        "about": turn.about,
        "tools": list(turn.tools),
        "undone": bool(turn.undone),
        "interrupted": turn.interrupted,
        "problem": turn.problem,
        "files": [{"path": path, "change": done} for path, done in net.items()],
    }
