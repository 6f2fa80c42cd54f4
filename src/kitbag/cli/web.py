"""`kitbag web`: serves the web UI on this machine."""

import asyncio
import contextlib
import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from kitbag.cli import error_output, interruption, output
from kitbag.cli.number_types import IntRange
from kitbag.errors import UsageError

if TYPE_CHECKING:
    from kitbag.assembly.run_options import Options


@click.command("web")
@click.option(
    "--port",
    type=IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Listen on this port.",
    show_default="a free one",
)
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@click.option("--cwd", default="", metavar="DIR", help="Serve this directory.", show_default="the current directory")
@click.option("--trust-workspace", is_flag=True, help="Trust this workspace for this run.")
@click.option(
    "--model",
    default="",
    metavar="NAME",
    help="Use this model in new chats: provider/model, an alias, or offline.",
    show_default="the `model` setting",
)
@click.option(
    "--dir",
    "dirs",
    multiple=True,
    metavar="DIR",
    help="Also load skills and agents from DIR; they take precedence. Repeatable.",
)
def command(port: int, no_open: bool, cwd: str, **options: Any) -> None:
    """Open the web UI: chat, context, tasks and library in a browser.

    Prints the URL, which contains a token of this start. Only this machine can connect; docs/web.md shows how to reach
    it from another one through ssh. Ctrl-C ends it; background tasks keep running.
    """
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise UsageError("the web UI is not installed", "pip install 'kitbag[web]'")
    directory = os.path.abspath(cwd) if cwd else os.getcwd()
    for option, path in (("--cwd", directory), *(("--dir", one) for one in options["dirs"])):
        if not os.path.isdir(path):
            raise UsageError(f"{option} {path}: not a directory", "use an existing directory")
    error_output.install_log("kitbag web: ")
    ended = contextlib.suppress(asyncio.CancelledError, interruption.InterruptedRunError)
    with interruption.Interruption() as interrupted, ended:
        interruption.run_interruptible(_serve(directory, port, options, interrupted, opens=not no_open))
    if interrupted.signal_number:
        sys.exit(interrupted.exit_code)


async def _serve(
    directory: str, port: int, options: dict[str, Any], interrupted: interruption.Interruption, *, opens: bool
) -> None:
    from kitbag.library.scopes import find_places
    from kitbag.web.serve import serve_web

    running = asyncio.current_task()
    assert running is not None
    interrupted.on_signal(running.cancel)

    def run_options() -> "Options":
        from kitbag.assembly.run_options import Options

        return Options(
            model=options["model"],
            trust_workspace=options["trust_workspace"],
            extra=tuple(os.path.abspath(one) for one in options["dirs"]),
        )

    def announce(url: str) -> None:
        output.echo(url)
        sys.stdout.flush()  # a program that reads it from a pipe waits for it

    await serve_web(find_places(directory), run_options, port, announce, opens=opens)
