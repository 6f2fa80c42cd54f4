"""What a server offers, as it is kept: tools and prompts, bounded, with everything visible that hides.

Made by `connection` from what a server says, kept by `remembered`, used by `offered`. A server's words are data: no
character in them is hidden, and none of them begins a block of ours.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, cast

import msgspec

from kitbag.text.hidden_characters import reveal_hidden
from kitbag.tools.web.untrusted_text import harmless

MOST_TOOLS: Final = 1_000
MOST_PROMPTS: Final = 200
MOST_DESCRIPTION: Final = 2_000
"""Characters."""
MOST_SCHEMA: Final = 16_000
_MOST_HINT = 500
_MOST_NAME = 256
_DEEPEST = 24
_MOST_NODES = 5_000
_TEXTS: Final = frozenset(("description", "title", "$comment"))
_LEFT_OUT: Final = frozenset(("$schema", "$id", "$comment", "$defs", "definitions"))


class OfferedTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    """As the server calls it."""
    description: str
    arguments: dict[str, Any]
    """A JSON schema of an object, without `$ref`."""


class OfferedPrompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    """Of the arguments those that must be given."""


class Listing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tools: tuple[OfferedTool, ...] = ()
    prompts: tuple[OfferedPrompt, ...] = ()
    problems: tuple[str, ...] = ()
    """What was left out, and why."""


def told(text: str, most: int) -> str:
    """A server's words, for a model."""
    text = harmless(reveal_hidden(text[: most + 1].strip()))
    return text if len(text) <= most else f"{text[:most]}…"


def listing_of(tools: Iterable[Any], prompts: Iterable[Any]) -> Listing:
    """Of the SDK's values. Never raises for what is in them."""
    problems: list[str] = []
    found: dict[str, OfferedTool] = {}
    for tool in tools:
        if len(found) >= MOST_TOOLS:
            problems.append(f"it has more than {MOST_TOOLS:,} tools; the others are not looked at")
            break
        if not 0 < len(tool.name) <= _MOST_NAME or tool.name in found:
            problems.append(f"the tool {told(tool.name, 60)!r} is left out: its name is empty, too long or taken")
            continue
        schema = plain_schema(tool.input_schema)
        if schema is None:
            problems.append(
                f"the tool {told(tool.name, 60)!r} is left out: what it takes is described at too great length"
            )
            continue
        description = told(tool.description or getattr(tool, "title", None) or "", MOST_DESCRIPTION)
        found[tool.name] = OfferedTool(tool.name, description, schema)
    offered = [_prompt(one) for one in list(prompts)[:MOST_PROMPTS] if 0 < len(one.name) <= _MOST_NAME]
    return Listing(tuple(found.values()), tuple(offered), tuple(problems[:20]))


def _prompt(prompt: Any) -> OfferedPrompt:
    arguments = list(prompt.arguments or [])[:50]
    return OfferedPrompt(
        prompt.name,
        told(prompt.description or "", MOST_DESCRIPTION),
        tuple(str(one.name)[:_MOST_NAME] for one in arguments),
        tuple(str(one.name)[:_MOST_NAME] for one in arguments if one.required),
    )


# --- schemas ----------------------------------------------------------------------------------------------------


class _TooMuchError(Exception):
    pass


def plain_schema(schema: object) -> dict[str, Any] | None:
    """The same without references, which not every provider follows, and short enough; None where that can't be. A
    long one loses its explanations first, then all that is inside of arguments."""
    given = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    for hints, depth in ((True, _DEEPEST), (False, _DEEPEST), (False, 3)):
        try:
            plain = _Plain(given, hints, depth).whole()
        except _TooMuchError:
            continue
        if len(json.dumps(plain)) <= MOST_SCHEMA:
            return plain
    return None


class _Plain:
    def __init__(self, schema: dict[str, Any], hints: bool, depth: int) -> None:
        self._schema = schema
        self._hints = hints
        self._depth = depth
        self._nodes = 0

    def whole(self) -> dict[str, Any]:
        plain = self._of(self._schema, (), 0)
        found = cast("dict[str, Any]", plain) if isinstance(plain, dict) else {}
        if not isinstance(found.get("properties", {}), dict):
            found.pop("properties")
        return {**found, "type": "object", "properties": found.get("properties", {})}

    def _of(self, value: Any, inside: tuple[str, ...], depth: int, *, names: bool = False) -> Any:
        """`inside`: the references that are being followed. `names`: the keys are names of arguments."""
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise _TooMuchError
        if isinstance(value, list):
            items = cast("list[Any]", value)
            return [self._of(item, inside, depth + 1) for item in items[:_MOST_NODES]]
        if not isinstance(value, dict):
            return told(value, _MOST_HINT) if isinstance(value, str) else value
        fields = cast("dict[str, Any]", value)
        if depth > self._depth:
            return {"type": fields["type"]} if isinstance(fields.get("type"), str) else {}
        if not names and isinstance(reference := fields.get("$ref"), str):
            rest = {key: one for key, one in fields.items() if key != "$ref"}
            if reference in inside:  # what holds itself can't be written out
                return self._fields(rest, inside, depth)
            target = self._target(reference)
            return self._fields({**target, **rest}, (*inside, reference), depth)
        return self._fields(fields, inside, depth, names=names)

    def _fields(
        self, fields: dict[str, Any], inside: tuple[str, ...], depth: int, *, names: bool = False
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in fields.items():
            if not names and key in _LEFT_OUT:
                continue
            if not names and key in _TEXTS and isinstance(value, str):
                if self._hints and key == "description":
                    found[key] = told(value, _MOST_HINT)
                continue
            shown = told(key, _MOST_NAME)
            found[shown] = self._of(value, inside, depth + 1, names=not names and key == "properties")
        return found

    def _target(self, reference: str) -> dict[str, Any]:
        place: Any = self._schema
        if not reference.startswith("#"):
            return {}
        for part in reference[1:].strip("/").split("/"):
            part = part.replace("~1", "/").replace("~0", "~")
            place = cast("dict[str, Any]", place).get(part) if isinstance(place, dict) else None
        return cast("dict[str, Any]", place) if isinstance(place, dict) else {}
