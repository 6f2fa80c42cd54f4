"""The base class of all command groups: `--` ends options for the group and for the command after it.

Used by the root command and by each `click.group` below it.
"""

import click

_WRITTEN = "kitbag.cli.command_group.written"


class CommandGroup(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_WRITTEN] = [*args]  # click consumes the list and does not report a `--`
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        written: list[str] = ctx.meta[_WRITTEN]
        # `--` may also be the value of the group's last option. Only the root has options that take a value, and it
        # refuses them before a command.
        options_ended = written[-len(args) - 1] == "--" if len(written) > len(args) else False
        if args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise click.UsageError(f"No such command {args[0]!r}.", ctx)  # click would parse it as an option
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, ["--", *rest] if options_ended else rest
