"""Finds URLs and hosts in a text, and rates suspicious ones.

Used by examine_item for findings and the manifest, and by exfiltration, severity and capability_checks.
"""

import functools
import ipaddress
import re
import unicodedata
from collections.abc import Iterator
from typing import Final

import msgspec

from kitbag.audit.expressions import load_expression, load_words
from kitbag.audit.findings import Severity
from kitbag.audit.patterns import RuleHit, ScanResult
from kitbag.audit.regions import AuditedText
from kitbag.library.names import confusable_skeleton

RESERVED_DOMAINS: Final = frozenset(("invalid", "test", "example", "localhost"))
"""For documentation and tests; no one owns them."""
_MAIL_ADDRESS: Final = re.compile(r"(?<![\w.+/-])[\w.+-]{1,64}@((?:[\w-]+\.)+[a-zA-Z]{2,})\b")
MAX_URLS: Final = 2000
_URL = load_expression("urls.url")
_SCHEME = re.compile(r"\b(?:https?|ftp|wss?|stratum\+tcp|tcp)\Z", re.IGNORECASE)
_MAX_SCHEME: Final = 12
_TRAILING = ".,;:!?)*_"
_PLACEHOLDER = re.compile(r"\.\.\.|…|<|\$|\{|your|xxx|example|placeholder|token", re.IGNORECASE)
_PLACEHOLDER_HOST = re.compile(
    r"(?:^|[.-])(?:your|my)[-_]?\w|^(?:domain|host|server|company|mysite|mydomain)\.\w+$|^(?:(?:www|api|app|admin|auth|login|staging|dev|test|docs|blog|shop|mail|log-server|cdn|portal|dashboard)\.)?example\.(?:com|org|net)$|(?:^|[.-])example-\w"
)
WEBHOOK: Final = re.compile(
    r"/api/(?:v\d+/)?webhooks/\d{5,}/[\w-]{8,}|/services/T\w{6,}/B\w{6,}/\w{8,}|/bot\d{6,}:[\w-]{20,}"
)
_NUMBER_HOST = re.compile(r"0x[0-9a-f]+(?:\.[0-9a-fx]+){0,3}|\d{8,10}|[0-9.]{3,15}|0\d+(?:\.\d+){0,3}", re.IGNORECASE)

_DROP_HOSTS: Final = frozenset(load_words("urls.drops"))
_URL_SHORTENERS: Final = frozenset(load_words("urls.short"))
CHAT_HOOKS: Final = {
    "discord.com": "/api/webhooks",
    "discordapp.com": "/api/webhooks",
    "hooks.slack.com": "/services",
    "api.telegram.org": "/bot",
}
_INSTALLERS: Final = frozenset(load_words("urls.installers"))
_INSTALLER_PATHS: Final = (
    "https://raw.githubusercontent.com/Homebrew/install/",
    "https://raw.githubusercontent.com/nvm-sh/nvm/",
    "https://raw.githubusercontent.com/helm/helm/",
    "https://raw.githubusercontent.com/ohmyzsh/ohmyzsh/",
    "https://raw.githubusercontent.com/rancher/k3d/",
    "https://raw.githubusercontent.com/k3d-io/k3d/",
    "https://raw.githubusercontent.com/pyenv/pyenv-installer/",
    "https://raw.githubusercontent.com/aquasecurity/trivy/",
    "https://raw.githubusercontent.com/anchore/",
    "https://raw.githubusercontent.com/golangci/golangci-lint/",
)
_BARE_URL = re.compile(
    r"(\b(?:curl|wget|irm|iwr)\s(?:-\S+\s)*)(?=[\w-]+\.[\w.-]*[a-z]{2,}(?:[/\"')\s]|$))", re.IGNORECASE
)
_KNOWN_HOSTS: Final = frozenset(load_words("urls.known"))
_IMITATED: Final = load_words("urls.imitated")
_IMITATED_NAMES: Final = frozenset(name.rsplit(".", 1)[0] for name in _IMITATED)


class FoundUrl(msgspec.Struct, frozen=True, kw_only=True):
    start: int
    url: str
    host: str
    """Lower case, without user, port and trailing dot."""
    user: str


