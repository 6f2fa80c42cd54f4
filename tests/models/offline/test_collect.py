"""Writing what a search finds into a file: links that lead there, and nobody's file overwritten."""

import re

import pytest

from conftest import World
from kitbag.models.offline.collect import GENERATED_MARKER, render_page
from kitbag.models.offline.commands import CollectRequest
from kitbag.models.offline.conversation import FIXED_RULES_LINE, GrepHit
from models.asking_offline import Desk, desk_in


@pytest.fixture
def desk(world: World, monkeypatch: pytest.MonkeyPatch) -> Desk:
    found = desk_in(world, monkeypatch)
    found.write("app/a.py", "x = 1  # TODO: name it\n\nTODOS = []  # FIXME `this`\n")
    found.write("app/b b.py", "# TODO\n")
    return found


def test_every_line_is_written_with_a_link_grouped_by_file(desk: Desk) -> None:
    text = desk.ask("Collect every TODO and FIXME into docs/todo.md")
    written = desk.text("docs/todo.md")
    assert "\n## app/a.py\n\n- [app/a.py:1](../app/a.py#L1): `x = 1  # TODO: name it`\n" in written
    assert "- [app/a.py:3](../app/a.py#L3): `` TODOS = []  # FIXME `this` ``\n" in written
    assert "(../app/b%20b.py#L1)" in written
    assert "3 lines in 2 files." in written
    assert text.startswith(FIXED_RULES_LINE)
    assert "Wrote docs/todo.md: 3 lines in 2 files" in text
    for target in re.findall(r"\]\(\.\./(.+?)#L", written):
        assert (desk.world.workspace / target.replace("%20", " ")).is_file()


def test_asked_again_it_writes_its_own_file_anew_and_does_not_find_itself(desk: Desk) -> None:
    desk.ask("Collect every TODO into todo.md")
    first = desk.text("todo.md")
    assert "is up to date: 2 lines" in desk.ask("Collect every TODO into todo.md")
    assert desk.text("todo.md") == first
    desk.write("app/c.py", "# TODO more\n")
    assert "Wrote todo.md: 3 lines" in desk.ask("Collect every TODO into todo.md")
    assert "app/c.py:1" in desk.text("todo.md")


def test_a_file_of_somebody_else_is_not_overwritten(desk: Desk) -> None:
    desk.write("notes.md", "My notes.\n")
    text = desk.ask("Collect every TODO into notes.md")
    assert desk.text("notes.md") == "My notes.\n"
    assert "Nothing was written: notes.md already exists" in text


def test_an_empty_file_is_nobody_s(desk: Desk) -> None:
    desk.write("notes.md", "")
    assert "Wrote notes.md" in desk.ask("Collect every TODO into notes.md")


def test_about_a_topic_all_forms_of_its_words_are_found_and_skills_are_left_out(desk: Desk) -> None:
    desk.write("app/pay.py", "def refund(): ...\nrefunds = 1\npartial_refund = Refunded\nfund = 2\n")
    desk.write(".kitbag/skills/x/SKILL.md", "---\nname: x\ndescription: Refunds.\n---\nrefund\n")
    desk.ask("Write what you find about the refunds to notes.md")
    rows = [row for row in desk.text("notes.md").splitlines() if row.startswith("- ")]
    assert [row.partition("]")[0] for row in rows] == ["- [app/pay.py:1", "- [app/pay.py:2", "- [app/pay.py:3"]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ("Collect every XXX into x.md", "no line contains `XXX`"),
        ("Collect every TODO in no/such into x.md", "the search failed. no/such does not exist"),
        ("Write what you find about the and of to x.md", "no keywords to search for"),
        ("Collect every TODO into app/a.py/x.md", "was not written. It would list 2 lines in 2 files."),
    ],
)
def test_where_there_is_nothing_to_write_it_says_so(desk: Desk, request_: str, words: str) -> None:
    assert words in desk.ask(request_)
    assert not (desk.world.workspace / "x.md").exists()


def test_a_refusal_is_said_with_what_would_allow_it(desk: Desk) -> None:
    text = desk.ask("Collect every TODO into todo.md", mode="default")
    assert "todo.md was not written. It would list 2 lines in 2 files." in text
    assert "--permission-mode acceptEdits" in text
    assert not (desk.world.workspace / "todo.md").exists()


def test_without_a_tool_for_it_it_says_so(desk: Desk) -> None:
    assert "Write is not available in this run" in desk.ask("Collect every TODO into todo.md", mode="plan")


def test_it_does_not_write_outside_of_the_workspace(desk: Desk) -> None:
    text = desk.ask("Collect every TODO into ../outside/todo.md")
    assert "Nothing was written: cannot check ../outside/todo.md" in text
    assert not (desk.world.outside / "todo.md").exists()


def test_what_the_search_kept_out_is_said_in_the_file() -> None:
    written = render_page(
        CollectRequest(words=("A",), exact=True, file="x.md"),
        ("A",),
        [GrepHit(path="[id]/a_b.ts", line=2, text=" A ")],
        ["more match"],
    )
    assert written.splitlines()[2] == GENERATED_MARKER
    assert "Incomplete: more match." in written
    assert "- [\\[id\\]/a\\_b.ts:2](%5Bid%5D/a_b.ts#L2): `A`" in written
