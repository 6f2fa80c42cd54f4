"""Skills with `paths`: which files they are for, and that each is told of once."""

from pathlib import Path
from typing import Any

import pytest

from conftest import World
from kitbag.library.path_patterns import matches_path, parse_patterns, split_globs
from kitbag.packing.session_skills import SessionSkills
from kitbag.tools.path_skills import PathSkills
from support.cost import processor_limit


@pytest.mark.parametrize(
    ("written", "globs"),
    [
        ("src/**/*.ts, lib/*.js", ["src/**/*.ts", "lib/*.js"]),
        ("src/**/*.{ts,tsx}, lib/*.js", ["src/**/*.{ts,tsx}", "lib/*.js"]),
        ("[src/**/*.{ts,tsx}, 'a b/*.md']", ["src/**/*.{ts,tsx}", "a b/*.md"]),
        (["*.sql", "db/{a,b}/**"], ["*.sql", "db/{a,b}/**"]),
        ("- a/**\n- b/**", ["a/**", "b/**"]),
        ("my docs/*.md", ["my docs/*.md"]),
        ("{a,b", ["{a,b"]),
        ("", []),
        (None, []),
        ({"a": "b"}, ["a: b"]),
    ],
)
def test_patterns_are_cut_at_commas_but_not_inside_braces(written: Any, globs: list[str]) -> None:
    assert split_globs(written) == globs


@pytest.mark.parametrize(
    ("globs", "path", "matches"),
    [
        ("*.sql", "a.sql", True),
        ("*.sql", "db/deep/a.sql", True),
        ("/*.sql", "db/a.sql", False),
        ("./*.sql", "a.sql", True),
        ("src/**", "src/a/b.c", True),
        ("src/**", "lib/src/a.c", False),
        ("src/**/*.{ts,tsx}", "src/a.tsx", True),
        ("src/**/*.{ts,tsx}", "src/a/b/c.ts", True),
        ("src/**/*.{ts,tsx}", "src/a.js", False),
        ("**/test_*.py", "test_a.py", True),
        ("**/test_*.py", "a/b/test_a.py", True),
        ("docs", "docs/a.md", True),
        ("docs/", "docs/a/b.md", True),
        ("docs/", "docs", False),
        ("docs/", "src/docs/a.md", True),
        (".github/**", ".github/workflows/ci.yml", True),
        ("*.md, !README.md", "a.md", True),
        ("*.md, !README.md", "README.md", False),
        ("src/[ab]?.c", "src/a1.c", True),
        ("src/[ab]?.c", "src/c1.c", False),
        ("SRC/*.c", "src/a.c", False),
        ("../x/**", "x/a", False),
        ("**", "any/thing", True),
        ("{a,b}/{c,d}.py", "b/c.py", True),
        ("[z-a]", "z", False),
        ("!*.md", "a.md", False),
    ],
)
def test_a_pattern_is_read_as_in_gitignore(globs: str, path: str, matches: bool) -> None:
    assert matches_path(tuple(parse_patterns(split_globs(globs))), path) is matches


def test_a_hostile_pattern_costs_little() -> None:
    hostile = ["*a" * 200 + "b", "**/" * 200 + "x", "{a,b}" * 20, "[" * 500, "\\" * 501, "(" * 400 + "+" * 400]
    with processor_limit():
        assert not matches_path(tuple(parse_patterns(hostile)), "a" * 250 + "/" + "a" * 250)


@pytest.fixture
def skills(world: World) -> SessionSkills:
    world.skill(".kitbag/skills", "sql-style", "How SQL is written.", paths="'*.sql, db/**'")
    world.skill("~/.kitbag/skills", "docs-style", "How docs are written.", paths="docs/")
    world.skill("~/.kitbag/skills", "plain", "For anything.")
    world.skill("~/.kitbag/skills", "hidden", "Not for models.", paths="'*.sql'", disable_model_invocation="true")
    world.write("~/.claude/commands/migrate.md", "---\ndescription: Migrates.\npaths: '*.sql'\n---\nMigrate.\n")
    return SessionSkills(world.registry())


def told(skills: PathSkills, world: World, path: str, tool: str = "Read") -> str:
    return skills.notice_for(tool, {"file_path": path}, str(world.workspace))


def test_a_skill_is_told_of_with_the_first_file_that_it_is_for(world: World, skills: SessionSkills) -> None:
    made = PathSkills(skills)
    assert told(made, world, "src/a.py") == ""
    assert told(made, world, "src/a.sql").splitlines() == [
        "<suggested-skills>",
        "Matches for this file by `paths`:",
        "- sql-style: How SQL is written.",
        "</suggested-skills>",
    ]
    assert told(made, world, "src/b.sql") == ""
    assert "docs-style" in told(made, world, str(world.workspace / "docs/x/y.md"), "Write")


@pytest.mark.parametrize("path", ["", "a\0.sql", "../outside/a.sql", "/a.sql", "~nobody/a.sql", "."])
def test_what_is_no_file_of_the_project_matches_nothing(world: World, skills: SessionSkills, path: str) -> None:
    assert told(PathSkills(skills), world, path) == ""


@pytest.mark.parametrize("tool", ["Grep", "Glob", "Bash", "Skill"])
def test_only_tools_that_work_with_one_file_count(world: World, skills: SessionSkills, tool: str) -> None:
    assert told(PathSkills(skills), world, "a.sql", tool) == ""


def test_a_link_counts_by_both_its_names(world: World, skills: SessionSkills) -> None:
    world.write("db/real.txt", "")
    (world.workspace / "link.txt").symlink_to("db/real.txt")
    assert "sql-style" in told(PathSkills(skills), world, "link.txt")


def test_a_loaded_skill_is_not_told_of(world: World, skills: SessionSkills) -> None:
    skills.load("sql-style")
    assert told(PathSkills(skills), world, "a.sql") == ""


def test_what_the_conversation_holds_is_not_told_again_after_resuming(world: World, skills: SessionSkills) -> None:
    before = told(PathSkills(skills), world, "a.sql")
    assert told(PathSkills(skills, lambda: ["1\tselect\n" + before]), world, "a.sql") == ""
    assert "docs-style" in told(PathSkills(skills, lambda: [before]), world, "docs/a.md")


def test_a_skill_that_comes_later_is_seen(world: World, skills: SessionSkills) -> None:
    made = PathSkills(skills)
    assert told(made, world, "a.css") == ""
    world.skill(".kitbag/skills", "css", "How CSS is written.", paths="'*.css'")
    skills.library.refresh()
    made.refresh()
    assert "- css: How CSS is written." in told(made, world, "a.css")


def test_patterns_of_a_nested_folder_count_from_there_and_from_the_root(world: World) -> None:
    from kitbag.library.registry import Registry

    web = Path(world.workspace / "packages/web")
    world.skill("packages/web/.claude/skills", "web", "How it is done.", paths="src/*.ts")
    places = world.places(web)._replace(project_dirs=(str(web), str(world.workspace)))
    for path in ("packages/web/src/a.ts", "src/a.ts"):
        made = PathSkills(SessionSkills(Registry(places)))
        assert "- web:" in told(made, world, path)
    assert told(PathSkills(SessionSkills(Registry(places))), world, "packages/api/src/a.ts") == ""
