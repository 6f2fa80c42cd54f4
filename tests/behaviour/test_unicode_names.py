"""Names and paths are the same whether an accent is a character of its own (NFD) or not (NFC), wherever they are compared."""

import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from behaviour.acting import MODES
from conftest import World
from kitbag.chat.unknown_commands import describe_unknown_command
from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.library.item_states import set_item_state
from kitbag.mcp_server.skill_uris import _lookup_key  # pyright: ignore[reportPrivateUsage]
from kitbag.packing.session_skills import SessionSkills
from kitbag.permissions.model import Effect
from kitbag.permissions.paths import examine_path
from kitbag.permissions.rules.path_patterns import denied_writes
from kitbag.permissions.trust.workspace_trust import check_trust
from kitbag.sandbox.protected_writes import DeniedPattern, ProtectedWrites, WriteRequest
from kitbag.tools.mcp_client.configured_servers import configured_servers
from permissions.deciding import permissions, workspace_in

NFC = "prüfung-é"
NFD = unicodedata.normalize("NFD", NFC)
FORMS = [(NFC, NFD), (NFD, NFC)]
each_way = pytest.mark.parametrize(("one", "other"), FORMS, ids=["NFC, then NFD", "NFD, then NFC"])


CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("Read(./{}.txt)", "Read", {"file_path": "{}.txt"}),
    ("Read({}/**)", "Read", {"file_path": "{}/a/b.txt"}),
    ("Read({}/**)", "Glob", {"pattern": "*", "path": "{}"}),
    ("Read(**/*{}*)", "Grep", {"pattern": "x", "path": "src/x{}.py"}),
    ("Edit({}.txt)", "Write", {"file_path": "src/{}.txt", "content": ""}),
    ("Edit(~/{}/x)", "Edit", {"file_path": "~/{}/x"}),
    ("Read({}.txt)", "Bash", {"command": "cat {}.txt"}),
    ("Bash(./{}:*)", "Bash", {"command": "./{} now"}),
    ("Skill({})", "Skill", {"skill": "{}"}),
    ("Skill({}:*)", "Skill", {"skill": "{}", "args": "x"}),
    ("Skill({})", "Skill", {"skill": "plugin:{}"}),
    ("Task({})", "Task", {"subagent_type": "{}", "prompt": "x"}),
    ("WebSearch(query:*{}*)", "WebSearch", {"query": "about {}"}),
]


@each_way
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("rule", "tool", "arguments"), CALLS, ids=[f"{rule}-{tool}" for rule, tool, _ in CALLS])
def test_a_rule_that_denies_holds_for_the_other_form(
    tmp_path: Path, mode: PermissionMode, rule: str, tool: str, arguments: dict[str, Any], one: str, other: str
) -> None:
    given = {key: value.replace("{}", other) for key, value in arguments.items()}
    denying = permissions(tmp_path, mode, deny=(rule.replace("{}", one),), allow=("Bash(*)", "Skill", "Task"))
    assert denying.decide(tool, given).effect == "deny"
    upper = {key: value.replace("{}", other.upper()) for key, value in arguments.items()}
    if tool != "Bash":  # the letter case of a command matters
        assert denying.decide(tool, upper).effect == "deny"


@each_way
@pytest.mark.parametrize(
    ("rule", "tool", "arguments"),
    [
        ("Edit(./{}.txt)", "Edit", {"file_path": "{}.txt"}),
        ("Skill({})", "Skill", {"skill": "{}"}),
        ("Task({})", "Task", {"subagent_type": "{}", "prompt": "x"}),
    ],
)
def test_a_rule_that_allows_means_the_same_name_and_the_same_letter_case(
    tmp_path: Path, rule: str, tool: str, arguments: dict[str, Any], one: str, other: str
) -> None:
    def effect(name: str) -> Effect:
        allowing = permissions(tmp_path, "locked", allow=(rule.replace("{}", one),), ask=("Skill(nothing)",))
        return allowing.decide(tool, {key: value.replace("{}", name) for key, value in arguments.items()}).effect

    assert effect(other) == "allow"
    if tool != "Skill":  # which needs no rule
        assert effect(other.upper()) == "deny"


