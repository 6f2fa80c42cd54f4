"""`kitbag undo`: what a turn changed is shown, then taken back, if the files are still as the agent left them."""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from kitbag.cli import output
from kitbag.cli.options import json_option
from kitbag.errors import InvalidError, NotFoundError, UsageError
from kitbag.library.scopes import Places, find_places
from kitbag.text.hidden import for_terminal

if TYPE_CHECKING:
    from kitbag.agent.restore import Restored
    from kitbag.agent.undo import Step, Turn
    from kitbag.store.journal import Journal
    from kitbag.tools.diffs import Diff

_WORDS = {"created": "remove", "changed": "restore", "deleted": "bring back"}
_DONE = {"created": "removed", "changed": "restored", "deleted": "brought back"}
_COLOURS = {"created": "red", "changed": "yellow", "deleted": "green"}
_LARGEST_SHOWN = 4 << 20
_MOST_SHOWN = 200
_MOST_REFUSED = 20
_MOST_SESSIONS = 10


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
    from kitbag.store.journal import Journal, journal_path
    from kitbag.store.redaction import Redactor

    places = find_places()
    path = journal_path(places.kitbag_home)
    if not os.path.lexists(path):  # to look is no reason to make one
        raise NotFoundError("there is no session yet, so there is nothing to undo", "start one: kitbag -p …")
    with Journal.open(path, Redactor.of_environment(os.environ)) as journal:
        undoing = _Undoing(journal, places, session_id)
        if as_list:
            return undoing.list_turns(as_json)
        found, steps = undoing.choose(turn, redo)
        if show:
            return undoing.show(found, steps, as_json, redo)
        return undoing.restore(found, steps, _Wishes(redo, force, yes, as_json))


class _Wishes:
    def __init__(self, redo: bool, force: bool, yes: bool, as_json: bool) -> None:
        self.redo = redo
        self.force = force
        self.yes = yes
        self.as_json = as_json


