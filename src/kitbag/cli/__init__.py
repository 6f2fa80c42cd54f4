"""The command line. `main` is what `kitbag` runs; each group of commands is imported when it is used."""

import gc
import io
import os
import sys

INTERRUPTED = 130


def main() -> None:
    # A command ends before its garbage matters; looking for it would be a twentieth of the time of a listing.
    gc.disable()
    if sys.stdout is None or sys.stderr is None:  # closed by whoever started us
        nowhere = open(os.devnull, "w")  # noqa: SIM115 - open until the end
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    for stream in (sys.stdout, sys.stderr):
        # A file name need not be text; it is shown escaped and never ends the program.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run()
        sys.stdout.flush()
        sys.exit(code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader has gone (`| head`): leave quietly, and keep Python from complaining at exit.
        _discard_output()
        sys.exit(141)
    except OSError as error:
        _discard_output()
        sys.stderr.write(f"error: {error.strerror or error}\n")
        sys.exit(1)


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> int:
    from click.exceptions import Abort, ClickException

    from kitbag.cli.root import cli
    from kitbag.errors import KitbagError

    chosen: dict[str, bool] = {}
    try:
        code = cli.main(prog_name="kitbag", standalone_mode=False, obj=chosen)
    except KitbagError as error:
        from kitbag.cli.output import fail

        fail(error, as_json=chosen.get("json", False))
        return error.exit_code
    except ClickException as error:
        error.show()
        return error.exit_code
    except Abort:
        return INTERRUPTED
    return code if isinstance(code, int) else 0  # what a command gave to `Context.exit` comes back so
