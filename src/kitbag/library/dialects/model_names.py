"""Model names: aliases, ids, `provider/id#variant`, display strings and lists become one form.

Used by agents and skills. Nothing here knows which models exist; what can't be a model's name
becomes `inherit` with a warning.
"""

import re
from typing import Final, NamedTuple, cast

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


class ModelName(NamedTuple):
    """What an agent wants to run on."""

    name: str
    """`inherit`, an alias, `provider/model`, or a model's id."""
    variant: str = ""
    alternatives: tuple[str, ...] = ()
    """To be tried in this order when `name` can't be had."""
    original: object = None

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "variant": self.variant,
            "alternatives": list(self.alternatives),
            "original": self.original,
        }


INHERIT: Final = ModelName("inherit")


def normalize_model(value: object, dialect: str) -> tuple[ModelName, list[FileProblem]]:
    """`dialect` only decides how the fix is worded."""
    if value is None or (isinstance(value, str) and value.strip() in _BLANK):
        return ModelName("inherit", original=value), []
    found: list[tuple[str, str]] = []
    wrong: list[str] = []
    for text in _split_names(value, wrong, 0):
        read = _parse_name(text)
        if read is None:
            wrong.append(text)
        elif read not in found:
            found.append(read)
    problems: list[FileProblem] = []
    if wrong or not found:
        named = ", ".join(f"`{_shorten(text)}`" for text in wrong) or "an empty list"
        used = f"`{found[0][0]}` is used" if found else "the caller's model is used"
        problems.append(
            FileProblem("warning", "model-unknown", 0, f"no model name: {named}; {used}", _suggest_fix(wrong, dialect))
        )
    if not found:
        return ModelName("inherit", original=value), problems
    (name, variant), *rest = found
    alternatives = tuple(_with_variant(other, mark) for other, mark in rest)
    return ModelName(name, variant, alternatives, value), problems


def _with_variant(name: str, variant: str) -> str:
    """As it can be read again."""
    if not variant:
        return name
    return f"{name}#{variant}" if _VARIANT.fullmatch(variant) else f"{name}[{variant}]"


def _split_names(value: object, wrong: list[str], depth: int) -> list[str]:
    """The names in a value, in order of priority."""
    shown = str(value)[:_MAX_LENGTH]
    if isinstance(value, str):
        text = value.strip().removeprefix("[").removesuffix("]") if value.strip().startswith("[") else value
        names = [part.strip(" \t\n'\"`") for part in _SEPARATOR.split(text[: _MAX_LENGTH * _MAX_NAMES])]
        return [name for name in names if name][:_MAX_NAMES]
    if isinstance(value, list) and depth < _MAX_DEPTH:
        items = cast("list[object]", value)[:_MAX_NAMES]
        return [name for item in items for name in _split_names(item, wrong, depth + 1)]
    if isinstance(value, dict):
        fields = cast("dict[object, object]", value)
        model = next((fields[key] for key in ("id", "modelID", "model", "name") if key in fields), None)
        provider = next((fields[key] for key in ("provider", "providerID") if key in fields), None)
        if isinstance(model, str) and model.strip():
            return [f"{provider}/{model}" if isinstance(provider, str) and provider else model]
    wrong.append(shown)
    return []


def _parse_name(text: str) -> tuple[str, str] | None:
    """(name, variant), or None when this is no model's name."""
    if len(text) > _MAX_LENGTH:
        return None
    text, mark, variant = text.partition("#")
    if mark and not _VARIANT.fullmatch(variant.strip()):
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
    """`Claude Sonnet 4.5` is `claude-sonnet-4-5`, `GPT-4.1` is `gpt-4.1`; an id stays as it is."""
    words = text.split()
    name = "-".join(words)
    if not _ID.fullmatch(name):
        return ""
    lower = name.lower()
    if lower.startswith(_TIERS):
        lower = name = f"claude-{lower}"
    family = next((family for family in _FAMILIES if lower.startswith(family)), "")
    if lower in _BARE_FAMILIES or not (family or (len(words) == 1 and any(char.isdigit() for char in name))):
        return ""
    # Prose may begin with a family's name; a model's display name is short and has a number in it.
    if len(words) > 1 and (len(words) > 6 or not any(char.isdigit() for char in name)):
        return ""
    if family == "claude" and not any(mark in lower for mark in ":@"):
        return lower.replace(".", "-")
    return lower if family and name != lower else name


def _suggest_fix(wrong: list[str], dialect: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(wrong[0].lower()[:40], sorted(ALIASES), 1) if wrong else []
    if close:
        return f"did you mean `{close[0]}`?"
    if dialect == "opencode":
        return "write `provider/model`, such as `anthropic/claude-sonnet-4-5`"
    return "write inherit, sonnet, opus, haiku, a model's id, or `provider/model`"


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:59] + "…"
