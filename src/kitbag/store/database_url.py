"""The URL of a PostgreSQL database as text for users: its password is never shown.

Used by postgres, and by commands that name the database without connecting.
"""

import re

_PASSWORD = re.compile(r"(://[^:/@\s]*):([^\s]*)@")
_OPTIONS = re.compile(r"[?#].*")


def describe_url(url: str) -> str:
    """Without password and options."""
    return _OPTIONS.sub("", _PASSWORD.sub(r"\1@", url))


def hide_password(url: str) -> str:
    """As it is written, except for passwords, which may also be among the options."""
    return re.sub(r"(?i)((?:pass\w*)=)[^&]*", r"\1***", _PASSWORD.sub(r"\1:***@", url))


def url_secrets(url: str) -> list[str]:
    """What must be redacted in any text."""
    from urllib.parse import unquote

    found = [match[2] for match in _PASSWORD.finditer(url)] + re.findall(r"(?i)[?&]\w*pass\w*=([^&]*)", url)
    return [url, *found, *(unquote(secret) for secret in found)] if any(found) else []
