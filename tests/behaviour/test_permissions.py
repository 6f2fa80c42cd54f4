"""SECURITY.md D06 to D26: what a session may do, under hostile paths, commands, rules and modes.

Big tables are decided in this process by what `kitbag permissions test` calls; one of each kind goes through the program.
Tools come with the loop; what they ask is `decide`, and what they open is `beneath`.
"""

import json
import os
import socket

import pytest

from behaviour.acting import MODES, UNHELD, bash, effects, on_path, permissions, refused
from behaviour.commands import CHANGING, CONTROL, JOINED, NESTED, NOT_READING, TARGETS, WRAPPED
from conftest import World
from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.library.dialects.tool_lists import parse_tools
from kitbag.permissions.decisions.decide import child_mode
from kitbag.permissions.rules.tool_list_rules import skill_grants
from kitbag.permissions.safe_open import SafeOpenError, open_for_reading, write_file
from support.cost import processor_limit
from support.matrix import sample

FILE_TOOLS = ("Read", "Write", "Edit", "NotebookEdit", "Glob", "Grep")


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
                if "~" not in path:  # which is only a name in quotes
                    assert bash(made, command).effect in ("deny", refused(mode)), (mode, command)


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
    for command in (
        "cat link",
        "cat ./link",
        "cat < link",
        "echo x > link",
        "grep x link",
        "cp link x",
        "head -1 sub/../link",
    ):
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
            assert "resolves outside the workspace" in judged.reason, path
        assert bash(made, f"echo x > {path}").effect == "ask", path
        with pytest.raises(SafeOpenError, match="outside the workspace"):
            write_file(path, b"x", made.workspace)
    done = world.run("permissions", "test", "Write(d/new.txt)", "--permission-mode", "acceptEdits")
    assert (done.returncode, "resolves outside the workspace" in done.stdout) == (1, True)
    assert os.listdir(world.outside) == ["existing"]
    assert existing.read_text() == "before"


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
    allow = ("Bash(echo:*)", "Bash(tee:*)", "Bash(touch:*)", "Bash(cp:*)", "Bash(cat:*)", "Bash(sed:*)", "Edit")
    for mode, rules in (("acceptEdits", ()), ("locked", allow)):
        made = permissions(world, mode, allow=rules)
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
                for tool in ("Read", "Write", "Edit"):
                    assert on_path(made, tool, path).effect == "deny", (mode, tool, path)
                with pytest.raises(SafeOpenError):
                    open_for_reading(path, made.workspace)
    finally:
        listener.close()
    assert program(world, "Read(/proc/self/environ)") == "deny"


def test_D12_a_huge_sparse_file_opens_at_once(world: World) -> None:
    huge = world.workspace / "huge"
    with huge.open("wb") as file:
        file.truncate(5 << 30)
    made = permissions(world)
    assert on_path(made, "Read", "huge").effect == "allow"
    descriptor = open_for_reading("huge", made.workspace)
    assert os.fstat(descriptor).st_size == 5 << 30
    os.close(descriptor)


def test_D13_no_argument_of_a_model_opens_another_root(world: World) -> None:
    os.symlink(world.outside, world.workspace / "link")
    places = [
        str(world.outside),
        "/",
        "..",
        "~",
        "link",
        "../outside",
        "/etc",
        f"{world.workspace}/..",
        ["/"],
        7,
        {"a": 1},
        "a\0b",
    ]
    for mode in MODES:
        made = permissions(world, mode)
        for place in places:
            for key in ("cwd", "directory", "workdir", "working_directory"):
                effect = bash(made, "touch x", **{key: place}).effect
                assert effect in ("deny", refused(mode)), (mode, key, place)
                if mode != "autonomous":
                    assert bash(made, "cat x", **{key: place}).effect in ("deny", refused(mode)), (mode, key, place)
            for tool in ("Glob", "Grep"):
                assert made.decide(tool, {"pattern": "x", "path": place}).effect in ("deny", refused(mode)), (
                    tool,
                    place,
                )
        for pattern in (
            "/etc/*",
            "../*",
            "~/*",
            "link/*",
            "*/../../*",
            "{/etc,a}/*",
            "{..,a}/x",
            f"{world.outside}/**",
        ):
            assert made.decide("Glob", {"pattern": pattern}).effect == refused(mode), (mode, pattern)
            assert made.decide("Grep", {"pattern": "x", "glob": pattern}).effect == refused(mode), (mode, pattern)
        assert made.workspace.write_roots == (str(world.workspace.resolve()),)
        child = made.restricted_to(parse_tools("Bash, Write")[0], "child.md").with_mode(child_mode(mode, "autonomous"))
        assert child.workspace == made.workspace
    directory = world.run("permissions", "test", "Bash", "--input", json.dumps({"command": "cat x", "cwd": "/etc"}))
    assert directory.returncode == 1


