"""What a server offers: its tools and prompts, bounded and with hidden characters made visible.

Built by connection, stored by listing_cache, used by server_tools and servers. A server's text is untrusted data: it
can't start a block of Kitbag.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, cast

import msgspec

from kitbag.text.hidden_characters import reveal_hidden
from kitbag.tools.web.untrusted_text import escape_reserved_tags

MAX_TOOLS: Final = 1_000
MAX_PROMPTS: Final = 200
MAX_DESCRIPTION_CHARS: Final = 2_000
MAX_SCHEMA_CHARS: Final = 16_000
_MAX_HINT_CHARS = 500
_MAX_NAME_CHARS = 256
_MAX_DEPTH = 24
_MAX_NODES = 5_000
_HINT_KEYS: Final = frozenset(("description", "title", "$comment"))
_OMITTED_KEYS: Final = frozenset(("$schema", "$id", "$comment", "$defs", "definitions"))


class OfferedTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    """The server's name for it."""
    description: str
    arguments: dict[str, Any]
    """A JSON schema of an object, without `$ref`."""


class OfferedPrompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    """The required ones of the arguments."""


class ServerListing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tools: tuple[OfferedTool, ...] = ()
    prompts: tuple[OfferedPrompt, ...] = ()
    problems: tuple[str, ...] = ()
    """What was omitted, and why."""


def sanitize_text(text: str, max_chars: int) -> str:
    """A server's text, for a model."""
    text = escape_reserved_tags(reveal_hidden(text[: max_chars + 1].strip()))
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def build_listing(tools: Iterable[Any], prompts: Iterable[Any]) -> ServerListing:
    """From the SDK's values. Never raises for their content."""
    problems: list[str] = []
    tools_by_name: dict[str, OfferedTool] = {}
    for tool in tools:
        if len(tools_by_name) >= MAX_TOOLS:
            problems.append(f"more than {MAX_TOOLS:,} tools; the rest are ignored")
            break
        if not 0 < len(tool.name) <= _MAX_NAME_CHARS or tool.name in tools_by_name:
            problems.append(
                f"tool {sanitize_text(tool.name, 60)!r} omitted: its name is empty, too long or a duplicate"
            )
            continue
        schema = flatten_schema(tool.input_schema)
        if schema is None:
            problems.append(f"tool {sanitize_text(tool.name, 60)!r} omitted: its input schema is too large")
            continue
        description = sanitize_text(tool.description or getattr(tool, "title", None) or "", MAX_DESCRIPTION_CHARS)
        tools_by_name[tool.name] = OfferedTool(tool.name, description, schema)
    built_prompts = [_build_prompt(one) for one in list(prompts)[:MAX_PROMPTS] if 0 < len(one.name) <= _MAX_NAME_CHARS]
    return ServerListing(tuple(tools_by_name.values()), tuple(built_prompts), tuple(problems[:20]))


def _build_prompt(prompt: Any) -> OfferedPrompt:
    arguments = list(prompt.arguments or [])[:50]
    return OfferedPrompt(
        prompt.name,
        sanitize_text(prompt.description or "", MAX_DESCRIPTION_CHARS),
        tuple(str(one.name)[:_MAX_NAME_CHARS] for one in arguments),
        tuple(str(one.name)[:_MAX_NAME_CHARS] for one in arguments if one.required),
    )


# --- schemas ----------------------------------------------------------------------------------------------------


class _SchemaTooLargeError(Exception):
    pass


def flatten_schema(schema: object) -> dict[str, Any] | None:
    """The schema without references, which not every provider resolves, and within the size limit; None if that is not
    possible. A long schema loses its descriptions first, then everything nested in arguments."""
    fields = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    for hints, depth in ((True, _MAX_DEPTH), (False, _MAX_DEPTH), (False, 3)):
        try:
            plain = _SchemaFlattener(fields, hints, depth).flatten()
        except _SchemaTooLargeError:
            continue
        if len(json.dumps(plain)) <= MAX_SCHEMA_CHARS:
            return plain
    return None


class _SchemaFlattener:
    def __init__(self, schema: dict[str, Any], hints: bool, depth: int) -> None:
        self._schema = schema
        self._hints = hints
        self._depth = depth
        self._nodes = 0

    def flatten(self) -> dict[str, Any]:
        plain = self._flatten_value(self._schema, (), 0)
        fields = cast("dict[str, Any]", plain) if isinstance(plain, dict) else {}
        if not isinstance(fields.get("properties", {}), dict):
            fields.pop("properties")
        return {**fields, "type": "object", "properties": fields.get("properties", {})}

    def _flatten_value(self, value: Any, inside: tuple[str, ...], depth: int, *, names: bool = False) -> Any:
        """`inside`: the references being resolved. `names`: the keys are argument names."""
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise _SchemaTooLargeError
        if isinstance(value, list):
            items = cast("list[Any]", value)
            return [self._flatten_value(item, inside, depth + 1) for item in items[:_MAX_NODES]]
        if not isinstance(value, dict):
            return sanitize_text(value, _MAX_HINT_CHARS) if isinstance(value, str) else value
        fields = cast("dict[str, Any]", value)
        if depth > self._depth:
            return {"type": fields["type"]} if isinstance(fields.get("type"), str) else {}
        if not names and isinstance(reference := fields.get("$ref"), str):
            rest = {key: one for key, one in fields.items() if key != "$ref"}
            if reference in inside:  # a recursive schema can't be inlined
                return self._flatten_fields(rest, inside, depth)
            target = self._resolve_reference(reference)
            return self._flatten_fields({**target, **rest}, (*inside, reference), depth)
        return self._flatten_fields(fields, inside, depth, names=names)

    def _flatten_fields(
        self, fields: dict[str, Any], inside: tuple[str, ...], depth: int, *, names: bool = False
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in fields.items():
            if not names and key in _OMITTED_KEYS:
                continue
            if not names and key in _HINT_KEYS and isinstance(value, str):
                if self._hints and key == "description":
                    found[key] = sanitize_text(value, _MAX_HINT_CHARS)
                continue
            shown = sanitize_text(key, _MAX_NAME_CHARS)
            found[shown] = self._flatten_value(value, inside, depth + 1, names=not names and key == "properties")
        return found

    def _resolve_reference(self, reference: str) -> dict[str, Any]:
        place: Any = self._schema
        if not reference.startswith("#"):
            return {}
        for part in reference[1:].strip("/").split("/"):
            part = part.replace("~1", "/").replace("~0", "~")
            place = cast("dict[str, Any]", place).get(part) if isinstance(place, dict) else None
        return cast("dict[str, Any]", place) if isinstance(place, dict) else {}
