"""Memory files: found, ordered, imported and capped, and nothing read that should not be."""

import os
from pathlib import Path

import pytest

from conftest import World
from kitbag.library.scopes import Places
from kitbag.packing.memory_files import MemoryFiles, read_memory_files
from support.cost import processor_limit
from support.matrix import sample


def read(world: World, trusted: bool = True, **options: int) -> MemoryFiles:
    return read_memory_files(world.places(), trusted, **options)


def texts(world: World, trusted: bool = True) -> list[str]:
    return [memory.text for memory in read(world, trusted).files]


def problems(memories: MemoryFiles) -> list[str]:
    return [f"{os.path.basename(one.file)}:{one.line}: {one.problem}" for one in memories.problems]


def only(world: World, text: str, **files: str) -> str:
    world.write("AGENTS.md", text)
    for name, content in files.items():
        world.write(f"{name}.md", content)
    (memory,) = read(world).files
    return memory.text


def test_rules_in_too_many_directories_or_files_are_reported(world: World) -> None:
    for number in range(101):
        world.write(f".claude/rules/d{number:03}/r.txt", "")
    assert problems(read(world)) == ["rules:0: more than 100 directories; the rest are not read"]
    for number in range(101):
        world.write(f"~/.claude/rules/r{number:03}.md", f"Rule {number}.")
    assert "rules:0: more than 100 rules; the rest are not read" in problems(read(world))


# -- which files, in which order ---------------------------------------------------------------------


def test_the_person_s_come_first_then_the_project_s_from_its_root_down(world: World) -> None:
    names = [
        "~/.claude/CLAUDE.md", "~/.claude/rules/style.md", "~/.kitbag/AGENTS.md", "AGENTS.md", "CLAUDE.md",
        ".claude/CLAUDE.md", ".claude/rules/deep/tests.md", "GEMINI.md", ".github/copilot-instructions.md",
        ".kitbag/AGENTS.md", "CLAUDE.local.md", "app/AGENTS.md", "app/web/CLAUDE.md",
    ]  # fmt: skip
    for name in reversed(names):
        world.write(name, f"From {name}.\n")
    places = Places(
        str(world.workspace / "app/web"), str(world.home), str(world.home / ".kitbag"),
        tuple(str(world.workspace / part) for part in ("app/web", "app", "")),
    )  # fmt: skip
    memories = read_memory_files(places, trusted=True)
    assert [memory.text for memory in memories.files] == [f"From {name}." for name in names]
    assert [memory.scope for memory in memories.files] == ["user"] * 3 + ["project"] * 10
    assert memories.problems == ()


def test_a_project_s_are_read_only_when_it_is_trusted(world: World) -> None:
    world.write("~/.claude/CLAUDE.md", "Mine.")
    world.write("AGENTS.md", "Theirs. @more.md")
    world.write("more.md", "More of theirs.")
    os.mkfifo(world.workspace / "CLAUDE.md")
    memories = read(world, trusted=False)
    assert [memory.text for memory in memories.files] == ["Mine."]
    assert memories.problems == ()


def test_one_text_under_two_names_is_told_once(world: World) -> None:
    world.write("AGENTS.md", "Use tabs.\n")
    world.write("GEMINI.md", "Use tabs.\n\n")
    (world.workspace / "CLAUDE.md").symlink_to("AGENTS.md")
    assert texts(world) == ["Use tabs."]


def test_a_file_that_only_imports_another_adds_nothing_when_that_one_is_there(world: World) -> None:
    world.write("AGENTS.md", "Use tabs.")
    world.write("CLAUDE.md", "@AGENTS.md\n\nAnd be brief.")
    assert texts(world) == ["Use tabs.", "@AGENTS.md\n\nAnd be brief."]
    world.write("CLAUDE.md", "@AGENTS.md\n")
    assert texts(world) == ["Use tabs."]


