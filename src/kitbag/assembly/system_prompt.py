"""The system prompt of a run, for the main agent or a named one, and the inputs it was built from.

Used by agent_setup; packing renders the sections. While its inputs are unchanged, a session's prompt stays the same
byte for byte, even if files change.
"""

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from kitbag.assembly.environment import AgentEnvironment
from kitbag.assembly.skill_loading import find_denial, make_preparer
from kitbag.errors import Diagnostic
from kitbag.ledger import Ledger, full_entry
from kitbag.library.agents import AgentFile as AgentFile
from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.models.model_selection import SelectedModel
from kitbag.models.provider import SystemBlock
from kitbag.packing.agent_prompt import AgentPrompt, EnvironmentInfo, compose_agent_prompt, detect_environment
from kitbag.packing.main_prompt import MainPromptInputs, build_main_prompt
from kitbag.text.hidden_characters import reveal_hidden
from kitbag.text.tokens import estimate_tokens


class SystemPrompt(msgspec.Struct, frozen=True, kw_only=True):
    environment: AgentEnvironment
    chosen: SelectedModel
    mode: PermissionMode
    tools: tuple[str, ...]
    agent: AgentFile | None = None
    append: str = ""
    """The user's own text, after all other sections."""
    task: str = ""
    """The task of a subagent."""

    def inputs(self) -> dict[str, Any]:
        """Everything that it depends on, except files."""
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
            **({"snapshot": os.path.basename(snapshot)} if (snapshot := self.environment.places.snapshot) else {}),
            **({"task": self.task, "skills": list(self.agent.skills)} if self.task and self.agent is not None else {}),
        }

    def build_ledger(self) -> tuple[Ledger, tuple[Diagnostic, ...]]:
        """With diagnostics about what it was built from."""
        environment = detect_environment(self.environment.places.cwd, self.environment.workspace.root)
        if self.agent is not None:
            agent = msgspec.structs.replace(self.agent, permission_mode=self.mode)
            composed = self._compose_agent_prompt(agent, environment)
            return self._append_user_text(composed.ledger), composed.warnings
        prompt_options = MainPromptInputs(
            provider=self.chosen.provider,
            window=self.chosen.info.window,
            mode=self.mode,
            environment=environment,
            tools=self.tools,
            trusted=self.environment.trust.can_load_items,
            append=self.append,
        )
        prompt = build_main_prompt(self.environment.library, prompt_options)
        return prompt.ledger, prompt.warnings

    def _compose_agent_prompt(self, agent: AgentFile, environment: EnvironmentInfo) -> AgentPrompt:
        prepare = make_preparer(self.environment, self.mode).prepare_preload if agent.skills else None
        return compose_agent_prompt(
            agent,
            self.environment.library,
            estimate_tokens,
            environment,
            self.task,
            tools=self.tools,
            can_restart=bool(self.task),
            prepare=prepare,
            find_denial=partial(find_denial, self.environment),
        )

    def _append_user_text(self, ledger: Ledger) -> Ledger:
        text = reveal_hidden(self.append).strip()
        if not text:
            return ledger
        entry = full_entry("appended", "--append-system-prompt", f"\n{text}\n", estimate_tokens, "command line")
        return Ledger((*ledger.entries, entry))


def prompt_blocks(entries: Sequence[dict[str, Any]]) -> tuple[SystemBlock, ...]:
    """In ledger order. The last section, the environment or a subagent's task, varies; everything before it is the same
    in every session."""
    last = entries[-1:] if entries and entries[-1]["kind"] in ("environment", "task") else ()
    stable = "".join(str(entry["text"]) for entry in entries[: len(entries) - len(last)])
    blocks = (SystemBlock(text=stable, cache=True), *(SystemBlock(text=str(entry["text"])) for entry in last))
    return tuple(block for block in blocks if block.text)
