"""Skills roots as they lie on disks: layouts, teams, links, what is skipped, and what must not hang."""

import os
import subprocess
from pathlib import Path

import pytest

from conftest import World
from kitbag.errors import Diagnostic
from kitbag.library.discover import MAX_DEPTH, MAX_DIRECTORIES, RootScan, TeamFile, scan_root
from kitbag.library.item_files import find_agent_files, find_persona_files
from kitbag.library.scopes import ItemKind, Root, Scope
from kitbag.library.skills import COMMAND, FLAT
from support.cost import processor_limit


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text or f"---\nname: {path.parent.name}\ndescription: Does it.\n---\nBody.\n", encoding="utf-8")
    return path


def skills(root: Path, *folders: str) -> None:
    for folder in folders:
        write(root / folder / "SKILL.md")


def flat(description: str = "Does it.") -> str:
    return f"---\ndescription: {description}\n---\nBody.\n"


def scan(folder: Path, kind: ItemKind = "skills", scope: Scope = "user", teams: tuple[str, ...] = ()) -> RootScan:
    return scan_root(Root(str(folder), kind, scope, "kitbag", (1, 0)), teams=frozenset(teams))


def names(found: RootScan) -> list[str]:
    return [skill.full_name for skill in found.skills]


def codes(diagnostics: list[Diagnostic]) -> list[str]:
    return sorted(diagnostic.code for diagnostic in diagnostics)


# -- layouts -----------------------------------------------------------------------------------------


def test_an_empty_root_has_nothing_and_a_missing_one_says_so(tmp_path: Path) -> None:
    assert (names(scan(tmp_path)), scan(tmp_path).diagnostics) == ([], [])
    assert codes(scan(tmp_path / "none").diagnostics) == ["unreadable"]


def test_skills_come_sorted_by_name(tmp_path: Path) -> None:
    skills(tmp_path, "b", "A", "c")
    assert names(scan(tmp_path)) == ["A", "b", "c"]


def test_categories_are_searched_six_levels_deep(tmp_path: Path) -> None:
    skills(tmp_path, "a", "x/b", "x/y/c", "1/2/3/4/5/deepest", "1/2/3/4/5/6/too-deep", "/".join("abcdefghijkl"))
    found = scan(tmp_path)
    assert names(found) == ["a", "b", "c", "deepest"]
    assert codes(found.diagnostics) == ["too-deep"]
    assert str(MAX_DEPTH) in found.diagnostics[0].problem
    assert [skill.location for skill in found.skills][2] == "x/y/c/SKILL.md"


def test_what_lies_in_a_skill_is_its_own(tmp_path: Path) -> None:
    skills(tmp_path, "outer", "outer/templates/inner", "outer/examples/a/b")
    assert names(scan(tmp_path)) == ["outer"]


def test_of_two_equal_names_the_shallower_comes_first(tmp_path: Path) -> None:
    skills(tmp_path, "a/b/same", "z/same")
    assert [skill.location for skill in scan(tmp_path).skills] == ["z/same/SKILL.md", "a/b/same/SKILL.md"]


def test_a_root_that_is_itself_a_skill_is_one(tmp_path: Path) -> None:
    skills(tmp_path, "mine", "mine/inner")
    found = scan(tmp_path / "mine")
    assert [(skill.name, skill.location) for skill in found.skills] == [("mine", "SKILL.md")]


@pytest.mark.parametrize("spelling", ["skill.md", "Skill.md", "SKILL.MD"])
def test_another_spelling_is_a_skill_with_a_note(tmp_path: Path, spelling: str) -> None:
    write(tmp_path / "cat" / "a" / spelling)
    skills(tmp_path, "cat/a/inner", "cat/b")
    found = scan(tmp_path)
    assert names(found) == ["a", "b"]
    assert codes(found.diagnostics) == ["file-spelling"]


def test_the_right_spelling_counts_where_both_are(tmp_path: Path) -> None:
    write(tmp_path / "a" / "skill.md", flat("lower"))
    write(tmp_path / "a" / "SKILL.md", flat("upper"))
    found = scan(tmp_path)
    assert [(skill.description, skill.location) for skill in found.skills] == [("upper", "a/SKILL.md")]


