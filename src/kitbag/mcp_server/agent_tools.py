"""The agent tools of the MCP server: list_agents, Task, TaskOutput, TaskStop and pack.

Used by tool_calls. Starting an agent needs permission as anywhere else: Kitbag asks through the client if the client
supports elicitation, and denies otherwise.
"""

import asyncio
from typing import Annotated, Final, Literal, cast

from msgspec import Meta, structs

from kitbag.assembly.run_options import Options
from kitbag.mcp_server.served_library import load_text
from kitbag.packing.catalog import catalog_budget, render_agents
from kitbag.packing.pack import Packer, PackOptions
from kitbag.packing.references.permissions import ReferencePermissions
from kitbag.packing.task_sources import load_task
from kitbag.tools.base import Arguments, Tool, ToolContext, ToolFunction, ToolOutput, error_output, text_output
from kitbag.tools.delegation import DelegationRequest
from kitbag.tools.pack_arguments import check_task_reference
from kitbag.tools.skill import NoArguments
from kitbag.tools.task import TASK, TaskArguments

MAX_TASK_CHARACTERS: Final = 1_000_000

Variables = Annotated[dict[str, str], Meta(max_length=200, description="Values for {{NAME}} placeholders.")]


class PackArguments(Arguments, frozen=True):
    task: Annotated[
        str, Meta(min_length=1, max_length=MAX_TASK_CHARACTERS, description="Task ID, file, or the task itself.")
    ]
    skills: Annotated[
        tuple[str, ...], Meta(max_length=20, description="Skills to include; selected automatically if omitted.")
    ] = ()
    strategy: Literal["", "minimal", "standard", "comprehensive"] = ""
    output_requirements: Literal["", "manifest+file", "text"] = ""
    variables: Variables = {}  # noqa: RUF012 - each call has its own
    available_context: Annotated[int, Meta(ge=0, description="Size of the subagent's context, in tokens.")] = 0
    context_used: Annotated[int, Meta(ge=0, description="Tokens of the subagent's context already in use.")] = 0
    agent: Annotated[str, Meta(max_length=200, description="Agent the context is for.")] = ""


async def _list_agents(_: NoArguments, context: ToolContext) -> ToolOutput:
    agents = context.library.visible_agents()
    if not agents:
        return text_output("No agents are available.", "none")
    return text_output(render_agents(agents, catalog_budget(context.library.settings)).text, f"{len(agents)} agents")


async def _start_agent(arguments: TaskArguments, context: ToolContext) -> ToolOutput:
    delegation = context.delegation
    assert delegation is not None, "the server sets it for every call of this tool"
    request = DelegationRequest(
        agent=arguments.subagent_type,
        prompt=arguments.prompt,
        description=arguments.description,
        resume=arguments.resume,
    )
    refused = await delegation.request_permission(request, context.permissions, context.directory)
    if refused:
        return error_output(f"the agent {arguments.subagent_type} was not started: {refused}")
    return await TASK.run(arguments, context)


def pack_tool(options: Options) -> Tool[PackArguments]:
    async def work(arguments: PackArguments, context: ToolContext) -> ToolOutput:
        return await asyncio.to_thread(_pack, arguments, context, options)

    return Tool(
        name="pack",
        description=load_text("pack"),
        arguments=PackArguments,
        run=cast("ToolFunction[PackArguments]", work),
    )


def _pack(arguments: PackArguments, context: ToolContext, options: Options) -> ToolOutput:
    library, permissions = context.library, context.permissions
    reference_permissions = ReferencePermissions(
        library.places,
        library.settings,
        allow_environment=frozenset(options.allow_env),
        trust_workspace=options.trust_workspace,
        live=permissions.live_rules,
        mode=permissions.mode,
    )
    packer = Packer(library, policy=reference_permissions)
    pack_options = PackOptions(
        skills=arguments.skills,
        strategy=arguments.strategy or None,
        output=arguments.output_requirements or None,
        values=arguments.variables,
        available=arguments.available_context or None,
        used=arguments.context_used,
        agent=library.find_agent(arguments.agent) if arguments.agent else None,
    )
    written = arguments.task.strip()
    if written.startswith("{") or "\n" in written:
        task, problems = load_task("-", packer.source(), arguments.task)
    else:
        task, problems = load_task(check_task_reference(written, context), packer.source())
    payload = packer.pack(task, pack_options, problems)
    warnings = [
        f"Warning: {warning.place}: {warning.problem}" for warning in payload.warnings if warning.severity != "info"
    ]
    return text_output("\n".join([payload.text.rstrip("\n"), *warnings]), f"{payload.tokens:,} tokens")


LIST_AGENTS = Tool(
    name="list_agents", description=load_text("list_agents"), arguments=NoArguments, run=_list_agents, read_only=True
)
START_AGENT = structs.replace(TASK, run=_start_agent)
