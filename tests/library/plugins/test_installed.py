"""Plugins: reading one, listing them, and changing what is installed without ever leaving a half of it."""

import io
import json
import os
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from kitbag.errors import Diagnostic, InvalidError, KitbagError, NotFoundError, UsageError
from kitbag.library.agents import read_agent
from kitbag.library.plugins.installed import load_installed, plugin_roots
from kitbag.library.plugins.manifest import Plugin, read_plugin
from kitbag.library.plugins.store import install_plugin, remove_plugin, set_plugin_enabled, verify_plugin
from kitbag.library.scopes import Root
from kitbag.text.source_files import directory_boundary
from support.disk import Disk
from support.matrix import long, sample
from support.waiting import TEST_TIMEOUT

SKILL = "---\nname: greet\ndescription: Greets people.\n---\nSay hello.\n"
ACTING_SKILL = "---\nname: act\ndescription: Looks.\n---\nNow: !`git status`\n"


def tree(path: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return path


def plugin_at(path: Path, name: str = "sample", version: str = "1.0.0", **files: str) -> Path:
    manifest = {"name": name, "version": version, "description": "A sample."}
    return tree(path, {".claude-plugin/plugin.json": json.dumps(manifest), "skills/greet/SKILL.md": SKILL, **files})


def snapshot(path: Path) -> dict[str, str]:
    """Every file below, except the lock that only serialises changes."""
    return {
        str(file.relative_to(path)): os.readlink(file) if file.is_symlink() else file.read_text()
        for file in sorted(path.rglob("*"))
        if (file.is_file() or file.is_symlink()) and file.name != ".lock"
    }


def codes(diagnostics: list[Diagnostic]) -> list[str]:
    return [diagnostic.code for diagnostic in diagnostics]


def read(path: Path, name: str | None = None) -> tuple[Plugin, list[Diagnostic]]:
    plugin, diagnostics = read_plugin(str(path), name)
    assert plugin is not None
    return plugin, diagnostics


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "home")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "source"


# --- reading one plugin ---------------------------------------------------------------------------


def test_all_fields_of_a_manifest_are_read(source: Path) -> None:
    manifest = {
        "name": "full",
        "displayName": "Full Plugin",
        "version": "2.1.0",
        "description": "Does\nthings.",
        "author": {"name": "Ada", "email": "ada@example.org"},
        "license": "MIT",
        "homepage": "https://example.org",
        "repository": "https://example.org/repo",
        "keywords": ["a"],
        "metadata": {},
        "defaultEnabled": False,
        "skills": ["./extra", "./skills/greet"],
        "commands": "./cmds/one.md",
        "agents": ["./people"],
        "hooks": {"PreToolUse": []},
        "mcpServers": "./mcp.json",
        "somethingNew": {"x": 1},
    }
    files = {
        ".claude-plugin/plugin.json": json.dumps(manifest),
        "skills/greet/SKILL.md": SKILL,
        "extra/more/SKILL.md": SKILL,
        "cmds/one.md": "One",
        "commands/ignored.md": "not used",
        "people/ada.md": "Ada",
        "bin/tool": "",
        "monitors/m.json": "{}",
    }
    plugin, diagnostics = read(tree(source, files))
    assert diagnostics == []
    assert plugin.name == "full"
    assert (plugin.display_name, plugin.version, plugin.description) == (
        "Full Plugin",
        "2.1.0",
        "Does things.",
    )
    assert (plugin.author, plugin.license, plugin.default_enabled) == ("Ada", "MIT", False)
    assert plugin.skill_dirs == (f"{source}/skills", f"{source}/extra")
    assert plugin.command_paths == (f"{source}/cmds/one.md",)
    assert plugin.agent_paths == (f"{source}/people",)
    assert plugin.brings == ("hooks", "mcpServers", "monitors", "bin")
    assert not plugin.enabled
    assert not plugin.root_skill
    assert json.loads(json.dumps(plugin.to_json()))["skill_dirs"] == list(plugin.skill_dirs)
    assert list(plugin.to_json()) == list(Plugin._fields)


def test_without_a_manifest_the_directory_gives_name_and_parts(tmp_path: Path) -> None:
    path = tree(
        tmp_path / "plain",
        {"skills/a/SKILL.md": SKILL, "agents/b.md": "", "commands/c.md": "", ".mcp.json": "{}"},
    )
    plugin, diagnostics = read(path)
    assert diagnostics == []
    assert plugin.name == plugin.display_name == "plain"
    assert plugin.skill_dirs == (f"{path}/skills",)
    assert plugin.agent_paths == (f"{path}/agents",)
    assert plugin.command_paths == (f"{path}/commands",)
    assert plugin.brings == ("mcpServers",)
    root = Root(
        f"{path}/skills",
        "skills",
        "plugin",
        "claude",
        (5, 0),
        "plain",
        str(path),
        boundary=directory_boundary(str(path)),
    )
    assert plugin_roots(plugin, (5, 0))[0] == root
    assert [root.kind for root in plugin_roots(plugin, (5, 0))] == ["skills", "agents", "commands"]


def test_commands_by_name_are_the_files_that_they_name(source: Path) -> None:
    commands = {
        "one": {"source": "./cmds/one.md", "description": "d"},
        "two": "./cmds/other.md",
        "inline": {"content": "Do it."},
        "out": {"source": "../out.md"},
    }
    text = json.dumps({"name": "kit", "commands": commands})
    tree(source, {".claude-plugin/plugin.json": text, "cmds/one.md": "", "cmds/other.md": "", "commands/x.md": ""})
    plugin, diagnostics = read(source)
    assert plugin.command_paths == (f"{source}/cmds/one.md", f"{source}/cmds/other.md")
    assert [(d.severity, d.code) for d in diagnostics] == [
        ("info", "called-by-file"),
        ("info", "inline-content"),
        ("error", "bad-path"),
    ]


def test_a_skill_at_the_top_makes_a_plugin_of_one_skill(tmp_path: Path) -> None:
    path = tree(tmp_path / "solo", {"SKILL.md": SKILL})
    plugin, _ = read(path)
    assert plugin.root_skill
    root = Root(
        str(path), "skills", "plugin", "claude", (5, 1), "solo", str(path), boundary=directory_boundary(str(path))
    )
    assert plugin_roots(plugin, (5, 1)) == [root]
    plugin, diagnostics = read(tree(path, {"skills/a/SKILL.md": SKILL}))
    assert not plugin.root_skill
    assert codes(diagnostics) == ["root-skill"]


def test_a_gemini_extension_gives_its_name(source: Path) -> None:
    plugin, _ = read(tree(source, {"gemini-extension.json": '{"name": "gem", "mcpServers": {"a": {}}}'}))
    assert (plugin.name, plugin.brings) == ("gem", ("mcpServers",))


def test_a_broken_manifest_is_reported_with_its_line_and_the_folders_still_load(source: Path) -> None:
    files = {".claude-plugin/plugin.json": '{\n "name": "x",\n oops\n}', "skills/a/SKILL.md": SKILL}
    plugin, diagnostics = read(tree(source, files))
    assert (plugin.name, plugin.skill_dirs) == ("source", (f"{source}/skills",))
    assert [(d.code, d.line) for d in diagnostics] == [("json", 3)]


HOSTILE_MANIFESTS = {
    "deep": "[" * 200_000,
    "deep object": '{"a":' * 100_000,
    "long number": '{"a": ' + "9" * 10_000 + "}",
    "list": "[]",
    "text": '"x"',
    "empty": "",
    "binary": "\0\0\0",
    "huge": '{"description": "' + "x" * 2_000_000 + '"}',
    "null": "null",
}


@pytest.mark.parametrize("case", HOSTILE_MANIFESTS)
def test_a_hostile_manifest_is_a_diagnostic_and_nothing_escapes(source: Path, case: str) -> None:
    files = {".claude-plugin/plugin.json": HOSTILE_MANIFESTS[case], "skills/a/SKILL.md": SKILL}
    plugin, diagnostics = read(tree(source, files))
    assert plugin.skill_dirs == (f"{source}/skills",)
    assert [d.severity for d in diagnostics] == ["error"]
    assert diagnostics[0].file.endswith("plugin.json")


