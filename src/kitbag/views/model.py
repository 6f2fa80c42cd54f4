"""What users see of one model. Used by `kitbag models` and `/model`."""

from kitbag.models.model_selection import SelectedModel
from kitbag.runtime.model_list import format_price, model_to_json


def model_fields(chosen: SelectedModel, problem: str = "") -> tuple[tuple[str, str], ...]:
    """(label, value); some values are empty. `problem`: why it can't be used."""
    about = model_to_json(chosen)
    return (
        ("reason", about["why"]),
        ("unusable", problem),
        ("context window", f"{about['window']:,} tokens, replies up to {about['max_output']:,}"),
        ("images", "yes" if about["images"] else "no"),
        ("price", format_price(about["dollars_per_million"])),
        ("source", about["source"]),
    )
