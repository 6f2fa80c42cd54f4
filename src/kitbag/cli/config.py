"""`kitbag config`: lists settings with their sources, sets and unsets them."""

import os
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from kitbag.cli import output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.library_options import json_option, project_option
from kitbag.errors import KitbagError, NotFoundError, UsageError
from kitbag.library.scopes import find_places
from kitbag.settings import (
    PERMISSION_KEYS,
    SETTINGS,
    STATE_GROUPS,
    VARIABLES_GROUP,
    Settings,
    SourcedValue,
    load_settings,
    parse_value,
    write_setting,
)
from kitbag.store.database_url import hide_password

if TYPE_CHECKING:
    from kitbag.permissions.model import Effect


@click.group(cls=CommandGroup)
def command() -> None:
    """Read and change settings."""


def _load() -> Settings:
    places = find_places()
    return load_settings(places.kitbag_home, places.project_dirs)


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List all settings with their values and sources."""
    settings = _load()
    rows = _rows(settings)
    if as_json:
        return _print_json(rows)
    output.table(
        ("KEY", "VALUE", "SOURCE", "MEANING"),
        [
            (row.key, _format_value(row.setting.value), output.shorten_path(row.setting.source), row.meaning)
            for row in rows
        ],
    )
    for diagnostic in settings.diagnostics:
        for line in output.diagnostic_lines(diagnostic):
            output.remark(line)
    return None


@command.command()
@click.argument("key", required=False)
@json_option
@click.pass_context
def get(context: click.Context, key: str | None, as_json: bool) -> None:
    """Print the value of one setting. Without KEY, list all."""
    if key is None:
        return context.invoke(list_, as_json=as_json)
    settings = _load()
    found = [row for row in _rows(settings) if row.key.lower() == key.lower()]
    if not found and key.partition(".")[0] in STATE_GROUPS and "." in key:
        found = [_SettingRow(key, SourcedValue("on", "default"), "state")]
    if not found:
        settings.get_sourced(key)  # raises with close matches
    return _print_json(found) if as_json else output.echo(output.clean(_format_value(found[0].setting.value)))


class _SettingRow(NamedTuple):
    key: str
    setting: SourcedValue
    meaning: str


def _rows(settings: Settings) -> list[_SettingRow]:
    rows = [_SettingRow(one.key, _without_password(settings.get_sourced(one.key)), one.description) for one in SETTINGS]
    for group in STATE_GROUPS:
        rows += [
            _SettingRow(f"{group}.{name}", state, "state") for name, state in sorted(settings.states(group).items())
        ]
    variables = sorted(settings.sourced_variables().items())
    return rows + [_SettingRow(f"{VARIABLES_GROUP}.{name}", value, "a value") for name, value in variables]


def _without_password(setting: SourcedValue) -> SourcedValue:
    value = setting.value
    return setting._replace(value=hide_password(value)) if isinstance(value, str) and "://" in value else setting


def _print_json(rows: list[_SettingRow]) -> None:
    output.as_json(
        [
            {"key": row.key, "value": row.setting.value, "source": row.setting.source, "meaning": row.meaning}
            for row in rows
        ]
    )


@command.command("set")
@click.argument("key")
@click.argument("value")
@project_option
@json_option
def set_(key: str, value: str, project: bool, as_json: bool) -> None:
    """Change one setting and leave the rest of the file unchanged."""
    parsed = parse_value(key, value)
    if key in PERMISSION_KEYS[1:]:
        _check_rules(key, parsed)
    allowed = {setting.key for setting in SETTINGS if setting.project_may_set}
    if project and key not in allowed and key.partition(".")[0] not in (*STATE_GROUPS, VARIABLES_GROUP):
        raise UsageError(f"`{key}` is a user setting and can't be set for a project", "remove --project")
    path = _settings_file(project=project)
    write_setting(path, key, parsed)
    warnings = _check_persona(key, str(parsed)) if key in ("team", "persona") and parsed else []
    parsed = _without_password(SourcedValue(parsed, path)).value
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


@command.command()
@click.argument("key")
@project_option
@json_option
def unset(key: str, project: bool, as_json: bool) -> None:
    """Remove one setting from your settings, so that its default or the project's value applies."""
    path = _settings_file(project=project)
    if not write_setting(path, key, None):
        known = {row.key: row.setting.source for row in _rows(_load())}
        if key not in known and key.partition(".")[0] not in (*STATE_GROUPS, VARIABLES_GROUP):
            _load().get_sourced(key)  # raises with close matches
        source = known.get(key, "default")
        fix = f"it is set in {output.shorten_path(source)}" if os.path.isabs(source) else "its default applies"
        raise NotFoundError(f"`{key}` is not set in {output.shorten_path(path)}", fix)
    now = next((row.setting for row in _rows(_load()) if row.key == key), None)
    if as_json:
        return output.as_json({"key": key, "file": path, "value": now.value if now is not None else None})
    value = _format_value(now.value) or "empty" if now is not None else ""
    effective = f"; now {value} ({output.shorten_path(now.source)})" if now is not None else ""
    return output.echo(output.clean(f"removed {key} from {output.shorten_path(path)}{effective}"))


def _settings_file(*, project: bool) -> str:
    places = find_places()
    return os.path.join(os.path.join(places.project, ".kitbag") if project else places.kitbag_home, "settings.toml")


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
        ("WHAT", "EXISTS", "PATH"),
        [(what, "yes" if os.path.exists(path) else "no", path) for what, path in rows],
    )
