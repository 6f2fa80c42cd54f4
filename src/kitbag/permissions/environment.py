"""What a child process is given of the environment, and which names look like a secret's.

Used by whatever starts a process, and by references for `${NAME}`.
"""

import re
from collections.abc import Iterable

_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASS(?:WORD|WD|PHRASE|$)|CREDENTIAL|PRIVATE|COOKIE|AUTH(?!OR)|SIGNATURE|_(?:PAT|PWD|DSN)$"
    r"|^(?:AWS|AZURE|GCP|GOOGLE|VAULT)_|(?:DATABASE|REDIS|MONGO\w*|POSTGRES\w*|MYSQL|AMQP|BROKER|WEBHOOK)_?UR[IL]",
    re.IGNORECASE,
)
# They make a shell run or read something before the command, or change what the command's words mean.
_SHELL_STARTUP = re.compile(r"BASH_ENV$|ENV$|BASH_FUNC_|SHELLOPTS$|BASHOPTS$|PROMPT_COMMAND$|CDPATH$|GLOBIGNORE$|PS4$")


def looks_secret(name: str) -> bool:
    """An environment variable that no text may ask for and no command is given."""
    return _SECRET_NAME.search(name) is not None


def scrubbed(environment: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What a command is given: no secrets, nothing that makes a shell do more than it is told, no terminal."""
    kept = {name: value for name, value in environment if not looks_secret(name) and not _SHELL_STARTUP.match(name)}
    return kept | {"TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
