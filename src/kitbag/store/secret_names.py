"""Recognizes names of secrets: environment variables, settings, fields.

Used by redaction, and by everything that builds an environment for a command. Imports nothing from Kitbag.
"""

import re

_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASS(?:WORD|WD|PHRASE|$)|CREDENTIAL|PRIVATE|COOKIE|AUTH(?!OR)|SIGNATURE|_(?:PAT|PWD|DSN)$|OTLP_\w*HEADERS$"
    r"|^(?:AWS|AZURE|GCP|GOOGLE|VAULT)_|(?:DATABASE|REDIS|MONGO\w*|POSTGRES\w*|MYSQL|AMQP|BROKER|WEBHOOK)_?UR[IL]",
    re.IGNORECASE,
)
# Also withheld from commands, but their values are paths or options: redacting them would damage ordinary text.
_HARMLESS_VALUE = re.compile(
    r"(?:^|_)(?:REGION|ZONE|PROFILE|SOCK(?:ET)?|FILE|PATH|DIR|HOME|LOCATION|PAGER|TYPE|MODE|METHOD|TTL|LIFETIME|LAYOUT"
    r"|PARALLELISM|ENABLED|DISABLED|LIMIT|LENGTH|COUNT|SIZE|VERSION|OUTPUT|FORMAT|PROVIDER|PREFIX|NAME|PROJECT|LEVEL"
    r"|TOKENS|KEYS|KEYWORDS?|KEYMAP|KEYBOARD|KEYRING|HOST|PORT|AGENT_PID|TIMEOUT|ATTEMPTS|ALGORITHM|PUBLIC_KEY|PRIMARY_KEY"
    r"|ADDR|ENDPOINT|REALM|CLUSTER|FOREIGN_KEY|SORT_KEY|CACHE_KEY|PARTITION_KEY)$",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """An environment variable that no text may reference and no command receives."""
    return _SECRET_NAME.search(name) is not None


def has_secret_value(name: str) -> bool:
    """Secret by name and by value: `AWS_REGION` and `SSH_AUTH_SOCK` are withheld from commands, but not redacted."""
    return is_secret_name(name) and _HARMLESS_VALUE.search(name) is None