def test_a_manifest_that_is_a_pipe_or_a_link_out_does_not_block_or_leak(source: Path, tmp_path: Path) -> None:
    tree(source, {"skills/a/SKILL.md": SKILL})
    (source / ".claude-plugin").mkdir()
    manifest = source / ".claude-plugin" / "plugin.json"
    os.mkfifo(manifest)
    assert codes(read(source)[1]) == ["not-a-file"]
    manifest.unlink()
    secret = tmp_path / "secret.json"
    secret.write_text('{"name": "leaked", "description": "secret"}')
    manifest.symlink_to(secret)
    plugin, diagnostics = read(source)
    assert (plugin.name, plugin.description) == ("source", "")
    assert codes(diagnostics) == ["path-outside"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", 3),
        ("version", 1.0),
        ("description", ["a"]),
        ("skills", {"a": 1}),
        ("commands", 5),
        ("agents", True),
        ("hooks", 1),
        ("mcpServers", False),
        ("defaultEnabled", "yes"),
        ("keywords", "a"),
        ("author", ["x"]),
        ("userConfig", []),
        ("license", None),
    ],
)
def test_a_known_key_of_the_wrong_type_is_reported_with_its_line(source: Path, key: str, value: object) -> None:
    text = '{\n "unknown": {},\n ' + f'"{key}": {json.dumps(value)}\n' + "}"
    plugin, diagnostics = read(tree(source, {".claude-plugin/plugin.json": text, "skills/a/SKILL.md": SKILL}))
    assert [(d.code, d.line) for d in diagnostics] == [("wrong-type", 3)]
    assert plugin.skill_dirs == (f"{source}/skills",)


@pytest.mark.parametrize(
    "value", ["../x", "/etc", "skills", "./../outside", "./link", "./a\0b", "./skills/../../outside", 7]
)
def test_paths_that_leave_the_plugin_are_reported_and_ignored(tmp_path: Path, source: Path, value: object) -> None:
    tree(tmp_path / "outside", {"a/SKILL.md": SKILL})
    tree(source, {".claude-plugin/plugin.json": json.dumps({"skills": [value], "agents": [value]}), "x": ""})
    (source / "link").symlink_to(tmp_path / "outside")
    plugin, diagnostics = read(source)
    assert plugin.skill_dirs == plugin.agent_paths == ()
    assert set(codes(diagnostics)) <= {"bad-path", "path-outside"}
    assert len(diagnostics) == 2


def test_a_sibling_with_the_same_beginning_is_outside(tmp_path: Path) -> None:
    tree(tmp_path / "app-evil", {"a/SKILL.md": SKILL})
    path = tree(tmp_path / "app", {".claude-plugin/plugin.json": '{"skills": "./../app-evil"}'})
    plugin, diagnostics = read(path)
    assert plugin.skill_dirs == ()
    assert codes(diagnostics) == ["path-outside"]


def test_a_default_folder_that_is_a_link_out_is_ignored(tmp_path: Path, source: Path) -> None:
    tree(tmp_path / "outside", {"a/SKILL.md": SKILL})
    tree(source, {"agents/a.md": ""})
    (source / "skills").symlink_to(tmp_path / "outside")
    plugin, diagnostics = read(source)
    assert plugin.skill_dirs == ()
    assert codes(diagnostics) == ["path-outside"]


def test_hidden_characters_in_a_manifest_are_reported_and_left_out(source: Path) -> None:
    text = json.dumps({"name": "ok", "displayName": "Nice\u202e", "description": "a\U000e0041b\ud800"})
    plugin, diagnostics = read(tree(source, {".claude-plugin/plugin.json": text}))
    assert (plugin.display_name, plugin.description) == ("Nice", "ab")
    assert codes(diagnostics) == ["hidden-characters", "hidden-characters"]


def test_a_directory_without_any_part_of_a_plugin_is_none(source: Path) -> None:
    tree(source, {"notes.txt": "x"})
    plugin, diagnostics = read_plugin(str(source))
    assert plugin is None
    assert codes(diagnostics) == ["not-a-plugin"]
    assert read_plugin(str(source / "missing"))[0] is None
    assert read_plugin(str(source / "notes.txt"))[0] is None
    assert read_plugin("a\0b")[0] is None


# --- listing --------------------------------------------------------------------------------------


