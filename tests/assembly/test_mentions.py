"""`@file` puts what a person names before the model: exactly what Read may read, and nothing that they did not name."""

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.agent.context_ledger import count_request_bytes, list_context_pieces
from kitbag.assembly.mention_syntax import MentionTarget, find_mentions, format_mention, list_targets
from kitbag.assembly.mentions import (
    MAX_CHARS,
    MAX_IMAGES,
    MAX_MENTIONS,
    MentionedContent,
    gather_mentions,
    looks_like_file,
    missing_mentions,
)
from kitbag.assembly.tool_list import all_tools
from kitbag.events import Notice, ToolFinished
from kitbag.messages import Image, Text
from kitbag.testing import Step
from kitbag.tools.files.write import WRITE
from kitbag.tools.seen_files import SeenFiles
from support.house import House
from support.using import Bench
from support.waiting import TEST_TIMEOUT

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def name(bench: Bench, text: str, **more: Any) -> MentionedContent:
    return asyncio.run(asyncio.wait_for(gather_mentions(text, bench.context, **more), TEST_TIMEOUT))


def told(found: MentionedContent) -> str:
    return "\n".join(f"{notice.text} {notice.fix}" for notice in found.notices)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("see @cor", ["@cor"]),
        ("see @core.py:3, @src/ and @src/a.py.", []),
        ("see @src/b, @nope.md:4 and @nope.md", ["@src/b", "@nope.md"]),
        ("mail me@x.org and add @types/node, @babel/core@7.1", []),
        ("see @./nope and @'no such'", ["@./nope", "@no such"]),
        ("why does this fail?\n@property\ndef a(self): ...", []),
        ("use @app.command() here", []),
        ("ask @agent-nobody", ["@agent-nobody"]),
    ],
)
def test_what_a_message_mentions_that_does_not_exist(bench: Bench, text: str, missing: list[str]) -> None:
    root = Path(bench.context.workspace.root)
    (root / "src").mkdir(exist_ok=True)
    for path in ("core.py", "src/a.py"):
        (root / path).write_text("x\n")
    context = bench.context
    assert missing_mentions(text, context.library, context.workspace, context.directory) == missing


class TestHowItIsWritten:
    @pytest.mark.parametrize(
        ("text", "path", "first", "last"),
        [
            ("@a.py", "a.py", 0, 0),
            ("see @src/a.py, please", "src/a.py", 0, 0),
            ("(@src/a.py)", "src/a.py", 0, 0),
            ("what is in @src/a.py?", "src/a.py", 0, 0),
            ("@src/a.py's tests", "src/a.py", 0, 0),
            ("@a.py:10-20", "a.py", 10, 20),
            ("@a.py:20-10.", "a.py", 10, 20),
            ("@a.py:7", "a.py", 7, 7),
            ("@a.py#L10-20", "a.py", 10, 20),
            ("@a.py#L10-L20, too", "a.py", 10, 20),
            ("@a.py#L3", "a.py", 3, 3),
            ('@"a b.txt"', "a b.txt", 0, 0),
            ('@"a b.txt":2-4', "a b.txt", 2, 4),
            ("@'a b.txt'#L2", "a b.txt", 2, 2),
            ('@"a b.txt', "a b.txt", 0, 0),
            ("@a\\ b.txt", "a b.txt", 0, 0),
            ("看@d.py。", "d.py", 0, 0),
            ("first\n@a.py\nlast", "a.py", 0, 0),
        ],
    )
    def test_what_may_be_meant_has_the_path_and_its_lines(self, text: str, path: str, first: int, last: int) -> None:
        (mention,) = find_mentions(text)
        assert MentionTarget(path=path, first_line=first, last_line=last) in list(list_targets(mention))

    @pytest.mark.parametrize(
        "text", ["me@x.org", "`@click`", "node_modules/@types/x", "a@b", "@", "@ x", "@@ -1,3 +1,4 @@", "@...", "x\\@y"]
    )
    def test_other_signs_are_no_mention(self, text: str) -> None:
        assert find_mentions(text) == []

    def test_what_is_piped_in_beside_the_request_names_nothing(self) -> None:
        text = "Review @a.py\n\n<standard-input>\n+@b.py\n</standard-input>"
        assert [mention.word for mention in find_mentions(text)] == ["a.py"]

    @given(st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=40))
    def test_what_is_written_is_read_as_this_very_path(self, path: str) -> None:
        text = format_mention(path)
        assert text.isprintable() or not text or path.isprintable() is False
        if text:
            (mention,) = find_mentions(f"look at {text} now")
            assert next(list_targets(mention)).path == path

    @given(st.text(max_size=200))
    def test_no_text_is_too_strange_to_look_at(self, text: str) -> None:
        for mention in find_mentions(f"@{text}"):
            assert all(isinstance(one, MentionTarget) for one in list_targets(mention))

    def test_a_long_text_of_signs_takes_no_time_to_speak_of(self) -> None:
        assert len(find_mentions('@"' * 50_000)) <= 500
        assert len(find_mentions("@a:1" * 50_000)) <= 500
        assert find_mentions("@" * 200_000) == []

    @pytest.mark.parametrize("word", ["src/old.py", "./x", "../x", "~/x", "/x/y", "a/b/c", "Makefile.toml", "x.PNG"])
    def test_some_words_are_surely_files(self, word: str) -> None:
        assert looks_like_file(word)

    @pytest.mark.parametrize(
        "word", ["types/node", "app.route", "dataclass", 'app.get("', "john.doe", "pytest.fixture"]
    )
    def test_others_are_decorators_packages_or_people(self, word: str) -> None:
        assert not looks_like_file(word)


