"""What one item can do: commands, references, variables, hosts, tools, scripts, hooks, servers, links, binaries.

`CapabilityCollector` gathers it file by file into a sorted value that does not depend on the machine. Used by
examine_item, run and lockfile.
"""

import itertools
import os
import re
from typing import Final, NamedTuple

import msgspec

from kitbag.audit.expressions import load_expression, load_words
from kitbag.audit.file_checks import is_binary, read_link_target
from kitbag.audit.file_content import FileContent
from kitbag.audit.findings import AuditFile, AuditItem
from kitbag.audit.patterns import LineMatches
from kitbag.audit.regions import MAX_TOKENS, AuditedText
from kitbag.audit.urls import FoundUrl
from kitbag.library.dialects.tool_aliases import CANONICAL_TOOLS
from kitbag.shell.analysis import analyze
from kitbag.text.reference_syntax import ReferenceToken

_MAX_ENTRIES: Final = 2000
_MAX_ANALYZED: Final = 40
_MAX_ANALYZED_LENGTH: Final = 2000
_MAX_SHELL_LENGTH: Final = 200_000
_ENVIRONMENT = load_expression("capability_manifest.environment")
_ENVIRONMENT_WORDS: Final = ("environ", "getenv", "process.env", "env[", "$env:")
_ASSIGNED = load_expression("capability_manifest.assigned")
_ORDINARY: Final = frozenset(load_words("capability_manifest.ordinary"))
_PROGRAM = load_expression("capability_manifest.program")
_KEYWORDS: Final = frozenset(load_words("capability_manifest.keywords"))
_TOOL_NAMES: Final = "|".join(CANONICAL_TOOLS)
_MENTIONED: Final = (
    ("`", re.compile(rf"`({_TOOL_NAMES})`")),
    (" tool", re.compile(rf"\b({_TOOL_NAMES}) tool\b")),
    ("mcp__", re.compile(r"\b(mcp__\w+__\w+)\b")),
)


class ManifestCommand(NamedTuple):
    file: str
    line: int
    text: str


class ManifestReference(msgspec.Struct, frozen=True, kw_only=True, order=True):
    file: str
    line: int
    target: str
    leaves: bool


class ManifestScript(msgspec.Struct, frozen=True, kw_only=True, order=True):
    path: str
    language: str
    size: int
    executable: bool
    sha256: str


class ManifestLink(NamedTuple):
    path: str
    target: str
    leaves: bool


class ManifestBinary(msgspec.Struct, frozen=True, kw_only=True, order=True):
    path: str
    kind: str
    size: int
    sha256: str


class CapabilityManifest(msgspec.Struct, frozen=True, kw_only=True):
    commands: tuple[ManifestCommand, ...]
    references: tuple[ManifestReference, ...]
    environment: tuple[str, ...]
    hosts: tuple[str, ...]
    urls: tuple[str, ...]
    programs: tuple[str, ...]
    """Programs that its shell code runs."""
    tools_declared: tuple[str, ...] | None
    """None if the file has no list of tools."""
    tools_mentioned: tuple[str, ...]
    permission_mode: str
    hooks: tuple[str, ...]
    servers: tuple[str, ...]
    scripts: tuple[ManifestScript, ...]
    links: tuple[ManifestLink, ...]
    binaries: tuple[ManifestBinary, ...]

    @property
    def has_capabilities(self) -> bool:
        """Whether it can do more than be read."""
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
            "references": [
                {"file": entry.file, "line": entry.line, "target": entry.target, "leaves": entry.leaves}
                for entry in self.references
            ],
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
            "scripts": [
                {
                    "path": entry.path,
                    "language": entry.language,
                    "size": entry.size,
                    "executable": entry.executable,
                    "sha256": entry.sha256,
                }
                for entry in self.scripts
            ],
            "links": [entry._asdict() for entry in self.links],
            "binaries": [
                {"path": entry.path, "kind": entry.kind, "size": entry.size, "sha256": entry.sha256}
                for entry in self.binaries
            ],
        }


