"""What all pictures share: escaped elements, colors for light and dark, texts that fit.

Used by the pictures of this package. A page with a strict content security policy serves PAGE_CSS itself and embeds
pictures without their style.
"""

from html import escape
from typing import Final

from kitbag.text.hidden_characters import collapse_whitespace, escape_for_terminal
from kitbag.text.terminal_width import text_width, truncate_to_width

GROUPS: Final = {
    "tools": ("Tools", "#ddd6f3", "#4a4078"),
    "prompt": ("System prompt", "#d3dff4", "#304b78"),
    "memory": ("Memory files", "#c9e7e0", "#1f5a53"),
    "catalog": ("Catalogs", "#fbe6bd", "#66501f"),
    "skill": ("Loaded skills", "#f9c885", "#8a5a12"),
    "user": ("User", "#d0ebcb", "#2f5d33"),
    "reply": ("Model", "#dfe3ea", "#3d4756"),
    "result": ("Tool results", "#f4d3d3", "#6c383b"),
    "agent": ("Subagents", "#efcfe3", "#673354"),
    "other": ("Summaries, notices", "#e9e4cc", "#544f31"),
}
"""Kinds of content: title, color in light and in dark."""
STATUSES: Final = {
    "done": ("Completed", "#7dbf8e", "#3f8a55"),
    "running": ("Running", "#7aa7e0", "#3f74b8"),
    "waiting": ("Waiting", "#f0bf62", "#b07f1e"),
    "failed": ("Failed", "#e08a86", "#b0524e"),
    "stopped": ("Stopped", "#b3bac6", "#6a7484"),
}
SERIES: Final = {
    "cached": ("Read from cache", "#bcd7c4", "#2f5d41"),
    "written": ("Written to cache", "#f3d08d", "#7d5a1a"),
    "uncached": ("Not cached", "#e39a7c", "#9a4f33"),
    "output": ("Reply", "#8fb0e3", "#44689f"),
    "cost": ("Total cost", "#8a3ffc", "#be95ff"),
}
_BASE: Final = {
    "bg": ("#ffffff", "#161b22"),
    "fg": ("#1b2430", "#e8edf4"),
    "muted": ("#5b6675", "#9aa6b5"),
    "line": ("#e3e7ed", "#2c3440"),
}
_FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_CHAR_WIDTH: Final = 0.56
"""Of the font size, on average; wide enough for most texts."""


def _list_variables() -> dict[str, tuple[str, str]]:
    """Name -> color in light and in dark."""
    named = {f"kb-{name}": values for name, values in _BASE.items()}
    for prefix, table in (("g", GROUPS), ("s", STATUSES), ("c", SERIES)):
        named |= {f"kb-{prefix}-{name}": values[1:] for name, values in table.items()}
    return named


def _fills() -> str:
    tables = (("g", GROUPS), ("s", STATUSES), ("c", SERIES))
    return "".join(
        f".kb-{prefix}-{name}{{fill:var(--kb-{prefix}-{name})}}" for prefix, table in tables for name in table
    )


_RULES: Final = (
    f".kb-picture{{font-family:{_FONT};font-variant-numeric:tabular-nums}}"
    ".kb-picture text{fill:var(--kb-fg)}.kb-picture .kb-muted{fill:var(--kb-muted)}"
    ".kb-picture .kb-strong{font-weight:600}.kb-picture .kb-soft{fill-opacity:.8}.kb-background{fill:var(--kb-bg)}"
    ".kb-line{stroke:var(--kb-line);stroke-width:1;fill:none}.kb-cell{stroke:var(--kb-bg);stroke-width:1.5}"
    ".kb-curve{stroke:var(--kb-c-cost);stroke-width:2;fill:none;stroke-linejoin:round}" + _fills()
)


def _declare(column: int) -> str:
    return ";".join(f"--{name}:{values[column]}" for name, values in _list_variables().items())


PICTURE_CSS: Final = (
    f".kb-picture{{{_declare(0)}}}@media (prefers-color-scheme:dark){{.kb-picture{{{_declare(1)}}}}}{_RULES}"
)
"""For a picture on its own: light or dark as the system is."""
PAGE_CSS: Final = (
    ":root{"
    + ";".join(f"--{name}:light-dark({light},{dark})" for name, (light, dark) in _list_variables().items())
    + "}"
    + _RULES
)
"""For a page that chooses its color scheme itself."""


def plain(text: str) -> str:
    """On one line, without control and hidden characters."""
    return escape_for_terminal(collapse_whitespace(text))


def attribute(text: str) -> str:
    """Text for an attribute or an element."""
    return escape(plain(text), quote=True)


def fit(text: str, width: float, size: float = 12) -> str:
    """As much of a text as fits, with an ellipsis; empty if hardly anything does."""
    text, columns = plain(text), int(width / (size * _CHAR_WIDTH))
    return truncate_to_width(text, columns) if columns > 3 or text_width(text) <= columns else ""


def measure(text: str, size: float = 12) -> float:
    return text_width(text) * size * _CHAR_WIDTH


def label(
    x: float, y: float, text: str, *, size: float = 12, style: str = "", anchor: str = "", width: float = 0
) -> str:
    """`style`: muted, soft (on a color) or strong. `width`: truncates to this width."""
    shown = fit(text, width, size) if width else plain(text)
    if not shown:
        return ""
    styled = f' class="kb-{style}"' if style else ""
    anchored = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}"{styled}{anchored}>{escape(shown)}</text>'


def rect(x: float, y: float, width: float, height: float, style: str, radius: float = 0) -> str:
    rounded = f' rx="{radius:g}"' if radius else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class="{style}"{rounded}/>'


def legend(x: float, y: float, entries: list[tuple[str, str]], width: float) -> tuple[str, float]:
    """`entries`: (class, text). The drawing, and its height; wraps at the width."""
    drawn: list[str] = []
    left, top = x, y
    for style, text in entries:
        length = 16 + measure(text, 11.5) + 18
        if left + length - 18 > x + width and left > x:
            left, top = x, top + 20
        drawn.append(rect(left, top, 11, 11, style, 3))
        drawn.append(label(left + 16, top + 9.5, text, size=11.5, style="muted"))
        left += length
    return "".join(drawn), top + 20 - y if entries else 0.0


def picture(width: float, height: float, title: str, description: str, body: str, *, with_style: bool = True) -> str:
    """The whole document. `with_style`: without it, the page must have PICTURE_CSS or PAGE_CSS."""
    style = f"<style>{PICTURE_CSS}</style>" if with_style else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="kb-picture" viewBox="0 0 {width:.0f} {height:.0f}"'
        f' width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{attribute(title)}">'
        f"<title>{attribute(title)}</title><desc>{attribute(description)}</desc>{style}"
        f'<rect width="{width:.0f}" height="{height:.0f}" class="kb-background" rx="10"/>{body}</svg>\n'
    )
