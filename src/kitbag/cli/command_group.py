"""The base class of all command groups: a bare group lists, help is never truncated, and `--` ends options for the
group and for the command after it.

Used by the root command and by each `click.group` below it.
"""

import click

_WRITTEN = "kitbag.cli.command_group.written"


class CommandGroup(click.Group):
    bare_command = "list"
    """The command that a group without one runs, as `git branch` does; for groups that have it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_completion = ctx.resilient_parsing  # which completes the names of commands too
        if self.bare_command in self.commands and self._names_no_command(ctx, args) and not is_completion:
            args = [self.bare_command, *args]
        ctx.meta[_WRITTEN] = [*args]  # click consumes the list and does not report a `--`
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None:  # click would parse a name that starts with a dash as an option
            raise click.UsageError(f"No such command {args[0]!r}.{self._suggestion(ctx, args[0])}", ctx)
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, ["--", *rest] if self.options_ended(ctx, args) else rest

    def options_ended(self, ctx: click.Context, args: list[str]) -> bool:
        """Whether `--` stands before these arguments. It may also be the value of the last option: only the root
        has options that take a value, and it refuses them before a command."""
        written: list[str] = ctx.meta[_WRITTEN]
        return written[-len(args) - 1] == "--" if len(written) > len(args) else False

    def _suggestion(self, ctx: click.Context, name: str) -> str:
        from difflib import get_close_matches

        if near := get_close_matches(name, self.list_commands(ctx), 1):
            return f" Did you mean {near[0]!r}?"
        show = self.commands.get("show")
        takes_name = show is not None and any(isinstance(one, click.Argument) for one in show.params)
        can_show = takes_name and not name.startswith("-")
        if can_show:
            return f" To show {name!r}: {ctx.command_path} show {name}"
        return f" Commands: {', '.join(self.list_commands(ctx))}"

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        pieces = super().collect_usage_pieces(ctx)
        return [*pieces[:-1], "[COMMAND] [ARGS]..."] if self.bare_command in self.commands else pieces

    def _names_no_command(self, ctx: click.Context, args: list[str]) -> bool:
        return not args or (args[0].startswith("-") and args[0] not in (*self.get_help_option_names(ctx), "--"))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """All of each summary: click would truncate it to the width of the terminal."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(500)) for name, command in commands if command]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
        if self.bare_command in self.commands:
            formatter.write_paragraph()
            formatter.write_text(f"Without a command, `{ctx.command_path}` runs `{self.bare_command}`.")
