"""The top of the command tree: names and one-line helps, so that nothing is imported that is not used."""

import importlib

import click

# command -> (module, help)
_COMMANDS = {
    "skills": ("kitbag.cli.skills", "List, inspect, check and switch skills."),
    "agents": ("kitbag.cli.agents", "List, inspect and switch agents."),
    "personas": ("kitbag.cli.personas", "List and inspect personas."),
    "plugins": ("kitbag.cli.plugins", "Install, list, switch and remove plugins."),
    "pack": ("kitbag.cli.pack", "Turn a task into a subagent's context, inside a budget."),
    "permissions": ("kitbag.cli.permissions", "List the rules, explain a decision, try a command in the sandbox."),
    "trust": ("kitbag.cli.trust", "See what a workspace would run, and trust it."),
    "audit": ("kitbag.cli.audit", "Read what skills can do and what is suspicious about them, without running anything."),
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
  6    found, but it can't be used
  10   over budget after everything that may be cut (pack)
  13   the workspace is not trusted (pack)
  130  interrupted
"""


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = _COMMANDS.get(cmd_name)
        return importlib.import_module(found[0]).command if found else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=_Lazy, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kitbag", message="kitbag %(version)s")
def cli() -> None:
    """Kitbag gives AI agents the right skills at the right moment, and proves it."""
