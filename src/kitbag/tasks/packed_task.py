"""A packed task as an agent's prompt: `pack` builds the context, and the answer is checked against the output contract.

Used by delegation and runner. The agent's preloaded skills are charged first and never appear twice.
"""

import os
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from kitbag.assembly.environment import diagnostic_notice, with_persona
from kitbag.assembly.parent_context import ParentContext
from kitbag.errors import UsageError
from kitbag.library.agents import AgentFile as AgentFile
from kitbag.packing.loading_strategy import STRATEGIES, Strategy
from kitbag.packing.output_contract import CONTRACT_FIELDS, OUTPUT_KINDS, OutputKind, check_output, make_contract
from kitbag.packing.pack import Packer, PackOptions
from kitbag.packing.task_sources import load_task
from kitbag.permissions.decisions.decide import child_mode
from kitbag.tasks.task import TaskRequest
from kitbag.tools.delegation import PackSelection


def pack_request(
    request: TaskRequest, inherited: ParentContext, definition: AgentFile, selection: PackSelection
) -> tuple[TaskRequest, list[str]]:
    """The request with the packed context before the prompt, and warnings. Raises what pack raises."""
    environment = inherited.environment
    if selection.team or selection.persona:
        environment = with_persona(environment, selection.team, selection.persona)
    permissions = environment.reference_permissions(inherited.mode, allow_commands=selection.allow_commands)
    packer = Packer(environment.library, policy=permissions, allow_options=selection.allow_options)
    loaded, problems = load_task(request.pack, packer.source())
    output = cast("OutputKind", _one_of("output requirement", selection.output, OUTPUT_KINDS)) or None
    options = PackOptions(
        skills=selection.skills,
        strategy=cast("Strategy", _one_of("strategy", selection.strategy, STRATEGIES)) or None,
        output="json" if request.output_schema else output,
        values=selection.values,
        budgets=selection.budgets,
        agent=_as_started(definition, inherited, loaded.id),
        model=inherited.chosen.name,
    )
    payload = packer.pack(loaded, options, problems)
    text = "\n\n".join(part for part in (payload.text.rstrip("\n"), request.prompt) if part)
    description = request.description or payload.task.title
    own = [one for one in payload.warnings if one.severity != "info" and one not in payload.preload_warnings]
    warnings = [diagnostic_notice(warning).line() for warning in own]
    contract = {} if request.output_schema else CONTRACT_FIELDS.write(payload.contract)
    return msgspec.structs.replace(request, prompt=text, description=description, contract=contract), warnings


def _one_of(what: str, value: str, known: tuple[str, ...]) -> str:
    if value and value not in known:
        raise UsageError(f"unknown {what} {value!r}", f"use {', '.join(known)}")
    return value


def _as_started(definition: AgentFile, inherited: ParentContext, task_id: str) -> AgentFile:
    """With the mode it will have, and without Write if the rules deny the file that a contract would name."""
    mode = child_mode(inherited.mode, definition.permission_mode)
    started = msgspec.structs.replace(definition, permission_mode=mode)
    file = make_contract(task_id, "manifest+file", "").output_file
    path = os.path.join(inherited.environment.workspace.root, file)
    permissions = inherited.permissions.restricted_to(definition.tools, definition.path).with_mode(mode)
    if permissions.decide("Write", {"file_path": path, "content": ""}).effect == "deny":
        # If it has no Write, it may still write with Bash; if a rule denies the file, it may not.
        denied = ("Write", "Bash") if started.tools.allows("Write") else ("Write",)
        started = msgspec.structs.replace(started, tools=started.tools.without(denied))
    return started


def contract_violations(contract: Mapping[str, Any], answer: str, workspace: str) -> tuple[str, ...]:
    """What the answer and the files it left are missing."""
    return check_output(answer, CONTRACT_FIELDS.read(contract, exact=True), workspace).problems
