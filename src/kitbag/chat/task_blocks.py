"""Tasks as the chat shows them: a row of the live panel, a table, and all that there is to read about one.

Used by the commands that are about tasks; what is shown comes from tasks/views and tasks/reports.
"""

import threading
from typing import Final, NamedTuple

from kitbag.chat.panel_columns import Cells, aligned
from kitbag.chat.ui import Row
from kitbag.tasks.board import Board
from kitbag.tasks.output_file import read_piece
from kitbag.tasks.reports import report_of, state_folder
from kitbag.tasks.task import Task
from kitbag.text.hidden_characters import one_line
from kitbag.text.human_format import duration, money
from kitbag.tools.delegation import Report
from kitbag.views.blocks import Block, Fields, Line, Lines, Span, Table, Tone, Verbatim, words
from kitbag.views.tasks import Costs, LiveReports, Step, costs_of, fields_of, last_steps, seconds_of, what_it_does

PAGE: Final = 8_000
"""Characters of an answer at once; of a command's output, bytes."""
MOST_ROWS: Final = 200
COLUMNS: Final = "tokens, cost, time, what it does"
_HEADERS: Final = ("ID", "AGENT", "STATUS", "TURNS", "TOKENS", "COST", "TIME", "WHAT")
_SHORT_ID: Final = 8
_TONES: Final[dict[str, Tone]] = {
    "completed": "good",
    "empty": "good",
    "failed": "bad",
    "interrupted": "bad",
    "max-turns": "bad",
    "max-tokens": "bad",
    "max-cost": "bad",
    "cancelled": "dim",
    "queued": "dim",
    "running": "accent",
    "waiting-approval": "warning",
}
_WORDS: Final = {"waiting-approval": "asks you"}


class Seen(NamedTuple):
    task: Task
    report: Report
    what: str
    is_ours: bool
    """Of this conversation."""


class LiveTasks:
    """What a board holds, looked at again and again, in whatever thread."""

    def __init__(self, board: Board, session: str, directory: str) -> None:
        """`directory`: only what belongs to it, or to the session; empty: all."""
        self.left_out = 0
        """Older ones, for which there is no row."""
        self._board = board
        self._session = session
        self._directory = directory
        self._reports = LiveReports(board)
        self._looking = threading.Lock()
        self._seen: tuple[Seen, ...] = ()

    def look(self) -> tuple[Seen, ...]:
        """This conversation's first, then what has not ended, the newest first. Raises StoreError."""
        with self._looking:
            tasks = [task for task in self._board.all() if self._belongs(task)]
            tasks.sort(key=lambda task: task.created, reverse=True)
            tasks.sort(key=lambda task: (task.root != self._session, task.is_finished))
            self.left_out = max(len(tasks) - MOST_ROWS, 0)
            self._seen = tuple(self._look_at(task) for task in tasks[:MOST_ROWS])
            return self._seen

    def _belongs(self, task: Task) -> bool:
        return not self._directory or task.directory == self._directory or task.root == self._session

    def _look_at(self, task: Task) -> Seen:
        report = self._reports.of(task)
        return Seen(task, report, what_it_does(self._board, task, report), task.root == self._session)

    def rows(self) -> tuple[Row, ...]:
        """As it was when last looked at."""
        return aligned([_cells(seen) for seen in self._seen], frozenset((3, 4, 5)))


def _cells(seen: Seen) -> Cells:
    task, report = seen.task, seen.report
    _, tokens, cost, time = _figures(task, report)
    tone: Tone = "plain" if seen.is_ours else "dim"
    spans = (
        Span(task.id[:_SHORT_ID], "dim"),
        Span(report.name, tone),
        Span(_WORDS.get(task.status, task.status), _TONES.get(task.status, "plain")),
        Span(tokens, "dim"),
        Span(cost, "dim"),
        Span(time, "dim"),
        Span(one_line(seen.what) + ("" if seen.is_ours else " (another conversation)"), tone),
    )
    return Cells(task.id, spans)