def test_a_linked_file_of_another_spelling_is_read(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere.txt", flat())
    (tmp_path / "root" / "a").mkdir(parents=True)
    (tmp_path / "root" / "a" / "skill.md").symlink_to(tmp_path / "elsewhere.txt")
    assert names(scan(tmp_path / "root")) == ["a"]


def test_files_beside_the_skills_are_no_skills(tmp_path: Path) -> None:
    skills(tmp_path, "a")
    for file in ("README.md", "manifest.json", "notes.md", "x/guide.md", "x/SKILL.txt"):
        write(tmp_path / file, flat())
    found = scan(tmp_path)
    assert (names(found), found.diagnostics) == (["a"], [])


# -- what is skipped ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "folder", [".git", "node_modules", "__pycache__", "site-packages", "bower_components", ".hidden"]
)
def test_folders_of_tools_are_not_searched(tmp_path: Path, folder: str) -> None:
    skills(tmp_path, "a", f"{folder}/b", f"x/{folder}/c", f"{folder}/pkg/skills/d")
    assert names(scan(tmp_path)) == ["a"]


def test_a_hidden_folder_of_skills_is_searched(tmp_path: Path) -> None:
    skills(tmp_path, "a", ".curated/b", ".system/group/c", "x/.experimental/d", ".archive/e", ".own", ".more/.deeper/f")
    skills(tmp_path, ".venv/g", ".mypy_cache/h", ".github/skills/i", ".claude/skills/j", ".Trash-1000/k")
    (tmp_path / ".linked").symlink_to(tmp_path / ".archive")
    found = scan(tmp_path)
    assert names(found) == ["a", "b", "c", "d"]
    skipped = {os.path.relpath(note.file, tmp_path) for note in found.diagnostics if note.code == "hidden-folder"}
    assert skipped == {".archive", ".own", ".more/.deeper"}
    assert names(scan(tmp_path, "commands")) == []
    write(tmp_path / "agents/.curated/x.md")
    write(tmp_path / "agents/.git/y.md")
    agents = find_agent_files(Root(str(tmp_path / "agents"), "agents", "user", "kitbag", (1, 0)), [])
    assert [os.path.basename(path) for path in agents] == ["x.md"]


def test_a_virtual_environment_is_known_by_its_mark_not_by_its_name(tmp_path: Path) -> None:
    skills(tmp_path, "env/lib/a", "venv", "tools/venv/b")
    (tmp_path / "env" / "pyvenv.cfg").touch()
    assert names(scan(tmp_path)) == ["b", "venv"]


def repository(folder: Path, *rules: str) -> Path:
    (folder / ".git").mkdir(parents=True)
    (folder / ".gitignore").write_text("\n".join(rules) + "\n")
    return folder / ".kitbag" / "skills"


def test_a_folder_that_git_ignores_is_not_searched_and_that_is_said(tmp_path: Path) -> None:
    root = repository(tmp_path, "vendor/", "*.log")
    skills(root, "a", "vendor/b", "cat/vendor/c", "cat/d")
    found = scan(root, scope="project")
    assert names(found) == ["a", "d"]
    assert codes(found.diagnostics) == ["ignored-folder", "ignored-folder"]


def test_a_skill_that_git_ignores_is_still_its_owner_s(tmp_path: Path) -> None:
    root = repository(tmp_path, "mine/", "/.kitbag/skills/own")
    skills(root, "mine", "own", "cat/mine")
    assert names(scan(root, scope="project")) == ["mine", "mine", "own"]


def test_an_ignored_root_is_searched_all_the_same(tmp_path: Path) -> None:
    root = repository(tmp_path, ".kitbag/")
    skills(root, "a", "cat/b")
    assert names(scan(root, scope="project")) == ["a", "b"]


def test_outside_a_repository_and_outside_projects_nothing_is_ignored(tmp_path: Path) -> None:
    root = repository(tmp_path, "vendor/")
    skills(root, "vendor/b")
    assert names(scan(root, scope="user")) == ["b"]
    (tmp_path / ".git").rmdir()
    assert names(scan(root, scope="project")) == ["b"]


def test_the_closest_gitignore_has_the_last_word(tmp_path: Path) -> None:
    root = repository(tmp_path, "vendor/", "build/")
    skills(root, "vendor/a", "build/b")
    (root / ".gitignore").write_text("!vendor/\n")
    assert names(scan(root, scope="project")) == ["a"]


def test_a_project_reached_through_a_link_has_the_same_rules(tmp_path: Path) -> None:
    root = repository(tmp_path / "real", "vendor/")
    skills(root, "a", "vendor/b")
    (tmp_path / "way").symlink_to(tmp_path / "real")
    assert names(scan(tmp_path / "way" / ".kitbag" / "skills", scope="project")) == ["a"]


