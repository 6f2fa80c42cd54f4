"""Strict validation by the Agent Skills specification: does this skill work in every tool?

Returns the messages of the reference library, without its quirks (it splits at any `---`, reads in the
locale's encoding and rejects flow style). Used by `kitbag skills validate --portable`.
"""

import os
import unicodedata

from kitbag.library.scopes import boundary_for_directory
from kitbag.text.frontmatter_fences import split_frontmatter
from kitbag.text.plain_frontmatter import Metadata, YamlValue
from kitbag.text.safe_yaml import YamlError, parse_yaml
from kitbag.text.source_files import SourceError, read_text

ALLOWED_FIELDS = ("allowed-tools", "compatibility", "description", "license", "metadata", "name")
MAX_NAME, MAX_DESCRIPTION, MAX_COMPATIBILITY = 64, 1024, 500


def check_portable(target: str) -> list[str]:
    """Error messages; empty if the skill is valid. `target` is the skill's directory or its SKILL.md."""
    if not os.path.exists(target):
        return [f"Path does not exist: {target}"]
    directory = target
    if os.path.isfile(target):
        if os.path.basename(target).lower() != "skill.md":
            return [f"Not a directory: {target}"]
        directory = os.path.dirname(os.path.abspath(target))
    if not os.path.isdir(directory):
        return [f"Not a directory: {target}"]
    path = next((p for name in ("SKILL.md", "skill.md") if os.path.exists(p := os.path.join(directory, name))), None)
    if path is None:
        return ["Missing required file: SKILL.md"]
    try:
        text, _, problems = read_text(path, boundary_for_directory(directory))
    except SourceError as error:
        return [f"SKILL.md {error.problem}"]
    if problems:
        return [f"SKILL.md: {problem.problem}" for problem in problems]
    metadata = _parse_frontmatter(text)
    if isinstance(metadata, str):
        return [metadata]
    return _check_fields(metadata, os.path.basename(os.path.abspath(directory)))


def _parse_frontmatter(text: str) -> Metadata | str:
    if text.split("\n", 1)[0].rstrip() != "---":
        return "SKILL.md must start with YAML frontmatter (---)"
    parts = split_frontmatter(text)
    frontmatter, first_line = parts.frontmatter, parts.frontmatter_line
    if any(problem.code in ("head-unclosed", "head-fence") for problem in parts.problems):
        lines = text.split("\n")
        # Where Kitbag takes prose for the start of the body, other tools read up to the next fence.
        close = next((at for at, line in enumerate(lines) if at and line.rstrip() == "---"), 0)
        frontmatter, first_line = ("\n".join(lines[1:close]), 2) if close else (None, 2)
    if frontmatter is None:
        return "SKILL.md frontmatter not properly closed with ---"
    try:
        value, odd = parse_yaml(frontmatter)
    except YamlError as error:
        return f"Invalid YAML in frontmatter: line {first_line + error.problem.line}: {error.problem.problem}"
    if odd:
        return f"Invalid YAML in frontmatter: line {first_line + odd[0].line}: {odd[0].problem}"
    return value if isinstance(value, dict) else "SKILL.md frontmatter must be a YAML mapping"


def _check_fields(metadata: Metadata, directory: str) -> list[str]:
    errors: list[str] = []
    extra = sorted(set(metadata) - set(ALLOWED_FIELDS))
    if extra:
        errors.append(f"Unexpected fields in frontmatter: {', '.join(extra)}. Only {list(ALLOWED_FIELDS)} are allowed.")
    for key, field_errors in (
        ("name", _check_name(metadata.get("name", ""), directory)),
        ("description", _check_description(metadata.get("description", ""))),
    ):
        errors += field_errors if key in metadata else [f"Missing required field in frontmatter: {key}"]
    compatibility = metadata.get("compatibility")
    if compatibility is not None:
        if not isinstance(compatibility, str):
            errors.append("Field 'compatibility' must be a string")
        elif len(compatibility) > MAX_COMPATIBILITY:
            errors.append(f"Compatibility exceeds {MAX_COMPATIBILITY} character limit ({len(compatibility)} chars)")
    return errors


def _check_name(value: YamlValue, directory: str) -> list[str]:
    if not isinstance(value, str) or not value.strip():
        return ["Field 'name' must be a non-empty string"]
    errors: list[str] = []
    name = unicodedata.normalize("NFKC", value.strip())
    if len(name) > MAX_NAME:
        errors.append(f"Skill name '{name}' exceeds {MAX_NAME} character limit ({len(name)} chars)")
    if name != name.lower():
        errors.append(f"Skill name '{name}' must be lowercase")
    if name.startswith("-") or name.endswith("-"):
        errors.append("Skill name cannot start or end with a hyphen")
    if "--" in name:
        errors.append("Skill name cannot contain consecutive hyphens")
    if not all(char.isalnum() or char == "-" for char in name):
        errors.append(
            f"Skill name '{name}' contains invalid characters. Only letters, digits, and hyphens are allowed."
        )
    if unicodedata.normalize("NFKC", directory) != name:
        errors.append(f"Directory name '{directory}' must match skill name '{name}'")
    return errors


def _check_description(value: YamlValue) -> list[str]:
    if not isinstance(value, str) or not value.strip():
        return ["Field 'description' must be a non-empty string"]
    if len(value) > MAX_DESCRIPTION:
        return [f"Description exceeds {MAX_DESCRIPTION} character limit ({len(value)} chars)"]
    return []
