"""Commands that print environment variables are decided like `env`, whatever program prints them."""

from pathlib import Path

import pytest

from permissions.deciding import ASKING, permissions

LIKE_ENV = [
    "jq -n env", "jq -n 'env.TOKEN'", "jq -n '$ENV'", "jq '$ENV.TOKEN' ok.txt", "jq -n '\"\\(env)\"'", "jq '.a|env' ok.txt", "jq -n 'def f: env; f'",
    "jq -n '[env]'", "timeout 5 jq -n env", "cat ok.txt | jq -R env", "awk 'BEGIN{print ENVIRON[\"X\"]}'", "gawk 'BEGIN{for(k in ENVIRON)print k}'",
    "awk -v x=1 '{print ENVIRON[\"X\"]}' ok.txt", "mawk 'END{print ENVIRON[\"X\"]}' ok.txt", "cat <<E\n$TOKEN\nE", "cat <<< \"$TOKEN\"",
    "grep x <<< ${TOKEN}", "cat <<E > out\n${TOKEN}\nE",
]  # fmt: skip
NEVER_UNASKED = [
    "perl -e 'print %ENV'", "python -c 'import os; print(os.environ)'", "ruby -e 'p ENV'", "node -p process.env", "lua -e 'print(os.getenv(\"X\"))'",
    "php -i", "php -r 'phpinfo();'", "set", "declare -p", "declare -x", "typeset -p", "export -p", "export", "readonly -p", "compgen -v", "compgen -e",
    "cat /proc/self/environ", "head /proc/1/environ", "strings /proc/$$/environ", "tr '\\0' '\\n' < /proc/self/environ", "sort /proc/self/environ",
    "ps e", "ps eww", "ps auxe", "ps -E", "yq env", "yq 'env(TOKEN)' ok.txt", "make -p", "make -pn", "git var -l", "systemctl show-environment",
    "echo $TOKEN", "printf '%s' \"$TOKEN\"", "busybox env", "sh -c env", "set | grep X", "jq -n \"$X\"", "awk \"$X\" ok.txt",
]  # fmt: skip
NOT_THE_ENVIRONMENT = [
    "jq .env ok.txt", "jq -r '.env.NAME' ok.txt", "jq '{env: .env}' ok.txt", "jq '.environment' ok.txt", "jq 'getpath([\"env\"])' ok.txt",
    "jq 'select(.name == \"env\")' ok.txt", "jq input_filename ok.txt", "jq --arg env x '.a == $env' ok.txt", "awk '{print $1}' ok.txt",
    "cat <<'E'\n$TOKEN\nE", "cat <<E\n\\$TOKEN costs 5$\nE", "cat <<< '$TOKEN'",
]  # fmt: skip


@pytest.mark.parametrize("command", LIKE_ENV)
def test_a_program_that_prints_the_environment_is_decided_like_env(tmp_path: Path, command: str) -> None:
    for mode in ASKING:
        like_env = permissions(tmp_path, mode).decide("Bash", {"command": "env"})
        decision = permissions(tmp_path, mode).decide("Bash", {"command": command})
        reasons = [part.reason for part in decision.parts if part.effect == "ask"]
        assert decision.effect == "ask"
        assert {like_env.reason, "uses $TOKEN, which may hold a secret"}.intersection(reasons)
    assert permissions(tmp_path, "locked").decide("Bash", {"command": command}).effect == "deny"


@pytest.mark.parametrize("command", NEVER_UNASKED)
def test_other_ways_to_print_the_environment_need_approval(tmp_path: Path, command: str) -> None:
    for mode in ASKING:
        assert permissions(tmp_path, mode).decide("Bash", {"command": command}).effect == "ask"


@pytest.mark.parametrize("command", NOT_THE_ENVIRONMENT)
def test_programs_that_print_something_else_need_no_approval(tmp_path: Path, command: str) -> None:
    assert permissions(tmp_path).decide("Bash", {"command": command}).effect == "allow"


@pytest.mark.parametrize("rule", ["Bash(env:*)", "Bash(printenv:*)"])
def test_a_rule_that_denies_env_holds_for_programs_that_print_it(tmp_path: Path, rule: str) -> None:
    made = permissions(tmp_path, "autonomous", deny=(rule,), allow=("Bash",))
    for command in (
        "jq -n env",
        "awk 'BEGIN{print ENVIRON[\"X\"]}'",
        "python3 -c 'import os; print(os.environ)'",
        "node -p process.env",
    ):
        decision = made.decide("Bash", {"command": command})
        assert decision.effect == "deny", command
        assert any(part.rule == rule for part in decision.parts)
