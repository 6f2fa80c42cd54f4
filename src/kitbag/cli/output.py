"""Prints results: tables for people, plain text for pipes, JSON for programs.

Text from files reaches the terminal only through `clean`, `block` or `exact`; what is printed without them is escaped,
too. Results go to stdout, errors and remarks to stderr.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from kitbag.text.hidden_characters import collapse_whitespace, escape_for_terminal
from kitbag.text.human_format import format_count as format_count
from kitbag.text.human_format import shorten_path as shorten_path
from kitbag.text.terminal_width import pad_to_width, text_width, truncate_to_width

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kitbag.errors import Diagnostic, KitbagError, Severity

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_STYLE_SEQUENCE = f"(\x1b\\[(?:0|{'|'.join(_STYLES.values())})m)"
_MIN_COLUMN, _MIN_LAST = 6, 24
_MAX_MESSAGE = 2_000
_SEVERITY_STYLE = {"error": "red", "warning": "yellow", "info": "cyan"}


def clean(text: str) -> str:
    """One line, escaped for a terminal."""
    return escape_for_terminal(collapse_whitespace(text))


def echo(text: str = "") -> None:
    _write_line(sys.stdout, _escape_around_styles(text))


def remark(text: str) -> None:
    _write_line(sys.stderr, _escape_around_styles(text))


def _write_line(stream: Any, text: str) -> None:
    stream.write(text + "\n")


def _escape_around_styles(text: str) -> str:
    """Nothing but our own styles may act on a terminal, even if a caller forgot `clean`."""
    if text.isprintable() and text.isascii():
        return text
    import re

    pieces = re.split(_STYLE_SEQUENCE, text)
    pieces[::2] = map(escape_for_terminal, pieces[::2])
    return "".join(pieces)


def _uses_color(stream: Any) -> bool:
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def style(text: str, name: str, stream: Any = None) -> str:
    return f"\x1b[{_STYLES[name]}m{text}\x1b[0m" if text and _uses_color(stream or sys.stdout) else text


def is_interactive() -> bool:
    """Whether the user can be asked: standard input and output are terminals."""
    streams: tuple[Any, ...] = (sys.stdin, sys.stdout)  # None if closed
    return all(stream is not None and not stream.closed and stream.isatty() for stream in streams)


def terminal_width() -> int | None:
    """None if stdout is not a terminal: then nothing is truncated."""
    if not sys.stdout.isatty():
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except OSError:
        return 80


def table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], *, whole: Sequence[str] = (), omit: Sequence[str] = ()
) -> None:
    """Truncates the last column to the terminal's width; nothing in a pipe. Columns in `whole` are never truncated; if
    the terminal is too narrow for that, those in `omit` are omitted, one after the other."""
    cells = [[clean(cell) for cell in row] for row in rows]
    if not cells:
        return
    widths = [max(text_width(row[at]) for row in [headers, *cells]) for at in range(len(headers))]
    screen = terminal_width()
    if screen is not None:
        for name in omit:
            if _least_width(headers, widths, whole) <= screen:
                break
            at = headers.index(name)
            headers = [*headers[:at], *headers[at + 1 :]]
            widths.pop(at)
            for row in cells:
                row.pop(at)
        _shrink_columns(widths, screen, [at for at, name in enumerate(headers) if name in whole])
    left = sum(widths[:-1]) + 2 * (len(widths) - 1)
    last = max(screen - left, 1) if screen is not None else None
    _write_line(sys.stdout, style(_format_row(headers, widths, last), "bold"))
    for row in cells:
        _write_line(sys.stdout, _format_row(row, widths, last))


def _least_width(headers: Sequence[str], widths: list[int], whole: Sequence[str]) -> int:
    """Of a table whose columns are as narrow as they may be."""
    narrow = [
        width if name in whole else min(width, _MIN_LAST if at == len(headers) - 1 else max(_MIN_COLUMN, len(name)))
        for at, (name, width) in enumerate(zip(headers, widths, strict=True))
    ]
    return sum(narrow) + 2 * (len(narrow) - 1)


def _shrink_columns(widths: list[int], screen: int, whole: Sequence[int] = ()) -> None:
    """Shrinks the widest columns until the last one, the most informative, fits or has a quarter of the screen."""
    columns = [at for at in range(len(widths) - 1) if at not in whole]
    wanted = min(widths[-1], max(screen // 4, _MIN_LAST))
    while columns and sum(widths[:-1]) + 2 * (len(widths) - 1) + wanted > screen:
        # The first column is the name, which is only useful whole.
        widest = max(columns, key=lambda at: widths[at] - (30 if at == 0 else 0))
        if widths[widest] <= _MIN_COLUMN:
            return
        widths[widest] -= 1


def _format_row(row: Sequence[str], widths: Sequence[int], last: int | None) -> str:
    parts: list[str] = []
    for at, cell in enumerate(row):
        if at == len(row) - 1:
            parts.append(cell if last is None else truncate_to_width(cell, last))
        else:
            shown = truncate_to_width(cell, widths[at])
            parts.append(pad_to_width(shown, widths[at]))
    return "  ".join(parts).rstrip()


def fields(pairs: Iterable[tuple[str, str]]) -> None:
    """`label: value` lines; omits empty values and wraps long ones."""
    shown = [(label, clean(value)) for label, value in pairs if value]
    margin = max((len(label) for label, _ in shown), default=0) + 2
    screen = terminal_width()
    for label, value in shown:
        lines = [value] if screen is None else _wrap(value, max(screen - margin, 20))
        echo(style(label.ljust(margin), "bold") + lines[0])
        for line in lines[1:]:
            echo(" " * margin + line)


def wrapped(text: str) -> None:
    """A line that breaks between words in a terminal; whole in a pipe. Escaped and styled as for `echo`."""
    screen = terminal_width()
    for line in [text] if screen is None else _wrap(text, screen - 1, "  "):
        echo(line)


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    import textwrap

    first = text[: len(text) - len(text.lstrip(" "))]
    made = textwrap.wrap(
        text.lstrip(" "), max(width, 20), initial_indent=first, subsequent_indent=first + indent, break_on_hyphens=False
    )
    return made or [""]


def as_json(value: Any) -> None:
    """ASCII only, so that nothing in it can affect a terminal."""
    import json

    _write_line(sys.stdout, json.dumps(_with_damage_notices(value), indent=2))


def _with_damage_notices(value: Any) -> Any:
    """An object says in `notices` that the journal was damaged; a list can't, and stderr says it."""
    fields = cast("dict[str, Any]", value)
    if not isinstance(value, dict) or "notices" in fields:
        return fields
    from kitbag.library.scopes import find_places
    from kitbag.store.damage_notices import FIX, read_notices

    notices = read_notices(find_places().kitbag_home)
    found = [{"severity": "warning", "text": notice.text(), "fix": FIX} for notice in notices]
    return {**fields, "notices": found} if found else fields


