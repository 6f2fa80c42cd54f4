"""The environment of child processes, derived from the user's. Never includes a project's `.env`.

Removes what looks like a secret by name, value or shape; what makes programs load code, run commands or read other
files; and addresses of programs outside the sandbox. Sets values that avoid prompts and pagers. Used by everything that
starts a process; uses `store/secret_names`.
"""

import re
from collections.abc import Iterable
from typing import Final

from kitbag.store.secret_names import has_secret_value, is_secret_name

# Settings that programs are deliberately started with are kept: PATH, compilers, proxies, locale, search paths of
# languages (absolute entries). What can make a harmless command do more is removed.
_REMOVED_NAMES = re.compile(
    # Loader and libc: inject code into every program.
    r"LD_.*|DYLD_.*|GCONV_PATH|GLIBC_TUNABLES|GTK_MODULES|GIO_EXTRA_MODULES|OPENSSL_(?:ENGINES|MODULES)"
    # Shells: run or read something before the command, or change the meaning of its words.
    r"|BASH_ENV|ENV|BASH_FUNC_.*|BASH_LOADABLES_PATH|BASH_XTRACEFD|BASH_COMPAT|BASHOPTS|SHELLOPTS"
    r"|PROMPT_COMMAND|PS[0-4]|IFS|CDPATH|GLOBIGNORE|EXECIGNORE|FIGNORE|POSIXLY_CORRECT|ZDOTDIR|FPATH|INPUTRC|TMOUT"
    # Interpreters: run code before or besides the program.
    r"|PYTHON(?:STARTUP|HOME|INSPECT|BREAKPOINT|WARNINGS|EXECUTABLE|USERBASE|PLATLIBDIR|CASEOK)"
    r"|PYTEST_(?:ADDOPTS|PLUGINS)|NODE_OPTIONS|NODE_REPL_.*|BUN_OPTIONS|PERL5(?:OPT|DB|SHELL)|RUBYOPT|RUBYSHELL"
    r"|LUA_INIT.*|PHPRC|PHP_INI_SCAN_DIR|R_PROFILE.*|R_ENVIRON.*|AWKLIBPATH|AWKPATH|GAWK_.*|ERL_.*AFLAGS"
    r"|ELIXIR_ERL_OPTIONS|_?JAVA_(?:TOOL_)?OPTIONS|JDK_JAVA_OPTIONS|JAVA_OPTS|MAVEN_OPTS|GRADLE_OPTS"
    r"|DOTNET_STARTUP_HOOKS|CORECLR_.*|COR_.*"
    # Options and files that programs add to their arguments; some make a read-only program run commands.
    r"|(?:GREP|TAR)_OPTIONS|GZIP|BZIP2?|XZ_(?:OPT|DEFAULTS)|ZIPOPT|UNZIP(?:OPT)?|ZIPINFO(?:OPT)?"
    r"|RIPGREP_CONFIG_PATH|FZF_.*|LESS.*|MORE|BAT_.*|DELTA_.*|MANOPT|MANROFFOPT|MANPAGER|MANPATH_.*"
    r"|SYSTEMD_(?:PAGER|LESS|EDITOR)|\w+_PAGER|\w*EDITOR|FCEDIT"
    r"|MAKEFLAGS|MFLAGS|MAKELEVEL|GNUMAKEFLAGS|MAKEFILES|CURL_HOME|WGETRC|RSYNC_(?:RSH|CONNECT_PROG)|CVS_RSH|TEXEDIT"
    # git: another repository, another config, programs to run. The person's name and certificates are kept.
    r"|GIT_(?!(?:AUTHOR|COMMITTER)_|CONFIG_(?:GLOBAL|SYSTEM|NOSYSTEM)$|SSL_|CEILING_DIRECTORIES$|LFS_SKIP_SMUDGE$"
    r"|OPTIONAL_LOCKS$|DISCOVERY_ACROSS_FILESYSTEM$).*"
    # The terminal, editor or desktop around us would run what a child sends, outside any sandbox.
    r"|TMUX(?:_PANE|_TMPDIR)?|STY|WINDOW|KITTY_.*|WEZTERM_.*|ZELLIJ.*|ALACRITTY_.*|ITERM_.*|GHOSTTY_.*|VSCODE_.*"
    r"|CURSOR_.*|NVIM|NVIM_LISTEN_ADDRESS|VIM_?SERVERNAME|EMACS_(?:SERVER_FILE|SOCKET_NAME)|DBUS_.*|GPG_AGENT_INFO"
    r"|GPG_TTY|SSH_AGENT_PID|XAUTHORITY|SESSION_MANAGER|DESKTOP_STARTUP_ID|GNOME_KEYRING_.*|NOTIFY_SOCKET"
    r"|LISTEN_(?:FDS|FDNAMES|PID)"
)
# Directory lists: an empty or relative entry means the working directory, which may be the project's.
_FOLDER_LISTS = frozenset(("PATH", "PYTHONPATH", "PERL5LIB", "PERLLIB", "RUBYLIB", "NODE_PATH", "GEM_PATH", "MANPATH"))
# Hardly anything runs without these; a password equal to the user name must not remove the name.
_REQUIRED_NAMES = frozenset(
    ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TMPDIR", "LANG", "LC_ALL", "TZ", "HOSTNAME")
)
_URL_WITH_PASSWORD = re.compile(r"://[^\s/@]{0,256}:[^\s@]{0,512}@")
_MIN_SECRET_LENGTH = 4
_NON_INTERACTIVE_VALUES: Final = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    # An editor that changes nothing: git keeps an existing message and aborts if there is none.
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "BROWSER": "true",
}


def scrub_environment(environment: Iterable[tuple[str, str]], keep: frozenset[str] = frozenset()) -> dict[str, str]:
    """The environment of a command. `keep`: names that the user wants to pass anyway."""
    from kitbag.store.redaction import Redactor
    from kitbag.store.secrets_by_name import is_placeholder_value

    original = dict(environment)
    secrets = {name: value for name, value in original.items() if has_secret_value(name)}
    copies = {
        value for value in secrets.values() if len(value) >= _MIN_SECRET_LENGTH and not is_placeholder_value(value)
    }
    redactor = Redactor(secrets.values())
    kept: dict[str, str] = {}
    for name, value in original.items():
        if name in keep:
            kept[name] = value
            continue
        if name in _FOLDER_LISTS:
            value = ":".join(folder for folder in value.split(":") if folder.startswith("/"))
            if not value:
                continue
        if name not in _REQUIRED_NAMES and (is_secret_name(name) or _REMOVED_NAMES.fullmatch(name)):
            continue
        if name not in _REQUIRED_NAMES and (
            value in copies or _URL_WITH_PASSWORD.search(value) or redactor.redact_text(value) != value
        ):
            continue
        kept[name] = value
    return _NON_INTERACTIVE_VALUES | {
        name: value for name, value in kept.items() if name not in _NON_INTERACTIVE_VALUES or name in keep
    }
