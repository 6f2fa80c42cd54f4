"""Permission modes: every tool's spelling becomes one of Kitbag's five words (CONTRACT §7).

Used by agents and by settings. What is unknown or ill-typed becomes `default` with a warning:
a mistake never makes an agent freer than it would be without the line.
"""

from typing import Final, Literal, NamedTuple, cast

from kitbag.text.source_files import FileProblem

PermissionMode = Literal["plan", "locked", "default", "acceptEdits", "autonomous"]

MODES_STRICTEST_FIRST: Final[tuple[PermissionMode, ...]] = ("plan", "locked", "default", "acceptEdits", "autonomous")
MODE_DESCRIPTIONS: Final[dict[PermissionMode, str]] = {
    "plan": "reads inside the workspace; commands run where they can change and reach nothing; the rest is denied",
    "locked": "what no rule allows is denied, without asking",
    "default": "reads inside the workspace and commands that only read need no answer; the rest is asked",
    "acceptEdits": "as default, and files inside the workspace are changed without asking",
    "autonomous": "nothing is asked: commands run inside the sandbox, files inside the workspace are changed",
}
"""For a person; what a model is told of its mode is packing's."""

_SPELLINGS: Final[dict[str, PermissionMode]] = {
    "plan": "plan",
    "readonly": "plan",
    "default": "default",
    "manual": "default",
    "ask": "default",
    "normal": "default",
    "acceptedits": "acceptEdits",
    "autoedit": "acceptEdits",
    "autonomous": "autonomous",
    "bypasspermissions": "autonomous",
    "locked": "locked",
}
_SANDBOX_MODES: Final[dict[str, PermissionMode]] = {"readonly": "plan", "workspacewrite": "default"}
_BLANK = frozenset(("", "null", "~"))
_MODE_FIX = "write one of plan, default, acceptEdits, autonomous, locked"
_EFFECTS = frozenset(("allow", "ask", "deny"))
# OpenCode's `edit` permission speaks of every way to change a file.
_IMPLIED_ACTIONS: Final = {"edit": ("edit", "write")}
# Exceptions to a denial of these would free all of it: a rule can't speak of all tools, and which skills
# an agent sees is decided by whether it has the tool at all (library/visibility).
_ALL_OR_NOTHING = frozenset(("*", "skill"))


