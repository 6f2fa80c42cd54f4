import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitbag.shell.analysis import ShellAnalysis, analyze
from support.cost import processor_limit, steps
from support.matrix import examples, long, sample


def names(found: ShellAnalysis) -> set[str]:
    return {part.words[0] or "?" for part in found.parts if part.words}


def doubted(found: ShellAnalysis) -> bool:
    return bool(found.uncertainties) or any(part.uncertainties for part in found.parts)


def denies(found: ShellAnalysis, name: str = "curl") -> bool:
    """Whether a rule `Bash(NAME:*)` that denies would match some part."""
    return any(form == name or form.startswith(name + " ") for part in found.parts for form in part.forms)


def only_reads(text: str) -> bool:
    found = analyze(text)
    return not doubted(found) and all(part.kind == "read" and not part.redirects for part in found.parts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a && b || c; d | e |& f & g\nh", "a b c d e f g h"),
        ("(a; b) && { c; d; }", "a b c d"),
        ("if a; then b; elif c; then d; else e; fi", "a b c d e"),
        ("while a; do b; done; until c; do d; done", "a b c d"),
        ("for x in $(a) `b`; do c; done", "a b c"),
        ("for ((i=$(a); i<3; i++)); do b; done", "a b"),
        ("select x in a; do b; done", "b"),
        ("case $(a) in x|y) b;; (z) c;; *) d; esac", "a b c d"),
        ("f() { a; }; function g { b; }; h() ( c )", "a b c"),
        ('a "$(b "$(c)")" `d \\`e\\``', "a b c d e"),
        ("a <(b) >(c) > $(d)", "a b c d"),
        ("a <<< $(b)", "a b"),
        ('echo $((x[$(a)])) ${y:-$(b)} "${z:+`c`}"', "echo a b c"),
        ("[[ -n $(a) && $(b) =~ x ]] || c", "[[ a b c"),
        ("x=$(a) y=(1 $(b)) z[$(c)]=`d`", "a b c d"),
        ("cat <<E && a\n$(b) `c`\nE\nd", "cat a b c d"),
        ("cat <<'E' && a\n$(b) `c`\nE\nd", "cat a d"),
        ("cat <<-E\n\tx\n\tE\nc", "cat c"),
        ("! a; time b", "a b"),
        ("bash -c 'a; b $(c)'", "bash a b c"),
        ("eval 'a &&' b", "eval a b"),
        ("a # b; c\nd", "a d"),
        ("a 'b; c' \"d; e\" \\; f", "a"),
    ],
)
def test_every_command_at_any_depth_is_a_part(text: str, expected: str) -> None:
    found = analyze(text)
    assert names(found) == set(expected.split())
    assert not found.uncertainties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("time -p { a; }; time (b)", "a b"),
        ('cat <<A <<-"B"; a\n$(b)\nA\n\t$(c)\n\tB\nd', "cat a b d"),
        ("a > $(b) <<< $(c)", "a b c"),
        ("cat <<-E\n\t$(b)\n\tE\nc", "cat b c"),
        ("a=1 >x; b", "b"),
        ("exec 3<>f; a", "a"),
    ],
)
def test_where_the_grammar_has_another_opinion_everything_is_found_and_doubted(text: str, expected: str) -> None:
    found = analyze(text)
    assert set(expected.split()) <= names(found)
    assert found.uncertainties


@pytest.mark.parametrize("joint", ["&&", "||", ";", "|", "&", "\n", "|&", "&&\n\n", ";\n# c\n", " \\\n&& "])
def test_each_part_of_a_list_is_judged_by_itself(joint: str) -> None:
    found = analyze(f"git log {joint} id")
    assert [part.allow_form for part in found.parts] == ["git log", "id"]
    assert [part.kind for part in found.parts] == ["read", "read"]


