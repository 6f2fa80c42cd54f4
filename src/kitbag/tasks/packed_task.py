"""A packed task as an agent's errand: its context comes from `pack`, and its answer is held against what was required.

Used by delegation and runner. The agent's own preloads are charged first, and never stand in the prompt twice.
"""

from collections.abc import Mapping
from typing import Any

from kitbag.assembly.inherited import Inherited
from kitbag.library.agents import Agent as AgentFile
from kitbag.packing.output_contract import OutputContract, check_output
from kitbag.packing.pack import Packer, PackOptions
from kitbag.packing.references.permissions import Rights
from kitbag.packing.task_sources import load_task
from kitbag.tasks.task import Wish


def packed(wish: Wish, inherited: Inherited, definition: AgentFile) -> tuple[Wish, list[str]]:
    """The wish with the packed context before what was said, and what is wrong with it. Raises what pack raises."""
    library, options = inherited.ground.library, inherited.options
    rights = Rights(
        library.places,
        library.settings,
        trust_workspace=options.trust_workspace,
        live=inherited.ground.live,
        mode=inherited.mode,
    )
    packer = Packer(library, policy=rights)
    loaded, problems = load_task(wish.pack, packer.source())
    payload = packer.pack(loaded, PackOptions(agent=definition, model=inherited.chosen.name), problems)
    text = "\n\n".join(part for part in (payload.text.rstrip("\n"), wish.prompt) if part)
    description = wish.description or payload.task.title
    warnings = [f"{warning.place}: {warning.problem}" for warning in payload.warnings if warning.severity != "info"]
    return wish._replace(prompt=text, description=description, contract=payload.contract._asdict()), warnings


def breaches(contract: Mapping[str, Any], answer: str, workspace: str) -> tuple[str, ...]:
    """What the answer and the files that it left lack."""
    return check_output(answer, OutputContract(**contract), workspace).problems
