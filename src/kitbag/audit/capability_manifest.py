"""What one item can do: commands, references, variables, hosts, tools, scripts, hooks, servers, links, binaries.

Collected file by file by `Collector`, and given out as a sorted value that does not depend on the machine.
Used by examine, run and lockfile.
"""

import os
import re
from typing import Final, NamedTuple

from kitbag.audit.expressions import expression, words
from kitbag.audit.file_checks import is_binary, link_target
from kitbag.audit.file_content import Content
from kitbag.audit.findings import Entry, Item
from kitbag.audit.regions import MOST_TOKENS, Source
from kitbag.audit.urls import Address
from kitbag.library.dialects.tool_aliases import CANONICAL
from kitbag.shell.analysis import analyse
from kitbag.text.reference_syntax import Token

_MOST: Final = 2000
_MOST_ANALYSED: Final = 40
_LONGEST_ANALYSED: Final = 2000
_MOST_SHELL: Final = 200_000
_ENVIRONMENT = expression("manifest.environment")
_ENVIRONMENT_WORDS: Final = ("environ", "getenv", "process.env", "env[", "$env:")
_ASSIGNED = expression("manifest.assigned")
_ORDINARY: Final = frozenset(words("manifest.ordinary"))
_PROGRAM = expression("manifest.program")
_KEYWORDS: Final = frozenset(words("manifest.keywords"))
_MENTIONED = re.compile(
    rf"`(?P<code>{'|'.join(CANONICAL)})`|\b(?P<tool>{'|'.join(CANONICAL)}) tool\b|\b(?P<server>mcp__\w+__\w+)\b"
)


class Command(NamedTuple):
    file: str
    line: int
    text: str


class Reference(NamedTuple):
    file: str
    line: int
    target: str
    leaves: bool


class Script(NamedTuple):
    path: str
    language: str
    size: int
    executable: bool
    sha256: str


class Link(NamedTuple):
    path: str
    target: str
    leaves: bool


class Binary(NamedTuple):
    path: str
    kind: str
    size: int
    sha256: str


class Manifest(NamedTuple):
    commands: tuple[Command, ...]
    references: tuple[Reference, ...]
    environment: tuple[str, ...]
    hosts: tuple[str, ...]
    urls: tuple[str, ...]
    programs: tuple[str, ...]
    """Programs that its shell code calls."""
    tools_declared: tuple[str, ...] | None
    """None: the file has no list of tools."""
    tools_mentioned: tuple[str, ...]
    permission_mode: str
    hooks: tuple[str, ...]
    servers: tuple[str, ...]
    scripts: tuple[Script, ...]
    links: tuple[Link, ...]
    binaries: tuple[Binary, ...]

    @property
    def acts(self) -> bool:
        """It can do more than be read."""
        return any(
            (
                self.commands,
                self.scripts,
                self.hooks,
                self.servers,
                self.binaries,
                self.links,
                self.hosts,
                self.environment,
                self.programs,
            )
        ) or bool(self.permission_mode)

    def to_json(self) -> dict[str, object]:
        return {
            "commands": [entry._asdict() for entry in self.commands],
            "references": [entry._asdict() for entry in self.references],
            "environment": list(self.environment),
            "hosts": list(self.hosts),
            "urls": list(self.urls),
            "programs": list(self.programs),
            "tools": {
                "declared": None if self.tools_declared is None else list(self.tools_declared),
                "mentioned": list(self.tools_mentioned),
            },
            "permission_mode": self.permission_mode or None,
            "hooks": list(self.hooks),
            "servers": list(self.servers),
            "scripts": [entry._asdict() for entry in self.scripts],
            "links": [entry._asdict() for entry in self.links],
            "binaries": [entry._asdict() for entry in self.binaries],
        }


