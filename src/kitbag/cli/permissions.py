"""`kitbag permissions ...`: the rules in force, and what would be decided and why. Nothing here runs what it judges."""

import importlib
import sys
from typing import Any

import click

from kitbag.cli import output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.library_options import json_option
from kitbag.cli.permission_options import Opened, open_permissions, permission_options
from kitbag.errors import UsageError
from kitbag.library.dialects.permission_modes import MEANINGS
from kitbag.permissions.model import Judgement
from kitbag.permissions.rules.rule import Rule
from kitbag.permissions.rules.tool_use_syntax import arguments_for, read_use
from kitbag.views.permissions import VERDICTS, examples_in_words, sandbox_in_words

_EXITS = {"allow": 0, "ask": 1, "deny": 6}
_STYLES = {"allow": "green", "ask": "yellow", "deny": "red"}
# Commands of other modules, which are imported when they are used.
_ELSEWHERE = {
    "run": ("kitbag.cli.permissions_run", "command"),
    "pending": ("kitbag.cli.permissions_pending", "pending"),
    "answer": ("kitbag.cli.permissions_pending", "answer"),
}


class _Group(CommandGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted((*self.commands, *_ELSEWHERE))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _ELSEWHERE:
            module, name = _ELSEWHERE[cmd_name]
            return getattr(importlib.import_module(module), name)
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Group)
def command() -> None:
    """List the rules, explain a decision, try a command in the sandbox."""


EXIT_CODES = """\b
Exit codes:
  0   it would be allowed
  1   it would be asked
  2   the command line is wrong
  6   it would be denied
"""


@command.command(epilog=EXIT_CODES)
@click.argument("use")
@click.option("--input", "given", metavar="JSON", help="The arguments of the tool, when USE is only its name.")
@permission_options
@json_option
def test(use: str, given: str | None, as_json: bool, **options: Any) -> None:
    """Explain a decision; nothing is run.

    USE is a tool and what it is used on, such as `Bash(git log && id)`, `Edit(src/a.py)`, `WebFetch(https://example.com)`,
    `mcp__server__tool`; any other text is a command for Bash.
    """
    tool, arguments = _read(use, given)
    opened = open_permissions(**options)
    judgement = opened.permissions.decide(tool, arguments)
    if as_json:
        output.as_json(_as_json(tool, arguments, opened, judgement))
    else:
        _show(judgement, opened)
    sys.exit(_EXITS[judgement.effect])


def _read(use: str, given: str | None) -> tuple[str, dict[str, object]]:
    tool, subject = read_use(use)
    if given is None:
        return tool, {} if subject is None else arguments_for(tool, subject)
    import json

    if subject is not None and tool == "Bash" and subject == use:
        tool, subject = use.strip(), None  # a name that no tool here has
    if subject is not None:
        raise UsageError("--input goes with the name of a tool alone", f"write: {tool} --input '...'")
    try:
        arguments: object = json.loads(given)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--input is not JSON: {error}", 'write an object, such as \'{"command": "ls"}\'') from error
    if not isinstance(arguments, dict):
        raise UsageError("--input is not a JSON object", 'write an object, such as \'{"command": "ls"}\'')
    return tool, arguments  # pyright: ignore[reportUnknownVariableType]


def _as_json(tool: str, arguments: dict[str, object], opened: Opened, judgement: Judgement) -> dict[str, Any]:
    return {
        "tool": tool,
        "arguments": arguments,
        "mode": opened.loaded.mode,
        "mode_source": opened.loaded.mode_source,
        "effect": judgement.effect,
        "reason": judgement.reason,
        "parts": [part._asdict() for part in judgement.parts],
        "sandbox": judgement.sandbox,
        "network": judgement.network,
        "protection": opened.permissions.protection._asdict(),
        "trust": opened.trust,
        "diagnostics": [output.diagnostic_json(one) for one in opened.diagnostics],
    }


def _show(judgement: Judgement, opened: Opened) -> None:
    verdict = output.style(VERDICTS[judgement.effect], _STYLES[judgement.effect])
    output.echo(f"{verdict}: {output.clean(judgement.reason)}")
    for part in judgement.parts:
        mark = output.style(part.effect.ljust(5), _STYLES[part.effect])
        output.echo(f"  {mark}  {output.clean(part.what)}")
        rule = f" `{part.rule}` ({output.short_path(part.source)})" if part.rule else ""
        output.echo(f"         {output.clean(part.reason + rule)}")
    source = output.short_path(opened.loaded.mode_source)
    output.fields(
        (
            ("mode", f"{opened.loaded.mode} ({source})"),
            ("sandbox", sandbox_in_words(judgement, opened.permissions.protection)),
        )
    )
    _show_problems(opened)


def _show_problems(opened: Opened) -> None:
    for diagnostic in opened.diagnostics:
        for line in output.diagnostic_lines(diagnostic, sys.stderr):
            output.remark(line)


@command.command("list")
@permission_options
@json_option
def list_(as_json: bool, **options: Any) -> None:
    """Show the mode and all rules.

    With where each comes from, whether its examples hold, and what in the settings does not count, and why.
    """
    opened = open_permissions(**options)
    loaded = opened.loaded
    if as_json:
        return output.as_json(
            {
                "mode": loaded.mode,
                "mode_source": loaded.mode_source,
                "modes": MEANINGS,
                "trust": opened.trust,
                "rules": [_rule_json(opened, rule) for rule in loaded.rules.all],
                "ignored": [one._asdict() for one in loaded.ignored],
                "protection": opened.permissions.protection._asdict(),
                "diagnostics": [output.diagnostic_json(one) for one in opened.diagnostics],
            }
        )
    output.fields((("mode", f"{loaded.mode} ({output.short_path(loaded.mode_source)})"), ("workspace", opened.trust)))
    output.echo()
    output.table(("MODE", "WHAT IT MEANS"), [(mode, meaning) for mode, meaning in MEANINGS.items()])
    if loaded.rules.all:
        output.echo()
        output.table(
            ("EFFECT", "RULE", "SCOPE", "EXAMPLES", "SOURCE"), [_row(opened, rule) for rule in loaded.rules.all]
        )
    if loaded.ignored:
        output.echo()
        rows = [(one.setting, one.value, output.short_path(one.source), one.why) for one in loaded.ignored]
        output.table(("IGNORED", "VALUE", "SOURCE", "WHY"), rows)
    _show_problems(opened)
    noun = output.count(len(loaded.rules.all), "rule")
    output.remark(output.style(f"{noun} · deny before ask before allow", "dim", sys.stderr))
    return None


def _row(opened: Opened, rule: Rule) -> tuple[str, ...]:
    examples = examples_in_words(opened.loaded, rule)
    return rule.effect, rule.text, rule.scope, examples, output.short_path(rule.source)


def _rule_json(opened: Opened, rule: Rule) -> dict[str, Any]:
    examples = opened.loaded.examples.get(rule)
    return {**rule._asdict(), "examples": examples._asdict() if examples else None}
