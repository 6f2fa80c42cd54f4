import shutil
import subprocess

import pytest

from kitbag.shell.analysis import SimpleCommand, analyze
from kitbag.shell.command_table import command_table


def part(text: str) -> SimpleCommand:
    return analyze(text).parts[0]


def approved(text: str, *kinds: str) -> bool:
    found = analyze(text)
    return not found.uncertainties and all(one.kind in kinds and not one.uncertainties for one in found.parts)


READS = """ls|ls -la src|cat a b|head -20 x|head -n 5 x|tail -n +3 x|wc -l x|grep -rn foo src|grep -e a -e b f|rg -n 'f\\(' src -g '*.py'
rg --files src|find . -name '*.py' -not -path './x/*'|find . \\( -name a -o -name b \\) -print|sed -n 1,20p f|sort -u -k2,2 f
sort f \\| uniq -c \\| sort -rn \\| head|cut -d: -f1 f|tr a-z A-Z|git log --oneline -5|git log -n 5 --format='%h %s' -- src
git status --short|git diff HEAD~1 -- a.py|git show HEAD:a.py|git branch -a|git branch --list 'f*'|git rev-parse --show-toplevel
git -C sub status|git --no-pager log|git stash list|git remote -v|git blame -L 1,5 f|git grep -n foo|git ls-files '*.py'|git tag
echo hello 'a b'|printf '%s\\n' a|pwd|which python|command -v git|type ls|date +%Y|date|env|test -f x|[ -d x ]|[[ -f x && a == b ]]
true|cd x && ls|jq -r '.a[0].b' f.json|diff a.txt b.txt|stat -c %s f|du -sh .|timeout 5 ls|nice -n 5 ls|LANG=C LC_ALL=C ls|ps aux
basename /a/b|xxd f|ls 2>/dev/null|(ls)|{ ls; pwd; }|if ls; then pwd; fi|ls && pwd|/bin/ls|/usr/bin/git log|xxd -c 16 f|git --version
ls *.py|ls "$HOME"|docker ps|npm ls|cargo tree|for f in a b; do wc -l "$f"; done|x=src; ls "$x"|cat src/{a,b}.py
echo "$PATH" $USER|basename "$(pwd)"|python3 --version|go version|grep -rn x --include=*.py src|[ -f "$PWD/x" ]|[ "$(wc -l < f)" -gt 3 ]
if [ -n "$CI" ]; then echo ci; else echo no; fi|while read -r l; do echo "$l"; done < f|diff <(sort a) <(sort b)|cat <<< "$x"
git show $(git rev-parse HEAD)|git config --get user.name|printenv PATH|find . -name *.py|pip list|go list ./...|tar tzf x.tgz|id -un"""

OTHERS = """find . -exec touch x \\;|find . -delete|find . -fprint x|find -L .|find . -fls x|find . -okdir x \\;|xargs ls|export A=1|declare x
alias a=b|source f|. f|eval ls|FOO=1 ls|FOO=1|git log --output=x|git log --outp=x|git diff --ext-diff|git diff --no-index a b
git grep -Oless x|git grep -nOless x|git branch x|git branch -D x|git tag x|git push|git fetch|git config --list|git config a.b c|git log --format=%G?
git log -p --textconv|git remote show origin|git stash|git reflog expire|git commit|git lg|git --git-dir=x log|git worktree add x
rg --pre=id x|rg --pre id x|rg -z x|rg -L x|rg --hostname-bin=id x|sort -o x f|sort -uo x f|sort -ox f|sort --output=x f|sort --outp=x f
sort --compress-program=id f|uniq a b|xxd -r a b|xxd a b|tree -o x|date -s x|date 010101|hostname x|file -C|file -m x f|file -z f
printf -v x y|printf %n x|printf -- -v|test -v a|[ -v a ]|[[ -v a ]]|[[ a -eq b ]]|ps auxe|ps e|ps -o environ|less x|man x|vim x|rm -r x
chmod -R +x f|dd if=a of=b|python x.py|ls $X|cat ~root/x|cat $(x)|./ls|~/ls|/tmp/ls|bin/ls|fd -x id|fd -X id|diff -l a b
jq -f x f|jq 'import "a" as a; .' f|jq -L d . f|yq -i .a f|strings @f|env ls|env A=1|sudo ls|exec ls|grep -R x .|ls -LR|watch ls
setsid ls|bash -c ls|tail --foo f|time -o x ls|nice rm -r x|command rm|trap ls EXIT|set -x|shopt -s extglob|read PATH|read x|mapfile x|umask 0|unset x
ln -s a b|cp -l a b|cp -s a b|cp -r a/. b|cp -rT a b|cp a|mv -b a b|cp --backup a b|touch $x|tee *.x|tee >(id)|sed --file=x f|nohup rm -r x
wc --files0-from=x|du --files0-from=x|md5sum -c x|tail -n 1 --unknown|ulimit -n 5|kill 1|git archive -o x HEAD|awk -f x f|sed -f x f
hash -r|enable -f x y|complete -C x y|bind -x y|pushd x|popd|exec 3>x|gh pr list|kubectl get pods|make -n
cat "$x"|cat $(ls)|grep $x f|grep "$x" f|sort $x f|find "$x"|wc -l "$(cat f)"|sed "$x" f|awk "$x" f|"$x"|for c in rm; do $c x; done
echo "$GITHUB_TOKEN"|cat <<< "$AWS_SECRET_ACCESS_KEY"|printenv GITHUB_TOKEN|(d=src); ls "$d"/x $e|[[ $x -eq 1 ]]|[ $x = y ]|[ "$x" "$y" ]
npm run build|npm config list|pip list --log f|git show "$(cat f)"|git log --format="$x"|python3 --version -c x|python3 -c --version
tar xf x|tar tf x -I y|touch *.x|rm *.x|chmod u+s f|chmod 000 f|docker inspect x|docker compose config|find . -name x $y|jq "$x" f"""


