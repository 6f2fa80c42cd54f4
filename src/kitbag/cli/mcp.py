"""`kitbag mcp`: serves skills and agents to MCP clients over stdio or HTTP."""

import asyncio
import contextlib
import logging
import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from kitbag.cli import interruption, output
from kitbag.errors import UsageError

if TYPE_CHECKING:
    from kitbag.assembly.run_options import Options
    from kitbag.mcp_server.server_state import HttpOptions


@click.command("mcp")
@click.option("--http", "port", type=click.IntRange(0, 65535), metavar="PORT", help="Over HTTP on this port instead.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Listen here (with --http).")
@click.option("--name", "names", multiple=True, metavar="HOST", help="A name that clients may call it by. Repeatable.")
@click.option("--token-file", default="", metavar="FILE", help="Your own token, in a file that only you can read.")
@click.option("--team", default="", metavar="NAME", help="With this team's skills and agents.")
@click.option("--persona", default="", metavar="NAME", help="As this persona.")
@click.option("--dir", "dirs", multiple=True, metavar="DIR", help="Look for skills and agents here too, first.")
@click.option("--cwd", default="", metavar="DIR", help="Serve this directory.")
@click.option("--trust-workspace", is_flag=True, help="Trust this workspace for this run.")
@click.option("--model", default="", metavar="NAME", help="Of agents: provider/model, an alias, or offline.")
@click.option(
    "--permission-mode", default="", metavar="MODE", help="Of agents: plan, default, acceptEdits, autonomous, locked."
)
@click.option("--allowed-tools", multiple=True, metavar="RULES", help="Of agents: only these, and without asking.")
@click.option("--disallowed-tools", multiple=True, metavar="RULES", help="Of agents: never these.")
def command(port: int | None, **options: Any) -> None:
    """Serve skills and agents to an MCP client.

    Over stdio unless --http is given: the client starts this command and talks to it. docs/clients.md shows how to
    set it up in some of them.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="kitbag mcp: %(message)s")
    if find_spec("mcp") is None:
        raise UsageError("the MCP server needs the extra `mcp`", "pip install 'kitbag[mcp]'")
    from kitbag.mcp_server.server_state import HttpOptions

    if port is None and (options["names"] or options["token_file"] or options["host"] != "127.0.0.1"):
        raise UsageError("--host, --name and --token-file are for --http", "add --http PORT")
    http_options = (
        HttpOptions(port=port, host=options["host"], names=options["names"], token_file=options["token_file"])
        if port is not None
        else None
    )
    if port is None and sys.stdin is not None and sys.stdin.isatty():
        _notify("an MCP client starts this command and talks to it; docs/clients.md shows how, Ctrl-C ends it")
    if_cancelled = contextlib.suppress(asyncio.CancelledError, interruption.InterruptedRunError)
    with interruption.Interruption() as interrupted, if_cancelled:
        interruption.run_interruptible(_serve(_server_options(options), http_options, interrupted))
    if interrupted.signal_number:
        sys.exit(interrupted.exit_code)


async def _serve(
    options: "Options", http_options: "HttpOptions | None", interrupted: interruption.Interruption
) -> None:
    from kitbag.mcp_server.server_state import ServerState
    from kitbag.mcp_server.transports import serve

    running = asyncio.current_task()
    assert running is not None
    interrupted.on_signal(running.cancel)
    state = ServerState(options)
    for notice in state.served.notices:
        _notify(notice)
    await serve(state, http_options, _notify)


def _notify(text: str) -> None:
    output.remark(output.clean(f"kitbag mcp: {text}"))


def _server_options(options: dict[str, Any]) -> "Options":
    from kitbag.assembly.run_options import Options

    directory = os.path.abspath(options["cwd"]) if options["cwd"] else os.getcwd()
    for option, path in (("--cwd", directory), *(("--dir", one) for one in options["dirs"])):
        if not os.path.isdir(path):
            raise UsageError(f"{option} {path}: not a directory", "give an existing directory")
    return Options(
        directory=directory,
        model=options["model"],
        mode=options["permission_mode"],
        team=options["team"],
        persona=options["persona"],
        only_tools=_split_rules("--allowed-tools", options["allowed_tools"]),
        no_tools=_split_rules("--disallowed-tools", options["disallowed_tools"]),
        trust_workspace=options["trust_workspace"],
        extra=tuple(os.path.abspath(one) for one in options["dirs"]),
    )


def _split_rules(name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """Rejects an option without rules, which would mean no limit."""
    from kitbag.library.dialects.tool_aliases import split_tool_names

    rules = tuple(rule for text in values for rule in split_tool_names(text))
    if values and not rules:
        raise UsageError(f"{name} names no tool", "name one, or leave the option out")
    return rules
