"""The strict verdict on a skill, with the reference library of the Agent Skills specification as referee."""

import os
import random
from pathlib import Path

import pytest
from skills_ref import validate

from conftest import World
from kitbag.library.portability import check_portable
from support.cost import processor_limit
from support.matrix import long

ALLOWED = "['allowed-tools', 'compatibility', 'description', 'license', 'metadata', 'name']"
INVALID_YAML = "Invalid YAML in frontmatter: "


def skill(base: Path, head: str, folder: str = "a", file: str = "SKILL.md") -> Path:
    directory = base / folder
    directory.mkdir(parents=True)
    (directory / file).write_bytes(f"---\n{head}\n---\nBody.\n".encode())
    return directory


def comparable(messages: list[str]) -> list[str]:
    """What is wrong with YAML, each parser says in its own words."""
    return [INVALID_YAML if message.startswith(INVALID_YAML) else message for message in messages]


def assert_same_verdict(directory: Path) -> None:
    ours, theirs = check_portable(str(directory)), validate(directory)
    assert comparable(ours) == comparable(theirs)


# -- every message of COMPATIBILITY §1.3, exactly --------------------------------------------------
# `SKILL.md not found in D` belongs to the reference's read-properties, which Kitbag does not have.

MESSAGES = {
    "name: a": ["Missing required field in frontmatter: description"],
    "description: b": ["Missing required field in frontmatter: name"],
    "name: ''\ndescription: b": ["Field 'name' must be a non-empty string"],
    "name:\n  x: y\ndescription: b": ["Field 'name' must be a non-empty string"],
    "name: a\ndescription:": ["Field 'description' must be a non-empty string"],
    "name: a\ndescription: b\ncompatibility:\n  - x": ["Field 'compatibility' must be a string"],
    "name: " + "a" * 65 + "\ndescription: b": [
        f"Skill name '{'a' * 65}' exceeds 64 character limit (65 chars)",
        f"Directory name 'a' must match skill name '{'a' * 65}'",
    ],
    "name: A\ndescription: b": [
        "Skill name 'A' must be lowercase",
        "Directory name 'a' must match skill name 'A'",
    ],
    "name: -a\ndescription: b": [
        "Skill name cannot start or end with a hyphen",
        "Directory name 'a' must match skill name '-a'",
    ],
    "name: a--b\ndescription: b": [
        "Skill name cannot contain consecutive hyphens",
        "Directory name 'a' must match skill name 'a--b'",
    ],
    "name: a_b\ndescription: b": [
        "Skill name 'a_b' contains invalid characters. Only letters, digits, and hyphens are allowed.",
        "Directory name 'a' must match skill name 'a_b'",
    ],
    "name: a\ndescription: " + "x" * 1025: ["Description exceeds 1024 character limit (1025 chars)"],
    "name: a\ndescription: b\ncompatibility: " + "x" * 501: ["Compatibility exceeds 500 character limit (501 chars)"],
    "name: a\ndescription: b\ntags: x\nmodel: opus": [
        f"Unexpected fields in frontmatter: model, tags. Only {ALLOWED} are allowed."
    ],
    "- a\n- b": ["SKILL.md frontmatter must be a YAML mapping"],
    "": ["SKILL.md frontmatter must be a YAML mapping"],
    "just words": ["SKILL.md frontmatter must be a YAML mapping"],
}


@pytest.mark.parametrize(("head", "messages"), MESSAGES.items(), ids=range(len(MESSAGES)))
def test_every_fault_is_told_in_the_words_of_the_reference(tmp_path: Path, head: str, messages: list[str]) -> None:
    directory = skill(tmp_path, head)
    assert check_portable(str(directory)) == messages
    assert validate(directory) == messages


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("No head.\n", "SKILL.md must start with YAML frontmatter (---)"),
        ("", "SKILL.md must start with YAML frontmatter (---)"),
        ("\n---\nname: a\n---\n", "SKILL.md must start with YAML frontmatter (---)"),
        ("---\nname: a\ndescription: b\n", "SKILL.md frontmatter not properly closed with ---"),
    ],
)
def test_a_head_that_is_missing_or_open_is_told_so(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "SKILL.md").write_text(text)
    assert check_portable(str(tmp_path)) == validate(tmp_path) == [message]


def test_what_is_not_yaml_is_told_with_its_line(tmp_path: Path) -> None:
    directory = skill(tmp_path, "name: a\ndescription: Use when: x")
    (message,) = check_portable(str(directory))
    assert message.startswith(f"{INVALID_YAML}line 3: ")
    assert validate(directory)[0].startswith(INVALID_YAML)


def test_a_path_that_leads_to_no_skill_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    for name, message in (
        ("gone", f"Path does not exist: {tmp_path}/gone"),
        ("broken", f"Path does not exist: {tmp_path}/broken"),
        ("notes.txt", f"Not a directory: {tmp_path}/notes.txt"),
        ("empty", "Missing required file: SKILL.md"),
    ):
        assert check_portable(str(tmp_path / name)) == validate(tmp_path / name) == [message]


# -- who is right where both could be --------------------------------------------------------------


