"""`kitbag config`: shows settings with their sources, and changes them."""

import os
from typing import TYPE_CHECKING, Any, cast

import click

from kitbag.cli import output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.library_options import json_option, project_option
from kitbag.errors import KitbagError, UsageError
from kitbag.library.scopes import find_places
from kitbag.settings import (
    PERMISSION_KEYS,
    SETTINGS,
    STATE_GROUPS,
    VARIABLES_GROUP,
    Settings,
    load_settings,
    parse_value,
    write_setting,
)

if TYPE_CHECKING:
    from kitbag.permissions.model import Effect


@click.group(cls=CommandGroup)
def command() -> None:
    """Read and change settings."""


def _load() -> Settings:
    places = find_places()
    return load_settings(places.kitbag_home, places.project_dirs)


@command.command()
@click.argument("key", required=False)
@json_option
def get(key: str | None, as_json: bool) -> None:
    """Print all settings with their sources, or the value of one setting."""
    settings = _load()
    rows = [(s.key, settings.get_sourced(s.key), s.description) for s in SETTINGS]
    for group in STATE_GROUPS:
        rows += [(f"{group}.{name}", state, "state") for name, state in sorted(settings.states(group).items())]
    rows += [
        (f"{VARIABLES_GROUP}.{name}", value, "a value") for name, value in sorted(settings.sourced_variables().items())
    ]
    if key is not None:
        matching = [row for row in rows if row[0].lower() == key.lower()]
        if not matching and key.partition(".")[0] in STATE_GROUPS and "." in key:
            matching = [(key, settings.get_sourced("team")._replace(value="on", source="default"), "state")]
        if not matching:
            settings.get_sourced(key)  # raises with close matches
        rows = matching
    if as_json:
        return output.as_json([{"key": k, "value": s.value, "source": s.source, "meaning": m} for k, s, m in rows])
    if key is not None:
        return output.echo(output.clean(_format_value(rows[0][1].value)))
    output.table(
        ("KEY", "VALUE", "SOURCE", "MEANING"),
        [(k, _format_value(s.value), output.shorten_path(s.source), m) for k, s, m in rows],
    )
    for diagnostic in settings.diagnostics:
        for line in output.diagnostic_lines(diagnostic):
            output.remark(line)
    return None


@command.command("set")
@click.argument("key")
@click.argument("value")
@project_option
@json_option
def set_(key: str, value: str, project: bool, as_json: bool) -> None:
    """Change one setting and leave the rest of the file unchanged."""
    places = find_places()
    parsed = parse_value(key, value)
    if key in PERMISSION_KEYS[1:]:
        _check_rules(key, parsed)
    allowed = {setting.key for setting in SETTINGS if setting.project_may_set}
    if project and key not in allowed and key.partition(".")[0] not in (*STATE_GROUPS, VARIABLES_GROUP):
        raise UsageError(f"`{key}` is a user setting and can't be set for a project", "remove --project")
    base = os.path.join(places.project, ".kitbag") if project else places.kitbag_home
    path = os.path.join(base, "settings.toml")
    write_setting(path, key, parsed)
    warnings = _check_persona(key, str(parsed)) if key in ("team", "persona") and parsed else []
    if as_json:
        return output.as_json({"key": key, "value": parsed, "file": path, "warnings": warnings})
    for warning in warnings:
        output.remark(output.clean(f"warning: {warning}"))
    return output.echo(f"{output.clean(key)} = {output.clean(_format_value(parsed))} ({output.shorten_path(path)})")


def _check_persona(key: str, value: str) -> list[str]:
    """A team or persona that does not exist here. It is set all the same: another project may have it."""
    from kitbag.library.registry import Registry

    settings = _load()
    team, persona = (value if name == key else str(settings.get(name)) for name in ("team", "persona"))
    try:
        _ = Registry(find_places(), team=team, persona=persona).persona
    except KitbagError as error:
        return [f"{error.problem}; {error.fix}" if error.fix else error.problem]
    return []


def _format_value(value: Any) -> str:
    """Formats a list the way a user writes it."""
    if not isinstance(value, list):
        return str(value)
    return ", ".join(str(_rule_text(one)) for one in cast("list[object]", value))


def _rule_text(entry: object) -> object:
    """A rule may be a table with examples."""
    return cast("dict[str, object]", entry).get("rule") if isinstance(entry, dict) else entry


def _check_rules(key: str, rules: list[object]) -> None:
    """Raises UsageError: an invalid rule is better reported now than when it is used."""
    from kitbag.permissions.rules.rule import parse_rules

    effect = cast("Effect", key.rpartition(".")[2])
    for entry in rules:
        text = _rule_text(entry)
        parse_rules(text if isinstance(text, str) else "", effect, "", "user", "/")


@command.command()
@json_option
def where(as_json: bool) -> None:
    """Print the paths of settings files and of Kitbag's directories."""
    places = find_places()
    settings = _load()
    rows = [("user settings", settings.user_file)]
    rows += [("project settings", path) for path in settings.project_files]
    rows += [
        ("home", places.kitbag_home),
        ("plugins", os.path.join(places.kitbag_home, "plugins")),
        ("cache", os.path.join(places.kitbag_home, "cache")),
    ]
    if as_json:
        return output.as_json([{"what": what, "path": path, "exists": os.path.exists(path)} for what, path in rows])
    return output.table(
        ("WHAT", "THERE", "PATH"),
        [(what, "yes" if os.path.exists(path) else "no", path) for what, path in rows],
    )