def _figures(task: Task, report: Report) -> tuple[str, str, str, str]:
    """Turns, tokens, cost, time."""
    time = duration(seconds_of(task, report)) if task.started else ""
    if report.is_command:
        return "", f"{report.size:,} bytes", "", time
    return str(report.turns), f"{report.tokens:,}", money(report.cost), time


def table_of(seen: tuple[Seen, ...], left_out: int) -> Block:
    if not seen:
        return words("there are no tasks here; `/tasks all` shows those of other directories", "dim")
    rows = tuple((one.task.id, one.report.name, one.task.status, *_figures(*one[:2]), one.what) for one in seen)
    foot = f"{left_out:,} older ones: kitbag tasks list --all" if left_out else "read one: /tasks show ID"
    return Table(_HEADERS, rows, foot=foot)


# One of them


def blocks_of_task(board: Board, task: Task) -> list[Block]:
    """What it was asked, how it stands, what it did last, and what it has to say so far."""
    report = report_of(board, task, 0, 0)
    wish = board.wish(task.id)
    blocks: list[Block] = [Fields(tuple(fields_of(board, task, report)))]
    blocks.append(Verbatim(wish.command or wish.prompt, "Command" if report.is_command else "Asked"))
    if wish.request:
        blocks.append(Verbatim(wish.request, "And then"))
    steps = last_steps(board.journal, task) if not report.is_command else []
    if steps:
        blocks.append(Lines(((Span("Did last", "strong"),), *(_step_line(step) for step in steps))))
    costs = costs_of(board, task)
    if costs.children:
        blocks.append(Lines(((Span("Cost, with what it began", "strong"),), *_cost_lines(costs))))
    return blocks


def _step_line(step: Step) -> Line:
    if not step.is_done:
        return Span("  … "), Span(step.title, "accent")
    mark = Span("  ✗ ", "bad") if step.is_error else Span("  ✓ ", "good")
    return mark, Span(step.title), Span(f"  {one_line(step.summary)}" if step.summary else "", "dim")


def _cost_lines(costs: Costs, indent: str = "  ") -> list[Line]:
    own = f"{indent}{costs.name} {costs.id}: {costs.tokens:,} tokens, {money(costs.cost)}"
    whole = f"  (in all {costs.all_tokens:,}, {money(costs.all_cost)})" if costs.children else ""
    return [(Span(own + whole),), *(line for child in costs.children for line in _cost_lines(child, f"{indent}  "))]


class Page(NamedTuple):
    """A piece of what a task has put out."""

    text: str
    next: int
    """Where what follows begins; 0: nothing follows, as far as there is something by now."""
    title: str


def page_of(board: Board, task: Task, offset: int) -> Page:
    """`offset`: a character of an answer, a byte of what a command printed. Of whole lines, where there are any."""
    if task.kind == "command":
        report = report_of(board, task, offset, _whole_lines(board, task, offset))
        text, end, size, unit = report.text.rstrip("\n"), report.next, report.size, "bytes"
    else:
        answer = report_of(board, task).text
        text, size, unit = answer[offset : offset + PAGE], len(answer), "characters"
        if offset + PAGE < size and "\n" in text:
            text = text[: text.rindex("\n") + 1]
        end = min(offset + len(text), size)
    name = "So far" if not task.is_finished else "Output" if task.kind == "command" else "Answer"
    place = f" ({offset:,} to {end:,} of {size:,} {unit})" if offset or end < size else ""
    return Page(text, end if end < size else 0, f"{name}{place}")


def _whole_lines(board: Board, task: Task, offset: int) -> int:
    """How many bytes from there on make a page."""
    piece = read_piece(state_folder(board.journal), task.id, offset, PAGE)
    if piece.next >= piece.size or "\n" not in piece.text:
        return PAGE
    return piece.next - offset - len(piece.text[piece.text.rindex("\n") + 1 :].encode())


def blocks_of_page(page: Page, task: Task) -> list[Block]:
    """With what to type for the next one."""
    if not page.text:
        said = "nothing more" if task.is_finished else "nothing more so far"
        return [words(f"{page.title}: {said}", "dim")]
    more = [words(f"more: /tasks output {task.id[:_SHORT_ID]} {page.next}", "dim")] if page.next else []
    return [Verbatim(page.text, page.title), *more]