class Collector:
    """Adds up what the files of one item can do."""

    def __init__(self, item: Item, root: str) -> None:
        self.item = item
        self.base = os.path.normpath(item.folder if item.kind in ("skill", "plugin") else root)
        """What a reference may not leave: the skill; of a single file, the workspace."""
        self.commands: list[Command] = []
        self.references: list[Reference] = []
        self.environment: set[str] = set()
        self.hosts: set[str] = set()
        self.urls: set[str] = set()
        self.programs: set[str] = set()
        self.mentioned: set[str] = set()
        self.hooks: list[str] = []
        self.servers: list[str] = []
        self.scripts: list[Script] = []
        self.links: list[Link] = []
        self.binaries: list[Binary] = []
        self.analysed = 0
        self.cut: list[str] = []
        """Files that have more than is listed."""

    def add_link(self, entry: Entry) -> None:
        target, leaves = link_target(entry, self.item.folder)
        self.links.append(Link(entry.relative, target, leaves))

    def add_content(self, content: Content) -> None:
        entry = content.entry
        if is_binary(content):
            kind = content.magic or "unknown"
            self.binaries.append(Binary(entry.relative, kind, content.size, content.sha256))
        elif content.kind == "script" or entry.executable:
            language = content.language or "unknown"
            self.scripts.append(Script(entry.relative, language, content.size, entry.executable, content.sha256))

    def add_text(self, source: Source, addresses: list[Address]) -> None:
        file = source.content.entry.relative
        if len(source.tokens) > MOST_TOKENS:
            self.cut.append(file)
        self.add_tokens(file, source.tokens, 0)
        for address in addresses:
            self.hosts.add(address.host)
            if len(self.urls) < _MOST:
                self.urls.add(address.url)
        shell = "\n".join(_shell_code(source))
        if len(shell) > _MOST_SHELL:
            self.cut.append(file)
            shell = shell[:_MOST_SHELL]
        self._add_environment(source, shell)
        for match in _PROGRAM.finditer(shell):
            name = match["name"].rstrip("./")
            if name.lower() not in _KEYWORDS and len(self.programs) < _MOST:
                self.programs.add(name)
        if source.content.kind == "markdown":
            for match in _MENTIONED.finditer(source.text):
                self.mentioned.add(match["code"] or match["tool"] or match["server"])

    def add_tokens(self, file: str, tokens: list[Token], above: int) -> None:
        """`above`: lines of the file that stand before the text they were found in."""
        for token in tokens[:MOST_TOKENS]:
            line = token.line + above
            if token.kind == "command":
                self.commands.append(Command(file, line, token.value.strip("\n")))
                self._add_programs(token.value)
            elif token.kind == "environment":
                self.environment.add(token.value)
            elif token.kind == "file":
                self._add_reference(file, line, token.value, token.sure)

    def _add_programs(self, command: str) -> None:
        """As the permissions see it: through wrappers, substitutions and disguises."""
        self.analysed += 1
        if self.analysed > _MOST_ANALYSED or len(command) > _LONGEST_ANALYSED:
            return
        for part in analyse(command).parts:
            if part.words and part.words[0]:
                self.programs.add(part.words[0])

    def _add_reference(self, file: str, line: int, target: str, sure: bool) -> None:
        path = os.path.normpath(os.path.join(self.base, target))
        if not sure and not os.path.lexists(path):
            return
        inside = path == self.base or path.startswith(self.base + os.sep)
        self.references.append(Reference(file, line, target, target[0] in "~/" or not inside))

    def _add_environment(self, source: Source, shell: str) -> None:
        names: set[str] = set()
        other = source.content.kind == "script" and source.language != "shell"
        for text in (shell, source.text if other and any(source.has(word) for word in _ENVIRONMENT_WORDS) else ""):
            for number, match in enumerate(_ENVIRONMENT.finditer(text)):
                if number >= _MOST:
                    break
                name = next(value for value in match.groups() if value)
                if match["shell"] is None or text is shell:
                    names.add(name)
        assigned = set(_ASSIGNED.findall(shell)) if names else set[str]()
        self.environment |= {
            name for name in names if name not in _ORDINARY and name not in assigned and not name.startswith("CLAUDE_")
        }

    def finish(self, tools: tuple[str, ...] | None, mode: str) -> Manifest:
        return Manifest(
            tuple(sorted(self.commands)),
            tuple(sorted(set(self.references))),
            tuple(sorted(self.environment)),
            tuple(sorted(self.hosts)),
            tuple(sorted(self.urls)),
            tuple(sorted(self.programs)),
            tools,
            tuple(sorted(self.mentioned)),
            mode,
            tuple(dict.fromkeys(self.hooks)),
            tuple(dict.fromkeys(self.servers)),
            tuple(sorted(self.scripts)),
            tuple(sorted(self.links)),
            tuple(sorted(self.binaries)),
        )


def _shell_code(source: Source) -> list[str]:
    """What a shell would read: scripts, commands, fences marked as shell."""
    if source.content.kind == "script":
        return [source.text] if source.language == "shell" else []
    found: list[str] = []
    for region in source.regions:
        if region.role == "command" or (region.role == "shell" and region.language == "shell"):
            code = source.text[region.start : region.end]
            found.append(
                code.lstrip("!`").rstrip("`\n")
                if not code.startswith(("```", "~~~"))
                else "\n".join(code.split("\n")[1:-1])
            )
    return found