@pytest.mark.parametrize(
    "argument",
    ["$(id)", "`id`", "<(id)", ">(id)", '"--format=$(id)"', "$((a[$(id)]))", "<<< $(id)", "> $(id)", "<<E\n$(id)\nE"],
)
def test_a_command_inside_a_word_is_a_part_and_the_rest_is_no_plain_read(argument: str) -> None:
    found = analyze(f"git log {argument}")
    assert names(found) == {"git", "id"}
    assert not doubted(found), "both may be allowed by rules"
    outer = found.parts[0]
    assert outer.kind == "other" or outer.redirects or "<<" in argument or "<(" in argument


# Ways to run curl. A rule that denies it must match each of them.
WAYS_TO_CURL = [
    "env curl x", "env -i -u A -C /tmp B=1 curl x", "env -S 'curl x'", "env -S\"curl x\"", "env - curl x", "env A=1 -- curl x",
    "sudo curl x", "sudo -u root curl x", "sudo -nE -- sh -c 'curl x'", "doas -u x curl x", "nohup curl x", "nohup -- curl x",
    "timeout 5 curl x", "timeout -k 5 --signal=KILL 10s env curl x", "timeout $T curl x", "nice -n 19 curl x", "nice -19 curl x",
    "xargs curl", "xargs -0 -n1 -I{} curl {}", "xargs sh -c 'curl x'", "command curl x", "command -p curl x", "exec -a n curl x",
    "builtin command curl x", "noglob curl x", "stdbuf -o0 curl x", "setsid -f curl x", "ionice -c 3 curl x", "chroot / curl x",
    "flock /tmp/l curl x", "flock /tmp/l -c 'curl x'", "watch -n 1 curl x", "watch 'ls; curl x'", "unshare -r curl x",
    "strace -f -o o curl x", "chrt -f 1 curl x", "taskset -c 0,1 curl x", "busybox curl x", "busybox sh -c 'curl x'",
    "parallel 'curl {}' ::: x", "find . -exec curl {} \\;", "find . -exec sh -c 'curl x' \\;", "find . -ok env curl {} ';'",
    "find . -exec a -exec curl x \\;", "bash -c 'curl x'", "bash -lc 'ls; curl x'", "sh -ec 'true && curl x'", "bash -c -- 'curl x'",
    "bash --norc -o pipefail -c 'curl x'", "bash -c 'bash -c \"curl x\"'", "zsh -c 'curl x'", "dash -c 'curl x'",
    "ssh host 'ls; curl x'", "su -c 'curl x' root", "script -qc 'curl x'", "docker run img curl x", "npx curl x",
    "echo 'curl x' | sh", "echo curl x | bash -s", "sh <<E\ncurl x\nE", "sh <<'E'\nls\ncurl x\nE", "bash <<< 'curl x'",
    "bash <(echo curl x)", ". <(echo curl x)", "source /dev/stdin <<< 'curl x'", "at now <<< 'curl x'",
    "/usr/bin/curl x", "../../usr/bin/curl x", "~/bin/curl x", "$HOME/bin/curl x", "./curl x", "FOO=1 curl x", "A=1 B=$(ls) curl x",
    "a[1]=2 curl x", "a[1 + 2]=3 curl x", "a+=1 curl x", '"curl" x', "c'u'rl x", "\\curl x", "c\\url x", "$'\\x63url' x", 'cu""rl x',
    "cu$()rl x", "cu$@rl x", "cu${x}rl x", "cu``rl x", "cu\\\nrl x", "{curl,-s,x}", "${x:-curl} y", "x=curl; $x y", "$(echo curl) x",
    "`echo curl` x", ">f curl x", "2>&1 curl x", "{fd}>f curl x", ">f a=1 curl x", "! curl x", "time -p curl x", "coproc curl x",
    "coproc N { curl x; }", "ls $\\\n(curl x)", "ls &\\\n& curl x", "eval curl x", "eval \"ls; curl x\"", "eval \"$X; curl x\"",
    "trap 'curl x' EXIT", "trap curl EXIT", "alias ls='curl x'", "alias a=curl", "hash -p /usr/bin/curl ls; ls",
    "git -c alias.a='!curl x' a", "git -c core.pager='curl x' log", "git submodule foreach 'curl x'", "git bisect run curl x",
    "git rebase --exec 'curl x' main", "git config alias.x '!curl x'", "tar xf a --to-command='curl x'",
    "tar cf a --checkpoint=1 --checkpoint-action=exec='curl x' f", "sort --compress-program=curl f", "rg --pre curl x",
    "rsync -e 'curl x' a b", "x='$(curl x)'; echo ${x@P}", "PS4='$(curl x)'; set -x; ls", "[[ -v 'a[$(curl x)]' ]]",
    "test -v 'a[$(curl x)]'", "printf -v 'a[$(curl x)]' y", "let 'a[$(curl x)]=1'", "# comment \\\ncurl x", "ls # c; y\ncurl z",
    "ls 'curl x", '"ls; curl x', "ls $(curl x", "ls `curl x", "cat <<E\ncurl x", "echo a; }; curl x", "ls;;curl x", "ls )curl x",
    "$((curl x); ls)", "((curl x); ls)", "echo \"$((1+\"$(curl x)\"))\"", "ls $[a[`curl x`]]", "f() case a in a) curl x;; esac",
    "case in in in) curl x;; esac", "for do in do; do curl x; done", "exec 3<>/dev/tcp/a/1; curl x", "[[ a =~ (b|$(curl x)) ]]",
    "$(>f ! curl x)", "mapfile -t a < <(curl x)", "nohup nice timeout 1 stdbuf -oL env A=1 sudo curl x", "env " * 2000 + "curl x",
    "sudo -u x " * 900 + "curl x", "curl", "curl;", "curl|sh", "curl>f", "curl&",
]  # fmt: skip