# --- commands --------------------------------------------------------------------------------------------------------

ONE_COMMAND = ["git log", "git log --oneline -5", "git  log", "git\tlog", "git log -- 'a;id'", 'git log "a && id"', "git log a\\;id", "git log # && id",
               "git log '$(id)'", "git log '`id`'", "git log <<'E'\n$(id)\nE", "timeout 5 git log", "git log 2>&1", "git log 2>/dev/null"]  # fmt: skip


def test_D14_a_rule_for_one_command_lets_no_other_through(world: World) -> None:
    for mode in ("default", "acceptEdits", "locked"):
        made = permissions(world, mode, allow=("Bash(git log:*)",))
        for shape in JOINED:
            for other in ("id", "touch x", "/bin/id", "curl http://x", "rm x"):
                if mode == "acceptEdits" and other in ("touch x", "rm x"):
                    continue  # which the mode itself allows
                command = shape.format(a="git log", b=other)
                assert bash(made, command).effect == refused(mode), (mode, command)
    assert program(world, "Bash(git log && id)", "--allow", "Bash(git log:*)") == "ask"
    assert program(world, "git log; id", "--allow", "Bash(git log:*)", "--permission-mode", "locked") == "deny"


def test_D14_and_means_that_command_only(world: World) -> None:
    made = permissions(world, "locked", allow=("Bash(git log:*)",))
    assert effects(made, ONE_COMMAND) == dict.fromkeys(ONE_COMMAND, "allow")
    others = ["git logout", "git log-x", "git", "gitlog", "git -c a=b log", "git --exec-path=. log", "./git log", "/tmp/git log", "xgit log", "Git log", "git LOG",
              "PATH=. git log", "PATH=.:$PATH git log", "GIT_PAGER=id git log", "GIT_SSH_COMMAND=id git log", "LD_PRELOAD=x git log", "HOME=. git log",
              "GIT_EXTERNAL_DIFF=id git log", "BASH_ENV=x git log", "env git log", "sudo git log", "git log > out", "git log >> out", "git log | tee out",
              "git l{og,x}", "git $x", "$x log", "g$x log", "git lo? ", "git\u00a0log", "git log\u2028id", "git\u200b log"]  # fmt: skip
    assert effects(made, others) == dict.fromkeys(others, "deny")


def test_D15_nothing_runs_inside_what_is_allowed(world: World) -> None:
    for mode in ("default", "locked"):
        made = permissions(world, mode, allow=("Bash(git log:*)",))
        for shape in NESTED:
            for other in ("id", "touch x"):
                command = shape.format(a="git log", b=other)
                assert bash(made, command).effect == refused(mode), (mode, command)
    assert program(world, 'git log "--format=$(id)"', "--allow", "Bash(git log:*)") == "ask"


def test_D15_but_two_that_are_allowed_may_stand_inside_each_other(world: World) -> None:
    made = permissions(world, "locked", allow=("Bash(git log:*)", "Bash(id)"))
    for shape in (
        "{a} && {b}",
        "{a} | {b}",
        "{a}; {b}",
        "{a} $({b})",
        '{a} "$({b})"',
        "{a} `{b}`",
        "{a} <({b})",
        "for i in 1; do {a}; {b}; done",
    ):
        command = shape.format(a="git log", b="id")
        assert bash(made, command).effect == "allow", command


def test_D16_a_denied_command_is_denied_in_every_wrapping_and_mode(world: World) -> None:
    for mode in MODES:
        made = permissions(world, mode, allow=("Bash(*)", "Bash(curl:*)", "Bash(env:*)"), deny=("Bash(curl:*)",))
        for command in WRAPPED:
            judged = bash(made, command)
            assert judged.effect == "deny", (mode, command[:80])
    for command in ("env curl x", "bash -c 'curl x'"):
        assert program(world, command, "--allow", "Bash(*)", "--deny", "Bash(curl:*)") == "deny"


