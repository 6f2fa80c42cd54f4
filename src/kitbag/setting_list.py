"""Every setting: its key, kind, default and description, and whether a project may set it.

Used by `settings`, which reads and checks values, and by the generated page docs/settings.md.
"""

from typing import Any, Final, NamedTuple


class Setting(NamedTuple):
    key: str
    kind: str
    """text, count, amount, percent, budget, rules, paths, places, names, or the allowed values separated by `|`."""
    default: Any
    description: str
    project_may_set: bool = False


_SPENDERS: Final = {
    "task": "one agent by itself may use",
    "session": "a session and all its subagents may use",
    "day": "all agents together may use in one day",
}


def _budget_settings() -> tuple[Setting, ...]:
    found: list[Setting] = []
    for scope, spender in _SPENDERS.items():
        for name, text in (
            ("turns", "model requests"),
            ("minutes", "minutes of work"),
            ("tokens", "tokens, cached ones included,"),
            ("cost", "US dollars"),
        ):
            description = f"{text} that {spender}; 0: no limit"
            found.append(Setting(key=f"limits.{scope}_{name}", kind="amount", default=0, description=description))
    return tuple(found)


SETTINGS: tuple[Setting, ...] = (
    Setting(
        key="precedence",
        kind="kitbag|project-first|claude",
        default="kitbag",
        description=(
            "which item is used when several have the same name: Kitbag's order, project before user, or user before "
            "project"
        ),
    ),
    Setting(
        key="library.link_targets",
        kind="paths",
        default=[],
        description=(
            "directories that symbolic links in your skill and agent directories may point to, in addition to your "
            "home directory"
        ),
    ),
    Setting(
        key="team",
        kind="text",
        default="",
        project_may_set=True,
        description="default team (`--team`): whose skills and agents are used",
    ),
    Setting(
        key="persona",
        kind="text",
        default="",
        project_may_set=True,
        description="default persona (`--persona`)",
    ),
    Setting(
        key="routing.vectors",
        kind="text",
        default="",
        description=(
            "directory of a BERT-style sentence encoder for ranking skills by meaning, or the URL of a server with the "
            "OpenAI embeddings protocol, as in https://host/v1 (key in KITBAG_EMBEDDINGS_KEY), or `off`; empty: what "
            "`kitbag setup semantic` installs"
        ),
    ),
    Setting(
        key="routing.embedding_model",
        kind="text",
        default="text-embedding-3-small",
        description="name of the model on the server of `routing.vectors`",
    ),
    Setting(
        key="routing.learning",
        kind="on|off",
        default="on",
        description=(
            "whether skills that were loaded in a workspace rank slightly higher there; reset it with `kitbag skills "
            "usage --reset`"
        ),
    ),
    Setting(
        key="catalog.descriptions",
        kind="budget",
        default="8000",
        description=(
            "budget for descriptions in the model's catalog: characters, or a share of its context window such as `2%`"
        ),
    ),
    Setting(
        key="catalog.names",
        kind="count",
        default=24000,
        description="budget for names in the model's catalog, in characters",
    ),
    Setting(
        key="catalog.entry",
        kind="count",
        default=1536,
        description="maximum description length of one skill or agent in the catalog, in characters",
    ),
    Setting(
        key="budget.protocol", kind="count", default=2000, description="token budget for the protocol of a packed task"
    ),
    Setting(key="budget.task", kind="count", default=2000, description="token budget for the packed task itself"),
    Setting(
        key="budget.skills",
        kind="count",
        default=15000,
        description="token budget for all skills of a packed task, including preloaded ones",
    ),
    Setting(key="budget.total", kind="count", default=100000, description="size of a subagent's context, in tokens"),
    Setting(
        key="budget.fill",
        kind="percent",
        default=70,
        description="maximum share of `budget.total` used at spawn, in percent",
    ),
    Setting(
        key="pack.task_command",
        kind="text",
        default="",
        description="command that prints a task as JSON, such as `cleo show {id} --format json`",
    ),
    Setting(
        key="pack.children_command",
        kind="text",
        default="",
        description="command that prints the children of an epic as JSON",
    ),
    Setting(
        key="model",
        kind="text",
        default="",
        description="default model (`--model`), as `provider/model`",
    ),
    Setting(
        key="store.database_url",
        kind="text",
        default="",
        description=(
            "PostgreSQL database for sessions, tasks and approvals that several machines share "
            "(`KITBAG_DATABASE_URL`); empty: a file on this machine"
        ),
    ),
    Setting(
        key="limits.turns",
        kind="count",
        default=200,
        description="model requests after which `-p` stops, for each prompt (`--max-turns`); 0: no limit",
    ),
    Setting(
        key="limits.calls",
        kind="count",
        default=64,
        description="tool calls of one reply that are run; the model gets an error for the others; 0: no limit",
    ),
    *_budget_settings(),
    Setting(
        key="limits.reply",
        kind="count",
        default=2_000_000,
        description="characters after which a model's reply is truncated; 0: no limit",
    ),
    Setting(
        key="limits.skill",
        kind="count",
        default=25_000,
        description="tokens above which a skill is loaded in parts; 0: never",
    ),
    Setting(
        key="timeouts.first_byte",
        kind="count",
        default=300,
        description="seconds to wait for the first byte of a reply; 0: no timeout",
    ),
    Setting(
        key="timeouts.first_byte_local",
        kind="count",
        default=900,
        description=(
            "seconds to wait for the first byte from a model server on this machine, which may read a prompt slowly; "
            "0: no timeout"
        ),
    ),
    Setting(
        key="timeouts.event",
        kind="count",
        default=60,
        description="seconds to wait for the next event of a reply, pings included; 0: no timeout",
    ),
    Setting(
        key="timeouts.reply",
        kind="count",
        default=3600,
        description="seconds after which a reply is truncated; 0: no timeout",
    ),
    Setting(
        key="timeouts.retry",
        kind="count",
        default=120,
        description="longest time to wait before a retry when a provider says when to retry, in seconds",
    ),
    Setting(
        key="permissions.mode",
        kind="plan|locked|default|acceptEdits|autonomous",
        default="default",
        project_may_set=True,
        description=(
            "permission mode: what runs without approval; a project's value applies only if the project is trusted "
            "and the value is stricter than yours"
        ),
    ),
    Setting(
        key="permissions.allow",
        kind="rules",
        default=[],
        description="rules for what runs without approval, such as `Bash(git log:*)`",
    ),
    Setting(
        key="permissions.ask",
        kind="rules",
        default=[],
        project_may_set=True,
        description="rules for what always needs approval; a project's rules apply once it is trusted",
    ),
    Setting(
        key="permissions.deny",
        kind="rules",
        default=[],
        project_may_set=True,
        description="rules for what is denied; a project's rules apply once it is trusted",
    ),
    Setting(
        key="sandbox.network",
        kind="off|on",
        default="off",
        description="network access for all sandboxed commands",
    ),
    Setting(
        key="sandbox.writable",
        kind="paths",
        default=[],
        description="directories outside the workspace that Kitbag may write to, such as `~/out`",
    ),
    Setting(
        key="sandbox.max_processes",
        kind="count",
        default=1000,
        description="processes that a sandboxed command may run at once; 0: no limit",
    ),
    Setting(
        key="sandbox.max_memory",
        kind="count",
        default=8000,
        description="memory that all processes of a sandboxed command may use together, in MB; 0: no limit",
    ),
    Setting(
        key="sandbox.max_file_size",
        kind="count",
        default=10000,
        description="size of a file that a sandboxed command may write, in MB; 0: no limit",
    ),
    Setting(
        key="fetch.private",
        kind="places",
        default=[],
        description="private hosts that WebFetch may reach, such as `localhost:8000`",
    ),
    Setting(
        key="search.backend",
        kind="auto|searxng|brave|tavily|duckduckgo",
        default="auto",
        description=(
            "web search backend; auto: SearXNG if `search.url` is set, else the one whose key is set (BRAVE_API_KEY, "
            "TAVILY_API_KEY), else DuckDuckGo, which needs no key"
        ),
    ),
    Setting(
        key="tasks.at_once",
        kind="count",
        default=20,
        description="maximum number of concurrent background tasks per nesting level",
    ),
    Setting(
        key="tasks.queue",
        kind="text",
        default="",
        description=(
            "queue of background agents that are started here, for workers of any machine that share the database "
            "(`kitbag worker --queue`); empty: only this machine runs them"
        ),
    ),
    Setting(
        key="tasks.queue_limits",
        kind="names",
        default=[],
        description=(
            "maximum number of concurrent background agents of a queue, over all workers and per nesting level, as in "
            "`build=10`; `default` is this machine's queue; set the same on all machines with workers"
        ),
    ),
    Setting(
        key="tasks.max_queued",
        kind="count",
        default=100_000,
        description="maximum number of queued background agents per queue; 0: no limit",
    ),
    Setting(
        key="tasks.workspace",
        kind="auto|path|git",
        default="auto",
        description=(
            "where an agent of a named queue runs on other machines: in its directory (path), or in a clone of its "
            "git repository (git); auto: in the directory, or in a clone if everything is committed and pushed"
        ),
    ),
    Setting(
        key="tasks.snapshot",
        kind="on|off",
        default="on",
        description=(
            "whether your skills, agents, personas and plugins travel with an agent of a named queue; "
            "off: it uses those of the machine that runs it"
        ),
    ),
    Setting(
        key="tasks.git_protocols",
        kind="names",
        default=["https", "ssh"],
        description="protocols by which a worker fetches repositories of tasks: https, ssh, file",
    ),
    Setting(
        key="tasks.idle",
        kind="count",
        default=30,
        description="idle seconds after which the background worker exits",
    ),
    Setting(
        key="store.retention_days",
        kind="count",
        default=180,
        description="days after which unused sessions and ended tasks are deleted; 0: never",
    ),
    Setting(
        key="telemetry.endpoint",
        kind="text",
        default="",
        description=(
            "OTLP collector that gets traces and metrics, such as `http://localhost:4318` "
            "(`OTEL_EXPORTER_OTLP_ENDPOINT`); empty: none"
        ),
    ),
    Setting(
        key="mcp.wait",
        kind="count",
        default=5,
        description="seconds to wait at startup for MCP servers whose tools are not cached yet",
    ),
    Setting(
        key="mcp.timeout",
        kind="count",
        default=60,
        description="timeout for an MCP tool call that reports no progress, in seconds",
    ),
    Setting(
        key="mcp.characters",
        kind="count",
        default=100000,
        description="budget for tool descriptions of all MCP servers, in characters",
    ),
    Setting(
        key="mcp.environment",
        kind="names",
        default=[],
        description="secret environment variables that a project's MCP servers may receive",
    ),
    Setting(
        key="chat.plain",
        kind="off|on",
        default="off",
        description="line-based chat, for example for screen readers",
    ),
    Setting(
        key="chat.bell",
        kind="on|off",
        default="on",
        description="ring the terminal bell when Kitbag needs an answer or finishes long work while you are idle",
    ),
    Setting(
        key="chat.theme",
        kind="auto|dark|light",
        default="auto",
        description="colors for a dark or light background; auto: ask the terminal, or else COLORFGBG",
    ),
    Setting(
        key="chat.vim",
        kind="off|on",
        default="off",
        description="edit the input line with Vim's keys",
    ),
    Setting(
        key="chat.keys",
        kind="names",
        default=[],
        description='keys such as "details=ctrl-t", for background, details, edit, image, mode and redraw',
    ),
    Setting(
        key="search.url",
        kind="text",
        default="",
        description="URL of your SearXNG instance, or a different URL for the chosen backend",
    ),
)
