"""What each field of skills, agents, commands, personas and manifests means, as data for docs/fields.md.

Names and spellings come from field_names and plugins/manifest, which the readers use; a test compares both with this
module and with the fields that the readers ask for. Used by docs/generate.py only.
"""

from typing import Final

import msgspec


class FieldReference(msgspec.Struct, frozen=True, kw_only=True):
    value: str
    meaning: str
    tools: str
    """Whose files have the field."""
    default: str = ""


_ALL = "all"
_SPEC = "Agent Skills specification"
_CLAUDE = "Claude Code"
_KITBAG = "Kitbag"
_BOOLEAN = "true or false"
_NAMES = "list of names"
_TEXT = "text"


SKILL_REFERENCE: Final[dict[str, FieldReference]] = {
    "name": FieldReference(
        value="1 to 64 lowercase letters, digits and hyphens", default="the directory's name", tools=f"{_ALL}; {_SPEC}",
        meaning="Name used to list, load and invoke the skill.",
    ),
    "display_name": FieldReference(
        value=_TEXT, default="`name`", tools=_KITBAG,
        meaning="Title shown to users.",
    ),
    "description": FieldReference(
        value="text, at most 1,024 characters in portable skills",
        default="the first paragraph", tools=f"{_ALL}; {_SPEC}",
        meaning="What the skill does and when to use it; the catalog shows it to the model.",
    ),
    "when_to_use": FieldReference(
        value=_TEXT, tools=_CLAUDE,
        meaning="More about when to use it, listed after the description.",
    ),
    "version": FieldReference(
        value="quoted text", tools=_KITBAG,
        meaning="Version shown in packed contexts.",
    ),
    "tags": FieldReference(
        value="list of words", tools=_KITBAG,
        meaning="Words matched against the labels and type of a packed task.",
    ),
    "triggers": FieldReference(
        value="list of phrases or regular expressions", tools=_KITBAG,
        meaning="Suggest the skill when a prompt matches one of them.",
    ),
    "paths": FieldReference(
        value="list or comma-separated globs", tools=_CLAUDE,
        meaning="List the skill by name only, and describe it when a matching file is used; no effect in commands.",
    ),
    "activation": FieldReference(
        value="`auto`, `suggested`, `required`", default="`auto`", tools=_KITBAG,
        meaning="`required`: described first if not all descriptions fit in the catalog; other values have no effect.",
    ),
    "requires": FieldReference(
        value=_NAMES, tools=_KITBAG,
        meaning="Skills that are packed together with this one.",
    ),
    "subagents": FieldReference(
        value=_NAMES, tools=_KITBAG,
        meaning="Agents the skill delegates to; its persona can start them.",
    ),
    "disable_model_invocation": FieldReference(
        value=_BOOLEAN, default="false", tools=f"{_CLAUDE}, Copilot, Cursor",
        meaning="`true`: only users can start the skill; models do not see it.",
    ),
    "user_invocable": FieldReference(
        value=_BOOLEAN, default="true", tools=f"{_CLAUDE}, Copilot",
        meaning="`false`: not available as a command; models can still load it.",
    ),
    "argument_hint": FieldReference(
        value="quoted text", tools=f"{_CLAUDE}, Copilot",
        meaning="Arguments as shown in the catalog and in completion.",
    ),
    "arguments": FieldReference(
        value="list or space-separated names", tools=_CLAUDE,
        meaning="Names of positional arguments; insert one with `$name`.",
    ),
    "allowed_tools": FieldReference(
        value="list, or names separated by spaces or commas", tools=f"{_CLAUDE}; {_SPEC}",
        meaning="Tools allowed without asking until your next message; other tools are not restricted.",
    ),
    "restrict_tools": FieldReference(
        value="list of tools", tools=_KITBAG,
        meaning="Only these tools can be used until your next message.",
    ),
    "disallowed_tools": FieldReference(
        value="list of tools", tools=_CLAUDE,
        meaning="These tools cannot be used until your next message.",
    ),
    "context": FieldReference(
        value="`fork`", tools=_CLAUDE,
        meaning="Run the skill in a subagent; its body becomes the task.",
    ),
    "agent": FieldReference(
        value="agent name", default="`general-purpose`", tools=_CLAUDE,
        meaning="Agent that runs the skill with `context: fork`.",
    ),
    "model": FieldReference(
        value="`inherit`, an alias or a model name", default="`inherit`", tools=_CLAUDE,
        meaning="Model for `context: fork`; packing warns if another model is used.",
    ),
    "compatibility": FieldReference(
        value="text, at most 500 characters", tools=_SPEC,
        meaning="What the skill needs; packing warns if it names another model family.",
    ),
    "token_budget": FieldReference(
        value="number", tools=_KITBAG,
        meaning="Token limit for the skill in a packed context.",
    ),
    "tier": FieldReference(
        value="number", default="1", tools=_KITBAG,
        meaning="Rank of the skill in a manifest.",
    ),
    "license": FieldReference(
        value=_TEXT, tools=_SPEC,
        meaning="License; no effect.",
    ),
    "metadata": FieldReference(
        value="map of strings to strings", tools=_SPEC,
        meaning="Custom fields; no effect.",
    ),
    "tools": FieldReference(
        value="list of tools", tools=_KITBAG,
        meaning="Tools the skill expects; informational, no effect.",
    ),
}  # fmt: skip