def test_a_gitignore_that_is_malformed_or_hostile_does_no_harm(tmp_path: Path) -> None:
    rules = ["!", "\\", "[z-a]", "[[x]", "a\\", "a*" * 40 + "b", "**/" * 30 + "x", "vendor/", *map(str, range(50_000))]
    root = repository(tmp_path, *rules)
    skills(root, "ok/a", "vendor/b", "a" * 250 + "/c")
    with processor_limit():
        assert names(scan(root, scope="project")) == ["a", "c"]


def test_a_gitignore_that_is_a_fifo_or_a_directory_does_not_block(tmp_path: Path) -> None:
    root = repository(tmp_path)
    skills(root, "cat/a")
    os.unlink(tmp_path / ".gitignore")
    os.mkfifo(tmp_path / ".gitignore")
    (root / ".gitignore").mkdir()
    assert names(scan(root, scope="project")) == ["a"]


def test_git_itself_agrees_on_what_is_ignored(tmp_path: Path) -> None:
    rules = ["vendor/", "/.kitbag/skills/top", "*.cache", "!keep.cache", "deep/**/out", "sp ace/", "# note", ""]
    root = repository(tmp_path, *rules)
    (tmp_path / ".git").rmdir()
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, capture_output=True)
    folders = [
        "vendor",
        "top",
        "x/top",
        "a.cache",
        "keep.cache",
        "deep/x/y/out",
        "deep/out",
        "sp ace",
        "fine",
        "x/vendor",
    ]
    skills(root, *(f"{folder}/{number}" for number, folder in enumerate(folders)))
    asked = "\n".join(str(root / folder) for folder in folders)
    done = subprocess.run(
        ["git", "check-ignore", "--stdin"], cwd=tmp_path, input=asked, capture_output=True, text=True, check=False
    )
    ignored = {folders.index(os.path.relpath(line, root)) for line in done.stdout.splitlines()}
    assert ignored
    assert names(scan(root, scope="project")) == [str(n) for n in range(len(folders)) if n not in ignored]


# -- links -------------------------------------------------------------------------------------------


def test_a_linked_skill_is_a_skill(tmp_path: Path) -> None:
    skills(tmp_path, "away/a")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a").symlink_to(tmp_path / "away" / "a")
    found = scan(tmp_path / "root")
    assert [(skill.name, skill.location) for skill in found.skills] == [("a", "a/SKILL.md")]


def test_one_skill_is_loaded_once_however_many_ways_lead_to_it(tmp_path: Path) -> None:
    skills(tmp_path, "root/cat/a", "away/b", "away/cat/c")
    root = tmp_path / "root"
    for link, target in (("z1", "root/cat/a"), ("z2", "root/cat"), ("b1", "away/b"), ("b2", "away/b"), ("all", "away"),
                         ("up", "."), ("c9", "away/cat/c")):  # fmt: skip
        (root / link).symlink_to(tmp_path / target)
    found = scan(root)
    assert len(found.skills) == 3
    assert [skill.location for skill in found.skills] == ["cat/a/SKILL.md", "all/b/SKILL.md", "all/cat/c/SKILL.md"]


def test_links_that_go_round_end(tmp_path: Path) -> None:
    skills(tmp_path, "a", "x/b")
    (tmp_path / "self").symlink_to(tmp_path)
    (tmp_path / "x" / "up").symlink_to("..")
    (tmp_path / "x" / "loop").symlink_to("loop")
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    found = scan(tmp_path)
    assert names(found) == ["a", "b"]
    assert codes(found.diagnostics) == ["broken-link"] * 3


def test_a_link_to_a_folder_of_skills_is_searched(tmp_path: Path) -> None:
    skills(tmp_path, "away/a", "away/cat/b")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "shared").symlink_to(tmp_path / "away")
    assert [skill.location for skill in scan(tmp_path / "root").skills] == [
        "shared/a/SKILL.md",
        "shared/cat/b/SKILL.md",
    ]


def test_broken_links_are_reported_and_nothing_else_suffers(tmp_path: Path) -> None:
    skills(tmp_path, "a")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "SKILL.md").symlink_to("nowhere.md")
    found = scan(tmp_path)
    assert names(found) == ["a"]
    assert sorted(os.path.relpath(d.file, tmp_path) for d in found.diagnostics) == ["b/SKILL.md", "gone"]
    assert found.is_stable is False


