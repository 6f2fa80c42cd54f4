"""Agents as the model that is none chooses them: from the catalog it is shown, by words and file extensions."""

import asyncio
from contextlib import aclosing

import pytest

from kitbag.messages import Message, Text, ToolResult, user_message
from kitbag.models.offline.agents import match_agents, parse_agent_catalog
from kitbag.models.offline.conversation import TASK_START_MESSAGE, read_conversation
from kitbag.models.offline.model import OfflineModel
from kitbag.models.provider import ModelReply, ModelRequest, SystemBlock, ToolSpec

CATALOG = """<available-skills>
- code_review: Review code for quality, security, and best practices. PR reviews, code analysis.
- security_analysis: Identify security vulnerabilities and risks. Security audits, auth reviews.
- incident_investigation: Investigate production incidents and errors. Telemetry analysis.
</available-skills>
<available-agents>
Available agent types for the Task tool:

- code-reviewer: Review code for quality/security.
- sql-reviewer: Reviews SQL. [.sql, .psql]
- python-reviewer: Reviews Python [and its tests]. [.py]
- investigation-reporter: Create detailed incident RCA reports with root cause analysis.
- Explore: Finds and explains things. Use &lt;it> &amp;amp; more.

(5 of 5 agents are described.)
</available-agents>"""


def spec(name: str, *fields: str) -> ToolSpec:
    return ToolSpec(name=name, description="", schema={"type": "object", "properties": {field: {} for field in fields}})


TOOLS = (
    spec("Skill", "skill", "args", "reason"),
    spec("Task", "subagent_type", "prompt", "description"),
    spec("Grep", "pattern", "-i", "-n", "output_mode", "head_limit"),
    spec("Glob", "pattern"),
    spec("Read", "file_path", "offset", "limit"),
)


def request(*messages: Message, tools: tuple[ToolSpec, ...] = TOOLS, system: str = CATALOG) -> ModelRequest:
    return ModelRequest(model="offline", system=(SystemBlock(text=system),), messages=messages, tools=tools)


def ask(*messages: Message, **more: object) -> ModelReply:
    async def go() -> ModelReply:
        async with aclosing(OfflineModel().stream(request(*messages, **more))) as stream:  # type: ignore[arg-type]
            pieces = [piece async for piece in stream]
        assert isinstance(pieces[-1], ModelReply)
        return pieces[-1]

    return asyncio.run(go())


def calls(*messages: Message, **more: object) -> list[tuple[str, str]]:
    """Each tool with what it is called for."""
    made = ask(*messages, **more).message.calls
    keys = {"Skill": "skill", "Task": "subagent_type", "Read": "file_path", "Grep": "path"}
    return [(one.name, str(one.arguments.get(keys.get(one.name, "pattern"), ""))) for one in made]


def test_the_catalog_is_read_as_it_is_written() -> None:
    found = {one.name: one for one in parse_agent_catalog(read_conversation(request(user_message("x"))))}
    assert found["sql-reviewer"].extensions == (".sql", ".psql")
    assert found["sql-reviewer"].description == "Reviews SQL."
    assert found["python-reviewer"].description == "Reviews Python [and its tests]."
    assert found["Explore"].description.endswith("<it> &amp; more.")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Review PR #123 for security issues", [("Skill", "code_review"), ("Grep", ""), ("Glob", "**/*123*")]),
        ("Create an investigation report for incident #456", [("Task", "investigation-reporter")]),
        ("Investigate incident #456", [("Skill", "incident_investigation"), ("Grep", ""), ("Glob", "**/*456*")]),
        ("Review db/schema.sql", [("Task", "sql-reviewer")]),
        ("Review a.py and b.sql", [("Task", "python-reviewer"), ("Task", "sql-reviewer")]),
        ("What is in db/schema.sql?", [("Read", "db/schema.sql")]),
        ("@agent-sql-reviewer what is in a.py?", [("Task", "sql-reviewer")]),
    ],
)
def test_a_request_goes_to_the_skill_or_the_agent_that_covers_more_of_it(
    said: str, expected: list[tuple[str, str]]
) -> None:
    assert sorted(calls(user_message(said))) == sorted(expected)


def test_why_a_skill_is_loaded_is_said() -> None:
    skill = ask(user_message("Review PR #123 for security issues")).message.calls[0]
    assert skill.arguments["reason"] == "the prompt contains: pr, review, security"


def test_one_that_was_started_by_another_starts_nobody_by_name() -> None:
    system = f"{CATALOG}\n## Your Task\nCreate an investigation report for incident #456"
    assert match_agents(read_conversation(request(user_message(TASK_START_MESSAGE), system=system))) == []


def test_without_the_tool_nobody_is_started() -> None:
    assert calls(user_message("Review db/schema.sql"), tools=TOOLS[2:]) == [("Read", "db/schema.sql")]


def test_a_refusal_is_told_and_it_searches_itself() -> None:
    talk = [user_message("Create an investigation report for incident #456")]
    first = ask(*talk)
    refused = "Error: Task is not allowed: needs approval"
    talk += [
        first.message,
        Message("user", (ToolResult(call_id=first.message.calls[0].id, content=(Text(refused),), is_error=True),)),
    ]
    second = ask(*talk)
    assert [call.name for call in second.message.calls] == ["Grep", "Glob"]
    results = ["notes/456.md:1:# Incident #456", "notes/456.md\nlogs/1456.log"]
    talk += [second.message, answered(second, *results)]
    third = ask(*talk)
    assert [call.arguments["file_path"] for call in third.message.calls] == ["notes/456.md"]
    talk += [third.message, answered(third, "     1\t# Incident #456, see logs/a.log.")]
    fourth = ask(*talk)
    assert [call.arguments["file_path"] for call in fourth.message.calls] == ["logs/a.log"]  # what the record names
    last = ask(*talk, fourth.message, answered(fourth, "     1\tERROR"))
    assert "did not complete the task" in last.message.text
    assert "`Task(investigation-reporter)`" in last.message.text
    assert "From logs/a.log:" in last.message.text


def answered(reply: ModelReply, *texts: str) -> Message:
    made = zip(reply.message.calls, texts, strict=True)
    return Message("user", tuple(ToolResult(call_id=call.id, content=(Text(text),)) for call, text in made))
