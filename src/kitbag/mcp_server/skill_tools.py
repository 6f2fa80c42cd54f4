"""The tools for skills as MCP clients know them: load_skill, list_loaded_skills, search_skills, read_skill_file,
unload_skill (seed 002).

Used by calls. Arguments and texts; what is loaded, and what may be, is decided by packing/session_skills.
"""

import asyncio
import os
from typing import Annotated, Final

from msgspec import Meta

from kitbag.errors import InvalidError, NotFoundError
from kitbag.library.skill_files import list_resources, read_details, resolved_file
from kitbag.library.skills import FLAT
from kitbag.mcp_server.served_library import text
from kitbag.packing.session_skills import Delivered, Fork
from kitbag.permissions.model import is_inside
from kitbag.permissions.safe_open import open_to_read
from kitbag.text.hidden_characters import one_line, remove_hidden, reveal_hidden
from kitbag.tools.base import Arguments, Context, Outcome, Tool, answer
from kitbag.tools.skill import LIST_LOADED_SKILLS, SEARCH_SKILLS, run_fork

LONGEST_READ: Final = 100_000
LARGEST_FILE: Final = 16 * 1024 * 1024
Name = Annotated[str, Meta(min_length=1, max_length=300, description="The skill's name.")]


class LoadArguments(Arguments, frozen=True):
    skill_name: Name
    reason: Annotated[str, Meta(max_length=2_000, description="Why it is needed, in a few words.")] = ""
    arguments: Annotated[str, Meta(max_length=20_000, description="Arguments for it, if it takes any.")] = ""


class NameArguments(Arguments, frozen=True):
    skill_name: Name


class FileArguments(Arguments, frozen=True):
    skill_name: Name
    path: Annotated[str, Meta(min_length=1, max_length=2_000, description="In the skill's directory.")]
    offset: Annotated[int, Meta(ge=0, description="Character to begin at.")] = 0


async def _load(arguments: LoadArguments, context: Context) -> Outcome:
    found = await asyncio.to_thread(_loaded, arguments, context)
    if isinstance(found, str):
        return answer(found, arguments.skill_name)
    assert context.delegation is not None, "the server gives it to every call of this tool"
    return await run_fork(found, context, context.delegation)


def _loaded(arguments: LoadArguments, context: Context) -> Fork | str:
    name = arguments.skill_name.strip().lstrip("/")
    _must_be_allowed(context, name, arguments.arguments)
    fork = context.skills.fork(name, arguments.arguments)
    if fork is not None:
        return fork
    delivered = context.skills.load(name, arguments.arguments)
    # A receipt stands alone.
    return delivered.text if delivered.loaded is None else _with_header(delivered, arguments.reason, context)


def _must_be_allowed(context: Context, name: str, arguments: str = "") -> None:
    """By the rules for skills, as in a run. Raises InvalidError, also for what would be asked: nobody is here."""
    found = context.skills.find(name).full_name
    judgement = context.permissions.decide("Skill", {"skill": found, "args": arguments})
    if judgement.effect != "allow":
        part = next(part for part in judgement.parts if part.effect == judgement.effect)
        rule = f" (`{_line(part.rule)}`)" if part.rule else ""
        raise InvalidError(f"the skill {found} is not allowed: {judgement.reason}{rule}", "use another, or none")


def _with_header(delivered: Delivered, reason: str, context: Context) -> str:
    skill = context.library.find_skill(delivered.name)
    lines = [f"## Skill Loaded: {_line(read_details(skill).display_name)}", f"**Purpose**: {_line(skill.description)}"]
    if reason.strip():
        lines.append(f"**Loaded because**: {_line(reason)}")
    limits = delivered.rights.for_model() if delivered.rights is not None else ""
    return "\n\n".join(part for part in (*lines, "---", delivered.text, limits) if part)


def _line(given: str) -> str:
    """So that nothing in it passes for another line of the header, or for the skill itself."""
    return remove_hidden(one_line(given)).replace("<", "&lt;")


async def _unload(arguments: NameArguments, context: Context) -> Outcome:
    name = context.skills.unload(arguments.skill_name)
    if name is None:
        return answer(f"{_line(arguments.skill_name)} is not loaded.", "was not loaded")
    return answer(f"The skill {name} is unloaded: follow it no longer. load_skill brings all of it again.", name)


async def _read_file(arguments: FileArguments, context: Context) -> Outcome:
    data, path = await asyncio.to_thread(_bytes_of, arguments, context)
    try:
        whole = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        fix = "use it from the skill's directory, or read it as a resource"
        raise InvalidError(f"{_line(arguments.path)} is no text ({len(data):,} bytes): {path}", fix) from None
    shown = whole[arguments.offset : arguments.offset + LONGEST_READ]
    left = len(whole) - arguments.offset - len(shown)
    if not shown:
        end = "the file is empty" if not whole else f"the file ends at {len(whole):,}"
        return answer(f"[{end}]", end)
    more = f"\n[{left:,} more characters. Go on with offset={arguments.offset + len(shown)}.]" if left > 0 else ""
    return answer(reveal_hidden(shown) + more, f"{len(shown):,} characters")


def _bytes_of(arguments: FileArguments, context: Context) -> tuple[bytes, str]:
    """What leads out of the skill, by dots or by links, is not one of its files."""
    skill = context.skills.find(arguments.skill_name.strip().lstrip("/"))
    _must_be_allowed(context, skill.full_name)
    main = resolved_file(skill)
    top = os.path.dirname(main)
    wanted = arguments.path.removeprefix("./")
    if wanted.startswith(f"{skill.directory}/"):
        wanted = wanted[len(skill.directory) + 1 :]
    if "\0" in wanted:
        raise InvalidError("the path has a NUL character", "")
    resolved = main if wanted == "SKILL.md" else os.path.realpath(os.path.join(top, wanted))
    alone = bool(skill.flags & FLAT) and resolved != main
    if not is_inside(resolved, top) or alone or not os.path.exists(resolved):
        for link in list_resources(skill).problems:
            if f"{skill.directory}/{wanted}/".startswith(f"{link.file}/"):
                raise InvalidError(f"{_line(arguments.path)}: {_line(link.problem)}", link.fix)
        problem = f"the skill {skill.full_name} has no file {_line(arguments.path)}"
        raise NotFoundError(problem, f"it has {_names(context, skill.full_name)}")
    judgement = context.permissions.in_mode("default").decide("Read", {"file_path": resolved})
    if judgement.effect != "allow":
        raise InvalidError(f"{_line(arguments.path)} is not read: {judgement.reason}", "")
    descriptor = open_to_read(resolved, context.workspace, expected_resolved=resolved)
    with open(descriptor, "rb") as file:
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise InvalidError(f"{_line(arguments.path)} is longer than {LARGEST_FILE:,} bytes: {resolved}", "")
    return data, resolved


def _names(context: Context, name: str) -> str:
    files = [resource.path for resource in list_resources(context.library.find_skill(name), 40).files]
    return _line(", ".join(["SKILL.md", *files]))


# Not one that only reads: a skill may have commands that its loading runs.
LOAD = Tool("load_skill", text("load_skill"), LoadArguments, _load)
LIST_LOADED = LIST_LOADED_SKILLS._replace(name="list_loaded_skills", description=text("list_loaded_skills"))
SEARCH = SEARCH_SKILLS._replace(name="search_skills", description=text("search_skills"))
READ_FILE = Tool("read_skill_file", text("read_skill_file"), FileArguments, _read_file, reads_only=True)
UNLOAD = Tool("unload_skill", text("unload_skill"), NameArguments, _unload)