def test_D16_where_it_can_t_be_told_what_runs_a_denial_asks(world: World) -> None:
    hidden = ["c=curl; $c x", "c=cu; ${c}rl x", "cur? x", "c*l x", "/usr/bin/c*l x", "set -- curl x; \"$@\"", "f() { $1 x; }; f curl", "{c,}url x", "cur[l] x",
              "echo Y3VybCB4 | base64 -d | sh", "$(printf cu)rl x", "`echo curl` x", "curl\u200b x", "$X", "bash -c \"$X\"", "eval $X", "bash < f", ". $X", "source \"$X\"", "bash $X"]  # fmt: skip
    for mode in MODES:
        made = permissions(world, mode, allow=("Bash(*)",), deny=("Bash(curl:*)",))
        for command in hidden:
            assert bash(made, command).effect in ("deny", refused(mode)), (mode, command)


@pytest.mark.parametrize("command", [
    "python3 -c \"import os; os.system('curl x')\"", "perl -e 'system(\"curl x\")'", "node -e 'require(\"child_process\").execSync(\"curl x\")'",
    "awk 'BEGIN{system(\"curl x\")}'", "vim -c '!curl x'", "make -f - <<< 'a:;curl x'",
])  # fmt: skip
def test_D16_code_that_names_a_denied_command_needs_approval(world: World, command: str) -> None:
    made = permissions(world, allow=("Bash(*)",), deny=("Bash(curl:*)",))
    assert bash(made, command).effect == "ask"


@pytest.mark.xfail(reason="code is searched for the names of denied commands, not run; files are not searched")
@pytest.mark.parametrize("command", ["python3 -c \"import os; os.system('cu' + 'rl x')\"", "./script-that-runs-curl"])
def test_D16_what_another_language_runs_is_held_against_rules(world: World, command: str) -> None:
    made = permissions(world, allow=("Bash(*)",), deny=("Bash(curl:*)",))
    assert bash(made, command).effect != "allow"


def test_D17_only_what_is_known_to_read_runs_unasked(world: World) -> None:
    for name in ("f", "a", "b", "s"):
        world.write(name, "x\n")
    for mode in ("default", "locked"):
        got = effects(permissions(world, mode), NOT_READING)
        assert {command for command, effect in got.items() if effect != refused(mode)} == set()
    reading = ["ls -la", "cat a", "head -20 a", "grep -rn x .", "rg x", "find . -name '*.py'", "git status", "git diff HEAD~1", "git log -p", "wc -l a | sort -n", "sed -n 1,5p a",
               "awk '{print $1}' a", "diff a b", "jq . a", "stat a", "du -sh .", "tail -n 3 a && pwd", "cd . && ls"]  # fmt: skip
    for command in reading:
        judged = bash(permissions(world), command)
        assert (judged.effect, judged.sandbox, judged.network) == ("allow", "read-only", False), command
        # Without a sandbox that proves it wrong, being known is not enough.
        assert bash(permissions(world, protection=UNHELD), command).effect == "ask", command


def test_D17_edits_in_place_are_judged_as_writes(world: World) -> None:
    made = permissions(world, "acceptEdits")
    for shape in (
        "sed -i s/a/b/ {path}",
        "sed -i.bak -e p {path}",
        "tee {path}",
        "tee -a {path}",
        "cp a {path}",
        "mv a {path}",
        "touch {path}",
        "mkdir -p {path}",
    ):
        assert bash(made, shape.format(path="src/x")).effect == "allow", shape
        for path in (
            "../x",
            "/etc/x",
            "~/x",
            ".git/config",
            ".env/../.git/config",
            "$X",
            "*",
            "{src,..}/x",
            f"{world.outside}/x",
        ):
            assert bash(made, shape.format(path=path)).effect == "ask", (shape, path)


def test_D18_what_changes_the_shell_or_is_expanded_later_is_asked(world: World) -> None:
    world.write("f", "x")
    for mode in ("default", "acceptEdits", "locked"):
        got = effects(permissions(world, mode), CHANGING)
        assert {command for command, effect in got.items() if effect != refused(mode)} == set(), mode