def test_a_rule_that_is_for_some_files_is_not_for_every_conversation(world: World) -> None:
    world.write(".claude/rules/api.md", "---\npaths:\n  - src/api/**\n---\nOnly for the API.\n")
    world.write(".claude/rules/all.md", "---\ndescription: d\n---\nFor all.\n")
    world.write(".claude/rules/notes.txt", "Not a rule.")
    assert texts(world) == ["For all."]


def test_no_files_no_memory(world: World) -> None:
    world.write("AGENTS.md", " \n\n<!-- nothing -->\n")
    assert read(world) == MemoryFiles(files=(), problems=())


# -- imports -----------------------------------------------------------------------------------------


def test_imports_stand_in_the_place_of_their_names(world: World) -> None:
    world.write("docs/style.md", "Tabs.\n@more/deep.md\n")
    world.write("docs/more/deep.md", "Deep.\n")
    world.write("README", "The readme.")
    world.write("my file.txt", "Spaced.")
    world.write(
        "AGENTS.md", 'See @docs/style.md, @README and (@./my\\ file.txt).\n- @"my file.txt"\n**@package.json**\n'
    )
    world.write("package.json", "{}")
    (memory,) = read(world).files
    assert memory.text == 'See Tabs.\nDeep., The readme and (Spaced.).\n- @"my file.txt"\n**{}**'.replace(
        "The readme and", "The readme. and"
    )


@pytest.mark.parametrize(
    "text",
    [
        "`@more.md`",
        "``x ` @more.md``",
        "```\n@more.md\n```",
        "~~~md\n@more.md\n~~~",
        "- item\n\n      @more.md",
        "> ```\n> @more.md\n> ```",
        "    @more.md",
        "mail a@more.md",
        "\\@more.md",
        "a <!-- @more.md --> b",
        "@more",
        "@scope/package and @someone",
        "@more.md/x",
    ],
)
def test_code_addresses_and_names_are_no_imports(world: World, text: str) -> None:
    assert only(world, f"x\n\n{text}", more="MORE") == f"x\n\n{text}"


def test_imports_go_four_deep(world: World) -> None:
    for number in range(1, 7):
        world.write(f"n{number}.md", f"{number} @n{number + 1}.md")
    world.write("AGENTS.md", "0 @n1.md")
    memories = read(world)
    assert memories.files[0].text == "0 1 2 3 4 @n5.md"
    assert problems(memories) == ["n4.md:1: `@n5.md` is not imported: imports are nested more than 4 levels deep"]


def test_a_circle_ends(world: World) -> None:
    assert only(world, "A @one.md @AGENTS.md", one="one @two.md", two="two @one.md @AGENTS.md @two.md") == (
        "A one two @one.md @AGENTS.md @two.md @AGENTS.md"
    )
    assert read(world).problems == ()


def test_what_is_imported_is_looked_through_once_and_by_its_own_place(world: World) -> None:
    world.write("sub/a.md", "@b.md")
    world.write("sub/b.md", "inner")
    world.write("b.md", "outer")
    assert only(world, "@sub/a.md") == "inner"


def test_a_missing_file_is_told_and_left_as_text(world: World) -> None:
    assert only(world, "one\n@docs/gone.md") == "one\n@docs/gone.md"
    assert problems(read(world)) == ["AGENTS.md:2: `@docs/gone.md` does not exist; kept as text"]
    assert read(world).problems[0].severity == "info"


SECRET = "CANARY_SECRET"


@pytest.fixture
def hostile(world: World) -> World:
    world.write("secret.md", SECRET, base=world.outside)
    world.write("~/notes.md", SECRET)
    world.write(".env", SECRET)
    world.write("deploy/server.pem", SECRET)
    world.write(".git/config", SECRET)
    world.write(".git/notes.md", SECRET)
    (world.workspace / "link.md").symlink_to(world.outside / "secret.md")
    (world.workspace / "folder").symlink_to(world.outside)
    (world.workspace / "innocent.md").symlink_to(".env")
    (world.workspace / "self.md").symlink_to("self.md")
    return world


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret.md", "/etc/passwd", "~/notes.md", "link.md", "folder/secret.md", ".env", "innocent.md",
        "deploy/server.pem", ".git/config", ".git/notes.md", "/proc/self/environ", "./folder/../outside/secret.md",
        "deploy/../../outside/secret.md",
    ],
)  # fmt: skip
def test_an_import_brings_nothing_from_outside_and_no_secrets(hostile: World, path: str) -> None:
    hostile.write("AGENTS.md", f"one\n@{path}\n")
    memories = read(hostile)
    assert [memory.text for memory in memories.files] == [f"one\n@{path}"]
    if not path.startswith("/proc"):
        assert problems(memories)[0].startswith(f"AGENTS.md:2: `@{path}` is not imported: ")


