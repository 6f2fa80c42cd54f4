"""Searches for items are bounded in time, on slow disks too; what is cut is reported, and nothing else changes."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import World
from kitbag.library import index
from kitbag.library.discover import scan_root
from kitbag.library.library_checks import find_nested_skills
from kitbag.library.registry import Registry
from kitbag.library.scan_budget import MAX_SECONDS, MIN_COUNT, TOO_SLOW, ScanBudget
from kitbag.library.scopes import ItemKind, Root
from kitbag.packing.catalog import render_skills
from kitbag.sandbox.control_snapshot import find_created, take_snapshot

MANY = 2 * MIN_COUNT
ITEMS: dict[ItemKind, str] = {
    "skills": "---\nname: d{n}\ndescription: D.\n---\nBody.\n",
    "commands": "---\ndescription: D.\n---\nBody.\n",
    "agents": "---\nname: a{n}\ndescription: D.\n---\nBody.\n",
    "personas": "name: p{n}\nteam: t\n",
}
FILES: dict[ItemKind, str] = {
    "skills": "d{n}/SKILL.md",
    "commands": "d{n}/c{n}.md",
    "agents": "d{n}/a{n}.md",
    "personas": "d{n}/p{n}.yaml",
}


def slow_clock(seconds: float = MAX_SECONDS) -> Callable[[], float]:
    """Each look at it takes this long."""
    ticks = itertools.count()
    return lambda: next(ticks) * seconds


def slow_budget() -> ScanBudget:
    return ScanBudget(clock=slow_clock())


def fill(world: World, kind: ItemKind, count: int = MANY) -> None:
    for n in range(count):
        world.write(f"~/.kitbag/{kind}/" + FILES[kind].format(n=n), ITEMS[kind].format(n=n))


def count(registry: Registry, kind: ItemKind) -> int:
    if kind == "agents":
        return sum(agent.root.scope == "user" for agent in registry.agents)
    if kind == "personas":
        return len(list(registry.personas))
    return sum(skill.root.scope == "user" for skill in registry.skills)


@pytest.mark.parametrize("kind", ITEMS)
def test_a_search_that_takes_too_long_is_cut_and_names_root_count_and_time(world: World, kind: ItemKind) -> None:
    fill(world, kind)
    registry = world.registry(budget=slow_budget, use_index=False)
    found = count(registry, kind)
    assert 0 < found < MANY
    [cut] = [one for one in registry.incomplete_searches() if one.file.endswith(f".kitbag/{kind}")][:1]
    assert (cut.code, cut.severity) == (TOO_SLOW, "error")
    assert re.search(r"after \d+\.\d s and 20[01] ", cut.problem)
    assert cut.code in {one.code for one in registry.diagnostics()}


@pytest.mark.parametrize("kind", ITEMS)
def test_a_small_root_is_searched_to_the_end_however_slow_the_disk_is(world: World, kind: ItemKind) -> None:
    fill(world, kind, MIN_COUNT // 3)
    registry = world.registry(budget=slow_budget)
    assert count(registry, kind) == MIN_COUNT // 3
    assert registry.incomplete_searches() == []


def test_a_huge_root_hides_neither_other_roots_nor_what_ships(world: World) -> None:
    fill(world, "skills")
    fill(world, "agents")
    world.skill(".kitbag/skills", "mine")
    registry = world.registry(budget=slow_budget)
    assert "mine" in {skill.name for skill in registry.skills}
    assert {skill.name for skill in registry.skills if skill.root.scope == "built-in"}
    assert "Explore" in {agent.name for agent in registry.agents}


def test_the_catalog_is_the_same_with_and_without_a_budget(world: World) -> None:
    fill(world, "skills")

    def catalog(budget: Callable[[], ScanBudget]) -> str:
        return render_skills(world.registry(budget=budget).visible_skills()).text

    assert catalog(ScanBudget) == catalog(lambda: ScanBudget(clock=lambda: 0.0)) == catalog(lambda: ScanBudget(1e9))


def test_a_cut_scan_is_not_taken_for_the_whole_by_the_next_one(world: World) -> None:
    fill(world, "skills")
    root = Root(str(world.home / ".kitbag/skills"), "skills", "user", "kitbag", (1, 0))
    home = str(world.home / ".kitbag")
    cut = index.scan_indexed(home, root, budget=slow_budget())
    assert len(cut.scan.skills) < MANY
    whole = index.scan_indexed(home, root, budget=ScanBudget(1e9))
    assert len(whole.scan.skills) == MANY
    assert whole.scan.diagnostics == []


def test_checking_a_cached_scan_is_bounded_too(world: World) -> None:
    fill(world, "skills")
    root = Root(str(world.home / ".kitbag/skills"), "skills", "user", "kitbag", (1, 0))
    whole = index.CachedScan(scan_root(root, budget=_started(ScanBudget(1e9))), 1 << 62, frozenset())
    assert index.scan_with_cache(root, whole, budget=ScanBudget(1e9)) is whole
    again = index.scan_with_cache(root, whole, budget=slow_budget())
    assert [one.code for one in again.scan.diagnostics] == [TOO_SLOW]


def _started(budget: ScanBudget) -> ScanBudget:
    budget.start()
    return budget


def test_only_the_time_of_searches_counts() -> None:
    now = [0.0]
    budget = ScanBudget(2.0, clock=lambda: now[0])
    budget.start()
    now[0] += 1.0
    budget.stop()
    now[0] += 100.0
    budget.start()
    assert all(budget.take() for _ in range(MIN_COUNT + 1))
    now[0] += 1.5
    assert not budget.take()
    assert budget.is_cut


def test_doctor_s_search_for_nested_skills_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    skill = world.skill("~/.kitbag/skills", "outer")
    for n in range(MANY):
        (skill.parent / f"d{n}").mkdir()
    monkeypatch.setattr("kitbag.library.library_checks.ScanBudget", slow_budget)
    assert [one.code for one in find_nested_skills(world.registry().skills)] == [TOO_SLOW]


def test_the_sandbox_searches_control_paths_for_a_limited_time_and_takes_nothing_for_new(tmp_path: Path) -> None:
    for n in range(20):
        (tmp_path / f"d{n}" / ".git").mkdir(parents=True)
    whole = take_snapshot([str(tmp_path)])
    cut = take_snapshot([str(tmp_path)], slow_clock(0.5))
    assert (whole.cut, len(whole.paths)) == ("", 20)
    assert len(cut.paths) < 20
    assert f"stopped searching {tmp_path}" in cut.cut
    assert find_created(cut, whole, ()) == []


def test_a_cut_search_is_reported_by_listings_and_runs(at_home: World, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    from kitbag.assembly.run_options import Options
    from kitbag.runtime.agent import Agent
    from kitbag.testing import Script, Scripted

    fill(at_home, "skills")
    monkeypatch.setattr(
        Registry.__init__, "__kwdefaults__", {**Registry.__init__.__kwdefaults__, "budget": slow_budget}
    )

    async def notices() -> str:
        async with Agent(options=Options(directory=str(at_home.workspace)), provider=Scripted(Script([]))) as agent:
            return "\n".join(notice.text for notice in agent.notices)

    assert "stopped searching after" in asyncio.run(notices())