class PermissionMap(NamedTuple):
    """What an OpenCode `permission` field comes to here."""

    mode: PermissionMode
    denied: tuple[str, ...]
    """Tools and rules as OpenCode names them, such as `edit` or `bash(rm *)`."""
    allowed_only: tuple[str, ...] | None
    """Not None: everything else is denied."""
    exceptions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Actions that are denied but for uses that match one of these patterns."""


def strictest_mode(*modes: PermissionMode) -> PermissionMode:
    return min(modes, key=MODES_STRICTEST_FIRST.index)


def normalize_mode(value: object, dialect: str) -> tuple[PermissionMode, list[FileProblem]]:
    """`dialect` is whose file it is: `dontAsk` means one thing to Kitbag and another to the rest."""
    if value is None:
        return "default", []
    if not isinstance(value, str):
        what = f"the permission mode is a {_type_name(value)}, not a word; `default` is used"
        return "default", [FileProblem("warning", "mode-unreadable", 0, what, _MODE_FIX)]
    key = _normalize_key(value)
    if key == "dontask":
        mode: PermissionMode = "autonomous" if dialect == "kitbag" else "locked"
        what = f"`{value.strip()}` is read as `{mode}` here"
        return mode, [FileProblem("info", "mode-dont-ask", 0, what, f"write `{mode}`: it means the same everywhere")]
    if key == "auto":
        what = "`auto` needs a classifier that does not exist here; `default` is used"
        return "default", [FileProblem("warning", "mode-auto", 0, what, _MODE_FIX)]
    known = _SPELLINGS.get(key)
    if known is not None:
        return known, []
    if key in _BLANK:
        return "default", [FileProblem("warning", "mode-empty", 0, "the permission mode is empty", _MODE_FIX)]
    what = f"unknown permission mode `{_shorten(value)}`; `default` is used"
    return "default", [FileProblem("warning", "mode-unknown", 0, what, _MODE_FIX)]


def normalize_sandbox_mode(value: object) -> tuple[PermissionMode, list[FileProblem]]:
    """Codex's `sandbox_mode`. Full access is about Codex's sandbox, so it grants nothing here."""
    known = _SANDBOX_MODES.get(_normalize_key(value)) if isinstance(value, str) else None
    if known is not None:
        return known, []
    what = f"the sandbox mode `{_shorten(value)}` has no counterpart; `default` is used"
    return "default", [FileProblem("warning", "mode-sandbox", 0, what, "write `read-only`, or set permission-mode")]


def parse_permissions(value: object) -> tuple[PermissionMap, list[FileProblem]]:
    """OpenCode's `permission` map (V1) or ordered `permissions` list (V2); the last match wins there.

    Denials become denied tools, exceptions to them limited ones, and only what asks for less than `default`
    changes the mode downwards; of what is allowed without asking, only file edits have a counterpart.
    """
    problems: list[FileProblem] = []
    rules = _parse_rules(value, problems)
    base = "ask"
    only: list[str] | None = None
    denied: list[str] = []
    effects: dict[str, str] = {}
    limited: dict[str, tuple[str, ...]] = {}
    for action, patterns in rules:
        # What no pattern of the action matches is as `*` says.
        effect, refused, exceptions = _resolve_action(action, patterns, "deny" if base == "deny" else "ask", problems)
        if action == "*":
            if refused and effect != "deny":
                what = f"denials for all tools at once are not taken over: {', '.join(refused)}; `ask` is used"
                problems.append(
                    FileProblem("warning", "permission-exceptions", 0, what, "name the tool: edit, bash, read")
                )
                effect = "ask"
            base, denied, effects, limited = effect, [], {}, {}
            only = [] if effect == "deny" else None
            continue
        denied = [rule for rule in denied if rule.split("(", 1)[0] != action] + refused
        effects[action] = effect
        if exceptions:
            limited[action] = tuple(exceptions)
        if only is not None:
            only = [name for name in only if name not in _IMPLIED_ACTIONS.get(action, (action,))]
            if effect != "deny":
                only += _IMPLIED_ACTIONS.get(action, (action,))
    edit = effects.get("edit", base)
    shell = effects.get("bash", effects.get("shell", base))
    if edit == "deny" and shell == "deny":
        mode: PermissionMode = "plan"
    else:
        mode = "acceptEdits" if edit == "allow" else "default"
    if shell == "allow":
        what = "commands that OpenCode runs without asking are asked for here"
        fix = "allow them by a rule in your settings, such as `Bash(git log:*)`"
        problems.append(FileProblem("info", "permission-shell", 0, what, fix))
    return PermissionMap(mode, tuple(denied), None if only is None else tuple(only), tuple(limited.items())), problems


_Rules = list[tuple[str, list[tuple[str, str]]]]


def _parse_rules(value: object, problems: list[FileProblem]) -> _Rules:
    """(action, [(pattern, effect)]) in the order in which they count."""
    rules: _Rules = []
    if isinstance(value, str) and value.strip().lower() in _EFFECTS:
        rules.append(("*", [("*", value.strip().lower())]))
    elif isinstance(value, dict):
        for action, effect in cast("dict[object, object]", value).items():
            name = str(action).strip().lower()
            if isinstance(effect, dict):
                patterns = cast("dict[object, object]", effect).items()
                rules.append((name, [(str(p).strip(), _parse_effect(e, problems)) for p, e in patterns]))
            else:
                rules.append((name, [("*", _parse_effect(effect, problems))]))
    elif isinstance(value, list):
        merged: dict[str, list[tuple[str, str]]] = {}
        for item in cast("list[object]", value):
            rule = cast("dict[object, object]", item) if isinstance(item, dict) else {}
            action = str(rule.get("action", "*")).strip().lower()
            resource = str(rule.get("resource", "*")).strip()
            effect = _parse_effect(rule.get("effect"), problems)
            if action == "*" and resource == "*":
                merged.clear()
            merged.setdefault(action, []).append((resource, effect))
        rules.extend(merged.items())
    else:
        what = f"the permission field is `{_shorten(value)}`, not a map; every use is asked for"
        fix = "write `permission:` and below it lines such as `edit: deny`"
        problems.append(FileProblem("warning", "permission-unreadable", 0, what, fix))
    return rules


def _parse_effect(value: object, problems: list[FileProblem]) -> str:
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in _EFFECTS:
        return word
    what = f"a permission is allow, ask or deny, not `{_shorten(value)}`; read as deny"
    problems.append(FileProblem("warning", "permission-unreadable", 0, what, "write allow, ask or deny"))
    return "deny"


def _resolve_action(
    action: str, patterns: list[tuple[str, str]], base: str, problems: list[FileProblem]
) -> tuple[str, list[str], list[str]]:
    """The effect on the tool as a whole, what is denied (the tool, or some of its uses), and the only uses left."""
    special: list[tuple[str, str]] = []
    for pattern, effect in patterns:
        if pattern == "*":
            base, special = effect, []
        else:
            special.append((pattern, effect))
    if base == "deny":
        allowed, refused, exact = _collect_exceptions(special)
        if allowed and action in _ALL_OR_NOTHING:
            what = f"exceptions to a denied `{action}` are not taken over; all of it is denied"
            problems.append(
                FileProblem("warning", "permission-exceptions", 0, what, "allow it by rules in your settings")
            )
        if not allowed or action in _ALL_OR_NOTHING:
            return "deny", [action], []
        if not exact:
            what = f"`{action}`: what is denied after an exception stays denied, though a later line allows it again"
            fix = "write the exceptions first, and what they must not cover behind them"
            problems.append(FileProblem("warning", "permission-exceptions", 0, what, fix))
        return "ask", [f"{action}({pattern})" for pattern in refused], allowed
    if base == "allow" and any(effect == "ask" for _, effect in special):
        base = "ask"
    return base, [f"{action}({pattern})" for pattern, effect in special if effect == "deny"], []


def _collect_exceptions(special: list[tuple[str, str]]) -> tuple[list[str], list[str], bool]:
    """What is allowed though the tool is denied, what of that is denied again, and whether that says it all.

    The last match wins in the file, a denial wins here: the same, unless something is allowed after a denial
    that it overlaps with.
    """
    allowed: list[str] = []
    refused: list[str] = []
    exact = True
    for pattern, effect in special:
        if effect == "deny":
            refused += [pattern] if allowed else []  # else it is denied anyway
        elif pattern and pattern.isprintable():
            refused = [other for other in refused if other != pattern]
            exact = exact and not any(_may_overlap(pattern, other) for other in refused)
            allowed.append(pattern)
    return list(dict.fromkeys(allowed)), refused, exact


def _may_overlap(one: str, other: str) -> bool:
    """Whether some text could match both; only what they begin with is compared."""
    starts = [pattern.replace("?", "*").partition("*")[0].rstrip() for pattern in (one, other)]
    return starts[0].startswith(starts[1]) or starts[1].startswith(starts[0])


def _normalize_key(value: str) -> str:
    return value.strip().lower().replace("-", "").replace("_", "").replace(" ", "")


def _type_name(value: object) -> str:
    return "list" if isinstance(value, list) else "map" if isinstance(value, dict) else type(value).__name__


def _shorten(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 40 else text[:39] + "…"
