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
    found = _USE.fullmatch(text.strip())
    if found is None or (found[2] is None and found[1] not in _KNOWN_TOOLS and not found[1].startswith("mcp__")):
        return "Bash", text
    return ("Task" if found[1] == "Agent" else found[1]), found[2]


def arguments_from_subject(tool: str, subject: str) -> dict[str, object]:
    if tool == "Skill":
        name, _, more = subject.partition(" ")
        return {"skill": name, "args": more} if more else {"skill": name}
    key = _SUBJECT_KEYS.get(tool)
    return {key: subject} if key else {"subject": subject} if subject else {}
