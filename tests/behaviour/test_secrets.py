"""SECURITY.md D46: children are not given secrets, nothing durable holds one, and state belongs to its user alone."""

import asyncio
import base64
import json
import os
import stat
import urllib.parse
from pathlib import Path

import pytest

from behaviour.acting import permissions
from conftest import World
from kitbag.permissions.approvals.approval import Approvals, Denial
from kitbag.permissions.approvals.queue import ApprovalQueue, QueueApprover
from kitbag.sandbox.environment import scrub_environment
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from support import needs

CANARY = "CANARY_SECRET_9f3a71c2e4b8"
NAMES = [
    "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GITHUB_TOKEN", "GH_TOKEN", "NPM_TOKEN", "DB_PASSWORD", "PGPASSWORD", "MYSQL_PWD",
    "MY_SECRET", "SECRET_KEY_BASE", "STRIPE_KEY", "PRIVATE_KEY", "SSH_PRIVATE_KEY", "GOOGLE_APPLICATION_CREDENTIALS_JSON", "AZURE_CLIENT_SECRET", "SLACK_WEBHOOK_URL",
    "DATABASE_URL", "SENTRY_DSN", "REDIS_PASSWD", "MY_PASSPHRASE", "HF_TOKEN", "VAULT_TOKEN", "JWT_SECRET", "COOKIE_SECRET", "API_AUTH", "my_api_key", "apiKey", "Token",
    "KITBAG_TOKEN", "TWILIO_AUTH_TOKEN", "CI_JOB_TOKEN", "DOCKER_PASSWORD", "ENCRYPTION_KEY", "SIGNING_SECRET", "GITLAB_PAT", "CREDENTIALS",
]  # fmt: skip
LOADING = [
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "PYTHONSTARTUP",
    "BASH_ENV",
    "NODE_OPTIONS",
    "GIT_SSH_COMMAND",
    "PERL5OPT",
    "RUBYOPT",
    "PROMPT_COMMAND",
    "GIT_CONFIG_COUNT",
    "EDITOR",
]
SHAPES = {
    "HARMLESS_A": "ghp_" + "a1B2" * 9, "HARMLESS_B": "sk-ant-api03-" + "aB3_" * 20, "HARMLESS_C": "AKIAIOSFODNN7EXAMPLE", "HARMLESS_D": "postgres://u:pa55word123@h/db",
    "HARMLESS_E": "xoxb-123456789012-abcdefABCDEF123456", "HARMLESS_COPY": CANARY, "HARMLESS_INSIDE": f"prefix {CANARY} suffix",
}  # fmt: skip


@pytest.fixture
def rich(world: World) -> World:
    world.env |= (
        dict.fromkeys(NAMES, CANARY) | dict.fromkeys(LOADING, "/evil/load") | SHAPES | {"PLAIN_SETTING": "plain-value"}
    )
    return world


def test_D46_a_child_has_none_of_the_user_s_secrets(rich: World) -> None:
    needs.bubblewrap()
    for mode in ("default", "autonomous", "plan"):
        done = rich.run(
            "permissions",
            "run",
            "env; set; export -p; cat /proc/self/environ /proc/1/environ /proc/$PPID/environ",
            "--yes",
            "--permission-mode",
            mode,
        )
        assert "plain-value" in done.stdout, done.stderr
        for value in (CANARY, "/evil/load", *SHAPES.values()):
            assert value not in done.stdout, value
    left = scrub_environment(rich.env.items())
    assert [
        name for name in (*NAMES, *LOADING, *SHAPES) if left.get(name) in (CANARY, "/evil/load", *SHAPES.values())
    ] == []


def test_D46_nor_has_one_that_packing_runs(rich: World) -> None:
    needs.bubblewrap()
    rich.write(".kitbag/tasks/T1.json", '{"id": "T1", "title": "x"}')
    rich.skill("~/.kitbag/skills", "x", body="!`env`")
    done = rich.run("pack", "T1", "--skills", "x", "--allow-commands")
    assert (done.returncode, "plain-value" in done.stdout) == (0, True)
    assert CANARY not in done.stdout + done.stderr


