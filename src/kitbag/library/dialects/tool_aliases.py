"""Other systems' tool names and the canonical tools they map to: data and lookup.

Used by tool_lists and agents. `split_tool_names` splits a text into names, `resolve_tool` maps one name,
`matches_tool` compares a rule with a tool. An ambiguous name is read narrowly when allowed, broadly when denied.
"""

from typing import Final

_CANONICAL_NAMES: Final = (
    "Read Write Edit Bash Glob Grep WebFetch WebSearch TodoWrite AskUser Skill Task TaskOutput TaskStop NotebookEdit"
)
CANONICAL_TOOLS: Final = tuple(_CANONICAL_NAMES.split())
COMPANION_TOOLS: Final = ("SearchSkills", "ListLoadedSkills", "UnloadSkill")
"""Tools that come with Skill; a list may name them but does not have to."""
SEARCH_TOOLS: Final = "SearchTools"
"""Comes with many tools of MCP servers."""

# Canonical tools, and the aliases that map to them, in lower case without `_` and `-`.
_ALIAS_GROUPS: Final = (
    (
        "Read",
        "view readfile notebookread cat openfile viewimage readmediafile fsread read/readfile readnotebook",
    ),
    ("Read", "read/viewimage viewfile showfile"),
    ("Read Glob", "readmanyfiles"),
    ("Write", "writefile createfile create new edit/createfile createnewfile savefile writetofile"),
    ("Edit", "multiedit replace editfile searchreplace strreplace strreplacefile strreplaceeditor"),
    ("Edit", "replacestringinfile multireplacestringinfile strreplacebasededittool applydiff insertcontent"),
    ("Edit", "searchandreplace replacefilecontent"),
    ("Edit Write", "editfiles edit/editfiles patch applypatch insertedit inserteditintofile fswrite edit/*"),
    ("Bash", "execute shell terminal runcommand runcommands runshellcommand runterminalcmd runinterminal"),
    ("Bash", "runterminalcommand localshell execcommand unifiedexec executebash executecommand bashtool"),
    ("Bash", "run execute/* runcommands/* execute/runinterminal runcommands/runinterminal"),
    ("Bash", "powershell shellcommand localshellcall container.exec"),
    (
        "Glob",
        "ls list listdir listdirectory listfiles filesearch find findfiles search/filesearch search/listdirectory",
    ),
    ("Grep", "grepsearch searchfilecontent ripgrep rg textsearch usages search/textsearch search/usages"),
    ("Grep", "searchfiles searchtext grepfiles"),
    ("Glob", "globfilesearch findbyname"),
    ("Grep Glob", "search codebase codebasesearch searchcodebase search/codebase search/* semanticsearch"),
    ("Read", "read/*"),
    ("WebFetch", "fetch web/fetch fetchurl fetchwebpage urlfetch readurl readurlcontent"),
    ("WebSearch", "googlewebsearch searchweb web/search"),
    ("WebFetch WebSearch", "web web/*"),
    ("TodoWrite", "todo todos todo/* todoread writetodos updateplan settodolist managetodolist todolist"),
    ("TodoWrite", "taskcreate taskget tasklist taskupdate updatetodo updatetodolist"),
    ("AskUser", "askuserquestion question ask requestuserinput vscode/askquestions askquestions"),
    ("AskUser", "askquestion askfollowupquestion"),
    ("Skill", "activateskill skills slashcommand useskill"),
    ("Task", "agent subagent agent/* runsubagent agent/runsubagent spawnagent delegate customagent"),
    ("Task", "delegatetoagent newtask"),
    ("TaskOutput", "bashoutput agentoutput agentoutputtool getterminaloutput execute/getterminaloutput"),
    ("TaskOutput", "gettaskoutput read/gettaskoutput readbash readpowershell readagent wait waitagent"),
    ("TaskStop", "killshell killbash closeagent stoptask killterminal execute/killterminal stopbash stoppowershell"),
    ("NotebookEdit", "editnotebook notebook/edit edit/editnotebook"),
)
# Tools of other systems without an equivalent in Kitbag: omitted and reported.
_UNSUPPORTED_NAMES: Final = (
    "artifact attemptcompletion batch browseraction callmcptool cancelworkflow changes clihelp "
    "codebaseinvestigator codesearch completetask computer createdirectory croncreate crondelete cronlist delete "
    "deletefile diffhistory doomloop endconversation enterplanmode enterworktree exitplanmode exitworktree "
    "extensions externaldirectory fetchcopilotclidocumentation fetchmcpresource fetchrules findtestfiles "
    "generateimage geterrors getinternaldocs githubrepo listagents listbash listcodedefinitionnames "
    "listmcpresources listmcpresourcestool listpowershell lsp memory monitor openbrowser opensimplebrowser "
    "planenter planexit problems readlints readmcpresource readmcpresourcetool reapply reportfindings "
    "reportintent resumeagent runnotebookcell runnotebooks runtasks runtests savememory schedulewakeup "
    "searchresults sendfeedback sendinput sendmessage storememory switchmode terminallastcommand "
    "terminalselection testfailure think toolsearch usemcptool vscode vscodeapi waitformcpservers workflow "
    "writebash writepowershell writestdin"
)
# Copilot's tool groups have the form of its MCP servers (`search/codebase`, `github/create_issue`).
_COPILOT_GROUPS: Final = "agent edit execute notebook read runcommands search todo vscode web"