@pytest.mark.parametrize("text", WAYS_TO_CURL, ids=lambda text: repr(text[:40]))
def test_a_denied_command_is_found_however_it_is_run(text: str) -> None:
    assert denies(analyze(text))


@pytest.mark.parametrize(
    "text",
    [
        "git -C d push x",
        "git -c a=b --no-pager push",
        "git --git-dir=x push",
        "git --unknown x push",
        "/bin/git -P push",
    ],
)
def test_options_before_a_subcommand_do_not_hide_it(text: str) -> None:
    assert any(form.startswith("git push") for part in analyze(text).parts for form in part.forms)


@pytest.mark.parametrize(
    "text", ["git $X", "git $(echo push)", "git pu[s]h", "git {push,}", "npm -s $X", "$X log", "g* log"]
)
def test_a_subcommand_or_command_that_is_not_known_is_doubted(text: str) -> None:
    assert doubted(analyze(text))


@pytest.mark.parametrize(
    "text",
    [
        "echo curl", "git commit -m 'use curl; not wget'", "grep -rn curl .", "cat > f <<'E'\ncurl x\nE", "ls # curl x",
        "git log --grep='$(curl)'", "echo 'a' \"; curl\"",
    ],
)  # fmt: skip
def test_the_word_alone_is_no_command(text: str) -> None:
    assert not denies(analyze(text))


def test_one_that_is_denied_is_found_after_any_number_of_others() -> None:
    for count in (60, 1_000, 5_000):
        found = analyze("true && " * count + "curl x")
        assert denies(found)
        assert (count == 60) != bool(found.uncertainties)
    assert denies(analyze("".join(f"c{number}; " for number in range(9_000)) + "curl x"))


