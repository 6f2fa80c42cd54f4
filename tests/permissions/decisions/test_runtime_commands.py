"""Deny rules and commands that are built at run time: by xargs, find, parallel, shells, interpreters and variables."""

from pathlib import Path

import pytest

from kitbag.permissions.model import PermissionDecision
from permissions.deciding import MODES, permissions

FROM_INPUT = [
    "echo rm | xargs -I% % -rf src", "echo rm | xargs -i {} -rf src", "echo rm | xargs -iX X -rf src",
    "echo rm | xargs --replace={} {} -rf src", "echo rm | xargs --replace {} -rf src", "cat list | xargs -IX /bin/X -rf src",
    "echo m | xargs -I% r% -rf src", "cat list | xargs -0I% % -rf src", "cat list | xargs -I % -- % x", "xargs -I% -a list % x",
    "cat list | xargs -I% env % x", "cat list | xargs -I% find . -exec % {} \\;", "cat list | xargs -J % % x",
    "cat list | xargs --repl % x", "cat list | xargs timeout 5", "cat list | xargs nohup", "cat list | xargs sh -c",
    "xargs -a list env", "cat list | xargs -I% sh -c '% x'", "cat list | xargs -0 python3 -c", "xargs xargs < list",
    "nice xargs -I% % x", "find /bin -name r? | xargs -I% % x", "parallel < list", "cat list | parallel", "parallel :::: list",
    "cat list | parallel {} x", "parallel -j2 {} x ::: rm", "parallel --pipe sh", "parallel {1} {2} ::: $X ::: y",
    "parallel -I% % x < list", "parallel --unheard-of x y", "cat list | sh", "sh < list", "bash -s < list", "sh <<< \"$X\"",
    "bash <<E\n$X\nE", ". /dev/stdin", "source /dev/fd/0", "at now < list", "crontab -", "make -f -", "make --file=-", "make -f- x",
    "make -f /dev/stdin < list", "gmake --makefile - x", "awk -f -", "sed -f /dev/stdin ok.txt", "cat list | python3", "python3 - < list",
    "python3.12 -u < list", "cat list | perl", "cat list | node", "ruby < list", "/usr/bin/php < list", "tclsh < list",
    "python3 <<E\nimport os; os.system('$X')\nE", "python3 <<< \"$X\"",
]  # fmt: skip
FROM_INPUT += [
    "python3 /dev/fd/3 3<list", "python3 <(cat list)", "unbuffer xargs -I% % x", "toybox xargs -I% % x", "awk '{system($0)}' list",
    "awk '{print | \"sh\"}' list", "perl -ne 'system $_' list", "sed e list", "sed -n 's/^//e' list",
]  # fmt: skip
FOUND = [
    "find . -exec {} x \\;", "find . -name r? -exec {} -rf src \\;", "find . -exec {} -rf src +", "find /bin -execdir {} x \\;",
    "find . -ok {} x \\;", "find . -exec env {} x \\;", "find . -exec timeout 5 {} x \\;", "find . -exec sh {} \\;",
    "find . -exec sh -c {} \\;", "find /usr -exec /usr/{} x \\;", "find . -exec xargs -I% % x \\;", "fd r. /bin -x {} -rf src",
    "fd r. /bin --exec {} x", "fd r. /bin -X {} x", "fd -x{} r.", "fd --exec={/} x", "fdfind . -x sh -c {}", "fd . -x env {/} x",
]  # fmt: skip
EXPANDED = [
    "env $X", "env -S \"$X\"", "sh -c \"$(cat list)\"", "sh -c '$0 x' r\"\"m", "sh -c '\"$@\"' _ $X", "command $(cat list)", "eval \"$X\"",
    "nohup $X y", "timeout 5 $X", "timeout $X y", "nice $X", "stdbuf -o0 $X", "setsid $X", "watch \"$X\"", "flock l $X", "flock l -c \"$X\"",
    "busybox $X y", "busybox sh -c \"$X\"", "sudo $X", "exec -a x $X", "time $X", "trap \"$X\" EXIT", "mapfile -C \"$X\" a",
    "alias x=\"$X\"", "git -c alias.x=\"!$X\" x", "git -c \"$X\" y", "git config alias.x \"$X\"", "git bisect run $X", "git rebase -x \"$X\"",
    "git difftool -x \"$X\"", "git submodule foreach \"$X\"", "tar --to-command=\"$X\" -xf x", "tar -I \"$X\" -cf x y",
    "rsync -e \"$X\" a b", "ssh -o ProxyCommand=\"$X\" h", "python3 -c \"$X\"", "perl -ne \"$X\" ok.txt", "awk \"$X\" ok.txt", "/bin/r? x",
]  # fmt: skip
IN_CODE = [
    "python3 -c 'import os; os.system(\"rm -rf src\")'", "python3 -c 'import subprocess; subprocess.run([\"rm\", \"-rf\", \"src\"])'",
    "python3 <<'E'\nimport os\nos.system('rm -rf src')\nE", "python3 - <<'E'\nos.execlp('/bin/rm', 'rm')\nE", "perl -e 'system \"rm x\"'",
    "perl -pe '`rm x`' ok.txt", "ruby -e 'exec(\"rm\")'", "node -e 'require(\"child_process\").execSync(\"rm x\")'", "php -r 'system(\"rm x\");'",
    "awk 'BEGIN{system(\"rm x\")}'", "awk 'BEGIN{c=\"rm\"; system(c\" x\")}'", "sed '1e rm x' ok.txt", "sed 's/.*/rm x/e' ok.txt",
    "vim -c '!rm x'", "gdb -ex 'shell rm x'", "sqlite3 x '.shell rm x'", "psql <<'E'\n\\! rm x\nE", "make --eval='$(shell rm x)'",
    "env python3 -c 'import os; os.system(\"rm x\")'", "make -f - <<'E'\nall:\n\trm x\nE", "nice perl -E 'exec q(rm x)'",
]  # fmt: skip
ALLOWED = ("Bash(*)", "Bash(xargs *)", "Bash(find *)", "Bash(fd *)", "Bash(python3 *)", "Bash(cat *)", "Bash(echo *)")