def test_a_root_that_is_a_link_is_followed(tmp_path: Path) -> None:
    skills(tmp_path, "real/a")
    (tmp_path / "root").symlink_to(tmp_path / "real")
    found = scan(tmp_path / "root")
    assert [skill.path for skill in found.skills] == [str(tmp_path / "root" / "a" / "SKILL.md")]


# -- files that are none -------------------------------------------------------------------------------


def test_what_is_no_file_does_not_block_and_the_rest_loads(tmp_path: Path) -> None:
    skills(tmp_path, "good")
    (tmp_path / "dir" / "SKILL.md").mkdir(parents=True)
    (tmp_path / "fifo").mkdir()
    os.mkfifo(tmp_path / "fifo" / "SKILL.md")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "SKILL.md").symlink_to("/dev/zero")
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / "SKILL.md").symlink_to("SKILL.md")
    write(tmp_path / "binary" / "SKILL.md").write_bytes(b"\x7fELF\0\0")
    os.mkfifo(tmp_path / "pipe")
    found = scan(tmp_path)
    assert names(found) == ["good"]
    assert codes(found.diagnostics) == ["binary", "not-a-file", "not-a-file", "not-a-file", "unreadable"]
    assert all(diagnostic.severity == "error" for diagnostic in found.diagnostics)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_is_closed_to_us_is_reported_with_a_remedy(tmp_path: Path) -> None:
    skills(tmp_path, "good", "shut", "closed/a")
    (tmp_path / "shut" / "SKILL.md").chmod(0)
    (tmp_path / "closed").chmod(0)
    try:
        found = scan(tmp_path)
    finally:
        (tmp_path / "closed").chmod(0o755)
    assert names(found) == ["good"]
    assert all("chmod" in diagnostic.fix for diagnostic in found.diagnostics)


def test_names_that_are_not_utf_8_are_read(tmp_path: Path) -> None:
    folder = os.path.join(os.fsencode(tmp_path), b"caf\xe9", b"sk\xffill")
    os.makedirs(folder)
    with open(os.path.join(folder, b"SKILL.md"), "w") as file:
        file.write(flat())
    found = scan(tmp_path)
    assert names(found) == ["skill"]
    assert codes(found.diagnostics) == ["hidden-characters"]
    assert os.path.exists(found.skills[0].path)


def test_folder_names_with_controls_give_clean_names(tmp_path: Path) -> None:
    skills(tmp_path, "a\nb", "x\x1b[31my/c")
    write(tmp_path / "te\u202eam" / "_team.md", "Hello.")
    write(tmp_path / "te\u202eam" / "core" / "d.md", flat())
    assert all(name.isprintable() for name in names(scan(tmp_path)))
    assert "team/d" in names(scan(tmp_path))


def test_there_is_a_limit_and_it_is_told(tmp_path: Path) -> None:
    skills(tmp_path, *(f"cat{n // 5}/skill{n}" for n in range(30)))
    found = scan_root(Root(str(tmp_path), "skills", "user", "kitbag", (1, 0)), max_directories=20)
    assert 0 < len(found.skills) <= 20
    assert codes(found.diagnostics) == ["too-many-directories"]
    assert scan_root(found.root, max_directories=36).diagnostics == []
    for n in range(30):
        write(tmp_path / f"cat{n}" / "command.md", flat())
    assert codes(scan_root(found.root._replace(kind="commands"), max_directories=20).diagnostics) == [
        "too-many-directories"
    ]
    assert MAX_DIRECTORIES == 50_000


# -- teams -------------------------------------------------------------------------------------------


def team_root(root: Path) -> Path:
    """Seed 002's layout."""
    skills(root, "ordinary", "shop/developer/with-folder")
    for file in ("core/git_basics.md", "shop/core/tickets.md", "shop/developer/review.md", "shop/support/logs.md"):
        write(root / file, flat())
    write(root / "core" / "README.md", flat())
    write(root / "shop" / "developer" / "notes.md", "# No head\n\nNotes.\n")
    write(root / "shop" / "_team.md", "We sell things.")
    write(root / "shop" / "_persona_developer.yaml", "name: developer\n")
    write(root / "shop" / "_persona_support.yml", "name: support\n")
    write(root / "shop" / "_subagents" / "sql.yaml", "name: sql\n")
    write(root / "shop" / "_subagents" / "code.md", flat())
    write(root / "shop" / "_subagents" / "README.txt", "x")
    write(root / "shop" / "support" / "_subagents" / "reporter.yaml", "name: reporter\n")
    return root


