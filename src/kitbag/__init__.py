"""Kitbag gives AI agents the right skills at the right moment, and proves it.

`Agent` runs prompts; `ask` does so without asyncio. `SkillRegistry` gives a session access to its skills, `Registry`
holds everything found on disk, and `pack` turns a task into the context of a subagent. Names are imported on first
use, so `import kitbag` is cheap.
"""

TYPE_CHECKING = False  # type checkers treat this as True; importing it from typing would double the start-up time
if TYPE_CHECKING:
    from kitbag.agent.run import Run
    from kitbag.agent.turn_limits import Limits
    from kitbag.assembly.reload import Reloaded
    from kitbag.assembly.run_options import Options
    from kitbag.assembly.switch_persona import PersonaChange
    from kitbag.errors import AmbiguousError, Diagnostic, InvalidError, KitbagError, NotFoundError, UsageError
    from kitbag.events import (
        Compacted,
        Discarded,
        Event,
        MessageAdded,
        MessageDelivered,
        Notice,
        Retrying,
        RunEnded,
        RunStarted,
        SkillLoaded,
        SkillUnloaded,
        Switched,
        TextDelta,
        ThinkingDelta,
        ToolFinished,
        ToolStarted,
        TurnEnded,
        Waiting,
    )
    from kitbag.ledger import Entry, Ledger
    from kitbag.library.agents import AgentFile
    from kitbag.library.library_changes import Change
    from kitbag.library.personas import Persona
    from kitbag.library.registry import Registry
    from kitbag.library.scopes import Places, find_places
    from kitbag.library.skills import Skill
    from kitbag.library.visibility import Verdict
    from kitbag.packing.catalog import Budget, Catalog
    from kitbag.packing.fit import Budgets, OverBudgetError
    from kitbag.packing.output_contract import check_output
    from kitbag.packing.pack import Packer, PackOptions, Payload, pack
    from kitbag.packing.skill_registry import SkillDefinition, SkillIndex, SkillRegistry
    from kitbag.runtime.agent import Agent, ask
    from kitbag.text.tokens import estimate_tokens

__all__ = [
    "Agent",
    "AgentFile",
    "AmbiguousError",
    "Budget",
    "Budgets",
    "Catalog",
    "Change",
    "Compacted",
    "Diagnostic",
    "Discarded",
    "Entry",
    "Event",
    "InvalidError",
    "KitbagError",
    "Ledger",
    "Limits",
    "MessageAdded",
    "MessageDelivered",
    "NotFoundError",
    "Notice",
    "Options",
    "OverBudgetError",
    "PackOptions",
    "Packer",
    "Payload",
    "Persona",
    "PersonaChange",
    "Places",
    "Registry",
    "Reloaded",
    "Retrying",
    "Run",
    "RunEnded",
    "RunStarted",
    "Skill",
    "SkillDefinition",
    "SkillIndex",
    "SkillLoaded",
    "SkillRegistry",
    "SkillUnloaded",
    "Switched",
    "TextDelta",
    "ThinkingDelta",
    "ToolFinished",
    "ToolStarted",
    "TurnEnded",
    "UsageError",
    "Verdict",
    "Waiting",
    "ask",
    "check_output",
    "estimate_tokens",
    "find_places",
    "pack",
]

_EXPORTS = {
    "agent.turn_limits": ("Limits",),
    "agent.run": ("Run",),
    "errors": ("AmbiguousError", "Diagnostic", "InvalidError", "KitbagError", "NotFoundError", "UsageError"),
    "events": (
        "Compacted",
        "Discarded",
        "Event",
        "MessageAdded",
        "MessageDelivered",
        "Notice",
        "Retrying",
        "RunEnded",
        "RunStarted",
        "SkillLoaded",
        "SkillUnloaded",
        "Switched",
        "TextDelta",
        "ThinkingDelta",
        "ToolFinished",
        "ToolStarted",
        "TurnEnded",
        "Waiting",
    ),
    "ledger": ("Entry", "Ledger"),
    "library.personas": ("Persona",),
    "library.library_changes": ("Change",),
    "library.agents": ("AgentFile",),
    "library.registry": ("Registry",),
    "library.scopes": ("Places", "find_places"),
    "library.skills": ("Skill",),
    "library.visibility": ("Verdict",),
    "packing.catalog": ("Budget", "Catalog"),
    "packing.fit": ("Budgets", "OverBudgetError"),
    "packing.output_contract": ("check_output",),
    "packing.pack": ("PackOptions", "Packer", "Payload", "pack"),
    "packing.skill_registry": ("SkillDefinition", "SkillIndex", "SkillRegistry"),
    "runtime.agent": ("Agent", "ask"),
    "assembly.run_options": ("Options",),
    "assembly.switch_persona": ("PersonaChange",),
    "assembly.reload": ("Reloaded",),
    "text.tokens": ("estimate_tokens",),
}


def __getattr__(name: str) -> object:
    import importlib

    for home, names in _EXPORTS.items():
        if name in names:
            value = getattr(importlib.import_module(f"kitbag.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'kitbag' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
