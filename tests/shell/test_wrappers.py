import pytest

from kitbag.shell.analysis import analyze


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("git log", "git log"),
        ("git   log  'a b'", "git log 'a b'"),
        ("timeout 5 git log", "git log"),
        ("timeout -k 1 -s KILL 5 nice -n 3 git log", "git log"),
        ("time git log", "git log"),
        ("nohup stdbuf -oL git log", "git log"),
        ("command git log", "git log"),
        ("builtin echo x", "echo x"),
        ("noglob git log", "git log"),
        ("xargs git log", "git log"),
        ("LANG=C TZ=UTC git log", "git log"),
        ("xargs -n1 git log", "xargs -n1 git log"),
        ("FOO=1 git log", "FOO=1 git log"),
        ("FOO=1 timeout 5 git log", "FOO=1 timeout 5 git log"),
        ("LANG=$x git log", "LANG=$x git log"),
        ("TZ=/etc/passwd git log", "TZ=/etc/passwd git log"),
        ("env git log", "env git log"),
        ("sudo git log", "sudo git log"),
        ("exec git log", "exec git log"),
        ("env timeout 5 git log", "env timeout 5 git log"),
        ("timeout 5 sudo git log", "sudo git log"),
        ("/usr/bin/git log", "/usr/bin/git log"),
        ("./timeout 5 git log", "./timeout 5 git log"),
        ('"git" log', '"git" log'),
        ("'git log' x", "'git log' x"),
        ("git log > x", "git log"),
        ("git >x log", "git log"),
        ("git log $(id)", "git log $(id)"),
        ("time -o x git log", "time -o x git log"),
        ("timeout $x git log", "timeout $x git log"),
        ("bash -c 'git log'", "bash -c 'git log'"),
        ("find . -name x", "find . -name x"),
        ("watch git log", None),
        ("setsid git log", None),
        ("ionice -c 3 git log", None),
        ("flock f git log", None),
        ("timeout 5 watch git log", None),
        ("find . -exec git log \\;", None),
        ("find . -delete", None),
        ("find . $x", None),
        ("$x log", None),
        ("git* log", None),
        ("timeout 5 $x", None),
    ],
)
def test_an_allow_rule_sees_through_a_few_harmless_wrappers_only(text: str, form: str | None) -> None:
    assert analyze(text).parts[0].allow_form == form


def test_a_deny_rule_sees_every_level() -> None:
    (part,) = analyze("A=1 sudo -u x env B=2 timeout 5 /usr/bin/curl 'a b'").parts
    assert {
        "A=1 sudo -u x env B=2 timeout 5 /usr/bin/curl 'a b'",
        "sudo -u x env B=2 timeout 5 /usr/bin/curl 'a b'",
        "env B=2 timeout 5 /usr/bin/curl 'a b'",
        "timeout 5 /usr/bin/curl 'a b'",
        "/usr/bin/curl 'a b'",
        "curl a b",
    } <= set(part.forms)
    assert part.words == ("/usr/bin/curl", "a b")
    assert part.assignments == (("A", "1"),)


def test_text_for_a_shell_brings_parts_of_its_own() -> None:
    outer, first, second = analyze("bash -c 'ls; rm x'").parts
    assert (outer.kind, first.kind, second.kind) == ("other", "read", "edit")
    assert [part.allow_form for part in (first, second)] == ["ls", "rm x"]
    assert len(analyze("bash run.sh").parts) == 1


@pytest.mark.parametrize("text", ["docker run -v $PWD:/w x", "ssh host $x", "npx $x"])
def test_a_word_that_is_not_known_is_no_doubt_for_what_runs_elsewhere(text: str) -> None:
    (part,) = analyze(text).parts
    assert part.allow_form == text
    assert not part.uncertainties


@pytest.mark.parametrize(
    "text", ["nsenter -t 1 $x", "unshare $x", "env $x ls", "sudo -u $x ls", "eval $x", "bash -c $x", "sh", "sh -s a"]
)
def test_a_word_that_is_not_known_is_a_doubt_for_what_runs_it_here(text: str) -> None:
    assert any(part.uncertainties for part in analyze(text).parts)
