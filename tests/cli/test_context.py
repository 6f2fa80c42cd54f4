"""`kitbag context`: the pieces of a session's next request, and their sums."""

import fcntl
import html.parser
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from typing import Any
from xml.etree import ElementTree

import pytest

from conftest import World
from kitbag.messages import Usage
from kitbag.testing import ModelServer, Rule, Script, Step
from support.waiting import TEST_TIMEOUT


@pytest.fixture
def asked(world: World) -> World:
    world.skill(
        ".kitbag/skills", "sql-style", description="How SQL is written here.", body="Write it in capitals.\n" * 40
    )
    world.write("AGENTS.md", "Answer in French.\n")
    world.write("app/query.py", "SQL = 'select style from sql'\n")
    world.ok("-p", "What is the sql style in app/query.py?", "--model", "offline", "--trust-workspace")
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
    assert found["last_request"]["provider"] == found["turns"][-1]["input"]
    assert found["last_request"]["residual"] == found["last_request"]["provider"] - found["last_request"]["ours"]


def test_the_table_is_plain_in_a_pipe(asked: World) -> None:
    text = asked.ok("context")
    assert "\x1b" not in text
    assert "sql-style" in text
    assert "of the window" in text
    json.dumps(text)


def _answered(world: World, server: ModelServer, *words: str) -> None:
    world.env |= server.environment()
    world.ok(*words, "--model", "anthropic/claude-sonnet-4-5", "--trust-workspace")


def _texts_on_the_wire(body: dict[str, Any], messages: list[dict[str, Any]]) -> int:
    """Counted from the bytes of the protocol, by nothing of ours."""
    total = sum(len(block["text"].encode()) for block in body["system"])
    for tool in body["tools"]:
        schema = json.dumps(tool["input_schema"], ensure_ascii=False, separators=(",", ":"))
        total += len(f"{tool['name']}\n{tool['description']}\n{schema}".encode())
    for message in messages:
        for block in message["content"]:
            if block["type"] == "text":
                total += len(block["text"].encode())
            elif block["type"] == "tool_use":
                arguments = json.dumps(block["input"], ensure_ascii=False, separators=(",", ":"))
                total += len(f"{block['name']}\n{arguments}".encode())
            else:
                total += sum(len(inner["text"].encode()) for inner in block["content"])
    return total


def test_the_ledger_is_what_the_next_request_really_carries(asked: World) -> None:
    skill = ("c1", "Skill", '{"skill": "sql-style"}')
    read = ("c2", "Read", '{"file_path": "app/query.py"}')
    replies = [Step(text="Zuerst.", calls=(skill, read)), Step(text="Fertig: né."), Step(text="Bitte.")]
    with ModelServer(Script([Rule(replies)])) as server:
        _answered(asked, server, "-p", "Wie schreibt man hier SQL? 数据库")
        found = asked.json("context")
        _answered(asked, server, "-p", "Danke.", "--continue")
        body = server.requests[-1].body
    assert body["messages"][-1]["content"][0]["text"] == "Danke."
    assert found["bytes"] == _texts_on_the_wire(body, body["messages"][:-1])


def test_the_residual_is_between_the_provider_s_count_and_ours_of_the_same_request(asked: World) -> None:
    with ModelServer(
        Script([Rule([Step(text="Hi.", usage=Usage(input=100, output=2, cache_read=30, cache_write=4))])])
    ) as server:
        _answered(asked, server, "-p", "Hello.")
        found = asked.json("context")
    assert found["last_request"]["provider"] == 134
    prefix = sum(piece["tokens"] for piece in found["pieces"] if not piece["turn"])
    said = next(piece["tokens"] for piece in found["pieces"] if piece["kind"] == "user")
    assert found["last_request"]["ours"] == prefix + said


def test_tools_memory_skills_and_turns_have_their_own_sums(asked: World) -> None:
    found = asked.json("context")
    skill = next(one for one in found["skills"]["each"] if one["name"] == "sql-style")
    assert skill["listed"] > 0
    assert skill["loaded"] > 0
    assert skill["possible"] > 0
    assert found["skills"]["possible"] == sum(one["possible"] for one in found["skills"]["each"])
    tools = {tool["name"]: tool for tool in found["tools"]}
    assert tools["Read"]["calls"] >= 1
    assert tools["Read"]["result_tokens"] > 0
    assert tools["Glob"]["described"] > 0
    assert [row["name"].rpartition("/")[2] for row in found["memory"]][-1] == "AGENTS.md"
    standing = sum(turn["tokens"] for turn in found["turns"])
    assert standing == sum(piece["tokens"] for piece in found["pieces"] if piece["turn"])
    assert found["left"] == found["compacted_at"] - found["tokens"]


def test_a_terminal_of_80_columns_is_enough(asked: World) -> None:
    lines = in_terminal(asked, "context").replace("\r", "").split("\n")
    assert [line for line in lines if len(line) > 80] == []
    assert any("sql-style" in line for line in lines)


