"""D11: which names steer programs, which hold secrets, and which are no files."""

import os
import subprocess
from pathlib import Path

import pytest

from kitbag.permissions.control_paths import control_reason, enclosing_bare_repository
from kitbag.text.secret_paths import secret_path_reason, special_path_reason
from support.waiting import TEST_TIMEOUT

CONTROL = [
    ".git", ".git/hooks/pre-commit", ".git/config", "sub/repo/.git/config", ".git/modules/a/config", ".gitmodules", ".kitbag/settings.toml",
    ".claude/settings.json", ".claude/skills/a/SKILL.md", ".codex/config.toml", ".gemini/settings.json", ".opencode/agent/a.md", ".cursor/mcp.json",
    ".agents/skills/a/SKILL.md", ".github/agents/a.md", ".github/skills/a/SKILL.md", ".github/copilot-instructions.md", ".github/hooks/a.json",
    ".github/workflows/ci.yml", ".mcp.json", "opencode.json", "opencode.jsonc", ".vscode/tasks.json", ".idea/workspace.xml", ".zed/tasks.json",
    ".devcontainer/devcontainer.json", ".husky/pre-commit", ".envrc", ".pre-commit-config.yaml", ".npmrc", ".yarnrc", ".yarnrc.yml", ".tool-versions",
    ".mise.toml", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".inputrc",
    ".config/fish/config.fish", ".config/git/config", ".config/autostart/x.desktop", ".config/systemd/user/x.service", ".local/bin/git",
    ".ssh/authorized_keys", ".gitconfig", ".cargo/config.toml", ".vimrc", "packages/a/.vscode/settings.json", "packages/a/.npmrc",
]  # fmt: skip


@pytest.mark.parametrize("path", CONTROL)
def test_D11_what_steers_programs_is_control_whether_it_exists_or_not(tmp_path: Path, path: str) -> None:
    assert control_reason(str(tmp_path / path))
    assert control_reason(str(tmp_path / path.upper()))
    assert control_reason(str(tmp_path / "deep" / path))
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).touch()
    assert control_reason(str(tmp_path / path))


@pytest.mark.parametrize(
    "path",
    [
        "src/a.py", "AGENTS.md", "CLAUDE.md", "GEMINI.md", ".gitignore", ".gitattributes", "git", "git/hooks/x", "hooks/pre-commit", "config", ".github/CODEOWNERS",
        ".github/ISSUE_TEMPLATE/bug.md", ".config/app.toml", "bashrc", "my.bashrc", ".gitkeep", "mcp.json", "claude/settings.json", "Makefile", ".env", "package.json",
        "a.git/notes", "objects/x", "HEAD", "refs/a", ".claudeignore", "profile", "git~", "gitmod", ".yarn/cache/a.zip", "...", "a:b", "ssh/config",
    ],
)  # fmt: skip
def test_ordinary_files_are_not_control(tmp_path: Path, path: str) -> None:
    assert control_reason(str(tmp_path / path)) == ""


@pytest.mark.parametrize(
    "name",
    [
        ".git ", ".git.", ".git. .", ".GIT", ".Git", "git~1", "GIT~1", "git~12", ".git::$INDEX_ALLOCATION", ".git:x", ".g\u200cit", "\ufeff.git", ".gi\u200dt\u2060",
        ".\u202egit", ".gıt".replace("ı", "i\u034f"), ".git\u200b", "gitmod~1", ".gitmodules ", ".vſcode", ".Claude.", ".mcp.json ", ".MCP.JSON::$DATA",
    ],
)  # fmt: skip
def test_D11_names_that_some_file_system_takes_for_control_are_control(tmp_path: Path, name: str) -> None:
    assert control_reason(f"{tmp_path}/{name}")
    assert control_reason(f"{tmp_path}/sub/{name}/hooks/x")


def test_D11_a_backslash_may_be_a_separator_somewhere(tmp_path: Path) -> None:
    assert control_reason(f"{tmp_path}/.git\\hooks\\pre-commit")


def test_a_folder_that_holds_control_paths_may_not_be_replaced_by_another(tmp_path: Path) -> None:
    for path in (".github", ".config", ".local", ".cargo", "a/.github"):
        assert control_reason(str(tmp_path / path)), path


def test_checkouts_that_agents_make_are_ordinary(tmp_path: Path) -> None:
    checkout = tmp_path / ".claude/worktrees/one"
    assert control_reason(str(checkout / "src/a.py")) == ""
    for path in (
        checkout,
        checkout.parent,
        checkout / ".git",
        checkout / ".claude/settings.json",
        tmp_path / ".git/worktrees/one/gitdir",
    ):
        assert control_reason(str(path)), path