AGENT_REFERENCE: Final[dict[str, FieldReference]] = {
    "name": FieldReference(
        value="lowercase letters, digits and hyphens", default="the file name", tools=_ALL,
        meaning="Name used to start the agent; for OpenCode and Copilot files, the file name is used instead.",
    ),
    "display_name": FieldReference(
        value=_TEXT, default="`name`", tools=_KITBAG,
        meaning="Name shown to users.",
    ),
    "description": FieldReference(
        value=_TEXT, default="the first paragraph", tools=_ALL,
        meaning="When to use the agent and what it returns; the catalog shows it.",
    ),
    "model": FieldReference(
        value="`inherit`, an alias or a model name", default="`inherit`", tools=_ALL,
        meaning="Model of the agent; a call can override it.",
    ),
    "variant": FieldReference(
        value=_TEXT, tools="OpenCode",
        meaning="Variant of the model.",
    ),
    "effort": FieldReference(
        value="`none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`",
        default="the model's", tools=f"{_CLAUDE}, Codex, OpenCode",
        meaning="Reasoning effort of the model.",
    ),
    "permission_mode": FieldReference(
        value="`plan`, `locked`, `default`, `acceptEdits`, `autonomous`", default="`default`", tools=_CLAUDE,
        meaning="What the agent does without asking; ignored in plugins.",
    ),
    "permission": FieldReference(
        value="`allow`, `ask`, `deny`, or a map by tool", tools="OpenCode",
        meaning="Converted to the strictest permission mode and tool list it implies.",
    ),
    "readonly": FieldReference(
        value=_BOOLEAN, default="false", tools="Cursor",
        meaning="`true`: the same as `permission-mode: plan`.",
    ),
    "sandbox_mode": FieldReference(
        value="`read-only`, `workspace-write`, `danger-full-access`", tools="Codex",
        meaning="Converted to a permission mode; never grants additional permissions.",
    ),
    "max_turns": FieldReference(
        value="1 to 10,000", default="50", tools=f"{_CLAUDE}, Gemini CLI, OpenCode",
        meaning="Maximum number of turns; a turn is one model request and its tool calls.",
    ),
    "tools": FieldReference(
        value="list, names separated by commas or spaces, map, or `*`", default="the caller's tools", tools=_ALL,
        meaning="Tools available to the agent; limits the tools but grants no permissions.",
    ),
    "denied": FieldReference(
        value="list of tools", tools=_CLAUDE,
        meaning="Tools not available to the agent.",
    ),
    "skills": FieldReference(
        value=_NAMES, tools=_CLAUDE,
        meaning="Skills whose instructions precede the agent's own, in this order.",
    ),
    "mcp_servers": FieldReference(
        value="list of names, or map by name", default="all configured servers", tools=f"{_CLAUDE}, Copilot",
        meaning="MCP servers whose tools are available to the agent; a definition adds a server for this agent.",
    ),
    "background": FieldReference(
        value=_BOOLEAN, default="false", tools=f"{_CLAUDE}, Cursor",
        meaning="Run in the background by default.",
    ),
    "isolation": FieldReference(
        value="`worktree`", tools=_CLAUDE,
        meaning="Work in a git worktree; changes are returned as a branch.",
    ),
    "priority": FieldReference(
        value="-100 to 100", default="0", tools=_KITBAG,
        meaning="In the background, agents with a higher priority start first.",
    ),
    "file_extensions": FieldReference(
        value="list, such as `.sql`", tools=_KITBAG,
        meaning="File types a reviewer handles; shown in its catalog entry and used for routing.",
    ),
    "disable_model_invocation": FieldReference(
        value=_BOOLEAN, default="false", tools="Copilot",
        meaning="`true`: only users can start the agent.",
    ),
    "infer": FieldReference(
        value=_BOOLEAN, default="true", tools="Copilot",
        meaning="`false`: the same as `disable-model-invocation: true`.",
    ),
    "user_invocable": FieldReference(
        value=_BOOLEAN, default="true", tools="Copilot",
        meaning="`false`: users cannot start the agent.",
    ),
    "hidden": FieldReference(
        value=_BOOLEAN, default="false", tools="OpenCode",
        meaning="`true`: not in the catalog; the agent can still be started by name.",
    ),
    "disabled": FieldReference(
        value=_BOOLEAN, default="false", tools="OpenCode",
        meaning="`true`: the agent is disabled.",
    ),
    "mode": FieldReference(
        value="`primary`, `subagent`, `all`", default="`all`", tools="OpenCode",
        meaning="Where OpenCode offers the agent; no effect.",
    ),
    "prompt": FieldReference(
        value=_TEXT, tools=f"{_KITBAG}, Codex, OpenCode",
        meaning="Instructions in a YAML, TOML or JSON file; Markdown files have them in the body.",
    ),
    "token_budget": FieldReference(
        value="number", default="`budget.skills`", tools=_KITBAG,
        meaning="Token budget for skills in a task packed for the agent.",
    ),
    "argument_hint": FieldReference(
        value=_TEXT, tools="Copilot",
        meaning="Hint for the prompt; no effect.",
    ),
    "color": FieldReference(
        value=_TEXT, tools=f"{_CLAUDE}, OpenCode",
        meaning="Color in other tools; no effect.",
    ),
    "hooks": FieldReference(
        value="map", tools=_CLAUDE,
        meaning="Hooks of the agent; reported, never run.",
    ),
    "kind": FieldReference(
        value="`local`, `remote`", default="`local`", tools="Gemini CLI",
        meaning="`remote`: the agent is listed but disabled.",
    ),
}  # fmt: skip