def test_D19_what_can_t_be_parsed_or_is_too_much_is_never_allowed(world: World) -> None:
    broken = ["ls 'x", 'ls "x', "ls $(", "ls `x", "ls ${x", "ls $((1", "ls &&", "ls |", "if ls", "ls; fi", "for", "ls )", "((ls", "[[ ls", "case x in", "cat <<E\nx",
              "<<", "> ", "ls > ", "ls \0 x", "ls\x01", "ls\x1b[2K", "ls\r", "l\rs", "ls \udcff", "ls \ud800", "ls\u2028", "ls\u00a0x", "ls \u200b", "ls \u202ex", "echo " + "x" * 12_000,
              "true && " * 2_000 + "ls", "true; " * 2_000 + "ls", "(" * 2_000 + "ls" + ")" * 2_000, "$(" * 500 + "ls" + ")" * 500, "\x00", " \0", "ls" + "\n" * 10_001, "ls " + "a" * 9_998]  # fmt: skip
    for mode in MODES:
        made = permissions(world, mode, allow=("Bash",), deny=("Bash(curl:*)",))
        for command in broken:
            assert bash(made, command).effect in ("deny", refused(mode)), (mode, command[:30])
        for command in ("", " ", "\n", "\t\t", "#", "# curl x"):
            assert bash(made, command).effect != "allow", (mode, command)
        for value in (None, 7, [], ["ls"], {"a": "ls"}, True, b"ls"):
            assert made.decide("Bash", {"command": value}).effect == "deny", (mode, value)
        assert made.decide("Bash", {}).effect == "deny"


@pytest.mark.parametrize("text", sample([
    "a;", "(", "$(", "`", "'", '"', "<<E\n", "${x", "{a,", "a|", ">", "x=1 ", "env ", "\\", "[[ ", "a/", "../", "$((", "a\n", "sudo -u x ", "find . -exec ", "bash -c '", "&&a",
    "$'\\x", "<(", "case a in ", "if a; then ", "é", "\u200b", "-x ", "f(){ ", "for i in a;do ", "!", "~", "xargs ", "#\n", "a&", "a[", "eval ", "\U0001f600 ",
], 12), ids=repr)  # fmt: skip
def test_D19_hostile_text_is_judged_in_bounded_time(world: World, text: str) -> None:
    rules = tuple(f"Bash(cmd{number}:*)" for number in range(20))
    made = permissions(world, "acceptEdits", allow=rules, deny=(*rules, "Read(.env)", "Bash(*a*b*c*)"))
    bash(made, "ls")
    for length in (9_000, 12_000):
        with processor_limit():
            judged = bash(made, (text * length)[:length])
        assert judged.effect != "allow" or len(text.strip("#\n")) == 0


def test_D20_a_rule_for_a_command_is_none_for_where_its_output_goes(world: World) -> None:
    outside = ["../x", "/etc/x", f"{world.outside}/x", ".git/config", ".mcp.json", "$X", "$(id)", "*", "a{b,c}"]
    for mode in ("default", "acceptEdits", "locked"):
        made = permissions(world, mode, allow=("Bash(echo:*)",))
        for shape in TARGETS:
            for target in outside:
                if "'" in shape and target in ("$X", "$(id)", "*", "a{b,c}"):
                    continue  # which is a plain name in quotes
                command = f"echo x {shape.format(t=target)}"
                assert bash(made, command).effect in ("deny", refused(mode)), (mode, command)
        for target in (
            "~/.bashrc",
            "$HOME/.bashrc",
            "/dev/tcp/h/1",
            "/dev/udp/h/1",
            "//dev/tcp/h/1",
            "/dev/../dev/tcp/h/1",
            "/dev/sda",
        ):
            assert bash(made, f"echo x > {target}").effect in ("deny", refused(mode)), (mode, target)
            assert bash(made, f"exec 3<>{target}").effect in ("deny", refused(mode)), (mode, target)
    inside = [f"echo x {shape.format(t='ok.txt')}" for shape in TARGETS if "<>" not in shape and "fd" not in shape]
    assert set(effects(permissions(world, "acceptEdits", allow=("Bash(echo:*)",)), inside).values()) == {"allow"}
    assert set(effects(permissions(world, allow=("Bash(echo:*)",)), inside).values()) == {"ask"}
    assert bash(permissions(world, allow=("Bash(echo:*)",)), "echo x > /dev/null 2>&1").effect == "allow"
    for target in ("/dev/tcp/127.0.0.1/1", "//dev//udp/h/1"):
        assert program(world, f"echo x > {target}", "--allow", "Bash") == "deny"


# --- modes, rules and agents -----------------------------------------------------------------------------------------