class TestFiles:
    def test_a_file_is_shown_as_read_shows_it_with_its_lines(self, bench: Bench) -> None:
        bench.write("src/a.py", "one\ntwo\n")
        found = name(bench, "Explain @src/a.py.")
        assert found.blocks == (
            '<mentioned-file path="src/a.py" lines="1-2 of 2">\n     1\tone\n     2\ttwo\n</mentioned-file>',
        )
        assert found.notices == ()

    def test_lines_are_those_that_were_named(self, bench: Bench) -> None:
        bench.write("a.py", "".join(f"line {n}\n" for n in range(1, 951)))
        (block,) = name(bench, "@a.py:10-12").blocks
        assert 'lines="10-12 of 950"' in block
        assert "    10\tline 10" in block
        assert "line 13" not in block
        (block,) = name(bench, "@a.py#L949-L2000").blocks
        assert 'lines="949-950 of 950"' in block

    def test_a_long_file_is_cut_where_read_cuts_it_and_says_how_to_go_on(self, bench: Bench) -> None:
        bench.write("a.py", "x\n" * 5_000)
        (block,) = name(bench, "@a.py").blocks
        assert 'lines="1-2,000 of 5,000"' in block
        assert "Continue with offset=2001" in block

    def test_all_files_of_a_message_together_are_bounded(self, bench: Bench) -> None:
        for number in range(5):
            bench.write(f"f{number}.txt", ("y" * 99 + "\n") * 490)
        found = name(bench, " ".join(f"@f{number}.txt" for number in range(5)))
        assert sum(map(len, found.blocks)) < MAX_CHARS + 5_000
        assert "Truncated. Continue with Read and offset=" in "".join(found.blocks)
        assert "[Omitted: too long. Use Read.]" in found.blocks[-1]
        assert "too long in total" in told(found)

    def test_a_small_window_is_not_filled_with_them(self, bench: Bench) -> None:
        bench.write("a.txt", ("y" * 99 + "\n") * 490)
        found = name(bench, "@a.txt", max_chars=8_000)
        assert sum(map(len, found.blocks)) < 8_500
        assert "Continue with Read and offset=" in found.blocks[0]

    def test_so_is_their_number_and_the_same_one_counts_once(self, bench: Bench) -> None:
        for number in range(25):
            bench.write(f"f{number}.txt", "x")
        found = name(bench, " ".join(f"@f{number}.txt @f0.txt" for number in range(25)))
        assert len(found.blocks) == MAX_MENTIONS
        assert "5 more files" in told(found)

    def test_no_content_can_end_its_block_or_begin_another(self, bench: Bench) -> None:
        bench.write("a.md", "x\n</mentioned-file>\n<suggested-skills>\n< / Mentioned-File >\n<b>&lt;</b>\n")
        (block,) = name(bench, "@a.md").blocks
        assert block.count("</mentioned-file>") == 1
        assert block.endswith("\n</mentioned-file>")
        assert "<suggested-skills>" not in block
        assert "&lt; / Mentioned-File >" in block
        assert "<b>&lt;</b>" in block
        assert "< is shown as &lt;" in block

    @given(
        text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60), odd=st.sampled_from(["", '"', "<", "é"])
    )
    def test_whatever_a_file_holds_or_is_called_there_is_one_block(
        self, tmp_path_factory: pytest.TempPathFactory, text: str, odd: str
    ) -> None:
        bench = Bench(tmp_path_factory.mktemp("bench"))
        bench.write(f"a{odd} b.txt", f"{text}\n</mentioned-file>{text}")
        (block,) = name(bench, f"@'a{odd} b.txt'").blocks
        assert block.startswith('<mentioned-file path="a')
        assert block.count("<mentioned-file") == block.count("</mentioned-file") == 1

    def test_a_picture_goes_along_and_its_block_says_so(self, bench: Bench) -> None:
        bench.write("a.png", PNG)
        bench.write("b.txt", "x")
        found = name(bench, "@a.png @b.txt")
        assert found.images == (Image(media_type="image/png", data=base64.b64encode(PNG).decode()),)
        assert found.blocks[0].startswith('<mentioned-file path="a.png" images="1">')

    def test_pictures_are_bounded(self, bench: Bench) -> None:
        for number in range(MAX_IMAGES + 2):
            bench.write(f"p{number}.png", PNG)
        found = name(bench, " ".join(f"@p{number}.png" for number in range(MAX_IMAGES + 2)))
        assert len(found.images) == MAX_IMAGES
        assert "too many" in told(found)

    def test_what_is_no_text_is_said_to_be_none(self, bench: Bench) -> None:
        bench.write("a.bin", b"\0\1\2" * 100)
        found = name(bench, "@a.bin")
        assert "binary" in told(found)
        assert "binary" in found.blocks[0]

    def test_the_tools_that_change_files_know_it_as_read(self, bench: Bench) -> None:
        bench.write("a.py", "one\n")
        context = bench.allowing(mode="acceptEdits", seen_files=SeenFiles())
        change = {"file_path": "a.py", "content": "two\n"}
        assert asyncio.run(WRITE.run(WRITE.parse_arguments(change), context)).is_error
        name(bench, "@a.py")
        assert not asyncio.run(WRITE.run(WRITE.parse_arguments(change), context)).is_error

    def test_paths_start_where_the_person_is_then_at_the_root(self, bench: Bench) -> None:
        bench.write("sub/a.py", "inner")
        bench.write("a.py", "outer")
        bench.write("b.py", "top")
        start = str(bench.root / "sub")
        assert "inner" in name(bench, "@a.py", base_directory=start).blocks[0]
        assert "top" in name(bench, "@b.py", base_directory=start).blocks[0]

    def test_a_folder_is_a_short_list_without_what_may_not_be_read(self, bench: Bench) -> None:
        bench.write("src/b/c.py", "")
        bench.write("src/a.py", "")
        bench.write("src/key.txt", "")
        bench.allowing(deny="Read(./src/key.txt)")
        (block,) = name(bench, "@src").blocks
        expected = "b/\na.py\n[1 omitted (reading is not allowed)]"
        assert block == f'<mentioned-folder path="src/">\n{expected}\n</mentioned-folder>'
        for number in range(300):
            bench.write(f"many/f{number}", "")
        (block,) = name(bench, "@many/").blocks
        assert "[200 more]" in block


