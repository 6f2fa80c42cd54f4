"""The root of the command tree: command names and one-line helps, so that only the used command is imported."""

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kitbag.cli.command_group import CommandGroup
from kitbag.cli.number_options import NumberRange
from kitbag.cli.permission_options import allow_env_option
from kitbag.cli.run_options import CHOOSE_SESSION
from kitbag.version import __version__

F = TypeVar("F", bound=Callable[..., Any])
_Option = Callable[[F], F]

# heading -> command -> help; the module of a command is kitbag.cli.<command>
_COMMAND_GROUPS = {
    "Write and share skills and agents": {
        "init": "Set up this project with a sample skill and agent.",
        "new": "Create a skill, agent, persona or command.",
        "skills": "List, search, show, check, enable and disable skills.",
        "agents": "List, search, show, run, enable and disable agents.",
        "personas": "List and show personas.",
        "plugins": "Install, list, enable, disable and remove plugins.",
        "pack": "Build a subagent's context from a task, within a token budget.",
    },
    "Monitor and undo work": {
        "sessions": "List, show, export and delete sessions.",
        "tasks": "List, watch, stop and resume background tasks.",
        "context": "Show what the model sees and what it costs.",
        "web": "Open the web UI in a browser.",
        "undo": "Undo file changes made by an agent.",
        "worker": "Run background tasks; starts automatically when needed.",
        "fleet": "Show workers and queues, drain workers, retry failed tasks.",
    },
    "Connect models and tools": {
        "setup": "Choose a model, store its API key and test it.",
        "models": "Show which model is used and why.",
        "servers": "List and test the MCP servers that agents can use.",
        "mcp": "Serve your skills and agents to MCP clients.",
    },
    "Stay in control": {
        "permissions": "List rules, explain decisions, answer pending approvals.",
        "trust": "Show what a workspace would run, and trust it.",
        "audit": "Find dangerous content in skills, agents and plugins.",
        "quarantine": "Restore or delete files that got past the sandbox.",
        "lock": "Record what skills can do, to detect changes.",
    },
    "Configure and diagnose": {
        "config": "Read and change settings.",
        "doctor": "Diagnose configuration problems.",
        "store": "Show, check and clean up what Kitbag stores.",
    },
}
_COMMANDS = {name: text for group in _COMMAND_GROUPS.values() for name, text in group.items()}

_EXAMPLES = (
    ("kitbag", "Chat in this directory"),
    ('kitbag "Fix the failing test"', "Chat, with a first message"),
    ('kitbag -p "Explain src/app.py"', "Answer one prompt and exit"),
    ('git diff | kitbag -p "Review this change"', "Add piped text to the prompt"),
)

EXIT_CODES = """\b
Exit codes:
  0    success
  1    problems found (validate, doctor, audit)
  2    invalid command line
  4    not found
  5    ambiguous name
  6    found but unusable, or denied; -p: every tool call was denied
  7    the model failed (-p)
  8    background tasks are still running or need approval (-p)
  9    the model returned an empty answer (-p)
  10   over budget after all allowed truncation (pack)
  11   stopped at --max-turns or `limits.turns` (-p)
  12   over budget: --max-tokens, --max-cost, --max-time or a `limits` setting (-p)
  13   the workspace is not trusted
  130  interrupted (Ctrl-C); 143 terminated (SIGTERM)
"""


_COMMAND_COLUMN = max(map(len, _COMMANDS))
_PRINT_FLAGS = ("-p", "--print")
_IMPLIED_VALUES = {**dict.fromkeys(_PRINT_FLAGS, "-"), **dict.fromkeys(("-r", "--resume"), CHOOSE_SESSION)}
"""Of options that may stand last without a value."""
_MESSAGE = "kitbag.cli.root.message"
_COMMON_COMMANDS = {
    "help": "--help", "version": "--version", "chat": "", "resume": "--resume", "continue": "--continue",
    "login": "setup", "auth": "setup", "ls": "skills list", "run": "agents run",
}  # fmt: skip
"""Words that users of other tools type as a command, and ours for each."""