PLANNED = [
    ("Write", {"file_path": "a", "content": "x"}), ("Edit", {"file_path": "a"}), ("NotebookEdit", {"notebook_path": "a.ipynb"}), ("mcp__s__t", {}),
    ("mcp__plugin_x__write", {"a": 1}), ("Unknown", {}), ("WebFetch", {"url": "https://x.test"}), ("WebSearch", {"query": "x"}), ("KillShell", {}),
    ("Bash", {"command": "touch x"}), ("Bash", {"command": "echo x > a"}), ("Bash", {"command": "rm a"}), ("Bash", {"command": "tee a"}),
    ("Bash", {"command": "sed -i s/a/b/ a"}), ("Bash", {"command": "cp a b"}), ("Bash", {"command": "ls; touch x"}), ("Read", {"file_path": "../x"}),
    ("Read", {"file_path": ".env"}), ("write", {"file_path": "a"}), ("bash", {"command": "ls"}), ("Bash ", {"command": "ls"}),
]  # fmt: skip


def test_D23_plan_changes_nothing_whatever_allows_it(world: World) -> None:
    world.write(".env", "A=1")
    allow = ("Bash", "Edit", "Read", "mcp__s__*", "mcp__plugin_x__*", "Unknown", "Write(//**)", "Edit(//**)")
    for rules in ((), allow):
        made = permissions(world, "plan", allow=rules)
        for tool, arguments in PLANNED:
            wanted = "ask" if tool in ("WebFetch", "WebSearch") else "deny"  # reading the web changes nothing
            assert made.decide(tool, arguments).effect == wanted, (tool, arguments)
        assert not made.has_tool("Write")
        assert not made.has_tool("mcp__s__t")
    granted = made.with_rules(skill_grants(parse_tools("Bash, Write")[0], "SKILL.md", str(world.workspace))[0])
    assert granted.decide("Write", {"file_path": "a"}).effect == "deny"
    for declared in (*MODES, None):
        assert child_mode("plan", declared) == "plan"
    judged = made.decide("Task", {"subagent_type": "general-purpose"})
    assert (judged.effect, "plan mode" in judged.reason) == ("allow", True)
    for command in ("make", "python3 x.py", "git commit -m x", "npm install", "$X"):
        judged = bash(made, command)
        assert (judged.effect, judged.sandbox, judged.network) == ("allow", "read-only", False), command
        assert bash(permissions(world, "plan", allow=("Bash",), protection=UNHELD), command).effect == "deny"
    assert program(world, "Write(a)", "--permission-mode", "plan", "--allow", "Edit") == "deny"


def agent(world: World, folder: str, line: str) -> PermissionMode:
    world.write(f"{folder}/x.md", f"---\nname: x\ndescription: d\n{line}---\nDo it.\n")
    found = world.json("agents", "show", "x")
    (world.workspace / folder / "x.md").unlink()
    remarkable = ("yolo", "[plan]", "dontask", "dont_ask", ": 7", "full")
    assert bool(found["problems"]) == any(word in line.lower() for word in remarkable), found["problems"]
    return found["permission_mode"]


@pytest.mark.parametrize(("folder", "line", "mode"), [
    (".claude/agents", "permissionMode: dontAsk\n", "locked"), (".claude/agents", "permission-mode: dontAsk\n", "locked"),
    (".github/agents", "permissionMode: dontAsk\n", "locked"), (".kitbag/agents", "permissionMode: dontAsk\n", "autonomous"),
    (".kitbag/agents", "permission-mode: DONT_ASK\n", "autonomous"), (".kitbag/agents", "permission-mode: yolo\n", "default"),
    (".claude/agents", "permissionMode: [plan]\n", "default"), (".kitbag/agents", "permission-mode: Plan\n", "plan"),
    (".kitbag/agents", "permission-mode: 7\n", "default"), (".kitbag/agents", "permission-mode: full-auto\n", "default"), (".kitbag/agents", "", "default"),
])  # fmt: skip
def test_D24_a_mode_is_read_as_the_folder_means_it_and_never_freer(
    world: World, folder: str, line: str, mode: PermissionMode
) -> None:
    assert agent(world, folder, line) == mode
    made = permissions(world, allow=("Read",)).with_mode(mode)
    assert on_path(made, "Read", "a").effect == "allow"
    wanted = {"plan": "deny", "locked": "deny", "default": "ask", "autonomous": "allow"}[mode]
    assert on_path(made, "Write", "a").effect == wanted
    judged = bash(made, "make")
    assert judged.effect == ("allow" if mode == "plan" else wanted)
    if mode in ("plan", "autonomous"):
        assert judged.sandbox == ("read-only" if mode == "plan" else "workspace")
        assert bash(permissions(world, mode, protection=UNHELD), "make").effect == "deny"


