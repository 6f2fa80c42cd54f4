"""A session's skills, by the method names of seed 002."""

import os
import subprocess
import sys

import pytest

import kitbag
from conftest import World
from kitbag.errors import AmbiguousError, InvalidError, NotFoundError
from kitbag.packing.skill_registry import SkillRegistry
from kitbag.text.tokens import estimate_tokens
from support.waiting import TEST_TIMEOUT

TEAM = ".kitbag/skills/omnia-data"


@pytest.fixture
def seed(world: World) -> World:
    """The folders of seed 002."""
    flat = "---\nname: {0}\ndescription: About {0}.\n{1}---\nThe body of {0}.\n"
    world.write(".kitbag/skills/core/git_ops.md", flat.format("git_ops", ""))
    world.write(f"{TEAM}/_team.md", "The data team.")
    world.write(
        f"{TEAM}/_persona_developer.yaml",
        "name: developer\nskills: [code_review]\non_demand_skills: [pyspark_review]\nsubagents: [code-reviewer]\n",
    )
    world.write(f"{TEAM}/_persona_support.yaml", "name: support\n")
    world.write(f"{TEAM}/core/ado_basics.md", flat.format("ado_basics", ""))
    world.write(
        f"{TEAM}/developer/code_review.md",
        flat.format(
            "code_review", 'display_name: "Code Review"\nversion: "1.10"\ntags: [quality]\ntriggers: [review]\n'
        ),
    )
    world.write(f"{TEAM}/developer/pyspark_review.md", flat.format("pyspark_review", ""))
    world.write(f"{TEAM}/support/rca.md", flat.format("rca", "subagents:\n  - investigation-reporter\n"))
    for path, name in (
        ("_subagents", "code-reviewer"),
        ("support/_subagents", "investigation-reporter"),
    ):
        world.write(
            f"{TEAM}/{path}/{name}.yaml", f"name: {name}\ndescription: d\nprompt: You are {name}.\ntools: [Read]\n"
        )
    return world


def session(world: World, team: str = "", persona: str = "") -> SkillRegistry:
    return SkillRegistry(team, persona, places=world.places())


def own(names: list[str]) -> list[str]:
    return [name for name in names if name not in ("task-executor", "writing-agents", "writing-skills")]


# -- the eight methods ------------------------------------------------------------------------------


def test_the_library_s_front_door_is_the_seed_s_class() -> None:
    assert kitbag.SkillRegistry is SkillRegistry
    for method in (
        "scan_skills",
        "get_skill_catalog",
        "get_available_subagents",
        "is_skill_loaded",
        "load_skill",
        "get_loaded_skills_summary",
        "has_skill",
        "list_skill_names",
    ):
        assert callable(getattr(SkillRegistry, method))


def test_scan_skills_gives_what_the_persona_starts_with(seed: World) -> None:
    index = session(seed, "omnia-data", "developer").scan_skills()
    assert own(list(index.skills)) == ["git_ops", "omnia-data/ado_basics", "omnia-data/code_review"]
    assert index.skills["git_ops"].description == "About git_ops."
    assert "omnia-data/code-reviewer" in index.subagents or "code-reviewer" in index.subagents
    assert index.diagnostics == []
    assert 0 < index.token_estimate < 1_000


def test_scan_skills_says_which_team_or_persona_does_not_exist(seed: World) -> None:
    for team, persona in (("nope", ""), ("omnia-data", "nope"), ("", "nope")):
        with pytest.raises(NotFoundError, match="nope"):
            session(seed, team, persona).scan_skills()


def test_get_skill_catalog_is_the_seed_s_table(seed: World) -> None:
    text = session(seed, "omnia-data", "developer").get_skill_catalog()
    assert text.startswith(
        "## Available Skills\n\nUse the `load_skill` tool to load any skill before using its capabilities.\n\n"
        "| Skill | Description | Use When |\n"
    )
    assert "| omnia-data/code_review | About code_review. |  |" in text
    assert "pyspark_review" not in text
    assert "rca" not in text
    assert session(seed).get_skill_catalog("list").startswith("<available-skills>")


def test_get_available_subagents_follow_the_persona(seed: World) -> None:
    def agents(persona: str) -> set[str]:
        found = session(seed, "omnia-data", persona).get_available_subagents()
        return {agent.name for agent in found.values() if agent.root.scope != "built-in"}

    assert agents("developer") == {"code-reviewer"}
    assert agents("support") == {"code-reviewer", "investigation-reporter"}
    assert session(seed).get_available_subagents().keys() == {"Bash", "Explore", "Plan", "Review", "general-purpose"}


def test_load_skill_gives_metadata_and_body(seed: World) -> None:
    skills = session(seed, "omnia-data", "developer")
    loaded = skills.load_skill("code_review")
    metadata = loaded.metadata
    assert (metadata.name, metadata.full_name) == ("code_review", "omnia-data/code_review")
    assert (metadata.display_name, metadata.version) == ("Code Review", "1.10")
    assert (metadata.tags, metadata.triggers) == (("quality",), ("review",))
    assert loaded.content == "The body of code_review."
    assert loaded.text.startswith('<skill-invocation name="omnia-data/code_review">\n')
    assert loaded.tokens == estimate_tokens(loaded.text)