class _Root(CommandGroup):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        written = [*args]
        try:
            return super().parse_args(ctx, args)
        except click.BadOptionUsage as error:
            implied = _IMPLIED_VALUES.get(error.option_name)
            if implied is None:
                raise
            # The last argument is -p or -r without a value. A click option with an optional value would not accept text
            # that starts with a dash, and would parse it as options.
            return super().parse_args(ctx, [*written, implied])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return importlib.import_module(f"kitbag.cli.{cmd_name}").command if cmd_name in _COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """What is no command is the chat's first message, unless it looks like a misspelled command."""
        name = args[0]
        if name in _COMMANDS:
            return super().resolve_command(ctx, args)
        if ctx.params.get("prompt") is not None:
            note = _option_as_prompt_note(ctx) or "-p has its prompt already; quote a prompt of several words"
            raise click.UsageError(f"No such command {name!r}: {note}", ctx)
        if not self.options_ended(ctx, args):
            if near := _nearest_command(name):
                raise click.UsageError(f"No such command {name!r}. Did you mean `{near}`?{_message_hint(args)}", ctx)
            if name.startswith("-"):
                raise click.UsageError(f"No such command {name!r}.", ctx)
        if len(args) > 1:
            raise click.UsageError(f"No such command {name!r}.{_message_hint(args)}", ctx)
        ctx.meta[_MESSAGE] = name
        return "", self, []  # `cli` opens the chat and exits

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "[COMMAND | MESSAGE] [ARGS]..."]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples and commands come before the many options."""
        with formatter.section("Examples"):
            formatter.write_dl(_EXAMPLES, col_max=45)
        for heading, commands in _COMMAND_GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(_COMMAND_COLUMN), text) for name, text in commands.items()])
        click.Command.format_options(self, ctx, formatter)


def _nearest_command(name: str) -> str:
    """The command that a single word probably means; empty for a message."""
    if not name or any(character.isspace() for character in name):
        return ""
    from difflib import get_close_matches

    near = _COMMON_COMMANDS.get(name.lower()) or next(iter(get_close_matches(name.lower(), _COMMANDS, 1)), "")
    return f"kitbag {near}".rstrip() if near or name.lower() in _COMMON_COMMANDS else ""


def _message_hint(words: list[str]) -> str:
    from kitbag.cli.output import clean

    if len(words) == 1:
        return f" To send it as a message: kitbag -- {clean(words[0])}"
    quoted = clean(" ".join(words)[:80]).replace('"', "'")
    return f' To send a message, quote it: kitbag "{quoted}"'


def _prompt_options() -> list[_Option[Any]]:
    return [
        click.option(
            *_PRINT_FLAGS,
            "prompt",
            metavar="PROMPT",
            help="Answer PROMPT and exit. Without PROMPT (as the last option) or with -, read it from standard input.",
            show_default="open the chat",
        ),
        click.option(
            "--output-format",
            type=click.Choice(["text", "json", "stream-json"]),
            default="text",
            show_default=True,
            help="Print the answer as text, one JSON object, or one JSON event per line (-p).",
        ),
        click.option(
            "--input-format",
            type=click.Choice(["text", "stream-json"]),
            default="text",
            show_default=True,
            help="Read the prompt as text, or prompts as JSON lines (-p).",
        ),
        click.option(
            "--wait/--no-wait",
            "waits",
            default=True,
            show_default=True,
            help="Wait for background tasks before exiting (-p).",
        ),
    ]


def _agent_options() -> list[_Option[Any]]:
    return [
        click.option(
            "--model",
            default="",
            metavar="NAME",
            help="Use this model: provider/model, an alias, or offline.",
            show_default="the `model` setting",
        ),
        click.option(
            "--effort",
            type=click.Choice(["low", "medium", "high"]),
            help="Set how much the model reasons.",
            show_default="the model's default",
        ),
        click.option("--agent", default="", metavar="NAME", help="Run as this agent.", show_default="none"),
        click.option(
            "--team",
            default="",
            metavar="NAME",
            help="Use this team's skills and agents.",
            show_default="the `team` setting",
        ),
        click.option(
            "--persona",
            default="",
            metavar="NAME",
            help="Use this persona.",
            show_default="the `persona` setting",
        ),
    ]


def _permission_options() -> list[_Option[Any]]:
    return [
        click.option(
            "--permission-mode",
            default="",
            metavar="MODE",
            help="Set the permission mode: plan, default, acceptEdits, autonomous or locked.",
            show_default="the `permissions.mode` setting",
        ),
        click.option(
            "--allowed-tools",
            multiple=True,
            metavar="RULES",
            help="Allow only these tools, and without asking. Repeatable.",
            show_default="all tools",
        ),
        click.option("--disallowed-tools", multiple=True, metavar="RULES", help="Deny these tools. Repeatable."),
        click.option("--trust-workspace", is_flag=True, help="Trust this workspace for this run."),
        allow_env_option,
    ]


def _workspace_options() -> list[_Option[Any]]:
    return [
        click.option(
            "--append-system-prompt",
            "append",
            default="",
            metavar="TEXT",
            help="Add TEXT to the system prompt.",
            show_default="nothing",
        ),
        click.option(
            "--dir",
            "dirs",
            multiple=True,
            metavar="DIR",
            help="Also load skills and agents from DIR; they take precedence. Repeatable.",
        ),
        click.option("--cwd", default="", metavar="DIR", help="Work in DIR.", show_default="the current directory"),
    ]


def _limit_options() -> list[_Option[Any]]:
    return [
        click.option(
            "--max-turns",
            type=click.IntRange(1),
            metavar="N",
            help="Stop the session after N model requests.",
            show_default="with -p, the `limits.turns` setting for each prompt",
        ),
        click.option(
            "--max-tokens",
            type=click.IntRange(1),
            metavar="N",
            help="Stop before the session and its subagents use more than N tokens.",
            show_default="no limit",
        ),
        click.option(
            "--max-cost",
            type=NumberRange(0, min_open=True),
            metavar="USD",
            help="Stop before the session and its subagents cost more than this.",
            show_default="no limit",
        ),
        click.option(
            "--max-time",
            type=NumberRange(0, min_open=True),
            metavar="SECONDS",
            help="Make no model request after SECONDS of work.",
            show_default="no limit",
        ),
    ]


def _session_options() -> list[_Option[Any]]:
    return [
        click.option(
            "-c", "--continue", "continue_newest", is_flag=True, help="Resume the newest session in this directory."
        ),
        click.option(
            "-r",
            "--resume",
            default="",
            metavar="[ID]",
            help="Resume this session, by its ID or the start of it. Without ID (as the last option), choose one.",
            show_default="start a new one",
        ),
        click.option("--fork", is_flag=True, help="Resume a copy of the session and leave the original unchanged."),
        click.option("--plain", is_flag=True, help="Print the chat as plain lines, for screen readers."),
    ]


def _run_options(function: F) -> F:
    """Options of a run, in the order of the help."""
    options = [
        *_prompt_options(),
        *_agent_options(),
        *_permission_options(),
        *_workspace_options(),
        *_limit_options(),
        *_session_options(),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def _reject_options_before_command(context: click.Context) -> None:
    """Options of a run would have no effect on a command."""
    if option := _first_given_option(context):
        problem = f"{option} applies to the chat and -p, not to `{context.invoked_subcommand}`"
        raise click.UsageError(f"{problem}; options of a command go after its name", context)


def _option_as_prompt_note(context: click.Context) -> str:
    """A note for users who expect -p to work without text before other options; empty if the prompt is not an option's
    name."""
    prompt: str = context.params.get("prompt") or ""
    names = {name for one in context.command.get_params(context) for name in (*one.opts, *one.secondary_opts)}
    if prompt.partition("=")[0] not in names | {"--"}:
        return ""
    from kitbag.cli.output import clean

    return f'"{clean(prompt[:80])}" was read as the prompt; to read the prompt from standard input, put -p last'


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
@click.version_option(__version__, message="kitbag %(version)s")
@click.pass_context
def cli(context: click.Context, **options: Any) -> None:
    """Run AI agents that load the right skills when they need them.

    Without a command, kitbag opens the chat; text in quotes is its first message. With -p, it answers one prompt and
    exits."""
    message: str | None = context.meta.get(_MESSAGE)
    if context.invoked_subcommand:
        _reject_options_before_command(context)
        return
    if options["prompt"] is None:
        if option := _first_given_option(context, only=_PROMPT_ONLY_OPTIONS):
            raise click.UsageError(f'{option} needs a prompt: kitbag -p "PROMPT"', context)
        from kitbag.cli.open_chat import open_chat

        context.exit(open_chat(options, message))
    if options["plain"]:
        raise click.UsageError("--plain applies to the chat; remove --plain or -p", context)
    if note := _option_as_prompt_note(context):
        from kitbag.cli.output import remark

        remark(f"note: {note}")
    from kitbag.cli.headless import ask

    context.exit(ask(options))
