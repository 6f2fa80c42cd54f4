"""Environment variables that keep git from running programs that a repository's configuration names.

Used for commands that no person and no rule approved, and for Kitbag's own git calls. Settings with names of the
repository's choice, such as `filter.NAME.clean`, can't be overridden; `permissions/git_repository` finds those.
"""

from typing import Final

_ALWAYS: Final = {"core.fsmonitor": "false", "core.pager": "cat"}
# What only reads needs no hooks, signatures, credentials, editors or transports. Any directory of a workspace can be a
# bare repository; git uses one only if it is named.
_READ_ONLY: Final = {
    "core.hooksPath": "/dev/null",
    "safe.bareRepository": "explicit",
    "core.editor": "true",
    "sequence.editor": "true",
    "core.askPass": "true",
    "core.sshCommand": "false",
    "core.gitProxy": "",
    "core.alternateRefsCommand": "true",
    "credential.helper": "",
    "log.showSignature": "false",
    "gpg.program": "false",
    "gpg.openpgp.program": "false",
    "gpg.x509.program": "false",
    "gpg.ssh.program": "false",
    "gpg.ssh.defaultKeyCommand": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
}
_READ_ONLY_VARIABLES: Final = {
    "GIT_OPTIONAL_LOCKS": "0",
    # Missing objects are not fetched: a remote can name the program that serves them.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
}


def git_environment(*, read_only: bool) -> dict[str, str]:
    """`read_only`: also without hooks, bare repositories and transports."""
    settings = _ALWAYS | _READ_ONLY if read_only else _ALWAYS
    variables = dict(_READ_ONLY_VARIABLES) if read_only else {}
    variables["GIT_CONFIG_COUNT"] = str(len(settings))
    for number, (key, value) in enumerate(settings.items()):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables
