"""D04, D46: what a real child process finds in its environment."""

import os
import subprocess
import sys

import pytest

from kitbag.sandbox.environment import scrub_environment
from support.waiting import TEST_TIMEOUT

PLAIN = {"PATH": os.environ["PATH"], "HOME": "/home/u", "LANG": "C.UTF-8"}
CANARY = "canary-7f3a91c2d4"


def in_child(extra: dict[str, str], keep: frozenset[str] = frozenset()) -> dict[str, str]:
    """The environment as a child of ours sees it, read by the child itself."""
    program = "import os,sys; sys.stdout.buffer.write(b'\\0'.join(k + b'=' + v for k, v in os.environb.items()))"
    child = subprocess.run(
        [sys.executable, "-I", "-c", program],
        env=scrub_environment((PLAIN | extra).items(), keep),
        capture_output=True,
        check=True,
        timeout=TEST_TIMEOUT,
    )
    entries = (entry.split("=", 1) for entry in child.stdout.decode(errors="surrogateescape").split("\0"))
    return {name: value for name, value in entries if name != "LC_CTYPE"}


@pytest.mark.parametrize(
    "name",
    [
        "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GITHUB_TOKEN", "npm_config_//host/:_authToken", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE",
        "PGPASSWORD", "DB_PASS", "SSH_AUTH_SOCK", "SSH_ASKPASS", "SUDO_ASKPASS", "my_secret", "GH_PAT", "SENTRY_DSN", "DATABASE_URL",
        "SESSION_COOKIE", "GOOGLE_APPLICATION_CREDENTIALS", "VAULT_ADDR",
    ],
)  # fmt: skip
def test_D46_a_child_lacks_what_is_named_like_a_secret(name: str) -> None:
    assert CANARY not in repr(in_child({name: CANARY}))


@pytest.mark.parametrize(
    "name",
    [
        "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONWARNINGS", "NODE_OPTIONS",
        "PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "GIT_SSH_COMMAND", "GIT_SSH", "GIT_EXTERNAL_DIFF", "GIT_CONFIG_COUNT",
        "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0", "GIT_CONFIG_PARAMETERS", "GIT_DIR", "GIT_WORK_TREE", "GIT_EXEC_PATH", "GIT_PROXY_COMMAND",
        "GIT_SEQUENCE_EDITOR", "BASH_ENV", "ENV", "BASH_FUNC_ls%%", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "CDPATH", "ZDOTDIR",
        "LESSOPEN", "LESS", "MANPAGER", "RIPGREP_CONFIG_PATH", "TAR_OPTIONS", "GREP_OPTIONS", "MAKEFLAGS", "MAKEFILES", "LUA_INIT", "FZF_DEFAULT_COMMAND",
        "TMUX", "DBUS_SESSION_BUS_ADDRESS", "VSCODE_IPC_HOOK_CLI", "GLIBC_TUNABLES", "GCONV_PATH", "DOTNET_STARTUP_HOOKS", "PYTEST_PLUGINS",
    ],
)  # fmt: skip
def test_D04_a_child_lacks_what_makes_programs_run_or_load_something(name: str) -> None:
    assert name not in scrub_environment([*PLAIN.items(), (name, "1")])


def test_what_programs_need_stays() -> None:
    wanted = {
        "USER": "u", "SHELL": "/bin/bash", "LC_ALL": "C", "TZ": "UTC", "CI": "true", "VIRTUAL_ENV": "/v", "GOPATH": "/go", "CC": "clang",
        "GIT_AUTHOR_NAME": "U", "GIT_COMMITTER_EMAIL": "u@example.com", "GIT_CONFIG_GLOBAL": "/dev/null", "HTTP_PROXY": "http://proxy:3128",
        "SSL_CERT_FILE": "/c.pem", "PYTHONUNBUFFERED": "1", "PYTHONPATH": "/lib/a:/lib/b", "CARGO_HOME": "/cargo", "AUTHOR": "me",
        "REMOTE": "ssh://git@example.com/x.git", "PLAIN": "words, and more: a=b",
    }  # fmt: skip
    child = in_child(wanted)
    assert {name: child.get(name) for name in wanted} == wanted