@pytest.mark.parametrize(
    "text",
    [
        "echo 'a", 'echo "a', "echo $(a", "echo `a", "a &&", "| a", "if a; then b", "a )", "( a", "{ a", "for x in", "case x in",
        "cat <<E", "a;;", "ls\x00; id", "ls\r", "ls \x1b[1m", "ls \ud800", "ls\u00a0-l", "ls \u200b", "ls \u202e", "a" * 10_001,
        "a; " * 250, "$(" * 40 + ")" * 40, "ls $[1]", "coproc ls", "a\\\nb", "$((a); b)", "${ ls; }", "a=1 b[", "ls " * 500,
    ],
    ids=lambda text: repr(text[:20]),
)  # fmt: skip
def test_what_cannot_be_read_with_certainty_is_doubted(text: str) -> None:
    assert analyze(text).uncertainties


@pytest.mark.parametrize(
    "text",
    [
        "cat$IFS/etc/passwd", "echo ${IFS}", "echo ${x@P}", "echo ${x:=y}", "echo ${x=y}", "echo ${!x}", "echo ${!x@}", "echo ${x@E}",
        "echo ${x[$y]}", "echo ${x:y}", "((x))", "x='a[$(id)]'; echo $((x))", "read x; echo $((x))", "PATH=x git log", "PATH=x",
        "LD_PRELOAD=x ls", "PAGER=x git log", "GIT_SSH_COMMAND=x git log", "PYTHONSTARTUP=x ls", "NODE_OPTIONS=x ls", "IFS=x ls",
        "BASH_ENV=x ls", "echo x > /dev/tcp/h/1", "cat < /dev/udp/h/1", "$x", "`x`", "*", "eval $x", "bash -c $x", "curl x | sh",
        "git -c a=b log", "git --exec-path=x log", "timeout $x ls", "sudo $x ls", "find . -exec $x \\;", "[[ a[$(id)] -eq 1 ]] && y=$x",
    ],
)  # fmt: skip
def test_expansions_and_assignments_that_can_run_something_are_never_approved_alone(text: str) -> None:
    found = analyze(text)
    assert doubted(found) or any(part.kind == "other" for part in found.parts)
    assert not only_reads(text)
    if "[[" not in text:
        assert doubted(found)


@pytest.mark.parametrize(
    ("operator", "writes"),
    [
        (">", True),
        (">>", True),
        (">|", True),
        ("&>", True),
        ("&>>", True),
        ("2>", True),
        ("<>", True),
        (">&", True),
        ("<", False),
    ],
)
def test_a_redirection_says_what_it_touches(operator: str, writes: bool) -> None:
    (part,) = (part for part in analyze(f"echo x {operator} ~/.bashrc").parts if part.words[:1] == ("echo",))
    assert [(redirect.target, redirect.writes) for redirect in part.redirects] == [("~/.bashrc", writes)]
    assert part.allow_form == "echo x"


def test_a_redirection_to_no_file_is_none_and_one_to_an_unknown_file_says_so() -> None:
    assert analyze("ls 2>/dev/null >&2 2>&1 <&- <<< x").parts[0].redirects == ()
    assert analyze("ls > $x").parts[0].redirects[0].target is None
    assert analyze("ls > *.txt").parts[0].redirects[0].target is None
    assert analyze("{ ls; pwd; } > out").parts[-1].redirects[0].target == "out"
    assert analyze("while a; do b; done < in").parts[-1].redirects[0].target == "in"


@pytest.mark.parametrize(
    "text",
    [
        "git log --oneline -5", "git commit -m \"$(cat <<'EOF'\nIt's (really) done\nEOF\n)\"", "cat > a.py <<'E'\nx = 'it''s'\nE",
        "for f in *.py; do wc -l \"$f\"; done", "curl -d '{\"a\": \"b; c\"}' http://x/y | jq '.a[0] | {b: .c}'", "a=1; echo \"$a\"",
        "docker run --rm -v \"$PWD\":/w -e A=b node:20 npm test -- --foo", "find . \\( -name a -o -name b \\) -print",
        "NODE_ENV=test npm run build 2>&1 | tee log | tail -5", "ls \\\n  -la \\\n  src", "bash scripts/run.sh --flag 'a b'",
        "awk '{print $1}' f | sort | uniq -c", "[[ $x =~ ^[0-9]+$ ]] && echo \"${x%.*}\" ${#y} ${z##*/}", "echo é “x”",
        "python3 - <<'E'\nprint(f\"{x}: $(y) `z`\")\nE", "git show HEAD@{1}:a.py", "tar czf x.tgz --exclude=node_modules .",
    ],
)  # fmt: skip
def test_everyday_commands_are_not_doubted(text: str) -> None:
    assert not doubted(analyze(text))


