"""SECURITY.md D06 to D26: what a session may do, under hostile paths, commands, rules and modes.

Big tables are decided in this process by what `kitbag permissions test` calls; one of each kind goes through the program.
Tools come with the loop; what they ask is `decide`, and what they open is `beneath`.
"""

import contextlib
import json
import os
import socket
import threading
import time
from pathlib import Path

import pytest

from behaviour.acting import MODES, SILENT, UNHELD, bash, effects, on_path, permissions, refused
from conftest import World
from kitbag.library.modes import Mode
from kitbag.library.tool_names import parse_tools
from kitbag.permissions.beneath import BeneathError, open_to_read, write_file
from kitbag.permissions.decide import Permissions, child_mode
from kitbag.permissions.narrowing import grants_of

FILE_TOOLS = ("Read", "Write", "Edit", "NotebookEdit", "Glob", "Grep")
HANG = 5.0
"""A guard against hanging, not a measure: bench/permissions.py measures."""


def program(world: World, use: str, *options: str) -> str:
    """What the program itself says: allow, ask or deny."""
    done = world.run("permissions", "test", use, *options)
    return {0: "allow", 1: "ask", 6: "deny"}[done.returncode]


# --- paths -----------------------------------------------------------------------------------------------------------


def outside_paths(world: World) -> list[str]:
    sibling = world.workspace.parent / "workspace-evil"
    sibling.mkdir(exist_ok=True)
    (sibling / "x").write_text("x")
    (world.workspace / "sub").mkdir(exist_ok=True)
    root = str(world.workspace)
    return [
        f"{sibling}/x", f"{sibling}", f"{root}/../workspace-evil/x", f"/{root}/../workspace-evil//x", f"{root}/./../workspace-evil/x",
        f"{root}/sub/../../workspace-evil/x", "../workspace-evil/x", "sub/../../workspace-evil/x", f"{root}-evil/x", "~/x", "~",
        f"{root}/..", "..", "/", "//", "/etc/hostname", f"{world.outside}/x", "~root/x", f"{root}\u200b/x", f"{root} /x",
    ]  # fmt: skip


def test_D06_what_only_looks_inside_is_outside_for_every_tool(world: World) -> None:
    for mode in MODES:
        made = permissions(world, mode)
        for path in outside_paths(world):
            for tool in FILE_TOOLS:
                judged = on_path(made, tool, path)
                assert judged.effect in ("deny", refused(mode)), (mode, tool, path)
            for command in (f"cat '{path}'", f"echo x > '{path}'", f"ls < '{path}'", f"cp sub '{path}'"):
                wanted = ("deny", "allow") if mode == "autonomous" else ("deny", refused(mode))
                assert bash(made, command).effect in wanted if "~" not in path else True, (mode, command)


def test_D06_the_program_says_the_same(world: World) -> None:
    outside_paths(world)
    assert program(world, "Read(../workspace-evil/x)") == "ask"
    assert program(world, "Write(../workspace-evil/x)", "--permission-mode", "acceptEdits") == "ask"
    assert program(world, "Edit(../workspace-evil/x)", "--permission-mode", "autonomous") == "deny"
    assert program(world, "Read(../workspace-evil/x)", "--permission-mode", "plan") == "deny"
    assert program(world, "Read(sub/x)") == "allow"


@pytest.mark.parametrize("named", ["link", "target", "folder-link", "on-the-way"])
def test_D07_a_rule_denies_a_link_by_each_of_its_names(world: World, named: str) -> None:
    secret = world.write("secret", "s", world.outside)
    os.symlink(secret, world.workspace / "second")
    os.symlink("second", world.workspace / "link")
    os.symlink(world.outside, world.workspace / "folder")
    rule = {
        "link": "Read(./link)",
        "target": f"Read(/{secret})",
        "folder-link": f"Read(/{world.outside}/**)",
        "on-the-way": "Read(./second)",
    }[named]
    # However much is allowed, and whoever allowed it.
    made = permissions(world, "autonomous", allow=("Read(//**)", "Edit(//**)", "Bash"), deny=(rule,))
    for tool in ("Read", "Write", "Edit", "Grep"):
        assert on_path(made, tool, "link").effect == "deny", tool
    for command in ("cat link", "cat ./link", "cat < link", "echo x > link", "grep x link", "cp link x", "head -1 sub/../link"):
        assert bash(made, command).effect == "deny", command
    if named in ("target", "folder-link"):
        assert on_path(made, "Read", "folder/secret").effect == "deny"


