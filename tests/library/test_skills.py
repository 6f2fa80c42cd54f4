"""One skill file: its name, its description and its flags from whatever the head says; its body and its files."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kitbag.errors import Diagnostic
from kitbag.library.dialects.field_names import IGNORED_SKILL_FIELDS, SKILL_SPELLINGS
from kitbag.library.scopes import Root
from kitbag.library.skill_files import list_resources, read_skill_body, read_skill_details
from kitbag.library.skills import (
    COMMAND,
    FLAT,
    HAS_PATHS,
    NO_DESCRIPTION,
    NO_MODEL,
    NO_USER,
    REQUIRED,
    Skill,
    parse_boolean,
    read_skill,
    to_string_list,
)
from support.matrix import examples


def root_of(folder: Path, plugin: str = "") -> Root:
    return Root(str(folder), "skills", "plugin" if plugin else "project", "kitbag", (1, 0), plugin)


def read(
    folder: Path, text: str | bytes, name: str = "a", flags: int = 0, team: str = "", plugin: str = ""
) -> tuple[Skill | None, list[Diagnostic]]:
    location = f"{name}/SKILL.md" if not flags else f"{name}.md"
    path = folder / location
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_skill(root_of(folder, plugin), location, str(path), name, team, "", flags)


def skill_of(folder: Path, *lines: str, body: str = "Body.", name: str = "a", flags: int = 0) -> Skill:
    skill, _ = read(folder, "\n".join(("---", *lines, "---", body, "")), name, flags)
    assert skill is not None
    return skill


def notes_of(folder: Path, *lines: str, body: str = "Body.", name: str = "a") -> list[tuple[str, str, int]]:
    _, notes = read(folder, "\n".join(("---", *lines, "---", body, "")), name)
    return [(note.severity, note.code, note.line) for note in notes]


# -- names -------------------------------------------------------------------------------------------


def test_a_skill_in_order_has_nothing_to_report(tmp_path: Path) -> None:
    skill, notes = read(tmp_path, "---\nname: a\ndescription: Does it.\n---\nBody.\n")
    assert skill is not None
    assert notes == []
    assert (skill.name, skill.full_name, skill.description, skill.flags) == ("a", "a", "Does it.", 0)
    assert (skill.path, skill.directory) == (str(tmp_path / "a/SKILL.md"), str(tmp_path / "a"))
    assert (skill.kind, skill.summary) == ("skill", "Does it.")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("on", "on"),
        ("3000", "3000"),
        ("1.10", "1.10"),
        ("2024-01-01", "2024-01-01"),
        ("true", "true"),
        ("'quoted'", "quoted"),
        ("C# Expert", "C# Expert"),
        ("café", "café"),
        ("スキル", "スキル"),
    ],
)
def test_a_name_is_the_word_that_was_written(tmp_path: Path, written: str, name: str) -> None:
    assert skill_of(tmp_path, f"name: {written}", "description: b").name == name
    assert notes_of(tmp_path, f"name: {written}", "description: b") == [("info", "name-not-folder", 2)]


@pytest.mark.parametrize("written", ["[a, b]", "{a: b}", "null", "~", "''", "../../x", "..", ".", "/", ":", "---"])
def test_what_can_be_no_name_gives_way_to_the_folder(tmp_path: Path, written: str) -> None:
    skill = skill_of(tmp_path, f"name: {written}", "description: b", name="folder")
    assert skill.name == skill.full_name == "folder"
    assert ("warning", "name-unusable", 2) in notes_of(tmp_path, f"name: {written}", "description: b", name="folder")


@pytest.mark.parametrize(
    "written",
    ["a/b", "/abs", "a\\\\b", "team:name", "x" * 300, "a\u202eb", "a\u200bb", "a\x1b[31mb", "a\\x00b", "é\u2066"],
)
def test_a_name_never_keeps_what_could_lead_or_hide(tmp_path: Path, written: str) -> None:
    skill = skill_of(tmp_path, f'name: "{written}"', "description: b", name="folder")
    assert not set(skill.name) & set("/\\:\0\x1b\u202e\u200b\u2066")
    assert 0 < len(skill.name) <= 64
    assert "name-unusable" in {note[1] for note in notes_of(tmp_path, f'name: "{written}"', "description: b")}


def test_a_file_with_nul_bytes_is_no_skill(tmp_path: Path) -> None:
    skill, notes = read(tmp_path, b"---\nname: a\0b\ndescription: c\n---\n")
    assert skill is None
    assert [(note.severity, note.code) for note in notes] == [("error", "binary")]


def test_a_long_name_is_cut_also_when_its_folder_has_it(tmp_path: Path) -> None:
    name = "x" * 100
    assert skill_of(tmp_path, f"name: {name}", "description: b", name=name).name == "x" * 64
    assert notes_of(tmp_path, f"name: {name}", "description: b", name=name)[0][1] == "name-unusable"


def test_without_a_name_the_folder_has_it(tmp_path: Path) -> None:
    assert skill_of(tmp_path, "description: b", name="my skill").name == "my skill"
    assert notes_of(tmp_path, "description: b", name="my skill") == []


@pytest.mark.parametrize("folder", ["-", "--", "a\u202eb", "a\nb", "a:b", "…"])
def test_a_strange_folder_still_gives_a_usable_name(tmp_path: Path, folder: str) -> None:
    name = skill_of(tmp_path, "description: b", name=folder).name
    assert name
    assert name.isprintable()
    assert ":" not in name


def test_hidden_characters_in_a_folder_s_name_are_reported(tmp_path: Path) -> None:
    _, notes = read(tmp_path, "---\ndescription: b\n---\n", name="a\u200bb")
    assert ("hidden-characters", "U+200B") in [(note.code, note.problem[-6:]) for note in notes]


def test_a_folder_whose_name_is_not_utf_8_is_read(tmp_path: Path) -> None:
    skill, _ = read(tmp_path, "---\ndescription: b\n---\n", name=os.fsdecode(b"caf\xe9"))
    assert skill is not None
    assert skill.name == "caf"


def test_plugins_and_teams_stand_before_the_name(tmp_path: Path) -> None:
    text = "---\nname: a\ndescription: b\n---\n"
    plugin, _ = read(tmp_path, text, plugin="git")
    team, _ = read(tmp_path, text, team="shop")
    assert plugin is not None
    assert team is not None
    assert (plugin.full_name, team.full_name) == ("git:a", "shop/a")


def test_a_command_is_called_like_its_file_and_folders_whatever_its_head_says(tmp_path: Path) -> None:
    skill = skill_of(tmp_path, "name: other", "description: b", name="gsd:new-project", flags=COMMAND)
    assert (skill.name, skill.kind) == ("gsd:new-project", "command")


# -- descriptions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "description"),
    [
        (("description: [one, two]",), "one two"),
        (("description: {a: b, c: [d, e]}",), "a: b c: d e"),
        (("description: |", "  One", "  two.", ""), "One\ntwo."),
        (("description: Use when: asked",), "Use when: asked"),
        (("description: 3.10",), "3.10"),
        (("description: '  spaced  '",), "spaced"),
    ],
)
def test_a_description_is_text_whatever_yaml_makes_of_it(
    tmp_path: Path, lines: tuple[str, ...], description: str
) -> None:
    skill = skill_of(tmp_path, "name: a", *lines)
    assert (skill.description, skill.flags) == (description, 0)


@pytest.mark.parametrize(
    "line", ["description: null", "description: ~", "description:", "description: []", "license: MIT"]
)
def test_without_a_description_the_first_paragraph_stands_in(tmp_path: Path, line: str) -> None:
    skill = skill_of(tmp_path, "name: a", line, body="# Title\n\nWhat it does.\n")
    assert (skill.description, skill.flags) == ("What it does.", NO_DESCRIPTION)
    at = 3 if line.startswith("description") else 1
    assert notes_of(tmp_path, "name: a", line, body="What it does.") == [("warning", "no-description", at)]


def test_a_file_without_a_head_is_a_skill_all_the_same(tmp_path: Path) -> None:
    skill, notes = read(tmp_path, "# Title\n\nWhat it does.\n")
    assert skill is not None
    assert (skill.name, skill.description) == ("a", "What it does.")
    assert "no frontmatter" in notes[0].problem


def test_an_empty_file_is_a_skill_without_words(tmp_path: Path) -> None:
    skill, notes = read(tmp_path, "")
    assert skill is not None
    assert (skill.description, [note.code for note in notes]) == ("", ["no-description"])


def test_when_to_use_is_read_in_every_spelling(tmp_path: Path) -> None:
    for key in ("when_to_use", "when-to-use", "whenToUse"):
        skill = skill_of(tmp_path, "name: a", "description: Does it.", f"{key}: When asked.")
        assert (skill.when_to_use, skill.summary) == ("When asked.", "Does it. When asked.")


def test_hidden_characters_are_left_out_and_reported(tmp_path: Path) -> None:
    lines = (
        "name: a",
        "description: Do\u200bes it\u202e.",
        "when_to_use: Al\U000e0041ways",
        "argument-hint: <f\u2060>",
    )
    skill = skill_of(tmp_path, *lines)
    assert (skill.description, skill.when_to_use, skill.argument_hint) == ("Does it.", "Always", "<f>")
    assert [note[1] for note in notes_of(tmp_path, *lines)] == ["hidden-characters"] * 3
    assert skill_of(tmp_path, "name: a", "description: b", "argument-hint: [fi\u202ele]").argument_hint == "[file]"


def test_letters_of_every_script_are_kept(tmp_path: Path) -> None:
    text = "Prüft 日本語 и русский, می\u200cخواهم, 👩\u200d💻 ℹ️."
    assert skill_of(tmp_path, "name: a", f"description: {text}").description == text


# -- hints, flags, lists -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("argument-hint: <file> [more]", "<file> [more]"),
        ("argument-hint: [file]", "[file]"),
        ("argument-hint: [a, b c]", "[a, b c]"),
        ("argument-hint: [a] | --b", "[a] | --b"),
        ("argument-hint: null", ""),
        ("argument-hint: []", ""),
        ("argument_hint: x", "x"),
        ("argumentHint: x", "x"),
        ("license: MIT", ""),
    ],
)
def test_a_hint_is_shown_as_it_was_written(tmp_path: Path, line: str, hint: str) -> None:
    assert skill_of(tmp_path, "name: a", "description: b", line).argument_hint == hint


@pytest.mark.parametrize("word", ["true", "True", "TRUE", "yes", "Yes", "on", "ON", "1", "'true'", '" yes "'])
def test_every_spelling_of_true_is_true(tmp_path: Path, word: str) -> None:
    for key in ("disable-model-invocation", "disable_model_invocation", "disableModelInvocation"):
        assert skill_of(tmp_path, "name: a", "description: b", f"{key}: {word}").flags == NO_MODEL
    assert skill_of(tmp_path, "name: a", "description: b", f"user-invocable: {word}").flags == 0


@pytest.mark.parametrize("word", ["false", "False", "no", "off", "OFF", "0", "'false'"])
def test_every_spelling_of_false_is_false(tmp_path: Path, word: str) -> None:
    assert skill_of(tmp_path, "name: a", "description: b", f"disable-model-invocation: {word}").flags == 0
    assert skill_of(tmp_path, "name: a", "description: b", f"user-invocable: {word}").flags == NO_USER


@pytest.mark.parametrize("word", ["maybe", "[true]", "2", "{a: b}"])
def test_what_is_neither_counts_as_if_it_were_not_there(tmp_path: Path, word: str) -> None:
    lines = ("name: a", "description: b", f"disable-model-invocation: {word}", f"user-invocable: {word}")
    assert skill_of(tmp_path, *lines).flags == 0
    assert [note[1] for note in notes_of(tmp_path, *lines)] == ["not-a-boolean"] * 2


@pytest.mark.parametrize("flags", [0, COMMAND, FLAT])
def test_every_spelling_of_a_field_counts_in_every_kind_of_file(tmp_path: Path, flags: int) -> None:
    for field, spellings in SKILL_SPELLINGS.items():
        spaced = spellings[0].replace("-", " ").replace("_", " ")
        for key in (*spellings, spellings[0].upper(), spaced, spaced.title()):
            if key == "description":
                continue
            text = f"---\ndescription: b\n{key}: 'no'\n---\nText.\n"
            skill, notes = read(tmp_path, text, flags=flags)
            assert skill is not None
            assert not [note for note in notes if note.code == "field-misspelled"]
            assert read_skill_details(skill).fields[spellings[0]] == ("no" if field != "description" else "b")
            assert bool(skill.flags & NO_USER) == (field == "user_invocable")
            assert (skill.when_to_use, skill.argument_hint).count("no") == (field in ("when_to_use", "argument_hint"))


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("disable-model-invokation", "disable-model-invocation"),
        ("disable_model_invocations", "disable-model-invocation"),
        ("disableModelInvoke", "disable-model-invocation"),
        ("user-invocabel", "user-invocable"),
        ("allowed_tool", "allowed-tools"),
        ("alowed-tools", "allowed-tools"),
        ("dissallowed-tools", "disallowed-tools"),
        ("restricted-tools", "restrict-tools"),
        ("denied-tools", "disallowed-tools"),
        ("blocked_tools", "disallowed-tools"),
        ("forbiddenTools", "disallowed-tools"),
        ("permitted-tools", "allowed-tools"),
        ("disabled", "disable-model-invocation"),
        ("enabled", "disable-model-invocation"),
        ("allow-model-invocation", "disable-model-invocation"),
        ("user-callable", "user-invocable"),
        ("alloewd-tools", "allowed-tools"),
        ("deny", "disallowed-tools"),
        ("disallow", "disallowed-tools"),
        ("allow", "allowed-tools"),
    ],
)
def test_a_near_miss_of_a_field_that_limits_or_grants_is_reported(tmp_path: Path, key: str, meant: str) -> None:
    _, notes = read(tmp_path, f"---\nname: a\ndescription: b\n{key}: true\n---\nText.\n", name="a")
    assert [(note.severity, note.code, note.line) for note in notes] == [("warning", "field-misspelled", 4)]
    assert key in notes[0].problem
    assert meant in notes[0].fix


@pytest.mark.parametrize(
    "key", ["permission-mode", "permisionMode", "readonly", "read_onyl", "sandbox_mode", "permission"]
)
@pytest.mark.parametrize("flags", [0, COMMAND])
def test_a_field_that_limits_agents_only_is_reported(tmp_path: Path, key: str, flags: int) -> None:
    _, notes = read(tmp_path, f"---\ndescription: b\n{key}: plan\n---\nText.\n", flags=flags)
    assert [(note.severity, note.code, note.line) for note in notes] == [("warning", "field-ignored", 3)]
    assert f"`{key}` has no effect" in notes[0].problem


@pytest.mark.parametrize(("dialect", "severity"), [("claude", "warning"), ("opencode", "warning"), ("copilot", "info")])
def test_tools_of_a_command_limit_nothing_and_are_reported(tmp_path: Path, dialect: Any, severity: str) -> None:
    path = tmp_path / "x.md"
    root = root_of(tmp_path)._replace(dialect=dialect, kind="commands")
    for tools in ("[search]", "\n  bash: false"):
        path.write_text(f"---\ndescription: b\ntools: {tools}\n---\nText.\n")
        notes = read_skill(root, "x.md", str(path), "x", flags=COMMAND)[1]
        assert [(note.severity, note.code, note.line) for note in notes] == [(severity, "field-ignored", 3)]
        assert "restrict-tools" in notes[0].fix
    path.write_text("---\ndescription: b\ntools: [Read]\nrestrict_tools: [Read]\n---\nText.\n")
    assert read_skill(root, "x.md", str(path), "x", flags=COMMAND)[1] == []


def test_fields_of_other_tools_are_no_near_misses(tmp_path: Path) -> None:
    keys = "toolkit allowed-paths model-version user modes tags invocations steps max-turns x-tools y" + "z" * 900
    lines = [f"{key}: x" for key in [*keys.split(), *sorted(IGNORED_SKILL_FIELDS)]]
    assert notes_of(tmp_path, "name: a", "description: b", *lines) == []


@pytest.mark.parametrize(
    ("lines", "field", "place"),
    [
        (["metadata:", "  disable-model-invocation: true"], "disable-model-invocation", "metadata"),
        (["metadata: {openclaw: {disableModelInvocation: 1}}"], "disableModelInvocation", "metadata.openclaw"),
        (["metadata:", "  author: x", "  allowed-tools: [Bash]"], "allowed-tools", "metadata"),
        (["policy:", "  user_invocable: false"], "user_invocable", "policy"),
    ],
)
def test_a_field_that_limits_or_grants_inside_another_is_reported(
    tmp_path: Path, lines: list[str], field: str, place: str
) -> None:
    skill, notes = read(tmp_path, "\n".join(("---", "name: a", "description: b", *lines, "---", "Body.", "")))
    assert skill is not None
    assert [(note.severity, note.code, note.line) for note in notes] == [("warning", "field-misplaced", 4)]
    assert f"`{field}` inside `{place}`" in notes[0].problem


def test_a_field_inside_another_that_limits_nothing_is_not_reported(tmp_path: Path) -> None:
    lines = ["metadata:", "  user-invocable: true", "  disable-model-invocation: 'false'", "  tools: docker"]
    assert notes_of(tmp_path, "name: a", "description: b", *lines) == []


def test_a_command_without_a_description_is_only_noted(tmp_path: Path) -> None:
    assert [note.severity for note in read(tmp_path, "Do it.\n", flags=COMMAND)[1]] == ["info"]
    assert [note.severity for note in read(tmp_path, "", flags=COMMAND)[1]] == ["warning"]


@pytest.mark.parametrize(("line", "severity"), [("agent: plan", "warning"), ("mode: agent", "info")])
def test_a_command_of_another_tool_that_names_an_agent_says_that_it_runs_in_the_session(
    tmp_path: Path, line: str, severity: str
) -> None:
    path = tmp_path / "x.md"
    path.write_text(f"---\ndescription: b\n{line}\n---\nText.\n")
    root = root_of(tmp_path)._replace(dialect="opencode", kind="commands")
    notes = read_skill(root, "x.md", str(path), "x", flags=COMMAND)[1]
    assert [(note.severity, note.code, note.line) for note in notes] == [(severity, "field-ignored", 3)]
    path.write_text(f"---\ndescription: b\n{line}\ncontext: fork\n---\nText.\n")
    assert read_skill(root, "x.md", str(path), "x", flags=COMMAND)[1] == []


@pytest.mark.parametrize("word", ["", "null", "~"])
def test_nothing_is_the_default(word: str) -> None:
    assert parse_boolean({"x": word}, "x", True, []) is True
    assert parse_boolean({"x": word}, "x", False, []) is False


def test_activation_and_paths_are_noticed(tmp_path: Path) -> None:
    skill = skill_of(tmp_path, "name: a", "description: b", "activation: required", "paths: ['*.sql']")
    assert skill.flags == REQUIRED | HAS_PATHS


@pytest.mark.parametrize(
    ("value", "items"),
    [
        (None, ()),
        ("", ()),
        ("a", ("a",)),
        ("a, b c", ("a", "b c")),
        ("a b", ("a", "b")),
        ("[a, 'b']", ("a", "b")),
        (["a", "", "b"], ("a", "b")),
        ({"a": "b"}, ()),
    ],
)
def test_a_list_is_a_list_or_words(value: object, items: tuple[str, ...]) -> None:
    assert to_string_list(value) == items  # pyright: ignore[reportArgumentType]


def test_a_flat_file_needs_a_head(tmp_path: Path) -> None:
    assert read(tmp_path, "# Notes\n\nJust text.\n", flags=FLAT) == (None, [])
    assert skill_of(tmp_path, "description: b", name="git_basics", flags=FLAT).name == "git_basics"
    assert skill_of(tmp_path, "name: other", "description: b", name="git_basics", flags=FLAT).name == "other"


def test_a_missing_file_raises_and_an_unreadable_one_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_skill(root_of(tmp_path), "x/SKILL.md", str(tmp_path / "x/SKILL.md"), "x")
    (tmp_path / "SKILL.md").mkdir()
    skill, notes = read_skill(root_of(tmp_path), "SKILL.md", str(tmp_path / "SKILL.md"), "x")
    assert skill is None
    assert [(note.severity, note.code, note.line) for note in notes] == [("error", "not-a-file", 0)]


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(max_size=60),
    st.text(max_size=60),
    st.sampled_from(["name", "argument-hint", "subagents", "user-invocable"]),
)
def test_no_text_in_a_head_raises_or_reaches_a_name_raw(tmp_path: Path, one: str, two: str, key: str) -> None:
    skill, notes = read(tmp_path, f"---\n{key}: {one}\ndescription: {two}\n---\n".encode("utf-8", "replace"))
    if skill is None:
        assert [note.code for note in notes] == ["binary"]
        return
    assert skill.name
    assert skill.name.isprintable() or not skill.name.isascii()
    assert "\n" not in skill.name


# -- the rest of a skill -------------------------------------------------------------------------------


def test_details_are_read_on_demand(tmp_path: Path) -> None:
    skill = skill_of(
        tmp_path, "name: a", "description: b", "display_name: The A", "version: 1.10", "tags: x, y", "triggers: ['re.*']",
        "requires: c", "subagents: [d, e]", "own: f",
    )  # fmt: skip
    details = read_skill_details(skill)
    assert (details.display_name, details.version) == ("The A", "1.10")
    assert (details.tags, details.triggers, details.requires) == (("x", "y"), ("re.*",), ("c",))
    assert details.problems == ()
    assert details.metadata["own"] == "f"
    assert skill.subagents == ("d", "e")


def test_a_body_comes_without_its_head_and_with_its_line(tmp_path: Path) -> None:
    skill = skill_of(tmp_path, "name: a", "description: b", body="\n\n# Title\n\nText.\n\n")
    body = read_skill_body(skill)
    assert (body.text, body.first_line, body.problems) == ("# Title\n\nText.", 7, ())


def test_a_body_is_read_again_each_time(tmp_path: Path) -> None:
    skill = skill_of(tmp_path, "name: a", "description: b", body="Old.")
    assert read_skill_body(skill).text == "Old."
    skill_of(tmp_path, "name: a", "description: b", body="New.")
    assert read_skill_body(skill).text == "New."


def test_a_skill_that_is_gone_is_a_problem_not_a_crash(tmp_path: Path) -> None:
    skill = skill_of(tmp_path, "name: a", "description: b")
    os.unlink(skill.path)
    assert [problem.code for problem in read_skill_body(skill).problems] == ["unreadable"]
    assert [problem.code for problem in read_skill_details(skill).problems] == ["unreadable"]
    assert list_resources(skill) == ([], False, [])


def test_resources_are_listed_by_group_in_order(tmp_path: Path) -> None:
    skill = skill_of(tmp_path, "name: a", "description: b")
    for file in ("scripts/run.sh", "references/deep/er.md", "assets/logo.png", "LICENSE", "notes/x.md", ".git/config",
                 "node_modules/x/index.js", "scripts/__pycache__/run.pyc"):  # fmt: skip
        path = tmp_path / "a" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("12345")
    found, more, _ = list_resources(skill)
    assert [(resource.path, resource.group) for resource in found] == [
        ("LICENSE", "other"),
        ("assets/logo.png", "assets"),
        ("notes/x.md", "other"),
        ("references/deep/er.md", "references"),
        ("scripts/run.sh", "scripts"),
    ]
    assert {resource.size for resource in found} == {5}
    assert more is False


def test_resources_are_bounded_in_files_and_in_folders(tmp_path: Path) -> None:
    skill = skill_of(tmp_path, "name: a", "description: b")
    for n in range(12):
        (tmp_path / "a" / f"file{n:02}").touch()
    found, more, _ = list_resources(skill, limit=5)
    assert ([resource.path for resource in found], more) == ([f"file{n:02}" for n in range(5)], True)
    assert len(list_resources(skill, limit=12)[0]) == 12
    assert list_resources(skill, limit=12)[1] is False
    for n in range(20):
        (tmp_path / "a" / f"empty{n:02}").mkdir()
    assert list_resources(skill, limit=12)[1] is True


def test_resources_never_follow_a_link(tmp_path: Path) -> None:
    skill = skill_of(tmp_path, "name: a", "description: b")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("x")
    (tmp_path / "a" / "out").symlink_to(tmp_path / "secret")
    (tmp_path / "a" / "key").symlink_to(tmp_path / "secret" / "key")
    (tmp_path / "a" / "self").symlink_to(tmp_path / "a")
    os.mkfifo(tmp_path / "a" / "fifo")
    assert list_resources(skill) == ([], False, [])


def test_commands_and_flat_skills_have_no_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("x")
    assert list_resources(skill_of(tmp_path, "description: b", flags=FLAT)) == ([], False, [])
    assert list_resources(skill_of(tmp_path, "description: b", flags=COMMAND)) == ([], False, [])