def test_a_project_beside_another_of_a_longer_name_is_outside(world: World) -> None:
    (world.workspace.parent / "workspace-evil").mkdir()
    (world.workspace.parent / "workspace-evil" / "x.md").write_text(SECRET)
    assert only(world, "x @../workspace-evil/x.md") == "x @../workspace-evil/x.md"


def test_a_memory_file_that_is_a_link_out_is_not_used(hostile: World) -> None:
    (hostile.workspace / "CLAUDE.md").symlink_to(hostile.outside / "secret.md")
    (hostile.workspace / "AGENTS.md").symlink_to(".env")
    (hostile.workspace / "GEMINI.md").symlink_to("/dev/zero")
    memories = read(hostile)
    assert memories.files == ()
    assert [one.split(": ")[1] for one in problems(memories)] == ["ignored"] * 3


def test_a_person_may_keep_the_file_elsewhere_and_import_what_lies_beside_it(world: World) -> None:
    world.write("~/dotfiles/claude.md", "Mine. @beside.md @~/.claude/own.md @~/notes.md")
    world.write("~/dotfiles/beside.md", "Beside.")
    world.write("~/.claude/own.md", "Own.")
    world.write("~/notes.md", "Notes.")
    (world.home / ".claude" / "CLAUDE.md").symlink_to(world.home / "dotfiles" / "claude.md")
    assert texts(world) == ["Mine. Beside. Own. @~/notes.md"]


@pytest.mark.parametrize("kind", ["fifo", "directory", "binary", "loop", "unreadable", "socket"])
def test_what_is_no_text_is_told_and_never_waited_for(world: World, kind: str) -> None:
    world.write("CLAUDE.md", "Fine. @bad.md")
    for name in ("AGENTS.md", "bad.md"):
        path = world.workspace / name
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "directory":
            path.mkdir()
        elif kind == "binary":
            path.write_bytes(b"\x7fELF\0\0")
        elif kind == "loop":
            path.symlink_to(path)
        elif kind == "socket":
            import socket

            with socket.socket(socket.AF_UNIX) as listening:
                os.chdir(world.workspace)
                listening.bind(name)
        else:
            path.symlink_to("/proc/1/mem" if os.getuid() == 0 else "/root/x")
    memories = read(world)
    assert [memory.text for memory in memories.files] == ["Fine. @bad.md"]
    assert problems(memories)[0].startswith("AGENTS.md:0: ")


# -- what is in them ---------------------------------------------------------------------------------


def test_block_comments_are_left_out_but_not_in_code(world: World) -> None:
    text = (
        "<!-- for people -->\nOne.\n\n<!--\nmany\nlines @more.md\n-->\n\n```html\n<!-- kept -->\n```\n\n"
        "Two <!-- in a line --> kept.\n  <!-- gone --> rest\n\n    <!-- code, kept -->\n\n~~~\n<!-- kept\n~~~\n<!-- never closed"
    )
    assert only(world, text, more="MORE") == (
        "One.\n\n\n```html\n<!-- kept -->\n```\n\nTwo <!-- in a line --> kept.\n rest\n\n    <!-- code, kept -->\n\n"
        "~~~\n<!-- kept\n~~~\n<!-- never closed"
    )


