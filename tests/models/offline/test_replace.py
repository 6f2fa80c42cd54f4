"""Replacing a word by another: in the files that have it as a word, in no others, and with proof."""

import subprocess

import pytest

from conftest import World
from kitbag.messages import Text, ToolCall
from kitbag.models.offline.commands import ReplaceRequest
from kitbag.models.offline.conversation import FIXED_RULES_LINE, OfflineConversation, ToolStep
from kitbag.models.offline.replace import MAX_FILES, next_replace_step
from kitbag.models.provider import ModelRequest
from models.asking_offline import Desk, desk_in


@pytest.fixture
def desk(world: World, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return desk_in(world, monkeypatch)


def test_all_files_that_have_the_word_are_changed_and_searched_again(desk: Desk) -> None:
    desk.write("app/a.py", "from money import round_down\n\nprint(round_down(3))\n")
    desk.write("app/b.py", "x = round_down\n")
    desk.write("docs/a.md", "round_down\n")
    text = desk.ask("Replace `round_down` by `half_up` in app/")
    assert desk.text("app/a.py") == "from money import half_up\n\nprint(half_up(3))\n"
    assert desk.text("app/b.py") == "x = half_up\n"
    assert desk.text("docs/a.md") == "round_down\n"
    assert desk.calls == ["Grep", "Read", "Read", "Edit", "Edit", "Grep"]
    assert text.startswith(FIXED_RULES_LINE)
    assert "in app/: 3 places in 2 files." in text
    assert "- app/a.py: lines 1, 3" in text
    assert "no remaining occurrences" in text


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        ("total_cents = total(1)\nsubtotal = total\n", "total", "sum_of", "total_cents = sum_of(1)\nsubtotal = sum_of\n"),
        ("a = Line()\nb = Lines(Line)\nLine\n", "Line", "OrderLine", "a = OrderLine()\nb = Lines(OrderLine)\nOrderLine\n"),
        ("x = order.total + total\n", "total", "order.total", "x = order.total + order.total\n"),
        ("old_name\r\nold_names\r\nthe old_name\r\n", "old_name", "new_name", "new_name\r\nold_names\r\nthe new_name\r\n"),
        ("a.b(c) axb(c)\n", "a.b(", "f[", "f[c) axb(c)\n"),
        ("größe_x = 1; größe_xy\n", "größe_x", "size", "size = 1; größe_xy\n"),
        ("keep that_thing out\n", "that_thing ", "", "keep out\n"),
        ("say $HOME and ^x_y\\d\n", "^x_y\\d", "$&\\1", "say $HOME and $&\\1\n"),
    ],
)  # fmt: skip
def test_only_whole_words_are_replaced(desk: Desk, before: str, old: str, new: str, after: str) -> None:
    desk.write("a.txt", before.encode())
    text = desk.ask(f'Replace "{old}" by "{new}"')
    assert desk.text("a.txt") == after
    assert "no remaining occurrences" in text


def test_what_could_not_be_told_apart_is_left_and_said(desk: Desk) -> None:
    desk.write("a.txt", "x_y x_y x_yz\nbx_y x_y")
    text = desk.ask('Replace "x_y" by "new"')
    assert desk.text("a.txt") == "x_y new x_yz\nbx_y x_y"
    assert "but not everywhere" in text
    assert "Remaining:\n\n- a.txt:1: `x_y new x_yz`\n- a.txt:2: `bx_y x_y`" in text


def test_a_file_with_lines_too_long_to_judge_is_left_and_said(desk: Desk) -> None:
    desk.write("min.js", f"old_name;{'x' * 3000};old_names\n")
    desk.write("a.js", "old_name\n")
    text = desk.ask("Replace `old_name` by `new_name`")
    assert "old_names" in desk.text("min.js")
    assert desk.text("a.js") == "new_name\n"
    assert "min.js: its lines are too long" in text
    assert "Remaining:" in text


