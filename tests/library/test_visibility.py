"""The one rule for who may see and use an item, as a table, and the proof that nothing goes round it."""

import itertools
import tempfile
import unicodedata
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import World
from kitbag.errors import KitbagError
from kitbag.library import scopes
from kitbag.library.names import normalize_name
from kitbag.library.personas import Persona
from kitbag.library.registry import Registry
from kitbag.library.routing.skill_search import search_skills
from kitbag.library.scopes import Root
from kitbag.library.skills import NO_MODEL, NO_USER, REQUIRED, Skill, read_skill
from kitbag.library.visibility import FULLY_VISIBLE, VisibilityContext, evaluate_agent, evaluate_skill, evaluate_skills
from kitbag.packing.skill_registry import SkillRegistry
from kitbag.settings import ITEM_STATES, ItemState, SourcedValue
from support.matrix import examples

ROOT = Root("/skills", "skills", "project", "kitbag", (1, 0))


def from_a_file(root: Root) -> Skill:
    """What reading a file gives; the tests change what they are about."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "SKILL.md")
        path.write_text("---\nname: x\ndescription: Does.\n---\nDo it.\n")
        found, _ = read_skill(root, "x/SKILL.md", str(path), "x")
    assert found is not None
    return found


ANY = from_a_file(ROOT)


def skill(name: str = "x", team: str = "", group: str = "", flags: int = 0) -> Skill:
    full = f"{team}/{name}" if team else name
    return ANY._replace(name=name, full_name=full, location=f"{full}/SKILL.md", team=team, group=group, flags=flags)


def persona(name: str = "dev", team: str = "data", **lists: tuple[str, ...]) -> Persona:
    fields = {"core_skills": (), "skills": (), "on_demand_skills": (), "subagents": None, **lists}
    return Persona(ROOT, "p.yaml", name, name, "", team, **fields, system_prompt_additions="", default_model="")  # type: ignore[arg-type]


def states(**given: ItemState) -> dict[str, SourcedValue]:
    return {normalize_name(name): SourcedValue(state, "settings.toml") for name, state in given.items()}


class Tools:
    """The tools of a subagent: with Skill, or without."""

    def __init__(self, *names: str) -> None:
        self.names = names

    specifiers: tuple[str, ...] = ()

    def allows(self, tool: str) -> bool:
        return tool in self.names


# -- a team's skill, by who looks: (in the catalog, found by search, loadable by full name) ----------

NOTHING, BY_NAME, ON_DEMAND, LISTED = (
    (False, False, False),
    (False, False, True),
    (False, True, True),
    (True, True, True),
)
LOOKERS = {
    "nobody chosen": VisibilityContext(),
    "team only": VisibilityContext("data"),
    "its persona": VisibilityContext("data", persona("dev")),
    "other persona": VisibilityContext("data", persona("ops")),
    "other persona that lists it": VisibilityContext("data", persona("ops", skills=("x",))),
    "other persona that lists it in full": VisibilityContext("data", persona("ops", core_skills=("DATA/X",))),
    "other persona that has it on demand": VisibilityContext("data", persona("ops", on_demand_skills=("x",))),
    "its persona that has it on demand": VisibilityContext("data", persona("dev", on_demand_skills=("x",))),
    "its persona that has it both ways": VisibilityContext(
        "data", persona("dev", skills=("x",), on_demand_skills=("x",))
    ),
    "other team": VisibilityContext("web", persona("dev", "web")),
    "other team that lists it": VisibilityContext("web", persona("dev", "web", skills=("x", "data/x"))),
    "persona without team": VisibilityContext("", persona("dev", "")),
    "persona without team that lists it": VisibilityContext("", persona("dev", "", skills=("data/x",))),
}
TEAM_TABLE = {
    #                                       its own folder  core      no folder
    "nobody chosen":                       (BY_NAME,        BY_NAME,   BY_NAME),
    "team only":                           (BY_NAME,        LISTED,    BY_NAME),
    "its persona":                         (LISTED,         LISTED,    BY_NAME),
    "other persona":                       (NOTHING,        LISTED,    BY_NAME),
    "other persona that lists it":         (LISTED,         LISTED,    LISTED),
    "other persona that lists it in full": (LISTED,         LISTED,    LISTED),
    "other persona that has it on demand": (ON_DEMAND,      ON_DEMAND, ON_DEMAND),
    "its persona that has it on demand":   (ON_DEMAND,      ON_DEMAND, ON_DEMAND),
    "its persona that has it both ways":   (LISTED,         LISTED,    LISTED),
    "other team":                          (NOTHING,        NOTHING,   NOTHING),
    "other team that lists it":            (NOTHING,        NOTHING,   NOTHING),
    "persona without team":                (BY_NAME,        BY_NAME,   BY_NAME),
    "persona without team that lists it":  (LISTED,         LISTED,    LISTED),
}  # fmt: skip


@pytest.mark.parametrize("looker", TEAM_TABLE)
@pytest.mark.parametrize(("at", "group"), [(0, "dev"), (1, "core"), (2, "")])
def test_a_team_s_skill_is_seen_by_those_it_is_for(looker: str, at: int, group: str) -> None:
    verdict = evaluate_skill(skill(team="data", group=group), LOOKERS[looker])
    assert (verdict.listed, verdict.searchable, verdict.model) == TEAM_TABLE[looker][at]
    assert verdict.user == verdict.preload == verdict.model
    assert bool(verdict.reason) == (not verdict.listed)


@pytest.mark.parametrize("looker", LOOKERS)
def test_an_ordinary_skill_is_there_for_everyone(looker: str) -> None:
    assert evaluate_skill(skill(), LOOKERS[looker]) == FULLY_VISIBLE


# -- the other axes, each alone and all together ---------------------------------------------------


class Axes(NamedTuple):
    listed: bool
    described: bool
    model: bool
    user: bool
    preload: bool
    searchable: bool


BY_STATE = {
    "on": Axes(True, True, True, True, True, True),
    "name-only": Axes(True, False, True, True, True, True),
    "user-only": Axes(False, False, False, True, False, False),
    "off": Axes(False, False, False, False, False, False),
}
NO_MODEL_AXES = Axes(False, False, False, True, False, False)
NO_USER_AXES = Axes(True, True, True, False, True, True)
NO_SKILL_TOOL = Axes(False, False, False, True, True, False)
ALL = BY_STATE["on"]


def test_the_whole_table() -> None:
    """Each circumstance only takes away, and they take away independently of each other."""
    rows = 0
    for state, no_model, no_user, tools, looker, (at, group) in itertools.product(
        ITEM_STATES,
        (False, True),
        (False, True),
        (None, Tools("Skill"), Tools("Read")),
        LOOKERS,
        enumerate(("dev", "core", "")),
    ):
        listed, searchable, loadable = TEAM_TABLE[looker][at]
        team = Axes(listed, listed, loadable, loadable, loadable, searchable)
        without_tool = tools is not None and not tools.allows("Skill")
        parts = (
            BY_STATE[state],
            NO_MODEL_AXES if no_model else ALL,
            NO_USER_AXES if no_user else ALL,
            NO_SKILL_TOOL if without_tool else ALL,
            team,
        )
        expected = tuple(all(part[axis] for part in parts) for axis in range(len(Axes._fields)))
        one = skill(team="data", group=group, flags=NO_MODEL * no_model | NO_USER * no_user)
        view = LOOKERS[looker]._replace(states=states(**{"data/x": state}), agent_tools=tools)
        verdict = evaluate_skill(one, view)
        assert verdict[:6] == expected, (state, no_model, no_user, without_tool, looker, group)
        assert verdict.state == state
        assert verdict.reason or all(expected)
        rows += 1
    assert rows == 4 * 2 * 2 * 3 * 13 * 3


def test_a_verdict_is_never_at_odds_with_itself() -> None:
    for state, flags, looker in itertools.product(
        ITEM_STATES, (0, NO_MODEL, NO_USER, NO_MODEL | NO_USER), LOOKERS.values()
    ):
        for group in ("dev", "core", ""):
            verdict = evaluate_skill(
                skill(team="data", group=group, flags=flags), looker._replace(states=states(**{"data/x": state}))
            )
            assert verdict.searchable or not verdict.listed  # what is listed is found
            assert verdict.model or not verdict.searchable  # what is found can be loaded
            assert verdict.listed or not verdict.described


def test_the_quick_way_for_many_gives_the_answers_of_the_careful_one() -> None:
    skills = [
        skill(f"s{at}", team, group, flags)
        for at, (team, group, flags) in enumerate(
            itertools.product(("", "data"), ("", "core", "dev"), (0, NO_MODEL, NO_USER, REQUIRED))
        )
    ]
    for view in (
        *LOOKERS.values(),
        VisibilityContext(states=states(s1="off")),
        VisibilityContext(agent_tools=Tools()),
        VisibilityContext(agent_tools=Tools("Skill")),
    ):
        assert evaluate_skills(skills, view) == [(one, evaluate_skill(one, view)) for one in skills]


@pytest.mark.parametrize(
    ("one", "view", "reason"),
    [
        (skill(), VisibilityContext(states=states(x="off")), "disabled in settings.toml"),
        (skill(), VisibilityContext(states=states(x="user-only")), "user-only in settings.toml"),
        (skill(), VisibilityContext(states=states(x="name-only")), "name-only in settings.toml"),
        (skill(flags=NO_MODEL), VisibilityContext(), "disable-model-invocation is set in its file"),
        (skill(flags=NO_USER), VisibilityContext(), "user-invocable is false in its file"),
        (skill(), VisibilityContext(agent_tools=Tools("Read")), "the agent has no Skill tool"),
        (skill(team="data"), VisibilityContext(), "belongs to team data: load it as data/x, or choose a persona"),
        (skill(team="data"), VisibilityContext("web"), "belongs to team data, not web"),
        (skill(team="data", group="ops"), LOOKERS["its persona"], "belongs to ops, not dev"),
    ],
)
def test_a_closed_door_says_why_it_is_closed(one: Skill, view: VisibilityContext, reason: str) -> None:
    assert evaluate_skill(one, view).reason == reason


def test_a_state_is_given_to_a_full_name_in_any_case_and_any_storage_of_accents() -> None:
    assert evaluate_skill(skill("Deploy"), VisibilityContext(states=states(deploy="off"))).state == "off"
    assert evaluate_skill(skill("x", team="data"), VisibilityContext(states=states(x="off"))).state == "on"
    composed, decomposed = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    for name, written in ((composed, decomposed), (decomposed, composed)):
        assert evaluate_skill(skill(name), VisibilityContext(states=states(**{written: "off"}))).state == "off"


# -- agents ----------------------------------------------------------------------------------------


class AgentLike(NamedTuple):
    name: str = "a"
    team: str = ""
    persona: str = ""
    disabled: bool = False
    hidden: bool = False
    model_invocable: bool = True
    user_invocable: bool = True

    @property
    def full_name(self) -> str:
        return f"{self.team}/{self.name}" if self.team else self.name


@pytest.mark.parametrize(
    ("agent", "view", "listed", "model", "user"),
    [
        (AgentLike(), VisibilityContext(), True, True, True),
        (AgentLike(), VisibilityContext(states=states(a="name-only")), True, True, True),
        (AgentLike(), VisibilityContext(states=states(a="user-only")), False, False, True),
        (AgentLike(), VisibilityContext(states=states(a="off")), False, False, False),
        (AgentLike(disabled=True), VisibilityContext(), False, False, False),
        (AgentLike(hidden=True), VisibilityContext(), False, True, True),
        (AgentLike(model_invocable=False), VisibilityContext(), False, False, True),
        (AgentLike(user_invocable=False), VisibilityContext(), True, True, False),
        (AgentLike(team="data"), VisibilityContext(), False, False, True),
        (AgentLike(team="data"), VisibilityContext("data"), True, True, True),
        (AgentLike(team="data"), VisibilityContext("web"), False, False, False),
        (AgentLike(team="data"), VisibilityContext("data", persona()), True, True, True),
        (AgentLike(team="data"), VisibilityContext("data", persona(subagents=())), False, False, False),
        (AgentLike(team="data"), VisibilityContext("data", persona(subagents=("A",))), True, True, True),
        (AgentLike(team="data", persona="dev"), VisibilityContext("data", persona()), True, True, True),
        (AgentLike(team="data", persona="ops"), VisibilityContext("data", persona()), False, False, False),
        (AgentLike(team="data", persona="dev"), VisibilityContext("data"), False, False, False),
        (AgentLike(team="data"), VisibilityContext("", persona("w", "", subagents=("data/a",))), True, True, True),
        (AgentLike(team="data"), VisibilityContext("", persona("w", "")), False, False, False),
    ],
)
def test_an_agent_is_seen_by_those_it_is_for(
    agent: AgentLike, view: VisibilityContext, listed: bool, model: bool, user: bool
) -> None:
    verdict = evaluate_agent(agent, view)
    assert (verdict.listed, verdict.model, verdict.user) == (listed, model, user)
    assert verdict.described == (listed and verdict.state != "name-only")


def test_an_agent_that_a_visible_skill_names_is_there_though_the_persona_does_not_list_it() -> None:
    view = VisibilityContext("data", persona(subagents=()))
    assert evaluate_agent(AgentLike(team="data"), view, frozenset({"a"})).listed
    assert not evaluate_agent(AgentLike(team="data", persona="ops"), view, frozenset({"a"})).listed


# -- who may switch what ----------------------------------------------------------------------------


@pytest.mark.parametrize(("user", "project"), list(itertools.product(ITEM_STATES, ITEM_STATES)))
def test_a_project_can_only_close_what_the_user_left_open(world: World, user: ItemState, project: ItemState) -> None:
    world.skill(".kitbag/skills", "x")
    world.write("~/.kitbag/settings.toml", f'[skills]\nx = "{user}"\n')
    world.write(".kitbag/settings.toml", f'[skills]\nX = "{project}"\n')
    registry = world.registry(use_index=False)
    verdict = registry.evaluate(registry.find_skill("x"))
    assert verdict.state == ITEM_STATES[max(ITEM_STATES.index(user), ITEM_STATES.index(project))]


# -- nothing goes round the rule ---------------------------------------------------------------------

FOLDERS = ["", "data/core", "data/dev", "data/ops", "data", "web/core"]
WANTED = [("", ""), ("data", ""), ("data", "dev"), ("data", "ops"), ("web", ""), ("", "writer")]


@st.composite
def libraries(draw: st.DrawFn) -> tuple[dict[str, str], tuple[str, str]]:
    """Files of a library by path, and the team and persona that look at it."""
    files = {
        ".kitbag/skills/web/_team.md": "Web.",
        ".kitbag/skills/data/_team.md": "Data.",
        ".kitbag/personas/writer.yaml": "name: writer\nskills: [data/beta]\n",
    }
    some = st.lists(st.sampled_from(["alpha", "beta", "gamma", "data/delta"]), max_size=2)
    for who in ("dev", "ops"):
        lines = [f"name: {who}"] + [f"{key}: {draw(some)}" for key in ("core_skills", "skills", "on_demand_skills")]
        files[f".kitbag/skills/data/_persona_{who}.yaml"] = "\n".join(lines).replace("'", "")
    switched: dict[str, str] = {}
    for name in ("alpha", "beta", "gamma", "delta"):
        for folder in draw(st.lists(st.sampled_from(FOLDERS), unique=True, max_size=2)):
            head = f"name: {name}\ndescription: The word {name}.\n"
            head += draw(st.sampled_from(["", "disable-model-invocation: true\n", "user-invocable: false\n"]))
            place = f"{folder}/{name}" if folder else name
            files[f".kitbag/skills/{place}/SKILL.md"] = f"---\n{head}---\nThe body of {place}.\n"
            full = f"{folder.split('/')[0]}/{name}" if folder else name
            if draw(st.booleans()):
                switched[full] = f'"{full}" = "{draw(st.sampled_from(ITEM_STATES))}"'
    files["~/.kitbag/settings.toml"] = "[skills]\n" + "\n".join(switched.values())
    return files, draw(st.sampled_from(WANTED))


@settings(max_examples=examples(60))
@given(libraries())
def test_listing_searching_showing_and_loading_never_disagree(library: tuple[dict[str, str], tuple[str, str]]) -> None:
    files, (team, persona_name) = library
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        for path, text in files.items():
            world.write(path, text)
        registry = world.registry(team=team, persona=persona_name, use_index=False)
        check_agreement(registry, SkillRegistry(library=registry))


def check_agreement(registry: Registry, session: SkillRegistry) -> None:
    listed = {one.full_name for one, _ in registry.visible_skills()}
    loadable = session.list_skill_names()
    found = {
        hit.skill.full_name
        for word in ("alpha", "beta", "gamma", "delta", "word")
        for hit in search_skills(registry, word)
    }
    assert set(session.scan_skills().skills) == listed
    assert listed <= found | {one.full_name for one in registry.skills if one.root.scope == "built-in"}
    assert found <= set(loadable)
    assert loadable == sorted(loadable)
    catalog = session.get_skill_catalog("list")
    assert {line[2:].split(": ")[0] for line in catalog.splitlines() if line.startswith("- ")} == listed
    for one in registry.skills:
        verdict = registry.evaluate(one)
        may = one.full_name in loadable
        assert verdict.model == may
        assert verdict.listed == (one.full_name in listed)
        assert session.has_skill(one.full_name) == session.has_skill(one.full_name.upper()) == may
        if may:
            assert session.load_skill(one.full_name).metadata.path == one.path
        else:
            with pytest.raises(KitbagError):
                session.load_skill(one.full_name)
            assert not session.is_skill_loaded(one.full_name)
        if one.full_name in found:  # what a search names can be loaded by what it says
            assert session.load_skill(one.full_name).metadata.description == one.description
        if session.has_skill(one.name):  # a short name never opens what the full one does not
            assert session.load_skill(one.name).metadata.full_name in loadable


def test_a_subagent_without_the_skill_tool_gets_no_catalog(world: World) -> None:
    world.skill(".kitbag/skills", "x")
    for name, tools in (("reader", "Read"), ("loader", "Read, Skill"), ("heir", "")):
        line = f"tools: {tools}\n" if tools else ""
        world.write(f".kitbag/agents/{name}.md", f"---\nname: {name}\ndescription: d\n{line}---\nWork.\n")
    registry = world.registry(use_index=False)
    assert registry.visible_skills(registry.find_agent("reader")) == []
    for name in ("loader", "heir"):
        assert "x" in [one.full_name for one, _ in registry.visible_skills(registry.find_agent(name))]


def test_an_agent_whose_tools_name_one_skill_sees_only_that(tmp_path: Path) -> None:
    for name in ("open", "closed"):
        folder = tmp_path / "ws" / ".kitbag" / "skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\n---\n")
    agents = tmp_path / "ws" / ".claude" / "agents"
    agents.mkdir(parents=True)
    (agents / "a.md").write_text("---\nname: a\ndescription: d\ntools: Read, Skill(open)\n---\n")
    here = str(tmp_path / "ws")
    registry = Registry(scopes.Places(here, str(tmp_path), str(tmp_path / "home"), (here,)))
    assert [skill.name for skill, _ in registry.visible_skills(registry.find_agent("a"))] == ["open"]


def test_core_skills_of_a_persona_narrow_the_core_folders(world: World) -> None:
    for name in ("ado_basics", "git_ops", "telemetry"):
        world.write(f".kitbag/skills/core/{name}.md", f"---\nname: {name}\ndescription: d\n---\nx\n")
    world.skill(".kitbag/skills/core", "folder")
    world.write(".kitbag/skills/ops/core/tickets.md", "---\nname: tickets\ndescription: d\n---\nx\n")
    world.write(".kitbag/skills/ops/core/reports.md", "---\nname: reports\ndescription: d\n---\nx\n")
    world.skill(".kitbag/skills", "ordinary")
    world.write(".kitbag/skills/ops/_persona_support.yaml", "core_skills: [ado_basics, telemetry, tickets]\n")
    world.write(".kitbag/skills/ops/_persona_plain.yaml", "description: no core_skills\n")

    def listed(**selection: str) -> set[str]:
        pairs = world.registry(**selection).visible_skills()
        return {skill.name for skill, _ in pairs if skill.root.scope == "project"}

    everything = {"ado_basics", "git_ops", "telemetry", "folder", "ordinary"}
    assert listed() == everything
    assert listed(team="ops", persona="plain") == {*everything, "tickets", "reports"}
    assert listed(team="ops", persona="support") == {"ado_basics", "telemetry", "tickets", "ordinary"}
    registry = world.registry(team="ops", persona="support")
    verdict = registry.evaluate(registry.find_skill("git_ops"))
    assert (verdict.model, verdict.searchable, verdict.reason) == (
        True, False, "not a core skill of support: load it as git_ops",
    )  # fmt: skip