@pytest.mark.parametrize(
    "path",
    ["/etc/crontab", "/etc/cron.d/x", "/var/spool/cron/crontabs/root", "/etc/profile.d/x.sh", "/etc/ld.so.preload", "/etc/systemd/system/x.service", "/etc/sudoers.d/x"],
)  # fmt: skip
def test_what_the_system_runs_is_control(path: str) -> None:
    assert control_reason(path)


@pytest.mark.parametrize("path", ["/etc/nginx/nginx.conf", "/usr/src/app/main.py", "/opt/app/x", "/"])
def test_other_system_places_are_not_control(path: str) -> None:
    assert control_reason(path) == ""


def git(*arguments: str, cwd: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "HOME": str(cwd),
    }
    subprocess.run(["git", *arguments], cwd=cwd, env=environment, check=True, capture_output=True, timeout=TEST_TIMEOUT)


def test_D11_a_bare_repository_is_control_inside(tmp_path: Path) -> None:
    git("init", "--bare", "fixtures/repo", cwd=tmp_path)
    repository = tmp_path / "fixtures/repo"
    for path in ("config", "hooks/post-update", "hooks/new/deep", "HEAD", "info/attributes", "."):
        assert control_reason(os.path.normpath(repository / path)), path
    assert control_reason(str(repository.parent / "other")) == ""
    assert enclosing_bare_repository(str(repository / "hooks/x")) == str(repository)


def test_D11_a_separate_git_directory_is_control_inside(tmp_path: Path) -> None:
    git("init", "--separate-git-dir", "meta", "work", cwd=tmp_path)
    assert (tmp_path / "work/.git").is_file()
    assert control_reason(str(tmp_path / "work/.git"))
    assert control_reason(str(tmp_path / "meta/hooks/pre-commit"))
    assert control_reason(str(tmp_path / "meta/config"))
    assert control_reason(str(tmp_path / "work/a.py")) == ""


@pytest.mark.parametrize(
    "order",
    [
        ("config", "HEAD", "objects/x", "refs/x"),
        ("refs/x", "objects/x", "config", "HEAD"),
        ("HEAD", "config", "commondir"),
        ("commondir", "head"),
    ],
)
def test_D11_a_repository_can_t_be_put_together_file_by_file(tmp_path: Path, order: tuple[str, ...]) -> None:
    refused = False
    for path in order:
        target = tmp_path / "innocent" / path
        if control_reason(str(target)):
            refused = True
            break
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("x")
    assert refused


PRIVATE = [
    ".env", ".env.local", ".env.production", ".ENV", ".env~", ".env.bak", "sub/.env", "prod.env", ".envrc", ".ssh/config", ".ssh/id_rsa", "id_ed25519", "id_rsa.old",
    ".aws/credentials", ".gnupg/x", ".kube/config", ".docker/config.json", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".git-credentials", ".htpasswd",
    "server.pem", "a.key", "a.p12", "a.pfx", "a.kdbx", "a.keystore", "a.jks", "a.ppk", "credentials.json", "service-account-1.json", "client_secret_1.json",
    ".config/gcloud/x", ".config/gh/hosts.yml", ".local/share/keyrings/x", ".bash_history", ".git/config", ".git/modules/a/config", "terraform.tfstate",
    ".cargo/credentials.toml", ".env ", ".e\u200bnv", ".password-store/x.gpg",
]  # fmt: skip


@pytest.mark.parametrize("path", PRIVATE)
def test_what_holds_secrets_is_private(path: str) -> None:
    assert secret_path_reason(f"/w/app/{path}")


@pytest.mark.parametrize(
    "path",
    [
        ".env.example", ".env.sample", "example.env", ".env.template", ".env.dist", "id_rsa.pub", "src/env.py", "environment", "a.env.py", ".git/HEAD", "key.py", "keys/a.txt",
        "credentials.py", "config", ".config/app.toml", "monkey", "README.md", ".envoy.yaml", ".envs/readme.md", "a.pem.md", "ssh/config", "history.md",
    ],
)  # fmt: skip
def test_ordinary_files_are_not_private(path: str) -> None:
    assert secret_path_reason(f"/w/app/{path}") == ""


def test_the_system_s_passwords_are_private() -> None:
    for path in ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/sudoers", "/etc/sudoers.d/x"):
        assert secret_path_reason(path), path
    assert secret_path_reason("/etc/hosts") == ""


def test_only_whole_names_make_a_place_special() -> None:
    assert special_path_reason("/process/x") == ""
    assert special_path_reason("/devel") == ""
    assert special_path_reason("/w/proc/x") == ""
    assert special_path_reason("/dev/shmx")


@pytest.mark.parametrize(
    "name",
    [
        "lefthook.yaml",
        ".cursorrules",
        "Jenkinsfile",
        ".gitea/workflows/x.yml",
        ".hg/hgrc",
        ".jj/repo/config.toml",
        ".pnp.cjs",
    ],
)
def test_the_kin_of_well_known_names_is_control_too(name: str) -> None:
    assert control_reason(f"/w/app/{name}")
