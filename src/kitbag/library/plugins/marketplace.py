"""Selects the plugin to install from a directory: the directory itself, or a plugin its marketplace file lists.

Used by store; uses manifest. Only plugins inside the marketplace can be selected; nothing is fetched.
"""

import os
import re
import shlex
from typing import NamedTuple

from kitbag.errors import InvalidError, NotFoundError, UsageError
from kitbag.library.plugins.manifest import (
    COMPONENTS,
    GEMINI_MANIFEST,
    MANIFEST,
    MARKETPLACES,
    as_list,
    as_map,
    component_names,
    find_manifest,
    plugin_name_problem,
    read_json_file,
)
from kitbag.library.plugins.safe_copy import PackageWriter, copy_tree, path_problem, write_error
from kitbag.text.hidden_characters import collapse_whitespace, escape_for_terminal
from kitbag.text.source_files import directory_boundary

_GITHUB_REPOSITORY = re.compile(r"https://(?:www\.)?github\.com/[\w.-]+/[\w.-]+/?")
_OWNER_AND_REPOSITORY = re.compile(r"[A-Za-z0-9][\w-]*/[\w.-]+")
_MARKETPLACE_KEYS = frozenset(("source", "category", "tags", "relevance"))


class PluginSource(NamedTuple):
    tree: str
    """The plugin's directory."""
    listed_name: str
    """Its name in the marketplace; empty without one."""
    manifest: dict[str, object] | None
    """The marketplace entry, to be merged into its manifest."""


def choose_plugin(tree: str, plugin: str | None) -> PluginSource:
    market = _find_marketplace(tree)
    if not market:
        if plugin is not None:
            raise UsageError(f"{tree} is not a marketplace; it has no plugins to choose from", "omit --plugin")
        return PluginSource(tree, "", None)
    if plugin is None and find_manifest(tree) not in ("", GEMINI_MANIFEST):
        return PluginSource(tree, "", None)
    value, _, problems = read_json_file(market, directory_boundary(tree))
    if problems:
        raise InvalidError(f"{problems[0].place}: {problems[0].problem}", problems[0].fix)
    entries = [as_map(entry) for entry in as_list(as_map(value).get("plugins"))]
    names = sorted({_sanitize(entry.get("name")) for entry in entries if isinstance(entry.get("name"), str)})
    listed = ", ".join(names[:50]) + (f" and {len(names) - 50} more" if len(names) > 50 else "") or "none"
    if plugin is None and len(entries) == 1 and isinstance(entries[0].get("name"), str):
        plugin = str(entries[0]["name"])
    if not entries:
        raise InvalidError(f"{market}: the marketplace lists no plugins", "specify the directory of a plugin")
    if plugin is None:
        problem = f"no plugin selected from the marketplace; available plugins: {listed}"
        raise UsageError(problem, "choose one with --plugin NAME")
    matches = [entry for entry in entries if entry.get("name") == plugin]
    if not matches:
        similar = [entry for entry in entries if str(entry.get("name", "")).casefold() == plugin.casefold()]
        if len(similar) == 1:
            matches, plugin = similar, str(similar[0]["name"])
    if not matches:
        raise NotFoundError(
            f"no plugin named {_sanitize(plugin)!r} in the marketplace; available plugins: {listed}",
            "choose one of these with --plugin NAME",
        )
    return _read_entry(tree, plugin, matches[0], as_map(as_map(value).get("metadata")).get("pluginRoot"))


def lists_components(manifest: dict[str, object] | None) -> bool:
    """Whether an entry lists the plugin's components: then it needs no manifest of its own."""
    return any((manifest or {}).get(key) for key in COMPONENTS)


def _read_entry(tree: str, name: str, entry: dict[str, object], base: object) -> PluginSource:
    problem = plugin_name_problem(name)
    if problem:
        raise InvalidError(f"{_sanitize(name)!r}: {problem}", "ask the marketplace's owner to rename it")
    source = _resolve_source(entry.get("source"), base, tree)
    if not source:
        raise InvalidError(f"{name} has no `source` in the marketplace", "ask the marketplace's owner to add it")
    if not isinstance(source, str) and source != as_map(source):
        raise InvalidError(f"{name}: `source` must be a text or an object", "ask the marketplace's owner to fix it")
    if isinstance(source, str) and source[0] not in "./@" and ":" not in source:
        fix = "ask the marketplace's owner to fix it"
        if _OWNER_AND_REPOSITORY.fullmatch(source):
            fix = f"if it is a repository on GitHub, {download_fix(f'github:{source}')}"
        problem = f"{name}: source {_sanitize(source)!r} is neither a directory of the marketplace nor a URL"
        raise InvalidError(problem, fix)
    if not isinstance(source, str) or source[0] not in "./":
        problem = f"{name} has a remote source, {source_url(source)}; only local sources are supported"
        raise UsageError(problem, download_fix(source))
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


class _RemoteSource(NamedTuple):
    url: str
    folder: str
    revision: str