class _Undoing:
    def __init__(self, journal: "Journal", places: Places, session_id: str) -> None:
        from kitbag.agent.changes import recover_command
        from kitbag.agent.sessions import newest_session
        from kitbag.agent.undo import read_turns
        from kitbag.permissions.rule_files import workspace_of
        from kitbag.settings import load_settings
        from kitbag.store.kept_files import KeptFiles

        self.journal = journal
        self.places = places
        self.chosen = bool(session_id)
        self.session_id = session_id or newest_session(journal, places.cwd)
        self.kept: KeptFiles = KeptFiles(places.kitbag_home)
        # As the session had it, wherever we are: of the settings, only the person's own have a say.
        there = find_places(self._directory())
        self.workspace = workspace_of(there, load_settings(places.kitbag_home, ()))[0]
        recovered = [
            recover_command(journal, one, self.workspace, self.kept, record_in=self.session_id)
            for one in self._sessions()
        ]
        if any(recovered):
            output.remark("a command was cut off with its session; what has changed since is counted as its")
        self.turns: list[Turn] = read_turns(journal, self.session_id, self.kept)

    def _sessions(self) -> list[str]:
        """Its own, and those of the agents that it started, whose changes are its."""
        from kitbag.runtime.task_reports import sessions_of
        from kitbag.tasks.board import Board

        agents = [task for task in Board(self.journal).of(self.session_id) if task.kind == "agent"]
        return [self.session_id, *(one for task in agents for one in sessions_of(task))]

    def _directory(self) -> str:
        from kitbag.agent.session import PREFIX

        first = next(iter(self.journal.read(PREFIX + self.session_id, page=1)), None)
        if first is None:
            raise NotFoundError(f"there is no session {self.session_id!r}", "`kitbag sessions list` shows them")
        return (str(first.body.get("directory", "")) if first.kind == "session" else "") or self.places.cwd

    # Which turn

    def choose(self, number: int | None, redo: bool) -> "tuple[Turn, list[Step]]":
        from kitbag.agent.undo import changed_later, make_plan

        if redo:
            turn = self._to_redo(number)
            return turn, make_plan(turn.taken_back, self.kept)
        if number is not None:
            turn = self._numbered(number)
            if turn.undone:
                raise NotFoundError(f"turn {number} has been undone already", "--redo does it again")
            return turn, make_plan(turn.changes, self.kept, changed_later(self.turns, number))
        for turn in reversed(self.turns):
            if not turn.undone:
                steps = make_plan(turn.changes, self.kept, changed_later(self.turns, turn.number))
                if steps or turn.problem:
                    return turn, steps
        raise self._nothing("is nothing to undo")

    def _to_redo(self, number: int | None) -> "Turn":
        undone = [turn for turn in self.turns if turn.undone]
        if number is not None:
            turn = self._numbered(number)
            if not turn.undone:
                raise NotFoundError(f"turn {number} has not been undone", "`kitbag undo --list` shows the turns")
            return turn
        if not undone:
            raise NotFoundError(f"in session {self.session_id} nothing has been undone", "leave out --redo")
        return max(undone, key=lambda turn: turn.undone)

    def _numbered(self, number: int) -> "Turn":
        for turn in self.turns:
            if turn.number == number:
                return turn
        there = ", ".join(str(turn.number) for turn in self.turns[-20:])
        raise NotFoundError(
            f"turn {number} of session {self.session_id} changed no files",
            f"these did: {there}" if there else "no turn did",
        )

    def _nothing(self, what: str) -> NotFoundError:
        """Says which other session of this directory changed files: the newest may only have been asked something."""
        from kitbag.agent.sessions import list_sessions
        from kitbag.agent.undo import read_turns

        fix = "`kitbag undo --list` shows what was changed" if self.turns else ""
        others = [] if self.chosen else list_sessions(self.journal, self.places.cwd)[:_MOST_SESSIONS]
        for other in others:
            if other.id == self.session_id or other.problem:
                continue
            if any(not turn.undone for turn in read_turns(self.journal, other.id, self.kept)):
                fix = f"session {other.id} changed files: kitbag undo --session {other.id}"
                break
        return NotFoundError(f"there {what} in session {self.session_id}", fix)

    # What is shown

    def list_turns(self, as_json: bool) -> None:
        from kitbag.agent.undo import net_changes

        rows = [(turn, net_changes(turn.changes)) for turn in self.turns]
        if as_json:
            listed = [_turn_json(turn, net) for turn, net in rows]
            return output.as_json({"session": self.session_id, "turns": listed})
        table: list[tuple[str, ...]] = []
        for turn, net in rows:
            done = list(net.values())
            said = [f"{done.count(kind):,} {kind}" for kind in _WORDS if kind in done]
            what = ", ".join(said) if said else turn.problem or "nothing in the end"
            state = "undone" if turn.undone else ""
            table.append((str(turn.number), turn.at[:16].replace("T", " "), what, state, turn.about))
        output.table(("TURN", "AT", "FILES", "STATE", "ABOUT"), table)
        output.remark(output.style(f"session {self.session_id} · {output.count(len(rows), 'turn')}", "dim", sys.stderr))
        return None

    def show(self, turn: "Turn", steps: "list[Step]", as_json: bool, redo: bool) -> None:
        if as_json:
            return output.as_json(
                {**self._head(turn, redo), "files": [self._step_json(step, with_diff=True) for step in steps]}
            )
        self._print_plan(turn, steps, redo)
        for step in steps:
            diff = self._diff(step)
            if diff is not None and diff.text:
                output.echo()
                for line in diff.text.split("\n"):
                    colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
                    output.echo(output.style(for_terminal(line), colour) if colour else for_terminal(line))
        return None

    def _print_plan(self, turn: "Turn", steps: "Sequence[Step]", redo: bool) -> None:
        verb = "Redo" if redo else "Undo"
        about = f": {output.clean(turn.about)}" if turn.about else ""
        output.echo(f"{output.style(f'{verb} turn {turn.number}', 'bold')}{about}")
        if turn.interrupted:
            output.echo("A command was cut off with its session; what has changed since is counted as its.")
        width = max((len(_WORDS[step.done]) for step in steps), default=0)
        shown = steps if output.terminal_width() is None else steps[:_MOST_SHOWN]
        for step in shown:
            word = output.style(_WORDS[step.done].ljust(width), _COLOURS[step.done])
            detail = self._detail(step)
            mark = output.style(f"  {output.clean(step.problem)}", "red") if step.problem else ""
            output.echo(f"  {word}  {output.clean(output.short_path(step.path))}{detail}{mark}")
        if len(shown) < len(steps):
            output.echo(f"  and {len(steps) - len(shown):,} more")

    def _detail(self, step: "Step") -> str:
        if step.kind == "folder":
            return output.style("/", "dim")
        if step.kind == "link":
            return output.style("  link", "dim")
        now, target = step.now, step.target
        if now is not None and target is not None and now.digest == target.digest:
            return output.style(f"  rights {now.mode:04o} → {target.mode:04o}", "dim")
        diff = self._diff(step)
        return output.style(f"  +{diff.added} -{diff.removed}" if diff is not None else "  binary", "dim")

    def _diff(self, step: "Step") -> "Diff | None":
        """From what is there to what would be there; None where that is no text."""
        from kitbag.tools.diffs import diff

        before, after = self._text(step, now=True), self._text(step, now=False)
        if before is None or after is None:
            return None
        return diff(before, after, output.short_path(step.path))

    def _text(self, step: "Step", *, now: bool) -> str | None:
        state = step.now if now else step.target
        if state is None or state.kind != "file":
            return ""
        data = _read(step.path) if now else self.kept.get(state.digest)
        if data is None or len(data) > _LARGEST_SHOWN or b"\0" in data[:8_000]:
            return None
        return data.decode("utf-8", "replace")

    # What is done

    def restore(self, turn: "Turn", steps: "list[Step]", wishes: _Wishes) -> None:
        from kitbag.agent.restore import Restorer

        if turn.problem:
            raise InvalidError(f"turn {turn.number} can't be undone: {turn.problem}")
        if not steps:
            raise NotFoundError(f"turn {turn.number}: the files are as they were before it", "nothing is to be done")
        if not wishes.as_json:
            self._print_plan(turn, steps, wishes.redo)
            sys.stdout.flush()
        refused = [step for step in steps if step.problem]
        if refused and not wishes.force:
            raise _refusal(refused)
        if not any(step.possible for step in steps):
            raise InvalidError(f"nothing of turn {turn.number} can be restored: {refused[0].problem}")
        if not wishes.yes and not self._agreed(wishes):
            output.remark("nothing was changed")
            sys.exit(1)
        restored = Restorer(self.journal, self.session_id, self.kept, self.workspace).undo(
            turn.number, steps, redo=wishes.redo
        )
        self._print_result(turn, restored, wishes)

    def _agreed(self, wishes: _Wishes) -> bool:
        if wishes.as_json or not (sys.stdin and sys.stdin.isatty()) or not sys.stdout.isatty():
            raise UsageError("nobody can be asked here", "look at it with --show, then give --yes")
        return click.confirm("Do it?", err=True)

    def _print_result(self, turn: "Turn", restored: "Restored", wishes: _Wishes) -> None:
        if wishes.as_json:
            output.as_json(
                {
                    **self._head(turn, wishes.redo),
                    "restored": [{"path": step.path, "action": _DONE[step.done]} for step in restored.done],
                    "left": [{"path": path, "reason": why} for path, why in restored.left],
                    "failed": [{"path": path, "reason": why} for path, why in restored.failed],
                }
            )
        else:
            verb = "redone" if wishes.redo else "undone"
            counts = [step.done for step in restored.done]
            parts = [f"{counts.count(kind):,} {word}" for kind, word in _DONE.items() if kind in counts]
            output.echo(f"turn {turn.number} {verb if not restored.failed else 'partly ' + verb}: {', '.join(parts)}")
            if not wishes.redo and not restored.failed:
                output.remark(output.style("kitbag undo --redo does it again", "dim", sys.stderr))
        for path, why in restored.left:
            output.remark(f"left: {output.clean(output.short_path(path))}: {output.clean(why)}")
        if restored.failed:
            listed = "; ".join(f"{output.short_path(path)}: {why}" for path, why in restored.failed[:_MOST_REFUSED])
            raise InvalidError(f"not all could be restored: {listed}", "see to the cause, and run it again")

    def _head(self, turn: "Turn", redo: bool) -> dict[str, Any]:
        return {"session": self.session_id, "turn": turn.number, "about": turn.about, "redo": redo}

    def _step_json(self, step: "Step", *, with_diff: bool) -> dict[str, Any]:
        diff = self._diff(step)
        return {
            "path": step.path,
            "change": step.done,
            "kind": step.kind,
            "added": diff.added if diff is not None else None,
            "removed": diff.removed if diff is not None else None,
            "problem": step.problem,
            **({"diff": diff.text if diff is not None else None} if with_diff else {}),
        }


def _turn_json(turn: "Turn", net: dict[str, Any]) -> dict[str, Any]:
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


def _refusal(refused: "Iterable[Step]") -> InvalidError:
    every = list(refused)
    named = "; ".join(f"{output.short_path(step.path)}: {step.problem}" for step in every[:_MOST_REFUSED])
    more = f"; and {len(every) - _MOST_REFUSED} more" if len(every) > _MOST_REFUSED else ""
    fix = "--force restores them all the same, and keeps what it overwrites"
    if not all(step.possible for step in every):
        fix = "--force restores all that can be restored, and keeps what it overwrites"
    return InvalidError(f"nothing was restored: {named}{more}", fix)


def _read(path: str) -> bytes | None:
    from kitbag.permissions.beneath import BeneathError, folder_of

    try:
        with folder_of(path) as (folder, name):
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            with open(descriptor, "rb") as file:
                return file.read(_LARGEST_SHOWN + 1)
    except (BeneathError, OSError):
        return None
