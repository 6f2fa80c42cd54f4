"""Normalizes the permission modes of every supported tool to Kitbag's five (CONTRACT §7).

Used by agents and permissions. An unknown or mistyped mode becomes `default` with a warning: a mistake
never grants an agent more than leaving the line out would.
"""

from typing import Final, Literal, cast

import msgspec

from kitbag.text.source_files import FileProblem

PermissionMode = Literal["plan", "locked", "default", "acceptEdits", "autonomous"]

MODES_STRICTEST_FIRST: Final[tuple[PermissionMode, ...]] = ("plan", "locked", "default", "acceptEdits", "autonomous")
MODE_DESCRIPTIONS: Final[dict[PermissionMode, str]] = {
    "plan": "read-only: allows reads in the workspace and read-only sandboxed commands offline; denies the rest",
    "locked": "denies everything that no rule allows, without asking",
    "default": "allows reads in the workspace and read-only commands; asks for the rest",
    "acceptEdits": "like default, but also allows edits in the workspace",
    "autonomous": "never asks: runs commands in the sandbox and edits files in the workspace",
}
"""For users; the descriptions for models are in packing."""

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
_MODE_FIX = "use plan, default, acceptEdits, autonomous or locked"
_EFFECTS = frozenset(("allow", "ask", "deny"))
# OpenCode's `edit` permission covers every tool that changes files.
_IMPLIED_ACTIONS: Final = {"edit": ("edit", "write")}
# Actions that are denied as a whole or not at all. A rule can't name all tools at once, and an agent sees skills
# if it has the Skill tool at all (library/visibility), so exceptions would allow everything.
_ALL_OR_NOTHING = frozenset(("*", "skill"))


class PermissionMap(msgspec.Struct, frozen=True, kw_only=True):
    """An OpenCode `permission` field in Kitbag's terms."""

    mode: PermissionMode
    denied: tuple[str, ...]
    """Tools and rules in OpenCode's spelling, such as `edit` or `bash(rm *)`."""
    allowed_only: tuple[str, ...] | None
    """If not None, everything else is denied."""
    exceptions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Denied actions, each with the patterns of the uses that are still allowed."""


def strictest_mode(*modes: PermissionMode) -> PermissionMode:
    return min(modes, key=MODES_STRICTEST_FIRST.index)


def normalize_mode(value: object, dialect: str) -> tuple[PermissionMode, list[FileProblem]]:
    """`dialect`: which tool's file it is; `dontAsk` means something else in Kitbag than in other tools."""
    if value is None:
        return "default", []
    if not isinstance(value, str):
        problem = f"the permission mode must be a string, not a {_type_name(value)}; `default` is used"
        return "default", [
            FileProblem(severity="warning", code="mode-unreadable", line=0, problem=problem, fix=_MODE_FIX)
        ]
    key = _normalize_key(value)
    if key == "dontask":
        mode: PermissionMode = "autonomous" if dialect == "kitbag" else "locked"
        problem = f"`{value.strip()}` is treated as `{mode}`"
        return mode, [
            FileProblem(
                severity="info",
                code="mode-dont-ask",
                line=0,
                problem=problem,
                fix=f"write `{mode}`, which is unambiguous",
            )
        ]
    if key == "auto":
        problem = "`auto` needs a classifier that Kitbag does not have; `default` is used"
        return "default", [FileProblem(severity="warning", code="mode-auto", line=0, problem=problem, fix=_MODE_FIX)]
    known = _SPELLINGS.get(key)
    if known is not None:
        return known, []
    if key in _BLANK:
        return "default", [
            FileProblem(
                severity="warning", code="mode-empty", line=0, problem="the permission mode is empty", fix=_MODE_FIX
            )
        ]
    problem = f"unknown permission mode `{_shorten(value)}`; `default` is used"
    return "default", [FileProblem(severity="warning", code="mode-unknown", line=0, problem=problem, fix=_MODE_FIX)]


def normalize_sandbox_mode(value: object) -> tuple[PermissionMode, list[FileProblem]]:
    """Codex's `sandbox_mode`. Full access only concerns Codex's own sandbox, so it grants nothing here."""
    known = _SANDBOX_MODES.get(_normalize_key(value)) if isinstance(value, str) else None
    if known is not None:
        return known, []
    problem = f"the sandbox mode `{_shorten(value)}` is not supported; `default` is used"
    return "default", [
        FileProblem(
            severity="warning",
            code="mode-sandbox",
            line=0,
            problem=problem,
            fix="use `read-only`, or set permission-mode",
        )
    ]