def test_on_demand_skills_are_loaded_by_name_though_not_in_the_catalog(seed: World) -> None:
    skills = session(seed, "omnia-data", "developer")
    assert skills.has_skill("pyspark_review")
    assert skills.load_skill("pyspark_review").content == "The body of pyspark_review."


def test_has_skill_and_list_skill_names_agree_with_load_skill(seed: World) -> None:
    skills = session(seed, "omnia-data", "developer")
    names = skills.list_skill_names()
    assert own(names) == ["git_ops", "omnia-data/ado_basics", "omnia-data/code_review", "omnia-data/pyspark_review"]
    for name in names:
        assert skills.has_skill(name)
        assert skills.load_skill(name).metadata.full_name == name
    assert not skills.has_skill("rca")
    assert not skills.has_skill("omnia-data/rca")
    assert not skills.has_skill("")


def test_without_a_persona_a_team_s_skill_needs_its_full_name(seed: World) -> None:
    skills = session(seed)
    assert skills.load_skill("omnia-data/rca").content == "The body of rca."
    with pytest.raises(NotFoundError) as raised:
        skills.load_skill("rca")
    assert raised.value.fix == "did you mean omnia-data/rca?"


def test_is_skill_loaded_knows_every_spelling_of_a_loaded_skill(seed: World) -> None:
    skills = session(seed, "omnia-data", "developer")
    assert not skills.is_skill_loaded("code_review")
    skills.load_skill("CODE-REVIEW")
    for name in ("code_review", "omnia-data/code_review", "Code Review"):
        assert skills.is_skill_loaded(name)
    assert not skills.is_skill_loaded("git_ops")
    assert not skills.is_skill_loaded("no-such-skill")


def test_get_loaded_skills_summary_tells_names_tokens_and_times(seed: World) -> None:
    skills = session(seed, "omnia-data", "developer")
    assert skills.get_loaded_skills_summary() == "No skills are loaded."
    tokens = [skills.load_skill(name).tokens for name in ("code_review", "git_ops")]
    first, second, last = skills.get_loaded_skills_summary().split("\n")
    assert first.startswith(f"- omnia-data/code_review: {tokens[0]} tokens, loaded 20")
    assert second.startswith(f"- git_ops: {tokens[1]} tokens, loaded 20")
    assert last == f"2 loaded, {sum(tokens)} tokens in total."
    context = skills.loaded()
    assert (context.loaded_skills, context.total_tokens) == (["omnia-data/code_review", "git_ops"], sum(tokens))
    assert first.endswith("Z")
    assert context.timestamp.endswith("Z")


def test_a_skill_that_is_unloaded_is_gone_from_the_summary(seed: World) -> None:
    skills = session(seed)
    skills.load_skill("git_ops")
    assert skills.unload_skill("GIT_OPS") is True
    assert skills.unload_skill("git_ops") is False
    assert skills.unload_skill("never heard of") is False
    assert skills.get_loaded_skills_summary() == "No skills are loaded."


# -- what can't be loaded ----------------------------------------------------------------------------


def test_an_unknown_name_is_answered_with_close_names_that_can_be_loaded(world: World) -> None:
    for name in ("deploy-web", "deploy-api", "deploy-off", "deploy-user"):
        world.skill(".kitbag/skills", name)
    world.write("~/.kitbag/settings.toml", '[skills]\ndeploy-off = "off"\ndeploy-user = "user-only"\n')
    with pytest.raises(NotFoundError) as raised:
        session(world).load_skill("deploy-wep")
    assert raised.value.problem == "no skill named 'deploy-wep'"
    assert raised.value.fix == "did you mean deploy-web, deploy-api?"
    with pytest.raises(NotFoundError) as raised:
        session(world).load_skill("zzzzzz")
    assert raised.value.fix == "use a name from the catalog, or search for one"


def test_a_skill_that_is_closed_to_models_says_why(world: World) -> None:
    world.skill(".kitbag/skills", "manual", disable_model_invocation="true")
    world.skill(".kitbag/skills", "gone")
    world.write("~/.kitbag/settings.toml", '[skills]\ngone = "off"\n')
    skills = session(world)
    with pytest.raises(InvalidError) as raised:
        skills.load_skill("manual")
    assert raised.value.problem == "'manual' cannot be loaded by the model: disable-model-invocation is set in its file"
    with pytest.raises(InvalidError, match="disabled in "):
        skills.load_skill("gone")
    assert own(skills.list_skill_names()) == []


def test_a_short_name_that_two_plugins_have_is_an_error_with_both(world: World) -> None:
    for plugin in ("git", "hg"):
        world.write(f"{plugin}/.claude-plugin/plugin.json", f'{{"name": "{plugin}"}}')
        world.write(f"{plugin}/skills/commit/SKILL.md", "---\nname: commit\ndescription: d\n---\nx\n")
        world.ok("plugins", "install", f"./{plugin}")
    skills = session(world)
    with pytest.raises(AmbiguousError, match="git:commit, hg:commit"):
        skills.load_skill("commit")
    assert not skills.has_skill("commit")
    assert skills.load_skill("git:commit").metadata.full_name == "git:commit"