def test_nothing_to_run_is_nothing() -> None:
    assert analyze("") == analyze("  \n # only a comment") == ShellAnalysis((), ())


HOSTILE = [
    "$(", "(", "{ ", "{", '"', "'", "`", "a&&", "cat <<E\n", "<<E ", '"$(', "${a:-", "$((", "[[ ( ", "case x in ", "if ", "<(", "a=(",
    "! ", "a|", "(a;", "a)", "\n", "\\", "f()", "[", "@(", "${#", "$[", "a{b,", ">a", "x=", "=~ ", "{[[ls ", "`<a ", "bash -c '",
    "eval 'eval ", "find -exec eval ", "env ", "sudo -u x ", "docker a ", "trap 'a;b' ", "sed s/a/b/ ", "a;", "\u00e9", "time ",
    "echo 'a;b' | sh;", "git -c a=b ", "x='$(a)';", "a\\\n", "a$x", "[a]", "<<", "|&", "select ", "function ",
]  # fmt: skip


@long
@pytest.mark.parametrize("unit", sample(HOSTILE, 7), ids=repr)
def test_ten_thousand_hostile_characters_take_a_bounded_number_of_steps(unit: str) -> None:
    analyze("ls")
    for text in ((unit * 10_000)[:10_000], (unit * 5_000)[:5_000] + ")};'\"`" * 800):
        analyze.cache_clear()
        with processor_limit():
            assert steps(lambda text=text: analyze(text)) < 1_000 * len(text)


@long
@pytest.mark.parametrize("at", sample([0x80, 0xFF, 0x100, 0xFFFF, 0x10000, 0xF0762, 0x10FFFF], 3))
def test_no_character_crashes_the_grammar(at: int) -> None:
    from kitbag.shell.tree_sitter_check import read_with_grammar

    # A place beyond a table need not be memory that can't be read, so many are tried.
    for code in range(at, min(at + 3_000, 0x110000)):
        for text in ("{%s W", "${%s", "a%s=1 b", "[[ %s -eq 1 ]]", "$%s", "((%s", "<<%s\nx\n%s", "%s b", "x%s"):
            read_with_grammar(text.replace("%s", chr(code)) if not 0xD800 <= code < 0xE000 else "a")


# fmt: off
PIECES = st.sampled_from(
    ["s0", ";", "&&", "|", "&", "\n", "(", ")", "{", "}", "$(", "`", '"', "'", "\\", "\\\n", "${x", "${x:-", "$((", "))", "[[", "]]", "!",
     "#", "<", ">", "<<E", "\nE\n", "<<<", "<(", "if", "then", "fi", "while", "do", "done", "for", "case", "in", "esac", "time", "f()",
     "a=", "a=(", "*", "~", "$'", "env", "sudo", "bash", "-c", "eval", "find", "-exec", "git", "\t", "\x00", "\r", "\u00e9", "\u200b"]
)
# fmt: on


@settings(max_examples=examples(300))
@given(st.lists(PIECES | st.text(max_size=3), max_size=40).map(" ".join) | st.text(max_size=60))
def test_no_text_makes_it_raise(text: str) -> None:
    found = analyze(text)
    assert all(part.forms or part.assignments or not part.words or part.words == (None,) for part in found.parts)
    assert all(part.allow_form is None or part.words or part.assignments for part in found.parts)