def in_terminal(world: World, *arguments: str) -> str:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    env = world.env | {"COLUMNS": "80"}
    process = subprocess.Popen(
        [sys.executable, "-m", "kitbag", *arguments], cwd=world.workspace, env=env, stdout=follower, stderr=follower
    )
    os.close(follower)
    seen = b""
    while True:
        try:
            piece = os.read(leader, 65_536)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    os.close(leader)
    assert process.wait(TEST_TIMEOUT) == 0
    return seen.decode()


class TestCalls:
    def test_each_call_is_listed_shown_compared_and_checked(self, asked: World) -> None:
        found = asked.json("context", "calls")
        assert [call["number"] for call in found["calls"]] == list(range(1, len(found["calls"]) + 1))
        assert {skill["name"]: skill for skill in found["skills"]}["sql-style"]["requests"] > 0
        assert [row["name"] for row in found["savings"]["words"]] == ["first call", "last call", "all calls"]
        call = asked.json("context", "--call", "-1")
        assert call["is_exact"] is True
        assert sum(piece["bytes"] for piece in call["pieces"]) == call["bytes"]
        assert call["pieces"][-1]["offset"] + call["pieces"][-1]["bytes"] == call["bytes"]
        compared = asked.json("context", "diff", "1", "2")
        assert (compared["first"], compared["second"], compared["divergence"]) == (1, 2, None)
        assert asked.json("context", "check")["problems"] == 0

    def test_people_read_the_same(self, asked: World) -> None:
        texts = {words: asked.ok("context", *words.split()) for words in ("calls", "--call 2", "diff", "check")}
        assert "sql-style" in texts["calls"]
        assert "the user wrote it" in texts["--call 2"]
        assert "are the same" in texts["diff"]
        assert "reproduced byte for byte" in texts["check"]
        assert "0 problems" in texts["check"]

    def test_bad_numbers_and_names(self, asked: World) -> None:
        for words, code, said in (
            (("--call", "99"), 4, "no model call 99"),
            (("diff", "1"), 2, "nothing to compare it with"),
            (("diff", "1", "99"), 4, "no model call 99"),
            (("dif",), 2, "Did you mean 'diff'?"),
            (("check", "--session", "nope"), 4, "nope"),
        ):
            done = asked.run("context", *words)
            assert (done.returncode, said in done.stderr) == (code, True), (words, done.stderr)

    def test_a_problem_is_an_exit_code(self, asked: World) -> None:
        from kitbag.store.journal import Journal, journal_path
        from kitbag.store.redaction import Redactor

        session = asked.json("context")["session"]
        with Journal.open(journal_path(str(asked.home / ".kitbag")), Redactor(())) as journal:
            journal.append(f"session/{session}", "reply", {"message": "nonsense"})
        done = asked.run("context", "check")
        assert done.returncode == 1
        assert "is damaged" in done.stdout


class _Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes |= {name for name, _ in attrs}


class TestPictures:
    def test_they_are_written_to_a_new_file_or_to_stdout(self, asked: World) -> None:
        target = asked.workspace / "context.svg"
        asked.ok("context", "--svg", str(target))
        assert ElementTree.fromstring(target.read_text()).tag.endswith("svg")
        assert target.stat().st_mode & 0o777 == 0o600
        again = asked.run("context", "--svg", str(target))
        assert (again.returncode, "already exists" in again.stderr) == (6, True)
        assert ElementTree.fromstring(asked.ok("context", "calls", "--svg", "-")).tag.endswith("svg")

    def test_the_page_is_one_file_without_scripts_in_which_all_text_is_escaped(self, asked: World) -> None:
        evil = '<script>alert(1)</script><img src="https://x.example/a.png">'
        asked.ok("-p", f"Hello {evil}", "--model", "offline", "--trust-workspace", "--continue")
        page = asked.ok("context", "--html", "-")
        assert "&lt;script&gt;alert(1)" in page
        assert "<script" not in page
        assert "<img" not in page
        assert "content=\"default-src 'none'; style-src 'unsafe-inline'" in page
        tags = _Tags()
        tags.feed(page)
        assert not tags.attributes & {"src", "href", "onload", "onclick"}
        assert "url(" not in page

    def test_secrets_that_became_known_later_are_redacted(self, asked: World) -> None:
        asked.ok("-p", "The word is xyzzy-plugh-1234.", "--model", "offline", "--trust-workspace", "--continue")
        assert "xyzzy-plugh-1234" in asked.ok("context", "--html", "-")
        asked.env |= {"MY_API_KEY": "xyzzy-plugh-1234"}
        assert "xyzzy-plugh-1234" not in asked.ok("context", "--html", "-")

    def test_tasks_are_drawn_on_a_timeline(self, asked: World) -> None:
        none = asked.run("tasks", "--svg", "-", cwd=asked.outside)
        assert none.returncode in (0, 4)
        asked.ok("agents", "run", "Explore", "What is this?", "--model", "offline", "--trust-workspace")
        drawn = asked.ok("tasks", "--svg", "-")
        assert "Explore" in drawn
        assert ElementTree.fromstring(drawn).tag.endswith("svg")
