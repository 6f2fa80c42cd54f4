"""The root of the command tree: command names and one-line helps, so that only the used command is imported."""

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kitbag.cli.command_group import CommandGroup

F = TypeVar("F", bound=Callable[..., Any])

# command -> (module, help)
_COMMANDS = {
    "skills": ("kitbag.cli.skills", "List, inspect, check and switch skills."),
    "agents": ("kitbag.cli.agents", "List, inspect, run and switch agents."),
    "personas": ("kitbag.cli.personas", "List and inspect personas."),
    "plugins": ("kitbag.cli.plugins", "Install, list, switch and remove plugins."),
    "pack": ("kitbag.cli.pack", "Turn a task into a subagent's context, inside a budget."),
    "sessions": ("kitbag.cli.sessions", "List past conversations, to go on with."),
    "undo": ("kitbag.cli.undo", "Take back what an agent did to your files."),
    "setup": ("kitbag.cli.setup", "Connect a model: choose it, give it a key, try it."),
    "models": ("kitbag.cli.models", "Which model would be used, and why; what is known about it."),
    "tasks": ("kitbag.cli.tasks", "Look at, stop and resume what other agents do."),
    "worker": ("kitbag.cli.worker", "Host background work; one is started by itself where it is needed."),
    "mcp": ("kitbag.cli.mcp", "Serve skills and agents to MCP clients, over stdio or HTTP."),
    "context": ("kitbag.cli.context", "What a session's model is shown, piece by piece, and what it costs."),
    "servers": ("kitbag.cli.servers", "List and try the MCP servers whose tools agents can use."),
    "permissions": ("kitbag.cli.permissions", "List the rules, explain a decision, try a command in the sandbox."),
    "trust": ("kitbag.cli.trust", "See what a workspace would run, and trust it."),
    "audit": (
        "kitbag.cli.audit",
        "Read what skills can do and what is suspicious about them, without running anything.",
    ),
    "lock": ("kitbag.cli.lock", "Write down what skills can do, to see what changes."),
    "config": ("kitbag.cli.config", "Read and change settings."),
    "doctor": ("kitbag.cli.doctor", "Tell everything that is wrong with your files, and how to fix it."),
}

EXIT_CODES = """\b
Exit codes:
  0    done
  1    done, and something was found wrong (validate, doctor)
  2    the command line is wrong
  4    nothing has that name
  5    several things have that name
  6    found, but it can't be used, or it is refused
  7    the model failed (-p)
  8    background work still runs, or waits for your answer (-p)
  9    the model's answer was empty (-p)
  10   over budget after everything that may be cut (pack)
  11   stopped at --max-turns (-p)
  12   stopped at --max-tokens or --max-cost (-p)
  13   the workspace is not trusted, and what was asked for needs it
  130  interrupted; 143 ended by SIGTERM
"""


_PRINT_FLAGS = ("-p", "--print")


