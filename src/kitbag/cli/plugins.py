"""`kitbag plugins`: installs from a local directory or archive, lists, enables, disables and removes plugins."""

from typing import Any

import click

from kitbag.cli import output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.library_options import json_option
from kitbag.library.plugins.installed import load_installed
from kitbag.library.plugins.manifest import Plugin
from kitbag.library.scopes import find_places


@click.group(cls=CommandGroup)
def command() -> None:
    """Install, list, enable, disable and remove plugins."""


def _home() -> str:
    return find_places().kitbag_home


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List installed plugins and what each contains."""
    plugins, diagnostics = load_installed(_home())
    if as_json:
        return output.as_json([plugin.to_json() for plugin in plugins])
    output.table(
        ("NAME", "VERSION", "ENABLED", "NOT RUN", "DESCRIPTION"),
        [
            (p.name, p.version, "yes" if p.enabled else "no", ", ".join(p.brings), p.description or p.display_name)
            for p in plugins
        ],
    )
    output.footer("plugin", len(plugins), 0, sum(d.severity != "info" for d in diagnostics))
    return None


@command.command()
@click.argument("source", metavar="DIRECTORY_OR_ARCHIVE")
@click.option("--plugin", metavar="NAME", help="Install this plugin from a marketplace.", show_default="the only one")
@click.option("--update", is_flag=True, help="Replace the installed version.")
@json_option
def install(source: str, plugin: str | None, update: bool, as_json: bool) -> None:
    """Install a plugin from a directory, .zip or .tar(.gz, .bz2, .xz) without running any of it."""
    from kitbag.library.plugins.store import install_plugin as install_plugin

    result = install_plugin(source, _home(), plugin=plugin, update=update)
    changed = [{"sign": change.sign, "path": change.path} for change in result.changed]
    if as_json:
        problems = [output.diagnostic_json(d) for d in result.diagnostics]
        return output.as_json(
            {**result.plugin.to_json(), "updated": result.updated, "changed": changed, "problems": problems}
        )
    done = "updated" if result.updated else "installed"
    name = output.clean(result.plugin.name)
    output.echo(
        f"{done} {name} {output.clean(result.plugin.version)}".rstrip() + f": {_describe_contents(result.plugin)}"
    )
    if result.plugin.brings:
        output.echo(f"  it also contains {', '.join(result.plugin.brings)}, which Kitbag does not run")
    for diagnostic in result.diagnostics:
        for line in output.diagnostic_lines(diagnostic):
            output.remark(line)
    if changed and not result.plugin.enabled:
        output.echo("  disabled until you review these changed capabilities:")
        for change in changed:
            output.echo(f"    {change['sign']} {output.clean(str(change['path']))}")
        output.echo(f"  kitbag plugins enable {name} --accept-changes")
    elif not result.plugin.enabled:
        output.echo(f"  disabled; to enable it: kitbag plugins enable {name}")
    return None


def _describe_contents(plugin: Plugin) -> str:
    """`2 skills, 1 agent`, counted as they will be listed."""
    from kitbag.library.agents import read_agent
    from kitbag.library.index import scan_with_cache
    from kitbag.library.item_files import find_agent_files
    from kitbag.library.plugins.installed import plugin_roots

    counts = {"skill": 0, "agent": 0, "command": 0}
    for root in plugin_roots(plugin, (0, 0)):
        if root.kind == "agents":
            counts["agent"] += sum(read_agent(path, root)[0] is not None for path in find_agent_files(root, []))
        else:
            for skill in scan_with_cache(root, None).scan.skills:
                counts[skill.kind] += 1
    return (
        ", ".join(output.format_count(number, noun) for noun, number in counts.items() if number)
        or "nothing that Kitbag uses"
    )


@command.command()
@click.argument("name")
@click.option("--accept-changes", is_flag=True, help="Accept the changes since the plugin was installed.")
@json_option
def enable(name: str, accept_changes: bool, as_json: bool) -> None:
    """Enable a plugin's skills, agents and commands."""
    from kitbag.library.plugins.store import set_plugin_enabled

    _print_state(set_plugin_enabled(_home(), name, True, accept=accept_changes), "enabled", as_json)


@command.command()
@click.argument("name")
@json_option
def disable(name: str, as_json: bool) -> None:
    """Disable a plugin without removing it."""
    from kitbag.library.plugins.store import set_plugin_enabled

    _print_state(set_plugin_enabled(_home(), name, False), "disabled", as_json)


@command.command()
@click.argument("name")
@json_option
def remove(name: str, as_json: bool) -> None:
    """Remove a plugin."""
    from kitbag.library.plugins.store import remove_plugin as remove_plugin

    remove_plugin(_home(), name)
    if as_json:
        return output.as_json({"name": name, "removed": True})
    return output.echo(f"removed {output.clean(name)}")


def _print_state(plugin: Plugin, done: str, as_json: bool) -> Any:
    return output.as_json(plugin.to_json()) if as_json else output.echo(f"{done} {output.clean(plugin.name)}")