def find_urls(text: str) -> tuple[list[FoundUrl], bool]:
    """In order; True if there were more than the limit."""
    urls: list[FoundUrl] = []
    if "://" not in text:
        return urls, False
    at, after = text.find("://"), 0
    while at >= 0:
        scheme = _SCHEME.search(text, max(after, at - _MAX_SCHEME), at)
        match = _URL.match(text, scheme.start()) if scheme else None
        if match is not None:
            if len(urls) >= MAX_URLS:
                return urls, True
            after = match.end()
            address = _parse_url(match.start(), match[0])
            if address is not None:
                urls.append(address)
        at = text.find("://", max(at + 3, after))
    return urls, False


def _parse_url(start: int, text: str) -> FoundUrl | None:
    url = text.rstrip(_TRAILING)
    rest = url.split("://", 1)[1]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, _, host_port = authority.rpartition("@")
    if host_port.startswith("["):
        host = host_port[1:].partition("]")[0]
    else:
        host = host_port.partition(":")[0]
    host = host.lower().rstrip(".")
    if (
        not host
        or "$" in host
        or "%" in host
        or ("." not in host and ":" not in host and not _NUMBER_HOST.fullmatch(host))
    ):
        return FoundUrl(start=start, url=url, host="localhost", user=user) if host == "localhost" else None
    return FoundUrl(start=start, url=url, host=host, user=user)


@functools.lru_cache(maxsize=64)
def find_hosts(text: str) -> tuple[str, ...]:
    return tuple(address.host for address in find_urls(text)[0])


def find_mail_hosts(text: str) -> Iterator[tuple[int, str]]:
    """Where each mail address begins, and its host in lower case."""
    at = text.find("@")
    while at >= 0:
        begin, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
        end = end if end >= 0 else len(text)
        for match in _MAIL_ADDRESS.finditer(text, begin, end):
            yield match.start(), match[1].lower()
        at = text.find("@", end)


def with_scheme(command: str) -> str:
    """`curl host.dev/i` as `curl https://host.dev/i`."""
    return command if "://" in command else _BARE_URL.sub(r"\1https://", command)


def only_known_installers(text: str) -> bool:
    """Whether every URL in the text is the installer of a well-known project."""
    urls, _ = find_urls(with_scheme(text))
    return bool(urls) and all(
        address.url.startswith("https://")
        and not address.user
        and (address.host in _INSTALLERS or address.url.startswith(_INSTALLER_PATHS))
        for address in urls
    )


def is_known_host(host: str) -> bool:
    """Whether a well-known vendor or public registry runs the host."""
    return host in _INSTALLERS or _is_subdomain(host, _KNOWN_HOSTS)


def names_only_known_hosts(text: str) -> bool:
    """Whether every URL in a text is of a well-known vendor, over HTTPS, and there is one."""
    urls, _ = find_urls(text)
    return bool(urls) and all(
        address.url.startswith("https://")
        and not address.user
        and is_known_host(address.host)
        and not _is_subdomain(address.host, _DROP_HOSTS)
        and "/gist" not in address.url
        for address in urls
    )


def foreign_hosts(text: str) -> list[str]:
    """Hosts in a text that are neither local, nor placeholders, nor run by a well-known vendor."""
    return [host for host in find_hosts(text) if not is_ordinary_host(host)]


@functools.lru_cache(maxsize=4096)
def is_ordinary_host(host: str) -> bool:
    return is_local_host(host) or is_known_host(host) or _PLACEHOLDER_HOST.search(host) is not None


def is_local_host(host: str) -> bool:
    if host in ("localhost", "host.docker.internal") or host.endswith((".localhost", ".local")):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return (
        (address.is_private or address.is_loopback or address.is_unspecified)
        and not _is_documentation(host)
        and not address.is_link_local
    )


_SHARED_ADDRESSES: Final = ipaddress.ip_network("100.64.0.0/10")
"""Of a provider's or a private network, such as a VPN."""
_WELL_KNOWN_IPS: Final = frozenset(("1.2.3.4", "1.1.1.1", "8.8.8.8", "8.8.4.4", "9.9.9.9", "255.255.255.255"))
"""Public name servers, and placeholder addresses."""
_DOCUMENTATION: Final = tuple(
    ipaddress.ip_network(net) for net in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32")
)


