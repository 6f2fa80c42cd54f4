"""The system prompt of a run, of the main agent or of one that was asked for by name, and what it was made for.

Used by runtime/agent; packing makes the sections. As long as what it was made for stays, a session's prompt stays
byte for byte, whatever happens to the files meanwhile.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kitbag.assembly.environment import AgentEnvironment
from kitbag.errors import Diagnostic
from kitbag.ledger import Ledger, full_entry
from kitbag.library.agents import AgentFile as AgentFile
from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.models.model_selection import SelectedModel
from kitbag.models.provider import SystemBlock
from kitbag.packing.agent_prompt import compose_agent_prompt, detect_environment
from kitbag.packing.main_prompt import MainPromptInputs, build_main_prompt
from kitbag.text.hidden_characters import reveal_hidden
from kitbag.text.tokens import estimate_tokens


class SystemPrompt(NamedTuple):
    environment: AgentEnvironment
    chosen: SelectedModel
    mode: PermissionMode
    tools: tuple[str, ...]
    agent: AgentFile | None = None
    append: str = ""
    """The person's own words, behind all others."""
    task: str = ""
    """What an agent that another one started is to do."""

    def inputs(self) -> dict[str, Any]:
        """All that it depends on but for the files."""
        library = self.environment.library
        return {
            "directory": self.environment.places.cwd,
            "provider": self.chosen.provider,
            "window": self.chosen.info.window,
            "mode": self.mode,
            "agent": self.agent.path if self.agent is not None else "",
            "team": library.team,
            "persona": library.persona.path if library.persona is not None else "",
            "append": self.append,
            "trusted": self.environment.trust.can_load_items,
            "tools": list(self.tools),
            **({"task": self.task, "skills": list(self.agent.skills)} if self.task and self.agent is not None else {}),
        }

    def build_ledger(self) -> tuple[Ledger, tuple[Diagnostic, ...]]:
        """And what is wrong with what it was made from."""
        environment = detect_environment(self.environment.places.cwd, self.environment.workspace.root)
        if self.agent is not None:
            agent = self.agent._replace(permission_mode=self.mode)
            composed = compose_agent_prompt(agent, self.environment.library, estimate_tokens, environment, self.task)
            return self._append_user_text(composed.ledger), composed.warnings
        wanted = MainPromptInputs(
            self.chosen.provider,
            self.chosen.info.window,
            self.mode,
            environment,
            self.tools,
            self.environment.trust.can_load_items,
            self.append,
        )
        prompt = build_main_prompt(self.environment.library, wanted)
        return prompt.ledger, prompt.warnings

    def _append_user_text(self, ledger: Ledger) -> Ledger:
        text = reveal_hidden(self.append).strip()
        if not text:
            return ledger
        entry = full_entry("appended", "--append-system-prompt", f"\n{text}\n", estimate_tokens, "command line")
        return Ledger((*ledger.entries, entry))


def prompt_blocks(entries: Sequence[dict[str, Any]]) -> tuple[SystemBlock, ...]:
    """In the ledger's order. What stands last, the environment or an agent's task, changes; all before it is the same
    for every session."""
    last = entries[-1:] if entries and entries[-1]["kind"] in ("environment", "task") else ()
    stable = "".join(str(entry["text"]) for entry in entries[: len(entries) - len(last)])
    blocks = (SystemBlock(stable, cache=True), *(SystemBlock(str(entry["text"])) for entry in last))
    return tuple(block for block in blocks if block.text)