def parse_permissions(value: object) -> tuple[PermissionMap, list[FileProblem]]:
    """OpenCode's `permission` map (V1) or ordered `permissions` list (V2); the last match wins in both.

    Denials become denied tools and their exceptions become rules. The mode becomes stricter than `default` if edits
    and commands are both denied; of what OpenCode allows without asking, only file edits have an equivalent mode.
    """
    problems: list[FileProblem] = []
    rules = _parse_rules(value, problems)
    base = "ask"
    only: list[str] | None = None
    denied: list[str] = []
    effects: dict[str, str] = {}
    limited: dict[str, tuple[str, ...]] = {}
    for action, patterns in rules:
        # Uses that match no pattern of the action follow `*`.
        effect, refused, exceptions = _resolve_action(action, patterns, "deny" if base == "deny" else "ask", problems)
        if action == "*":
            if refused and effect != "deny":
                problem = f"patterns that deny all tools are not supported: {', '.join(refused)}; `ask` is used"
                problems.append(
                    FileProblem(
                        severity="warning",
                        code="permission-exceptions",
                        line=0,
                        problem=problem,
                        fix="name the tool: edit, bash, read",
                    )
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
        problem = "commands that OpenCode runs without asking need approval in Kitbag"
        fix = "allow them with a rule in your settings, such as `Bash(git log:*)`"
        problems.append(FileProblem(severity="info", code="permission-shell", line=0, problem=problem, fix=fix))
    return PermissionMap(
        mode=mode,
        denied=tuple(denied),
        allowed_only=None if only is None else tuple(only),
        exceptions=tuple(limited.items()),
    ), problems


_Rules = list[tuple[str, list[tuple[str, str]]]]


def _parse_rules(value: object, problems: list[FileProblem]) -> _Rules:
    """(action, [(pattern, effect)]) in order of evaluation."""
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
        problem = f"`permission` must be a mapping, not `{_shorten(value)}`; every use needs approval"
        fix = "write `permission:` followed by lines such as `edit: deny`"
        problems.append(FileProblem(severity="warning", code="permission-unreadable", line=0, problem=problem, fix=fix))
    return rules


def _parse_effect(value: object, problems: list[FileProblem]) -> str:
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in _EFFECTS:
        return word
    problem = f"a permission must be allow, ask or deny, not `{_shorten(value)}`; treated as deny"
    problems.append(
        FileProblem(
            severity="warning", code="permission-unreadable", line=0, problem=problem, fix="use allow, ask or deny"
        )
    )
    return "deny"


def _resolve_action(
    action: str, patterns: list[tuple[str, str]], base: str, problems: list[FileProblem]
) -> tuple[str, list[str], list[str]]:
    """The effect on the whole tool, the denials (the tool or some uses), and the uses a denied tool still allows."""
    special: list[tuple[str, str]] = []
    for pattern, effect in patterns:
        if pattern == "*":
            base, special = effect, []
        else:
            special.append((pattern, effect))
    if base == "deny":
        allowed, refused, is_exact = _collect_exceptions(special)
        if allowed and action in _ALL_OR_NOTHING:
            problem = f"exceptions to a denied `{action}` are not supported; all of it is denied"
            problems.append(
                FileProblem(
                    severity="warning",
                    code="permission-exceptions",
                    line=0,
                    problem=problem,
                    fix="allow it with rules in your settings",
                )
            )
        if not allowed or action in _ALL_OR_NOTHING:
            return "deny", [action], []
        if not is_exact:
            problem = f"`{action}`: a denial after an exception cannot be lifted by a later line"
            fix = "list the exceptions first, then the denials"
            problems.append(
                FileProblem(severity="warning", code="permission-exceptions", line=0, problem=problem, fix=fix)
            )
        return "ask", [f"{action}({pattern})" for pattern in refused], allowed
    if base == "allow" and any(effect == "ask" for _, effect in special):
        base = "ask"
    return base, [f"{action}({pattern})" for pattern, effect in special if effect == "deny"], []


def _collect_exceptions(special: list[tuple[str, str]]) -> tuple[list[str], list[str], bool]:
    """The uses allowed although the tool is denied, those of them denied again, and whether this is exact.

    In the file the last match wins, in Kitbag a denial wins. The results differ only if a pattern is allowed after
    an overlapping denial.
    """
    allowed: list[str] = []
    refused: list[str] = []
    is_exact = True
    for pattern, effect in special:
        if effect == "deny":
            refused += [pattern] if allowed else []  # otherwise denied already
        elif pattern and pattern.isprintable():
            refused = [other for other in refused if other != pattern]
            is_exact = is_exact and not any(_may_overlap(pattern, other) for other in refused)
            allowed.append(pattern)
    return list(dict.fromkeys(allowed)), refused, is_exact


def _may_overlap(one: str, other: str) -> bool:
    """Whether some text could match both patterns; compares their literal prefixes only."""
    prefixes = [pattern.replace("?", "*").partition("*")[0].rstrip() for pattern in (one, other)]
    return prefixes[0].startswith(prefixes[1]) or prefixes[1].startswith(prefixes[0])


def _normalize_key(value: str) -> str:
    return value.strip().lower().replace("-", "").replace("_", "").replace(" ", "")


def _type_name(value: object) -> str:
    return "list" if isinstance(value, list) else "map" if isinstance(value, dict) else type(value).__name__


def _shorten(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 40 else text[:39] + "…"