def test_skills_and_settings_of_tools_are_changed_only_where_they_are_named(desk: Desk) -> None:
    desk.write(".github/x.yml", "old_name: 1\n")
    desk.write("a.yml", "old_name: 1\n")
    text = desk.ask("Replace `old_name` by `new_name` everywhere")
    assert desk.text("a.yml") == "new_name: 1\n"
    assert desk.text(".github/x.yml") == "old_name: 1\n"
    assert ".github/x.yml" in text
    assert "no remaining occurrences" in text
    desk.ask("Replace `old_name` by `new_name` in .github/")
    assert desk.text(".github/x.yml") == "new_name: 1\n"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ("Replace `nowhere_here` by `x`", "no file here contains the word `nowhere_here`"),
        ("Replace `old_name` by `x` in no/such/", "the search failed. no/such does not exist"),
        ("Replace `old_name` by `old_name`", "would be replaced with itself"),
        ("Replace `ld_nam` by `x`", "no file here contains the word"),
    ],
)
def test_where_there_is_nothing_to_do_it_says_so(desk: Desk, request_: str, words: str) -> None:
    desk.write("a.py", "old_name = 1\n")
    text = desk.ask(request_)
    assert words in text
    assert "Nothing was" in text
    assert desk.text("a.py") == "old_name = 1\n"
    assert "Edit" not in desk.calls


def test_a_refusal_is_said_with_what_would_allow_it_and_what_would_have_changed(desk: Desk) -> None:
    desk.write("a.py", "old_name = 1\n")
    text = desk.ask("Replace `old_name` by `new_name`", mode="default")
    assert desk.text("a.py") == "old_name = 1\n"
    assert "Nothing was changed." in text
    assert "1 place in 1 file" in text
    assert "Denied: Edit is not allowed" in text
    assert "--permission-mode acceptEdits" in text
    assert desk.calls.count("Grep") == 1


def test_one_file_that_may_not_be_changed_does_not_keep_the_others(desk: Desk) -> None:
    desk.world.write("~/.kitbag/settings.toml", '[permissions]\ndeny = ["Edit(//**/vendor/**)"]\n')
    for number in range(25):
        desk.write(f"src/m{number}.py", "old_name\n")
    desk.write("src/a/vendor/x.py", "old_name\n")
    text = desk.ask("Replace `old_name` by `new_name` in src")
    assert {desk.text(f"src/m{number}.py") for number in range(25)} == {"new_name\n"}
    assert desk.text("src/a/vendor/x.py") == "old_name\n"
    assert "in 25 files, but not everywhere" in text
    assert "Denied: Edit is not allowed: denied by a rule" in text


def test_in_plan_mode_it_tells_what_it_would_change(desk: Desk) -> None:
    desk.write("a.py", "old_name = 1\n")
    text = desk.ask("Replace `old_name` by `new_name`", mode="plan")
    assert desk.text("a.py") == "old_name = 1\n"
    assert "would change 1 place in 1 file" in text
    assert "Edit is not available in this run" in text


def test_many_files_are_changed_in_turns(desk: Desk) -> None:
    for number in range(45):
        desk.write(f"src/m{number}.py", "old_name\n")
    text = desk.ask("Replace `old_name` by `new_name` in src")
    assert "45 places in 45 files" in text
    assert {desk.text(f"src/m{number}.py") for number in range(45)} == {"new_name\n"}


def test_too_many_files_are_left_before_anything_is_changed(desk: Desk) -> None:
    for number in range(MAX_FILES + 1):
        desk.write(f"src/m{number}.py", "old_name\n")
    text = desk.ask("Replace `old_name` by `new_name`")
    assert f"{MAX_FILES + 1} files contain" in text
    assert "Edit" not in desk.calls


def test_a_search_that_did_not_see_all_changes_nothing() -> None:
    found = "a.py:1:old_name\n[more match: narrow the search or raise head_limit]"
    steps = (ToolStep(call=ToolCall(id="1", name="Grep", arguments={}), text=found, is_error=False),)
    talk = OfflineConversation(
        request=ModelRequest(model="", system=(), messages=()),
        message="",
        steps=steps,
        tools={"Grep": {}, "Read": {}, "Edit": {}},
    )
    [part] = next_replace_step(ReplaceRequest(old="old_name", new="x", paths=()), talk)
    assert isinstance(part, Text)
    assert "too many lines" in part.text


def test_only_the_files_that_it_names_differ_in_git(desk: Desk) -> None:
    desk.write("a.py", "old_name\n")
    desk.write("b.py", "other\n")
    folder = desk.world.workspace
    (folder / ".git").rmdir()
    subprocess.run(["git", "init", "-q", folder], check=True)
    subprocess.run(["git", "-C", folder, "add", "-A"], check=True)
    desk.ask("Rename `old_name` to `new_name`")
    changed = subprocess.run(["git", "-C", folder, "status", "--short"], capture_output=True, text=True, check=True)
    assert changed.stdout == "AM a.py\nA  b.py\n"
