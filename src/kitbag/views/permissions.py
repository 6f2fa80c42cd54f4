"""How a decision and its rules are shown. Used by `kitbag permissions` and `/permissions`."""

from collections.abc import Iterable
from typing import Final

from kitbag.permissions.model import DecisionPart, Effect, PermissionDecision, SandboxSupport
from kitbag.permissions.rules.load import LoadedPermissions
from kitbag.permissions.rules.rule import PermissionRule
from kitbag.text.human_format import shorten_path
from kitbag.views.blocks import TableBlock

EFFECT_LABELS: Final[dict[Effect, str]] = {"allow": "allowed", "ask": "needs approval", "deny": "denied"}
PROTECTION_LABELS: Final = {
    "bubblewrap": "commands write only inside the workspace and not to its control files, can't read your secrets, "
    "and use the network only when allowed",
    "sandlock": "commands write only inside the workspace, can't read your secrets, and use the network only when "
    "allowed; control files are not protected, so only read-only commands run without asking",
    "none": "every command needs approval, and in plan and autonomous mode no command runs",
}


def describe_sandbox(decision: PermissionDecision, protection: SandboxSupport) -> str:
    """Empty unless it is a command that may run."""
    if decision.effect == "deny" or not any(part.what for part in decision.parts):
        return ""
    if decision.sandbox == "none":
        return f"none: {protection.problem}" if decision.network else ""
    reach = "network allowed" if decision.network else "no network"
    return f"{decision.sandbox}, {reach} ({protection.kind})"


def describe_protection(protection: SandboxSupport) -> str:
    name = f"{protection.kind} {protection.version}".strip()
    return f"{name}: {PROTECTION_LABELS[protection.kind]}"


def describe_part(part: DecisionPart) -> str:
    """The reason, and the rule with its source."""
    return part.reason_with_rule(shorten_path(part.source))


def rule_table(loaded: LoadedPermissions, rules: Iterable[PermissionRule], title: str = "") -> TableBlock:
    """`loaded` has the results of their examples."""
    rows = tuple(
        (rule.effect, rule.text, rule.scope, _describe_examples(loaded, rule), shorten_path(rule.source))
        for rule in rules
    )
    return TableBlock(headers=("EFFECT", "RULE", "SCOPE", "EXAMPLES", "SOURCE"), rows=rows, title=title)


def ignored_table(loaded: LoadedPermissions, title: str = "") -> TableBlock:
    """Settings that have no effect."""
    rows = tuple((one.setting, one.value, shorten_path(one.source), one.why) for one in loaded.ignored)
    return TableBlock(headers=("IGNORED", "VALUE", "SOURCE", "REASON"), rows=rows, title=title)


def _describe_examples(loaded: LoadedPermissions, rule: PermissionRule) -> str:
    examples = loaded.examples.get(rule)
    return "" if examples is None else "failing" if examples.failed else f"{examples.tried} pass"
