"""Tool lists: every tool's names and every written form become one canonical value, ToolAccess.

Used by agents and skills; imports only text.source. Where a list leaves doubt, what is allowed is
read narrowly and what is denied widely, and a list that can't be read allows nothing.
"""

import re
from typing import Final, Literal, NamedTuple, cast

from kitbag.text.source import Problem

AccessMode = Literal["inherit", "all", "allow", "deny", "none"]

CANONICAL: Final = tuple(
    ["Read", "Write", "Edit", "Bash", "Glob", "Grep", "WebFetch", "WebSearch", "TodoWrite", "AskUser", "Skill", "Task", "TaskOutput", "TaskStop", "NotebookEdit"]
)

# Names of other tools, without case, `_` and `-`. Left: what they come to here.
_GROUPS: Final = (
    (
        "Read",
        "view readfile notebookread cat openfile viewimage readmediafile fsread read/readfile readnotebook",
    ),
    ("Read Glob", "readmanyfiles"),
    ("Write", "writefile createfile create new edit/createfile createnewfile savefile writetofile"),
    ("Edit", "multiedit replace editfile searchreplace strreplace strreplacefile strreplaceeditor"),
    ("Edit", "replacestringinfile multireplacestringinfile strreplacebasededittool"),
    ("Edit Write", "editfiles edit/editfiles patch applypatch insertedit insertEditIntoFile fswrite edit/*"),
    ("Bash", "execute shell terminal runcommand runcommands runshellcommand runterminalcmd runinterminal"),
    ("Bash", "runterminalcommand localshell execcommand unifiedexec executebash executecommand bashtool"),
    ("Bash", "execute/* runcommands/* execute/runinterminal runcommands/runinterminal"),
    (
        "Glob",
        "ls list listdir listdirectory listfiles filesearch findfiles search/filesearch search/listdirectory",
    ),
    ("Grep", "grepsearch searchfilecontent ripgrep rg textsearch usages search/textsearch search/usages"),
    ("Grep", "searchfiles searchtext"),
    ("Grep Glob", "search codebase codebasesearch searchcodebase search/codebase search/*"),
    ("Read", "read/*"),
    ("WebFetch", "fetch web/fetch fetchurl fetchwebpage urlfetch readurl"),
    ("WebSearch", "googlewebsearch searchweb web/search"),
    ("WebFetch WebSearch", "web web/*"),
    ("TodoWrite", "todo todos todo/* todoread writetodos updateplan settodolist managetodolist todolist"),
    ("AskUser", "askuserquestion question ask requestuserinput vscode/askquestions askquestions"),
    ("Skill", "activateskill skills slashcommand useskill"),
    ("Task", "agent subagent agent/* runsubagent agent/runsubagent spawnagent delegate customagent"),
    ("TaskOutput", "bashoutput agentoutput agentoutputtool getterminaloutput execute/getterminaloutput"),
    ("TaskStop", "killshell killbash closeagent stoptask"),
    ("NotebookEdit", "editnotebook notebook/edit edit/editnotebook"),
)
# Real tools of other systems for which there is nothing here: they are left out, and said to be.
_NO_COUNTERPART: Final = frozenset(
    ["artifact", "changes", "cancelworkflow", "clihelp", "codesearch", "completetask", "computer", "doomloop", "endconversation", "enterplanmode", "enterworktree", "exitplanmode", "exitworktree", "extensions", "externaldirectory", "findtestfiles", "getinternaldocs", "githubrepo", "listmcpresources", "lsp", "memory", "monitor", "openbrowser", "opensimplebrowser", "powershell", "problems", "readlints", "readmcpresource", "runnotebooks", "runtasks", "runtests", "savememory", "schedulewakeup", "searchresults", "sendmessage", "terminallastcommand", "terminalselection", "testfailure", "think", "toolsearch", "vscodeapi", "waitformcpservers", "workflow", "writestdin", "listmcpresourcestool", "readmcpresourcetool"]
)
# Copilot's tool groups look like its MCP servers (`search/codebase`, `github/create_issue`).
_COPILOT_GROUPS: Final = frozenset(
    ["agent", "edit", "execute", "notebook", "read", "runcommands", "search", "todo", "vscode", "web"]
)

_ALIASES: Final[dict[str, tuple[str, ...]]] = {name.lower(): (name,) for name in CANONICAL}
for _names, _written in _GROUPS:
    for _alias in _written.lower().split():
        _ALIASES[_alias] = tuple(_names.split())
_EDITS: Final = {"copilot": ("Edit", "Write")}
_ALL_EDITS: Final = ("Edit", "Write", "NotebookEdit")