def _read_remote(source: object) -> _RemoteSource:
    fields = as_map(source)
    if isinstance(source, str):
        kind, _, rest = source.partition(":")
        fields = {"source": kind, "repo": rest, "package": rest} if kind in ("github", "npm") else {"url": source}
    kind, package = fields.get("source"), fields.get("package")
    repo = next(filter(None, map(fields.get, ("repo", "repository", "github"))), None)
    url = fields.get("url") or repo or kind or source
    is_named = kind is None and isinstance(repo, str) and _OWNER_AND_REPOSITORY.fullmatch(repo)
    if repo and (kind == "github" or is_named):
        url = f"https://github.com/{repo}"
    elif package:
        url = f"{kind}:{package}"
    folder, revision = fields.get("path"), fields.get("ref") or fields.get("commit") or fields.get("sha")
    return _RemoteSource(str(url), str(folder or ""), str(revision or ""))


def source_url(source: object) -> str:
    """Where a remote source is, as a URL if it has one; safe to print."""
    url, folder, revision = _read_remote(source)
    more = [f"{label} {value}" for label, value in (("directory", folder), ("revision", revision)) if value]
    return _sanitize(url, 300) + (f" ({_sanitize(', '.join(more), 200)})" if more else "")


def download_fix(source: object) -> str:
    """How to install a remote source: the commands that fetch it, and the one that installs it."""
    url, folder, revision = _read_remote(source)
    package = url.removeprefix("npm:")
    if package != url:
        return f"run: npm pack {_quote(package)}, then: kitbag plugins install ARCHIVE.tgz"
    is_git = url.startswith(("git@", "ssh://")) or (url.startswith("https://") and url.endswith(".git"))
    if not is_git and not _GITHUB_REPOSITORY.fullmatch(url):
        return f"download {_sanitize(url, 300)}, then run: kitbag plugins install DIRECTORY_OR_ARCHIVE"
    name = url.rstrip("/").replace(":", "/").rpartition("/")[2].removesuffix(".git")
    steps = [f"git clone {_quote(url)}"]
    if revision:
        steps.append(f"git -C {_quote(name)} checkout {_quote(revision)}")
    steps.append(
        f"kitbag plugins install {_quote(os.path.join(name, folder.removeprefix('./').lstrip('/')).rstrip('/'))}"
    )
    return f"run: {' && '.join(steps)}"


def _quote(word: str) -> str:
    """For a shell, and safe to print. A leading dash would be an option."""
    return shlex.quote(_sanitize(word, 300)) if word[:1] != "-" else shlex.quote(f"./{_sanitize(word, 300)}")


def _find_marketplace(tree: str) -> str:
    """The path of the marketplace file; empty without one. A file at the top counts only if it lists plugins."""
    for path in MARKETPLACES:
        market = os.path.join(tree, path)
        if os.path.lexists(market):
            if "/" in path:
                return market
            value, _, _ = read_json_file(market, directory_boundary(tree))
            return market if isinstance(as_map(value).get("plugins"), list) else ""
    return ""


def _resolve_source(source: object, base: object, tree: str) -> object:
    """With `metadata.pluginRoot`, a bare name is a folder below it, otherwise one of the marketplace. Codex writes
    `{"source": "local", "path": "./x"}`."""
    fields = as_map(source)
    if fields.get("source") == "local" and isinstance(fields.get("path"), str):
        source = fields["path"]
    if not isinstance(source, str) or not source or source[0] in "./" or ":" in source:
        return source
    if not isinstance(base, str) or not base.strip():
        is_folder = "\0" not in source and os.path.isdir(os.path.join(tree, source.split("/")[0]))
        return f"./{source}" if is_folder else source
    return f"./{base.removeprefix('./').strip('/')}/{source}"


def copy_shared_components(source: PluginSource, tree: str, staged: str, writer: PackageWriter) -> None:
    """Copies skills, agents and commands that the plugin lists and the marketplace has at the same path: in
    github/awesome-copilot, plugins share them."""
    value, _, _ = read_json_file(os.path.join(staged, find_manifest(staged) or MANIFEST), directory_boundary(staged))
    for key in ("skills", "agents", "commands"):
        declared = {**(source.manifest or {}), **as_map(value)}.get(key)
        for listed in [declared] if isinstance(declared, str) else as_list(declared):
            relative = os.path.normpath(str(listed))
            if path_problem(relative) or "/" not in relative or os.path.lexists(os.path.join(staged, relative)):
                continue
            for name in component_names(relative):
                path = os.path.join(tree, name)
                if os.path.exists(path):
                    copy_tree(path, writer, tree, name)
                    break


def write_manifest(staged: str, source: PluginSource) -> None:
    """The plugin's own manifest wins, unless the entry has `strict: false`."""
    import json

    path = os.path.join(staged, find_manifest(staged) or MANIFEST)
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


def _sanitize(value: object, limit: int = 80) -> str:
    return escape_for_terminal(collapse_whitespace(str(value)[:limit]))