class CapabilityCollector:
    """Collects what the files of one item can do."""

    def __init__(self, item: AuditItem, root: str) -> None:
        self.item = item
        self.base = os.path.normpath(item.folder if item.kind in ("skill", "plugin") else root)
        """What a reference may not leave: the skill's folder or, for a single file, the workspace."""
        self.commands: list[ManifestCommand] = []
        self.references: list[ManifestReference] = []
        self.environment: set[str] = set()
        self.hosts: set[str] = set()
        self.urls: set[str] = set()
        self.programs: set[str] = set()
        self.mentioned_tools: set[str] = set()
        self.hooks: list[str] = []
        self.servers: list[str] = []
        self.scripts: list[ManifestScript] = []
        self.links: list[ManifestLink] = []
        self.binaries: list[ManifestBinary] = []
        self.analyzed_count = 0
        self.truncated_files: list[str] = []
        """Files that have more entries than listed."""

    def add_link(self, entry: AuditFile) -> None:
        target, leaves = read_link_target(entry, self.item.folder)
        self.links.append(ManifestLink(entry.relative, target, leaves))

    def add_content(self, content: FileContent) -> None:
        entry = content.entry
        if is_binary(content):
            kind = content.magic or "unknown"
            self.binaries.append(
                ManifestBinary(path=entry.relative, kind=kind, size=content.size, sha256=content.sha256)
            )
        elif content.kind == "script" or entry.executable:
            language = content.language or "unknown"
            self.scripts.append(
                ManifestScript(
                    path=entry.relative,
                    language=language,
                    size=content.size,
                    executable=entry.executable,
                    sha256=content.sha256,
                )
            )

    def add_text(self, source: AuditedText, addresses: list[FoundUrl]) -> None:
        file = source.content.entry.relative
        if len(source.tokens) > MAX_TOKENS:
            self.truncated_files.append(file)
        self.add_tokens(file, source.tokens, 0)
        for address in addresses:
            self.hosts.add(address.host)
            if len(self.urls) < _MAX_ENTRIES:
                self.urls.add(address.url)
        shell = "\n".join(_shell_code(source))
        if len(shell) > _MAX_SHELL_LENGTH:
            self.truncated_files.append(file)
            shell = shell[:_MAX_SHELL_LENGTH]
        self._add_environment(source, shell)
        for match in _PROGRAM.finditer(shell):
            name = match["name"].rstrip("./")
            if name.lower() not in _KEYWORDS and len(self.programs) < _MAX_ENTRIES:
                self.programs.add(name)
        if source.content.kind == "markdown":
            for word, mentioned in _MENTIONED:
                if word in source.text:
                    self.mentioned_tools.update(mentioned.findall(source.text))

    def add_tokens(self, file: str, tokens: list[ReferenceToken], line_offset: int) -> None:
        """`line_offset`: lines of the file before the text in which the tokens were found."""
        for token in tokens[:MAX_TOKENS]:
            line = token.line + line_offset
            if token.kind == "command":
                self.commands.append(ManifestCommand(file, line, token.value.strip("\n")))
                self._add_programs(token.value)
            elif token.kind == "environment":
                self.environment.add(token.value)
            elif token.kind == "file":
                self._add_reference(file, line, token.value, token.is_certain)

    def _add_programs(self, command: str) -> None:
        """As permissions see the command: through wrappers, substitutions and obfuscation."""
        self.analyzed_count += 1
        if self.analyzed_count > _MAX_ANALYZED or len(command) > _MAX_ANALYZED_LENGTH:
            return
        for part in analyze(command).parts:
            if part.words and part.words[0]:
                self.programs.add(part.words[0])

    def _add_reference(self, file: str, line: int, target: str, is_certain: bool) -> None:
        path = os.path.normpath(os.path.join(self.base, target))
        if not is_certain and not os.path.lexists(path):
            return
        inside = path == self.base or path.startswith(self.base + os.sep)
        self.references.append(
            ManifestReference(file=file, line=line, target=target, leaves=target[0] in "~/" or not inside)
        )

    def _add_environment(self, source: AuditedText, shell: str) -> None:
        names = {_variable(match) for match in itertools.islice(_ENVIRONMENT.finditer(shell), _MAX_ENTRIES)}
        if source.content.kind == "script" and source.language != "shell":
            found = LineMatches(source, _ENVIRONMENT, _ENVIRONMENT_WORDS).found[:_MAX_ENTRIES]
            names |= {_variable(match) for _, _, match in found if match["shell"] is None}
        assigned = set(_ASSIGNED.findall(shell)) if names else set[str]()
        self.environment |= {
            name for name in names if name not in _ORDINARY and name not in assigned and not name.startswith("CLAUDE_")
        }

    def finish(self, tools: tuple[str, ...] | None, mode: str) -> CapabilityManifest:
        return CapabilityManifest(
            commands=tuple(sorted(self.commands)),
            references=tuple(sorted(set(self.references))),
            environment=tuple(sorted(self.environment)),
            hosts=tuple(sorted(self.hosts)),
            urls=tuple(sorted(self.urls)),
            programs=tuple(sorted(self.programs)),
            tools_declared=tools,
            tools_mentioned=tuple(sorted(self.mentioned_tools)),
            permission_mode=mode,
            hooks=tuple(dict.fromkeys(self.hooks)),
            servers=tuple(dict.fromkeys(self.servers)),
            scripts=tuple(sorted(self.scripts)),
            links=tuple(sorted(self.links)),
            binaries=tuple(sorted(self.binaries)),
        )


def _variable(match: "re.Match[str]") -> str:
    return next(value for value in match.groups() if value)


def _shell_code(source: AuditedText) -> list[str]:
    """The code a shell would run: scripts, commands, fences marked as shell."""
    if source.content.kind == "script":
        return [source.text] if source.language == "shell" else []
    snippets: list[str] = []
    for region in source.regions:
        if region.role == "command" or (region.role == "shell" and region.language == "shell"):
            code = source.text[region.start : region.end]
            snippets.append(
                code.lstrip("!`").rstrip("`\n")
                if not code.startswith(("```", "~~~"))
                else "\n".join(code.split("\n")[1:-1])
            )
    return snippets
