"""A tool with structs inside its arguments: in what a model is told, each stands where it is used.

Used by tools whose arguments are lists of things. msgspec writes references to definitions, which not every provider
follows.
"""

from typing import Any, cast

import msgspec

from kitbag.models.provider import ToolSpec
from kitbag.tools.base import A, Tool


class NestedTool(Tool[A]):
    __slots__ = ()

    @property
    def spec(self) -> ToolSpec:
        whole = msgspec.json.schema(self.arguments)
        return ToolSpec(self.name, self.description, _inlined({"$ref": whole["$ref"]}, whole["$defs"]))


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(item, definitions) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = cast("dict[str, Any]", schema)
    if "$ref" in fields:
        name = str(fields["$ref"]).rpartition("/")[2]
        definition = {key: value for key, value in definitions[name].items() if key != "title"}
        return _inlined({**definition, **{key: value for key, value in fields.items() if key != "$ref"}}, definitions)
    return {key: _inlined(value, definitions) for key, value in fields.items()}
