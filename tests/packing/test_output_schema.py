"""JSON Schemas for answers: loading them, and comparing answers with them."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from kitbag.errors import KitbagError
from kitbag.packing.output_schema import (
    find_violations,
    is_retry,
    load_output_schema,
    parse_answer,
    render_output_schema,
    render_retry,
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["n"],
    "properties": {"n": {"$ref": "#/$defs/number"}},
    "$defs": {"number": {"type": "integer"}},
}


def test_answers_are_compared_with_the_schema() -> None:
    assert find_violations(SCHEMA, '{"n": 1}') == ()
    assert find_violations(SCHEMA, 'Here it is:\n```json\n{"n": 1}\n```\n') == ()
    assert find_violations(SCHEMA, '{"n": "x"}') == (".n: 'x' is not of type 'integer'",)
    assert find_violations(SCHEMA, "{}") == ("the value: 'n' is a required property",)
    assert find_violations(SCHEMA, "I don't know")[0].startswith("not valid JSON")
    assert find_violations(SCHEMA, "```\n1\n```\n```\n2\n```")[0].startswith("not valid JSON")
    assert find_violations(SCHEMA, "[" * 5_000)[0].startswith("not valid JSON")
    assert len(find_violations({"items": {"type": "string"}}, json.dumps([1] * 100))) == 11


def test_an_answer_is_the_whole_text_or_its_only_code_block() -> None:
    assert parse_answer(' [1, "```"] ') == [1, "```"]
    assert parse_answer("Done:\n```\n{}\n```") == {}


def test_the_prompt_has_the_schema_and_a_retry_the_problems() -> None:
    assert '"required"' in render_output_schema(SCHEMA)
    retry = render_retry((".n: wrong",))
    assert "- .n: wrong" in retry
    assert is_retry(retry)
    assert not is_retry("Start your task.")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "not valid JSON"),
        ("[]", "a JSON Schema is a JSON object"),
        ('{"type": "objekt"}', "not a valid JSON Schema: .type"),
        ('{"$ref": "#/$defs/none"}', "leads nowhere"),
        (f'{{"description": "{"x" * 100_000}"}}', "larger than"),
        (None, "no file"),
    ],
)
def test_a_schema_that_can_not_be_used_is_refused(tmp_path: Path, content: str | None, problem: str) -> None:
    path = tmp_path / "schema.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(KitbagError) as caught:
        load_output_schema(str(path))
    assert problem in caught.value.problem
    assert str(path) in caught.value.problem


def test_nothing_is_fetched_for_a_reference(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        path = tmp_path / "schema.json"
        path.write_text(json.dumps({"$ref": f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"}))
        with pytest.raises(KitbagError) as caught:
            load_output_schema(str(path))
        assert "leads nowhere" in caught.value.problem
        with pytest.raises(BlockingIOError):
            server.accept()
