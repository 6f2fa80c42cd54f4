"""`kitbag permissions`: lists the rules and explains decisions. Nothing here runs what it decides about."""

import importlib
import sys
from typing import Any

import click
import msgspec

from kitbag.cli import output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.library_options import json_option
from kitbag.cli.permission_options import OpenedPermissions, open_permissions, permission_options
from kitbag.errors import UsageError
from kitbag.library.dialects.permission_modes import MODE_DESCRIPTIONS
from kitbag.permissions.model import PermissionDecision
from kitbag.permissions.rules.rule import PermissionRule
from kitbag.permissions.rules.tool_use_syntax import arguments_from_subject, parse_tool_use
from kitbag.views.permissions import EFFECT_LABELS, describe_part, describe_sandbox, ignored_table, rule_table

_EXIT_BY_EFFECT = {"allow": 0, "ask": 1, "deny": 6}
_STYLES = {"allow": "green", "ask": "yellow", "deny": "red"}
# Commands in other modules, imported on use.
_LAZY_COMMANDS = {
    "run": ("kitbag.cli.permissions_run", "command"),
    "pending": ("kitbag.cli.permissions_pending", "pending"),
    "answer": ("kitbag.cli.permissions_pending", "answer"),
}


class _Group(CommandGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted((*self.commands, *_LAZY_COMMANDS))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _LAZY_COMMANDS:
            module, name = _LAZY_COMMANDS[cmd_name]
            return getattr(importlib.import_module(module), name)
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Group)
def command() -> None:
    """List rules, explain decisions, answer pending approvals, and run a command in the sandbox."""


EXIT_CODES = """\b
Exit codes:
  0   allow
  1   ask
  2   invalid command line
  6   deny
"""


@command.command(epilog=EXIT_CODES)
@click.argument("use")
@click.option(
    "--input",
    "given",
    metavar="JSON",
    help="Test with these arguments, if USE is only a tool name.",
    show_default="none",
)
@permission_options
@json_option
def test(use: str, given: str | None, as_json: bool, **options: Any) -> None:
    """Explain a decision without running anything.

    USE is a tool and its argument, such as `Bash(git log && id)`, `Edit(src/a.py)`, `WebFetch(https://example.com)`,
    `mcp__server__tool`; any other text is a Bash command.
    """
    tool, arguments = _parse_use(use, given)
    opened = open_permissions(**options)
    decision = opened.permissions.decide(tool, arguments)
    if as_json:
        output.as_json(_decision_json(tool, arguments, opened, decision))
    else:
        _print_decision(decision, opened)
    sys.exit(_EXIT_BY_EFFECT[decision.effect])


def _parse_use(use: str, json_input: str | None) -> tuple[str, dict[str, object]]:
    tool, subject = parse_tool_use(use)
    if json_input is None:
        return tool, {} if subject is None else arguments_from_subject(tool, subject)
    import json

    if subject is not None and tool == "Bash" and subject == use:
        tool, subject = use.strip(), None  # no known tool has this name
    if subject is not None:
        raise UsageError("--input needs a tool name without an argument", f"use: {tool} --input '...'")
    try:
        arguments: object = json.loads(json_input)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--input is not JSON: {error}", 'use an object such as \'{"command": "ls"}\'') from error
    if not isinstance(arguments, dict):
        raise UsageError("--input is not a JSON object", 'use an object such as \'{"command": "ls"}\'')
    return tool, arguments  # pyright: ignore[reportUnknownVariableType]


def _decision_json(
    tool: str, arguments: dict[str, object], opened: OpenedPermissions, decision: PermissionDecision
) -> dict[str, Any]:
    return {
        "tool": tool,
        "arguments": arguments,
        "mode": opened.loaded.mode,
        "mode_source": opened.loaded.mode_source,
        "effect": decision.effect,
        "reason": decision.reason,
        "parts": [part.to_json() for part in decision.parts],
        "sandbox": decision.sandbox,
        "network": decision.network,
        "protection": msgspec.structs.asdict(opened.permissions.sandbox_support),
        "trust": opened.trust,
        "diagnostics": [output.diagnostic_json(one) for one in opened.diagnostics],
    }


def _print_decision(decision: PermissionDecision, opened: OpenedPermissions) -> None:
    verdict = output.style(EFFECT_LABELS[decision.effect], _STYLES[decision.effect])
    output.echo(f"{verdict}: {output.clean(decision.reason)}")
    for part in decision.parts:
        mark = output.style(part.effect.ljust(5), _STYLES[part.effect])
        output.echo(f"  {mark}  {output.clean(part.what)}")
        output.echo(f"         {output.clean(describe_part(part))}")
    source = output.shorten_path(opened.loaded.mode_source)
    output.fields(
        (
            ("mode", f"{opened.loaded.mode} ({source})"),
            ("sandbox", describe_sandbox(decision, opened.permissions.sandbox_support)),
        )
    )
    _print_diagnostics(opened)


def _print_diagnostics(opened: OpenedPermissions) -> None:
    for diagnostic in opened.diagnostics:
        for line in output.diagnostic_lines(diagnostic, sys.stderr):
            output.remark(line)


@command.command("list")
@permission_options
@json_option
def list_(as_json: bool, **options: Any) -> None:
    """Show the permission mode and all rules.

    Shows where each rule comes from, whether its examples pass, and which entries of the settings are ignored and why.
    """
    opened = open_permissions(**options)
    loaded = opened.loaded
    if as_json:
        return output.as_json(
            {
                "mode": loaded.mode,
                "mode_source": loaded.mode_source,
                "modes": MODE_DESCRIPTIONS,
                "trust": opened.trust,
                "rules": [_rule_json(opened, rule) for rule in loaded.rules.all],
                "ignored": [msgspec.structs.asdict(one) for one in loaded.ignored],
                "protection": msgspec.structs.asdict(opened.permissions.sandbox_support),
                "diagnostics": [output.diagnostic_json(one) for one in opened.diagnostics],
            }
        )
    output.fields((("mode", f"{loaded.mode} ({output.shorten_path(loaded.mode_source)})"), ("workspace", opened.trust)))
    output.echo()
    output.table(("MODE", "WHAT IT MEANS"), [(mode, meaning) for mode, meaning in MODE_DESCRIPTIONS.items()])
    for table in (rule_table(loaded, loaded.rules.all), ignored_table(loaded)):
        if table.rows:
            output.echo()
            output.table(table.headers, table.rows)
    _print_diagnostics(opened)
    noun = output.format_count(len(loaded.rules.all), "rule")
    output.remark(output.style(f"{noun} · deny wins over ask, ask over allow", "dim", sys.stderr))
    return None


def _rule_json(opened: OpenedPermissions, rule: PermissionRule) -> dict[str, Any]:
    examples = opened.loaded.examples.get(rule)
    return {**rule.to_json(), "examples": examples._asdict() if examples else None}