def test_a_file_that_can_t_be_read_is_an_error_and_not_an_empty_skill(world: World) -> None:
    path = world.skill(".kitbag/skills", "x")
    skills = session(world)
    assert skills.has_skill("x")
    path.write_bytes(b"---\nname: x\n---\n\0\0\0")
    with pytest.raises(InvalidError, match="NUL"):
        skills.load_skill("x")
    path.unlink()
    with pytest.raises(InvalidError, match="cannot read file"):
        skills.load_skill("x")
    assert not skills.is_skill_loaded("x")


# -- a session of its own ----------------------------------------------------------------------------


def test_two_sessions_share_nothing(seed: World) -> None:
    one, two = session(seed, "omnia-data", "developer"), session(seed, "omnia-data", "support")
    one.load_skill("code_review")
    assert not two.is_skill_loaded("omnia-data/code_review")
    assert two.get_loaded_skills_summary() == "No skills are loaded."
    assert one.list_skill_names() != two.list_skill_names()
    assert two.has_skill("rca")
    assert not one.has_skill("rca")


def test_a_loaded_skill_is_kept_until_its_file_changes(world: World) -> None:
    path = world.skill(".kitbag/skills", "x", body="Old.")
    skills = session(world)
    first = skills.load_skill("x")
    assert skills.load_skill("X") is first
    path.write_text("---\nname: x\ndescription: d\n---\nNew text.\n")
    assert skills.load_skill("x").content == "New text."
    assert skills.loaded().loaded_skills == ["x"]


def test_refresh_reports_what_was_added_edited_and_removed(world: World) -> None:
    edited, removed = world.skill(".kitbag/skills", "edited"), world.skill(".kitbag/skills", "removed")
    skills = session(world)
    skills.scan_skills()
    assert skills.refresh() == []
    skills.load_skill("removed")
    world.skill(".kitbag/skills", "added")
    world.write(".kitbag/agents/helper.md", "---\nname: helper\ndescription: d\n---\nWork.\n")
    edited.write_text("---\nname: edited\ndescription: Now other words.\n---\nx\n")
    removed.unlink()
    os.rmdir(removed.parent)
    assert [str(change) for change in skills.refresh()] == [
        "+ agent helper",
        "+ skill added",
        "~ skill edited",
        "- skill removed",
    ]
    assert "Now other words." in skills.get_skill_catalog()
    assert not skills.has_skill("removed")
    assert skills.is_skill_loaded("removed")  # its text is still in the conversation
    assert skills.unload_skill("removed")
    assert skills.refresh() == []


# -- what it costs -----------------------------------------------------------------------------------

# Counts what the process reads while it scans, and prints kilobytes.
COUNTED = """
import sys
from kitbag import SkillRegistry
def read_so_far():
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])
skills = SkillRegistry(cwd=sys.argv[1])
import kitbag.library.agents, kitbag.library.library_checks, kitbag.library.discover, yaml, tomllib, pathspec
SkillRegistry(cwd="/").scan_skills()  # whatever is imported late is imported now
before = read_so_far()
index = skills.scan_skills()
assert len(index.skills) == 53, len(index.skills)
skills.get_skill_catalog()
print((read_so_far() - before) // 1024)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="the kernel does not count reads")
def test_only_heads_are_read_at_start(world: World) -> None:
    for number in range(50):
        world.skill(".kitbag/skills", f"s{number:02d}", body="x" * 1_000_000)
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, str(world.workspace)],
        env=world.env,
        capture_output=True,
        text=True,
        timeout=TEST_TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1_000  # of 50,000


def test_a_body_that_is_no_text_is_not_noticed_before_it_is_asked_for(world: World) -> None:
    world.write(".kitbag/skills/x/SKILL.md", b"---\nname: x\ndescription: Fine.\n---\n" + b"ok\n" * 5_000 + b"\0\xff")
    skills = session(world)
    assert skills.scan_skills().diagnostics == []
    assert "Fine." in skills.get_skill_catalog()
    with pytest.raises(InvalidError):
        skills.load_skill("x")


def test_starting_with_ten_skills_costs_at_most_a_tenth_of_loading_them(world: World) -> None:
    """With skills of the usual size: bodies of 700 to 2,900 tokens, descriptions of 231 characters."""
    for number in range(10):
        description = f"Skill {number} " + "does what its many words say it does. " * 6
        world.skill(
            "skills", f"skill-{number}", description=description[:231], body="Read the change as a whole. " * 250
        )
    off = "".join(f'{name} = "off"\n' for name in ("task-executor", "writing-agents", "writing-skills"))
    world.write("~/.kitbag/settings.toml", f"[skills]\n{off}")
    skills = SkillRegistry(places=world.places(), extra=[str(world.workspace / "skills")])
    start = estimate_tokens(skills.get_skill_catalog("list"))
    whole = sum(skills.load_skill(f"skill-{number}").tokens for number in range(10))
    assert skills.catalog().described == 10
    assert start <= whole / 10
    assert skills.scan_skills().token_estimate <= whole / 10
