"""What is known about a model: its window, its output limit, its prices, its abilities. Data in models.toml.

Feeds compaction, budgets and cost; what the user's settings say about a model wins over the data.
"""

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

from kitbag.errors import Diagnostic
from kitbag.messages import Usage

DEFAULT_WINDOW: Final = 128_000
DEFAULT_OUTPUT: Final = 8_192
MAX_OUTPUT: Final = 32_000
"""No request asks for more, though some models could give it: it would leave less room for what is sent."""


class ModelInfo(NamedTuple):
    window: int = DEFAULT_WINDOW
    output: int = DEFAULT_OUTPUT
    input: float | None = None
    cached: float | None = None
    written: float | None = None
    said: float | None = None
    """Dollars for a million tokens: sent, read from the cache, written to it, and said by the model."""
    images: bool = False
    source: str = "unknown model: assumed"

    @property
    def max_output(self) -> int:
        return min(self.output, MAX_OUTPUT, max(self.window // 4, 256))

    def cost(self, usage: Usage) -> float | None:
        """None where a price is missing for something that was used."""
        total = 0.0
        default = self.input
        for tokens, price in (
            (usage.input, self.input),
            (usage.output, self.said),
            (usage.cache_read, self.cached if self.cached is not None else default),
            (usage.cache_write, self.written if self.written is not None else default),
        ):
            if tokens and price is None:
                return None
            total += tokens * (price or 0.0)
        return total / 1_000_000


_FIELD_TYPES: Final[dict[str, type]] = {
    "window": int, "output": int, "input": float, "cached": float, "written": float, "said": float, "images": bool,
}  # fmt: skip


_MINIMUMS: Final = {"window": 1_000, "output": 100}
_MAXIMUM: Final = 1_000_000_000


@lru_cache(maxsize=1)
def _load_data() -> dict[str, Any]:
    import tomllib

    with open(os.path.join(os.path.dirname(__file__), "models.toml"), "rb") as file:
        return tomllib.load(file)


def model_aliases(provider: str) -> Mapping[str, str]:
    """What bare words such as `sonnet` mean at this provider; empty where nothing is known."""
    return _load_data()["aliases"].get(provider, {})


def known_model_names() -> list[str]:
    return list(_load_data()["models"])


def look_up_model(name: str, overrides: Mapping[str, Mapping[str, Any]] | None = None) -> ModelInfo:
    """`name` is `provider/model`; `own` are the user's entries by the same name, or by the model's alone."""
    model = name.rpartition("/")[2].lower()
    model = model.rpartition(".")[2] if model.startswith(("us.anthropic.", "eu.anthropic.", "anthropic.")) else model
    entries = cast("dict[str, dict[str, Any]]", _load_data()["models"])
    best = max((key for key in entries if model.startswith(key)), key=len, default="")
    found = ModelInfo(**entries[best], source=f"models.toml: {best}") if best else ModelInfo()
    mine = {key.lower(): key for key in overrides or ()}
    for key in (model, name.lower()):
        if overrides and key in mine:
            found = found._replace(**overrides[mine[key]], source=f"settings: {mine[key]}")
    return found


def check_model_settings(name: str, fields: object, path: str) -> tuple[dict[str, Any], list[Diagnostic]]:
    """The user's entry for one model, less what is wrong with it."""
    good: dict[str, Any] = {}
    problems: list[Diagnostic] = []
    given = cast("dict[str, Any]", fields) if isinstance(fields, dict) else {}
    if not isinstance(fields, dict):
        problems.append(
            Diagnostic("warning", "setting", path, 0, f"`models.{name}` is no table", "write { window = … }")
        )
    for key, value in given.items():
        kind = _FIELD_TYPES.get(key)
        least = _MINIMUMS.get(key, 0)
        if kind is None:
            what, fix = f"`models.{name}.{key}` is not known", f"known are {', '.join(_FIELD_TYPES)}"
        elif not _is_valid(value, kind, least):
            wanted = {bool: "true or false", int: f"a whole number from {least} up", float: "dollars for a million"}
            what, fix = f"`models.{name}.{key}` is {value!r}", f"write {wanted[kind]}"
        else:
            good[key] = kind(value)
            continue
        problems.append(Diagnostic("warning", "setting", path, 0, what, fix))
    return good, problems


def _is_valid(value: object, kind: type, least: int) -> bool:
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and least <= value <= _MAXIMUM
    return isinstance(value, int | float) and least <= value <= _MAXIMUM  # which no infinity and no NaN is
