"""What `kitbag skills validate` says beyond the file's own syntax."""

from conftest import World


def test_a_trigger_that_is_no_usable_pattern_is_reported_with_its_line(world: World) -> None:
    triggers = "['(a+)+$', '[unclosed', '^.*', 'C++', 'deploy (to )?prod', 'plain words']"
    world.skill("~/.kitbag/skills", "releases", "Makes releases.", triggers=triggers)
    done = world.run("skills", "validate", "releases", "--json")
    problems = world.run("skills", "lint", "releases").stdout
    assert done.returncode == 1
    for trigger, why in (
        ("(a+)+$", "it could take too long to match"),
        ("[unclosed", "unterminated"),
        ("^.*", "it matches everything"),
    ):
        assert f"trigger '{trigger}' is not a usable pattern: {why}" in problems
    assert problems.count("is not a usable pattern") == 3
    assert "SKILL.md:4: trigger" in problems