def decided(
    tmp_path: Path, mode: str, command: str, deny: tuple[str, ...], allow: tuple[str, ...]
) -> PermissionDecision:
    made = permissions(tmp_path, mode, deny=deny, allow=allow)  # pyright: ignore[reportArgumentType]
    return made.decide("Bash", {"command": command})


@pytest.mark.parametrize("command", [*FROM_INPUT, *FOUND, *EXPANDED, *IN_CODE])
def test_a_command_that_could_be_a_denied_one_is_never_run_unasked(tmp_path: Path, command: str) -> None:
    for mode in MODES:
        for allow in ((), ("Bash",), ALLOWED):
            decision = decided(tmp_path, mode, command, ("Bash(rm:*)",), allow)
            assert decision.effect != "allow", (mode, allow)
    for mode in ("autonomous", "plan"):
        decision = decided(tmp_path, mode, command, ("Bash(rm:*)",), ("Bash",))
        assert decision.effect == "deny"
        deciding = [part for part in decision.parts if part.effect == "deny"]
        assert any(part.rule == "Bash(rm:*)" for part in deciding), deciding


def test_the_reason_names_the_rule_once(tmp_path: Path) -> None:
    decision = decided(tmp_path, "autonomous", "cat list | xargs -I% % x", ("Bash(rm:*)",), ())
    assert decision.reason == (
        "runs commands from its input, so it may run a command that `Bash(rm:*)` denies; autonomous mode denies"
        " instead of asking"
    )
    (part,) = [part for part in decision.parts if part.effect == "deny"]
    assert part.reason_with_rule(part.source) == f"{decision.reason} (deny.toml:1)"


