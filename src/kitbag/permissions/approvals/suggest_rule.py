"""Suggests a rule that allows the requested action and little else.

Used by `approval`. No rule is suggested for commands that can run anything, hide what they run or destroy data; the
person can still write one. A rule is suggested only if it would have allowed this action.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from kitbag.errors import UsageError
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import PermissionDecision
from kitbag.permissions.rules.rule import EDIT_TOOLS, READ_TOOLS, parse_rule

# They run their arguments or another program: a rule for them allows everything.
_RUNS_ANYTHING: Final = re.compile(
    r"(?:ba|z|da|k|c|tc|fi|a)?sh|pwsh|python[\d.]*|pypy[\d.]*|perl[\d.]*|ruby[\d.]*|node(?:js)?|deno|bun|php[\d.]*|lua[\d.]*"
    r"|R|Rscript|tclsh|wish|osascript|[gmn]?awk|sed|env|sudo|doas|su|runuser|pkexec|xargs|parallel|nohup|timeout|time|nice"
    r"|ionice|setsid|stdbuf|watch|flock|chroot|unshare|nsenter|bwrap|ssh|scp|sftp|rsync|eval|exec|source|\.|command"
    r"|builtin|find|fd|npx|bunx|uvx|pipx|vim?|nvim|nano|emacs|ed|ex|less|more|man|gdb|lldb|strace|ltrace|script|expect"
    r"|screen|tmux|at|batch|crontab|systemd-run|systemctl|git-.*|tar|zip|cpio|busybox|toybox|kitbag|claude|codex|gemini"
    r"|opencode|trap|alias|export|declare|typeset|set|shopt|enable|rm|rmdir|shred|dd|mkfs.*|mv|chmod|chown|kill|pkill"
    r"|killall|shutdown|reboot|curl|wget|nc|ncat|socat|telnet|ftp"
)
# Harmless with any option. Few commands are: `go test` has `-exec`, `rg` has `--pre`, `cargo build` and `kubectl get`
# accept a configuration that names programs.
_SAFE_GIT_SUBCOMMANDS: Final = frozenset(
    ("log", "status", "show", "diff", "blame", "shortlog", "describe", "add", "commit", "ls-files")
)
_READ_ONLY_COMMANDS: Final = frozenset(
    ("ls", "cat", "head", "tail", "wc", "grep", "stat", "du", "df", "pwd", "which", "cmp")
)
_PLAIN_COMMAND: Final = re.compile(r"[A-Za-z0-9_./:=@%+,-]+(?: [A-Za-z0-9_./:=@%+,-]+)*")
_PLAIN_PATH: Final = re.compile(r"[\w./@+, -]+")
_HOST: Final = re.compile(r"(?=.*[a-z])[a-z0-9-]+(?:\.[a-z0-9-]+)+")
_MCP_TOOL: Final = re.compile(r"mcp__[\w-]+__[\w-]+")
_NAME: Final = re.compile(r"[\w:./-]+")


def suggest_rule(
    permissions: Permissions,
    tool: str,
    arguments: Mapping[str, object],
    directory: str,
    decision: PermissionDecision | None = None,
) -> str:
    """Empty if there is none. `decision`: the one about this tool call that asks, if there is one; it saves another."""
    for text in _candidates(permissions, tool, arguments, directory):
        try:
            rule = parse_rule(text, "allow", "session", "session", permissions.workspace.kitbag_home)
        except UsageError:
            continue
        if permissions.would_allow(rule, tool, arguments, directory, decision):
            return text
    return ""


def _candidates(permissions: Permissions, tool: str, arguments: Mapping[str, object], directory: str) -> Iterator[str]:
    if tool == "Bash":
        yield from _for_command(_text(arguments, "command"))
    elif tool in (*EDIT_TOOLS, *READ_TOOLS):
        yield from _for_path(permissions, tool, arguments, directory)
    elif tool == "WebFetch":
        yield from _for_url(_text(arguments, "url"))
    elif tool in ("Skill", "Task"):
        name = _text(arguments, "skill" if tool == "Skill" else "subagent_type")
        if _NAME.fullmatch(name):
            yield f"{tool}({name})"
    elif _MCP_TOOL.fullmatch(tool):
        yield tool


def _text(arguments: Mapping[str, object], name: str) -> str:
    value = arguments.get(name)
    return value if isinstance(value, str) else ""


def _for_command(command: str) -> Iterator[str]:
    from kitbag.shell.analysis import analyze

    command = command.strip()
    analysis = analyze(command)
    if analysis.uncertainties:
        return
    yield from dict.fromkeys(f"Bash({part.check.prefix}:*)" for part in analysis.parts if part.check is not None)
    if len(analysis.parts) != 1:
        return
    part = analysis.parts[0]
    words = [word for word in part.words if word is not None]
    if part.uncertainties or part.assignments or part.redirects or len(words) < len(part.words) or not words:
        return
    # `words` starts after wrappers: a different first word means that there was one.
    name = words[0].rpartition("/")[2]
    if command.split(" ")[0] != words[0] or _RUNS_ANYTHING.fullmatch(name):
        return
    if words[0] == "git" and len(words) > 1 and words[1] in _SAFE_GIT_SUBCOMMANDS:
        yield f"Bash(git {words[1]}:*)"
    elif words[0] in _READ_ONLY_COMMANDS:
        yield f"Bash({name}:*)"
    if _PLAIN_COMMAND.fullmatch(command):
        yield f"Bash({command})"


def _for_path(permissions: Permissions, tool: str, arguments: Mapping[str, object], directory: str) -> Iterator[str]:
    from kitbag.permissions.paths import examine_path

    path = _text(arguments, "notebook_path") or _text(arguments, "file_path") or _text(arguments, "path")
    if not path:
        return
    workspace = permissions.workspace
    facts = examine_path(path, workspace, directory)
    writes = tool in EDIT_TOOLS
    if (
        facts.control_reason
        or facts.private_reason
        or facts.special_reason
        or not (facts.writable if writes else facts.readable)
    ):
        return
    root = workspace.root.rstrip("/")
    if facts.resolved != facts.requested or not facts.resolved.startswith(f"{root}/"):
        return
    first, slash, _ = facts.resolved[len(root) + 1 :].partition("/")
    place = f"{root}/{first}"
    if _PLAIN_PATH.fullmatch(place):
        # Use the absolute path: a rule in the user's settings applies in every workspace.
        yield f"{'Edit' if writes else 'Read'}(/{place}{'/**' if slash else ''})"


def _for_url(url: str) -> Iterator[str]:
    from urllib.parse import urlsplit

    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return
    if _HOST.fullmatch(host):
        yield f"WebFetch(domain:{host})"