_ALIASES: Final[dict[str, tuple[str, ...]]] = {name.lower(): (name,) for name in (*CANONICAL_TOOLS, *COMPANION_TOOLS)}
for _names, _written in _ALIAS_GROUPS:
    for _alias in _written.split():
        _ALIASES[_alias] = tuple(_names.split())
_UNSUPPORTED_TOOLS: Final = frozenset(_UNSUPPORTED_NAMES.split())
_COPILOT_GROUP_NAMES: Final = frozenset(_COPILOT_GROUPS.split())
_EDIT_TOOLS_BY_DIALECT: Final = {"copilot": ("Edit", "Write")}
_ALL_EDIT_TOOLS: Final = ("Edit", "Write", "NotebookEdit")


def matches_tool(pattern: str, tool: str) -> bool:
    """`*` is a wildcard in patterns of MCP tools and a literal elsewhere."""
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


def resolve_tool(name: str, dialect: str = "", widest: bool = False) -> tuple[str, ...] | None:
    """The canonical tools of a name; () if Kitbag has no equivalent, None if the name is unknown."""
    if name in CANONICAL_TOOLS:
        return (name,)
    if not name.isascii() or not name[:1].isalnum() or any(char in name for char in "()\"'`,;\t\n"):
        return None
    if " " in name:
        return _resolve_spaced(name)
    key = name.lower().replace("_", "").replace("-", "")
    if key == "edit":
        return _ALL_EDIT_TOOLS if widest else _EDIT_TOOLS_BY_DIALECT.get(dialect, ("Edit",))
    found = _ALIASES.get(key)
    if found is not None:
        return found
    group, slash, member = key.rpartition("/")
    if group in _COPILOT_GROUP_NAMES or (not slash and member in _UNSUPPORTED_TOOLS):
        return ()  # Copilot adds members to its groups often
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
    if lower.startswith("mcp_"):  # Gemini and Copilot; their server names contain no `_`
        server, _, tool = name[4:].partition("_")
        return (f"mcp__{server}__{tool or '*'}",) if server else None
    server, slash, tool = name.rpartition("/")
    if slash:
        return (f"mcp__{server}__{tool}",) if server and tool else None
    if "*" in name:
        return _expand_glob(lower, name, widest)
    if dialect == "opencode" and "_" in name.strip("_"):
        # OpenCode joins server and tool with `_`, and both may contain `_`: return every possible split.
        parts = name.split("_")
        cuts = range(1, min(len(parts), 8))
        return tuple(f"mcp__{'_'.join(parts[:cut])}__{'_'.join(parts[cut:])}" for cut in cuts)
    return None


def _resolve_spaced(name: str) -> tuple[str, ...] | None:
    """`My Docs/*`: only server names may contain spaces; the tools become `mcp__My_Docs__x`."""
    server, _, tool = name.rpartition("/")
    if not server.strip() or not tool or " " in tool or "*" in server:
        return None
    return (f"mcp__{'_'.join(server.split())}__{tool}",)


def closest_tool(name: str, cutoff: float = 0.75) -> str:
    """The most similar canonical tool; empty if none is similar."""
    from difflib import get_close_matches

    known = {tool.lower(): tool for tool in CANONICAL_TOOLS}
    # Of short words, most of similar letters are other words: `repo` is not meant as `Grep`, but `Grpe` is.
    matches = get_close_matches(name.lower()[:40], known, 3, cutoff)
    similar = [match for match in matches if len(match) > 5 or _differ_by_one_slip(name.lower(), match)]
    return known[similar[0]] if similar else ""


def _differ_by_one_slip(one: str, other: str) -> bool:
    """One letter is added, missing or replaced, or two neighbors are swapped."""
    if len(one) == len(other):
        places = [at for at in range(len(one)) if one[at] != other[at]]
        is_swap = len(places) == 2 and one[places[0] : places[1] + 1] == other[places[0] : places[1] + 1][::-1]
        return len(places) <= 1 or (is_swap and places[1] == places[0] + 1)
    short, long = sorted((one, other), key=len)
    return len(long) == len(short) + 1 and any(long[:at] + long[at + 1 :] == short for at in range(len(long)))


def _expand_glob(lower: str, name: str, widest: bool) -> tuple[str, ...] | None:
    """`web*`: every tool with that prefix; `server_*`: also all tools of that server."""
    if name.count("*") != 1 or not name.endswith("*"):
        return None
    stem = lower[:-1].replace("_", "").replace("-", "")
    if widest:
        found = [tool for alias, tools in _ALIASES.items() if alias.startswith(stem) for tool in tools]
    else:
        found = [tool for tool in CANONICAL_TOOLS if tool.lower().startswith(stem)]
    if name.endswith("_*"):
        found.append(f"mcp__{name[:-2]}__*")
    return tuple(dict.fromkeys(found)) or None


def is_single_name(written: str) -> bool:
    """Whether this is one name, not `Bash(a) Read(b)`: its first parenthesis closes at the very end."""
    depth = 0
    for char in written[:-1]:
        depth += (char == "(") - (char == ")")
        if char == ")" and depth <= 0:
            return False
    return True


def split_tool_names(text: str, at_spaces: bool = True) -> list[str]:
    """Splits at commas and whitespace outside parentheses; removes quotes around names."""
    names: list[str] = []
    start = depth = 0
    for at, char in enumerate(text):
        if char == "(":
            depth += 1
        elif char == ")":
            depth = max(0, depth - 1)
        elif depth == 0 and (char == "," or (at_spaces and (char == ";" or char.isspace()))):
            names.append(text[start:at])
            start = at + 1
    names.append(text[start:])
    return [name for written in names if (name := written.strip().strip("\"'`").strip())]
