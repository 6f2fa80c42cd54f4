"""Secrets that are read and data that is sent, in one file and in one item; and keys that go to strangers.

A service's own key in a request to that service is ordinary and not reported. Used by examine (places in one
file) and run (what they come to together); uses addresses for whose host it is.
"""

import re
from typing import Final, Literal, NamedTuple

from kitbag.audit.expressions import expression, table, words
from kitbag.audit.patterns import Hit, Places, command_window, text_window
from kitbag.audit.regions import WRITTEN, Source
from kitbag.audit.urls import Address, hosts_in, is_local
from kitbag.audit.warning_context import is_warned_of

Strength = Literal["strong", "weak"]
MOST: Final = 100
_STRONG = expression("exfiltration.strong")
_STRONG_WORDS: Final = words("exfiltration.strong_words")
_WEAK = expression("exfiltration.weak")
_WEAK_WORDS: Final = (".env", ".npmrc", ".pypirc", ".kube/config", ".docker/config", ".pem")
_DUMP = expression("exfiltration.dump")
_DUMP_WORDS: Final = ("env", "export -p", "declare -x", "set")
_USES = expression("exfiltration.uses")
_SEND = expression("exfiltration.send")
_SEND_WORDS: Final = words("exfiltration.send_words")
_TOLD = expression("exfiltration.told")
_READ = expression("exfiltration.read")
_ENV_SECRET = expression("exfiltration.env_secret")
_NAMED_SECRET = re.compile(
    f"{_STRONG.pattern}|{_WEAK.pattern}|\\benvironment variables\\b|\\bapi keys?\\b", re.IGNORECASE
)
_NAMED_WORDS: Final = (*_STRONG_WORDS, *_WEAK_WORDS, "environment variables", "api key")
_TOOLS: Final = {"gh": "GITHUB_TOKEN", "gcloud": "GOOGLE_APPLICATION"}
"""Programs that print a token, and the variable that would hold it."""
_PROVIDERS: Final = table("exfiltration.providers")


_PROVIDER_WORDS: Final = (*(prefix.lower() for prefix in _PROVIDERS), "auth token", "auth print")
_SECRETS: Final[tuple[tuple["re.Pattern[str]", tuple[str, ...], Strength], ...]] = (
    (_STRONG, _STRONG_WORDS, "strong"),
    (_WEAK, _WEAK_WORDS, "weak"),
    (_DUMP, _DUMP_WORDS, "strong"),
)


class Sign(NamedTuple):
    """One half of an exfiltration."""

    kind: Literal["secret", "send"]
    strength: Strength
    file: str
    start: int
    line: int
    block: int
    """What lies in one fence, command or script has one number."""
    runs: bool
    """In a script or a command, not only in an example."""
    what: str


def signs(source: Source) -> tuple[list[Sign], bool]:
    """The places in code where secrets are read and where data is sent; True when there were too many to look at."""
    found: list[Sign] = []
    exhausted = False
    for regex, needed, strength in _SECRETS:
        places = Places(source, regex, needed)
        exhausted |= places.exhausted
        for start, _, match in places.found[:MOST]:
            if not _USES.search(source.text[max(0, start - 80) : start]):
                found += _sign(source, "secret", strength, start, match[0])
    places = Places(source, _SEND, _SEND_WORDS)
    for start, _, match in places.found[:MOST]:
        hosts = hosts_in(command_window(source, start)[1])
        if not (hosts and all(is_local(host) for host in hosts)):
            found += _sign(source, "send", "strong", start, match[0])
    return found, exhausted or places.exhausted


def _sign(source: Source, kind: Literal["secret", "send"], strength: Strength, start: int, text: str) -> list[Sign]:
    """None where it is only spoken of."""
    role, _ = source.role_at(start)
    begin, _ = source.row_at(start)
    if role in WRITTEN or is_warned_of(source.spot(start), start - begin):
        return []
    region = source.region_at(start)
    block = region.start if region is not None else -1
    runs = role in ("command", "script", "config")
    return [
        Sign(
            kind, strength, source.content.entry.relative, start, source.line_at(start), block, runs, text.strip()[:80]
        )
    ]


def is_secret(path: str) -> bool:
    return _STRONG.search(path) is not None or _WEAK.search(path) is not None


class Pair(NamedTuple):
    secret: Sign
    send: Sign
    severity: Literal["high", "medium"]


def pairs(found: list[Sign]) -> list[Pair]:
    """Secrets and sends of one item that belong together, one for each file with a secret."""
    sends = [sign for sign in found if sign.kind == "send"][: 2 * MOST]
    made: dict[str, Pair] = {}
    for secret in [sign for sign in found if sign.kind == "secret" and sends][: 10 * MOST]:
        pair = _best(secret, sends)
        known = made.get(secret.file)
        if pair is not None and (known is None or (known.severity == "medium" and pair.severity == "high")):
            made[secret.file] = pair
    return [made[file] for file in sorted(made)]


def _best(secret: Sign, sends: list[Sign]) -> Pair | None:
    together = [send for send in sends if send.file == secret.file and send.block == secret.block]
    if secret.strength == "weak":
        near = [send for send in together if send.line == secret.line]
        return Pair(secret, near[0], "medium") if near else None
    if together:
        return Pair(secret, min(together, key=lambda send: abs(send.start - secret.start)), "high")
    running = [send for send in sends if send.runs]
    if secret.runs and running:
        return Pair(secret, running[0], "high")
    return Pair(secret, sends[0], "medium")


def told_to_send(source: Source) -> list[Hit]:
    """A sentence that wants a secret file read and sent somewhere."""
    hits: list[Hit] = []
    for start, end, _ in Places(source, _NAMED_SECRET, _NAMED_WORDS).found[:MOST]:
        role, language = source.role_at(start)
        if role not in WRITTEN and not (role == "code" and language in ("", "text")):
            continue
        _, window = text_window(source, start)
        if not _TOLD.search(window) or not _READ.search(window):
            continue
        hosts = [host for host in hosts_in(window) if not is_local(host)]
        if hosts:
            hits.append(Hit("secret-exfiltration", start, end, None, "medium", f"to be sent to {hosts[0]}"))
    return hits


def stranger_hits(source: Source, addresses: list[Address]) -> list[Hit]:
    """A provider's credential in a command, or a script, whose only hosts are not the provider's."""
    hits: list[Hit] = []
    if not addresses or not any(source.has(word) for word in _PROVIDER_WORDS):
        return hits
    outside = [address.host for address in addresses if not is_local(address.host)]
    sends = len(Places(source, _SEND, _SEND_WORDS).found) > 0
    for start, end, match in Places(source, _ENV_SECRET, _PROVIDER_WORDS).found[: 5 * MOST]:
        tool = match["tool"]
        name = match["shell"] or match["python"] or match["get"] or match["node"] or _TOOLS[tool.split()[0]]
        owners = next((hosts for prefix, hosts in _PROVIDERS.items() if name.startswith(prefix)), None)
        if owners is None:
            continue
        role, _ = source.role_at(start)
        if role in ("prose", "table", "remark", "head"):
            continue
        _, window = command_window(source, start)
        hosts = [host for host in hosts_in(window) if not is_local(host)]
        if not hosts and role == "script" and sends:
            hosts = outside
        if hosts and not any(owner in host for owner in owners for host in hosts):
            hits.append(Hit("credential-to-stranger", start, end, None, None, f"{name} and {hosts[0]}"))
    return hits