def block(text: str) -> None:
    """Text of several lines, escaped line by line."""
    echo("\n".join(escape_for_terminal(line) for line in text.split("\n")))


def exact(text: str) -> None:
    """What a model gets: byte for byte in a pipe, escaped on a terminal."""
    if sys.stdout.isatty():
        block(text)
    else:
        _write_line(sys.stdout, text)


def exact_bytes(data: bytes) -> None:
    if sys.stdout.isatty():
        return block(data.decode(errors="replace"))
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    return sys.stdout.buffer.flush()


def write_picture(file: str, text: str, what: str) -> None:
    """To a new file, or to stdout (`-`)."""
    if file == "-":
        return exact(text.removesuffix("\n"))
    write_new_file(file, text)
    return echo(f"wrote {what} to {clean(shorten_path(file))}")


def write_new_file(path: str, text: str) -> None:
    """Readable only by the user. Raises InvalidError if it exists."""
    from kitbag.errors import InvalidError

    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise InvalidError(f"{path} already exists", "choose another file, or delete it first") from None
    except OSError as error:
        raise InvalidError(f"can't write {path}: {error.strerror}", "choose another file") from error
    with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
        stream.write(text)


def diagnostic_json(diagnostic: "Diagnostic") -> dict[str, Any]:
    return diagnostic._asdict()


def severity_mark(severity: "Severity", stream: Any = None) -> str:
    return style(severity, _SEVERITY_STYLE[severity], stream)


def diagnostic_lines(diagnostic: "Diagnostic", stream: Any = None) -> list[str]:
    mark = severity_mark(diagnostic.severity, stream)
    head = f"{mark}: {clean(shorten_path(diagnostic.place))}: {clean(diagnostic.problem)} [{diagnostic.code}]"
    lines = [head, f"  fix: {clean(diagnostic.fix)}"] if diagnostic.fix else [head]
    screen = terminal_width()
    if screen is None:
        return lines
    return [part for line in lines for part in _wrap(line, screen - 1, "  ")]


def fail(error: "KitbagError", as_json: bool = False) -> None:
    if as_json:
        import json

        error_json = {"code": error.exit_code, "problem": error.problem, "fix": error.fix}
        return remark(json.dumps({"error": error_json}, indent=2))
    remark(f"{style('error', 'red', sys.stderr)}: {clean(shorten_message(error.problem))}")
    if error.fix:
        remark(f"  {clean(shorten_message(error.fix))}")
    return None


def shorten_message(text: str) -> str:
    """A message may quote an argument of any length; it keeps its start and its end."""
    omitted = len(text) - _MAX_MESSAGE
    if omitted <= 0:
        return text
    half = _MAX_MESSAGE // 2
    return f"{text[:half]} [{omitted:,} characters omitted] {text[-half:]}"


def report_omitted(noun: str, count: int) -> None:
    """Says on stderr, also with --json, that a listing is not complete. `noun`: with a word for the order, if any."""
    if count > 0:
        remark(f"{format_count(count, noun)} not listed; list all with --limit 0")


def scope_footer(noun: str, shown: int, directory: str, elsewhere: int) -> None:
    """Below a listing of one directory, on stderr; `directory` is empty if all are listed."""
    parts = [format_count(shown, noun) + (f" in {clean(shorten_path(directory))}" if directory else "")]
    if directory:
        parts.append(f"{elsewhere:,} in other directories: --all" if elsewhere else "all directories: --all")
    remark(style(" · ".join(parts), "dim", sys.stderr))


def footer(noun: str, shown: int, hidden: int, problems: int, incomplete: "Iterable[Diagnostic]" = ()) -> None:
    """Below a listing, on stderr, so that a pipe gets only the rows. `incomplete`: why rows are missing."""
    for diagnostic in incomplete:
        for line in diagnostic_lines(diagnostic, sys.stderr):
            remark(line)
    parts = [format_count(shown, noun)]
    if hidden:
        parts.append(f"{hidden:,} more with --all")
    if problems:
        parts.append(f"{format_count(problems, 'problem')}: run `kitbag doctor`")
    remark(style(" · ".join(parts), "dim", sys.stderr))