def test_a_home_without_plugins_costs_no_import_and_creates_nothing(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from kitbag.library.plugins.installed import load_installed\n"
        "assert load_installed(sys.argv[1]) == ([], [])\n"
        "heavy = 'json hashlib tarfile zipfile tempfile shutil difflib fcntl dataclasses ctypes'.split()\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "none")]
    run = subprocess.run(arguments, capture_output=True, text=True, timeout=TEST_TIMEOUT, check=False)
    assert run.stdout.strip() == "[]", run.stderr
    assert list(tmp_path.iterdir()) == []


def test_listing_does_not_read_the_files_of_a_plugin(home: str, source: Path) -> None:
    install_plugin(str(plugin_at(source)), home)
    code = (
        "import sys\n"
        "from kitbag.library.plugins.installed import load_installed\n"
        "sys.addaudithook(lambda event, args: event == 'open' and print(args[0], file=sys.stderr))\n"
        "print([plugin.name for plugin in load_installed(sys.argv[1])[0]])\n"
        "print('hashlib' in sys.modules)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, home], capture_output=True, text=True, timeout=TEST_TIMEOUT, check=True
    )
    opened = [line for line in run.stderr.splitlines() if line.startswith(home)]
    assert run.stdout == "['sample']\nFalse\n"
    assert sorted(os.path.basename(path) for path in opened) == ["plugin.json", "plugins.lock.json"]


def test_plugins_are_listed_by_name_with_what_the_lock_knows(home: str, tmp_path: Path) -> None:
    for name in ("zeta", "Alpha", "mid"):
        install_plugin(str(plugin_at(tmp_path / name, name)), home)
    plugins, diagnostics = load_installed(home)
    assert diagnostics == []
    assert [plugin.name for plugin in plugins] == ["Alpha", "mid", "zeta"]
    assert all(plugin.enabled and plugin.digest.startswith("sha256:") for plugin in plugins)
    assert plugins[2].source == str(tmp_path / "zeta")
    assert plugins[0].installed_at.endswith("Z")
    assert load_installed(home) == (plugins, diagnostics)


def test_a_directory_that_was_not_installed_is_disabled_and_reported(home: str, tmp_path: Path) -> None:
    plugin_at(tmp_path / "home" / "plugins" / "stray")
    plugins, diagnostics = load_installed(home)
    assert [(plugin.name, plugin.enabled) for plugin in plugins] == [("stray", False)]
    assert codes(diagnostics) == ["plugin-unlisted"]


def test_links_and_strange_names_among_the_plugins_are_not_followed(home: str, tmp_path: Path, source: Path) -> None:
    base = tmp_path / "home" / "plugins"
    plugin_at(base / "bad name")
    (base / "link").symlink_to(plugin_at(source))
    (base / "note.txt").write_text("")
    (base / ".hidden").mkdir()
    plugins, diagnostics = load_installed(home)
    assert plugins == []
    assert codes(diagnostics) == ["not-a-plugin", "not-a-plugin"]


DAMAGED_LOCKS = {
    "empty": "",
    "cut": '{"version": 1, "plug',
    "list": "[]",
    "no plugins": '{"version": 1}',
    "no version": '{"plugins": {}}',
    "deep": "[" * 100_000,
    "binary": "\0",
}


@pytest.mark.parametrize("case", DAMAGED_LOCKS)
def test_a_damaged_lock_disables_all_and_deletes_nothing(home: str, source: Path, tmp_path: Path, case: str) -> None:
    install_plugin(str(plugin_at(source)), home)
    lock = Path(home, "plugins", "plugins.lock.json")
    lock.write_text(DAMAGED_LOCKS[case])
    before = snapshot(Path(home))
    plugins, diagnostics = load_installed(home)
    assert [(plugin.name, plugin.enabled) for plugin in plugins] == [("sample", False)]
    assert codes(diagnostics) == ["plugin-lock"]
    assert snapshot(Path(home)) == before
    install_plugin(str(plugin_at(tmp_path / "other", "other")), home)
    kept = Path(home, "plugins", "plugins.lock.json.damaged-1")
    assert kept.read_text() == DAMAGED_LOCKS[case]
    assert {plugin.name: plugin.enabled for plugin in load_installed(home)[0]} == {"other": True, "sample": False}
    set_plugin_enabled(home, "sample", True, accept=True)
    assert all(plugin.enabled for plugin in load_installed(home)[0])


def test_a_damaged_entry_disables_only_its_plugin(home: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        install_plugin(str(plugin_at(tmp_path / name, name)), home)
    lock = Path(home, "plugins", "plugins.lock.json")
    content = json.loads(lock.read_text())
    content["plugins"]["one"]["enabled"] = "true"
    lock.write_text(json.dumps(content))
    plugins, diagnostics = load_installed(home)
    assert {plugin.name: plugin.enabled for plugin in plugins} == {"one": False, "two": True}
    assert "plugin-lock" in codes(diagnostics)


def test_a_lock_of_a_newer_kitbag_is_not_overwritten(home: str, source: Path) -> None:
    install_plugin(str(plugin_at(source)), home)
    lock = Path(home, "plugins", "plugins.lock.json")
    lock.write_text('{"version": 99, "plugins": {}}')
    before = snapshot(Path(home))
    assert [plugin.enabled for plugin in load_installed(home)[0]] == [False]
    for change in (lambda: remove_plugin(home, "sample"), lambda: install_plugin(str(source), home, update=True)):
        with pytest.raises(InvalidError, match="newer"):
            change()
    assert snapshot(Path(home)) == before


# --- installing -----------------------------------------------------------------------------------


def test_a_directory_is_installed_with_our_modes_and_without_its_history(home: str, source: Path) -> None:
    plugin_at(source)
    tree(
        source,
        {
            ".git/config": "x",
            "node_modules/a/SKILL.md": SKILL,
            "skills/greet/__pycache__/a.pyc": "",
            "run.sh": "",
        },
    )
    (source / "run.sh").chmod(0o777)
    result = install_plugin(str(source), home)
    assert not result.updated
    assert result.changed == result.diagnostics == ()
    path = Path(home, "plugins", "sample")
    assert result.plugin == load_installed(home)[0][0]
    assert sorted(snapshot(path)) == [".claude-plugin/plugin.json", "run.sh", "skills/greet/SKILL.md"]
    assert stat.S_IMODE((path / "run.sh").stat().st_mode) == 0o744
    modes = {
        name: stat.S_IMODE(Path(home, "plugins", name).stat().st_mode) for name in ("", "plugins.lock.json", ".lock")
    }
    assert modes == {"": 0o700, "plugins.lock.json": 0o600, ".lock": 0o600}
    assert sorted(os.listdir(path.parent)) == [".lock", "plugins.lock.json", "sample"]
    assert verify_plugin(home, "sample") == []


@pytest.mark.parametrize("top", ["", "sample-main/"])
@pytest.mark.parametrize("kind", ["zip", "tgz"])
def test_an_archive_is_installed_with_or_without_a_top_folder(home: str, tmp_path: Path, top: str, kind: str) -> None:
    archive = tmp_path / f"bundle.{kind}"
    files = {f"{top}skills/greet/SKILL.md": SKILL, f"{top}agents/a.md": "A", "__MACOSX/._x": ""}
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as out:
            for name, text in files.items():
                out.writestr(name, text)
    else:
        with tarfile.open(archive, "w:gz") as out:
            for name, text in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(text)
                out.addfile(info, io.BytesIO(text.encode()))
    result = install_plugin(str(archive), home)
    assert result.plugin.name == ("sample-main" if top else "bundle")
    assert result.plugin.skill_dirs == (f"{result.plugin.path}/skills",)


BAD_NAMES = [
    "../../x",
    ".",
    "..",
    "/abs",
    "a\0b",
    "x" * 300,
    "grüße",
    "sаmple",
    "",
    " ",
    "a/b",
    "a\\b",
    "-x",
    "a b",
    "a\n",
]
RESERVED = ["kitbag", "Kitbag", "builtin", "built-in", "plugins", "plugins.lock.json"]


@pytest.mark.parametrize("name", BAD_NAMES + RESERVED)
def test_a_manifest_with_a_bad_name_is_refused(home: str, source: Path, tmp_path: Path, name: str) -> None:
    plugin_at(source, name)
    before = snapshot(tmp_path)
    with pytest.raises(InvalidError, match="name"):
        install_plugin(str(source), home)
    assert snapshot(tmp_path) == before
    assert load_installed(home) == ([], [])


@pytest.mark.parametrize("name", BAD_NAMES + RESERVED)
def test_removing_or_enabling_a_bad_name_never_leaves_the_plugins(
    home: str, source: Path, tmp_path: Path, name: str
) -> None:
    install_plugin(str(plugin_at(source)), home)
    tree(tmp_path / "home", {"x": "tripwire", "kitbag/file": "tripwire"})
    before = snapshot(tmp_path)
    for change in (
        lambda: remove_plugin(home, name),
        lambda: set_plugin_enabled(home, name, True),
        lambda: verify_plugin(home, name),
    ):
        with pytest.raises(UsageError):
            change()
    assert snapshot(tmp_path) == before


def refuse(source: Path, home: str, root: Path, error: type[KitbagError], words: str) -> None:
    before = snapshot(root)
    with pytest.raises(error, match=words):
        install_plugin(str(source), home)
    assert snapshot(root) == before


def test_links_out_and_special_files_in_a_directory_are_refused(home: str, source: Path, tmp_path: Path) -> None:
    install_plugin(str(plugin_at(tmp_path / "first", "first")), home)
    (tmp_path / "secret").write_text("secret")
    plugin_at(source)
    bad = source / "skills" / "greet" / "bad"
    bad.symlink_to(tmp_path / "secret")
    refuse(source, home, tmp_path, InvalidError, "link to a path outside")
    bad.unlink()
    bad.symlink_to("../../../secret")
    refuse(source, home, tmp_path, InvalidError, "link to a path outside")
    bad.unlink()
    os.mkfifo(bad)
    refuse(source, home, tmp_path, InvalidError, "pipe")
    bad.unlink()
    bad.write_text("")
    bad.chmod(0o4755)
    refuse(source, home, tmp_path, InvalidError, "setuid")


@pytest.mark.parametrize("key", ["default_enabled", "default-enabled", "DefaultEnabled"])
def test_a_manifest_key_is_read_in_every_spelling_and_a_similar_one_is_reported(source: Path, key: str) -> None:
    text = f'{{\n "enabled": false,\n "{key}": false,\n "display_name": "Shown", "mcp-servers": {{"a": {{}}}}}}'
    plugin, diagnostics = read(tree(source, {".claude-plugin/plugin.json": text, "skills/a/SKILL.md": SKILL}))
    assert (plugin.default_enabled, plugin.display_name, plugin.brings) == (False, "Shown", ("mcpServers",))
    assert [(d.code, d.line, d.fix) for d in diagnostics] == [("field-misspelled", 2, "did you mean `defaultEnabled`?")]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("defaultEnable", "defaultEnabled"), ("enabledByDefault", "defaultEnabled"), ("skill", "skills"),
        ("comands", "commands"), ("mcpServer", "mcpServers"), ("hook", "hooks"),
    ],
)  # fmt: skip
def test_a_near_miss_of_a_manifest_key_is_reported(source: Path, key: str, meant: str) -> None:
    text = f'{{"name": "a",\n "{key}": false, "category": "x", "interface": {{}}}}'
    _, diagnostics = read(tree(source, {".claude-plugin/plugin.json": text, "skills/a/SKILL.md": SKILL}))
    assert [(d.code, d.line, d.fix) for d in diagnostics] == [("field-misspelled", 2, f"did you mean `{meant}`?")]


