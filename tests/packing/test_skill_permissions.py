"""What a skill's head says about tools, as rules and limits, and who is given what it asks for."""

from typing import Any

import pytest

from conftest import World
from kitbag.library.scopes import find_places
from kitbag.packing.session_skills import SessionSkills
from kitbag.packing.skill_permissions import SkillPermissions, deny_grant_by_trust
from kitbag.permissions.trust.workspace_trust import check_trust, trust_workspace


def rights(world: World, head: str, folder: str = "~/.kitbag/skills") -> SkillPermissions | None:
    world.write(f"{folder}/it/SKILL.md", f"---\nname: it\ndescription: x\n{head}\n---\nDo it.\n")
    return SessionSkills(world.registry()).load("it").permissions


def texts(found: SkillPermissions | None) -> list[str]:
    assert found is not None
    return [rule.text for rule in found.grants]


@pytest.mark.parametrize(
    ("written", "rules"),
    [
        ("allowed-tools: Bash(git log:*) Read", ["Read", "Bash(git log:*)"]),
        ("allowed-tools: Bash(git log:*), Read", ["Read", "Bash(git log:*)"]),
        ("allowed-tools: [Read, 'Bash(npm run *)']", ["Read", "Bash(npm run *)"]),
        ("allowed_tools: read_file", ["Read"]),
        ("allowedTools: run_shell_command(git status)", ["Bash(git status)"]),
        ("allowed-tools: Read, Frobnicate", ["Read"]),
    ],
)
def test_every_way_to_write_the_list_is_understood(world: World, written: str, rules: list[str]) -> None:
    assert sorted(texts(rights(world, written))) == sorted(rules)


@pytest.mark.parametrize(
    "written", ["version: 1", "allowed-tools:", "tools: Bash", "allowed-tools: '*'", "allowed-tools: []"]
)
def test_who_asks_for_nothing_by_name_gets_nothing(world: World, written: str) -> None:
    assert rights(world, written) is None


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("restrict-tools: Read, Grep", "only these tools are available: Read, Grep"),
        ("restrict_tools: [Bash(git log:*), Read]", "only these tools are available: Read, Bash(git log:*)"),
        ("disallowed-tools: Bash", "these are unavailable: Bash"),
        ("disallowedTools: Bash(rm:*)", "these are unavailable: Bash(rm:*)"),
        (
            "restrict-tools: Read, Bash\ndisallowed-tools: Bash",
            "only these tools are available: Read; these are unavailable: Bash",
        ),
        ("restrict-tools: []", "no tools are available"),
        ("restrict-tools: Frobnicate", "no tools are available"),
    ],
)
def test_limits_are_told_to_model_and_person(world: World, written: str, words: str) -> None:
    found = rights(world, written)
    assert found is not None
    assert found.model_notice() == f"[While this skill is in use, until the next user message: {words}.]"
    assert found.user_notice() == f"until your next message: {words}"


@pytest.mark.parametrize(
    "written", ["restrict-tools:", "restrict-tools: '*'", "disallowed-tools: []", "disallowed-tools: ''"]
)
def test_an_empty_limit_is_none(world: World, written: str) -> None:
    assert rights(world, written) is None


def test_the_skill_s_own_folder_may_stand_in_a_rule(world: World) -> None:
    (rule,) = texts(rights(world, "allowed-tools: 'Bash(${CLAUDE_SKILL_DIR}/scripts/run.sh:*)'"))
    assert rule == f"Bash({world.home}/.kitbag/skills/it/scripts/run.sh:*)"


def test_a_folder_s_name_can_not_widen_a_rule(world: World) -> None:
    world.home.joinpath("a *)").mkdir()
    found = rights(world, "allowed-tools: 'Bash(${CLAUDE_SKILL_DIR}/x)'", "~/.kitbag/skills/a *, b")
    assert found is not None
    assert texts(found) == ["Bash(${CLAUDE_SKILL_DIR}/x)"]


def test_words_for_a_person_are_one_line_without_surprises(world: World) -> None:
    found = rights(world, 'allowed-tools: ["Bash(echo a\\u202e</x>:*)"]')
    assert found is None or "\u202e" not in found.user_notice()


class TestWhoIsGivenWhatItAsksFor:
    @pytest.fixture(autouse=True)
    def at_home(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(world.home))
        monkeypatch.delenv("KITBAG_HOME", raising=False)

    def found(self, world: World, name: str, **options: Any) -> SkillPermissions | None:
        places = find_places(str(world.workspace))
        trust = check_trust(places, **options)
        return SessionSkills(world.registry(), deny_grant=deny_grant_by_trust(trust, places)).load(name).permissions

    def test_a_user_s_skill_is(self, world: World) -> None:
        world.skill("~/.claude/skills", "own", allowed_tools="Bash")
        assert texts(self.found(world, "own")) == ["Bash"]

    def test_a_trusted_project_s_skill_is_as_long_as_it_is_the_same(self, world: World) -> None:
        world.skill(".kitbag/skills", "its", allowed_tools="Bash(make:*)")
        places = find_places(str(world.workspace))
        trust_workspace(places, check_trust(places))
        trust = check_trust(places)
        skills = SessionSkills(world.registry(), deny_grant=deny_grant_by_trust(trust, places))
        assert texts(skills.load("its").permissions) == ["Bash(make:*)"]
        world.skill(".kitbag/skills", "its", allowed_tools="Bash")
        world.skill(".kitbag/skills", "new", allowed_tools="Bash")
        skills.library.refresh()
        for name in ("its", "new"):
            changed = skills.load(name).permissions
            assert changed is not None
            assert (changed.grants, changed.denied_grants) == ((), ("Bash",))
            assert "it was added after the workspace was trusted" in changed.denial_reason

    def test_a_project_s_skill_is_when_the_person_says_so_for_this_run(self, world: World) -> None:
        world.skill(".kitbag/skills", "its", allowed_tools="Bash")
        assert texts(self.found(world, "its", trusted_for_run=True)) == ["Bash"]
        untrusted = self.found(world, "its")
        assert untrusted is not None
        assert not untrusted.grants

    def test_a_plugin_s_skill_is_never_but_its_limits_count(self, world: World) -> None:
        plugin = world.outside / "kit"
        world.write(".claude-plugin/plugin.json", '{"name": "kit", "version": "1.0.0"}', plugin)
        head = "---\nname: ship\ndescription: x\nallowed-tools: Bash\ndisallowed-tools: WebFetch\n---\nShip.\n"
        world.write("skills/ship/SKILL.md", head, plugin)
        world.ok("plugins", "install", str(plugin))
        found = self.found(world, "kit:ship", trusted_for_run=True)
        assert found is not None
        assert (found.grants, found.denied_grants) == ((), ("Bash",))
        assert "plugin skills cannot grant permissions" in found.user_notice()
        assert found.tool_limit is not None
        assert not found.tool_limit.allows("WebFetch")
