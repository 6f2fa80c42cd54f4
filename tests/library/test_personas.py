"""Persona files of seed 002: what is read, and what is said of the rest."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import World
from kitbag.errors import Diagnostic, NotFoundError
from kitbag.library.personas import PERSONA_FIELDS, Persona, read_persona
from kitbag.library.scopes import Root

ROOT = Root("/skills", "skills", "project", "kitbag", (1, 0))

WHOLE = """\
name: developer
display_name: Developer
description: Writes and reviews code.
team: omnia-data
core_skills: [ado_basics, git_ops]
skills:
  - code_review
  - pr_management
on_demand_skills: python_review, pyspark_review
subagents:
  - code-reviewer
system_prompt_additions: |
  You help developers.
  Be short.
default_model: sonnet
"""


def read(
    tmp_path: Path, text: str | bytes, name: str = "_persona_dev.yaml", team: str = ""
) -> tuple[Persona, list[Diagnostic]]:
    persona, found = attempt(tmp_path, text, name, team)
    assert persona is not None
    return persona, found


def attempt(
    tmp_path: Path, text: str | bytes, name: str = "_persona_dev.yaml", team: str = ""
) -> tuple[Persona | None, list[Diagnostic]]:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_persona(str(path), ROOT, team)


def test_every_field_of_the_seed_is_read(tmp_path: Path) -> None:
    persona, found = read(tmp_path, WHOLE)
    assert found == []
    assert (persona.name, persona.display_name, persona.team) == ("developer", "Developer", "omnia-data")
    assert persona.full_name == "omnia-data/developer"
    assert persona.description == "Writes and reviews code."
    assert persona.core_skills == ("ado_basics", "git_ops")
    assert persona.skills == ("code_review", "pr_management")
    assert persona.on_demand_skills == ("python_review", "pyspark_review")
    assert persona.subagents == ("code-reviewer",)
    assert persona.system_prompt_additions == "You help developers.\nBe short."
    assert persona.default_model == "sonnet"


@pytest.mark.parametrize("name", ["_persona_support.yaml", "_persona_support.yml", "support.yaml"])
def test_the_file_gives_the_name_where_none_is_written(tmp_path: Path, name: str) -> None:
    persona, found = read(tmp_path, "description: Helps.\n", name)
    assert (persona.name, persona.display_name, persona.full_name, found) == ("support", "support", "support", [])


def test_the_folder_of_a_team_counts_more_than_what_the_file_says(tmp_path: Path) -> None:
    persona, found = read(tmp_path, "name: dev\nteam: other\n", team="data")
    assert persona.full_name == "data/dev"
    assert "'other'" in found[0].problem
    assert read(tmp_path, "name: dev\nteam: Data\n", team="data")[1] == []


@pytest.mark.parametrize("nothing", ["subagents:", "subagents: ~", "subagents: null", ""])
def test_a_persona_that_does_not_speak_of_subagents_has_all_of_its_team_s(tmp_path: Path, nothing: str) -> None:
    assert read(tmp_path, f"name: dev\n{nothing}\n")[0].subagents is None


def test_an_empty_list_of_subagents_is_none_of_them(tmp_path: Path) -> None:
    assert read(tmp_path, "name: dev\nsubagents: []\n")[0].subagents == ()


def test_no_value_is_no_name(tmp_path: Path) -> None:
    persona, found = read(tmp_path, "name: ~\nskills: null\ncore_skills:\nteam: ~\ndisplay_name: null\n")
    assert (persona.name, persona.team, persona.display_name, persona.declared_skills) == ("dev", "", "dev", ())
    assert found == []


def test_additions_may_be_a_list_of_lines(tmp_path: Path) -> None:
    persona, _ = read(tmp_path, "system_prompt_additions:\n  - Be short.\n  - Ask first.\n")
    assert persona.system_prompt_additions == "Be short.\nAsk first."


def test_yaml_that_is_none_is_read_field_by_field_and_told_with_its_line(tmp_path: Path) -> None:
    persona, found = read(tmp_path, "name: dev\ndescription: Use when: somebody asks\nskills: [a, b]\n")
    assert (persona.name, persona.description, persona.skills) == ("dev", "Use when: somebody asks", ("a", "b"))
    assert [(d.severity, d.code, d.line) for d in found] == [("warning", "yaml-recovered", 2)]


def test_unknown_fields_are_told_with_those_that_exist(tmp_path: Path) -> None:
    _, found = read(tmp_path, "name: dev\nskill: [a]\n")
    assert found[0].problem == "unknown field `skill`; ignored"
    assert "skills" in found[0].fix


def test_a_map_where_a_list_belongs_is_told(tmp_path: Path) -> None:
    persona, found = read(tmp_path, "skills:\n  a: 1\n")
    assert persona.skills == ()
    assert "`skills` must be a list" in found[0].problem


def test_names_and_texts_can_t_hide_or_escape(tmp_path: Path) -> None:
    persona, found = read(tmp_path, 'name: ../../x\nteam: ../up\ndescription: "a\\u202eb"\n')
    assert (persona.name, persona.description) == ("dev", "ab")
    assert "/" not in persona.team
    assert {d.code for d in found} == {"name-unusable", "hidden-characters"}


@pytest.mark.parametrize(
    "text", ["", "\n\n", "- a\n- b\n", "only words\n", "x: [", "\0\0", "a: &a [*a]\n" * 3, "[" * 5_000, "{" * 5_000]
)
def test_a_file_that_is_no_persona_is_an_error_and_never_raises(tmp_path: Path, text: str) -> None:
    persona, found = attempt(tmp_path, text)
    assert persona is None or persona.name == "dev"
    assert any(d.severity in ("error", "warning") for d in found)
    assert all("the frontmatter" not in d.problem for d in found)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    persona, found = read_persona(str(tmp_path / "_persona_gone.yaml"), ROOT)
    assert persona is None
    assert [d.severity for d in found] == ["error"]


values = st.text(max_size=12) | st.lists(st.text(max_size=6), max_size=3).map(str)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([*sorted(PERSONA_FIELDS), "other"]), values))
def test_whatever_stands_in_the_fields_a_persona_or_an_error_comes_out(fields: dict[str, str]) -> None:
    import tempfile

    text = "".join(f"{key}: {value}\n" for key, value in fields.items())
    with tempfile.TemporaryDirectory() as folder:
        persona, found = attempt(Path(folder), text.encode("utf-8", "replace"))
    assert persona is not None or any(d.severity == "error" for d in found)
    if persona is not None:
        assert persona.name
        assert "/" not in persona.name


# -- choosing one ----------------------------------------------------------------------------------


@pytest.fixture
def teams(world: World) -> World:
    world.write(".kitbag/skills/data/_persona_dev.yaml", "name: dev\n")
    world.write(".kitbag/skills/web/_persona_dev.yaml", "name: dev\n")
    world.write(".kitbag/skills/web/_persona_ops.yaml", "name: ops\n")
    world.write(".kitbag/personas/writer.yaml", "name: writer\n")
    return world


def test_a_persona_is_chosen_with_its_team_or_by_its_full_name(teams: World) -> None:
    assert teams.registry(team="data", persona="dev").persona.full_name == "data/dev"  # type: ignore[union-attr]
    assert teams.registry(persona="web/DEV").team == "web"
    assert teams.registry(persona="ops").team == "web"
    assert teams.registry(persona="writer").team == ""


def test_a_team_or_persona_that_does_not_exist_is_an_error_with_those_that_do(teams: World) -> None:
    with pytest.raises(NotFoundError) as raised:
        teams.registry(team="dta").visibility_context()
    assert raised.value.fix == "available teams: data, web"
    with pytest.raises(NotFoundError) as raised:
        teams.registry(team="data", persona="ops").visibility_context()
    assert "ops" in raised.value.problem
