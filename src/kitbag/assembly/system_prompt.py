"""The system prompt of a run, of the main agent or of one that was asked for by name, and what it was made for.

Used by runtime/agent; packing makes the sections. As long as what it was made for stays, a session's prompt stays
byte for byte, whatever happens to the files meanwhile.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kitbag.assembly.environment import Ground
from kitbag.errors import Diagnostic
from kitbag.ledger import Ledger, kept
from kitbag.library.agents import Agent as AgentFile
from kitbag.library.dialects.permission_modes import Mode
from kitbag.models.model_selection import Chosen
from kitbag.models.provider import Block
from kitbag.packing.agent_prompt import compose_prompt, environment_here
from kitbag.packing.main_prompt import Wanted, main_prompt
from kitbag.text.hidden_characters import reveal_hidden
from kitbag.text.tokens import estimate_tokens


class SystemPrompt(NamedTuple):
    ground: Ground
    chosen: Chosen
    mode: Mode
    tools: tuple[str, ...]
    agent: AgentFile | None = None
    append: str = ""
    """The person's own words, behind all others."""
    task: str = ""
    """What an agent that another one started is to do."""

    def made_for(self) -> dict[str, Any]:
        """All that it depends on but for the files."""
        library = self.ground.library
        return {
            "directory": self.ground.places.cwd,
            "provider": self.chosen.provider,
            "window": self.chosen.known.window,
            "mode": self.mode,
            "agent": self.agent.path if self.agent is not None else "",
            "team": library.team,
            "persona": library.persona.path if library.persona is not None else "",
            "append": self.append,
            "trusted": self.ground.trust.is_open,
            "tools": list(self.tools),
            **({"task": self.task, "skills": list(self.agent.skills)} if self.task and self.agent is not None else {}),
        }

    def ledger(self) -> tuple[Ledger, tuple[Diagnostic, ...]]:
        """And what is wrong with what it was made from."""
        environment = environment_here(self.ground.places.cwd, self.ground.workspace.root)
        if self.agent is not None:
            agent = self.agent._replace(permission_mode=self.mode)
            composed = compose_prompt(agent, self.ground.library, estimate_tokens, environment, self.task)
            return self._with_addition(composed.ledger), composed.warnings
        wanted = Wanted(
            self.chosen.provider,
            self.chosen.known.window,
            self.mode,
            environment,
            self.tools,
            self.ground.trust.is_open,
            self.append,
        )
        prompt = main_prompt(self.ground.library, wanted)
        return prompt.ledger, prompt.warnings

    def _with_addition(self, ledger: Ledger) -> Ledger:
        text = reveal_hidden(self.append).strip()
        if not text:
            return ledger
        entry = kept("appended", "--append-system-prompt", f"\n{text}\n", estimate_tokens, "command line")
        return Ledger((*ledger.entries, entry))


def blocks_of(entries: Sequence[dict[str, Any]]) -> tuple[Block, ...]:
    """In the ledger's order. What stands last, the environment or an agent's task, changes; all before it is the same
    for every session."""
    last = entries[-1:] if entries and entries[-1]["kind"] in ("environment", "task") else ()
    stable = "".join(str(entry["text"]) for entry in entries[: len(entries) - len(last)])
    blocks = (Block(stable, cache=True), *(Block(str(entry["text"])) for entry in last))
    return tuple(block for block in blocks if block.text)
