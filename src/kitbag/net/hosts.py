"""Normalizes host names and matches host patterns. Used by urls, policy and permission rules; uses `idna` on demand.

`docs.x.com` is that host only; `*.x.com` is every host below x.com at any depth, not x.com itself; a `*` anywhere
else stays inside its label, so `docs.*.com` matches docs.x.com and not docs.a.b.com; `*` is every host.
"""

import re
from typing import Final

from kitbag.errors import UsageError

LOCAL_SUFFIXES: Final = (
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "home.arpa",
)
"""Names of a machine or a local network, whatever a resolver returns for them."""
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_PATTERN_LABEL = re.compile(r"[a-z0-9_*-]{1,63}")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_FOUR_NUMBERS = re.compile(r"(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})")
_MAX_HOST_LENGTH = 253


def normalize_host(text: str) -> str:
    """Lower case, ASCII, no trailing dot; an IPv6 address compressed and without brackets. Raises ValueError."""
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
        if ":" not in text:
            raise ValueError("brackets are only for IPv6 addresses")
    if ":" in text:
        return _normalize_ipv6(text)
    host = (text if text.isascii() else _ascii_name(text)).lower()
    host = host.removesuffix(".")
    if not host:
        raise ValueError("it has no host")
    labels = host.split(".")
    if len(host) > _MAX_HOST_LENGTH or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("its host is not a valid domain name")
    # Resolvers accept IPv4 addresses in other bases or with fewer parts; the last label reveals them.
    if _NUMBER.fullmatch(labels[-1]) and not _is_ipv4(host):
        raise ValueError("its host is an IPv4 address in an unusual notation; write it as four decimal numbers")
    return host


def _is_ipv4(host: str) -> bool:
    return _FOUR_NUMBERS.fullmatch(host) is not None and all(int(part) < 256 for part in host.split("."))


def _normalize_ipv6(text: str) -> str:
    import ipaddress

    if "%" in text:
        raise ValueError("IPv6 zone identifiers are not supported")
    try:
        return ipaddress.IPv6Address(text).compressed
    except ValueError:
        raise ValueError("its host is not a valid IPv6 address") from None


def _ascii_name(text: str) -> str:
    if len(text) > _MAX_HOST_LENGTH:
        raise ValueError("its host is too long")
    import idna

    try:
        return idna.encode(text, uts46=True, std3_rules=True).decode("ascii")
    except idna.IDNAError:
        raise ValueError(
            "its host contains characters that are not valid in a domain name; try its xn-- form"
        ) from None


def is_ip_address(host: str) -> bool:
    """Whether a normalized host is an IP address."""
    return ":" in host or _is_ipv4(host)


def is_local_name(host: str) -> bool:
    """Whether a normalized host has no dot, or a suffix that only local networks use."""
    if is_ip_address(host):
        return False
    return "." not in host or any(host.endswith(f".{suffix}") for suffix in LOCAL_SUFFIXES)


def display_host(host: str) -> str:
    """A normalized host for display: internationalized names in both forms, so that look-alikes are visible."""
    if not any(label.startswith("xn--") for label in host.split(".")):
        return f"[{host}]" if ":" in host else host
    import idna

    try:
        return f"{host} ({idna.decode(host)})"
    except idna.IDNAError:
        return host


def normalize_host_pattern(text: str) -> str:
    """Normalizes a pattern. Raises UsageError if it could match nothing, or not what it seems to."""
    try:
        return _normalize_pattern(text.strip())
    except ValueError as error:
        raise UsageError(
            f"{text[:80]!r} is not a valid host pattern: {error}.",
            "Write a host such as docs.python.org, or *.python.org for all its subdomains, without a scheme, port or "
            "path.",
        ) from None


def _normalize_pattern(text: str) -> str:
    if text == "*" or "*" not in text:
        return text if text == "*" else normalize_host(text)
    prefix = "*." if text.startswith("*.") else ""
    rest = text.removeprefix(prefix)
    if "*" not in rest:
        rest = normalize_host(rest)
        if is_ip_address(rest):
            raise ValueError("an IP address has no subdomains")
        return prefix + rest
    rest = rest.lower().removesuffix(".")
    if not all(_PATTERN_LABEL.fullmatch(label) for label in rest.split(".")):
        raise ValueError("a pattern with * may contain only letters, digits, hyphens and dots")
    return prefix + rest


def host_matches(pattern: str, host: str) -> bool:
    """Whether the pattern matches the host. Invalid patterns and hosts match nothing: validate rules with
    `normalize_host_pattern` when loading them, and reject URLs that `parse_url` rejects."""
    try:
        normal_pattern, normal_host = _normalize_pattern(pattern.strip()), normalize_host(host)
    except ValueError:
        return False
    if normal_pattern in ("*", normal_host):
        return True
    if "*" not in normal_pattern or is_ip_address(normal_host):
        return False
    labels = normal_host.split(".")
    any_depth = normal_pattern.startswith("*.")
    parts = normal_pattern.removeprefix("*.").split(".")
    extra_labels = len(labels) - len(parts)
    if extra_labels < 1 if any_depth else extra_labels:
        return False
    return all(map(_label_matches, reversed(parts), reversed(labels)))


def _label_matches(pattern: str, label: str) -> bool:
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == label
    last = rest.pop()
    if len(label) < len(first) + len(last) or not (label.startswith(first) and label.endswith(last)):
        return False
    at, end = len(first), len(label) - len(last)
    for part in rest:
        at = label.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True