def test_the_team_layout_is_read(tmp_path: Path) -> None:
    found = scan(team_root(tmp_path))
    assert [(skill.full_name, skill.team, skill.group, skill.flags & FLAT > 0) for skill in found.skills] == [
        ("git_basics", "", "", True),
        ("ordinary", "", "", False),
        ("shop/logs", "shop", "support", True),
        ("shop/review", "shop", "developer", True),
        ("shop/tickets", "shop", "core", True),
        ("shop/with-folder", "shop", "developer", False),
    ]
    assert found.diagnostics == []


def test_what_belongs_to_a_team_is_found_beside_its_skills(tmp_path: Path) -> None:
    assert sorted(scan(team_root(tmp_path)).team_files) == [
        TeamFile("persona", "shop/_persona_developer.yaml", "shop", ""),
        TeamFile("persona", "shop/_persona_support.yml", "shop", ""),
        TeamFile("subagent", "shop/_subagents/code.md", "shop", ""),
        TeamFile("subagent", "shop/_subagents/sql.yaml", "shop", ""),
        TeamFile("subagent", "shop/support/_subagents/reporter.yaml", "shop", "support"),
        TeamFile("team", "shop/_team.md", "shop", ""),
    ]


def test_a_folder_is_a_team_when_a_persona_elsewhere_says_so(tmp_path: Path) -> None:
    write(tmp_path / "shop" / "developer" / "review.md", flat())
    assert names(scan(tmp_path)) == []
    assert names(scan(tmp_path, teams=("shop",))) == ["shop/review"]


def test_a_linked_group_of_a_team_is_that_group(tmp_path: Path) -> None:
    root = team_root(tmp_path / "root")
    write(tmp_path / "away" / "extra.md", flat())
    (root / "shop" / "ops").symlink_to(tmp_path / "away")
    extra = next(skill for skill in scan(root).skills if skill.name == "extra")
    assert (extra.full_name, extra.group) == ("shop/extra", "ops")


def test_a_category_without_marks_is_no_team(tmp_path: Path) -> None:
    skills(tmp_path, "writing/core/a")
    write(tmp_path / "writing" / "core" / "notes.md", flat())
    assert names(scan(tmp_path)) == ["a"]


# -- commands ----------------------------------------------------------------------------------------


def test_commands_are_called_by_their_folders_and_file(tmp_path: Path) -> None:
    write(tmp_path / "ship.md", "Just text, no head.\n")
    write(tmp_path / "gsd" / "new-project.md", flat())
    write(tmp_path / "gsd" / "deep" / "er.md", flat())
    write(tmp_path / "gsd" / "README.md", flat())
    write(tmp_path / "node_modules" / "x.md", flat())
    found = scan(tmp_path, "commands")
    assert names(found) == ["gsd:deep:er", "gsd:new-project", "ship"]
    assert all(skill.flags & COMMAND for skill in found.skills)


def test_a_linked_folder_of_commands_holds_commands_only(tmp_path: Path) -> None:
    write(tmp_path / "away" / "SKILL.md")
    write(tmp_path / "away" / "cut.md", flat())
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "rel").symlink_to(tmp_path / "away")
    assert names(scan(tmp_path / "root", "commands")) == ["rel:cut"]


# -- agents and personas: names of files only ------------------------------------------------------------


def agents(folder: Path, dialect: str = "claude") -> tuple[list[str], list[Diagnostic]]:
    notes: list[Diagnostic] = []
    found = find_agent_files(Root(str(folder), "agents", "user", dialect, (1, 0)), notes)  # pyright: ignore[reportArgumentType]
    return [os.path.relpath(path, folder) for path in found], notes


def test_agent_files_are_listed_shallow_first_without_opening_them(tmp_path: Path) -> None:
    for file in ("b.md", "a.yaml", "x/c.toml", "x/y/d.json", "_e.md", ".f.md", "g.txt", "node_modules/h.md", "s/i.md"):
        write(tmp_path / file, "x")
    write(tmp_path / "s" / "SKILL.md")
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.md")
    assert agents(tmp_path) == (["a.yaml", "b.md", "pipe.md", "x/c.toml", "x/y/d.json"], [])
    assert agents(tmp_path, "codex")[0] == ["x/c.toml"]


def test_the_search_for_agents_has_a_limit_that_is_told(tmp_path: Path) -> None:
    for n in range(10):
        write(tmp_path / f"d{n}" / "a.md", "x")
    notes: list[Diagnostic] = []
    root = Root(str(tmp_path), "agents", "user", "claude", (1, 0))
    assert len(find_agent_files(root, notes, max_directories=5)) == 4
    assert codes(notes) == ["too-many-directories"]
    assert len(find_agent_files(root, notes, max_directories=11)) == 10
    assert len(notes) == 1


