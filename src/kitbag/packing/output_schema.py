"""A JSON Schema for an agent's final answer: loaded from a file, stated in the prompt, checked when the agent ends.

Used by delegation, the task runner and `kitbag agents run`. Uses jsonschema (extra `schemas`), which fetches nothing.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any, Final, cast

from kitbag.errors import InvalidError, NotFoundError
from kitbag.text.safe_json import parse_json

MAX_SCHEMA_BYTES: Final = 100_000
_MAX_PROBLEMS: Final = 10
_MAX_PROBLEM_CHARACTERS: Final = 300
_FENCED: Final = re.compile(r"```[a-zA-Z]*\n(.*?)\n?```", re.DOTALL)


def load_output_schema(path: str) -> dict[str, Any]:
    """Raises NotFoundError and InvalidError."""
    check_available()
    fix = "name a file with a JSON Schema"
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_SCHEMA_BYTES + 1)
    except FileNotFoundError:
        raise NotFoundError(f"no file {path}", fix) from None
    except OSError as error:
        raise InvalidError(f"can't read {path}: {error.strerror or error}", fix) from error
    if len(raw) > MAX_SCHEMA_BYTES:
        raise InvalidError(f"{path} is larger than {MAX_SCHEMA_BYTES:,} bytes", "shorten the schema")
    try:
        schema = parse_json(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InvalidError(f"{path}: not valid JSON: {error}", fix) from error
    if not isinstance(schema, dict):
        raise InvalidError(f"{path}: a JSON Schema is a JSON object", fix)
    schema = cast("dict[str, Any]", schema)
    if problem := _find_problem(schema):
        raise InvalidError(f"{path}: {problem}", "fix the schema")
    return schema


def check_available() -> None:
    """Raises InvalidError without the extra."""
    if find_spec("jsonschema") is None:
        raise InvalidError("output schemas need the package jsonschema", "pip install 'kitbag[schemas]'")


def render_output_schema(schema: Mapping[str, Any]) -> str:
    """For the prompt."""
    return _read_template("output_schema").replace("{{SCHEMA}}", json.dumps(schema, indent=1, ensure_ascii=False))


def render_retry(problems: tuple[str, ...]) -> str:
    return _read_template("output_schema_retry").replace("{{PROBLEMS}}", "\n".join(f"- {one}" for one in problems))


def is_retry(message: str) -> bool:
    """Whether `render_retry` made the message."""
    return message.startswith(_read_template("output_schema_retry").partition("{{PROBLEMS}}")[0])


def parse_answer(answer: str) -> Any:
    """The JSON value of an answer: the whole text, or its only code block. Raises ValueError."""
    blocks = _FENCED.findall(answer)
    try:
        return parse_json(answer)
    except (ValueError, RecursionError) as error:
        if len(blocks) != 1:
            raise ValueError(f"not valid JSON: {error}") from error
    try:
        return parse_json(blocks[0])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not valid JSON: {error}") from error


def find_violations(schema: Mapping[str, Any], answer: str) -> tuple[str, ...]:
    """How the answer differs from the schema; empty if it is valid. Raises InvalidError without the extra."""
    check_available()
    try:
        value = parse_answer(answer)
    except ValueError as error:
        return (str(error),)
    found = sorted(_validator(schema).iter_errors(value), key=lambda error: [str(step) for step in error.absolute_path])
    problems = [_shorten(f"{_format_path(error.absolute_path)}: {error.message}") for error in found[:_MAX_PROBLEMS]]
    return (*problems, *([f"{len(found) - _MAX_PROBLEMS} more"] if len(found) > _MAX_PROBLEMS else []))


def _find_problem(schema: Mapping[str, Any]) -> str:
    """Also references that lead nowhere, which would otherwise be noticed only when an answer is checked."""
    from jsonschema.exceptions import SchemaError
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    try:
        _validator(schema).check_schema(schema)
        root = Resource[Any].from_contents(schema, default_specification=DRAFT202012)
        resolver = Registry[Any]().resolver_with_root(root)
        for reference in _references(schema):
            resolver.lookup(reference)
    except SchemaError as error:
        return _shorten(f"not a valid JSON Schema: {_format_path(error.absolute_path)}: {error.message}")
    except Unresolvable as error:
        return _shorten(f"$ref {error.ref!r} leads nowhere; only references within the file are supported")
    return ""


def _validator(schema: Mapping[str, Any]) -> Any:
    from jsonschema import validators
    from referencing import Registry

    kinds: Any = validators  # it has no types
    # A registry of our own: the default one fetches what a schema refers to.
    return kinds.validator_for(schema, default=kinds.Draft202012Validator)(schema, registry=Registry[Any]())


def _references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        if isinstance(reference := fields.get("$ref"), str):
            yield reference
        for inner in fields.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in cast("list[object]", value):
            yield from _references(inner)


def _format_path(path: Any) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path) or "the value"


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_PROBLEM_CHARACTERS else f"{text[: _MAX_PROBLEM_CHARACTERS - 1]}…"


@cache
def _read_template(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), f"{name}.md"), encoding="utf-8") as file:
        return file.read()
