"""The command line. `main` is what `kitbag` runs; each group of commands is imported when it is used."""

import os
import sys


def main() -> None:
    from kitbag.cli.root import cli
    from kitbag.errors import KitbagError

    try:
        cli.main(prog_name="kitbag", standalone_mode=True)
    except KitbagError as error:
        from kitbag.cli.output import fail

        fail(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader has gone (`| head`): leave quietly, and keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