COMMAND_REFERENCE: Final[dict[str, FieldReference]] = {
    "description": SKILL_REFERENCE["description"],
    "argument-hint": SKILL_REFERENCE["argument_hint"],
    "allowed-tools": SKILL_REFERENCE["allowed_tools"],
    "model": SKILL_REFERENCE["model"],
    "agent": SKILL_REFERENCE["agent"],
}  # fmt: skip

PERSONA_REFERENCE: Final[dict[str, FieldReference]] = {
    "name": FieldReference(
        value=_TEXT, default="the file name", tools=_KITBAG,
        meaning="Name for `--persona` and `/persona`.",
    ),
    "display_name": FieldReference(
        value=_TEXT, default="`name`", tools=_KITBAG,
        meaning="Name in lists and previews.",
    ),
    "description": FieldReference(
        value=_TEXT, tools=_KITBAG,
        meaning="Description in lists and previews.",
    ),
    "team": FieldReference(
        value=_TEXT, default="the directory the file is in", tools=_KITBAG,
        meaning="Team of the persona.",
    ),
    "core_skills": FieldReference(
        value=_NAMES, tools=_KITBAG,
        meaning="Skills in the catalog from the start. If declared, the other skills of `core/` are not in it.",
    ),
    "skills": FieldReference(
        value=_NAMES, tools=_KITBAG,
        meaning="More skills in the catalog from the start.",
    ),
    "on_demand_skills": FieldReference(
        value=_NAMES, tools=_KITBAG,
        meaning="Skills not in the catalog; found by search, suggested on a match, loaded by name.",
    ),
    "subagents": FieldReference(
        value=_NAMES, default="all agents of the team", tools=_KITBAG,
        meaning="Agents the persona can start; `[]`: only those its skills name.",
    ),
    "system_prompt_additions": FieldReference(
        value=_TEXT, tools=_KITBAG,
        meaning="Added to the prompt, after `_team.md`.",
    ),
    "default_model": FieldReference(
        value="model name", default="the default model", tools=_KITBAG,
        meaning="Model of the persona, unless you choose another.",
    ),
}  # fmt: skip