def test_hidden_characters_are_shown_and_reported(world: World) -> None:
    world.write("AGENTS.md", "\ufeffBe kind.\nDo \U000e0041\U000e0042\u202ethis. 👩‍💻 ok\n@more.md")
    world.write("more.md", "zero\u200bwidth")
    memories = read(world)
    assert memories.files[0].text == "Be kind.\nDo [U+E0041][U+E0042][U+202E]this. 👩‍💻 ok\nzero[U+200B]width"
    assert problems(memories) == [
        "AGENTS.md:2: contains hidden characters, shown as [U+...]: U+E0041, U+E0042, U+202E",
        "more.md:1: contains hidden characters, shown as [U+...]: U+200B",
    ]


def test_other_encodings_and_line_ends_are_read(world: World) -> None:
    world.write("AGENTS.md", "Grüße\r\nzwei\r\n".encode("cp1252"))
    memories = read(world)
    assert memories.files[0].text == "Grüße\nzwei"
    assert "not UTF-8" in problems(memories)[0]


# -- limits ------------------------------------------------------------------------------------------


def test_short_files_stay_whole_and_long_ones_share_what_is_left(world: World) -> None:
    world.write("~/.claude/CLAUDE.md", "mine is long\n" * 5_000)
    world.write("AGENTS.md", "theirs is long\n" * 5_000)
    world.write("CLAUDE.md", "Short and specific.")
    memories = read(world)
    mine, theirs, short = memories.files
    assert short.text == "Short and specific."
    for memory in (mine, theirs):
        assert 19_000 < len(memory.text) < 20_200
        assert memory.text.rpartition("\n")[2].endswith("more characters omitted. Use Read to see the whole file.]")
        assert f"[{len(memory.omitted):,} more" in memory.text
    assert sum(len(memory.text) for memory in memories.files) < 40_300
    assert [one.code for one in memories.problems] == ["memory-cut"] * 2
    assert mine.text.rpartition("\n")[0] + "\n" + mine.omitted == ("mine is long\n" * 5_000).strip()


def test_a_limit_of_one_s_own_is_kept(world: World) -> None:
    world.write("AGENTS.md", "x" * 1_000)
    (memory,) = read(world, limit=100).files
    assert memory.text.startswith("x" * 100 + "\n[900 more characters")


@pytest.mark.parametrize(
    "text",
    sample(
        [
            "@a" * 300_000,
            "@a " * 300_000,
            "`" * 1_000_000,
            "` `` ``` " * 100_000,
            "<!-- " * 200_000,
            "x <!-- " * 140_000,
            "<!-- -->\n" * 100_000 + "@more.md\n" * 400,
            "```\n```\n" * 100_000,
            "".join("`" * (3 + number % 1_000) + "\n" for number in range(2_000)),
            "@\\ " * 300_000,
            "(" * 500_000 + "@x",
            "y" * 5_000_000,
        ],
        5,
    ),
    ids=range(12),
)
def test_no_file_costs_more_than_its_length_asks_for(world: World, text: str) -> None:
    world.write("AGENTS.md", text)
    with processor_limit():
        memories = read(world)
    assert sum(len(memory.text) for memory in memories.files) < 41_000


def test_many_imports_end_somewhere(world: World) -> None:
    for number in range(300):
        world.write(f"n{number}.md", f"number {number}\n" + f"@n{(number * 7) % 300}.md\n" * 3)
    world.write("AGENTS.md", "".join(f"@n{number}.md\n" for number in range(300)))
    memories = read(world, limit=1_000_000)
    assert 90 < memories.files[0].text.count("number ") <= 100
    assert any("too many files" in one for one in problems(memories))


def test_large_imports_end_somewhere(world: World) -> None:
    for number in range(20):
        world.write(f"n{number}.md", "word " * 180_000)
    world.write("AGENTS.md", "".join(f"@n{number}.md\n" for number in range(20)))
    assert any("too large" in one for one in problems(read(world)))


def test_the_same_files_give_the_same_memory(world: World, tmp_path: Path) -> None:
    world.write("AGENTS.md", "A @b.md @c.md")
    world.write("b.md", "b @c.md")
    world.write("c.md", "c")
    assert read(world) == read(world)