def test_D25_no_skill_and_no_answer_beats_a_rule_and_the_final_input_counts(world: World) -> None:
    world.write(
        "~/.kitbag/settings.toml",
        '[permissions]\nallow = ["Bash"]\nask = ["Bash(git push:*)"]\ndeny = ["Bash(rm:*)"]\n',
    )
    skill, _ = parse_tools("Bash(rm:*), Bash(git push:*), Bash(ls:*), Edit(.git/**), Read(~/.ssh/**)")
    for mode in MODES:
        base = permissions(world, mode)
        made = base.with_rules(skill_grants(skill, "SKILL.md", str(world.workspace))[0])
        for command in ("rm x", "sudo rm x", "ls; rm x", "bash -c 'rm x'", "git log $(rm x)"):
            assert bash(made, command).effect == "deny", (mode, command)
        for command in ("git push", "git -C . push", "ls && git push origin", "env git push"):
            assert bash(made, command).effect == refused(mode), (mode, command)
        for path in (".git/config", "~/.ssh/id_rsa", "../x"):
            assert on_path(made, "Edit", path).effect == refused(mode), (mode, path)
    for command, wanted in (("rm x", "deny"), ("git push", "ask"), ("make", "allow")):
        assert program(world, command) == wanted
        assert program(world, command, "--allow", "Bash", "--allow", f"Bash({command}:*)") == wanted


def test_D26_an_agent_has_its_own_tools_by_their_exact_names(world: World) -> None:
    names = ["Write", "write", "WRITE", "WRITE ", " Write", "Edit", "Bash", "bash", "mcp__x__Write", "mcp__x__Read", "read", "READ", "Read ", "Reader", "Re\u0430d", "Read\0",
             "", "NotebookEdit", "Task", "WebFetch", "Unknown", "Read(x)", "functions.Read"]  # fmt: skip
    for mode in MODES:
        made = permissions(world, mode, allow=("Read", "Edit", "Bash", "mcp__x__*")).restricted_to(
            parse_tools("Read")[0], "agents/x.md"
        )
        for name in names:
            judged = made.decide(name, {"file_path": "a", "command": "ls"})
            assert (judged.effect, judged.parts[0].source) == ("deny", "agents/x.md"), (mode, name)
            assert not made.has_tool(name), name
        assert made.decide("Read", {"file_path": "a"}).effect == "allow"
        assert made.has_tool("Read")
    denied = permissions(world, allow=("Bash",), deny=("Bash", "mcp__x__*"))
    assert [denied.has_tool(tool) for tool in ("Bash", "mcp__x__a", "Read")] == [False, False, True]
    only = permissions(world, "autonomous").restricted_to(parse_tools("Bash(git log:*), Read")[0], "x.md")
    for command in ("git log; id", "id", "git log $(id)", "git push"):
        assert bash(only, command).effect == "deny", command


def test_rules_of_users_deny_before_ask_before_allow_with_their_source(world: World) -> None:
    settings = """[permissions]
mode = "acceptEdits"
allow = [{rule = "Bash(npm run:*)", matches = ["npm run test"], misses = ["npm runx"]}, {rule = "Bash(make:*)", matches = ["cmake"]}]
ask = ["Bash(npm run deploy:*)"]
deny = ["Bash(npm run deploy --prod:*)", "Read(./secrets/**)"]
"""
    world.write("~/.kitbag/settings.toml", settings)
    listed = world.json("permissions", "list")
    assert listed["mode"] == "acceptEdits"
    assert [rule["text"] for rule in listed["rules"] if rule["effect"] == "allow"] == ["Bash(npm run:*)"]
    assert [one["value"] for one in listed["ignored"]] == ["Bash(make:*)"]
    assert "rule-example" in {one["code"] for one in listed["diagnostics"]}
    uses = {
        "npm run test": "allow",
        "npm run deploy": "ask",
        "npm run deploy --prod": "deny",
        "make": "ask",
        "cat secrets/a": "deny",
    }
    made = permissions(world)
    assert {use: bash(made, use).effect for use in uses} == uses
    said = json.loads(world.run("permissions", "test", "npm run deploy --prod", "--json").stdout)
    assert (said["effect"], said["parts"][0]["source"]) == ("deny", f"{world.home}/.kitbag/settings.toml:5")
