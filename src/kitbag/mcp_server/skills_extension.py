"""The MCP skills extension (`io.modelcontextprotocol/skills`): an entry per skill with its verbatim frontmatter and a
list of its files with digests and sizes.

Used by resources and server. Only skills that follow the Agent Skills specification have entries; the others can be
loaded with load_skill and read as resources.
"""

import unicodedata
from typing import Any, Final

from kitbag.errors import InvalidError, KitbagError
from kitbag.library.portability import MAX_DESCRIPTION, MAX_NAME
from kitbag.library.skills import FLAT, Skill
from kitbag.mcp_server.skill_uris import MAIN_FILE, SkillUris, compute_digest
from kitbag.mcp_server.verbatim_frontmatter import NotVerbatimError, read_verbatim_frontmatter

EXTENSION: Final = "io.modelcontextprotocol/skills"
SETTINGS: Final[dict[str, Any]] = {"directoryRead": True}


def build_entry(uris: SkillUris, skill: Skill) -> dict[str, Any]:
    """Raises KitbagError with the reason if the skill has no entry."""
    if skill.flags & FLAT or not skill.path.endswith(f"/{MAIN_FILE}"):
        raise InvalidError(f"the skill {skill.full_name} is not a directory with a {MAIN_FILE}", "")
    files = uris.files(skill)
    data = uris.read(files[0])
    try:
        frontmatter = read_verbatim_frontmatter(data)
    except NotVerbatimError as error:
        raise InvalidError(f"the skill {skill.full_name} cannot be served as a skill resource: {error}", "") from None
    _check_frontmatter(skill, frontmatter)
    # The bytes that the frontmatter was read from, even if the file has changed since.
    resources = [{"uri": uris.uri(skill), "digest": compute_digest(data), "size": len(data)}]
    for file in files[1:]:
        digest, size = uris.digest(file)
        resources.append({"uri": uris.uri(skill, file.path), "digest": digest, "size": size})
    return {"uri": uris.uri(skill), "frontmatter": frontmatter, "resources": resources}


def _check_frontmatter(skill: Skill, frontmatter: dict[str, Any]) -> None:
    name, description = frontmatter.get("name"), frontmatter.get("description")
    problem = ""
    if not isinstance(name, str) or not _is_valid_name(name) or name != skill.name:
        problem = "its `name` must consist of lowercase letters, digits and single hyphens"
    elif not isinstance(description, str) or not description.strip() or len(description) > MAX_DESCRIPTION:
        problem = f"its `description` is missing or longer than {MAX_DESCRIPTION} characters"
    if problem:
        raise InvalidError(f"the skill {skill.full_name} cannot be served as a skill resource: {problem}", "")


def _is_valid_name(name: str) -> bool:
    plain = unicodedata.normalize("NFKC", name) == name and name == name.lower() and len(name) <= MAX_NAME
    letters = all(char.isalnum() or char == "-" for char in name)
    return bool(name) and plain and letters and "--" not in name and name.strip("-") == name


def build_entries(uris: SkillUris, skills: list[tuple[str, Skill]]) -> list[dict[str, Any]]:
    """Entries of the skills that have one, in order."""
    entries: list[dict[str, Any]] = []
    for _, skill in skills:
        try:
            entries.append(build_entry(uris, skill))
        except KitbagError:
            continue  # `skills/get` reports the reason
    return entries