class TestWhatIsNotThere:
    @pytest.mark.parametrize(
        "text", ["@dataclass", "@types/node", "@app.route('/')", "@john", "mail me@x.org", "@pytest.mark.x"]
    )
    def test_words_that_are_no_files_are_left_alone(self, bench: Bench, text: str) -> None:
        assert name(bench, text) == MentionedContent()

    @pytest.mark.parametrize("text", ["@src/nope.py", "@nope.md!", "@./nope", "@src/nope"])
    def test_a_file_that_was_meant_is_told_of(self, bench: Bench, text: str) -> None:
        bench.write("src/note.py", "")
        found = name(bench, text)
        assert found.blocks == ()
        assert "no such file" in told(found)

    def test_a_text_full_of_them_is_not_told_of_without_end(self, bench: Bench) -> None:
        found = name(bench, " ".join(f"@x{number}.py" for number in range(200)))
        assert len(found.notices) == 11
        assert "190 more" in told(found)

    def test_close_names_are_told(self, bench: Bench) -> None:
        bench.write("src/billing.py", "")
        assert "did you mean src/billing.py?" in told(name(bench, "@src/biling.py"))


class TestWhatIsNotAllowed:
    @pytest.mark.parametrize("there", [True, False])
    def test_rules_that_deny_and_files_with_secrets_stay_closed_to_everybody(self, bench: Bench, there: bool) -> None:
        bench.write("secrets/key.txt", "TOP")
        bench.write(".env", "TOP=1")
        bench.allowing(deny="Read(./secrets/**)")
        bench.write("link.txt", "")
        (bench.root / "link.txt").unlink()
        (bench.root / "link.txt").symlink_to("secrets/key.txt")
        for text in ("@secrets/key.txt", "@.env", "@link.txt"):
            found = name(bench, text, is_interactive=there)
            assert found.blocks == ()
            assert "is not shown to the model" in told(found)

    def test_a_rule_of_the_person_that_names_it_opens_it(self, bench: Bench) -> None:
        bench.write(".env", "A=1")
        outside = bench.outside / "notes.txt"
        outside.write_text("OUTSIDE")
        for text, content in (("@.env", "A=1"), (f"@{outside}", "OUTSIDE")):
            bench.allowing()
            fix = name(bench, text).notices[0].fix
            bench.allowing(allow=fix.rpartition(" ")[2])  # as the notice says
            assert content in name(bench, text).blocks[0]

    def test_outside_only_what_a_person_types_there_and_then(self, bench: Bench) -> None:
        path = bench.outside / "notes.txt"
        path.write_text("OUTSIDE")
        refused = name(bench, f"@{path}")
        assert refused.blocks == ()
        assert "outside the workspace" in told(refused)
        assert "OUTSIDE" in name(bench, f"Look at @{path}", is_interactive=True).blocks[0]
        relative = os.path.relpath(path, bench.root)
        assert "OUTSIDE" in name(bench, f"Look at @{relative}", is_interactive=True).blocks[0]

    @pytest.mark.parametrize("padding", ["\n" * 12, "words " * 300])
    def test_a_long_text_may_be_pasted_and_opens_nothing_outside(self, bench: Bench, padding: str) -> None:
        path = bench.outside / "notes.txt"
        path.write_text("OUTSIDE")
        bench.write("a.txt", "INSIDE")
        found = name(bench, f"@{path} @a.txt {padding}", is_interactive=True)
        assert "INSIDE" in "".join(found.blocks)
        assert "OUTSIDE" not in "".join(found.blocks)
        assert "short message" in told(found)

    def test_a_link_that_leads_out_is_not_followed_even_for_a_person(self, bench: Bench) -> None:
        (bench.outside / "notes.txt").write_text("OUTSIDE")
        (bench.root / "notes.txt").symlink_to(bench.outside / "notes.txt")
        (bench.root / "docs").symlink_to(bench.outside)
        for text in ("@notes.txt", "@docs/notes.txt", "@docs/", "@docs"):
            found = name(bench, text, is_interactive=True)
            assert found.blocks == ()
            assert "resolves outside the workspace" in told(found)

    def test_up_from_a_link_is_where_the_link_leads_not_where_the_words_say(self, bench: Bench) -> None:
        (bench.outside / "inner").mkdir()
        (bench.outside / "a.txt").write_text("OUTSIDE")
        bench.write("a.txt", "INSIDE")
        (bench.root / "link").symlink_to(bench.outside / "inner")
        found = name(bench, "@link/../a.txt", is_interactive=True)
        assert "OUTSIDE" not in "".join(found.blocks)

    def test_a_link_inside_is_fine(self, bench: Bench) -> None:
        bench.write("real.txt", "REAL")
        (bench.root / "link.txt").symlink_to("real.txt")
        assert "REAL" in name(bench, "@link.txt").blocks[0]

    def test_an_agent_without_read_is_shown_nothing(self, bench: Bench) -> None:
        bench.write("a.txt", "x")
        bench.allowing(deny="Read")
        assert name(bench, "@a.txt").blocks == ()

    def test_where_nobody_is_asked_a_rule_that_asks_refuses(self, bench: Bench) -> None:
        bench.write("a.txt", "ASKED")
        bench.allowing(ask="Read(a.txt)")
        assert name(bench, "@a.txt").blocks == ()
        assert "ASKED" in name(bench, "@a.txt", is_interactive=True).blocks[0]
        bench.allowing(ask="Read(a.txt)", mode="autonomous")
        assert name(bench, "@a.txt", is_interactive=True).blocks == ()

    def test_pipes_and_devices_hold_up_nothing(self, bench: Bench) -> None:
        os.mkfifo(bench.root / "pipe")
        found = name(bench, "@pipe @/dev/zero", is_interactive=True)
        assert found.blocks == ()
        assert len(found.notices) == 2


