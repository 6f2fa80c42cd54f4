"""The MCP skills extension (`io.modelcontextprotocol/skills`): an entry for each skill, with its head to the letter and
a complete list of its files with digests and sizes.

Used by server. Only skills that keep to the Agent Skills specification are served this way; the others can be loaded
with load_skill, and read as resources.
"""

import unicodedata
from typing import Any, Final

from kitbag.errors import InvalidError, KitbagError
from kitbag.library.portability import MAX_DESCRIPTION, MAX_NAME
from kitbag.library.skills import FLAT, Skill
from kitbag.mcp_server.skill_uris import MAIN, Addresses, digest_of
from kitbag.mcp_server.verbatim_frontmatter import NotVerbatimError, verbatim_head

EXTENSION: Final = "io.modelcontextprotocol/skills"
SETTINGS: Final[dict[str, Any]] = {"directoryRead": True}


def entry_of(addresses: Addresses, skill: Skill) -> dict[str, Any]:
    """Raises KitbagError for a skill that is not served this way, and says why."""
    if skill.flags & FLAT or not skill.path.endswith(f"/{MAIN}"):
        raise InvalidError(f"the skill {skill.full_name} is no directory with a {MAIN}", "")
    files = addresses.files(skill)
    data = addresses.read(files[0])
    try:
        head = verbatim_head(data)
    except NotVerbatimError as error:
        raise InvalidError(f"the skill {skill.full_name} can't be served as a skill resource: {error}", "") from None
    _check(skill, head)
    # The bytes that the head was read from, whatever the file is by now.
    resources = [{"uri": addresses.uri(skill), "digest": digest_of(data), "size": len(data)}]
    for file in files[1:]:
        digest, size = addresses.digest(file)
        resources.append({"uri": addresses.uri(skill, file.path), "digest": digest, "size": size})
    return {"uri": addresses.uri(skill), "frontmatter": head, "resources": resources}


def _check(skill: Skill, head: dict[str, Any]) -> None:
    name, description = head.get("name"), head.get("description")
    wrong = ""
    if not isinstance(name, str) or not _is_name(name) or name != skill.name:
        wrong = "its `name` is not one of lower-case letters, digits and single hyphens"
    elif not isinstance(description, str) or not description.strip() or len(description) > MAX_DESCRIPTION:
        wrong = f"its `description` is missing or longer than {MAX_DESCRIPTION} characters"
    if wrong:
        raise InvalidError(f"the skill {skill.full_name} can't be served as a skill resource: {wrong}", "")


def _is_name(name: str) -> bool:
    plain = unicodedata.normalize("NFKC", name) == name and name == name.lower() and len(name) <= MAX_NAME
    letters = all(char.isalnum() or char == "-" for char in name)
    return bool(name) and plain and letters and "--" not in name and name.strip("-") == name


def entries_of(addresses: Addresses, skills: list[tuple[str, Skill]]) -> list[dict[str, Any]]:
    """Those that can be served, in order."""
    found: list[dict[str, Any]] = []
    for _, skill in skills:
        try:
            found.append(entry_of(addresses, skill))
        except KitbagError:
            continue  # `skills/get` says why
    return found
