"""A packed task as an agent's prompt: `pack` builds the context, and the answer is checked against the output contract.

Used by delegation and runner. The agent's preloaded skills are charged first and never appear twice.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kitbag.assembly.environment import diagnostic_notice
from kitbag.assembly.parent_context import ParentContext
from kitbag.library.agents import AgentFile as AgentFile
from kitbag.packing.output_contract import CONTRACT_FIELDS, check_output
from kitbag.packing.pack import Packer, PackOptions
from kitbag.packing.references.permissions import ReferencePermissions
from kitbag.packing.task_sources import load_task
from kitbag.tasks.task import TaskRequest


def pack_request(
    request: TaskRequest, inherited: ParentContext, definition: AgentFile
) -> tuple[TaskRequest, list[str]]:
    """The request with the packed context before the prompt, and warnings. Raises what pack raises."""
    library, options = inherited.environment.library, inherited.options
    permissions = ReferencePermissions(
        library.places,
        library.settings,
        trust_workspace=options.trust_workspace,
        live=inherited.environment.live_rules,
        mode=inherited.mode,
    )
    packer = Packer(library, policy=permissions)
    loaded, problems = load_task(request.pack, packer.source())
    payload = packer.pack(loaded, PackOptions(agent=definition, model=inherited.chosen.name), problems)
    text = "\n\n".join(part for part in (payload.text.rstrip("\n"), request.prompt) if part)
    description = request.description or payload.task.title
    warnings = [diagnostic_notice(warning).line() for warning in payload.warnings if warning.severity != "info"]
    contract = CONTRACT_FIELDS.write(payload.contract)
    return msgspec.structs.replace(request, prompt=text, description=description, contract=contract), warnings


def contract_violations(contract: Mapping[str, Any], answer: str, workspace: str) -> tuple[str, ...]:
    """What the answer and the files it left are missing."""
    return check_output(answer, CONTRACT_FIELDS.read(contract, exact=True), workspace).problems