class ToolAccess(NamedTuple):
    """Which tools an agent may be given, or a skill asks for."""

    mode: AccessMode
    """`inherit`: as the caller; `all`; `allow`: only `names`; `deny`: all but `denied`; `none`."""
    names: tuple[str, ...] = ()
    """Canonical tools and `mcp__server__*` patterns, in the order in which they were declared."""
    specifiers: tuple[str, ...] = ()
    """Rules such as `Bash(git log:*)`, for tools that were not also given without a specifier."""
    denied: tuple[str, ...] = ()
    """Counts in every mode. A rule with a specifier denies those uses, not the tool."""
    unknown: tuple[str, ...] = ()
    original: object = None
    denied_original: object = None

    def allows(self, tool: str) -> bool:
        """Whether a tool, by its canonical name, may be offered at all; rules are checked when it runs."""
        if self.mode == "none" or any(matches(rule.lower(), tool.lower()) for rule in self.denied):
            return False
        return self.mode != "allow" or any(matches(name, tool) for name in self.names)

    def to_json(self) -> dict[str, object]:
        return {
            "mode": self.mode,
            "names": list(self.names),
            "specifiers": list(self.specifiers),
            "denied": list(self.denied),
            "unknown": list(self.unknown),
            "original": self.original,
            "denied_original": self.denied_original,
        }


def matches(pattern: str, tool: str) -> bool:
    """`*` stands for any characters in the pattern of an MCP tool, and for itself elsewhere."""
    if "*" not in pattern or not pattern.startswith("mcp__"):
        return pattern == tool
    first, *middle, last = pattern.split("*")
    if not tool.startswith(first) or len(tool) < len(first) + len(last) or not tool.endswith(last):
        return False
    at, end = len(first), len(tool) - len(last)
    for part in middle:
        found = tool.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def resolve(name: str, dialect: str = "", widest: bool = False) -> tuple[str, ...] | None:
    """The canonical tools a written name stands for; () has no counterpart here, None is unknown."""
    if name in CANONICAL:
        return (name,)
    if not name.isascii() or not name[:1].isalpha() or any(char in name for char in "()\"'`,; \t\n"):
        return None
    key = name.lower().replace("_", "").replace("-", "")
    if key == "edit":
        return _ALL_EDITS if widest else _EDITS.get(dialect, ("Edit",))
    found = _ALIASES.get(key)
    if found is not None:
        return found
    if key in _NO_COUNTERPART or key.rpartition("/")[2] in _NO_COUNTERPART:
        return ()
    return _resolve_mcp(name, dialect, widest)


def _resolve_mcp(name: str, dialect: str, widest: bool) -> tuple[str, ...] | None:
    lower = name.lower()
    if lower.startswith("mcp__"):
        server, _, tool = name[5:].partition("__")
        if server == "*" and not tool:
            return ("mcp__*",)
        return (f"mcp__{server}__{tool or '*'}",) if server else None
    if lower in ("mcp_*", "mcp/*"):
        return ("mcp__*",)
    if lower.startswith("mcp_"):  # Gemini and Copilot; a server's name has no `_` there
        server, _, tool = name[4:].partition("_")
        return (f"mcp__{server}__{tool or '*'}",) if server else None
    server, slash, tool = name.rpartition("/")
    if slash:
        known_group = server.lower() in _COPILOT_GROUPS
        return (f"mcp__{server}__{tool}",) if server and tool and not known_group else None
    if "*" in name:
        return _expand_glob(lower, name, widest)
    if dialect == "opencode" and "_" in name.strip("_"):
        # OpenCode joins server and tool with `_`, and both may have more of them: all readings.
        parts = name.split("_")
        cuts = range(1, min(len(parts), 8))
        return tuple(f"mcp__{'_'.join(parts[:cut])}__{'_'.join(parts[cut:])}" for cut in cuts)
    return None


def _expand_glob(lower: str, name: str, widest: bool) -> tuple[str, ...] | None:
    """`web*` by the names that begin so; `server_*` as all tools of a server."""
    if name.count("*") != 1 or not name.endswith("*"):
        return None
    stem = lower[:-1].replace("_", "").replace("-", "")
    if widest:
        found = [tool for alias, tools in _ALIASES.items() if alias.startswith(stem) for tool in tools]
    else:
        found = [tool for tool in CANONICAL if tool.lower().startswith(stem)]
    if name.endswith("_*"):
        found.append(f"mcp__{name[:-2]}__*")
    return tuple(dict.fromkeys(found)) or None


_ALL_WORDS = frozenset(("*", "all", "all tools", "any"))
_NONE_WORDS = frozenset(("none", "no tools", "false", "no"))
_BLANK = frozenset(("", "null", "~"))
_TRUE = frozenset(("true", "yes", "on", "1", "allow", "allowed", "enabled"))
_FALSE = frozenset(("false", "no", "off", "0", "deny", "denied", "disabled", "never"))
_LIST_MODES = {"allowlist": "allow", "whitelist": "allow", "allow": "allow"} | {
    "denylist": "deny",
    "blacklist": "deny",
    "deny": "deny",
}
_EXCEPT = re.compile(r"(?:\*|all(?: tools)?),? (?:except|but|minus|without)(?: for)?:? (.+)", re.I | re.S)
_NEGATIONS = frozenset(("except", "but", "minus", "without", "not", "no", "never"))
_MOST, _DEEPEST = 1000, 8
_NAMING_FIX = "write a list such as `Read, Grep, Bash(git log:*)`"


