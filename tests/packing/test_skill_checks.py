"""What `kitbag skills validate` says beyond the file's own syntax."""

import json
import os

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


def test_doctor_reports_triggers_of_files_and_manifests_that_match_nothing(world: World) -> None:
    world.skill("~/.kitbag/skills", "releases", "Makes releases.", triggers="['(a+)+$', 'C++', 'deploy (to )?prod']")
    listed = [
        {"name": "releases", "path": "skills/releases/SKILL.md", "capabilities": {"dispatch_triggers": ["[open", "x"]}}
    ]
    world.write("~/.kitbag/skills/manifest.json", json.dumps({"skills": listed}))
    found = [one for one in world.json("doctor")["diagnostics"] if one["code"] == "trigger"]
    assert sorted(one["problem"].split(" is not")[0] for one in found) == ["trigger '(a+)+$'", "trigger '[open'"]
    places = {os.path.basename(one["file"]) for one in found}
    assert places == {"SKILL.md", "manifest.json"}
    assert "[open" in world.run("skills", "validate", "releases").stdout