@pytest.mark.parametrize("command", [*FROM_INPUT, *FOUND, *EXPANDED, *IN_CODE])
def test_without_a_rule_that_could_match_autonomous_mode_runs_it(tmp_path: Path, command: str) -> None:
    decision = decided(tmp_path, "autonomous", command, (), ())
    by_rule = [part for part in decision.parts if part.rule or "permission" in part.reason]
    assert not by_rule


EVERYDAY = [
    "git ls-files | xargs wc -l", "find . -name '*.py' -exec grep -n x {} +", "find . -type f -exec sed -i s/a/b/ {} \\;",
    "ls | xargs -I{} cp {} src/", "fd -e py -x ruff check {}", "parallel -j4 gzip {} ::: a b", "python3 -c 'print(1)'", "make", "make -j4 test",
    "python3 -m pytest -q", "cat ok.txt | python3 -m json.tool", "node build.js", "python3 --version", "perl -pe 's/a/b/' ok.txt",
    "python3 <<'E'\nprint('confirm format')\nE", "awk '{print $1}' ok.txt", "for f in *.py; do python3 $f; done", "npm test", "./run.sh",
    "git commit -m \"$MESSAGE\"", "git ls-files | xargs git add", "bash build.sh", "find . -name '*.sh' -exec chmod +x {} \\;",
    "sqlite3 x.db 'select 1'", "cat list | xargs", "tar -xf $FILE",
]  # fmt: skip


@pytest.mark.parametrize("command", EVERYDAY)
def test_everyday_commands_that_could_not_be_denied_ones_are_not_stopped(tmp_path: Path, command: str) -> None:
    decision = decided(tmp_path, "autonomous", command, ("Bash(rm:*)", "Bash(git push:*)", "Bash(curl:*)"), ())
    assert decision.effect == "allow", decision.reason


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("echo -rf src | xargs rm", "Bash(rm -rf:*)"), ("ls | xargs -I% rm % src", "Bash(rm -rf:*)"), ("rm $X src", "Bash(rm -rf *)"),
        ("echo push | xargs git", "Bash(git push:*)"), ("cat list | xargs -L1 git -C .", "Bash(git push:*)"), ("git -C . $X", "Bash(git push:*)"),
        ("npm run $X", "Bash(npm run deploy)"), ("find . -exec git {} \\;", "Bash(git push *)"), ("docker $X", "Bash(docker run*)"),
        ("xargs < list", "Bash(echo:*)"), ("RM $X src", "Bash(rm -rf:*)"), ("xargs -I% rm -r% src < list", "Bash(rm -rf:*)"),
        ("rm -r$X src", "Bash(rm -rf:*)"),
    ],
)  # fmt: skip
def test_arguments_known_only_at_run_time_could_be_denied_ones(tmp_path: Path, command: str, rule: str) -> None:
    assert decided(tmp_path, "default", command, (rule,), ("Bash",)).effect != "allow"
    parts = decided(tmp_path, "autonomous", command, (rule,), ()).parts
    assert any(part.effect == "deny" and part.rule == rule for part in parts)


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("rm src/*.pyc", "Bash(rm -rf:*)"), ("git add \"$X\"", "Bash(git push:*)"), ("rm -i $X", "Bash(rm -rf:*)"), ("ls $X", "Bash(* --force)"),
        ("ls | xargs git add", "Bash(git push:*)"), ("git push origin \"$X\"", "Bash(git push --force:*)"),
    ],
)  # fmt: skip
def test_arguments_that_could_not_be_denied_ones_change_nothing(tmp_path: Path, command: str, rule: str) -> None:
    assert decided(tmp_path, "default", command, (rule,), ("Bash",)).effect == "allow"


def test_a_rule_that_asks_holds_for_commands_built_at_run_time_too(tmp_path: Path) -> None:
    made = permissions(tmp_path, ask=("Bash(rm:*)",), allow=("Bash",))
    decision = made.decide("Bash", {"command": "cat list | xargs -I% % x"})
    assert decision.effect == "ask"
    assert "`Bash(rm:*)` asks about" in decision.reason
