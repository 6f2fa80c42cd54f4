"""Known frontmatter fields of every supported tool and their alternative spellings, as data.

Used by the readers of skills, agents, commands and personas, and by text/frontmatter to recover fields
from invalid YAML. Case-sensitive there: `Context:` in prose is not the field `context`.
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
    ),
    "mcp_servers": ("mcpServers", "mcp-servers", "mcp_servers"),
    "hooks": ("hooks",),
    "file_extensions": ("file_extensions", "file-extensions", "fileExtensions"),
    "argument_hint": ("argument-hint", "argument_hint", "argumentHint"),
    "prompt": ("prompt", "system", "system_prompt", "developer_instructions", "instructions"),
}
"""Each agent field and all its spellings; the first one present wins."""

_AGENT_EXTRA = (
    "activation_triggers agent_card_json agent_card_url approval_policy auth capabilities category context "
    "handoffs include-custom-instructions initialPrompt kind memory metadata modelPolicy model_provider "
    "nickname_candidates omitClaudeMd request tags target temperature timeout_mins top_p topP variant version"
)
_SKILL = (
    "name display_name display-name displayName description when_to_use when-to-use whenToUse version tags "
    "triggers requires subagents tools allowed-tools allowed_tools allowedTools disallowed-tools "
    "disallowed_tools disallowedTools restrict-tools restrict_tools restrictTools model effort argument-hint "
    "argument_hint argumentHint arguments paths globs disable-model-invocation disable_model_invocation "
    "disableModelInvocation user-invocable user_invocable userInvocable user-invokable context agent "
    "background hooks shell token_budget token-budget tokenBudget tier activation references license "
    "compatibility metadata author authors homepage source repository dependencies category categories "
    "keywords alwaysApply risk date_added created updated"
)
_COMMAND = "name description argument-hint allowed-tools model agent subtask template mode prompt tools"
_PERSONA = (
    "name display_name description team core_skills skills on_demand_skills subagents "
    "system_prompt_additions default_model"
)

SKILL_FIELDS: Final = frozenset(_SKILL.split())
AGENT_FIELDS: Final = frozenset(
    [spelling for spellings in AGENT_SPELLINGS.values() for spelling in spellings] + _AGENT_EXTRA.split()
)
COMMAND_FIELDS: Final = frozenset(_COMMAND.split())
PERSONA_FIELDS: Final = frozenset(_PERSONA.split())
KNOWN_FIELDS: Final = SKILL_FIELDS | AGENT_FIELDS | COMMAND_FIELDS | PERSONA_FIELDS
