"""The command line. `main` is the entry point of `kitbag`; each command is imported when it is used."""

import gc
import io
import os
import sys

TYPE_CHECKING = False  # without importing typing: a Ctrl-C before `main` runs would print a traceback
if TYPE_CHECKING:
    from kitbag.errors import KitbagError

INTERRUPTED = 130
BROKEN_PIPE = 141
"""The reader of the output has exited, as in `| head`."""
_LISTING_FLAGS = frozenset(("--all", "--json"))
_COMPLETION = "_KITBAG_COMPLETE"
"""Set by a shell that completes a command line, for click."""


def main() -> None:
    # A command exits before garbage matters; collecting it would take a twentieth of a listing's time.
    gc.disable()
    if sys.stdout is None or sys.stderr is None:  # closed by the parent process
        nowhere = open(os.devnull, "w")  # noqa: SIM115 - open until the end
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    for stream in (sys.stdout, sys.stderr):
        # A file name may not be valid text: print it escaped instead of crashing.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        _report_damage()
        code = _run()
        _report_damage()  # if this command noticed it
        sys.stdout.flush()
        sys.exit(code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        _discard_output()  # exit quietly, without Python's error message
        sys.exit(BROKEN_PIPE)
    except OSError as error:
        _discard_output()
        from kitbag.cli.output import clean

        file = f"{error.filename}: " if isinstance(error.filename, str) else ""
        sys.stderr.write(f"error: {clean(file + (error.strerror or str(error)))}\n")
        sys.exit(1)
    finally:
        if "kitbag.telemetry.export" in sys.modules:
            from kitbag.telemetry.switch import close_telemetry

            close_telemetry()


_reported: set[str] = set()


def _report_damage() -> None:
    """Every command says that the journal was damaged, until it is acknowledged. A run shows it among its notices."""
    if sys.argv[1:2] in ([], ["store"]) or sys.argv[1].startswith("-"):
        return
    from kitbag.errors import KitbagError
    from kitbag.library.scopes import find_places
    from kitbag.store.damage_notices import FIX, read_notices

    try:
        notices = read_notices(find_places().kitbag_home)
    except (OSError, KitbagError):  # the working directory is gone, which the command reports
        return
    for notice in notices:
        if notice.text() not in _reported:
            from kitbag.cli import output

            _reported.add(notice.text())
            output.remark(f"{output.style('warning', 'yellow', sys.stderr)}: {output.clean(notice.text())}")
            output.remark(f"  fix: {FIX}")


def _show_progress(text: str) -> None:
    from kitbag.cli import output

    output.remark(output.clean(text))


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> int:
    flags = sys.argv[3:] if sys.argv[2:3] == ["list"] else sys.argv[2:]  # a bare `skills` lists too
    if sys.argv[1:2] == ["skills"] and _LISTING_FLAGS.issuperset(flags) and _COMPLETION not in os.environ:
        return _list_skills(everything="--all" in flags, as_json="--json" in flags)
    from click.exceptions import Abort, ClickException

    from kitbag.cli.error_output import install_error_hooks, show_click_error
    from kitbag.cli.root import cli
    from kitbag.errors import KitbagError
    from kitbag.store.progress import set_progress

    install_error_hooks()
    set_progress(_show_progress)
    chosen: dict[str, bool] = {}
    try:
        code = cli.main(prog_name="kitbag", standalone_mode=False, obj=chosen)
    except KitbagError as error:
        return _fail(error, as_json=chosen.get("json", False))
    except ClickException as error:
        show_click_error(error)
        return error.exit_code
    except Abort:
        return INTERRUPTED
    except FileNotFoundError:
        from kitbag.library.scopes import current_directory

        try:
            current_directory()
        except KitbagError as error:
            return _fail(error, as_json=chosen.get("json", False))
        raise
    return code if isinstance(code, int) else 0  # a command's `Context.exit` returns its code here


def _list_skills(*, everything: bool, as_json: bool) -> int:
    """A listing without click, whose import takes longer than all the rest. It ends as it does with click."""
    from kitbag.errors import KitbagError

    try:
        from kitbag.cli.skills_list import list_skills
        from kitbag.library.registry import Registry
        from kitbag.library.scopes import find_places

        list_skills(Registry(find_places()), everything=everything, as_json=as_json)
    except KitbagError as error:
        return _fail(error, as_json)
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return BROKEN_PIPE
    return 0


def _fail(error: "KitbagError", as_json: bool) -> int:
    from kitbag.cli.output import fail

    fail(error, as_json)
    return error.exit_code
