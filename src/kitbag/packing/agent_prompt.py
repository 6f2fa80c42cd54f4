"""The system prompt of a subagent, as a ledger: identity, type, mode, preloads, instructions, environment,
guidelines, and the task last, so that the prefix is the same for every spawn (CONTRACT §5).

Used by `kitbag agents show --prompt` and by assembly; uses preload, catalog and git_state.
"""

import os
import platform
import time
from collections.abc import Callable, Collection

import msgspec

from kitbag.errors import Diagnostic
from kitbag.ledger import Entry, Ledger, full_entry
from kitbag.library.agents import AgentFile
from kitbag.library.registry import Registry
from kitbag.library.skills import Skill
from kitbag.packing.catalog import catalog_budget, render_skills
from kitbag.packing.git_state import read_git_state
from kitbag.packing.preload import PreparePreload, preload_skills, skills_budget
from kitbag.text.hidden_characters import collapse_whitespace, reveal_hidden

_PROMPT_DIR = os.path.dirname(__file__)
MODE_DESCRIPTIONS = {
    "plan": ("Read-Only", "You are in read-only mode. Use only tools that read information. Do not modify anything."),
    "default": ("Ask First", "Actions that change something may need the user's approval."),
    "acceptEdits": ("Edits Accepted", "You may edit files in the workspace. Other changes may need approval."),
    "autonomous": ("Autonomous", "You work on your own in a sandbox. No user is available to answer questions."),
    "locked": ("Locked", "Only actions that a rule allows are possible; everything else is denied without asking."),
}


class EnvironmentInfo(msgspec.Struct, frozen=True, kw_only=True):
    cwd: str
    platform: str
    date: str
    git: str = ""
    """Branch and commit at startup."""

    def render(self) -> str:
        lines = [f"- Working directory: {self.cwd}", f"- Platform: {self.platform}", f"- Date: {self.date}"]
        return "\n".join([*lines, f"- Git: {self.git}"] if self.git else lines)


def detect_environment(cwd: str, root: str = "") -> EnvironmentInfo:
    """`root`: the workspace, to include its git state."""
    state = read_git_state(root) if root else None
    return EnvironmentInfo(
        cwd=collapse_whitespace(reveal_hidden(cwd)),
        platform=platform.system().lower(),
        date=time.strftime("%Y-%m-%d"),
        git=collapse_whitespace(reveal_hidden(state.render())) if state else "",
    )


class AgentPrompt(msgspec.Struct, frozen=True, kw_only=True):
    ledger: Ledger
    warnings: tuple[Diagnostic, ...]


def compose_agent_prompt(
    agent: AgentFile,
    registry: Registry,
    count: Callable[[str], int],
    environment: EnvironmentInfo,
    task: str = "",
    *,
    tools: Collection[str] | None = None,
    can_restart: bool = True,
    prepare: PreparePreload | None = None,
    find_denial: Callable[[Skill], str] = lambda skill: "",
) -> AgentPrompt:
    """`tools`: names of those that it gets, if known. `can_restart`: a caller restarts it with the skill that it asks
    for. `prepare`: resolves the references of preloaded skills; without it, their commands stay text.
    `find_denial`: why rules deny a skill, or empty."""
    has_skill_tool = "Skill" in tools if tools is not None else agent.tools.allows("Skill")
    preloads = preload_skills(agent, registry, skills_budget(agent, registry), count, prepare, find_denial)
    title, description = MODE_DESCRIPTIONS[agent.permission_mode]
    description += _describe_web(agent, tools)
    body = reveal_hidden(agent.body()).strip()
    scope = agent.root.scope

    def part(kind: str, source: str, text: str, scope: str = "built-in") -> Entry:
        return full_entry(kind, source, text, count, scope)

    about = f"## Agent Type: {collapse_whitespace(agent.full_name)}\n{collapse_whitespace(agent.description)}\n\n"
    entries = [
        part("identity", "compose.identity", _read_prompt_file("prompt_identity.md") + "\n\n"),
        part("agent-type", agent.path, about, scope),
        part("mode", "compose.mode", f"## Mode: {title}\n{description}\n\n"),
    ]
    if preloads.skills:
        entries.append(part("preloads", "compose.preloads", "## Preloaded Skills\n\n"))
    entries += preloads.entries
    if has_skill_tool:
        preloaded = {skill.full_name for skill in preloads.skills}
        pairs = [pair for pair in registry.visible_skills(agent) if pair[0].full_name not in preloaded]
        catalog = render_skills(pairs, catalog_budget(registry.settings)).text
        if catalog:
            entries.append(part("catalog", "compose.catalog", f"{catalog}\n\n"))
    if body:
        entries.append(part("instructions", agent.path, f"## Additional Instructions\n{body}\n\n", scope))
    entries.append(part("environment", "compose.environment", f"## Environment\n{environment.render()}\n\n"))
    guidelines = _read_prompt_file("prompt_guidelines.md") + "\n"
    if can_restart and not has_skill_tool:
        guidelines += _read_prompt_file("prompt_need_skill.md") + "\n"
    entries.append(part("guidelines", "compose.guidelines", guidelines))
    if task:
        entries.append(part("task", "task", f"\n## Your Task\n{task.strip()}\n"))
    return AgentPrompt(ledger=Ledger(tuple(entries)), warnings=preloads.warnings)


def _describe_web(agent: AgentFile, tools: Collection[str] | None) -> str:
    """What a read-only agent must know about the web, which it may be unable to use."""
    web = [name for name in ("WebFetch", "WebSearch") if agent.tools.allows(name)]
    if agent.permission_mode != "plan" or not web or tools is None:
        return ""
    if not any(name in tools for name in web):
        return " The web is not available in this run: no user can approve its use, and no rule allows it."
    return f" {' and '.join(web)} may need the user's approval."


def _read_prompt_file(name: str) -> str:
    with open(os.path.join(_PROMPT_DIR, name), encoding="utf-8") as file:
        return file.read().strip()
