"""Selects the plugin to install from a directory: the directory itself, or a plugin its marketplace file lists.

Used by store; uses manifest. Only plugins inside the marketplace can be selected; nothing is fetched.
"""

import os
from typing import NamedTuple

from kitbag.errors import InvalidError, NotFoundError, UsageError
from kitbag.library.plugins.manifest import (
    COMPONENTS,
    MANIFEST,
    MARKETPLACE,
    as_list,
    as_map,
    plugin_name_problem,
    read_json_file,
)
from kitbag.library.plugins.safe_copy import write_error
from kitbag.text.hidden_characters import collapse_whitespace, escape_for_terminal
from kitbag.text.source_files import directory_boundary

_MARKETPLACE_KEYS = frozenset(("source", "category", "tags", "relevance"))


class PluginSource(NamedTuple):
    tree: str
    """The plugin's directory."""
    listed_name: str
    """Its name in the marketplace; empty without one."""
    manifest: dict[str, object] | None
    """The marketplace entry, to be merged into its manifest."""


def choose_plugin(tree: str, plugin: str | None) -> PluginSource:
    market = os.path.join(tree, MARKETPLACE)
    has_manifest = os.path.lexists(os.path.join(tree, MANIFEST))
    if not os.path.lexists(market):
        if plugin is not None:
            raise UsageError(f"{tree} is not a marketplace; it has no plugins to choose from", "omit the plugin name")
        return PluginSource(tree, "", None)
    if has_manifest and plugin is None:
        return PluginSource(tree, "", None)
    value, _, problems = read_json_file(market, directory_boundary(tree))
    if problems:
        raise InvalidError(f"{problems[0].place}: {problems[0].problem}", problems[0].fix)
    entries = [as_map(entry) for entry in as_list(as_map(value).get("plugins"))]
    names = sorted(_sanitize(entry.get("name")) for entry in entries if isinstance(entry.get("name"), str))
    listed = ", ".join(names[:50]) + (f" and {len(names) - 50} more" if len(names) > 50 else "") or "none"
    if plugin is None:
        raise UsageError(f"no plugin selected from the marketplace; available plugins: {listed}", "choose one")
    matches = [entry for entry in entries if entry.get("name") == plugin]
    if not matches:
        raise NotFoundError(
            f"no plugin named {_sanitize(plugin)!r} in the marketplace; available plugins: {listed}",
            "choose one of these",
        )
    return _read_entry(tree, plugin, matches[0], as_map(as_map(value).get("metadata")).get("pluginRoot"))


def lists_components(manifest: dict[str, object] | None) -> bool:
    """Whether an entry lists the plugin's components: then it needs no manifest of its own."""
    return any((manifest or {}).get(key) for key in COMPONENTS)


def _read_entry(tree: str, name: str, entry: dict[str, object], base: object) -> PluginSource:
    problem = plugin_name_problem(name)
    if problem:
        raise InvalidError(f"{_sanitize(name)!r}: {problem}", "ask the marketplace's owner to rename it")
    source = _resolve_source(entry.get("source"), base)
    if not isinstance(source, str) or not (source == "." or source.startswith("./")):
        kind = as_map(source).get("source", source)
        problem = f"{name} has a remote source ({_sanitize(kind)!r}); only local sources are supported"
        raise UsageError(problem, "download it, and install it from the local directory")
    top = os.path.realpath(tree)
    try:
        path = os.path.realpath(os.path.join(top, source))
    except ValueError:
        path = ""
    if path != top and not path.startswith(top.rstrip("/") + "/"):
        raise InvalidError(f"{name}: source {_sanitize(source)!r} is outside the marketplace", "fix the source")
    if not os.path.isdir(path):
        raise InvalidError(f"{name}: source {_sanitize(source)!r} is not a directory", "fix the source")
    manifest = {key: value for key, value in entry.items() if key not in _MARKETPLACE_KEYS}
    return PluginSource(path, name, manifest)


def _resolve_source(source: object, base: object) -> object:
    """With `metadata.pluginRoot`, a bare name is a folder below it. Otherwise a bare name is a package."""
    if not isinstance(base, str) or not base.strip() or not isinstance(source, str):
        return source
    if not source or source[0] in "./" or ":" in source:
        return source
    return f"./{base.removeprefix('./').strip('/')}/{source}"


def write_manifest(staged: str, source: PluginSource) -> None:
    """The plugin's own manifest wins, unless the entry has `strict: false`."""
    import json

    path = os.path.join(staged, MANIFEST)
    own: dict[str, object] = {}
    if os.path.lexists(path):
        value, _, problems = read_json_file(path, directory_boundary(staged))
        if problems:
            return
        own = as_map(value)
    listed = source.manifest or {}
    merged = {**own, **listed} if listed.get("strict") is False else {**listed, **own}
    if merged == own:
        return
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(merged, file, indent=1, sort_keys=True)
    except OSError as error:
        raise write_error(path, error) from error


def _sanitize(value: object) -> str:
    return escape_for_terminal(collapse_whitespace(str(value)[:80]))
