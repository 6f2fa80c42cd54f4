"""The decision about commands: hostile variants of every kind, in every mode, with and without rules and sandboxes."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.library.dialects.tool_lists import parse_tools
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import Effect, PermissionDecision
from kitbag.permissions.rules.tool_list_rules import skill_grants
from permissions.deciding import ASKING, BUBBLEWRAP, MODES, NOTHING, SANDLOCK, permissions
from support.cost import processor_limit, steps
from support.matrix import examples, sample


def bash(made: Permissions, command: str, **more: object) -> PermissionDecision:
    return made.decide("Bash", {"command": command, **more})


def effect(made: Permissions, command: str, **more: object) -> Effect:
    return bash(made, command, **more).effect


JOINS = ["{a} && {b}", "{a} || {b}", "{a} ; {b}", "{a};{b}", "{a} | {b}", "{a} |& {b}", "{a} & {b}", "{a}\n{b}", "{a}\r\n{b}",
         "{{ {a}; {b}; }}", "({a}; {b})", "! {a} && {b}", "if {a}; then {b}; fi", "while {a}; do {b}; done",
         "for i in 1; do {a}; {b}; done", "case x in x) {a}; {b};; esac", "f() {{ {a}; {b}; }}; f", "{a} &\n{b}",
         "time {a} && {b}", "{a} && \\\n{b}", "until {a}; do {b}; done", "{a} # x\n{b}", "coproc {a}; {b}"]  # fmt: skip
INSIDE = ["{a} $({b})", "{a} `{b}`", "{a} <({b})", "{a} >({b})", '{a} "--format=$({b})"', "{a} \"`{b}`\"", "{a} <<E\n$({b})\nE",
          "{a} $((a[$({b})]))", "[[ $({b}) ]] && {a}", "{a} ${{x:-$({b})}}", "X=$({b}) {a}", "{a} <<<\"$({b})\"", "{a} > $({b})",
          "{a} $(echo $({b}))", "{a} \"${{x:=$({b})}}\"", "for i in $({b}); do {a}; done", "case $({b}) in *) {a};; esac",
          "a=($({b})); {a}", "{a} {{a,$({b})}}"]  # fmt: skip


@pytest.mark.parametrize("shape", JOINS + INSIDE)
@pytest.mark.parametrize("mode", ["default", "locked"])
def test_an_allowed_command_lets_no_other_one_through(tmp_path: Path, shape: str, mode: PermissionMode) -> None:
    made = permissions(tmp_path, mode, allow=("Bash(git log:*)",))
    for other in ("touch canary", "id"):
        command = shape.format(a="git log", b=other)
        assert effect(made, command) == ("ask" if mode == "default" else "deny"), command


@pytest.mark.parametrize("shape", JOINS + INSIDE)
@pytest.mark.parametrize("mode", MODES)
def test_a_denied_command_is_denied_wherever_it_stands(tmp_path: Path, shape: str, mode: PermissionMode) -> None:
    made = permissions(tmp_path, mode, allow=("Bash",), deny=("Bash(curl:*)",))
    command = shape.format(a="ls", b="curl x")
    judged = bash(made, command)
    assert judged.effect == "deny", command
    assert any(part.rule == "Bash(curl:*)" and part.source == "deny.toml:1" for part in judged.parts), judged.parts


@pytest.mark.parametrize("shape", ["{a} && {b}", "{a} | {b}", "{a} $({b})", '{a} "$({b})"', "{a}; {b}"])
def test_two_allowed_commands_are_allowed_together(tmp_path: Path, shape: str) -> None:
    made = permissions(tmp_path, "locked", allow=("Bash(git log:*)", "Bash(id)"))
    assert effect(made, shape.format(a="git log", b="id")) == "allow"


def test_a_prefix_ends_at_a_word(tmp_path: Path) -> None:
    made = permissions(tmp_path, "locked", allow=("Bash(git log:*)", "Bash(npm run build)"))
    for command in ("git log", "git log --oneline -5", "git   log  -5", "npm run build"):
        assert effect(made, command) == "allow", command
    for command in ("git logout", "git", "xgit log", "npm run build:evil", "npm run build --x", "git -c a=b log", "/tmp/git log",
                    "./git log", "PATH=. git log", "GIT_PAGER=id git log", "LD_PRELOAD=x git log"):  # fmt: skip
        assert effect(made, command) == "deny", command


WRAPPED = [
    "env curl x", "env -i A=1 curl x", "sudo curl x", "sudo -u root -- curl x", "nohup curl x", "timeout 5 curl x",
    "timeout -s KILL 5 curl x", "xargs curl", "echo x | xargs -n1 curl", "command curl x", "builtin curl", "exec curl x",
    "/usr/bin/curl x", "bash -c 'curl x'", "sh -c \"curl x\"", "FOO=1 curl x", "A=1 B=2 curl x", "nice -n 5 curl x", "time curl x",
    "stdbuf -o0 curl x", "setsid curl x", "ionice -c3 curl x", "watch curl x", "\\curl x", "'curl' x", '"cur"l x', "c''url x",
    "$'curl' x", "bash -lc 'ls; curl x'", "env bash -c 'curl x'", "sudo env timeout 5 curl x", "eval curl x", "eval 'curl x'",
    "find . -exec curl {} \\;", "find . -execdir curl {} +", "flock l curl x", "doas curl x", "busybox sh -c 'curl x'", "curl",
    "strace curl x", "xargs -I{} sh -c 'curl {}'", "trap 'curl x' EXIT", "if curl x; then :; fi", "! curl x", "curl\tx", "  curl x",
    "../../usr/bin/curl x", "{ curl x; }", "coproc curl x", "echo $(env curl x)", "cat <(curl x)", "CURL x", "cu\\\nrl x",
]  # fmt: skip


@pytest.mark.parametrize("command", WRAPPED)
def test_a_denial_sees_through_wrappers_and_spellings(tmp_path: Path, command: str) -> None:
    for mode in MODES:
        made = permissions(tmp_path, mode, allow=("Bash(*)", "Bash(curl:*)", "Bash(env:*)"), deny=("Bash(curl:*)",))
        assert effect(made, command) == "deny", command


NOT_READ_ONLY = [
    "find . -exec touch $CANARY \\;", "find . -delete", "find . -fprint out", "find . -ok rm {} \\;", "sed -i s/a/b/ ok.txt",
    "sed 'w out' ok.txt", "sed 'e id' ok.txt", "sed -n '1w out' ok.txt", "sed 's/a/b/e' ok.txt", "sed --in-place=x s/a/b/ ok.txt",
    "awk 'BEGIN{system(\"id\")}'", "awk '{print > \"out\"}' ok.txt", "ls | xargs rm", "ls | xargs", "ls | tee f", "sort -o out ok.txt",
    "git -c core.pager=id log", "git diff --output=out", "rg --pre id x", "git log --output=x", "tar --to-command=id -xf x",
    "export PAGER=id", "PATH=. git log", "declare -x A=1", "alias ls=id", "source ok.txt", ". ok.txt", "eval ls", "trap 'id' EXIT",
    "echo ${x@P}", "echo ${x:=1}", "echo ${!x}", "cat$IFS/etc/passwd", "X=1", "A=b ls", "python -c 'print(1)'", "node -e 1",
    "less ok.txt", "vim ok.txt", "curl http://x", "wget x", "nc h 1", "ssh h", "git push", "npm install", "make", "./ok.txt",
    "cat ok.txt > /dev/tcp/h/1", "kill 1", "chmod +x ok.txt", "ln -s a b", "rm ok.txt", "dd if=ok.txt of=x", "enable -f x y",
    "exec ls", "bash ok.txt", "bash", "cat $X", "cat $(ls)", "ls;", "unset PATH", "set -x; ls", "shopt -s x", "hash -p x ls",
    "printf -v PATH x", "read PATH < ok.txt", "test -v 'a[$(id)]'", "ls 'unbalanced", "cat <<E", "git log\0", "ls \ud800",
    "id", "env", "env -S 'id'", "printenv", "history -s x", "date -s x", "hostname x", "ifconfig x", "man -P id ls", "git grep -Oid x",
    "sort --compress-program=id ok.txt", "file -m x -C", "tree -o x", "xxd -r ok.txt out", "split ok.txt", "csplit ok.txt 1",
]  # fmt: skip


@pytest.mark.parametrize("command", [one for one in NOT_READ_ONLY if one != "ls;"])
def test_what_is_not_known_to_only_read_is_not_run_unasked(tmp_path: Path, command: str) -> None:
    assert effect(permissions(tmp_path), command) != "allow"
    assert effect(permissions(tmp_path, "locked"), command) == "deny"
    assert effect(permissions(tmp_path, "plan", protection=NOTHING), command) == "deny"


def test_commands_that_only_read_run_unasked_in_a_sandbox_that_can_not_write(tmp_path: Path) -> None:
    made = permissions(tmp_path)
    for command in ("ls", "ls -la src", "cat ok.txt", "git log --oneline -5", "git status", "wc -l src/a.py", "grep -n x src/a.py",
                    "cat ok.txt | head -5", "ls 2>/dev/null", "ls 2>&1 | tail -3", "ls && git status", "pwd"):  # fmt: skip
        judged = bash(made, command)
        assert judged.effect == "allow", (command, judged)
        assert (judged.sandbox, judged.network) == ("read-only", False)
        assert effect(permissions(tmp_path, protection=SANDLOCK), command) == "allow"
        assert effect(permissions(tmp_path, protection=NOTHING), command) == "ask"
        assert effect(permissions(tmp_path, "locked"), command) == "deny"


@pytest.mark.parametrize(
    "target",
    ["~/.bashrc", "../app-evil/x", "/tmp/x", ".git/hooks/pre-commit", ".git/config", ".vscode/tasks.json", ".mcp.json",
     ".kitbag/settings.toml", ".claude/agents/x.md", "$HOME/.bashrc", "$X", "$(echo x)", "~root/x", "d/new.txt", ".env"],
)  # fmt: skip
@pytest.mark.parametrize("shape", ["echo x > {}", "echo x >> {}", "echo x >| {}", "echo x &> {}", "echo x 2> {}", "echo x <> {}",
                                   "echo x >{}", "{{ echo x; }} > {}", "cat ok.txt | tee {}", "cp ok.txt {}", "touch {}", "ls && echo x &>> {}"])  # fmt: skip
def test_what_a_command_writes_is_judged_like_a_write(tmp_path: Path, shape: str, target: str) -> None:
    allowed = ("Bash(echo:*)", "Bash(cp:*)", "Bash(touch:*)", "Bash(tee:*)", "Bash(cat:*)", "Edit", "Edit(**)")
    for mode in MODES:
        made = permissions(tmp_path, mode, allow=allowed)
        link = Path(made.workspace.root) / "d"
        if not link.is_symlink():
            link.symlink_to(tmp_path / "outside")
        assert effect(made, shape.format(target)) == ("ask" if mode in ASKING else "deny"), (mode, shape)


def test_a_redirect_inside_passes_where_files_may_be_changed(tmp_path: Path) -> None:
    rules = ("Bash(echo:*)",)
    assert effect(permissions(tmp_path, allow=rules), "echo x > ok.txt") == "ask"
    assert effect(permissions(tmp_path, "locked", allow=rules), "echo x > ok.txt") == "deny"
    assert effect(permissions(tmp_path, "acceptEdits", allow=rules), "echo x > ok.txt") == "allow"
    assert effect(permissions(tmp_path, allow=(*rules, "Edit(ok.txt)")), "echo x > ok.txt") == "allow"
    assert effect(permissions(tmp_path, allow=("Bash(echo x > ok.txt)",)), "echo x > ok.txt") == "allow"
    assert effect(permissions(tmp_path, allow=("Bash",)), "echo x > ok.txt") == "allow"
    assert (
        effect(permissions(tmp_path, "acceptEdits", allow=rules, deny=("Edit(ok.txt)",)), "echo x > ok.txt") == "deny"
    )
    assert effect(permissions(tmp_path, "acceptEdits", allow=rules, ask=("Edit(ok.txt)",)), "echo x > ok.txt") == "ask"
    named = permissions(tmp_path, allow=("Bash(echo x > ok.txt)",), ask=("Edit(ok.txt)",))
    assert effect(named, "echo x > ok.txt") == "ask"
    assert effect(permissions(tmp_path, allow=rules), "echo x > -") == "ask"
    for target in ("/dev/null", "/dev/stderr", "//dev/null", "/dev/./null"):
        assert effect(permissions(tmp_path, allow=rules), f"echo x > {target}") == "allow", target
    for mode in MODES:
        for target in ("/dev/tcp/h/1", "/dev/udp/h/1", "//dev/tcp/h/1", "/dev/./tcp/h/1", "/dev/tcp/../tcp/h/1"):
            assert effect(permissions(tmp_path, mode, allow=("Bash", "Edit(//**)")), f"echo x > {target}") == "deny"
            assert effect(permissions(tmp_path, mode, allow=("Bash",)), f"exec 3<>{target}") == "deny"


@pytest.mark.parametrize(
    "command",
    ["cd .git/hooks && echo x > post-commit", "cd .git && cd hooks && touch x", "cd .git; tee config", "(cd .git/hooks; touch a)",
     "cd src/../.git/hooks && cp ../../ok.txt x", "cd ~ && touch .bashrc", "cd / && touch x", "cd $X && touch x", "cd -; touch x",
     "pushd .git && touch config", "cd d && touch x", "cd .. && touch x", "cd src && touch ../.mcp.json", "CDPATH=/ cd etc && touch x"],
)  # fmt: skip
def test_a_change_of_directory_does_not_hide_what_is_written(tmp_path: Path, command: str) -> None:
    for mode in MODES:
        made = permissions(
            tmp_path, mode, allow=("Bash(cd:*)", "Bash(touch:*)", "Bash(echo:*)", "Bash(cp:*)", "Bash(tee:*)")
        )
        link = Path(made.workspace.root) / "d"
        if not link.is_symlink():
            link.symlink_to(tmp_path / "outside")
        assert effect(made, command) == ("ask" if mode in ASKING else "deny"), mode


def test_edits_of_named_files_need_no_answer_where_edits_need_none(tmp_path: Path) -> None:
    made = permissions(tmp_path, "acceptEdits")
    for command in (
        "mkdir new",
        "touch new.txt",
        "cp ok.txt src/b.txt",
        "mv ok.txt b.txt",
        "echo x > src/b.txt",
        "cd src && touch b",
    ):
        judged = bash(made, command)
        assert (judged.effect, judged.sandbox, judged.network) == ("allow", "workspace", False), command
        assert effect(permissions(tmp_path), command) == "ask"
        assert effect(permissions(tmp_path, "plan"), command) == "deny"
        assert effect(permissions(tmp_path, "acceptEdits", protection=SANDLOCK), command) == "ask"
        assert effect(permissions(tmp_path, "acceptEdits", deny=("Edit(**)",)), command) == "deny"


def test_what_a_command_reads_is_judged_like_a_read(tmp_path: Path) -> None:
    for mode in MODES:
        wanted = "ask" if mode in ASKING else "deny"
        for rules in ((), ("Bash(cat:*)", "Bash(grep:*)", "Bash(head:*)")):
            made = permissions(tmp_path, mode, allow=rules)
            for command in ("cat /etc/shadow", "cat ~/.ssh/id_rsa", "cat .env", "head -1 ../app-evil/x", "grep x /etc/passwd", "cat < /etc/passwd",
                            "cat /proc/self/environ", "cat ok.txt /etc/hosts", "cat /dev/zero", "cat src/../../app-evil/x"):  # fmt: skip
                assert effect(made, command) == wanted, (mode, rules, command)


def test_what_a_rule_denies_to_read_no_command_reads(tmp_path: Path) -> None:
    for mode in MODES:
        made = permissions(tmp_path, mode, allow=("Bash",), deny=("Read(./src/**)",))
        home = os.path.relpath(made.workspace.root, made.workspace.home)
        for command in ("cat src/a.py", "head -5 ./src/a.py", "cat < src/a.py", "cd src && cat a.py", f"cat {made.workspace.root}/src/a.py",
                        f"cat ~/{home}/src/a.py", "cp src/a.py x", "grep x src/a.py", "grep -r x src", "cat ok.txt; cat src/../src/a.py",
                        "echo $(cat src/a.py)", "echo x > src/a.py", "sort src/a.py"):  # fmt: skip
            assert effect(made, command) == "deny", (mode, command)
        assert effect(made, "cat ok.txt") == "allow"


def test_a_command_that_reads_a_whole_folder_is_asked_when_something_in_it_is_denied(tmp_path: Path) -> None:
    made = permissions(tmp_path, deny=("Read(.secret)", "Read(./src/hidden/**)"))
    for command in ("grep -r x .", "grep -r x src", "cat ok.txt && grep -r x ./src"):
        assert effect(made, command) == "ask", command
    for command in ("ls src", "ls .", "find src -name a.py", "cat ok.txt"):
        assert effect(made, command) == "allow", command


def test_a_search_with_an_option_that_is_not_known_is_still_one_of_the_whole_folder(tmp_path: Path) -> None:
    made = permissions(tmp_path, "autonomous", deny=("Read(./src/**)",))
    for command in ("git grep --no-index x", "rg --pre cat x", "grep -r --odd x", "ag x", "cd src && git grep --odd x"):
        assert effect(made, command) == "deny", command
    assert effect(permissions(tmp_path, "autonomous"), "git grep --no-index x") == "allow"


def test_a_file_that_may_not_be_changed_is_found_where_a_command_names_what_it_writes(tmp_path: Path) -> None:
    made = permissions(tmp_path, "autonomous", deny=("Edit(./src/a.py)",))
    for command in (
        "dd of=src/a.py",
        "dd if=ok.txt of=$X",
        "patch src/a.py",
        "ls | sponge src/a.py",
        "cp -r . src/a.py",
    ):
        assert effect(made, command) == "deny", command
    for command in ("dd if=src/a.py", "dd if=src/a.py of=copy", "patch ok.txt"):
        assert effect(made, command) == "allow", command


def test_a_folder_that_is_copied_whole_is_read_like_any_other(tmp_path: Path) -> None:
    for mode in ("plan", "autonomous"):
        for command in ("cp -r .. stolen", "cp -r ../. stolen", "cp -rT ../../outside stolen", "mv .. x", "cp -r ~ x"):
            assert effect(permissions(tmp_path, mode), command) == "deny", (mode, command)
    assert effect(permissions(tmp_path, "autonomous"), "cp -r src/. copy") == "allow"


def test_limits_and_broken_text_are_asked_and_still_denied(tmp_path: Path) -> None:
    for mode in MODES:
        made = permissions(tmp_path, mode, allow=("Bash",), deny=("Bash(curl:*)",))
        wanted = "ask" if mode in ASKING else "deny"
        for command in (
            "ls 'x",
            'ls "x',
            "ls $(",
            "ls `x",
            "ls &&",
            "if ls",
            "ls \0 x",
            "echo " + "x" * 12_000,
            "ls )",
            "<<E cat\nx",
        ):
            assert effect(made, command) == wanted, (mode, command[:20])
        assert effect(made, "true && " * 60 + "curl x") == "deny"
        assert effect(made, "echo " + "x" * 12_000 + "; curl x") == "deny"
        assert effect(made, "true;" * 3_000 + "curl x") == "deny"
        assert effect(made, "ls\0; curl x") == "deny"


@pytest.mark.parametrize(
    "command",
    sample(["a;" * 5_000, "(" * 5_000, "$(" * 3_000, "`" * 10_000, "'" * 9_999, "<<E\n" * 2_500, "${x" * 3_000, "{a," * 3_000, "a|" * 5_000,
     "cat " + "a/" * 4_900, ">" * 10_000, "x=1 " * 2_500, "env " * 2_500, "a" + " -x" * 3_300, "echo " + "../" * 3_300 + "x",
     ";".join(f"c{n} f{n}" for n in range(1_000)), "\\" * 10_000, "[[ " * 3_000, "cat " + " ".join(f"f{n}" for n in range(1_500))], 7),
)  # fmt: skip
def test_hostile_text_takes_a_bounded_number_of_steps(tmp_path: Path, command: str) -> None:
    rules = tuple(f"Bash(cmd{n}:*)" for n in range(20))
    made = permissions(tmp_path, "acceptEdits", allow=rules, deny=(*rules, "Read(.env)", "Bash(*a*b*c*)"))
    bash(made, "ls")
    with processor_limit():
        assert steps(lambda: bash(made, command[:10_000])) < 1_000 * 10_000


def test_plan_mode_runs_commands_only_where_nothing_can_change(tmp_path: Path) -> None:
    for allow in ((), ("Bash",), ("Bash(git push:*)", "Bash(rm:*)", "Bash(make:*)")):
        made = permissions(tmp_path, "plan", allow=allow)
        for command in ("git push", "make", "python x.py", "git log"):
            judged = bash(made, command)
            assert (judged.effect, judged.sandbox, judged.network) == ("allow", "read-only", False), command
            assert effect(permissions(tmp_path, "plan", allow=allow, protection=NOTHING), command) == "deny"
        for command in ("rm x", "touch x", "echo x > y", "cat ok.txt | tee y", "cp a b", "sed -i s/a/b/ ok.txt"):
            assert effect(made, command) == "deny", command


def test_autonomous_mode_runs_commands_only_in_the_sandbox_of_the_workspace(tmp_path: Path) -> None:
    for command in ("make", "python x.py", "ls", "curl x", "touch a"):
        judged = bash(permissions(tmp_path, "autonomous"), command)
        assert (judged.effect, judged.sandbox, judged.network) == ("allow", "workspace", False), command
        for protection in (SANDLOCK, NOTHING):
            for allow in ((), ("Bash",)):
                assert (
                    effect(permissions(tmp_path, "autonomous", allow=allow, protection=protection), command) == "deny"
                )
    judged = bash(permissions(tmp_path, "autonomous", allow=("Bash(npm install:*)",)), "npm install")
    assert (judged.effect, judged.sandbox, judged.network) == ("allow", "workspace", True)
    judged = bash(permissions(tmp_path, "autonomous", network=True), "make")
    assert (judged.sandbox, judged.network) == ("workspace", True)
    assert bash(permissions(tmp_path, "plan", network=True), "make").network is False


def test_what_a_person_allows_runs_in_the_sandbox_where_there_is_one(tmp_path: Path) -> None:
    rules = ("Bash(make:*)", "Bash(git push:*)")
    for protection, sandbox in ((BUBBLEWRAP, "workspace"), (SANDLOCK, "none"), (NOTHING, "none")):
        made = permissions(tmp_path, allow=rules, protection=protection)
        assert (bash(made, "make").effect, bash(made, "make").sandbox) == ("allow", sandbox)
        pushed = bash(made, "git push")
        assert (pushed.effect, pushed.sandbox, pushed.network) == ("allow", sandbox, True)
        asked = bash(permissions(tmp_path, protection=protection), "make")
        assert (asked.effect, asked.sandbox) == ("ask", sandbox)
    assert bash(permissions(tmp_path, allow=rules), "make").network is False


def test_a_person_who_is_asked_because_no_sandbox_runs_is_told_that_nothing_holds_it(tmp_path: Path) -> None:
    for mode, command in (("default", "ls"), ("acceptEdits", "touch a")):
        asked = bash(permissions(tmp_path, mode, protection=NOTHING), command)
        assert (asked.effect, asked.sandbox, asked.network) == ("ask", "none", True)
    asked = bash(permissions(tmp_path, "acceptEdits", protection=SANDLOCK), "touch a")
    assert (asked.effect, asked.sandbox) == ("ask", "none")
    assert bash(permissions(tmp_path, protection=SANDLOCK), "ls").sandbox == "read-only"


def test_what_the_mode_allows_never_runs_unconfined_beside_what_a_person_allows(tmp_path: Path) -> None:
    rules = ("Bash(make:*)",)
    assert effect(permissions(tmp_path, allow=rules), "ls && make") == "allow"
    assert effect(permissions(tmp_path, allow=rules, protection=NOTHING), "ls && make") == "ask"
    assert effect(permissions(tmp_path, allow=rules, protection=SANDLOCK), "ls && make") == "ask"
    mixed = bash(permissions(tmp_path, allow=("Bash(git log:*)",), protection=SANDLOCK), "ls && git log")
    assert (mixed.effect, mixed.sandbox) == ("allow", "read-only")


def test_where_the_model_wants_a_command_to_run_widens_nothing(tmp_path: Path) -> None:
    outside = str(tmp_path / "outside")
    for mode in MODES:
        made = permissions(tmp_path, mode, allow=("Bash(touch:*)", "Bash(ls:*)"))
        for key in ("cwd", "directory", "workdir", "working_directory"):
            for place in (outside, "../app-evil", "~", "/", "src/../.."):
                assert effect(made, "touch x", **{key: place}) == ("ask" if mode in ASKING else "deny"), (key, place)
        assert made.decide("Bash", {"command": "touch x"}, outside).effect != "allow"
        assert effect(made, "ls", cwd=3) == effect(made, "ls", cwd="src", directory="/") == "deny"
        assert effect(made, "touch config", cwd=".git") != "allow"
    assert effect(permissions(tmp_path, "acceptEdits"), "touch x", cwd="src") == "allow"


@pytest.mark.parametrize(
    "arguments", [{}, {"command": ""}, {"command": "  \n"}, {"command": None}, {"command": ["ls"]}, {"cmd": "ls"}]
)
def test_a_call_without_a_command_is_denied(tmp_path: Path, arguments: dict[str, object]) -> None:
    assert permissions(tmp_path, allow=("Bash",)).decide("Bash", arguments).effect == "deny"


@pytest.mark.parametrize(
    "command", ["$X y", '"$X" y', "$(echo rm) x", "${A}${B} x", "`echo rm` x", "r$X x", "eval $X", 'bash -c "$X"']
)
def test_a_command_that_hides_its_name_does_not_evade_a_denial_where_nobody_is_asked(
    tmp_path: Path, command: str
) -> None:
    for mode in ("autonomous", "plan", "locked"):
        assert effect(permissions(tmp_path, mode, deny=("Bash(rm:*)",), allow=("Bash",)), command) == "deny", command
    assert effect(permissions(tmp_path, deny=("Bash(rm:*)",), allow=("Bash",)), command) != "allow"


def test_rules_are_judged_for_each_command(tmp_path: Path) -> None:
    made = permissions(tmp_path, deny=("Bash(rm:*)",), ask=("Bash(git push:*)",), allow=("Bash",))
    judged = bash(made, "make && git push && rm x")
    assert judged.effect == "deny"
    by_command = {part.what: (part.effect, part.rule, part.source) for part in judged.parts}
    assert by_command["make"] == ("allow", "Bash", "allow.toml:1")
    assert by_command["git push"] == ("ask", "Bash(git push:*)", "ask.toml:1")
    assert by_command["rm x"] == ("deny", "Bash(rm:*)", "deny.toml:1")


@pytest.mark.parametrize("mode", MODES)
def test_what_a_skill_asks_for_never_beats_a_rule_and_never_runs_unconfined(
    tmp_path: Path, mode: PermissionMode
) -> None:
    rules, _ = skill_grants(parse_tools("Bash(rm:*), Bash(git push:*), Bash(make:*)")[0], "SKILL.md", "/")
    wanted = "ask" if mode in ASKING else "deny"
    made = permissions(tmp_path, mode, deny=("Bash(rm:*)",), ask=("Bash(git push:*)",)).with_rules(rules)
    assert effect(made, "rm x") == "deny"
    assert effect(made, "git push") == wanted
    made_up = bash(made, "make")
    assert made_up.effect == "allow"
    assert made_up.sandbox == ("read-only" if mode == "plan" else "workspace")
    assert made_up.network is False
    bare = permissions(tmp_path, mode, protection=NOTHING).with_rules(rules)
    assert effect(bare, "make") == wanted


def test_a_skill_opens_no_guarded_path(tmp_path: Path) -> None:
    written = ["Bash(cp ok.txt ~/.bashrc)", "Bash(cat ~/.ssh/id_rsa)", "Bash(touch:*)", "Bash(echo x > .mcp.json)"]
    rules, _ = skill_grants(parse_tools(written)[0], "SKILL.md", "/")
    made = permissions(tmp_path, "acceptEdits").with_rules(rules)
    for command in ("cp ok.txt ~/.bashrc", "cat ~/.ssh/id_rsa", "touch $X", "echo x > .mcp.json", "touch .git/x"):
        assert effect(made, command) == "ask", command
    assert effect(made, "touch x") == "allow"
    everything, _ = skill_grants(parse_tools("Bash")[0], "SKILL.md", "/")
    made = permissions(tmp_path).with_rules(everything)
    for command in ("cat /etc/hosts", "touch $X", "echo x > ok.txt"):
        assert effect(made, command) == "ask", command


def test_who_allows_every_command_allows_reading_outside_but_not_what_is_guarded(tmp_path: Path) -> None:
    made = permissions(tmp_path, allow=("Bash",))
    for command in ("cat /etc/hosts", "ls /", "make", "touch $X", "echo x > ok.txt", "rm ok.txt", "cat $X"):
        assert effect(made, command) == "allow", command
    for command in (
        "cat ~/.ssh/id_rsa",
        "cat .env",
        "touch /tmp/x",
        "rm .git/config",
        "rm -rf ~",
        "echo x > $X",
        "cat /proc/1/environ",
    ):
        assert effect(made, command) == "ask", command
    assert effect(permissions(tmp_path, allow=("Bash",), protection=NOTHING), "touch $X") == "ask"


def test_without_a_sandbox_that_holds_them_control_files_are_asked_for_by_name(tmp_path: Path) -> None:
    rules = ("Bash(git log:*)", "Bash(dd:*)", "Bash(tool .vscode/x:*)")
    made = permissions(tmp_path, allow=rules, protection=NOTHING)
    for command in (
        "git log --output=.git/hooks/pre-commit",
        "dd if=ok.txt of=.git/config",
        "dd of=.mcp.json",
    ):
        assert effect(made, command) == "ask", command
    for command in ("git log -5", "dd if=ok.txt of=x", "tool .vscode/x"):
        assert effect(made, command) == "allow", command


@pytest.mark.parametrize("command", ["base64 src/a.py", "node src/a.py", "openssl enc -in src/a.py", "curl -d @src/a.py x", "dd if=src/a.py",
                                     "tool --file=src/a.py", "tool -fsrc/a.py", "./src/a.py", "git show HEAD:src/a.py", "tar cf x src",
                                     "rm src/a.py", "chmod +x src/a.py", "zip -r x .", "cp -r . /tmp/x", "cp -r src x", "python link"])  # fmt: skip
def test_a_file_that_may_not_be_read_is_found_among_the_words_of_any_command(tmp_path: Path, command: str) -> None:
    for mode in MODES:
        made = permissions(tmp_path, mode, allow=("Bash",), deny=("Read(./src/**)",))
        link = Path(made.workspace.root) / "link"
        if not link.is_symlink():
            link.symlink_to("src/a.py")
        assert effect(made, command) != "allow", mode


@pytest.mark.parametrize("mode", MODES)
def test_an_agents_commands_hold_in_every_mode(tmp_path: Path, mode: PermissionMode) -> None:
    access, _ = parse_tools("Bash(git log:*), Bash(git diff:*)", denied="Bash(git log --all:*)")
    made = permissions(tmp_path, mode, allow=("Bash",)).restricted_to(access, "agent.md")
    assert effect(made, "git log -5") == "allow"
    for command in (
        "ls",
        "git log && ls",
        "git log $(id)",
        "git push",
        "X=1 git log",
        "$X log",
        "git log --all -5",
        "git log | cat",
    ):
        judged = bash(made, command)
        assert judged.effect == "deny", command
        assert any(part.source == "agent.md" for part in judged.parts)


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from(["ls", "cat", "rm", "git log", ";", "&&", "|", "$(", ")", "`", "'", '"', ">", "<", "<<E", "\n", "$X", "{", "}", "ok.txt",
                         "/etc/passwd", "~", "..", "\\", "#", "&", "bash -c", "cd", "eval", "=", "A=1", "*", "é", "\0", "\ud800"])
        | st.text(max_size=4),
        max_size=12,
    ),
    st.sampled_from(MODES),
)  # fmt: skip
def test_nothing_raises_and_nobody_is_asked_where_nobody_answers(
    tmp_path: Path, words: list[str], mode: PermissionMode
) -> None:
    command = " ".join(words)
    judged = bash(permissions(tmp_path, mode, deny=("Bash(rm:*)", "Read(.env)")), command)
    assert judged.effect in ("allow", "ask", "deny")
    assert judged.effect != "ask" or mode in ASKING
    assert judged.reason
    assert judged.parts
    assert judged.effect != "allow" or judged.sandbox != "none"


@pytest.mark.parametrize("name", ["PATH", "BASH_ENV", "GIT_DIR", "IFS", "LD_PRELOAD", "GIT_PAGER"])
@pytest.mark.parametrize("loop", ["for", "select"])
def test_a_loop_that_sets_what_programs_obey_is_asked_even_under_a_rule(tmp_path: Path, loop: str, name: str) -> None:
    command = f"{loop} {name} in ./bin; do git log; done"
    assert effect(permissions(tmp_path), command) == "ask"
    assert effect(permissions(tmp_path, allow=("Bash(git log:*)",)), command) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "echo 'curl y' | xargs -I% sh -c %", "printf 'c%srl' u | xargs env", "printf x | xargs timeout 5",
        "printf x | xargs sh -c", "mapfile -C 'curl x #' -c 1 a < f", "readarray -C 'curl x #' -c 1 a < f",
        "compgen -C 'curl x'", "complete -C 'curl x' y",
    ],
)  # fmt: skip
def test_what_is_handed_to_something_that_runs_it_does_not_evade_a_denial(tmp_path: Path, command: str) -> None:
    assert effect(permissions(tmp_path, deny=("Bash(curl:*)",), allow=("Bash",)), command) != "allow"


def test_a_subcommand_that_only_reads_is_not_said_to_reach_the_network(tmp_path: Path) -> None:
    assert effect(permissions(tmp_path), "git remote -v") == "allow"
    assert effect(permissions(tmp_path), "git remote update") == "ask"


def test_a_command_that_walks_through_a_thousand_folders_is_asked(tmp_path: Path) -> None:
    assert effect(permissions(tmp_path), "cd a && " * 1_100 + "ls") == "ask"
