"""What was added, edited or removed between two looks at the disk. Used by the registry's refresh."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kitbag.library.names import normalize_name
from kitbag.settings import Settings

if TYPE_CHECKING:
    from kitbag.library.agents import AgentFile
    from kitbag.library.personas import Persona
    from kitbag.library.skills import Skill

LibrarySnapshot: TypeAlias = dict[tuple[str, str], tuple[str, object]]
"""(kind, full name) to (path, what changes when the file does)."""


class Change(NamedTuple):
    """What `refresh` saw."""

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
    """What each name stands for now; two that are equal are the same file unchanged. What the person has closed to
    models is not there for them."""
    closed = _hidden_from_models(settings, "skills")
    seen: LibrarySnapshot = {
        (skill.kind, skill.full_name): (skill.path, skill.stamp)
        for skill in skills
        if not closed or normalize_name(skill.full_name) not in closed
    }
    closed = _hidden_from_models(settings, "agents")
    for agent in agents:
        if not closed or normalize_name(agent.full_name) not in closed:
            seen[("agent", agent.full_name)] = (agent.path, agent.frontmatter_stamp)
    for persona in personas:
        seen[("persona", persona.full_name)] = (persona.path, persona)
    return seen


def _hidden_from_models(settings: Settings, group: str) -> frozenset[str]:
    states = settings.states(group)
    return frozenset(normalize_name(name) for name, state in states.items() if state.value in ("off", "user-only"))


def diff_snapshots(before: LibrarySnapshot, after: LibrarySnapshot) -> list[Change]:
    found: list[Change] = []
    for key in {**before, **after}:
        if before.get(key) != after.get(key):
            sign = "+" if key not in before else "-" if key not in after else "~"
            found.append(Change(sign, *key, (after.get(key) or before[key])[0]))
    return sorted(found, key=lambda change: (change.kind, change.name.lower(), change.sign))
