"""A question that a skill answers gets its matching sections; files only for what the skill doesn't say."""

import pytest

from kitbag.messages import Message, Text, ToolResult, user_message
from kitbag.models.offline.skill_quotes import quote_skill
from models.offline.test_model import answered, ask

BODY = (
    "# Review a change\n\nAbout reviews.\n\n## Steps\n\nReview the diff of each change first.\n\n"
    + "## Servers\n\nRestart them.\n"
)
SKILL = f'<skill-invocation name="code-review">\nSkill directory: /s\n\n{BODY}\n</skill-invocation>'
INCIDENT = "logs/incident.md:3:The change of the invoice total made all servers fail."


def test_a_question_that_the_skill_answers_searches_no_file() -> None:
    talk = [user_message("How do I review a change?")]
    first = ask(*talk)
    assert [call.name for call in first.message.calls] == ["Skill"]
    last = ask(*talk, *answered(first, SKILL))
    assert last.message.calls == ()
    assert "> Review the diff of each change first." in last.message.text
    assert "Restart them" not in last.message.text


def test_files_are_searched_for_the_words_that_the_skill_lacks() -> None:
    talk = [user_message("How do I review a change of the invoice total?")]
    first = ask(*talk)
    talk += answered(first, SKILL)
    second = ask(*talk)
    [grep] = second.message.calls
    assert (grep.name, grep.arguments["pattern"]) == ("Grep", "invoice|total")
    third = ask(*talk, *answered(second, f"{INCIDENT}\nlogs/other.md:1:Nothing of that kind, only a change."))
    assert [call.arguments["file_path"] for call in third.message.calls] == ["logs/incident.md"]


def test_a_word_that_many_files_contain_is_no_reason_to_quote_them() -> None:
    talk = [user_message("How do I review a change in the warehouse basement?")]
    first = ask(*talk)
    talk += answered(first, SKILL)
    second = ask(*talk)
    many = "\n".join(f"docs/{number}.md:1:the warehouse" for number in range(9))
    last = ask(*talk, *answered(second, many))
    assert last.message.calls == ()
    assert "docs/" not in last.message.text


def test_a_skill_that_has_most_words_of_the_question_has_answered_it() -> None:
    talk = [user_message("How do I review a change of the invoice?")]
    assert ask(*talk, *answered(ask(*talk), SKILL)).message.calls == ()


def test_a_word_that_is_common_anywhere_is_no_reason_to_search() -> None:
    talk = [user_message("How do I create a review of a change?")]
    assert ask(*talk, *answered(ask(*talk), SKILL)).message.calls == ()


def test_a_skill_that_can_t_be_loaded_leaves_the_search() -> None:
    talk = [user_message("How do I review a change?")]
    first = ask(*talk)
    results = tuple(
        ToolResult(call_id=call.id, content=(Text("Error: no"),), is_error=True) for call in first.message.calls
    )
    assert [call.name for call in ask(*talk, first.message, Message("user", results)).message.calls] == ["Grep"]


@pytest.mark.parametrize(
    ("keywords", "quoted"),
    [
        ({"server"}, ["## Servers", "", "Restart them."]),
        ({"nothing"}, BODY.strip().splitlines()),
        ({"review", "diff", "first"}, ["## Steps", "", "Review the diff of each change first."]),
        ({"review", "diff"}, ["# Review a change", "", "About reviews.", "…", "## Steps"]),
    ],
)
def test_the_sections_that_share_words_are_quoted_else_the_start(keywords: set[str], quoted: list[str]) -> None:
    rows = [row.removeprefix(">").removeprefix(" ") for row in quote_skill("x", SKILL, keywords).splitlines()[2:]]
    assert rows[: len(quoted)] == quoted
