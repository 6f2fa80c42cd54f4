"""docs/fields.md lists every field that a reader accepts, and no other."""

import ast
import re
from pathlib import Path

import pytest

import kitbag
from conftest import World
from kitbag.library.dialects import field_names as names
from kitbag.library.dialects import field_reference as reference
from kitbag.library.plugins.manifest import MANIFEST_TYPES

SOURCE = Path(kitbag.__file__).parent
READERS = ("library", "packing", "views", "tools", "assembly", "cli")


def keys_read(path: Path, receivers: frozenset[str]) -> set[str]:
    """String literals that a module looks up in one of the named mappings: `metadata.get("x")`, `metadata["x"]`,
    `"x" in metadata`, `get_text(metadata, "x")`."""

    def is_receiver(node: ast.expr) -> bool:
        return (
            node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        ) in receivers

    found: list[ast.expr] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_receiver(node.func.value):
            found += node.args[:1] if node.func.attr == "get" else []
        elif isinstance(node, ast.Call) and len(node.args) > 1 and is_receiver(node.args[0]):
            found.append(node.args[1])
        elif isinstance(node, ast.Subscript) and is_receiver(node.value):
            found.append(node.slice)
        elif isinstance(node, ast.Compare) and is_receiver(node.comparators[0]):
            found.append(node.left)
    return {node.value for node in found if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_the_reference_explains_each_field_that_has_an_effect() -> None:
    assert set(names.SKILL_SPELLINGS) <= set(reference.SKILL_REFERENCE) <= {*names.SKILL_SPELLINGS, *names.SKILL_FIELDS}
    assert set(names.AGENT_SPELLINGS) == set(reference.AGENT_REFERENCE)
    assert set(reference.COMMAND_REFERENCE) == names.COMMAND_FIELDS - names.IGNORED_COMMAND_FIELDS
    assert set(reference.PERSONA_REFERENCE) == names.PERSONA_FIELDS
    assert set(reference.MANIFEST_REFERENCE) == names.MANIFEST_FIELDS
    assert set(MANIFEST_TYPES) == set(reference.PLUGIN_REFERENCE)


def test_no_reader_accepts_a_field_that_the_reference_does_not_list() -> None:
    for package in READERS:
        for path in (SOURCE / package).rglob("*.py"):
            unknown = keys_read(path, frozenset(("metadata",))) - names.KNOWN_FIELDS
            assert not unknown, f"{path}: {unknown}: add them to field_names and field_reference"


def test_the_readers_of_manifests_accept_what_the_reference_lists() -> None:
    skills = SOURCE / "library" / "skills_manifest.py"
    read = keys_read(skills, frozenset(("fields",))) - {"capabilities"}
    read |= {f"capabilities.{key}" for key in keys_read(skills, frozenset(("capability_fields",)))}
    assert read == names.MANIFEST_FIELDS
    plugins = SOURCE / "library" / "plugins" / "manifest.py"
    assert keys_read(plugins, frozenset(("manifest",))) <= set(MANIFEST_TYPES)


def test_the_manifest_that_kitbag_writes_has_fields_of_the_reference(world: World) -> None:
    world.skill(".kitbag/skills", "deploy")
    [entry] = world.json("skills", "index")["skills"]
    written = {*entry, *(f"capabilities.{key}" for key in entry["capabilities"])} - {"capabilities"}
    assert written <= names.MANIFEST_FIELDS


@pytest.mark.parametrize(
    ("skill", "spellings", "known"),
    [
        ("writing-skills", names.SKILL_SPELLINGS, names.SKILL_FIELDS),
        ("writing-agents", names.AGENT_SPELLINGS, names.AGENT_FIELDS),
    ],
)
def test_the_built_in_skills_explain_each_field(
    skill: str, spellings: dict[str, tuple[str, ...]], known: set[str]
) -> None:
    text = (SOURCE / "builtin" / "skills" / skill / "references" / "fields.md").read_text()
    assert [field for field, written in spellings.items() if not re.search(rf"`(?:{'|'.join(written)})\b", text)] == []
    tables = text.partition("## Forms of")[0]
    assert set(re.findall(r"^\| `([\w-]+)` \|", tables, re.M)) <= known