class _Names:
    """Written names as they are met, sorted into what is allowed, denied and not understood."""

    __slots__ = ("absent", "allowed", "denied", "dialect", "everything", "unknown", "unreadable")

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.allowed: dict[str, None] = {}
        self.denied: dict[str, None] = {}
        self.unknown: dict[str, None] = {}
        self.absent: dict[str, None] = {}
        self.everything = False
        self.unreadable = ""

    def add(self, written: str, allow: bool) -> None:
        """One name, with or without a specifier in parentheses."""
        if written.startswith("!"):
            written, allow = written[1:].strip(), False
        name, opened, rest = written.partition("(")
        specifier = rest[:-1].strip() if rest.endswith(")") else ""
        tools = None if opened and not specifier else resolve(name.strip(), self.dialect, widest=not allow)
        if tools is None:
            self.unknown[written[:80]] = None
            return
        if not tools:
            self.absent[written[:80]] = None
        for tool in tools:
            rule = tool if not specifier or specifier == "*" else f"{tool}({specifier})"
            if allow:
                self.allowed[rule] = None
                self.denied.pop(rule, None)
            else:
                self.denied[rule] = None
                self.allowed.pop(rule, None)

    def add_all(self, allow: bool) -> None:
        self.everything = allow
        (self.denied if allow else self.allowed).clear()

    def read(self, value: object, allow: bool, depth: int = 0) -> None:
        """Any written form of a list, wherever it stands."""
        if depth > _DEEPEST or len(self.unknown) > _MOST:
            self.unreadable = "it is nested too deep, or too long"
        elif isinstance(value, str):
            self._read_text(value.strip(), allow, depth)
        elif isinstance(value, list | tuple):
            for item in cast("list[object]", value)[:_MOST]:
                self.read(item, allow, depth + 1)
        elif isinstance(value, dict):
            self._read_item(cast("dict[object, object]", value), allow, depth)
        else:
            self.unreadable = f"it holds `{str(value)[:40]}`"

    def _read_text(self, text: str, allow: bool, depth: int) -> None:
        lower = " ".join(text.lower().split())
        if lower in _ALL_WORDS:
            self.add_all(allow)
            return
        if lower in _NONE_WORDS or lower in _BLANK:
            return
        if text.startswith("{"):
            self.read(_from_json(text), allow, depth + 1)
            return
        excepted = _EXCEPT.fullmatch(" ".join(text.split()))
        if excepted and allow:
            self.add_all(True)
            self._read_text(excepted[1].replace(" and ", ", "), False, depth)
            return
        if text.startswith("[") and text.endswith("]"):
            text = text[1:-1]
        words = [word for word in split_names(text) if word not in ("-", "and")][:_MOST]
        if any(word.lower() in _NEGATIONS for word in words):
            self.unreadable = f"`{lower[:60]}` is prose"
            return
        for word in words:
            if word == "*":
                self.add_all(allow)
            else:
                self.add(word, allow)

    def _read_item(self, item: dict[object, object], allow: bool, depth: int) -> None:
        """A map inside a list: `{name: Read}`, `{Bash: [git *]}`, or a rule that YAML cut at its colon."""
        named = item.get("name", item.get("tool"))
        if isinstance(named, str):
            off = any(_boolean(item[key]) is False for key in ("enabled", "allow", "allowed") if key in item)
            self.read(named, allow and not off, depth + 1)
            return
        for key, value in list(item.items())[:_MOST]:
            name = str(key).strip()
            if isinstance(value, str) and "(" in name and ")" not in name:
                self.read(f"{name}:{'' if value.startswith('*') else ' '}{value}", allow, depth + 1)
            elif (state := _boolean(value)) is not None:
                self.read(name, allow and state, depth + 1)
            elif isinstance(value, str) and value.strip():
                self.add(f"{name}({value.strip()})", allow)
            elif isinstance(value, list):
                for rule in cast("list[object]", value)[:_MOST]:
                    self.add(f"{name}({str(rule).strip()})", allow)
            else:
                self.unknown[name[:80]] = None


def split_names(text: str) -> list[str]:
    """Cut at commas and white space, but not inside parentheses; quotes around names are dropped."""
    names: list[str] = []
    start = depth = 0
    for at, char in enumerate(text):
        if char == "(":
            depth += 1
        elif char == ")":
            depth = max(0, depth - 1)
        elif depth == 0 and (char in ",;" or char.isspace()):
            names.append(text[start:at])
            start = at + 1
    names.append(text[start:])
    return [name for name in (written.strip("\"'` \t\r\n") for written in names) if name]


def parse_tools(value: object, denied: object = None, dialect: str = "") -> tuple[ToolAccess, list[Problem]]:
    """`value` as it stands behind `tools:`, `denied` as behind `disallowedTools:`; None is not given."""
    names = _Names(dialect)
    problems: list[Problem] = []
    mode = _read_tools(names, value, problems)
    if denied is not None:
        before = len(names.denied) + len(names.absent)
        names.read(denied, allow=False)
        if not names.unreadable and denied and len(names.denied) + len(names.absent) == before:
            names.unreadable = names.unreadable or "none of the denied tools is known"
        mode = "deny" if mode == "inherit" and names.denied else mode
    return _settle(names, mode, value, denied, problems)
