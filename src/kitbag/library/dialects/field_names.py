"""Known frontmatter fields of every supported tool and their alternative spellings, as data.

Used by the readers of skills, agents, commands, personas and manifests, by field_reference, which explains each field,
and by text/frontmatter to recover fields from invalid YAML. Case-sensitive there: `Context:` in prose is not the field
`context`.
"""

from typing import Final

AGENT_SPELLINGS: Final[dict[str, tuple[str, ...]]] = {
    "name": ("name",),
    "display_name": ("display_name", "display-name", "displayName"),
    "description": ("description",),
    "model": ("model", "models"),
    "permission_mode": ("permission-mode", "permission_mode", "permissionMode"),
    "permission": ("permission", "permissions"),
    "readonly": ("readonly", "read-only", "read_only", "readOnly"),
    "sandbox_mode": ("sandbox_mode", "sandbox-mode", "sandboxMode"),
    "max_turns": ("max-turns", "max_turns", "maxTurns", "steps", "maxSteps", "max_steps", "max-steps"),
    "tools": ("tools", "allowed-tools", "allowed_tools", "allowedTools"),
    "denied": (
        "disallowedTools",
        "disallowed-tools",
        "disallowed_tools",
        "deny",
        "denied-tools",
        "denied_tools",
        "deniedTools",
        "exclude-tools",
        "exclude_tools",
        "excludeTools",
    ),
    "skills": ("skills",),
    "background": ("background", "is_background", "is-background", "isBackground", "run_in_background"),
    "color": ("color", "colour"),
    "isolation": ("isolation",),
    "priority": ("priority",),
    "effort": (
        "effort",
        "reasoningEffort",
        "reasoning_effort",
        "reasoning-effort",
        "model_reasoning_effort",
        "modelReasoningEffort",
    ),
    "mode": ("mode",),
    "hidden": ("hidden",),
    "disabled": ("disable", "disabled"),
    "disable_model_invocation": (
        "disable-model-invocation",
        "disable_model_invocation",
        "disableModelInvocation",
    ),
    "infer": ("infer",),
    "user_invocable": (
        "user-invocable",
        "user_invocable",
        "userInvocable",
        "user-invokable",
        "user_invokable",
        "userInvokable",
    ),
    "mcp_servers": ("mcpServers", "mcp-servers", "mcp_servers"),
    "hooks": ("hooks",),
    "file_extensions": ("file_extensions", "file-extensions", "fileExtensions"),
    "argument_hint": ("argument-hint", "argument_hint", "argumentHint"),
    "prompt": ("prompt", "system", "system_prompt", "developer_instructions", "instructions"),
    "token_budget": ("token-budget", "token_budget", "tokenBudget"),
    "variant": ("variant",),
    "kind": ("kind",),
}
"""Each agent field and all its spellings; the first one present wins."""

SKILL_SPELLINGS: Final[dict[str, tuple[str, ...]]] = {
    "name": ("name",),
    "display_name": ("display_name", "display-name", "displayName"),
    "description": ("description",),
    "when_to_use": ("when_to_use", "when-to-use", "whenToUse"),
    "version": ("version",),
    "tags": ("tags",),
    "triggers": ("triggers", "trigger"),
    "paths": ("paths",),
    "activation": ("activation",),
    "requires": ("requires",),
    "subagents": ("subagents",),
    "disable_model_invocation": (
        "disable-model-invocation",
        "disable_model_invocation",
        "disableModelInvocation",
    ),
    "user_invocable": (
        "user-invocable",
        "user_invocable",
        "userInvocable",
        "user-invokable",
        "user_invokable",
        "userInvokable",
    ),
    "argument_hint": ("argument-hint", "argument_hint", "argumentHint"),
    "arguments": ("arguments",),
    "allowed_tools": ("allowed-tools", "allowed_tools", "allowedTools"),
    "restrict_tools": ("restrict-tools", "restrict_tools", "restrictTools"),
    "disallowed_tools": ("disallowed-tools", "disallowed_tools", "disallowedTools"),
    "context": ("context",),
    "agent": ("agent",),
    "model": ("model",),
    "compatibility": ("compatibility",),
    "token_budget": ("token_budget", "token-budget", "tokenBudget"),
    "tier": ("tier",),
}
"""Each skill field that has an effect and all its spellings; the first one present wins."""

