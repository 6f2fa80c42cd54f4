"""`kitbag context`: the pieces of a session's next request, and their sums."""

import json

import pytest

from conftest import World


@pytest.fixture
def asked(world: World) -> World:
    world.skill(
        ".kitbag/skills", "sql-style", description="How SQL is written here.", body="Write it in capitals.\n" * 40
    )
    world.write("AGENTS.md", "Answer in French.\n")
    world.write("app/query.py", "SQL = 'select style from sql'\n")
    world.ok("-p", "What is the sql style here?", "--model", "offline", "--trust-workspace")
    return world


def test_the_bytes_of_the_pieces_are_exactly_the_request(asked: World) -> None:
    found = asked.json("context")
    assert found["bytes"] == found["request_bytes"] == sum(piece["bytes"] for piece in found["pieces"])
    assert found["tokens"] == sum(row["tokens"] for row in found["groups"])


def test_skills_memory_tools_and_results_are_told_apart(asked: World) -> None:
    rows = {(row["kind"], row["name"]) for row in asked.json("context")["groups"]}
    assert ("skill", "sql-style") in rows
    assert ("tool", "Grep") in rows
    assert ("result", "Read") in rows
    assert ("catalog", "skills") in rows
    assert any(kind == "memory" and name.endswith("AGENTS.md") for kind, name in rows)


def test_listed_loaded_and_possible_are_three_numbers(asked: World) -> None:
    skills = asked.json("context")["skills"]
    assert skills["listed"] > 0
    assert 0 < skills["loaded"] < skills["possible"]


def test_a_session_is_found_by_its_id_and_by_its_directory(asked: World) -> None:
    newest = asked.json("context")["session"]
    assert asked.json("context", "--session", newest)["session"] == newest
    missing = asked.run("context", "--session", "nope")
    assert missing.returncode == 4
    assert "nope" in missing.stderr


def test_each_turn_has_the_provider_s_own_count(asked: World) -> None:
    found = asked.json("context")
    assert [turn["number"] for turn in found["turns"]] == list(range(1, len(found["turns"]) + 1))
    assert found["last_request"]["provider"] == found["turns"][-1]["shown"]
    assert found["last_request"]["residual"] == found["last_request"]["provider"] - found["last_request"]["ours"]


def test_the_table_is_plain_in_a_pipe(asked: World) -> None:
    text = asked.ok("context")
    assert "\x1b" not in text
    assert "sql-style" in text
    assert "of the window" in text
    json.dumps(text)
