"""Path patterns of rules in gitignore syntax: where they are anchored, and which paths they match.

Used by `rule` to check them and by `matching`; uses pathspec. Patterns of allow rules match strictly. Those of deny and
ask rules match loosely: ignoring case, at any depth if in doubt, and a directory whose whole content they match.
"""

import os
import re
from functools import lru_cache
from typing import Any, NamedTuple

from kitbag.errors import UsageError
from kitbag.permissions.model import DeniedWrite, Workspace
from kitbag.text.unicode_forms import compose, fold

_WILDCARD = re.compile(r"[*?\[\]\\]")
_ANY_CHILD = "\ufffe"
"""A name that no pattern contains: if it matches below a directory, everything there matches."""
_ONE_SEGMENT = re.compile(r"[^/]+/(?:\*\*)?")


class AnchoredPattern(NamedTuple):
    anchor: str
    """The directory where the pattern starts."""
    pattern: str
    """In gitignore syntax."""
    only_names: bool = False
    """Match only against the last component of a path."""


def check_pattern(specifier: str, text: str) -> None:
    """Raises UsageError."""
    fix = "use `//absolute`, `~/in-home`, `/relative-to-settings`, `./in-workspace` or `*.ext`"
    if specifier.startswith("!"):
        raise UsageError(
            f"rules cannot be negated: `{text}`", "write a rule with a different effect (allow, ask or deny) instead"
        )
    if specifier.startswith("~") and not specifier.startswith("~/") and specifier != "~":
        raise UsageError(f"`~user` is not supported in rules: `{text}`", fix)
    parts = specifier.split("/")
    while parts and parts[0] in ("..", ".", "~", ""):
        parts.pop(0)
    if ".." in parts:
        raise UsageError(f"`..` is only allowed at the start of a pattern: `{text}`", fix)
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([_escape_gitignore("/".join(parts) or "**")])
    except ValueError as error:
        raise UsageError(f"invalid pattern in `{text}`: {error}", fix) from error


def pattern_warnings(text: str, tool: str, specifier: str, base: str) -> list[tuple[str, str]]:
    """Warn that `/etc/passwd` in a rule is not the absolute path `/etc/passwd`."""
    if not specifier.startswith("/") or specifier.startswith("//"):
        return []
    first = specifier[1:].split("/", 1)[0]
    if _WILDCARD.search(first) or not os.path.lexists(f"/{first}") or os.path.lexists(os.path.join(base, first)):
        return []
    what = f"`{text}`: `{specifier}` is relative to {base}, not to the filesystem root"
    return [(what, f"write `{tool}(/{specifier})` for an absolute path")]


def pattern_matches(
    specifier: str, narrow: bool, base: str, path: str, workspace: Workspace, recursive: bool = False
) -> bool:
    """Whether an absolute, normalized path matches; `recursive`: whether everything below it does."""
    if path == os.sep and not recursive:
        return False
    path = compose(path)
    for anchor, spec, only_names in _compile(specifier, narrow, base, workspace):
        below = os.path.basename(path) if only_names else _relative_to(path, anchor)
        if below is None:
            continue
        if not narrow:
            below = fold(below)
        if recursive and spec.match_file(f"{below}/{_ANY_CHILD}" if below else _ANY_CHILD):
            return True
        if below and (not recursive or not narrow) and spec.match_file(below):
            return True
    return False


def denied_writes(specifier: str, base: str, workspace: Workspace, rule: str) -> list[DeniedWrite]:
    """The patterns of a deny rule as regular expressions, for the sandbox."""
    return [
        DeniedWrite(anchor=anchor, regex=pattern.regex.pattern, only_names=only_names, rule=rule)
        for anchor, spec, only_names in _compile(specifier, False, base, workspace)
        for pattern in spec.patterns
        if pattern.regex is not None
    ]


def named_paths(specifier: str, base: str, workspace: Workspace, fill: str | None = None) -> list[str]:
    """The absolute paths that an allow pattern names: components with a wildcard are omitted, or filled with `fill`."""
    paths: list[str] = []
    for anchor, pattern, _ in anchor_pattern(specifier, True, base, workspace):
        parts = [part for part in pattern.split("/") if part]
        if fill is None:
            parts = [part for part in parts if not _WILDCARD.search(part)]
        else:
            parts = [part.replace("*", fill).replace("?", fill) for part in parts if part.strip("*?")]
        if parts:
            paths.append(os.path.join(anchor, *parts))
    return paths


def anchor_pattern(specifier: str, narrow: bool, base: str, workspace: Workspace) -> list[AnchoredPattern]:
    if specifier.startswith("//"):
        return [AnchoredPattern("/", "/" + specifier.lstrip("/"))]
    if specifier.startswith("~"):
        return [AnchoredPattern(workspace.home, specifier[1:] if len(specifier) > 2 else "/**")]
    if specifier.startswith("/"):
        patterns = [AnchoredPattern(base, specifier if len(specifier) > 1 else "/**")]
        # Someone who denies `/etc/passwd` may well mean the absolute path.
        return patterns if narrow else [*patterns, AnchoredPattern("/", specifier if len(specifier) > 1 else "/**")]
    if specifier.startswith(("./", "../")) or specifier in (".", ".."):
        start, parts = workspace.root, specifier.split("/")
        while parts and parts[0] in (".", "..", ""):
            start = os.path.dirname(start) if parts.pop(0) == ".." else start
        return [AnchoredPattern(start, "/" + ("/".join(parts) or "**"))]
    if _ONE_SEGMENT.fullmatch(specifier) and specifier != "**/":
        name = specifier.split("/", 1)[0]
        if narrow:
            return [AnchoredPattern(workspace.root, f"/{name}/**")]
        return [AnchoredPattern(root, f"**/{name}/**") for root in workspace.read_roots]
    if narrow:
        return [AnchoredPattern(workspace.root, specifier)]
    patterns = [AnchoredPattern(root, specifier) for root in workspace.read_roots]
    name = specifier.removeprefix("**/")
    return patterns if "/" in name or name == "**" else [*patterns, AnchoredPattern("/", name, only_names=True)]


@lru_cache(maxsize=2000)
def _compile(specifier: str, narrow: bool, base: str, workspace: Workspace) -> tuple[tuple[str, Any, bool], ...]:
    from pathspec import GitIgnoreSpec

    compiled: list[tuple[str, Any, bool]] = []
    for anchor, pattern, only_names in anchor_pattern(specifier, narrow, base, workspace):
        spec = GitIgnoreSpec.from_lines([_escape_gitignore(compose(pattern) if narrow else fold(pattern))])
        for start in dict.fromkeys((compose(anchor), compose(os.path.realpath(anchor)))):
            compiled.append((start, spec, only_names))
    return tuple(compiled)


def _escape_gitignore(pattern: str) -> str:
    """gitignore has comments and negation; rules have neither."""
    return f"\\{pattern}" if pattern.startswith(("#", "!")) else pattern


def _relative_to(path: str, anchor: str) -> str | None:
    """`path` relative to `anchor`; None if it is outside."""
    if path == anchor:
        return ""
    start = anchor if anchor.endswith(os.sep) else anchor + os.sep
    return path[len(start) :] if path.startswith(start) else None