def _is_documentation(host: str) -> bool:
    """Whether it is an IP address that is reserved for examples."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(address in net for net in _DOCUMENTATION if net.version == address.version)


def _is_subdomain(host: str, names: frozenset[str]) -> bool:
    parts = host.split(".")
    return any(".".join(parts[at:]) in names for at in range(len(parts) - 1))


def check_urls(source: AuditedText, urls: list[FoundUrl]) -> ScanResult:
    hits: list[RuleHit] = []
    seen: set[tuple[str, str]] = set()
    for address in urls:
        rule, severity, note = _classify_url(address)
        if not rule or (rule, address.url) in seen:
            continue
        seen.add((rule, address.url))
        role, _ = source.role_at(address.start)
        is_example = role == "code" and rule == "address-url" and _is_documentation(address.host)
        if (role in ("prose", "inline", "table", "frontmatter") or is_example) and severity == "high":
            severity = "medium"  # a mentioned URL is not used yet
        hits.append(
            RuleHit(
                rule=rule,
                start=address.start,
                end=address.start + len(address.url),
                severity=severity,
                confidence=None,
                note=note,
            )
        )
    return ScanResult(hits, [])


def _classify_url(address: FoundUrl) -> tuple[str, Severity, str]:
    host, url = address.host, address.url
    if address.user and "." in address.user.split(":")[0]:
        return "deceptive-url", "high", f"the host is {host}"
    number = _classify_ip(host)
    if number:
        return number
    if host.endswith(".onion"):
        return "drop-host", "high", "Tor hidden service"
    if _is_subdomain(host, _DROP_HOSTS) or (host == "gist.github.com" and "/raw" in url):
        return "drop-host", "high", host
    path = CHAT_HOOKS.get(host)
    if path is not None and path in url:
        if WEBHOOK.search(url):
            return "drop-host", "high", "chat webhook with a token"
        return ("drop-host", "low", "chat webhook") if not _PLACEHOLDER.search(url) else ("", "info", "")
    if _is_subdomain(host, _URL_SHORTENERS):
        return "short-url", "medium", host
    if not host.isascii() or any(part.startswith("xn--") for part in host.split(".")):
        imitates = not _IMITATED_NAMES.isdisjoint(_plain_letters(host).split("."))
        return "deceptive-url", "high" if imitates else "low", "letters from another alphabet in the host name"
    for imitated in _IMITATED:
        if (
            f"{imitated}." in f"{host}."
            and not (host == imitated or host.endswith(f".{imitated}"))
            and _starts_part(host, imitated)
            and not _PLACEHOLDER_HOST.search(host)
        ):
            after = host[host.find(imitated) + len(imitated) + 1 :]
            if len(after) != 2:  # google.com.au
                return "deceptive-url", "high", f"looks like {imitated}"
    return "", "info", ""


def _plain_letters(host: str) -> str:
    try:
        shown = host.encode("ascii").decode("idna") if host.isascii() else host
    except UnicodeError:
        shown = host
    decomposed = unicodedata.normalize("NFKD", shown)
    return confusable_skeleton("".join(char for char in decomposed if not unicodedata.combining(char)))


def _starts_part(host: str, known: str) -> bool:
    at = host.find(known)
    return at == 0 or host[at - 1] in ".-"


def _classify_ip(host: str) -> tuple[str, Severity, str] | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if _NUMBER_HOST.fullmatch(host) and not re.fullmatch(r"\d+\.\d+(?:\.\d+)?|\d{1,7}", host):
            return "address-url", "high", "obfuscated IP address"
        return None
    if address in _SHARED_ADDRESSES:
        return "", "info", ""
    if host in ("169.254.169.254", "169.254.170.2", "fd00:ec2::254"):
        return "address-url", "low", "cloud metadata service, which hands out credentials"
    if is_local_host(host) or host in _WELL_KNOWN_IPS:
        return "", "info", ""
    return "address-url", "high", str(address)
