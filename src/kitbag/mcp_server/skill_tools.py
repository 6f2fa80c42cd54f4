"""The skill tools of the MCP server: load_skill, list_loaded_skills, search_skills, read_skill_file, unload_skill (seed
002).

Used by tool_calls. Arguments and rendering; packing/session_skills decides what can be loaded.
"""

import asyncio
import os
from typing import Annotated, Final

from msgspec import Meta, structs

from kitbag.errors import InvalidError, NotFoundError
from kitbag.library.skill_files import list_resources, read_skill_details, resolve_skill_file
from kitbag.library.skills import FLAT
from kitbag.mcp_server.served_library import load_text
from kitbag.messages import Text
from kitbag.packing.session_skills import RequestedBy, SkillDelivery, SkillFork
from kitbag.permissions.model import is_inside
from kitbag.permissions.safe_open import open_for_reading
from kitbag.text.hidden_characters import collapse_whitespace, remove_hidden, reveal_hidden
from kitbag.tools.base import Arguments, Tool, ToolContext, ToolOutput, text_output
from kitbag.tools.skill import LIST_LOADED_SKILLS, SEARCH_SKILLS, run_forked_skill

MAX_READ_CHARACTERS: Final = 100_000
MAX_FILE_BYTES: Final = 16 * 1024 * 1024
Name = Annotated[str, Meta(min_length=1, max_length=300, description="The skill's name.")]


class LoadSkillArguments(Arguments, frozen=True):
    skill_name: Name
    reason: Annotated[str, Meta(max_length=2_000, description="Why it is needed, in a few words.")] = ""
    arguments: Annotated[str, Meta(max_length=20_000, description="Arguments for the skill, if it takes any.")] = ""
    part: Annotated[int, Meta(ge=0, le=10_000, description="The part of a long skill; its first part lists them.")] = 0


class InvokeSkillArguments(Arguments, frozen=True):
    skill_name: Name
    arguments: Annotated[str, Meta(max_length=20_000)] = ""


class SkillNameArguments(Arguments, frozen=True):
    skill_name: Name


class SkillFileArguments(Arguments, frozen=True):
    skill_name: Name
    path: Annotated[str, Meta(min_length=1, max_length=2_000, description="Path relative to the skill's directory.")]
    offset: Annotated[int, Meta(ge=0, description="Character offset to start at.")] = 0


async def _load(arguments: LoadSkillArguments, context: ToolContext) -> ToolOutput:
    loaded = await asyncio.to_thread(_load_or_fork, arguments, context)
    if isinstance(loaded, str):
        return text_output(loaded, arguments.skill_name)
    assert context.delegation is not None, "the server sets it for every call of this tool"
    return await run_forked_skill(loaded, context, context.delegation)


def _load_or_fork(arguments: LoadSkillArguments, context: ToolContext) -> SkillFork | str:
    name = arguments.skill_name.strip().lstrip("/")
    _check_allowed(context, name, arguments.arguments)
    fork = context.skills.fork(name, arguments.arguments)
    if fork is not None:
        return fork
    delivered = context.skills.load(name, arguments.arguments, part=arguments.part)
    # A receipt for a loaded skill has no header.
    return delivered.text if delivered.loaded is None else _with_header(delivered, arguments.reason, context)


async def _invoke(arguments: InvokeSkillArguments, context: ToolContext) -> ToolOutput:
    """What `/name arguments` inserts: the skill and the request, or the report of a skill that runs as an agent."""
    invoked = await asyncio.to_thread(_invoke_or_fork, arguments, context)
    if isinstance(invoked, SkillDelivery):
        request = reveal_hidden(invoked.request_text(arguments.arguments))
        skill = "\n\n".join(part for part in (invoked.text_with_limits, _list_warnings(invoked)) if part)
        return ToolOutput(content=(Text(skill), Text(request)), summary=invoked.name)
    assert context.delegation is not None, "the server sets it for every call of this tool"
    return await run_forked_skill(invoked, context, context.delegation)


def _invoke_or_fork(arguments: InvokeSkillArguments, context: ToolContext) -> SkillFork | SkillDelivery:
    name, given = arguments.skill_name, arguments.arguments
    _check_allowed(context, name, given, by="user")
    fork = context.skills.fork(name, given, by="user")
    return fork if fork is not None else context.skills.load(name, given, by="user")


def _check_allowed(context: ToolContext, name: str, arguments: str = "", by: RequestedBy = "model") -> None:
    """Applies the rules for skills. Raises InvalidError, also for what would need an approval."""
    full_name = context.skills.find(name, by).full_name
    decision = context.permissions.decide("Skill", {"skill": full_name, "args": arguments})
    if decision.effect != "allow":
        part = next(part for part in decision.parts if part.effect == decision.effect)
        rule = f" (`{_escape_line(part.rule)}`)" if part.rule else ""
        raise InvalidError(
            f"the skill {full_name} is not allowed: {decision.reason}{rule}",
            "use another skill, or continue without one",
        )


