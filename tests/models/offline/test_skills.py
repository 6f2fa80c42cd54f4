"""Which skill a request speaks for, and which command a text labels as the one that runs the tests."""

import pytest

from kitbag.library.routing.agent_search import find_topic_words
from kitbag.models.offline.skills import best_skill, find_labeled_command
from kitbag.models.provider import ModelRequest, SystemBlock

CATALOG = """<available-skills>
Use the Skill tool to load any of these before doing the work it covers:

- code-review: Reviews changes in this repository, finds defects.
</available-skills>"""


def test_a_skill_is_found_in_the_suggestions_too() -> None:
    suggested = "<suggested-skills>\nFound:\n- pdf-forms: Fills in PDF forms.\n</suggested-skills>"
    found = best_skill(
        ModelRequest(model="", system=(SystemBlock(text=CATALOG),), messages=()),
        f"fill in the pdf forms\n\n{suggested}",
        {"pdf", "form"},
    )
    assert found is not None
    assert found.name == "pdf-forms"


MANY = """<available-skills>
- code-review: Reviews changes against the shop's rules: defects, money, guards, tests. Use to review a commit before merging. Writes findings and a message with the verdict.
- git_ops: How branches, commits and history are handled in this repository.
- writing-agents: Writes and improves agent files, which define subagents with their own prompt, tools and permissions.
- writing-skills: Writes and improves SKILL.md files, the instructions agents load on demand.
</available-skills>"""


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("How are branches named?", "git_ops"),
        ("How do I review a change?", "code-review"),
        ("How do I write an agent?", "writing-agents"),
        ("How do I write a poem?", ""),
        ("What does writing-skills say about branches?", "writing-skills"),
    ],
)
def test_the_skill_that_ranks_first_is_chosen_and_a_shared_verb_chooses_none(message: str, name: str) -> None:
    request = ModelRequest(model="", system=(SystemBlock(text=MANY),), messages=())
    found = best_skill(request, message, find_topic_words(message))
    assert (found.name if found else "") == name


def fence(*rows: str, info: str = "sh", mark: str = "```") -> str:
    return "\n".join([f"{mark}{info}", *rows, mark])


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (f"Run the tests:\n\n{fence('make test')}", "make test"),
        (f"Words.\n\n## Tests\n\n{fence('make test', info='')}\n", "make test"),
        (f"# Testing\n{fence('$ make test', info='console')}", "make test"),
        (f"1. Change it.\n2. Run all tests,\n   in this folder:\n\n   {fence('make test')}", "make test"),
        (f"The test command:\n{fence('# all of them', 'make test', '', mark='~~~~')}", "make test"),
        (f"Build it:\n\n{fence('make')}\n\nTests are run with\n\n{fence('make test')}", "make test"),
        (f"Run the tests:\n\n{fence('make a', 'make b')}", ""),
        ("Run the tests:\n\n" + fence("make \\"), ""),
        (f"Run the tests:\n\n{fence('test()', info='python')}", ""),
        (f"Never run the tests with:\n\n{fence('make test')}", ""),
        (f"Don't run the tests like this:\n\n{fence('make test')}", ""),
        (f"Run the tests. Then ship it:\n\n{fence('make ship')}", ""),
        (f"Run the tests.\n\nShip it:\n\n{fence('make ship')}", ""),
        (f"Tests are in tests/.\n\n{fence('make ship')}", ""),
        ("Run the tests:\n\n```sh\nmake test", ""),
        (f"Run the tests:\n\n{fence(fence('make test'), info='markdown', mark='````')}", ""),
        (fence("make test"), ""),
        ("", ""),
    ],
)
def test_only_one_line_below_words_about_running_the_tests_is_a_test_command(text: str, command: str) -> None:
    assert find_labeled_command(text) == command
