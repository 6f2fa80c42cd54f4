"""Kitbag gives AI agents the right skills at the right moment, and proves it.

`SkillRegistry` is a session's door to its skills, `Registry` is everything that was found, `pack` turns a task
into a subagent's context. Names are imported when they are first used, so that `import kitbag` costs nothing.
"""

TYPE_CHECKING = False  # what type checkers take for True; importing it from typing would cost as much as Python itself
if TYPE_CHECKING:
    from kitbag.errors import AmbiguousError, Diagnostic, InvalidError, KitbagError, NotFoundError, UsageError
    from kitbag.ledger import Entry, Ledger
    from kitbag.library.agents import Agent
    from kitbag.library.changes import Change
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
    from kitbag.text.tokens import estimate_tokens

__all__ = [
    "Agent",
    "AmbiguousError",
    "Budget",
    "Budgets",
    "Catalog",
    "Change",
    "Diagnostic",
    "Entry",
    "InvalidError",
    "KitbagError",
    "Ledger",
    "NotFoundError",
    "OverBudgetError",
    "PackOptions",
    "Packer",
    "Payload",
    "Persona",
    "Places",
    "Registry",
    "Skill",
    "SkillDefinition",
    "SkillIndex",
    "SkillRegistry",
    "UsageError",
    "Verdict",
    "check_output",
    "estimate_tokens",
    "find_places",
    "pack",
]

_HOMES = {
    "errors": ("AmbiguousError", "Diagnostic", "InvalidError", "KitbagError", "NotFoundError", "UsageError"),
    "ledger": ("Entry", "Ledger"),
    "library.agents": ("Agent",),
    "library.personas": ("Persona",),
    "library.changes": ("Change",),
    "library.registry": ("Registry",),
    "library.scopes": ("Places", "find_places"),
    "library.skills": ("Skill",),
    "library.visibility": ("Verdict",),
    "packing.catalog": ("Budget", "Catalog"),
    "packing.fit": ("Budgets", "OverBudgetError"),
    "packing.output_contract": ("check_output",),
    "packing.pack": ("PackOptions", "Packer", "Payload", "pack"),
    "packing.skill_registry": ("SkillDefinition", "SkillIndex", "SkillRegistry"),
    "text.tokens": ("estimate_tokens",),
}


def __getattr__(name: str) -> object:
    import importlib

    for home, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(f"kitbag.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'kitbag' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