_DENIED = (
    "deny-tools", "deny-tool", "blocked-tools", "block-tools", "forbidden-tools", "forbid-tools", "banned-tools",
    "excluded-tools", "disabled-tools", "disable-tools", "denied-tools", "exclude-tools", "without-tools",
    "denylist", "blocklist", "blacklist", "deny", "denied", "disallow", "disallowed", "forbid", "forbidden",
)  # fmt: skip
_ALLOWED = ("enabled-tools", "permitted-tools", "allowlist", "whitelist", "allow", "allowed", "only-tools")
_INVOCATION = ("model-invocable", "allow-model-invocation", "disable-model", "auto-invoke")
MISTAKEN: Final[dict[str, tuple[str, ...]]] = {
    "denied": _DENIED,
    "disallowed_tools": _DENIED,
    "disabled": ("enabled", "enable", "is-disabled", "is-enabled"),
    "disable_model_invocation": (*_INVOCATION, "disabled", "disable", "enabled"),
    "user_invocable": ("user-callable", "user-visible"),
    "tools": _ALLOWED,
    "allowed_tools": _ALLOWED,
    "isolation": ("isolate", "isolated"),
    "max_turns": ("turns", "turn-limit", "max-iterations"),
    "mcp_servers": ("mcp", "mcps", "servers"),
    "defaultEnabled": ("enabled", "disabled", "default-disabled", "enabled-by-default", "disabled-by-default"),
}
"""Names that are no spelling of a field, but are used for it; reported like misspellings."""

AGENT_LIMITS: Final = ("permission_mode", "permission", "readonly", "sandbox_mode")
"""Fields that limit an agent, and nothing in a skill or command; reported there."""

_AGENT_IGNORED = (
    "activation_triggers agent_card_json agent_card_url approval_policy auth capabilities category context "
    "handoffs include-custom-instructions initialPrompt memory metadata modelPolicy model_provider "
    "nickname_candidates omitClaudeMd request tags target temperature timeout_mins top_p topP version"
)
_SKILL_IGNORED = (
    "tools effort globs background hooks shell references license metadata author authors homepage source "
    "repository dependencies category "
    "categories keywords alwaysApply risk date_added created updated"
)
_COMMAND_SPELLINGS = "description argument-hint allowed-tools model agent"
_COMMAND_IGNORED = "name subtask template mode prompt tools"
_PERSONA = (
    "name display_name description team core_skills skills on_demand_skills subagents "
    "system_prompt_additions default_model"
)
_MANIFEST = (
    "name version description path token_budget tier references capabilities.inputs capabilities.outputs "
    "capabilities.dispatch_triggers"
)

IGNORED_SKILL_FIELDS: Final = frozenset(_SKILL_IGNORED.split())
IGNORED_AGENT_FIELDS: Final = frozenset(_AGENT_IGNORED.split())
IGNORED_COMMAND_FIELDS: Final = frozenset(_COMMAND_IGNORED.split())
SKILL_FIELDS: Final = IGNORED_SKILL_FIELDS.union(*SKILL_SPELLINGS.values())
AGENT_FIELDS: Final = IGNORED_AGENT_FIELDS.union(*AGENT_SPELLINGS.values())
COMMAND_FIELDS: Final = IGNORED_COMMAND_FIELDS.union(_COMMAND_SPELLINGS.split())
PERSONA_FIELDS: Final = frozenset(_PERSONA.split())
MANIFEST_FIELDS: Final = frozenset(_MANIFEST.split())
KNOWN_FIELDS: Final = SKILL_FIELDS | AGENT_FIELDS | COMMAND_FIELDS | PERSONA_FIELDS