@pytest.mark.parametrize("as_archive", [False, True])
def test_links_to_themselves_or_into_folders_that_are_not_installed_are_skipped(
    home: str, source: Path, tmp_path: Path, as_archive: bool
) -> None:
    plugin_at(source)
    tree(source, {".git/config": "secret", "node_modules/a/cli.js": "x"})
    (source / "config").symlink_to(".git/config")
    (source / "tool").symlink_to("node_modules/a")
    (source / "loop").symlink_to("loop")
    (source / "one").symlink_to("two")
    (source / "two").symlink_to("one")
    (source / "node_modules/b").symlink_to("/usr")
    given: Path = source
    if as_archive:
        given = tmp_path / "source.tar.gz"
        with tarfile.open(given, "w:gz") as archive:
            archive.add(source, "source")
    found = install_plugin(str(given), home)
    skipped = sorted(os.path.basename(note.file) for note in found.diagnostics if note.code == "link-skipped")
    assert skipped == ["config", "loop", "one", "tool", "two"]
    assert sorted(os.listdir(found.plugin.path)) == [".claude-plugin", "skills"]


def test_an_agent_of_a_copilot_marketplace_keeps_its_bare_server_names(home: str, source: Path) -> None:
    tree(
        source,
        {
            ".github/plugin/marketplace.json": '{"plugins": [{"name": "one", "source": "./plugins/one"}]}',
            "plugins/one/.github/plugin/plugin.json": '{"name": "one", "agents": ["./agents/jira.md"]}',
            "agents/jira.agent.md": "---\ndescription: d\ntools: ['atlassian']\n---\nText\n",
        },
    )
    found = install_plugin(str(source), home)
    (path,) = found.plugin.agent_paths
    root = Root(path=found.plugin.path, kind="agents", scope="plugin", dialect="claude", rank=(0, 0), plugin="one")
    agent, _ = read_agent(path, root)
    assert agent is not None
    assert (agent.name, agent.tools.names) == ("jira", ("mcp__atlassian__*",))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ('{"name": "x"}', "no `source`"),
        ('{"name": "x", "source": ""}', "no `source`"),
        ('{"name": "x", "source": {"source": "pip", "package": "pkg"}}', "pip:pkg"),
    ],
)
def test_a_marketplace_entry_without_a_local_source_is_explained(
    home: str, source: Path, entry: str, words: str
) -> None:
    tree(source, {".claude-plugin/marketplace.json": f'{{"plugins": [{entry}]}}'})
    with pytest.raises((InvalidError, UsageError), match=words):
        install_plugin(str(source), home, plugin="x")


@pytest.mark.parametrize(
    ("source_field", "words"),
    [
        ("other", "'other' is neither a directory of the marketplace nor a URL"),
        ("a/b", "git clone https://github.com/a/b"),
        ({"repo": "a/b"}, "https://github.com/a/b"),
        ({"source": "github", "repository": "a/b", "path": "p"}, "https://github.com/a/b"),
        ({"source": "git", "repository": "https://git.example/a"}, "https://git.example/a"),
        (5, "must be a text or an object"),
    ],
)
def test_an_unusable_source_is_explained(home: str, source: Path, source_field: object, words: str) -> None:
    listed = {"plugins": [{"name": "x", "source": source_field}, {"name": "y", "source": "./y"}]}
    tree(source, {".github/plugin/marketplace.json": json.dumps(listed)})
    with pytest.raises((InvalidError, UsageError)) as caught:
        install_plugin(str(source), home, plugin="x")
    assert words in f"{caught.value} {caught.value.fix}"


def test_a_directory_of_the_marketplace_needs_no_slash_and_its_name_no_case(home: str, source: Path) -> None:
    listed = {"plugins": [{"name": "Kit", "source": "kit"}, {"name": "other", "source": "other"}]}
    tree(source, {".github/plugin/marketplace.json": json.dumps(listed), "kit/skills/a/SKILL.md": SKILL})
    assert install_plugin(str(source), home, plugin="kit").plugin.name == "Kit"
    tree(source, {".github/plugin/marketplace.json": '{"plugins": []}'})
    with pytest.raises(InvalidError, match="lists no plugins"):
        install_plugin(str(source), home)


def test_a_manifest_at_the_top_may_list_hidden_directories(source: Path) -> None:
    fields = {"name": "x", "agents": ".github/agents/", "skills": [".github/skills"], "commands": ".github/../c"}
    files = {"plugin.json": json.dumps(fields), ".github/agents/x.agent.md": SKILL, ".github/skills/a/SKILL.md": SKILL}
    plugin, diagnostics = read(tree(source, {**files, "c/x.md": SKILL}))
    top = os.path.realpath(source)
    assert (plugin.agent_paths, plugin.skill_dirs) == ((f"{top}/.github/agents",), (f"{top}/.github/skills",))
    assert (plugin.command_paths, diagnostics) == ((f"{top}/c",), [])
    tree(source, {"plugin.json": json.dumps({"name": "x", "skills": "../x", "agents": "..", "commands": "/etc"})})
    plugin, diagnostics = read(source)
    assert (plugin.agent_paths, plugin.skill_dirs, plugin.command_paths) == ((), (), ())
    assert len(diagnostics) == 3


def test_links_without_a_copy_are_skipped_and_reported(home: str, source: Path) -> None:
    plugin_at(source)
    (source / "nowhere").symlink_to("missing")
    (source / "skills/greet/loop").symlink_to(source / "skills")
    (source / "more").symlink_to("skills")
    found = install_plugin(str(source), home)
    skipped = sorted(note.file for note in found.diagnostics if note.code == "link-skipped")
    assert skipped == ["source/more/greet/loop", "source/nowhere", "source/skills/greet/loop"]
    assert Path(found.plugin.path, "more/greet/SKILL.md").read_text() == SKILL


