"""Formats an item's capability manifest for the terminal. Used by `kitbag audit`, which escapes the lines."""

from typing import Final

from kitbag.audit.capability_manifest import CapabilityManifest
from kitbag.text.hidden_characters import collapse_whitespace

_MAX_ENTRIES: Final = 12
_MARGIN: Final = 14


def manifest_lines(manifest: CapabilityManifest) -> list[str]:
    """Omits empty groups and truncates long ones."""
    tools = manifest.tools_declared
    groups: list[tuple[str, list[str]]] = [
        ("runs", [f"!`{collapse_whitespace(entry.text)}`  {entry.file}:{entry.line}" for entry in manifest.commands]),
        ("hooks", list(manifest.hooks)),
        ("servers", list(manifest.servers)),
        ("mode", [manifest.permission_mode] if manifest.permission_mode else []),
        ("tools", [", ".join(tools) or "none"] if tools is not None else []),
        ("mentions", [", ".join(manifest.tools_mentioned)] if manifest.tools_mentioned else []),
        ("programs", [", ".join(manifest.programs)] if manifest.programs else []),
        ("hosts", [", ".join(manifest.hosts)] if manifest.hosts else []),
        ("variables", [", ".join(manifest.environment)] if manifest.environment else []),
        (
            "references",
            [f"@{entry.target}{'  (leaves it)' if entry.leaves else ''}" for entry in manifest.references],
        ),
        (
            "scripts",
            [
                f"{entry.path}  {entry.size:,} bytes{', executable' if entry.executable else ''}  {entry.sha256[:12]}"
                for entry in manifest.scripts
            ],
        ),
        (
            "links",
            [f"{entry.path} -> {entry.target}{'  (leaves it)' if entry.leaves else ''}" for entry in manifest.links],
        ),
        ("binaries", [f"{entry.path}  {entry.kind}, {entry.size:,} bytes" for entry in manifest.binaries]),
    ]
    lines: list[str] = []
    for label, entries in groups:
        shown = entries[:_MAX_ENTRIES]
        if len(entries) > _MAX_ENTRIES:
            shown.append(f"and {len(entries) - _MAX_ENTRIES} more: --json shows all")
        for at, entry in enumerate(shown):
            lines.append("  " + (label if at == 0 else "").ljust(_MARGIN) + collapse_whitespace(entry))
    return lines
