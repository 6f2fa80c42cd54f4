"""Escapes and redacts what Python and its libraries print on stderr: tracebacks, log records, errors of click.

Installed by `main` and by every command that runs an event loop. These texts quote file names, headers and what servers
and models sent. Imports nothing until there is something to print.
"""

import sys
from typing import TYPE_CHECKING, Any

from kitbag.cli import output

if TYPE_CHECKING:
    import logging
    from types import TracebackType

    from click.exceptions import ClickException


def safe_lines(text: str) -> str:
    """Redacted, and escaped line by line; indented after the first, so that no line passes for another message."""
    import os

    from kitbag.store.redaction import Redactor
    from kitbag.text.hidden_characters import escape_for_terminal

    lines = Redactor.from_environment(os.environ).redact_text(text).rstrip().splitlines()
    return "\n  ".join(map(escape_for_terminal, lines))


def install_error_hooks() -> None:
    """For exceptions that nothing catches: here, in a thread, and where Python can't raise them."""
    import threading  # click has imported it

    sys.excepthook = _print_exception
    threading.excepthook = lambda hook: _print_exception(hook.exc_type, hook.exc_value, hook.exc_traceback)
    sys.unraisablehook = lambda hook: _print_exception(hook.exc_type, hook.exc_value, hook.exc_traceback)


def _print_exception(
    kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None"
) -> None:
    import traceback

    if sys.stderr is not None and kind is not SystemExit:  # which ends a thread quietly
        output.remark(safe_lines("".join(traceback.format_exception(kind, error, trace))))


def install_log(prefix: str = "") -> None:
    """What libraries log as a warning or an error. `prefix`: add a handler for all loggers, which starts each record
    with it; otherwise replace Python's last resort, for loggers without a handler."""
    import logging

    class SafeHandler(logging.Handler):
        def emit(self, record: "logging.LogRecord") -> None:
            try:
                output.remark(safe_lines(prefix + self.format(record)))
            except Exception:  # noqa: BLE001 - a log record that can't be formatted must not end the program
                _print_exception(*sys.exc_info())

    handler = SafeHandler(logging.WARNING)
    if prefix:
        logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])
    else:
        logging.lastResort = handler


def show_click_error(error: "ClickException") -> None:
    """The message of click, which quotes the command line."""
    import io

    shown: Any = io.StringIO()
    error.show(file=shown)
    output.remark("\n".join(map(output.shorten_message, shown.getvalue().rstrip("\n").split("\n"))))