def git_archive(folder: Path, kind: str) -> Path:
    """As `git archive` and GitHub make one: everything below one folder, links as links."""
    git = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@x.example"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], check=True)
    path = folder.parent / f"repo-main.{kind}"
    subprocess.run([*git, "archive", "--prefix=repo-main/", f"--format={kind}", "-o", str(path), "HEAD"], check=True)
    return path


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_an_archive_from_git_is_installed_with_its_links_resolved(home: str, source: Path, kind: str) -> None:
    plugin_at(source, **{"CLAUDE.md": "text", "shared/ref/a.md": "a", "run.sh": "x"})
    (source / "run.sh").chmod(0o755)
    (source / "AGENTS.md").symlink_to("CLAUDE.md")
    (source / "GEMINI.md").symlink_to("AGENTS.md")
    (source / "skills/greet/references").symlink_to("../../shared/ref")
    (source / "skills/greet/go").symlink_to("../../run.sh")
    (source / "gone").symlink_to("missing/file")
    (source / "self").symlink_to("self")
    (source / "skills/greet/up").symlink_to("..")
    found = install_plugin(str(git_archive(source, kind)), home)
    path = Path(found.plugin.path)
    assert [(path / name).read_text() for name in ("AGENTS.md", "GEMINI.md")] == ["text", "text"]
    assert (path / "skills/greet/references/a.md").read_text() == "a"
    assert os.access(path / "skills/greet/go", os.X_OK)
    assert not [file for file in path.rglob("*") if file.is_symlink()]
    assert {os.path.basename(note.file) for note in found.diagnostics} == {"gone", "self", "up"}
    assert not (path / "gone").exists()


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_a_link_that_differs_from_a_file_in_case_only_is_skipped(home: str, source: Path, kind: str) -> None:
    plugin_at(source, **{"README.md": "text", "a.md": "a"})
    (source / "readme.md").symlink_to("README.md")  # after the file
    (source / "A.md").symlink_to("a.md")  # before it
    (source / "Skills").symlink_to("skills")
    found = install_plugin(str(git_archive(source, kind)), home)
    assert sorted(os.path.basename(note.file) for note in found.diagnostics) == ["A.md", "Skills", "readme.md"]
    assert {file.name for file in Path(found.plugin.path).iterdir()} == {
        ".claude-plugin",
        "README.md",
        "a.md",
        "skills",
    }


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "directory"])
def test_links_in_a_linked_directory_are_installed_or_reported(home: str, source: Path, kind: str) -> None:
    plugin_at(source, **{"shared/text.md": "text", "src/one.md": "one", "links/x": ""})
    (source / "links/x").unlink()
    (source / "links/one.md").symlink_to("../src/one.md")
    (source / "skills/greet/text.md").symlink_to("../../shared/text.md")
    (source / "skills/greet/shared").symlink_to("../../shared")
    (source / "skills/second").symlink_to("greet")
    (source / "more").symlink_to("links")
    found = install_plugin(str(source if kind == "directory" else git_archive(source, kind)), home)
    path = Path(found.plugin.path)
    assert (path / "skills/second/text.md").read_text() == "text"
    assert (path / "more/one.md").read_text() == "one"
    assert [note.file.partition("/")[2].removeprefix("repo-main/") for note in found.diagnostics] == [
        "skills/second/shared"
    ]


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "directory"])
def test_a_text_that_differs_from_another_in_case_only_is_skipped(home: str, source: Path, kind: str) -> None:
    plugin_at(source, **{"README.md": "text", "Readme.md": "other", "Docs/a.md": "a", "docs/b.md": "b"})
    found = install_plugin(str(source if kind == "directory" else git_archive(source, kind)), home)
    assert [(os.path.basename(note.file), note.code) for note in found.diagnostics] == [("Readme.md", "file-skipped")]
    path = Path(found.plugin.path)
    assert [(path / name).read_text() for name in ("README.md", "Docs/a.md", "docs/b.md")] == ["text", "a", "b"]
    assert not (path / "Readme.md").exists()


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
@pytest.mark.parametrize("target", ["/etc/passwd", "../../../etc/passwd", "../../outside", "skills/../../../x"])
def test_an_archive_with_a_link_that_escapes_is_refused(home: str, source: Path, kind: str, target: str) -> None:
    plugin_at(source)
    (source / "bad").symlink_to(target)
    with pytest.raises(InvalidError, match="symbolic link to a path outside"):
        install_plugin(str(git_archive(source, kind)), home)
    assert load_installed(home) == ([], [])


def test_a_link_to_a_file_inside_becomes_a_copy(home: str, source: Path) -> None:
    plugin_at(source, **{"AGENTS.md": "text"})
    (source / "CLAUDE.md").symlink_to("AGENTS.md")
    path = install_plugin(str(source), home).plugin.path
    assert Path(path, "CLAUDE.md").read_text() == "text"
    assert not Path(path, "CLAUDE.md").is_symlink()


@pytest.mark.parametrize("entry", ["../x", "/etc/x", "C:\\x", "a\\b"])
def test_a_hostile_archive_changes_nothing(home: str, source: Path, tmp_path: Path, entry: str) -> None:
    install_plugin(str(plugin_at(source)), home)
    archive = tmp_path / "evil.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("skills/a/SKILL.md", SKILL)
        out.writestr(entry, "evil")
    before = snapshot(tmp_path / "home")
    for update in (False, True):
        with pytest.raises(InvalidError):
            install_plugin(str(archive), home, update=update)
    assert snapshot(tmp_path / "home") == before
    assert sorted(os.listdir(Path(home, "plugins"))) == [".lock", "plugins.lock.json", "sample"]


def test_what_is_no_plugin_is_refused_before_it_is_copied(home: str, tmp_path: Path) -> None:
    tree(tmp_path / "docs", {"a.txt": "x"})
    refuse(tmp_path / "docs", home, tmp_path, InvalidError, "not a plugin")
    refuse(tmp_path / "docs" / "a.txt", home, tmp_path, InvalidError, "not a valid zip or tar")
    refuse(tmp_path / "missing", home, tmp_path, NotFoundError, "does not exist")
    with pytest.raises(NotFoundError, match=f"^{os.getcwd()}/not/there does not exist"):
        install_plugin("not/there", home)
    with pytest.raises(UsageError, match="only local"):
        install_plugin("https://example.org/x.git", home)
    plugin_at(tmp_path)
    Path(home, "plugins").mkdir(exist_ok=True, parents=True)
    refuse(tmp_path, home, tmp_path, UsageError, "installed plugins")


def test_an_installed_name_needs_update_also_in_another_case(home: str, source: Path, tmp_path: Path) -> None:
    install_plugin(str(plugin_at(source)), home)
    refuse(source, home, tmp_path, UsageError, "already installed")
    refuse(plugin_at(tmp_path / "other", "SAMPLE"), home, tmp_path, UsageError, "only in case")


def test_a_link_in_the_place_of_a_plugin_is_not_followed(home: str, source: Path, tmp_path: Path) -> None:
    target = tree(tmp_path / "target", {"keep": "me"})
    Path(home, "plugins").mkdir(parents=True)
    Path(home, "plugins", "sample").symlink_to(target)
    plugin_at(source)
    for change in (
        lambda: install_plugin(str(source), home, update=True),
        lambda: remove_plugin(home, "sample"),
        lambda: set_plugin_enabled(home, "sample", True, accept=True),
    ):
        with pytest.raises(InvalidError):
            change()
    assert snapshot(target) == {"keep": "me"}


def test_a_plugins_folder_that_is_a_link_is_not_changed(home: str, source: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    Path(home).mkdir()
    Path(home, "plugins").symlink_to(elsewhere)
    with pytest.raises(InvalidError, match="link"):
        install_plugin(str(plugin_at(source)), home)
    assert list(elsewhere.iterdir()) == []


def test_nothing_is_executed_by_installing_listing_or_removing(home: str, source: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    hooks = json.dumps({"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": f"touch {canary}"}]}]}})
    plugin_at(
        source,
        **{
            "hooks/hooks.json": hooks,
            "skills/x/SKILL.md": f"!`touch {canary}`",
            "setup.py": f"open('{canary}', 'w')",
        },
    )
    code = (
        "import sys\n"
        "from kitbag.library.plugins.installed import load_installed\n"
        "from kitbag.library.plugins.store import install_plugin, remove_plugin, verify_plugin\n"
        "bad = ('subprocess.Popen', 'os.exec', 'os.system', 'os.posix_spawn', 'os.fork', 'socket.connect')\n"
        "sys.addaudithook(lambda event, args: event in bad and print('EVENT', event))\n"
        "for update in (False, True): install_plugin(sys.argv[1], sys.argv[2], update=update)\n"
        "print(load_installed(sys.argv[2])[0][0].brings)\n"
        "verify_plugin(sys.argv[2], 'sample')\n"
        "remove_plugin(sys.argv[2], 'sample')\n"
    )
    arguments = [sys.executable, "-c", code, str(source), home]
    run = subprocess.run(arguments, capture_output=True, text=True, timeout=TEST_TIMEOUT, check=True)
    assert run.stdout == "('hooks',)\n"
    assert not canary.exists()


# --- marketplaces ---------------------------------------------------------------------------------


def market_at(path: Path, *plugins: object) -> Path:
    return tree(path, {".claude-plugin/marketplace.json": json.dumps({"name": "m", "plugins": plugins})})


@pytest.mark.parametrize(
    ("entry", "fix"),
    [
        (
            {"source": "git-subdir", "url": "https://x.example/z.git", "path": "./plugins/p", "ref": "v1"},
            "run: git clone https://x.example/z.git && git -C z checkout v1 && kitbag plugins install z/plugins/p",
        ),
        (
            {"source": "github", "repo": "a/b;id"},
            "download https://github.com/a/b;id, then run: kitbag plugins install",
        ),
        ({"source": "npm", "package": "-x"}, "run: npm pack ./-x, then: kitbag plugins install ARCHIVE.tgz"),
        ({"source": "url", "url": "https://x.example/a$(id).git"}, "run: git clone 'https://x.example/a$(id).git' &&"),
    ],
)
def test_the_fix_for_a_remote_source_is_the_commands_that_fetch_it(
    home: str, source: Path, entry: dict[str, str], fix: str
) -> None:
    market_at(source, {"name": "far", "source": entry})
    with pytest.raises(UsageError) as caught:
        install_plugin(str(source), home, plugin="far")
    assert fix in caught.value.fix


