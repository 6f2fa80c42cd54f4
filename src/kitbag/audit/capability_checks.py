"""Compares declared with used capabilities: commands without Bash, unlisted tools, promises of no network.

Used by examine_item once an item's manifest is known.
"""

import fnmatch
from collections.abc import Callable
from typing import Final

from kitbag.audit.capability_manifest import CapabilityManifest
from kitbag.audit.declarations import ItemDeclarations
from kitbag.audit.expressions import load_expression, load_words
from kitbag.audit.file_checks import FileRemark
from kitbag.audit.findings import AuditItem
from kitbag.audit.urls import is_local_host
from kitbag.library.dialects.tool_lists import ToolAccess

_NETWORK_PROGRAMS: Final = frozenset(load_words("capability_checks.network_programs"))
_NO_NETWORK = load_expression("capability_checks.no_network")
_READ_ONLY = load_expression("capability_checks.read_only")
_WRITERS: Final = ("Write", "Edit", "NotebookEdit")


def find_undeclared(
    declared: ItemDeclarations, manifest: CapabilityManifest, item: AuditItem, sends_data: Callable[[], bool]
) -> list[FileRemark]:
    remarks: list[FileRemark] = []
    access = declared.access
    if access.mode in ("allow", "none", "deny"):
        remarks += _check_commands(access, manifest)
        remarks += _check_tools(access, manifest)
    description = declared.description
    external_hosts = [host for host in manifest.hosts if not is_local_host(host)]
    promise = _NO_NETWORK.search(description)
    runs_network_program = not _NETWORK_PROGRAMS.isdisjoint(manifest.programs)
    if promise and (runs_network_program or (external_hosts and manifest.scripts) or sends_data()):
        used = ", ".join(external_hosts[:3]) or ", ".join(sorted(_NETWORK_PROGRAMS.intersection(manifest.programs)))
        remarks.append(
            FileRemark(
                rule="undeclared-capability",
                severity=None,
                excerpt=promise[0],
                note=f"the description promises no network access, but the item uses {used}",
            )
        )
    promise = _READ_ONLY.search(description)
    if promise and item.kind != "plugin":
        writers = [tool for tool in _WRITERS if tool in access.names]
        if writers:
            note = f"the description promises read-only use, but the item declares {', '.join(writers)}"
            remarks.append(FileRemark(rule="undeclared-capability", severity=None, excerpt=promise[0], note=note))
    return remarks


def _check_commands(access: ToolAccess, manifest: CapabilityManifest) -> list[FileRemark]:
    rules = [rule[5:-1] for rule in access.specifiers if rule.startswith("Bash(")]
    if not access.allows("Bash"):
        if manifest.commands:
            first = manifest.commands[0]
            return [
                FileRemark(
                    rule="undeclared-capability",
                    severity=None,
                    excerpt=f"!`{first.text}`",
                    note=f"{first.file}:{first.line} runs a command, but Bash is not declared",
                )
            ]
        if manifest.scripts:
            return [
                FileRemark(
                    rule="undeclared-capability",
                    severity="low",
                    excerpt=manifest.scripts[0].path,
                    note="it has scripts, but Bash is not declared",
                )
            ]
        return []
    if not rules:
        return []
    for command in manifest.commands:
        if not any(_rule_matches(rule, command.text.strip()) for rule in rules):
            note = f"no declared Bash rule matches {command.file}:{command.line}"
            return [FileRemark(rule="undeclared-capability", severity=None, excerpt=f"!`{command.text}`", note=note)]
    return []


def _rule_matches(rule: str, command: str) -> bool:
    """As a user reads `git log:*`; permissions decide what it means when a command runs."""
    if rule.endswith(":*"):
        return command == rule[:-2] or command.startswith(rule[:-2] + " ")
    if "*" in rule:
        return fnmatch.fnmatchcase(command, rule.replace("[", "[[]"))
    return command == rule


def _check_tools(access: ToolAccess, manifest: CapabilityManifest) -> list[FileRemark]:
    missing = [tool for tool in manifest.tools_mentioned if not access.allows(tool)]
    if not missing:
        return []
    return [
        FileRemark(
            rule="undeclared-capability",
            severity="low",
            excerpt=", ".join(missing),
            note="tools mentioned in the text but not declared",
        )
    ]
