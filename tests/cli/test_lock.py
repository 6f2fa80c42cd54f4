"""`kitbag lock`: written whole, the same each time, and checked."""

import json

from conftest import World


def test_the_lock_is_written_at_the_root_and_is_the_same_each_time(world: World) -> None:
    world.skill(".kitbag/skills", "a", body="!`id`")
    below = world.workspace / "sub"
    below.mkdir()
    assert "wrote" in world.ok("lock", cwd=below)
    path = world.workspace / "kitbag.lock"
    first = path.read_bytes()
    world.ok("lock")
    assert path.read_bytes() == first
    document = json.loads(first)
    assert document["version"] == 1
    assert document["items"][0]["capabilities"]["commands"] == ["id"]
    assert str(world.workspace).encode() not in first


def test_check_exits_1_on_any_difference_and_names_it(world: World) -> None:
    skill = world.skill(".kitbag/skills", "a")
    world.ok("lock")
    assert "no differences from the lock file" in world.ok("lock", "--check")
    skill.write_text(skill.read_text() + "One more word.\n")
    done = world.run("lock", "--check")
    assert done.returncode == 1
    assert ".kitbag/skills/a: changed file: SKILL.md" in done.stdout
    found = json.loads(world.run("lock", "--check", "--json").stdout)
    assert found["same"] is False
    assert found["differences"] == [{"path": ".kitbag/skills/a", "what": "changed file: SKILL.md"}]


def test_a_lock_inside_of_what_it_locks_does_not_lock_itself(world: World) -> None:
    folder = world.skill("skills", "a", body="x").parent
    world.ok("lock", str(folder), "-o", str(folder / "my.lock"))
    world.ok("lock", str(folder), "-o", str(folder / "my.lock"))
    world.ok("lock", str(folder), "-o", str(folder / "my.lock"), "--check")
    world.ok("audit", str(folder), "--since", str(folder / "my.lock"))


def test_it_is_printed_where_no_file_is_wanted(world: World) -> None:
    world.skill("skills", "a")
    assert json.loads(world.ok("lock", "-o", "-"))["items"][0]["name"] == "a"
    assert not (world.workspace / "kitbag.lock").exists()


def test_what_can_not_be_written_or_checked_exits_2(world: World) -> None:
    world.skill("skills", "a")
    assert world.run("lock", "--check").returncode == 2
    assert world.run("lock", "-o", "no/such/folder/x.lock").returncode == 2
    assert world.run("lock", "-o", ".").returncode == 2
    assert world.run("lock", "nothing").returncode == 2