@each_way
def test_the_sandbox_keeps_a_command_from_writing_what_a_rule_denies(tmp_path: Path, one: str, other: str) -> None:
    workspace = workspace_in(tmp_path)
    denied = [
        DeniedPattern(pattern.anchor, pattern.regex, pattern.only_names, pattern.rule)
        for pattern in denied_writes(f"./{one}/**", "/", workspace, "the rule")
    ]
    guard = ProtectedWrites(roots=[workspace.root], repositories=[], read_only=[], pinned=[], allowed=[], denied=denied)
    path = f"{workspace.root}/{other}/a.txt"
    assert re.search(guard.suspicious_names(), path.encode())
    request = WriteRequest(path=path, call="openat", exists=False, replaces=False, source="", parent=-1)
    found = guard.find(request)
    assert found is not None
    assert not found.may_ask


@each_way
def test_kitbag_s_own_files_are_control_paths(tmp_path: Path, one: str, other: str) -> None:
    from msgspec.structs import replace

    workspace = replace(workspace_in(tmp_path), kitbag_home=f"{tmp_path}/{one}")
    assert examine_path(f"{tmp_path}/{other}/settings.toml", workspace).control_reason
    assert examine_path(f"{tmp_path}/{other}/keys.toml", workspace).private_reason


@each_way
def test_skills_agents_personas_and_teams_are_found(world: World, one: str, other: str) -> None:
    world.skill("~/.kitbag/skills", one)
    world.write(f"~/.kitbag/agents/{one}.md", f"---\nname: {one}\ndescription: Helps.\nskills: [{other}]\n---\nHelp.")
    world.write(f"~/.kitbag/personas/{one}/_persona_{one}.yaml", f"name: {one}\nteam: {other}\ndescription: P.\n")
    library = world.registry()
    assert library.find_skill(other.upper()).name == one
    assert library.find_agent(other).name == one
    assert library.find_persona(f"{other}/{other}").team == one
    assert world.registry(team=other).team == one
    assert not [problem for problem in library.diagnostics() if "team" in problem.problem]
    assert not [problem for problem in library.diagnostics() if problem.code == "unknown-name"]


@each_way
def test_a_skill_switched_off_stays_off_and_is_switched_on_again(world: World, one: str, other: str) -> None:
    world.skill("~/.kitbag/skills", one)
    settings = world.write("~/.kitbag/settings.toml", f'[skills]\n"{other.upper()}" = "off"\n"{other}" = "off"\n')
    assert world.registry().evaluate(world.registry().find_skill(one)).state == "off"
    assert set_item_state(world.registry(), "skills", other, "on").effective == "on"
    assert "off" not in settings.read_text()


@each_way
def test_a_name_typed_in_the_chat_is_found_and_a_wrong_one_is_reported(world: World, one: str, other: str) -> None:
    world.skill("~/.kitbag/skills", one)
    skills = SessionSkills(world.registry())
    assert describe_unknown_command(f"/{other} now", skills) is None
    wrong = describe_unknown_command(f"/{other}x now", skills)
    assert wrong is not None
    assert one in wrong.fix


@each_way
def test_a_server_that_the_user_disabled_stays_disabled(world: World, one: str, other: str) -> None:
    world.write("~/.kitbag/settings.toml", f'[mcp_servers."{one}"]\ncommand = "x"\nenabled = false\n')
    world.write(".mcp.json", f'{{"mcpServers": {{"{other}": {{"command": "y"}}}}}}')
    places = world.places()
    servers = configured_servers(places, check_trust(places), world.registry().settings)
    assert [server.state for server in servers] == ["off", "off"]


def test_the_uri_of_a_skill_is_the_same_in_both_forms() -> None:
    assert _lookup_key(NFC) == _lookup_key(NFD.upper())
