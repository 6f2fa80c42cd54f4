"""What can be typed next is offered, the best first, and nothing that a terminal would obey is ever offered."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_toolkit.completion import CompleteEvent, Completion
from prompt_toolkit.document import Document

from conftest import World
from kitbag.assembly.mention_syntax import find_mentions, list_targets
from kitbag.chat.commands import COMMANDS
from kitbag.chat.input.completion import ChatCompleter, CompletionSources
from kitbag.chat.input.match_ranking import rank, rank_items
from kitbag.chat.input.workspace_files import WorkspaceFiles
from kitbag.errors import InvalidError
from kitbag.library.dialects.permission_modes import MODES_STRICTEST_FIRST
from kitbag.library.registry import Registry
from kitbag.permissions.model import Workspace
from support.matrix import examples
from support.waiting import TEST_TIMEOUT, wait_until


class Typing:
    def __init__(self, world: World) -> None:
        self.world = world
        self.persona = ""
        self.sessions: list[tuple[str, str]] = []
        self.tasks: list[tuple[str, str]] = []
        self.prompts: dict[str, str] = {}
        self.workspace = Workspace(
            root=str(world.workspace), home=str(world.home), kitbag_home=str(world.home / ".kitbag")
        )

    def library(self) -> Registry:
        return Registry(self.world.registry().places, persona=self.persona)

    def completer(self, library: Callable[[], Registry] | None = None, directory: str = "") -> ChatCompleter:
        around = CompletionSources(
            library=library or self.library,
            workspace=self.workspace,
            directory=directory or str(self.world.workspace),
            sessions=lambda: self.sessions,
            tasks=lambda: self.tasks,
            prompts=lambda: self.prompts,
        )
        return ChatCompleter(around)

    def offered(self, text: str, completer: ChatCompleter | None = None) -> list[Completion]:
        return asyncio.run(asyncio.wait_for(self._offered(text, completer or self.completer()), TEST_TIMEOUT))

    async def _offered(self, text: str, completer: ChatCompleter) -> list[Completion]:
        found = completer.get_completions_async(Document(text), CompleteEvent())
        completions = [one async for one in found]
        completer.close()
        return completions

    def texts(self, text: str, completer: ChatCompleter | None = None) -> list[str]:
        return [one.text for one in self.offered(text, completer)]


@pytest.fixture
def typing(world: World, monkeypatch: pytest.MonkeyPatch) -> Typing:
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.delenv("KITBAG_HOME", raising=False)
    return Typing(world)


class TestCommands:
    def test_a_slash_offers_all_of_them_with_their_help(self, typing: Typing) -> None:
        found = {one.text: one.display_meta_text for one in typing.offered("/")}
        assert {f"/{name}" for name in COMMANDS} <= set(found)
        assert found["/mode"] == COMMANDS["mode"].help

    def test_the_beginning_counts_before_a_word_s_beginning_before_single_letters(self, typing: Typing) -> None:
        for name in ("review-code", "code-review", "decorate", "record-all-events"):
            typing.world.skill("~/.kitbag/skills", name)
        found = [text for text in typing.texts("/re") if text[1:] not in COMMANDS]
        assert found == ["/record-all-events", "/review-code", "/code-review"] + [
            text for text in found if text not in ("/record-all-events", "/review-code", "/code-review")
        ]
        assert typing.texts("/mode")[0] == "/mode"
        assert [rank(typed, "code-review") for typed in ("code-review", "co", "re", "ode", "cr")] == [0, 1, 2, 3, 4]
        assert rank("xy", "code-review") is None
        assert rank_items("re", ["core", "code-review", "rxe"], str) == ["code-review", "core"]
        assert rank_items("cr", ["code-review", "x"], str) == ["code-review"]

    def test_skills_and_commands_of_one_s_own_are_offered_where_a_person_may_use_them(self, typing: Typing) -> None:
        typing.world.skill("~/.kitbag/skills", "mine", description="Does \x1b[31mit\nwell.")
        typing.world.write(
            "~/.kitbag/skills/no/SKILL.md", "---\nname: no\ndescription: x\nuser-invocable: false\n---\nx"
        )
        typing.world.write("~/.kitbag/commands/ship.md", "---\ndescription: Ships.\n---\nShip it.")
        found = {one.text: one.display_meta_text for one in typing.offered("/")}
        assert found["/ship"] == "Ships."
        assert "/no" not in found
        assert "\x1b" not in found["/mine"]
        assert "\n" not in found["/mine"]

    def test_prompts_of_servers_are_offered(self, typing: Typing) -> None:
        typing.prompts = {"mcp__hub__issue": "<number> Explains an issue."}
        assert typing.texts("/issue")[0] == "/mcp__hub__issue"

    def test_a_skill_does_not_hide_a_command_of_its_name(self, typing: Typing) -> None:
        typing.world.skill("~/.kitbag/skills", "help", description="Mine.")
        found = [one.display_meta_text for one in typing.offered("/help") if one.text == "/help"]
        assert found == [COMMANDS["help"].help]

    def test_also_not_by_capital_letters(self, typing: Typing) -> None:
        typing.world.skill("~/.kitbag/skills", "Help", description="Mine.")  # `/Help` is our own `/help`
        assert "/Help" not in typing.texts("/Hel")

    def test_a_name_with_blanks_is_offered_as_it_can_be_typed(self, typing: Typing) -> None:
        typing.world.skill("~/.kitbag/skills", "C# Expert")
        assert typing.texts("/c-ex") == ["/c-expert"]

    @pytest.mark.parametrize("text", ["say /mo", "a\n/mo", "", "hello", "/mode plan more", "/help x"])
    def test_elsewhere_there_is_none(self, typing: Typing, text: str) -> None:
        assert typing.texts(text) == []

    def test_what_is_replaced_is_what_was_typed(self, typing: Typing) -> None:
        (found,) = typing.offered("/conte")
        assert (found.text, found.start_position) == ("/context", -6)


class TestArguments:
    def test_modes(self, typing: Typing) -> None:
        assert typing.texts("/mode ") == list(MODES_STRICTEST_FIRST)
        assert typing.texts("/mode pl")[0] == "plan"

    def test_models_by_name_and_by_alias(self, typing: Typing) -> None:
        found = typing.texts("/model ")
        assert "sonnet" in found
        assert "offline" in found

    def test_personas_and_none(self, typing: Typing) -> None:
        typing.world.write("~/.kitbag/personas/boss.yaml", "name: boss\ndescription: Leads.\n")
        assert {"boss", "none"} <= set(typing.texts("/persona "))
        assert typing.texts("/persona bo") == ["boss"]

    def test_agents(self, typing: Typing) -> None:
        assert typing.texts("/agents Expl") == ["Explore"]

    def test_states_then_skills(self, typing: Typing) -> None:
        typing.world.skill("~/.kitbag/skills", "mine")
        assert typing.texts("/skills ") == ["on", "name-only", "user-only", "off"]
        assert "mine" in typing.texts("/skills off ")
        assert typing.texts("/skills odd ") == []

    def test_tasks_and_sessions(self, typing: Typing) -> None:
        typing.tasks = [("t-17", "explores"), ("t-18", "x\x1b]0;bad\x07y")]
        typing.sessions = [("s-1", "About money")]
        assert typing.texts("/tasks ") == ["show", "stop", "resume", "answer"]
        assert typing.texts("/tasks show ") == ["t-17", "t-18"]
        assert typing.texts("/stop t-17") == ["t-17"]
        assert typing.texts("/resume ") == ["last", "s-1"]
        assert all("\x1b" not in one.display_meta_text for one in typing.offered("/tasks show "))

    def test_files_to_export_to(self, typing: Typing) -> None:
        typing.world.write("notes/a b.md", "")
        assert typing.texts("/export no") == ["notes/"]
        assert typing.texts("/export notes/a b") == ["notes/a b.md"]


class TestFiles:
    def test_names_come_before_folders_above_and_parts_before_letters(self, typing: Typing) -> None:
        for path in ("src/chat/chat.py", "src/chat/face.py", "docs/chat.md", "old/chitchat.txt", "c/h/a/t"):
            typing.world.write(path, "")
        found = typing.texts("see @chat")
        assert set(found[:3]) == {"@docs/chat.md", "@src/chat/", "@src/chat/chat.py"}
        assert found.index("@old/chitchat.txt") < found.index("@src/chat/face.py")
        assert typing.texts("@scf")[0] == "@src/chat/face.py"
        assert typing.texts("@ch/fa") == ["@src/chat/face.py"]

    def test_ignored_files_and_those_of_git_are_left_out(self, typing: Typing) -> None:
        typing.world.write(".gitignore", "build/\n")
        typing.world.write("build/out.py", "")
        typing.world.write(".git/config", "")
        typing.world.write(".github/ci.yml", "")
        found = typing.texts("@")
        assert "@.github/ci.yml" in found
        assert not [text for text in found if "build" in text or ".git/" in text]

    @pytest.mark.parametrize("before", ["@", "look at @", "(@", "a\n@", "/way with @"])
    def test_behind_a_blank_at_the_beginning_and_in_brackets(self, typing: Typing, before: str) -> None:
        typing.world.write("only.py", "")
        assert typing.texts(f"{before}onl") == ["@only.py"]

    @pytest.mark.parametrize("text", ["me@onl", "`@onl", "x/@onl", "@only.py now"])
    def test_not_inside_of_words(self, typing: Typing, text: str) -> None:
        typing.world.write("only.py", "")
        assert typing.texts(text) == []

    def test_names_with_blanks_are_quoted_and_a_folder_s_quote_stays_open(self, typing: Typing) -> None:
        typing.world.write("my dir/a b.txt", "")
        assert set(typing.texts("@my")) == {'@"my dir/', '@"my dir/a b.txt"'}
        found = {one.text: one.start_position for one in typing.offered('x @"my dir/a')}
        assert found == {'@"my dir/a b.txt"': -len('@"my dir/a')}

    def test_other_places_are_listed_a_folder_at_a_time(self, typing: Typing) -> None:
        (typing.world.outside / "notes.txt").write_text("")
        (typing.world.outside / ".hidden").write_text("")
        (typing.world.home / "todo.md").write_text("")
        outside = str(typing.world.outside)
        assert typing.texts(f"@{outside}/") == [f"@{outside}/notes.txt"]
        assert typing.texts(f"@{outside}/.h") == [f"@{outside}/.hidden"]
        assert typing.texts("@../outside/no") == ["@../outside/notes.txt"]
        assert typing.texts("@~/to") == ["@~/todo.md"]
        assert typing.texts("@/no/such/place/") == []

    def test_below_the_root_paths_start_where_the_person_is(self, typing: Typing) -> None:
        for path in ("sub/a.py", "a.py", "top.py"):
            typing.world.write(path, "")
        directory = str(typing.world.workspace / "sub")
        found = typing.texts("@a.p", typing.completer(directory=directory))
        assert set(found) == {"@a.py", "@../a.py"}
        assert typing.texts("@top", typing.completer(directory=directory)) == ["@top.py"]

    def test_agents_are_offered_too(self, typing: Typing) -> None:
        assert typing.texts("@agent-Ex") == ["@agent-Explore"]
        assert "@agent-Explore" in typing.texts("@expl")
        assert "@agent-Explore" in typing.texts("@")

    def test_new_files_show_when_the_list_is_made_again(self, typing: Typing) -> None:
        files = WorkspaceFiles(typing.workspace)
        typing.world.write("one.py", "")
        assert files.best_matches("one", 5, TEST_TIMEOUT) == ["one.py"]
        typing.world.write("two.py", "")
        files._listed_at -= 100  # pyright: ignore[reportPrivateUsage] - as if it were long ago
        assert wait_until(lambda: files.best_matches("two", 5)) == ["two.py"]
        files.close()

    def test_a_deleted_file_is_not_offered_even_while_the_listing_is_cached(self, typing: Typing) -> None:
        typing.world.write("old.py", "")
        files = WorkspaceFiles(typing.workspace)
        assert files.best_matches("old", 5, TEST_TIMEOUT) == ["old.py"]
        os.unlink(typing.world.workspace / "old.py")
        assert files.best_matches("old", 5) == []

    def test_without_a_library_or_a_workspace_there_is_nothing_and_no_error(self, typing: Typing) -> None:
        def broken() -> Registry:
            raise InvalidError("it is broken")

        typing.world.write("x.py", "")
        assert typing.texts("@x", typing.completer(broken)) == ["@x.py"]
        assert typing.texts("/mod", typing.completer(broken))[:2] == ["/model", "/mode"]
        assert typing.texts("/persona ", typing.completer(broken)) == []
        typing.workspace = msgspec.structs.replace(typing.workspace, root="/no/such/folder")
        assert typing.texts("@x.p") == []

    def test_another_persona_shows_at_once(self, typing: Typing) -> None:
        for persona in ("boss", "clerk"):
            typing.world.write(f"~/.kitbag/skills/shop/_persona_{persona}.yaml", f"name: {persona}\ncore_skills: []\n")
            typing.world.write(
                f"~/.kitbag/skills/shop/{persona}/rule-{persona}.md",
                f"---\nname: rule-{persona}\ndescription: Rules.\n---\nRule.",
            )
        completer = typing.completer()
        for persona, other in (("boss", "clerk"), ("clerk", "boss")):
            typing.persona = f"shop/{persona}"
            found = typing.texts("/rule", completer)
            assert f"/shop/rule-{persona}" in found
            assert f"/shop/rule-{other}" not in found


@pytest.mark.parametrize("odd", ["\x1b[31m", "a\nb", "\u200b", "\u202e", "a\tb", "\x7f", "q\"'", "\udc80"])
def test_names_that_hide_or_control_are_never_typed_or_drawn(typing: Typing, odd: str) -> None:
    (typing.world.workspace / "dir").mkdir()
    path = os.fsencode(str(typing.world.workspace / "dir")) + b"/x" + odd.encode("utf-8", "surrogateescape") + b"y.txt"
    Path(os.fsdecode(path)).write_text("")
    typing.world.write("dir/xz.txt", "")
    for text in ("@x", "@dir/", f"@{typing.world.workspace}/dir/", "/export dir/"):
        for one in typing.offered(text):
            shown = one.text + one.display_text + one.display_meta_text
            assert odd not in shown or odd == "q\"'"
            assert shown.isprintable()


@settings(max_examples=examples(40))
@given(
    names=st.lists(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), max_size=12), max_size=6)
)
def test_whatever_files_are_called_what_is_offered_means_one_of_them(tmp_path_factory: Any, names: list[str]) -> None:
    root: Path = tmp_path_factory.mktemp("files").resolve()
    made: set[str] = set()
    for name in names:
        if name not in ("", ".", "..") and len(name.encode()) < 200:
            (root / name).write_text("")
            made.add(os.fsdecode(os.fsencode(name)))
    completer = ChatCompleter(
        CompletionSources(
            library=_no_library,
            workspace=Workspace(root=str(root), home="/h", kitbag_home="/h/.kitbag"),
            directory=str(root),
        )
    )
    found = completer._mentions("", [], TEST_TIMEOUT)  # pyright: ignore[reportPrivateUsage]
    completer.close()
    for offer in found:
        (mention,) = find_mentions(f"x {offer.text} y")
        assert next(list_targets(mention)).path in made
        assert offer.text.isprintable() or not any(char in offer.text for char in "\n\t\x1b\x7f")


def _no_library() -> Registry:
    raise InvalidError("there is none")
