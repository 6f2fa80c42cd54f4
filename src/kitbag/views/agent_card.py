"""What users see of one agent. Used by `kitbag agents` and `/agents`. Reads the agent's file."""

from kitbag.errors import InvalidError
from kitbag.library.agents import AgentFile
from kitbag.library.dialects.tool_lists import ToolAccess
from kitbag.library.registry import Registry
from kitbag.library.visibility import Verdict
from kitbag.text.hidden_characters import reveal_hidden
from kitbag.text.human_format import shorten_path
from kitbag.text.source_files import SourceError
from kitbag.text.tokens import estimate_tokens


def read_agent_body(agent: AgentFile) -> str:
    """Its instructions, with hidden characters revealed. Raises InvalidError if the file is gone."""
    try:
        return reveal_hidden(agent.body())
    except SourceError as error:
        raise InvalidError(f"{agent.path}: {error.problem}", error.fix) from error


def format_tool_access(tools: ToolAccess) -> str:
    denied = f" except {', '.join(tools.denied)}" if tools.denied else ""
    if tools.mode in ("inherit", "all", "deny"):
        return "all" + denied
    if tools.mode == "none":
        return "none"
    return ", ".join(tools.names) + denied


def agent_fields(registry: Registry, agent: AgentFile, verdict: Verdict, body: str) -> list[tuple[str, str]]:
    """(label, value); some values are empty."""
    return [
        ("description", agent.description),
        ("model", agent.model.name),
        ("mode", agent.permission_mode),
        ("max turns", str(agent.max_turns or "")),
        ("tools", format_tool_access(agent.tools)),
        ("rules", ", ".join(rule for rule in agent.tools.specifiers if "(" in rule)),
        ("unknown tools", ", ".join(agent.tools.unknown)),
        ("skills", ", ".join(agent.skills)),
        ("files", ", ".join(agent.file_extensions)),
        ("background", "yes" if agent.background else ""),
        ("scope", f"{agent.root.scope} ({registry.describe_precedence(agent.root)})"),
        ("path", shorten_path(agent.path)),
        ("state", verdict.state + (f" ({verdict.reason})" if verdict.reason else "")),
        ("cost", f"{estimate_tokens(body):,} tokens of instructions, loaded at start"),
    ]