def test_a_plugin_is_chosen_from_a_marketplace(home: str, source: Path) -> None:
    plugin_at(source / "tools" / "one", "one")
    remote = {"name": "far", "source": {"source": "github", "repo": "a/b"}}
    market_at(source, {"name": "one", "source": "./tools/one", "version": "9", "license": "MIT"}, remote)
    with pytest.raises(UsageError, match="far, one"):
        install_plugin(str(source), home)
    with pytest.raises(NotFoundError, match="far, one"):
        install_plugin(str(source), home, plugin="two")
    with pytest.raises(UsageError, match="only local"):
        install_plugin(str(source), home, plugin="far")
    plugin = install_plugin(str(source), home, plugin="one").plugin
    assert (plugin.name, plugin.version, plugin.license) == ("one", "1.0.0", "MIT")
    assert plugin.source == f"{source}#one"


@pytest.mark.parametrize(
    "where", ["./../outside", "../outside", "./link", "/etc", "./missing", "./a\0b", 3, None, "npm-package"]
)
def test_a_marketplace_entry_that_leads_elsewhere_is_refused(
    home: str, tmp_path: Path, source: Path, where: object
) -> None:
    plugin_at(tmp_path / "outside")
    market_at(source, {"name": "bad", "source": where})
    (source / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(KitbagError):
        install_plugin(str(source), home, plugin="bad")
    assert load_installed(home) == ([], [])


@pytest.mark.parametrize("where", ["../outside", "/etc", "skills/../../outside"])
def test_a_local_path_out_of_the_marketplace_is_not_called_remote(home: str, source: Path, where: str) -> None:
    (source / "skills").mkdir(parents=True, exist_ok=True)
    market_at(source, {"name": "bad", "source": where})
    with pytest.raises(InvalidError, match="outside the marketplace"):
        install_plugin(str(source), home, plugin="bad")


def test_a_source_that_is_a_directory_of_the_marketplace_needs_no_dot(home: str, source: Path) -> None:
    plugin_at(source / "plugins" / "one", "one")
    market_at(source, {"name": "one", "source": "plugins/one"}, {"name": "pkg", "source": "@scope/pkg"})
    assert install_plugin(str(source), home, plugin="one").plugin.name == "one"
    with pytest.raises(UsageError, match="only local"):
        install_plugin(str(source), home, plugin="pkg")


@pytest.mark.parametrize(
    ("files", "plugin", "words"),
    [
        ({"README.md": ""}, None, "p.zip/repo: not a plugin"),
        ({".claude-plugin/plugin.json": '{"name": "a b"}'}, None, "p.zip/repo/.claude-plugin/plugin.json:1: "),
        ({".claude-plugin/marketplace.json": "{"}, None, "p.zip/repo/.claude-plugin/marketplace.json:1: not valid"),
        ({"skills/s/SKILL.md": SKILL}, "x", "p.zip/repo is not a marketplace"),
    ],
)
def test_an_error_in_an_archive_names_the_archive(
    home: str, tmp_path: Path, files: dict[str, str], plugin: str | None, words: str
) -> None:
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as out:
        for name, text in files.items():
            out.writestr(f"repo/{name}", text)
    with pytest.raises(KitbagError) as raised:
        install_plugin(str(tmp_path / "p.zip"), home, plugin=plugin)
    assert raised.value.problem.startswith(f"{tmp_path}/{words}")


def test_a_marketplace_can_say_which_of_its_files_a_plugin_is(home: str, source: Path) -> None:
    tree(source, {"skills/a/SKILL.md": SKILL, "skills/b/SKILL.md": SKILL, "agents/x.md": ""})
    market_at(source, {"name": "only-a", "source": "./", "strict": False, "skills": ["./skills/a"]})
    plugin = install_plugin(str(source), home, plugin="only-a").plugin
    assert plugin.skill_dirs == (f"{plugin.path}/skills/a",)
    assert plugin.agent_paths == ()


def test_an_entry_that_says_what_the_plugin_is_needs_no_manifest_in_the_source(home: str, source: Path) -> None:
    tree(source, {"pack/one/SKILL.md": SKILL, "pack/two/SKILL.md": SKILL, "empty/notes.txt": ""})
    entry = {"name": "pack", "source": "./pack", "strict": False, "skills": ["./one"]}
    market_at(source, entry, {"name": "empty", "source": "./empty", "strict": False})
    plugin = install_plugin(str(source), home, plugin="pack").plugin
    assert plugin.skill_dirs == (f"{plugin.path}/one",)
    assert [found.skill_dirs for found in load_installed(home)[0]] == [plugin.skill_dirs]
    assert verify_plugin(home, "pack") == []
    with pytest.raises(InvalidError, match="not a plugin"):
        install_plugin(str(source), home, plugin="empty")


@pytest.mark.parametrize("base", ["./plugins", "plugins/"])
def test_a_bare_source_is_a_folder_below_the_plugin_root_of_its_marketplace(home: str, source: Path, base: str) -> None:
    plugin_at(source / "plugins" / "one", "one")
    entries = [{"name": "one", "source": "one"}, {"name": "out", "source": "x/../../../out"}]
    market = {"name": "m", "metadata": {"pluginRoot": base}, "plugins": entries}
    tree(source, {".claude-plugin/marketplace.json": json.dumps(market)})
    plugin_at(source.parent / "out", "out")
    assert install_plugin(str(source), home, plugin="one").plugin.name == "one"
    with pytest.raises(InvalidError, match="outside"):
        install_plugin(str(source), home, plugin="out")


def test_a_bad_name_in_a_marketplace_is_refused(home: str, source: Path) -> None:
    market_at(plugin_at(source / "x").parent, {"name": "../evil", "source": "./x"})
    with pytest.raises(InvalidError, match="name"):
        install_plugin(str(source), home, plugin="../evil")


@pytest.mark.parametrize(
    "place",
    [".github/plugin", ".plugin", ".claude-plugin", ".codex-plugin", ""],
)
def test_a_manifest_is_read_where_each_tool_has_it(home: str, source: Path, place: str) -> None:
    manifest = {"name": "own", "version": "2", "skills": ["./extra/greet/" if place == ".claude-plugin" else "extra/"]}
    tree(source, {f"{place}/plugin.json".lstrip("/"): json.dumps(manifest), "extra/greet/SKILL.md": SKILL})
    plugin = install_plugin(str(source), home).plugin
    assert (plugin.name, plugin.version, len(plugin.skill_dirs)) == ("own", "2", 1)


def test_a_plugin_json_of_something_else_is_no_manifest(home: str, source: Path) -> None:
    plugin_at(source)
    (source / "plugin.json").write_text('{"type": "panel", "id": "x"}')
    (source / "marketplace.json").write_text('{"items": []}')
    assert install_plugin(str(source), home).plugin.name == "sample"


@pytest.mark.parametrize("place", [".github/plugin", ".plugin", ".agents/plugins", ""])
def test_a_marketplace_is_read_where_each_tool_has_it(home: str, source: Path, place: str) -> None:
    plugins = [
        {"name": "one", "source": "one", "description": "First.", "version": "1"},
        {"name": "two", "source": {"source": "local", "path": "./plugins/two"}},
        {"name": "far", "source": {"source": "github", "repo": "some/where", "path": "plugins/far"}},
    ]
    market = {"name": "m", "metadata": {"pluginRoot": "./plugins"}, "plugins": plugins}
    shared = {"name": "one", "skills": ["./skills/greet/"], "agents": ["./agents/helper.md"]}
    tree(
        source,
        {
            f"{place}/marketplace.json".lstrip("/"): json.dumps(market),
            "plugins/one/.github/plugin/plugin.json": json.dumps(shared),
            "plugins/two/skills/other/SKILL.md": SKILL,
            "skills/greet/SKILL.md": SKILL,
            "skills/unrelated/SKILL.md": SKILL,
            "agents/helper.agent.md": "---\nname: helper\ndescription: Helps.\n---\nHelp.\n",
        },
    )
    with pytest.raises(UsageError, match="available plugins: far, one, two") as caught:
        install_plugin(str(source), home)
    assert "--plugin NAME" in caught.value.fix
    with pytest.raises(NotFoundError, match="no plugin named 'x'") as missing:
        install_plugin(str(source), home, plugin="x")
    assert "--plugin NAME" in missing.value.fix
    with pytest.raises(UsageError, match=r"https://github.com/some/where \(directory plugins/far\)"):
        install_plugin(str(source), home, plugin="far")
    one = install_plugin(str(source), home, plugin="one").plugin
    assert sorted(snapshot(Path(one.path))) == [
        ".github/plugin/plugin.json",
        "agents/helper.agent.md",
        "skills/greet/SKILL.md",
    ]
    assert (one.version, one.description, len(one.agent_paths)) == ("1", "First.", 1)
    assert install_plugin(str(source), home, plugin="two").plugin.name == "two"


def test_the_only_plugin_of_a_marketplace_needs_no_name(home: str, source: Path) -> None:
    plugin_at(source / "only", "only")
    tree(source, {".github/plugin/marketplace.json": '{"plugins": [{"name": "only", "source": "./only"}]}'})
    plugin = install_plugin(str(source), home).plugin
    assert (plugin.name, plugin.source) == ("only", f"{source}#only")


@pytest.mark.parametrize(
    ("source", "url"),
    [
        ("https://x.example/p.zip", "https://x.example/p.zip"),
        ("github:some/where", "https://github.com/some/where"),
        ("npm:@some/package", "npm pack @some/package, then: kitbag plugins install ARCHIVE.tgz"),
        ("some/where", "git clone https://github.com/some/where && kitbag plugins install where"),
        ("git@x.example:some/where.git", "git clone git@x.example:some/where.git && kitbag plugins install where"),
        ("ext::sh -c id.git://x.git", "download ext::sh -c id.git://x.git"),
    ],
)
def test_a_remote_source_is_named_by_its_url(home: str, source: str, url: str) -> None:
    with pytest.raises(KitbagError) as caught:
        install_plugin(source, home)
    assert url in caught.value.fix


def test_choosing_from_what_is_no_marketplace_is_an_error(home: str, source: Path) -> None:
    with pytest.raises(UsageError, match="not a marketplace"):
        install_plugin(str(plugin_at(source)), home, plugin="sample")


# --- updating, enabling, removing -----------------------------------------------------------------


def test_an_update_of_prose_keeps_the_plugin_enabled(home: str, source: Path) -> None:
    install_plugin(str(plugin_at(source, **{"README.md": "old"})), home)
    tree(
        source,
        {"README.md": "new", "skills/greet/SKILL.md": SKILL + "More.\n", "skills/greet/references/x.md": "x"},
    )
    result = install_plugin(str(source), home, update=True)
    assert result.updated
    assert result.changed == ()
    assert result.plugin.enabled
    assert Path(result.plugin.path, "README.md").read_text() == "new"
    assert verify_plugin(home, "sample") == []


ACTING = {
    "command in a skill": {"skills/greet/SKILL.md": ACTING_SKILL},
    "command block": {"skills/greet/SKILL.md": SKILL + "\n```!\nls\n```\n"},
    "allowed tools": {"skills/greet/SKILL.md": SKILL.replace("name:", "allowed-tools: Bash(*)\nname:")},
    "escaped key": {"skills/greet/SKILL.md": SKILL.replace("name:", '"allowed-\\x74ools": Bash\nname:')},
    "utf-16": {"skills/greet/SKILL.md": "\0"},
    "hooks": {"hooks/hooks.json": "{}"},
    "servers": {".mcp.json": "{}"},
    "script": {"skills/greet/run.py": "print()"},
    "script without suffix": {"skills/greet/run": "echo"},
    "unknown format": {"data.bin": "x"},
    "manifest": {".claude-plugin/plugin.json": '{"name": "sample", "hooks": "./h"}'},
}


@pytest.mark.parametrize("case", ACTING)
def test_an_update_of_what_can_act_disables_the_plugin_until_it_is_approved(home: str, source: Path, case: str) -> None:
    install_plugin(str(plugin_at(source)), home)
    tree(source, ACTING[case])
    result = install_plugin(str(source), home, update=True)
    path = next(iter(ACTING[case]))
    mark = "~" if path.startswith(".claude-plugin") else "+"
    assert [str(change) for change in result.changed] == [f"{mark} {path}"]
    assert not result.plugin.enabled
    assert not load_installed(home)[0][0].enabled
    assert set_plugin_enabled(home, "sample", True).enabled
    assert load_installed(home)[0][0].enabled
    again = install_plugin(str(source), home, update=True)
    assert again.changed == ()
    assert again.plugin.enabled


def test_what_can_act_and_goes_away_or_changes_is_named(home: str, source: Path) -> None:
    files = {
        "skills/a/SKILL.md": ACTING_SKILL,
        "skills/b/run.sh": "one",
        "agents/x.md": "---\ntools: Read\n---\nBody",
    }
    install_plugin(str(plugin_at(source, **files)), home)
    (source / "skills/b/run.sh").unlink()
    tree(
        source,
        {"skills/a/SKILL.md": ACTING_SKILL + "more", "agents/x.md": "---\ntools: Read\n---\nOther body"},
    )
    (source / "skills/greet/SKILL.md").chmod(0o755)
    result = install_plugin(str(source), home, update=True)
    assert [str(change) for change in result.changed] == [
        "~ skills/a/SKILL.md",
        "- skills/b/run.sh",
        "+ skills/greet/SKILL.md",
    ]


def test_a_plugin_that_was_disabled_stays_disabled_after_an_update(home: str, source: Path) -> None:
    install_plugin(str(plugin_at(source)), home)
    set_plugin_enabled(home, "sample", False)
    assert not install_plugin(str(source), home, update=True).plugin.enabled


def test_a_plugin_that_is_off_by_default_is_installed_disabled(home: str, source: Path) -> None:
    tree(source, {".claude-plugin/plugin.json": '{"name": "off", "defaultEnabled": false}'})
    assert not install_plugin(str(source), home).plugin.enabled


def test_files_changed_after_the_installation_are_found_and_not_enabled_unseen(home: str, source: Path) -> None:
    path = Path(install_plugin(str(plugin_at(source, **{"run.sh": "one"})), home).plugin.path)
    (path / "run.sh").write_text("two")
    (path / "added.py").write_text("x")
    (path / "link").symlink_to("/etc/passwd")
    tree(path, {"skills/greet/__pycache__/x.pyc": "compiled"})
    assert [str(change) for change in verify_plugin(home, "sample")] == ["+ added.py", "+ link", "~ run.sh"]
    set_plugin_enabled(home, "sample", False)
    with pytest.raises(InvalidError, match=r"added\.py"):
        set_plugin_enabled(home, "sample", True)
    assert not load_installed(home)[0][0].enabled
    assert set_plugin_enabled(home, "sample", True, accept=True).enabled
    assert verify_plugin(home, "sample") == []
    (path / "skills/greet/SKILL.md").write_text(SKILL + "prose")
    assert [str(change) for change in verify_plugin(home, "sample")] == ["~ *"]


def test_removing_takes_the_directory_and_the_entry(home: str, source: Path, tmp_path: Path) -> None:
    install_plugin(str(plugin_at(source)), home)
    install_plugin(str(plugin_at(tmp_path / "other", "other")), home)
    remove_plugin(home, "SAMPLE")
    assert [plugin.name for plugin in load_installed(home)[0]] == ["other"]
    assert sorted(os.listdir(Path(home, "plugins"))) == [".lock", "other", "plugins.lock.json"]
    assert "sample" not in Path(home, "plugins", "plugins.lock.json").read_text()
    assert (source / "skills/greet/SKILL.md").read_text() == SKILL


def test_an_unknown_name_is_not_found_with_close_ones(home: str, source: Path) -> None:
    for change in (remove_plugin, verify_plugin):
        with pytest.raises(NotFoundError):
            change(home, "sample")
    assert not Path(home).exists()
    install_plugin(str(plugin_at(source)), home)
    for change in (remove_plugin, verify_plugin):
        with pytest.raises(NotFoundError) as caught:
            change(home, "sampel")
        assert "sample" in caught.value.fix


def test_a_directory_that_somebody_deleted_is_reported_and_can_be_removed(
    home: str, source: Path, tmp_path: Path
) -> None:
    install_plugin(str(plugin_at(source)), home)
    install_plugin(str(plugin_at(tmp_path / "other", "other")), home)
    Path(home, "plugins", "sample").rename(tmp_path / "gone")
    assert codes(load_installed(home)[1]) == ["plugin-missing"]
    remove_plugin(home, "sample")
    assert load_installed(home)[1] == []


def test_the_lock_file_is_whole_on_the_disk_before_it_takes_the_old_one_s_place(
    home: str, source: Path, disk: Disk
) -> None:
    install_plugin(str(plugin_at(source)), home)
    set_plugin_enabled(home, "sample", False)
    steps = disk.steps(Path(home, "plugins", "plugins.lock.json"), Path(home, "plugins"))
    assert steps[-3:] == ["plugins.lock.json synced", "plugins.lock.json renamed", "plugins synced"]


# --- several processes, and killed ones -----------------------------------------------------------

# Kills a child before its n-th change of the file system, for every n, and reports what is left each time.
KILLED = """
import json, os, shutil, signal, sys
from kitbag.library.agents import read_agent
from kitbag.library.plugins.installed import load_installed
from kitbag.library.plugins.store import install_plugin, remove_plugin, verify_plugin
import ctypes, difflib, fcntl, hashlib, tarfile, tempfile, zipfile

first, second, home, what = sys.argv[1:]
EVENTS = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.chmod", "ctypes.dlsym"}

def child(after):
    count = 0
    def hook(event, args):
        nonlocal count
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        if event in EVENTS or writes:
            count += 1
            if count == after:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    if what == "remove":
        remove_plugin(home, "sample")
    else:
        install_plugin(second, home, update=True)
    os._exit(0)

answers = []
for after in range(1, 500):
    shutil.rmtree(home, ignore_errors=True)
    if first:
        install_plugin(first, home)
    pid = os.fork()
    if pid == 0:
        try:
            child(after)
        finally:
            os._exit(3)
    status = os.waitpid(pid, 0)[1]
    plugins, diagnostics = load_installed(home)
    state = [[p.version, p.enabled, [str(c) for c in verify_plugin(home, p.name)]] for p in plugins]
    again = install_plugin(second, home, update=True)
    left = [name for name in os.listdir(home + "/plugins") if name.startswith((".staging", ".plugins"))]
    good = not left and again.plugin.version == "2.0.0" and verify_plugin(home, "sample") == []
    answers.append([os.WIFSIGNALED(status), state, good, [d.code for d in diagnostics]])
    if not os.WIFSIGNALED(status):
        assert status == 0, status
        break
print(json.dumps(answers))
"""


def killed_everywhere(
    first: str, second: str, home: str, what: str
) -> list[tuple[bool, list[object], bool, list[str]]]:
    arguments = [sys.executable, "-c", KILLED, first, second, home, what]
    run = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    answers = json.loads(run.stdout)
    assert len(answers) > 5
    assert not answers[-1][0]
    assert all(good for _, _, good, _ in answers)
    return answers


def archived(path: Path) -> str:
    archive = path.with_suffix(".tar.gz")
    with tarfile.open(archive, "w:gz") as out:
        out.add(path, arcname=".")
    return str(archive)


@pytest.mark.parametrize("pack", sample([str, archived], 1))
def test_an_update_killed_anywhere_leaves_the_old_or_the_new_plugin_whole(
    home: str, tmp_path: Path, pack: type[str]
) -> None:
    first = plugin_at(tmp_path / "v1", version="1.0.0", **{"run.sh": "one"})
    second = plugin_at(tmp_path / "v2", version="2.0.0", **{"run.sh": "two", "extra.sh": "more"})
    states = [state for _, state, _, _ in killed_everywhere(str(first), pack(second), home, "update")]
    old, new = [["1.0.0", True, []]], [["2.0.0", False, []]]
    assert all(state in (old, new) for state in states), states
    assert states[0] == old
    assert states[-1] == new
    assert states == sorted(states)


def test_a_first_installation_killed_anywhere_leaves_nothing_or_all(home: str, tmp_path: Path) -> None:
    second = plugin_at(tmp_path / "v2", version="2.0.0", **{"run.sh": "two"})
    answers = killed_everywhere("", str(second), home, "install")
    assert all(state in ([], [["2.0.0", True, []]]) for _, state, _, _ in answers), answers
    assert all(diagnostics == [] for _, _, _, diagnostics in answers)


def test_a_removal_killed_anywhere_leaves_the_plugin_whole_or_not_listed(home: str, tmp_path: Path) -> None:
    first = plugin_at(tmp_path / "v1", version="1.0.0")
    second = plugin_at(tmp_path / "v2", version="2.0.0")
    answers = killed_everywhere(str(first), str(second), home, "remove")
    assert all(state in ([], [["1.0.0", True, []]]) for _, state, _, _ in answers), answers


def test_an_update_interrupted_between_two_renames_is_taken_back(home: str, source: Path, tmp_path: Path) -> None:
    """Where a system can't exchange two directories, the old one is moved away first."""
    install_plugin(str(plugin_at(source)), home)
    base = Path(home, "plugins")
    staging = base / ".staging-left"
    (staging / "new").mkdir(parents=True)
    lock = json.loads((base / "plugins.lock.json").read_text())
    record = lock["plugins"]["sample"]
    lock["plugins"]["sample"] = {
        **record,
        "pending": {
            "inode": (staging / "new").stat().st_ino,
            "was": (base / "sample").stat().st_ino,
            "staging": ".staging-left",
            "record": {**record, "version": "2.0.0", "digest": "sha256:other"},
        },
    }
    (base / "plugins.lock.json").write_text(json.dumps(lock))
    (base / "sample").rename(staging / "old")
    install_plugin(str(plugin_at(tmp_path / "other", "other")), home)
    plugins, diagnostics = load_installed(home)
    assert diagnostics == []
    assert [(plugin.name, plugin.version, plugin.enabled) for plugin in plugins] == [
        ("other", "1.0.0", True),
        ("sample", "1.0.0", True),
    ]
    assert verify_plugin(home, "sample") == []
    assert not staging.exists()


def test_a_directory_that_is_neither_the_old_nor_the_announced_one_is_disabled(home: str, source: Path) -> None:
    install_plugin(str(plugin_at(source)), home)
    base = Path(home, "plugins")
    lock = json.loads((base / "plugins.lock.json").read_text())
    record = lock["plugins"]["sample"]
    pending = {"inode": 1, "was": 2, "staging": ".staging-left", "record": record}
    lock["plugins"]["sample"] = {**record, "pending": pending}
    (base / "plugins.lock.json").write_text(json.dumps(lock))
    assert [plugin.enabled for plugin in load_installed(home)[0]] == [False]


@long
def test_many_processes_that_install_at_once_all_succeed(home: str, tmp_path: Path) -> None:
    code = "import sys\nfrom kitbag.library.plugins.store import install_plugin\ninstall_plugin(sys.argv[1], sys.argv[2])\n"
    names = [f"plugin-{number}" for number in range(8)]
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(plugin_at(tmp_path / name, name)), home]) for name in names
    ]
    assert [process.wait(timeout=TEST_TIMEOUT) for process in running] == [0] * 8
    plugins, diagnostics = load_installed(home)
    assert diagnostics == []
    assert [(plugin.name, plugin.enabled) for plugin in plugins] == [(name, True) for name in names]
