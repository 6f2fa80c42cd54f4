"""The command line. `main` is what `kitbag` runs; each group of commands is imported when it is used."""

import gc
import io
import os
import sys

INTERRUPTED = 130


def main() -> None:
    # A command ends before its garbage matters; looking for it would be a twentieth of the time of a listing.
    gc.disable()
    for stream in (sys.stdout, sys.stderr):
        # A file name need not be text; it is shown escaped and never ends the program.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        sys.exit(_run())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader has gone (`| head`): leave quietly, and keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def _run() -> int:
    from click.exceptions import Abort, ClickException, Exit

    from kitbag.cli.root import cli
    from kitbag.errors import KitbagError

    try:
        cli.main(prog_name="kitbag", standalone_mode=False)
    except KitbagError as error:
        from kitbag.cli.output import fail

        fail(error)
        return error.exit_code
    except ClickException as error:
        error.show()
        return error.exit_code
    except Abort:
        return INTERRUPTED
    except Exit as leave:
        return leave.exit_code
    return 0