def test_programs_that_would_ask_or_page_are_answered() -> None:
    child = in_child(
        {"EDITOR": "vim", "VISUAL": "vim", "PAGER": "less", "BROWSER": "firefox", "GIT_EDITOR": "vim", "TERM": "xterm"}
    )
    assert {name: child[name] for name in ("EDITOR", "VISUAL", "GIT_EDITOR", "BROWSER", "PAGER", "GIT_PAGER", "TERM")} == {
        "EDITOR": "true", "VISUAL": "true", "GIT_EDITOR": "true", "BROWSER": "true", "PAGER": "cat", "GIT_PAGER": "cat", "TERM": "dumb",
    }  # fmt: skip
    assert child["GIT_TERMINAL_PROMPT"] == "0"


def test_D46_a_secret_under_another_name_is_left_out_too() -> None:
    child = in_child(
        {
            "API_KEY": CANARY,
            "SAME": CANARY,
            "HEADER": f"x-auth: {CANARY}",
            "JSON": f'{{"k": "{CANARY}"}}',
            "DB_PASSWORD": "hunt5",
            "COPY": "hunt5",
        }
    )
    assert CANARY not in repr(child)
    assert "hunt5" not in repr(child)


def test_a_harmless_value_of_a_secret_name_takes_nothing_else_with_it() -> None:
    child = in_child(
        {
            "AUTH_ENABLED": "true",
            "CI": "true",
            "AWS_REGION": "eu-west-1",
            "REGION": "eu-west-1",
            "DB_PASSWORD": "user7",
            "USER": "user7",
        }
    )
    assert (child["CI"], child["REGION"], child["USER"]) == ("true", "eu-west-1", "user7")


@pytest.mark.parametrize(
    "value",
    [
        f"postgres://u:{CANARY}@h/db", f"https://:{CANARY}@h", f"amqp://u:p/{CANARY}@h", f"x postgresql+psycopg://u:{CANARY}@h y", f"https://u:$a{CANARY}@h",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----",
    ],
)  # fmt: skip
def test_D46_a_value_that_shows_itself_to_be_a_secret_is_left_out(value: str) -> None:
    assert "PLAIN_NAME" not in scrub_environment([*PLAIN.items(), ("PLAIN_NAME", value)])


def test_D46_what_the_user_opts_in_is_given_and_its_copies_are_not() -> None:
    extra = {
        "API_KEY": CANARY,
        "COPY": CANARY,
        "LD_LIBRARY_PATH": "/opt/lib",
        "EDITOR": "ed",
        "TOKEN": "other-canary-1",
    }
    child = in_child(extra, keep=frozenset(("API_KEY", "LD_LIBRARY_PATH", "EDITOR")))
    assert (child["API_KEY"], child["LD_LIBRARY_PATH"], child["EDITOR"]) == (CANARY, "/opt/lib", "ed")
    assert "COPY" not in child
    assert "TOKEN" not in child


def test_folders_relative_to_a_project_are_no_search_path() -> None:
    child = scrub_environment(
        {"PATH": ".:/usr/bin::bin:/bin:", "PYTHONPATH": ".:/lib", "NODE_PATH": "./node_modules", "PERL5LIB": ""}.items()
    )
    assert child["PATH"] == "/usr/bin:/bin"
    assert child["PYTHONPATH"] == "/lib"
    assert "NODE_PATH" not in child
    assert "PERL5LIB" not in child


def test_a_long_value_takes_no_long_time() -> None:
    assert "LONG" in scrub_environment([*PLAIN.items(), ("LONG", "a" * 120_000), ("MANY", "://:" * 20_000)])
