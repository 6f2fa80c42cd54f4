"""Items added, edited or removed between two snapshots of the library. Used by `Registry.refresh`."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kitbag.library.names import normalize_name
from kitbag.settings import Settings

if TYPE_CHECKING:
    from kitbag.library.agents import AgentFile
    from kitbag.library.personas import Persona
    from kitbag.library.skills import Skill

LibrarySnapshot: TypeAlias = dict[tuple[str, str], tuple[str, object]]
"""(kind, full name) to (path, a value that changes with the file)."""


class Change(NamedTuple):
    """One difference between two snapshots."""

    sign: str
    """`+`, `~` or `-`."""
    kind: str
    name: str
    path: str

    def __str__(self) -> str:
        return f"{self.sign} {self.kind} {self.name}"


def take_snapshot(
    skills: "Iterable[Skill]", agents: "Iterable[AgentFile]", personas: "Iterable[Persona]", settings: Settings
) -> LibrarySnapshot:
    """The current file of each name, with a value to compare. Items that the user hides from models are omitted."""
    hidden = _hidden_from_models(settings, "skills")
    snapshot: LibrarySnapshot = {
        (skill.kind, skill.full_name): (skill.path, skill.stamp)
        for skill in skills
        if not hidden or normalize_name(skill.full_name) not in hidden
    }
    hidden = _hidden_from_models(settings, "agents")
    for agent in agents:
        if not hidden or normalize_name(agent.full_name) not in hidden:
            snapshot[("agent", agent.full_name)] = (agent.path, agent.frontmatter_stamp)
    for persona in personas:
        snapshot[("persona", persona.full_name)] = (persona.path, persona)
    return snapshot


def _hidden_from_models(settings: Settings, group: str) -> frozenset[str]:
    states = settings.states(group)
    return frozenset(normalize_name(name) for name, state in states.items() if state.value in ("off", "user-only"))


def diff_snapshots(before: LibrarySnapshot, after: LibrarySnapshot) -> list[Change]:
    changes: list[Change] = []
    for key in {**before, **after}:
        if before.get(key) != after.get(key):
            sign = "+" if key not in before else "-" if key not in after else "~"
            changes.append(Change(sign, *key, (after.get(key) or before[key])[0]))
    return sorted(changes, key=lambda change: (change.kind, change.name.lower(), change.sign))
