"""Model data from models.toml: context window, output limit, prices, image support.

The user's settings override it. Used by model_selection, and through it for compaction, budgets and cost.
"""

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, cast

import msgspec

from kitbag.errors import Diagnostic
from kitbag.messages import Usage

DEFAULT_WINDOW: Final = 128_000
DEFAULT_OUTPUT: Final = 8_192
MAX_OUTPUT: Final = 32_000
"""Upper limit for every request: a larger output would leave less of the window for input."""


_ASSUMED: Final = "unknown model; assumed"


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    window: int = DEFAULT_WINDOW
    output: int = DEFAULT_OUTPUT
    input_price: float | None = None
    cache_read_price: float | None = None
    cache_write_price: float | None = None
    output_price: float | None = None
    """In dollars per million tokens."""
    images: bool = False
    source: str = _ASSUMED

    @property
    def is_known(self) -> bool:
        """It is in models.toml or the user's settings."""
        return self.source != _ASSUMED

    @property
    def max_output(self) -> int:
        return min(self.output, MAX_OUTPUT, max(self.window // 4, 256))

    def cost(self, usage: Usage) -> float | None:
        """In dollars; None if a needed price is missing."""
        total = 0.0
        default = self.input_price
        for tokens, price in (
            (usage.input, self.input_price),
            (usage.output, self.output_price),
            (usage.cache_read, self.cache_read_price if self.cache_read_price is not None else default),
            (usage.cache_write, self.cache_write_price if self.cache_write_price is not None else default),
        ):
            if tokens and price is None:
                return None
            total += tokens * (price or 0.0)
        return total / 1_000_000


_FIELD_TYPES: Final[dict[str, type]] = {
    "window": int, "output": int, "input_price": float, "cache_read_price": float, "cache_write_price": float,
    "output_price": float, "images": bool,
}  # fmt: skip
"""Settings keys under `[models."provider/model"]`."""
_EARLIER_KEYS: Final = {
    "input": "input_price", "cached": "cache_read_price", "written": "cache_write_price", "said": "output_price",
}  # fmt: skip
"""Still read, because settings of users have them."""


_MINIMUMS: Final = {"window": 1_000, "output": 100}
_MAXIMUM: Final = 1_000_000_000


@lru_cache(maxsize=1)
def _load_data() -> dict[str, Any]:
    import tomllib

    with open(os.path.join(os.path.dirname(__file__), "models.toml"), "rb") as file:
        return tomllib.load(file)


def model_aliases(provider: str) -> Mapping[str, str]:
    """Models that aliases such as `sonnet` stand for at this provider; empty if unknown."""
    return _load_data()["aliases"].get(provider, {})


def known_model_names() -> list[str]:
    return list(_load_data()["models"])


def look_up_model(name: str, overrides: Mapping[str, Mapping[str, Any]] | None = None) -> ModelInfo:
    """`name`: `provider/model`. `overrides`: the user's settings, by the same name or by the model name alone."""
    model = name.rpartition("/")[2].lower()
    model = model.rpartition(".")[2] if model.startswith(("us.anthropic.", "eu.anthropic.", "anthropic.")) else model
    entries = cast("dict[str, dict[str, Any]]", _load_data()["models"])
    best = max((key for key in entries if model.startswith(key)), key=len, default="")
    info = ModelInfo(**entries[best], source=f"models.toml: {best}") if best else ModelInfo()
    override_names = {key.lower(): key for key in overrides or ()}
    for key in (model, name.lower()):
        if overrides and key in override_names:
            info = msgspec.structs.replace(
                info, **overrides[override_names[key]], source=f"settings: {override_names[key]}"
            )
    return info


def check_model_settings(name: str, fields: object, path: str) -> tuple[dict[str, Any], list[Diagnostic]]:
    """The valid fields of the user's settings for one model, and diagnostics for the others."""
    valid: dict[str, Any] = {}
    problems: list[Diagnostic] = []
    written = cast("dict[str, Any]", fields) if isinstance(fields, dict) else {}
    if not isinstance(fields, dict):
        problems.append(
            Diagnostic(
                severity="warning",
                code="setting",
                file=path,
                line=0,
                problem=f"`models.{name}` must be a table",
                fix="write { window = … }",
            )
        )
    for written_key, value in written.items():
        key = _EARLIER_KEYS.get(written_key, written_key)
        kind = _FIELD_TYPES.get(key)
        minimum = _MINIMUMS.get(key, 0)
        if kind is None:
            problem, fix = f"unknown key `models.{name}.{written_key}`", f"available keys: {', '.join(_FIELD_TYPES)}"
        elif not _is_valid(value, kind, minimum):
            expected = {
                bool: "true or false",
                int: f"an integer of at least {minimum}",
                float: "dollars per million tokens",
            }
            problem, fix = f"invalid value for `models.{name}.{written_key}`: {value!r}", f"write {expected[kind]}"
        else:
            valid[key] = kind(value)
            continue
        problems.append(Diagnostic(severity="warning", code="setting", file=path, line=0, problem=problem, fix=fix))
    return valid, problems


def _is_valid(value: object, kind: type, minimum: int) -> bool:
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and minimum <= value <= _MAXIMUM
    return isinstance(value, int | float) and minimum <= value <= _MAXIMUM  # False for infinity and NaN
