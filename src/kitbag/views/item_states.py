"""What a new state of a skill or an agent means. Used by `kitbag skills|agents enable, disable`, and by the chat."""

from kitbag.library.item_states import ItemStateChange
from kitbag.text.human_format import shorten_path


def describe_state(change: ItemStateChange) -> str:
    return f"{change.full_name} is now {change.effective} ({shorten_path(change.file)})"


def describe_override(change: ItemStateChange) -> str:
    """Empty if the requested state is in effect."""
    if not change.overridden_by:
        return ""
    return f"still {change.effective}: {shorten_path(change.overridden_by)} sets it, and the stricter setting wins"