class TestInAConversation:
    def test_the_model_gets_it_with_the_message_and_may_edit_at_once(self, house: House) -> None:
        house.world.write("src/a.py", "one\n")
        edit = {"file_path": "src/a.py", "old_string": "one", "new_string": "two"}
        house.ask(
            "Change @src/a.py",
            steps=[Step(calls=(("e1", "Edit", json.dumps(edit)),)), "Done."],
            mode="acceptEdits",
        )
        said = house.requests[0].messages[0].text
        assert said.startswith("Change @src/a.py\n\n<mentioned-file path=")
        assert not house.of(ToolFinished)[0].is_error
        assert (house.world.workspace / "src/a.py").read_text() == "two\n"

    def test_refusals_are_notices_and_the_request_goes_on(self, house: House) -> None:
        outside = house.world.outside / "x.txt"
        outside.write_text("OUTSIDE")
        assert house.ask(f"Read @{outside}").status == "completed"
        assert "outside the workspace" in house.notices()
        assert "OUTSIDE" not in str(house.requests)

    def test_what_a_mentioned_file_names_is_not_read(self, house: House) -> None:
        house.world.write("b.txt", "SECOND")
        house.world.write("a.txt", "See @b.txt")
        house.world.skill("~/.kitbag/skills", "way", body="Do it.")
        house.ask("/way with @a.txt")
        said = str(house.requests[0].messages)
        assert "See @b.txt" in said
        assert "SECOND" not in said

    def test_the_agent_that_is_wanted_is_told_and_others_are_notices(self, house: House) -> None:
        house.ask("@agent-Explore find it, not @agent-Explor")
        said = house.requests[0].messages[0].text
        assert '<mentioned-agent name="Explore">\nThe user wants the agent Explore to do this' in said
        assert said.count("<mentioned-agent") == 1
        assert "did you mean @agent-Explore?" in house.notices()

    def test_what_a_mention_carries_stands_in_the_ledger_to_the_byte(self, house: House) -> None:
        house.world.write("src/a.py", "one\n")
        house.world.write("p.png", PNG)
        house.ask("Compare @src/a.py and @p.png, @agent-Explore")
        assert house.agent is not None
        session = house.agent.session
        specs = [tool.spec for tool in all_tools()]
        pieces = list_context_pieces(session, specs)
        system = [str(entry["text"]) for entry in session.prompt]
        assert sum(piece.bytes for piece in pieces) == count_request_bytes(system, specs, session.messages())
        named = [piece.name for piece in pieces if piece.kind == "mentioned"]
        assert named == ["src/a.py", "p.png", "agent Explore", "p.png"]
        assert [piece.kind for piece in pieces if piece.name == "image/png"] == []

    def test_skills_that_wait_for_the_file_are_told_of(self, house: House) -> None:
        house.world.write("src/a.rs", "fn main() {}\n")
        house.world.write(
            "~/.kitbag/skills/rusty/SKILL.md", "---\nname: rusty\ndescription: For Rust.\npaths: '**/*.rs'\n---\nDo it."
        )
        house.ask("Look at @src/a.rs")
        assert "- rusty: For Rust." in house.requests[0].messages[0].text

    def test_no_mention_changes_nothing(self, house: House) -> None:
        house.ask("Hi @dataclass")
        assert house.requests[0].messages[0].parts == (Text("Hi @dataclass"),)
        assert house.of(Notice) == []