def split(table: str) -> list[str]:
    lines = table.replace("\\|", "\x00").replace("\n", "|").split("|")
    return [line.replace("\x00", "|") for line in lines]


@pytest.mark.parametrize("text", split(READS))
def test_it_is_proven_to_only_read(text: str) -> None:
    assert approved(text, "read")


@pytest.mark.parametrize("text", split(OTHERS))
def test_it_is_neither_a_read_nor_an_edit(text: str) -> None:
    assert not approved(text, "read", "edit")


@pytest.mark.parametrize(
    ("text", "writes", "reads"),
    [
        ("mkdir -p a/b c", ["a/b", "c"], []),
        ("touch -r x y", ["y"], ["x"]),
        ("tee -a x ~/y", ["x", "~/y"], []),
        ("cp a b", ["b", "b/a"], ["a"]),
        ("cp -r d/.git .", [".", "./.git"], ["d/.git"]),
        ("cp a b/ c", ["c", "c/a", "c/b"], ["a", "b/"]),
        ("cp -t d a b", ["d", "d/a", "d/b"], ["a", "b"]),
        ("mv a b", ["a", "b", "b/a"], ["a"]),
        ("mv --target-directory=d a", ["a", "d", "d/a"], ["a"]),
        ("sed -i s/a/b/ x y", ["x", "y"], []),
        ("sed -i.bak -e s/a/b/ x", ["x", "x.bak"], []),
        ("sed --in-place=.x s/a/b/ x", ["x", "x.x"], []),
    ],
)
def test_an_edit_names_every_path_that_it_writes(text: str, writes: list[str], reads: list[str]) -> None:
    found = part(text)
    assert found.kind == "edit"
    assert sorted(found.writes) == writes
    assert sorted(found.reads) == reads


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("cat a ~/b /etc/passwd -", ["a", "~/b", "/etc/passwd"]),
        ("cat -- -x", ["-x"]),
        ("grep x a b", ["a", "b"]),
        ("grep -e x a b", ["a", "b"]),
        ("grep -rf /etc/p b", ["/etc/p", "b"]),
        ("grep --file=/etc/p b", ["/etc/p", "b"]),
        ("grep -r x", ["."]),
        ("rg --files /etc", ["/etc"]),
        ("rg x", ["."]),
        ("find /etc -newer /x", ["/x", "/etc"]),
        ("find -name x", ["."]),
        ("ls", ["."]),
        ("sed -n p /etc/passwd", ["/etc/passwd"]),
        ("sed -e p /etc/passwd", ["/etc/passwd"]),
        ("awk -F : '{print $1}' /etc/passwd", ["/etc/passwd"]),
        ("jq --slurpfile a /x . /y", ["/x", "/y"]),
        ("jq --arg a /x .", []),
        ("git -C /x log", ["/x", "."]),
        ("git diff /etc/a /etc/b", ["/etc/a", "/etc/b"]),
        ("git diff -U /etc/a /etc/b", ["/etc/a", "/etc/b"]),
        ("diff --from-file=/a /b", ["/a", "/b"]),
        ("fmt -t /etc/passwd", ["/etc/passwd"]),
        ("[ -f /etc/x -a /a -nt /b ]", ["/etc/x", "/a", "/b"]),
        ("date -r /x", ["/x"]),
        ("head -n 5 /x", ["/x"]),
        ("head -n5 /x", ["/x"]),
        ("head -5 /x", ["/x"]),
        ("cd /x", ["/x"]),
    ],
)
def test_a_read_names_every_path_that_it_reads(text: str, reads: list[str]) -> None:
    found = part(text)
    assert found.kind == "read"
    assert sorted(set(found.reads)) == sorted(reads)


@pytest.mark.parametrize(
    "text",
    ["curl x", "wget x", "ssh h", "git push", "git -C x fetch", "npm install", "npm --silent ci", "pip install x", "gh pr list",
     "env curl x", "timeout 5 git pull", "cargo build", "uv sync", "docker pull x", "echo x > /dev/tcp/h/1", "sh -c 'curl x'"],
)  # fmt: skip
def test_it_reaches_the_network(text: str) -> None:
    assert any(one.network for one in analyze(text).parts)


@pytest.mark.parametrize(
    "text", ["ls", "git log", "git commit -m push", "npm run build", "make", "echo curl", "grep curl f"]
)
def test_it_does_not_reach_the_network(text: str) -> None:
    assert not any(one.network for one in analyze(text).parts)


@pytest.mark.parametrize(
    "name", ["ls", "grep", "sort", "head", "wc", "cut", "cp", "mkdir", "touch", "stat", "du", "uniq", "od", "fmt"]
)
def test_an_option_that_takes_no_value_swallows_no_path(name: str) -> None:
    """What the table takes for a value must be one for the real program, or a path would go unseen."""
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"there is no {name} here")
    shown = subprocess.run([program, "--help"], capture_output=True, text=True, env={"LC_ALL": "C"}).stdout
    if "GNU" not in shown:
        pytest.skip(f"{name} is not the one that the table is about")
    for option, found in command_table().commands[name].options.items():
        if found.values and option.startswith("--"):
            assert f"{option}=" in shown or f"{option}[=" in shown
