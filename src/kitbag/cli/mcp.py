"""`kitbag mcp`: serves skills and agents to MCP clients over stdio or HTTP."""

import asyncio
import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from kitbag.cli import error_output, interruption, output
from kitbag.cli.number_types import IntRange
from kitbag.cli.permission_options import allow_env_option
from kitbag.errors import UsageError

if TYPE_CHECKING:
    from kitbag.assembly.run_options import Options
    from kitbag.mcp_server.server_state import HttpOptions


@click.command("mcp")
@click.option(
    "--http",
    "port",
    type=IntRange(0, 65535),
    metavar="PORT",
    help="Serve over HTTP on this port.",
    show_default="serve over stdio",
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Listen on this address (with --http)."
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="Also accept this host name from clients (with --http). Repeatable.",
)
@click.option(
    "--token-file",
    default="",
    metavar="FILE",
    help="Read the bearer token from FILE, readable only by you (with --http).",
    show_default="a token is generated",
)
@click.option(
    "--team", default="", metavar="NAME", help="Serve this team's skills and agents.", show_default="the `team` setting"
)
@click.option(
    "--persona", default="", metavar="NAME", help="Serve as this persona.", show_default="the `persona` setting"
)
@click.option(
    "--dir",
    "dirs",
    multiple=True,
    metavar="DIR",
    help="Also load skills and agents from DIR; they take precedence. Repeatable.",
)
@click.option("--cwd", default="", metavar="DIR", help="Serve this directory.", show_default="the current directory")
@click.option("--trust-workspace", is_flag=True, help="Trust this workspace for this run.")
@allow_env_option
@click.option(
    "--model",
    default="",
    metavar="NAME",
    help="Use this model for agents: provider/model, an alias, or offline.",
    show_default="the `model` setting",
)
@click.option(
    "--permission-mode",
    default="",
    metavar="MODE",
    help="Set the permission mode of agents: plan, default, acceptEdits, autonomous or locked.",
    show_default="the `permissions.mode` setting",
)
@click.option(
    "--allowed-tools",
    multiple=True,
    metavar="RULES",
    help="Allow agents only these tools, and without asking. Repeatable.",
    show_default="all tools",
)
@click.option("--disallowed-tools", multiple=True, metavar="RULES", help="Deny agents these tools. Repeatable.")
def command(port: int | None, **options: Any) -> None:
    """Serve skills and agents to an MCP client.

    Without --http, the client starts this command and talks to it over stdio. docs/clients.md shows how to configure
    clients.
    """
    error_output.install_log("kitbag mcp: ")
    if find_spec("mcp") is None:
        raise UsageError("the MCP server is not installed", "pip install 'kitbag[mcp]'")
    from kitbag.mcp_server.server_state import HttpOptions

    if port is None and (options["names"] or options["token_file"] or options["host"] != "127.0.0.1"):
        raise UsageError("--host, --name and --token-file need --http", "add --http PORT")
    http_options = (
        HttpOptions(port=port, host=options["host"], names=options["names"], token_file=options["token_file"])
        if port is not None
        else None
    )
    if port is None and sys.stdin is not None and sys.stdin.isatty():
        _notify("waiting for an MCP client on stdin; see docs/clients.md. Press Ctrl-C to exit")
    with interruption.Interruption() as interrupted:
        try:
            interruption.run_interruptible(_serve(_server_options(options), http_options, interrupted))
        except (asyncio.CancelledError, interruption.InterruptedRunError):
            pass
        except ExceptionGroup:
            if not interrupted.signal_number:  # otherwise the SDK fails to deliver a message while it shuts down
                raise
    if interrupted.signal_number:
        sys.exit(interrupted.exit_code)


async def _serve(
    options: "Options", http_options: "HttpOptions | None", interrupted: interruption.Interruption
) -> None:
    from kitbag.mcp_server.server_state import ServerState

    running = asyncio.current_task()
    assert running is not None
    interrupted.on_signal(running.cancel)
    state = ServerState(options)
    for notice in state.served.notices:
        _notify(notice)
    if http_options is None:
        from kitbag.mcp_server.stdio import serve_stdio

        await serve_stdio(state)
    else:
        from kitbag.mcp_server.http import serve_http

        await serve_http(state, http_options, _notify)


def _notify(text: str) -> None:
    output.remark(output.clean(f"kitbag mcp: {text}"))


def _server_options(options: dict[str, Any]) -> "Options":
    from kitbag.assembly.run_options import Options

    directory = os.path.abspath(options["cwd"]) if options["cwd"] else os.getcwd()
    for option, path in (("--cwd", directory), *(("--dir", one) for one in options["dirs"])):
        if not os.path.isdir(path):
            raise UsageError(f"{option} {path}: not a directory", "use an existing directory")
    return Options(
        directory=directory,
        model=options["model"],
        mode=options["permission_mode"],
        team=options["team"],
        persona=options["persona"],
        only_tools=_split_rules("--allowed-tools", options["allowed_tools"]),
        no_tools=_split_rules("--disallowed-tools", options["disallowed_tools"]),
        trust_workspace=options["trust_workspace"],
        allow_env=options["environment"],
        extra=tuple(os.path.abspath(one) for one in options["dirs"]),
    )


def _split_rules(name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """Rejects an option without rules, which would mean no limit."""
    from kitbag.library.dialects.tool_aliases import split_tool_names

    rules = tuple(rule for text in values for rule in split_tool_names(text))
    if values and not rules:
        raise UsageError(f"{name} contains no tool", "name a tool or remove the option")
    return rules