def _with_header(delivered: SkillDelivery, reason: str, context: ToolContext) -> str:
    skill = context.library.find_skill(delivered.name)
    lines = [
        f"## Skill Loaded: {_escape_line(read_skill_details(skill).display_name)}",
        f"**Purpose**: {_escape_line(skill.description)}",
    ]
    if reason.strip():
        lines.append(f"**Loaded because**: {_escape_line(reason)}")
    limits = delivered.permissions.model_notice() if delivered.permissions is not None else ""
    return "\n\n".join(part for part in (*lines, "---", delivered.text, limits, _list_warnings(delivered)) if part)


def _list_warnings(delivered: SkillDelivery) -> str:
    return "\n".join(f"Warning: {_escape_line(warning)}" for warning in delivered.warnings)


def _escape_line(text: str) -> str:
    """So that it can't forge another header line or the skill itself."""
    return remove_hidden(collapse_whitespace(text)).replace("<", "&lt;")


async def _unload(arguments: SkillNameArguments, context: ToolContext) -> ToolOutput:
    name = context.skills.unload(arguments.skill_name)
    if name is None:
        return text_output(f"{_escape_line(arguments.skill_name)} is not loaded.", "was not loaded")
    return text_output(f"The skill {name} is unloaded. Stop following it. load_skill loads it again in full.", name)


async def _read_file(arguments: SkillFileArguments, context: ToolContext) -> ToolOutput:
    data, path = await asyncio.to_thread(_read_bytes, arguments, context)
    try:
        whole = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        fix = "use it from the skill's directory, or read it as a resource"
        raise InvalidError(
            f"{_escape_line(arguments.path)} is not a text file ({len(data):,} bytes): {path}", fix
        ) from None
    shown = whole[arguments.offset : arguments.offset + MAX_READ_CHARACTERS]
    remaining = len(whole) - arguments.offset - len(shown)
    if not shown:
        end = "the file is empty" if not whole else f"the file has only {len(whole):,} characters"
        return text_output(f"[{end}]", end)
    more = (
        f"\n[{remaining:,} more characters. Continue with offset={arguments.offset + len(shown)}.]"
        if remaining > 0
        else ""
    )
    return text_output(reveal_hidden(shown) + more, f"{len(shown):,} characters")


def _read_bytes(arguments: SkillFileArguments, context: ToolContext) -> tuple[bytes, str]:
    """A path that leaves the skill, by `..` or by links, is not one of its files."""
    skill = context.skills.find(arguments.skill_name.strip().lstrip("/"))
    _check_allowed(context, skill.full_name)
    main = resolve_skill_file(skill)
    top = os.path.dirname(main)
    relative = arguments.path.removeprefix("./")
    if relative.startswith(f"{skill.directory}/"):
        relative = relative[len(skill.directory) + 1 :]
    if "\0" in relative:
        raise InvalidError("the path contains a NUL character", "")
    resolved = main if relative == "SKILL.md" else os.path.realpath(os.path.join(top, relative))
    is_outside_flat_file = bool(skill.flags & FLAT) and resolved != main
    if not is_inside(resolved, top) or is_outside_flat_file or not os.path.exists(resolved):
        for link in list_resources(skill).problems:
            if f"{skill.directory}/{relative}/".startswith(f"{link.file}/"):
                raise InvalidError(f"{_escape_line(arguments.path)}: {_escape_line(link.problem)}", link.fix)
        problem = f"the skill {skill.full_name} has no file {_escape_line(arguments.path)}"
        raise NotFoundError(problem, f"available files: {_list_file_names(context, skill.full_name)}")
    decision = context.permissions.with_mode("default").decide("Read", {"file_path": resolved})
    if decision.effect != "allow":
        raise InvalidError(f"cannot read {_escape_line(arguments.path)}: {decision.reason}", "")
    descriptor = open_for_reading(resolved, context.workspace, expected_resolved=resolved)
    with open(descriptor, "rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise InvalidError(f"{_escape_line(arguments.path)} is larger than {MAX_FILE_BYTES:,} bytes: {resolved}", "")
    return data, resolved


def _list_file_names(context: ToolContext, name: str) -> str:
    files = [resource.path for resource in list_resources(context.library.find_skill(name), 40).files]
    return _escape_line(", ".join(["SKILL.md", *files]))


# Not read-only: loading a skill may run its commands.
LOAD = Tool(name="load_skill", description=load_text("load_skill"), arguments=LoadSkillArguments, run=_load)
LIST_LOADED = structs.replace(
    LIST_LOADED_SKILLS, name="list_loaded_skills", description=load_text("list_loaded_skills")
)
SEARCH = structs.replace(SEARCH_SKILLS, name="search_skills", description=load_text("search_skills"))
READ_FILE = Tool(
    name="read_skill_file",
    description=load_text("read_skill_file"),
    arguments=SkillFileArguments,
    run=_read_file,
    read_only=True,
)
UNLOAD = Tool(name="unload_skill", description=load_text("unload_skill"), arguments=SkillNameArguments, run=_unload)
INVOKE = Tool(name="invoke_skill", description="", arguments=InvokeSkillArguments, run=_invoke)
"""Not listed: it serves prompts/get."""
