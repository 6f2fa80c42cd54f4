"""What to install out of a directory: the plugin it is, or one that its marketplace file lists.

Used by plugin_store. Only plugins that lie inside the marketplace are chosen; nothing is fetched.
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
    read_json,
    wrong_with_plugin_name,
)
from kitbag.library.plugins.safe_copy import cannot_write
from kitbag.text.hidden_characters import for_terminal, one_line
from kitbag.text.source_files import boundary_of

_NOT_OF_THE_PLUGIN = frozenset(("source", "category", "tags", "relevance"))


class Choice(NamedTuple):
    tree: str
    """The plugin's directory."""
    listed: str
    """Its name in the marketplace; empty when it was not chosen from one."""
    manifest: dict[str, object] | None
    """What the marketplace says about it, to be written into its manifest."""


def choose(tree: str, plugin: str | None) -> Choice:
    market = os.path.join(tree, MARKETPLACE)
    own = os.path.lexists(os.path.join(tree, MANIFEST))
    if not os.path.lexists(market):
        if plugin is not None:
            raise UsageError(f"{tree} is not a marketplace, so there is no plugin to choose", "leave the name out")
        return Choice(tree, "", None)
    if own and plugin is None:
        return Choice(tree, "", None)
    value, _, problems = read_json(market, boundary_of(tree))
    if problems:
        raise InvalidError(f"{problems[0].place}: {problems[0].problem}", problems[0].fix)
    entries = [as_map(entry) for entry in as_list(as_map(value).get("plugins"))]
    names = sorted(_shown(entry.get("name")) for entry in entries if isinstance(entry.get("name"), str))
    listed = ", ".join(names[:50]) + (f" and {len(names) - 50} more" if len(names) > 50 else "") or "none"
    if plugin is None:
        raise UsageError(f"a marketplace, and it is not said which plugin is wanted; it has: {listed}", "choose one")
    found = [entry for entry in entries if entry.get("name") == plugin]
    if not found:
        raise NotFoundError(
            f"the marketplace has no plugin {_shown(plugin)!r}; it has: {listed}", "choose one of these"
        )
    return _chosen(tree, plugin, found[0], as_map(as_map(value).get("metadata")).get("pluginRoot"))


def describes_plugin(manifest: dict[str, object] | None) -> bool:
    """Whether an entry says what the plugin consists of: it needs no manifest of its own then."""
    return any((manifest or {}).get(key) for key in COMPONENTS)


def _chosen(tree: str, name: str, entry: dict[str, object], base: object) -> Choice:
    problem = wrong_with_plugin_name(name)
    if problem:
        raise InvalidError(f"{_shown(name)!r}: {problem}", "ask the marketplace's owner for another name")
    source = _below(entry.get("source"), base)
    if not isinstance(source, str) or not (source == "." or source.startswith("./")):
        kind = as_map(source).get("source", source)
        problem = f"{name} comes from elsewhere ({_shown(kind)!r}); only local sources are installed"
        raise UsageError(problem, "download it, and install it from its directory")
    top = os.path.realpath(tree)
    try:
        path = os.path.realpath(os.path.join(top, source))
    except ValueError:
        path = ""
    if path != top and not path.startswith(top.rstrip("/") + "/"):
        raise InvalidError(f"{name}: its source {_shown(source)!r} leads out of the marketplace", "correct the source")
    if not os.path.isdir(path):
        raise InvalidError(f"{name}: its source {_shown(source)!r} is not a directory", "correct the source")
    manifest = {key: value for key, value in entry.items() if key not in _NOT_OF_THE_PLUGIN}
    return Choice(path, name, manifest)


def _below(source: object, base: object) -> object:
    """With `metadata.pluginRoot` a source may be a bare name: a folder below it. Elsewhere that is a package."""
    if not isinstance(base, str) or not base.strip() or not isinstance(source, str):
        return source
    if not source or source[0] in "./" or ":" in source:
        return source
    return f"./{base.removeprefix('./').strip('/')}/{source}"


def write_manifest(staged: str, choice: Choice) -> None:
    """The plugin's own manifest wins, unless the marketplace says otherwise (`strict` is false)."""
    import json

    path = os.path.join(staged, MANIFEST)
    own: dict[str, object] = {}
    if os.path.lexists(path):
        value, _, problems = read_json(path, boundary_of(staged))
        if problems:
            return
        own = as_map(value)
    listed = choice.manifest or {}
    merged = {**own, **listed} if listed.get("strict") is False else {**listed, **own}
    if merged == own:
        return
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(merged, file, indent=1, sort_keys=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def _shown(value: object) -> str:
    return for_terminal(one_line(str(value)[:80]))