class _Root(CommandGroup):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        written = [*args]
        try:
            return super().parse_args(ctx, args)
        except click.BadOptionUsage as error:
            if error.option_name not in _PRINT_FLAGS:
                raise
            # The last argument is -p without text. A click option with an optional value would not accept text that
            # starts with a dash, and would parse it as options.
            return super().parse_args(ctx, [*written, "-"])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = _COMMANDS.get(cmd_name)
        return importlib.import_module(found[0]).command if found else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in _COMMANDS or name.startswith("-"):
            return super().resolve_command(ctx, args)
        if note := _option_as_prompt_note(ctx):
            raise click.UsageError(f"No such command {name!r}: {note}", ctx)
        if " " in name:
            problem = "a request stands behind -p: kitbag -p 'REQUEST'"
            raise click.UsageError(f"{problem}; `kitbag` alone opens the chat", ctx)
        from difflib import get_close_matches

        near = get_close_matches(name, _COMMANDS, 1)
        raise click.UsageError(f"No such command {name!r}." + (f" Is `{near[0]}` meant?" if near else ""), ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


def _run_options(function: F) -> F:
    """Options of a run, in the order of the help."""
    options = (
        click.option(
            *_PRINT_FLAGS,
            "prompt",
            metavar="TEXT",
            help="Answer this prompt and exit. Last, without TEXT, or with -: read the prompt from standard input.",
        ),
        click.option("--output-format", type=click.Choice(["text", "json", "stream-json"]), default="text"),
        click.option("--input-format", type=click.Choice(["text", "stream-json"]), default="text"),
        click.option("--wait/--no-wait", "waits", default=True, help="For background work that outlasts the answer."),
        click.option("--model", default="", metavar="NAME", help="provider/model, an alias, or offline."),
        click.option("--effort", type=click.Choice(["low", "medium", "high"]), help="How long the model may think."),
        click.option("--agent", default="", metavar="NAME", help="Be this agent."),
        click.option("--team", default="", metavar="NAME", help="With this team's skills and agents."),
        click.option("--persona", default="", metavar="NAME", help="As this persona."),
        click.option(
            "--permission-mode", default="", metavar="MODE", help="plan, default, acceptEdits, autonomous or locked."
        ),
        click.option("--allowed-tools", multiple=True, metavar="RULES", help="Only these, and without asking."),
        click.option("--disallowed-tools", multiple=True, metavar="RULES", help="Never these."),
        click.option("--trust-workspace", is_flag=True, help="Trust this workspace for this run."),
        click.option("--append-system-prompt", "append", default="", metavar="TEXT"),
        click.option("--dir", "dirs", multiple=True, metavar="DIR", help="Look for skills and agents here too, first."),
        click.option("--cwd", default="", metavar="DIR", help="Work in this directory."),
        click.option("--max-turns", type=click.IntRange(1), metavar="N", help="For the whole session."),
        click.option("--max-tokens", type=click.IntRange(1), metavar="N", help="For the whole session."),
        click.option(
            "--max-cost", type=click.FloatRange(0, min_open=True), metavar="USD", help="For the whole session."
        ),
        click.option(
            "-c", "--continue", "go_on", is_flag=True, help="Go on with the newest session of this directory."
        ),
        click.option("-r", "--resume", default="", metavar="ID", help="Go on with this session."),
        click.option("--fork", is_flag=True, help="Go on in a copy of it."),
        click.option("--plain", is_flag=True, help="The chat in plain lines, as for a screen reader."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _reject_options_before_command(context: click.Context) -> None:
    """Options of a run would have no effect on a command."""
    if option := _first_given_option(context):
        problem = f"{option} is for requests, not for `{context.invoked_subcommand}`"
        raise click.UsageError(f"{problem}; write it behind the command if that knows it", context)


def _option_as_prompt_note(context: click.Context) -> str:
    """A note for users who expect -p to work without text before other options; empty if the prompt is not an option's
    name."""
    prompt: str = context.params.get("prompt") or ""
    names = {name for one in context.command.get_params(context) for name in (*one.opts, *one.secondary_opts)}
    if prompt.partition("=")[0] not in names | {"--"}:
        return ""
    from kitbag.cli.output import clean

    return f'"{clean(prompt[:80])}" was taken as the prompt; put -p last to read the prompt from standard input'


_PROMPT_ONLY_OPTIONS = frozenset(("output_format", "input_format", "waits"))
"""Options that only apply to `-p`."""


def _first_given_option(context: click.Context, only: frozenset[str] | None = None) -> str:
    """The first option on the command line, or the first of `only`; empty if there is none."""
    for parameter in context.command.params:
        if only is not None and parameter.name not in only:
            continue
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            return parameter.opts[-1]
    return ""


@click.group(
    cls=_Root,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@_run_options
@click.version_option(package_name="kitbag", message="kitbag %(version)s")
@click.pass_context
def cli(context: click.Context, **options: Any) -> None:
    """Kitbag gives AI agents the right skills at the right moment, and proves it.

    Without a command it opens the chat; -p answers one request."""
    if context.invoked_subcommand is not None:
        _reject_options_before_command(context)
        return
    if options["prompt"] is None:
        if option := _first_given_option(context, only=_PROMPT_ONLY_OPTIONS):
            raise click.UsageError(f"{option} needs a request: write it behind -p", context)
        from kitbag.cli.open_chat import open_chat

        context.exit(open_chat(options))
    if options["plain"]:
        raise click.UsageError("--plain is for the chat: leave out -p, or --plain", context)
    if note := _option_as_prompt_note(context):
        from kitbag.cli.output import remark

        remark(f"note: {note}")
    from kitbag.cli.headless import ask

    context.exit(ask(options))
