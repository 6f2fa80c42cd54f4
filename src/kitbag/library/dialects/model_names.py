"""Normalizes model names: aliases, ids, `provider/id#variant`, display names and lists.

Used by agents and skills. Does not know which models exist; a value that can't be a model name becomes
`inherit` with a warning.
"""

import re
from typing import Final, cast

import msgspec

from kitbag.text.source_files import FileProblem

ALIASES: Final = frozenset(("inherit", "sonnet", "opus", "haiku", "fable", "fast", "default"))

_SYNONYMS: Final[dict[str, str]] = {"parent": "inherit", "auto": "default", "opusplan": "opus"}
_FAMILY_NAMES: Final = (
    "claude gpt chatgpt gemini gemma o1 o3 o4 codex grok llama mistral mixtral ministral codestral devstral "
    "magistral deepseek qwen qwq kimi glm minimax phi command nova sonar composer raptor granite nemotron "
    "starcoder smollm yi hermes jamba anthropic. us.anthropic. eu.anthropic. offline scripted"
)
_FAMILIES: Final = _FAMILY_NAMES.split()
_BARE_FAMILIES: Final = frozenset(("claude", "gpt", "chatgpt", "gemini", "grok", "command", "anthropic."))
_TIERS: Final = ("sonnet", "opus", "haiku", "fable")
_VENDOR_NOTE = re.compile(r"\s*\((?:[^()]*)\)\s*$")
# Claude Code's `opus[1m]`, Cursor's `composer-2.5[effort=high,fast=false]`
_PARAMETERS = re.compile(r"\[([\w.=,: -]{0,100})\]$", re.ASCII)
_SEPARATOR = re.compile(r"[|,\n](?![^\[\]]{0,100}\])")
_PROVIDER = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9@][\w.:@+-]*)+", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9][\w.:@+-]*", re.ASCII)
_VARIANT = re.compile(r"[\w.-]{1,64}", re.ASCII)
_BLANK = frozenset(("", "null", "~"))
_MAX_LENGTH, _MAX_NAMES, _MAX_DEPTH = 200, 20, 4


class ModelName(msgspec.Struct, frozen=True, kw_only=True):
    """The model an agent or skill requests."""

    name: str
    """`inherit`, an alias, `provider/model`, or a model id."""
    variant: str = ""
    alternatives: tuple[str, ...] = ()
    """Fallbacks, in order, if `name` is unavailable."""
    original: object = None

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "variant": self.variant,
            "alternatives": list(self.alternatives),
            "original": self.original,
        }


INHERIT: Final = ModelName(name="inherit")


def normalize_model(value: object, dialect: str) -> tuple[ModelName, list[FileProblem]]:
    """`dialect` only affects the wording of the fix."""
    if value is None or (isinstance(value, str) and value.strip() in _BLANK):
        return ModelName(name="inherit", original=value), []
    models: list[tuple[str, str]] = []
    invalid: list[str] = []
    for text in _split_names(value, invalid, 0):
        model = _parse_name(text)
        if model is None:
            invalid.append(text)
        elif model not in models:
            models.append(model)
    problems: list[FileProblem] = []
    if invalid or not models:
        listed = ", ".join(f"`{_shorten(text)}`" for text in invalid) or "an empty list"
        fallback = f"`{models[0][0]}` is used" if models else "the caller's model is used"
        problems.append(
            FileProblem(
                severity="warning",
                code="model-unknown",
                line=0,
                problem=f"not a valid model name: {listed}; {fallback}",
                fix=_suggest_fix(invalid, dialect),
            )
        )
    if not models:
        return ModelName(name="inherit", original=value), problems
    (name, variant), *rest = models
    alternatives = tuple(_with_variant(other, other_variant) for other, other_variant in rest)
    return ModelName(name=name, variant=variant, alternatives=alternatives, original=value), problems


def _with_variant(name: str, variant: str) -> str:
    """In a form that `normalize_model` can parse."""
    if not variant:
        return name
    return f"{name}#{variant}" if _VARIANT.fullmatch(variant) else f"{name}[{variant}]"


def _split_names(value: object, invalid: list[str], depth: int) -> list[str]:
    """The names in a value, highest priority first."""
    shortened = str(value)[:_MAX_LENGTH]
    if isinstance(value, str):
        text = value.strip().removeprefix("[").removesuffix("]") if value.strip().startswith("[") else value
        names = [part.strip(" \t\n'\"`") for part in _SEPARATOR.split(text[: _MAX_LENGTH * _MAX_NAMES])]
        return [name for name in names if name][:_MAX_NAMES]
    if isinstance(value, list) and depth < _MAX_DEPTH:
        items = cast("list[object]", value)[:_MAX_NAMES]
        return [name for item in items for name in _split_names(item, invalid, depth + 1)]
    if isinstance(value, dict):
        fields = cast("dict[object, object]", value)
        model = next((fields[key] for key in ("id", "modelID", "model", "name") if key in fields), None)
        provider = next((fields[key] for key in ("provider", "providerID") if key in fields), None)
        if isinstance(model, str) and model.strip():
            return [f"{provider}/{model}" if isinstance(provider, str) and provider else model]
    invalid.append(shortened)
    return []


def _parse_name(text: str) -> tuple[str, str] | None:
    """(name, variant), or None if this is not a model name."""
    if len(text) > _MAX_LENGTH:
        return None
    text, separator, variant = text.partition("#")
    if separator and not _VARIANT.fullmatch(variant.strip()):
        return None
    variant = variant.strip()
    text = text.strip()
    while _VENDOR_NOTE.search(text):
        text = _VENDOR_NOTE.sub("", text)
    parameters = _PARAMETERS.search(text)
    if parameters:
        variant = variant or parameters[1].replace(" ", "")
        text = text[: parameters.start()].strip()
    if _PROVIDER.fullmatch(text):
        return text, variant
    word = text.lower()
    word = _SYNONYMS.get(word, word)
    if word in ALIASES:
        return word, variant
    name = _display_to_id(text)
    return (name, variant) if name else None


def _display_to_id(text: str) -> str:
    """`Claude Sonnet 4.5` becomes `claude-sonnet-4-5`, `GPT-4.1` becomes `gpt-4.1`; ids stay unchanged."""
    words = text.split()
    name = "-".join(words)
    if not _ID.fullmatch(name):
        return ""
    lower = name.lower()
    if lower.startswith(_TIERS):
        lower = name = f"claude-{lower}"
    family = next((family for family in _FAMILIES if lower.startswith(family)), "")
    if lower in _BARE_FAMILIES or not (family or (len(words) == 1 and any(letter.isdigit() for letter in name))):
        return ""
    # Prose may begin with a family name; a display name is short and contains a number.
    if len(words) > 1 and (len(words) > 6 or not any(letter.isdigit() for letter in name)):
        return ""
    if family == "claude" and not any(character in lower for character in ":@"):
        return lower.replace(".", "-")
    return lower if family and name != lower else name


def _suggest_fix(invalid: list[str], dialect: str) -> str:
    from difflib import get_close_matches

    matches = get_close_matches(invalid[0].lower()[:40], sorted(ALIASES), 1) if invalid else []
    if matches:
        return f"did you mean `{matches[0]}`?"
    if dialect == "opencode":
        return "use `provider/model`, such as `anthropic/claude-sonnet-4-5`"
    return "use inherit, sonnet, opus, haiku, a model ID or `provider/model`"


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:59] + "…"
