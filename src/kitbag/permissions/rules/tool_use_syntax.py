"""Parses `Tool(subject)`, a person's notation for a tool call, into the tool name and its arguments.

Used by `examples` and by `kitbag permissions test`.
"""

import re
from typing import Final

from kitbag.library.dialects.tool_aliases import CANONICAL_TOOLS
from kitbag.permissions.rules.rule import COMPANION_TOOLS

_SUBJECT_KEYS: Final = {
    "Bash": "command",
    "Read": "file_path",
    "Write": "file_path",
    "Edit": "file_path",
    "NotebookEdit": "notebook_path",
    "Glob": "pattern",
    "Grep": "path",
    "WebFetch": "url",
    "WebSearch": "query",
    "Task": "subagent_type",
    "TaskOutput": "task_id",
    "TaskStop": "task_id",
}
_USE: Final = re.compile(r"([A-Z][A-Za-z]*|mcp__[\w.-]+)(?:\((.*)\))?", re.S)
_KNOWN_TOOLS: Final = frozenset((*CANONICAL_TOOLS, *COMPANION_TOOLS, "Agent"))


def parse_tool_use(text: str) -> tuple[str, str | None]:
    """The tool and its subject; text that is not `Tool(...)` is a Bash command."""
    match = _USE.fullmatch(text.strip())
    if match is None or (match[2] is None and match[1] not in _KNOWN_TOOLS and not match[1].startswith("mcp__")):
        return "Bash", text
    return ("Task" if match[1] == "Agent" else match[1]), match[2]


def arguments_from_subject(tool: str, subject: str) -> dict[str, object]:
    if tool == "Skill":
        name, _, arguments = subject.partition(" ")
        return {"skill": name, "args": arguments} if arguments else {"skill": name}
    key = _SUBJECT_KEYS.get(tool)
    return {key: subject} if key else {"subject": subject} if subject else {}