def test_a_folder_of_personas_is_a_team(tmp_path: Path) -> None:
    for file in ("ann.yaml", "shop/bob.yml", "shop/.c.yaml", "notes.md", "shop/deep/d.yaml"):
        write(tmp_path / file, "name: x")
    root = Root(str(tmp_path), "personas", "user", "kitbag", (1, 0))
    assert find_persona_files(root, []) == [(str(tmp_path / "ann.yaml"), ""), (str(tmp_path / "shop/bob.yml"), "shop")]
    assert find_persona_files(root._replace(path=str(tmp_path / "none")), []) == []


def test_a_command_may_be_called_changelog(tmp_path: Path) -> None:
    write(tmp_path / "changelog.md", "---\ndescription: Updates it\n---\nDo.\n")
    scan = scan_root(Root(str(tmp_path), "commands", "project", "claude", (3, 0)))
    assert [skill.name for skill in scan.skills] == ["changelog"]


@pytest.mark.parametrize("place", ["", "plugin"])
def test_a_skill_at_the_top_of_a_folder_of_skills_hides_none_of_them(tmp_path: Path, place: str) -> None:
    folder = tmp_path / place / "skills"
    skills(folder, "a", "b", "c/d")
    write(folder / "SKILL.md")
    write(folder / "a" / "inner" / "SKILL.md")
    for root in (folder, folder.parent):
        found = scan(root)
        assert names(found) == ["a", "b", "d", "skills"]
        assert [(one.severity, one.code) for one in found.diagnostics] == [("info", "skill-not-in-folder")]


def test_a_skill_called_skills_is_one_skill(tmp_path: Path) -> None:
    write(tmp_path / "skills" / "skills" / "SKILL.md")
    write(tmp_path / "skills" / "skills" / "example" / "SKILL.md")
    assert names(scan(tmp_path / "skills")) == ["skills"]


def test_memory_files_in_a_folder_of_commands_are_no_commands(tmp_path: Path) -> None:
    for name in ("CLAUDE.md", "AGENTS.md", "agents.md"):
        write(tmp_path / name, "Text.\n")
    assert names(scan(tmp_path, "commands")) == ["agents"]


def test_a_command_called_skill_makes_its_folder_no_skill(tmp_path: Path) -> None:
    write(tmp_path / "commands" / "skill.md", flat())
    write(tmp_path / "other" / "skill.md", flat())
    assert names(scan(tmp_path)) == ["other"]
    assert names(scan(tmp_path / "commands", "commands")) == ["skill"]


def test_of_two_with_one_name_the_folder_of_that_name_wins(tmp_path: Path) -> None:
    for folder in ("docx-od", "docx", "a/docx"):
        write(tmp_path / folder / "SKILL.md", "---\nname: docx\ndescription: d\n---\n")
    scan = scan_root(Root(str(tmp_path), "skills", "project", "claude", (3, 0)))
    assert [skill.location for skill in scan.skills] == ["docx/SKILL.md", "a/docx/SKILL.md", "docx-od/SKILL.md"]


def test_a_root_can_be_one_file_of_its_folder(tmp_path: Path) -> None:
    for name in ("deploy.md", "other.md", "below/third.md"):
        write(tmp_path / name, "---\ndescription: d\n---\n")
    scan = scan_root(Root(str(tmp_path), "commands", "plugin", "claude", (5, 0), "kit", str(tmp_path), "deploy.md"))
    assert [skill.full_name for skill in scan.skills] == ["kit:deploy"]


def test_hidden_folders_of_agents_and_commands_that_are_not_searched_are_reported(world: World) -> None:
    text = "---\nname: {}\ndescription: d\n---\nDo it.\n"
    for path in ("agents/.archive/a.md", "agents/.team/b.md", "agents/.git/c.md", "commands/.more/d.md"):
        world.write(f".claude/{path}", text.format(Path(path).stem))
    notes = [note for note in world.json("doctor")["diagnostics"] if note["code"] == "hidden-folder"]
    folders = [os.path.relpath(note["file"], world.workspace / ".claude") for note in notes]
    assert sorted(folders) == ["agents/.archive", "commands/.more"]
    assert "b" in {agent["name"] for agent in world.json("agents", "list")}