def test_D07_a_search_is_denied_where_all_it_finds_is_denied(world: World) -> None:
    os.symlink(world.outside, world.workspace / "folder")
    made = permissions(world, allow=("Read(//**)",), deny=(f"Read(/{world.outside}/**)",))
    for place in ("folder", str(world.outside), "./folder/"):
        for tool in ("Glob", "Grep"):
            assert on_path(made, tool, place).effect == "deny", (tool, place)


def test_D08_nothing_is_written_below_a_link_that_leads_out(world: World) -> None:
    existing = world.write("existing", "before", world.outside)
    os.symlink(world.outside, world.workspace / "d")
    os.symlink("d", world.workspace / "e")
    os.symlink("../outside/planted", world.workspace / "dangling")
    made = permissions(world, "acceptEdits")
    for path in ("d/new.txt", "d/existing", "e/new", "d/sub/deep/new", "dangling", "d/../outside/new", "e/../new"):
        for tool in ("Write", "Edit"):
            judged = on_path(made, tool, path)
            assert judged.effect == "ask", path
            assert "leads out of the workspace" in judged.reason, path
        assert bash(made, f"echo x > {path}").effect == "ask", path
        with pytest.raises(BeneathError, match="outside the workspace"):
            write_file(path, b"x", made.workspace)
    done = world.run("permissions", "test", "Write(d/new.txt)", "--permission-mode", "acceptEdits")
    assert (done.returncode, "it leads out of the workspace" in done.stdout) == (1, True)
    assert os.listdir(world.outside) == ["existing"]
    assert existing.read_text() == "before"


def test_D09_no_write_gets_out_while_a_folder_and_a_link_change_places(world: World) -> None:
    made = permissions(world, "acceptEdits")
    place, real, link = world.workspace / "d", world.workspace / "real", world.workspace / "lnk"
    real.mkdir()
    os.symlink(world.outside, link)
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            for path in (real, link):
                with contextlib.suppress(OSError):
                    path.rename(place)
                    place.rename(path)

    thread = threading.Thread(target=swap)
    thread.start()
    written = 0
    try:
        for _ in range(2000):
            # As a tool does it: judged, then opened where the judgement said.
            if on_path(made, "Write", "d/f").effect == "allow":
                with contextlib.suppress(BeneathError):
                    write_file("d/f", b"x", made.workspace)
                    written += 1
    finally:
        done.set()
        thread.join()
    assert os.listdir(world.outside) == []
    assert written >= 0


CONTROL = [
    ".git/hooks/pre-commit", ".git/config", ".git", ".git/info/attributes", ".gitmodules", ".kitbag/settings.toml", ".kitbag/skills/x/SKILL.md",
    ".kitbag/agents/x.md", ".kitbag/commands/x.md", ".claude/settings.json", ".claude/settings.local.json", ".claude/skills/x/SKILL.md",
    ".claude/agents/x.md", ".claude/commands/x.md", ".codex/config.toml", ".gemini/settings.json", ".opencode/plugin/x.js", ".cursor/mcp.json",
    ".agents/skills/x/SKILL.md", ".github/agents/x.md", ".github/skills/x/SKILL.md", ".github/copilot-instructions.md", ".github/hooks/x.json",
    ".github/workflows/ci.yml", ".mcp.json", "opencode.json", "opencode.jsonc", ".vscode/tasks.json", ".vscode/settings.json", ".idea/workspace.xml",
    ".zed/tasks.json", ".devcontainer/devcontainer.json", ".husky/pre-commit", ".envrc", ".pre-commit-config.yaml", ".npmrc", ".yarnrc", ".yarnrc.yml",
    ".tool-versions", ".mise.toml", ".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv", ".inputrc", "sub/.git/hooks/x", "sub/.mcp.json",
    "sub/deep/.vscode/tasks.json", "sub/.envrc", "node_modules/x/.npmrc", "~/.bashrc", "~/.zshenv", "~/.profile", "~/.ssh/authorized_keys",
    "~/.gitconfig", "~/.config/git/config", "~/.config/fish/config.fish", "~/.config/autostart/x.desktop", "~/.config/systemd/user/x.service",
    "~/.kitbag/settings.toml", "~/.kitbag/trust.json", "~/.local/bin/ls", "~/bin/ls", "/etc/cron.d/x", "/etc/profile.d/x.sh", "/var/spool/cron/x",
]  # fmt: skip
SPELLINGS = [
    "{path}", "./{path}", "sub/../{path}", ".//{path}", "{upper}", "{path}.", "{root}/{path}", "./sub/.././{path}",
]  # fmt: skip


