"""A decision and the rules behind it, as a person reads them. Used by `kitbag permissions` and by `/permissions`."""

from typing import Final

from kitbag.permissions.model import Effect, Judgement, Protection
from kitbag.permissions.rules.load import Loaded
from kitbag.permissions.rules.rule import Rule

VERDICTS: Final[dict[Effect, str]] = {"allow": "allowed", "ask": "would be asked", "deny": "denied"}
PROTECTION: Final = {
    "bubblewrap": "commands write only in the workspace and not its control files, don't see your secrets, "
    "and reach the network only when allowed",
    "sandlock": "commands write only in the workspace, don't see your secrets, and reach the network only when "
    "allowed; it can't keep control files there from being written, so only commands that read run unasked",
    "none": "no command runs unasked, and in plan and autonomous mode none runs at all",
}


def sandbox_in_words(judgement: Judgement, protection: Protection) -> str:
    """Only a command that may run has one."""
    if judgement.effect == "deny" or not any(part.what for part in judgement.parts):
        return ""
    if judgement.sandbox == "none":
        return f"none: {protection.problem}" if judgement.network else ""
    reach = "with the network" if judgement.network else "without the network"
    return f"{judgement.sandbox}, {reach} ({protection.kind})"


def protection_in_words(protection: Protection) -> str:
    name = f"{protection.kind} {protection.version}".strip()
    return f"{name}: {PROTECTION[protection.kind]}"


def examples_in_words(loaded: Loaded, rule: Rule) -> str:
    examples = loaded.examples.get(rule)
    return "" if examples is None else "fails" if examples.failed else f"{examples.tried} hold"