def files_with(home: Path, *secrets: str) -> list[str]:
    spelled = [
        spelling
        for secret in secrets
        for spelling in (
            secret,
            secret[::-1][::-1],
            urllib.parse.quote(secret),
            secret.encode().hex(),
            base64.b64encode(secret.encode()).decode().rstrip("="),
        )
    ]
    return [
        str(path)
        for path in home.rglob("*")
        if path.is_file() and any(one.encode() in path.read_bytes() for one in spelled)
    ]


def test_D46_nothing_that_is_stored_holds_a_secret(rich: World) -> None:
    home = rich.home / ".kitbag"
    rich.skill(
        ".kitbag/skills", "x", body=f"!`curl -H 'Authorization: Bearer {CANARY}' x` !`echo {SHAPES['HARMLESS_A']}`"
    )
    rich.write(".mcp.json", json.dumps({"mcpServers": {"s": {"command": "x", "env": {"API_KEY": CANARY}}}}))
    rich.ok("trust", "--yes")
    assert (home / "trust.json").exists()
    spellings = [
        CANARY,
        urllib.parse.quote(CANARY + "/"),
        CANARY.encode().hex(),
        base64.b64encode(CANARY.encode()).decode(),
        json.dumps({"a": CANARY}),
    ]

    async def ask() -> None:
        with Journal.open(journal_path(str(home)), Redactor.from_environment(rich.env)) as journal:
            for number, text in enumerate(
                [*spellings, SHAPES["HARMLESS_A"], SHAPES["HARMLESS_D"], f"export API_KEY={CANARY}"]
            ):
                journal.append(
                    "s", "tool-output", {"text": f"before {text} after", "env": {"API_KEY": text}, text: number}
                )
            approvals = Approvals(QueueApprover(ApprovalQueue(journal)))
            found = await approvals.authorize(
                permissions(rich), "Bash", {"command": f"curl -u a:{CANARY} x"}, asked_by="t"
            )
            # What is kept can't be what would be run, so nobody could see what they agree to.
            assert isinstance(found, Denial)
            kept = [record.body for record in journal.read("s")]
            assert all("[REDACTED]" in json.dumps(body) for body in kept)
            assert all(body["text"].startswith("before ") and body["text"].endswith(" after") for body in kept)

    asyncio.run(ask())
    assert files_with(rich.home, CANARY, SHAPES["HARMLESS_A"], "pa55word123") == []


def test_D46_what_is_judged_shown_and_run_is_never_redacted(rich: World) -> None:
    needs.bubblewrap()
    command = f"echo {CANARY} | rev"
    done = rich.run("permissions", "run", command, "--yes", "--json")
    said = json.loads(done.stdout)
    assert (said["command"], said["output"]) == (command, CANARY[::-1])
    assert CANARY in rich.run("permissions", "test", command).stdout


def test_D46_a_crash_and_an_error_show_no_secret_of_the_environment(rich: World) -> None:
    for words in (
        ("permissions", "test", "x", "--input", "{"),
        ("permissions", "run"),
        ("trust", "nowhere"),
        ("pack", "nothing"),
        ("config", "get", "x"),
        ("doctor",),
    ):
        done = rich.run(*words)
        assert CANARY not in done.stdout + done.stderr, words


def test_D46_state_is_the_user_s_alone_and_never_written_through_a_link(rich: World) -> None:
    before = os.umask(0)
    try:
        rich.skill(".kitbag/skills", "x", body="!`id`")
        rich.ok("trust", "--yes")
        rich.ok("skills", "list")
        with Journal.open(journal_path(str(rich.home / ".kitbag")), Redactor()) as journal:
            journal.append("s", "k", {})
    finally:
        os.umask(before)
    home = rich.home / ".kitbag"
    for path in [home / "trust.json", home / "state", *(home / "state").rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))
    target = rich.write("target", "untouched", rich.outside)
    (home / "trust.json").unlink()
    os.symlink(target, home / "trust.json")
    assert rich.run("trust", "--yes").returncode != 0 or not os.path.islink(home / "trust.json")
    assert target.read_text() == "untouched"