def test_D11_control_paths_are_never_changed_without_an_answer(world: World) -> None:
    for mode in MODES:
        made = permissions(world, mode, allow=("Edit", "Edit(**)", "Edit(./**)", "Write(*)"))
        for path in CONTROL:
            for shape in SPELLINGS if not path.startswith(("~", "/")) else ["{path}"]:
                spelled = shape.format(path=path, upper=path.upper(), root=world.workspace)
                for tool in ("Write", "Edit", "NotebookEdit"):
                    assert on_path(made, tool, spelled).effect == refused(mode), (mode, tool, spelled)


def test_D11_nor_by_a_command_that_names_them(world: World) -> None:
    shapes = ["echo x > {path}", "echo x >> {path}", "tee {path}", "touch {path}", "cp a {path}", "mv a {path}", "sed -i s/a/b/ {path}",
              "cat a >| {path}", "mkdir -p {path}", ": &> {path}", "true 2> {path}", "cat <<'E' > {path}\nx\nE"]  # fmt: skip
    for mode in ("default", "acceptEdits", "locked"):
        for allow in ((), ("Bash(echo:*)", "Bash(tee:*)", "Bash(touch:*)", "Bash(cp:*)", "Bash(cat:*)", "Bash(sed:*)", "Edit")):
            made = permissions(world, mode, allow=allow)
            for path in CONTROL:
                for shape in shapes:
                    assert bash(made, shape.format(path=path)).effect == refused(mode), (mode, shape, path)


@pytest.mark.parametrize("command", [
    "cd .git/hooks && echo x > post-commit", "cd .git; cd hooks; echo x > post-commit", "cd .git && tee config", "(cd .git/hooks; touch x)",
    "cd sub && echo x > ../.git/config", "cd sub && cd .. && touch .mcp.json", "cd .claude && touch settings.json", "pushd .git && touch config",
    "cd .git &&\necho x > config", "cd .g*t && touch config", "cd $D && touch config", "for d in .git; do touch $d/config; done", "d=.git; touch $d/config",
    "touch .g{it,x}/config", "touch .gi?/config", "touch .[g]it/config", "touch '.git'/config", 'touch ".git"/con"fig"', "touch .g\\it/config",
    "touch $'.git/config'", "touch $'.\\x67it/config'", "git config core.pager id", "git config --global core.pager id", "git init", "git init sub",
    "git clone x .", "git submodule add x", "git worktree add ../x", "ln -s .git g", "ln -s ~/.bashrc notes", "ln .git/config c", "mv .git .git2",
    "mv sub .git", "rm -rf .git", "chmod +x .git/hooks/x", "install x .git/hooks/", "rsync -a x/ .git/", "dd of=.git/config", "tar xf x.tar",
    "unzip x.zip", "patch -p1 < x", "git apply x", "git checkout x -- .mcp.json", "npm install", "python3 -c \"open('.mcp.json','w')\"", "make",
    "curl -o .mcp.json x", "wget -O .mcp.json x", "truncate -s0 .git/config", "cp -t .git/hooks x", "cp --target-directory=.git x",
    "find . -fprint .git/config", "sort -o .git/config x", "sed -n 'w .git/config' x", "awk '{print > \".git/config\"}' x", "tee -- .git/config",
    "xargs touch < names", "cat x | xargs tee", "echo x | sh", "exec > .git/config", "exec 3<> .git/config",
])  # fmt: skip
def test_D11_nor_by_one_that_hides_them(world: World, command: str) -> None:
    (world.workspace / "sub").mkdir()
    for mode in ("default", "acceptEdits"):
        assert bash(permissions(world, mode, allow=("Edit",)), command).effect in ("ask", "deny"), mode
    assert bash(permissions(world, "locked", allow=("Edit",)), command).effect == "deny"
    # Where no sandbox holds control paths, nothing is let through to find out.
    assert bash(permissions(world, "autonomous", protection=UNHELD), command).effect == "deny"


