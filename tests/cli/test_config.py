"""`kitbag config`: list, and unset as the opposite of set."""

from conftest import World


def test_unset_removes_a_setting_and_nothing_else(world: World) -> None:
    file = world.write("~/.kitbag/settings.toml", '# mine\nmodel = "offline"\n\n[catalog]\nnames = 100 # few\n')
    world.ok("config", "set", "skills.x", "off")
    assert "removed catalog.names from ~/.kitbag/settings.toml; now 24000 (default)" in world.ok(
        "config", "unset", "catalog.names"
    )
    assert world.json("config", "unset", "skills.x")["value"] is None
    assert file.read_text().startswith('# mine\nmodel = "offline"\n')
    before = file.read_bytes()
    done = world.run("config", "unset", "catalog.names")
    assert (done.returncode, "is not set in" in done.stderr) == (4, True)
    assert world.run("config", "unset", "modle").returncode == 2
    assert file.read_bytes() == before


def test_unset_says_where_a_value_is_set_and_creates_no_file(world: World) -> None:
    world.write(".kitbag/settings.toml", 'persona = "x"\n')
    done = world.run("config", "unset", "persona")
    assert (done.returncode, "it is set in .kitbag/settings.toml" in done.stderr) == (4, True)
    assert not (world.home / ".kitbag/settings.toml").exists()
    world.ok("config", "unset", "persona", "--project")
    assert world.ok("config", "get", "persona") == "\n"


def test_an_unknown_key_in_the_file_can_be_removed(world: World) -> None:
    file = world.write("~/.kitbag/settings.toml", "oldkey = 1\n")
    world.ok("config", "unset", "oldkey")
    assert file.read_text() == ""