MANIFEST_REFERENCE: Final[dict[str, FieldReference]] = {
    "name": FieldReference(
        value=_TEXT, default="required", tools=_KITBAG,
        meaning="Name of the skill.",
    ),
    "version": FieldReference(
        value=_TEXT, tools=_KITBAG,
        meaning="Version of the skill.",
    ),
    "description": FieldReference(
        value=_TEXT, tools=_KITBAG,
        meaning="Description, if the skill itself has none.",
    ),
    "path": FieldReference(
        value="path relative to the parent of the skills directory", default="`skills/NAME`", tools=_KITBAG,
        meaning="Directory of the skill; can be outside the skills directory.",
    ),
    "token_budget": FieldReference(
        value="number above 0", tools=_KITBAG,
        meaning="Token limit for the skill when packed.",
    ),
    "tier": FieldReference(
        value="number", default="1", tools=_KITBAG,
        meaning="Rank of the skill; no effect.",
    ),
    "references": FieldReference(
        value="list of paths", tools=_KITBAG,
        meaning="Files of the skill; informational, no effect.",
    ),
    "capabilities.inputs": FieldReference(
        value="list of variable names", tools=_KITBAG,
        meaning="Variables the skill needs; packing warns if one has no value.",
    ),
    "capabilities.outputs": FieldReference(
        value="list of strings", tools=_KITBAG,
        meaning="What the skill produces; no effect.",
    ),
    "capabilities.dispatch_triggers": FieldReference(
        value="list of phrases", tools=_KITBAG,
        meaning="Phrases that select the skill, in addition to its `triggers`.",
    ),
}  # fmt: skip
_CLAUDE_GEMINI = "Claude Code, Gemini CLI"
_PATHS = "path or list of paths that start with `./`"

PLUGIN_REFERENCE: Final[dict[str, FieldReference]] = {
    "name": FieldReference(
        value="up to 64 letters, digits, `.`, `_`, `-`", default="the directory's name", tools=_CLAUDE_GEMINI,
        meaning="Name of the plugin, and prefix of its items.",
    ),
    "displayName": FieldReference(
        value=_TEXT, default="`name`", tools=_CLAUDE,
        meaning="Name shown to users.",
    ),
    "version": FieldReference(
        value=_TEXT, tools=_CLAUDE_GEMINI,
        meaning="Version of the plugin.",
    ),
    "description": FieldReference(
        value=_TEXT, tools=_CLAUDE_GEMINI,
        meaning="Description of the plugin.",
    ),
    "author": FieldReference(
        value="text, or map with `name`", tools=_CLAUDE,
        meaning="Author of the plugin.",
    ),
    "license": FieldReference(
        value=_TEXT, tools=_CLAUDE,
        meaning="License of the plugin.",
    ),
    "defaultEnabled": FieldReference(
        value=_BOOLEAN, default="true", tools=_CLAUDE,
        meaning="`false`: the plugin is disabled after installation.",
    ),
    "skills": FieldReference(
        value=_PATHS, default="`./skills`", tools=_CLAUDE,
        meaning="Directories with skills, in addition to `skills/`.",
    ),
    "agents": FieldReference(
        value=_PATHS, default="`./agents`", tools=_CLAUDE,
        meaning="Agent files or directories, instead of `agents/`.",
    ),
    "commands": FieldReference(
        value=f"{_PATHS}, or map by name with `source`", default="`./commands`", tools=_CLAUDE,
        meaning="Command files or directories, instead of `commands/`.",
    ),
    "hooks": FieldReference(
        value="text, list or map", tools=_CLAUDE,
        meaning="Hooks; reported, never run.",
    ),
    "mcpServers": FieldReference(
        value="text, list or map", tools=_CLAUDE_GEMINI,
        meaning="MCP servers; reported, never started.",
    ),
    "lspServers": FieldReference(
        value="text, list or map", tools=_CLAUDE,
        meaning="Language servers; reported, never started.",
    ),
    "monitors": FieldReference(
        value="text, list or map", tools=_CLAUDE,
        meaning="Monitors; reported, never started.",
    ),
    "workflows": FieldReference(
        value="text or list", tools=_CLAUDE,
        meaning="Workflows; reported, never run.",
    ),
    "outputStyles": FieldReference(
        value="text or list", tools=_CLAUDE,
        meaning="Output styles; no effect.",
    ),
    "strict": FieldReference(
        value=_BOOLEAN, default="true", tools=_CLAUDE,
        meaning="In a marketplace entry, `false`: the entry overrides the plugin's own manifest.",
    ),
    "homepage": FieldReference(
        value=_TEXT, tools=_CLAUDE,
        meaning="Home page; no effect.",
    ),
    "repository": FieldReference(
        value="text or map", tools=_CLAUDE,
        meaning="Source repository; no effect.",
    ),
    "keywords": FieldReference(
        value="list", tools=_CLAUDE,
        meaning="Keywords; no effect.",
    ),
    "dependencies": FieldReference(
        value="list", tools=_CLAUDE,
        meaning="Plugins that this plugin depends on; Kitbag does not install them.",
    ),
    "metadata": FieldReference(
        value="map", tools=_CLAUDE,
        meaning="Custom fields; no effect.",
    ),
    "userConfig": FieldReference(
        value="map", tools=_CLAUDE,
        meaning="Settings that Claude Code asks for; no effect.",
    ),
}  # fmt: skip