def test_D11_a_rule_opens_the_control_path_it_names_and_no_other(world: World) -> None:
    made = permissions(world, "acceptEdits", allow=("Edit(.vscode/**)",))
    assert on_path(made, "Write", ".vscode/tasks.json").effect == "allow"
    for path in (".git/config", ".vscode/../.git/config", "sub/.idea/x", ".vscode/.git/config", "~/.vscode/x"):
        assert on_path(made, "Write", path).effect == "ask", path


def test_D11_what_people_edit_daily_is_ordinary(world: World) -> None:
    made = permissions(world, "acceptEdits")
    for path in ("src/a.py", "README.md", "CLAUDE.md", "AGENTS.md", "package.json", "Makefile", ".gitignore", ".gitattributes", ".github/CODEOWNERS",
                 "docs/.gitkeep", ".eslintrc", "git/config", "sub/claude/x", "hooks/pre-commit", "x.git.py"):  # fmt: skip
        assert on_path(made, "Write", path).effect == "allow", path


def test_D12_what_is_no_file_is_never_read_or_written(world: World) -> None:
    os.mkfifo(world.workspace / "pipe")
    os.symlink("/dev/zero", world.workspace / "zero")
    os.symlink("/proc/self/environ", world.workspace / "environ")
    os.symlink("loop", world.workspace / "loop")
    listener = socket.socket(socket.AF_UNIX)
    os.chdir(world.workspace)  # a socket's path may not be long
    listener.bind("socket")
    paths = ["pipe", "zero", "environ", "socket", "/dev/zero", "/dev/sda", "/dev/tty", "/proc/self/environ", "/proc/1/mem", "/sys/kernel/x",
             "/proc/self/root/etc/passwd", "/proc/self/cwd/a", "/dev/fd/0", "//proc/self/environ", "/proc/../proc/self/maps", "loop", "a\0b",
             "x" * 5000, "y" * 300, "\udcff\ud800"]  # fmt: skip
    try:
        for mode in MODES:
            made = permissions(world, mode, allow=("Read", "Read(//**)", "Edit(//**)"))
            for path in paths:
                started = time.monotonic()
                for tool in ("Read", "Write", "Edit"):
                    assert on_path(made, tool, path).effect == "deny", (mode, tool, path)
                with pytest.raises(BeneathError):
                    open_to_read(path, made.workspace)
                assert time.monotonic() - started < HANG, path
    finally:
        listener.close()
    assert program(world, "Read(/proc/self/environ)") == "deny"


def test_D12_a_huge_sparse_file_opens_at_once(world: World) -> None:
    huge = world.workspace / "huge"
    with huge.open("wb") as file:
        file.truncate(5 << 30)
    made = permissions(world)
    assert on_path(made, "Read", "huge").effect == "allow"
    descriptor = open_to_read("huge", made.workspace)
    assert os.fstat(descriptor).st_size == 5 << 30
    os.close(descriptor)


def test_D13_no_argument_of_a_model_opens_another_root(world: World) -> None:
    os.symlink(world.outside, world.workspace / "link")
    places = [str(world.outside), "/", "..", "~", "link", "../outside", "/etc", f"{world.workspace}/..", ["/"], 7, {"a": 1}, "a\0b"]
    for mode in MODES:
        made = permissions(world, mode)
        for place in places:
            for key in ("cwd", "directory", "workdir", "working_directory"):
                effect = bash(made, "touch x", **{key: place}).effect
                assert effect in ("deny", refused(mode)), (mode, key, place)
                if mode != "autonomous":
                    assert bash(made, "cat x", **{key: place}).effect in ("deny", refused(mode)), (mode, key, place)
            for tool in ("Glob", "Grep"):
                assert made.decide(tool, {"pattern": "x", "path": place}).effect in ("deny", refused(mode)), (tool, place)
        for pattern in ("/etc/*", "../*", "~/*", "link/*", "*/../../*", "{/etc,a}/*", "{..,a}/x", f"{world.outside}/**"):
            assert made.decide("Glob", {"pattern": pattern}).effect == refused(mode), (mode, pattern)
            assert made.decide("Grep", {"pattern": "x", "glob": pattern}).effect == refused(mode), (mode, pattern)
        assert made.workspace.write_roots == (str(world.workspace.resolve()),)
        child = made.narrowed(parse_tools("Bash, Write", "kitbag")[0], "child.md").in_mode(child_mode(mode, "autonomous"))
        assert child.workspace == made.workspace
    directory = world.run("permissions", "test", "Bash", "--input", json.dumps({"command": "cat x", "cwd": "/etc"}))
    assert directory.returncode == 1