@long
def test_a_few_hundred_skills_get_the_verdict_of_the_reference(tmp_path: Path) -> None:
    """Each head is put together from good and bad parts; the choice is the same in every run."""
    chance = random.Random(2)
    names = [
        "a",
        "A",
        "a-b",
        "a--b",
        "-a",
        "a-",
        "a b",
        "a_b",
        "a.b",
        "é",
        "É",
        "审查",
        "обзор",
        "ﬁx",
        "²",
        "ß",
        "ǅ",
        "1",
    ]
    names += ["x" * 64, "x" * 65, "null", "true", "1.10", "''", '"a"', "'-'", "''", "a # note", "a: b", "[a]", "|\n  a"]
    descriptions = [
        "b",
        "''",
        '" "',
        "x" * 1024,
        "x" * 1025,
        "é" * 1024,
        "Use when: x",
        "it's",
        "'it''s'",
        "# b",
        "b # c",
    ]
    descriptions += [
        "|\n  one\n  two",
        ">\n  one\n\n  two",
        "one\n  two",
        "\n  - x",
        "\n  x: y",
        '"\\u263a"',
        "~",
        "@x",
        "- b",
    ]
    others = [
        "license: MIT",
        "compatibility: x",
        "compatibility:",
        "compatibility: " + "x" * 501,
        "compatibility:\n  a: b",
    ]
    others += [
        "metadata:\n  a: 1.0\n  b: yes",
        "metadata: x",
        "metadata:",
        "allowed-tools: Read Bash(git:*)",
        "tags: x",
    ]
    others += [
        "allowed-tools:\n  - Read",
        "# only a note",
        "",
        "model: opus\nname2: y",
        "'license': MIT",
        "license : MIT",
    ]
    quirks = ["[a]"]  # flow style: see below
    valid = 0
    for at in range(400):
        name, folder = chance.choice(names), "a"
        if chance.random() < 0.6:
            folder = name.strip("\"'") if name.strip("\"'") and "\n" not in name else "a"
        lines = [f"name: {name}", f"description: {chance.choice(descriptions)}", *chance.sample(others, 2)]
        if chance.random() < 0.1:
            lines.pop(chance.randrange(2))
        chance.shuffle(lines)
        directory = skill(tmp_path / str(at), "\n".join(lines), folder)
        if not any(quirk in line for quirk in quirks for line in lines):
            assert_same_verdict(directory)
            valid += not check_portable(str(directory))
    assert 20 < valid < 380


# The quirks of COMPATIBILITY §1.3 that are not copied, each with the reason.
QUIRKS = {
    "dashes inside a value end the reference's head": "description: before --- after\nname: a",
    "flow style is YAML that every tool reads": "name: a\ndescription: b\nallowed-tools: [Read, Grep]",
    "an empty flow map is YAML too": "name: a\ndescription: b\nmetadata: {}",
    "an anchor that nothing refers to changes nothing": "name: a\ndescription: &text b",
}


@pytest.mark.parametrize("head", QUIRKS.values(), ids=QUIRKS)
def test_quirks_of_the_reference_are_not_copied(tmp_path: Path, head: str) -> None:
    directory = skill(tmp_path, head)
    assert check_portable(str(directory)) == []
    assert validate(directory) != []


def test_a_byte_order_mark_is_no_fault_though_the_reference_stumbles_over_it(tmp_path: Path) -> None:
    directory = skill(tmp_path, "name: a\ndescription: b")
    file = directory / "SKILL.md"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert check_portable(str(directory)) == []
    assert validate(directory) != []


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_any_newline_will_do(tmp_path: Path, newline: str) -> None:
    directory = skill(tmp_path, "name: a\ndescription: b")
    file = directory / "SKILL.md"
    file.write_bytes(file.read_bytes().replace(b"\n", newline.encode()))
    assert check_portable(str(directory)) == validate(directory) == []


@pytest.mark.parametrize("head", ["name: a\nname: a\ndescription: b", "name: a\ndescription: &x b\nlicense: *x"])
def test_what_tools_read_in_different_ways_is_refused_by_both(tmp_path: Path, head: str) -> None:
    directory = skill(tmp_path, head)
    assert check_portable(str(directory))[0].startswith(INVALID_YAML)
    assert validate(directory)[0].startswith(INVALID_YAML)


# -- what the reference does not survive ----------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"---\nname: a\ndescription: caf\xe9\n---\n",
        b"---\nname: a\0\n---\n",
        b"---\na: " + b"[" * 5_000 + b"\n---\n",
        b"---\n" + b"a: &a [" + b"*a," * 10_000 + b"]\n---\n",
        b"---\nname: !!python/object/apply:os.system [id]\ndescription: b\n---\n",
        b"---\ndescription: " + b"x" * 5_000_000 + b"\n---\n",
    ],
)
def test_a_hostile_file_is_a_verdict_like_any_other(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "SKILL.md").write_bytes(content)
    with processor_limit():
        assert check_portable(str(tmp_path)) != []


def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "SKILL.md")
    assert check_portable(str(tmp_path)) == ["SKILL.md not a regular file"]


# -- how it is asked --------------------------------------------------------------------------------


def test_the_directory_and_its_file_are_one_and_the_small_spelling_counts(tmp_path: Path) -> None:
    directory = skill(tmp_path, "name: a\ndescription: b", file="skill.md")
    assert check_portable(str(directory)) == check_portable(str(directory / "skill.md")) == []
    assert check_portable(f"{directory}/") == []


def test_a_folder_is_known_by_its_real_name_from_wherever_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = skill(tmp_path, "name: a\ndescription: b")
    monkeypatch.chdir(directory)
    assert check_portable(".") == check_portable("SKILL.md") == check_portable("../a") == []


def test_every_shipped_skill_is_portable_or_says_why_not(world: World) -> None:
    for shipped in (s for s in world.registry().skills if s.root.scope == "built-in"):
        assert comparable(check_portable(shipped.directory)) == comparable(validate(Path(shipped.directory)))
