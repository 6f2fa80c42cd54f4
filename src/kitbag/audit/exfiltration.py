"""Detects exfiltration: secrets that are read and data that is sent, in one file or item, and misdirected credentials.

A service's own key in a request to that service is ordinary and not reported. Used by examine_item; uses urls to
tell whose host it is.
"""

import re
from typing import Final, Literal, NamedTuple

import msgspec

from kitbag.audit.expressions import load_expression, load_word_table, load_words
from kitbag.audit.file_types import file_extension
from kitbag.audit.patterns import MAX_EXAMINED, LineMatches, RuleHit, command_window, words_in
from kitbag.audit.regions import PROSE_ROLES, AuditedText, RegionRole
from kitbag.audit.secret_places import secret_place_expression, secret_place_words
from kitbag.audit.urls import FoundUrl, find_hosts, find_mail_hosts, find_urls, is_local_host, is_ordinary_host
from kitbag.audit.warning_context import is_warned_about
from kitbag.audit.word_index import index_words

SignStrength = Literal["strong", "weak"]
_PROGRAM_ROLES: Final[frozenset[RegionRole]] = frozenset(("script", "config"))
MAX_SIGNS: Final = 100
_STRONG = load_expression("exfiltration.strong")
_STRONG_WORDS: Final = load_words("exfiltration.strong_words")
_PLACES = secret_place_expression()
_PLACE_PARTS: Final = secret_place_words()
_PLACE_WORDS: Final = tuple(_PLACE_PARTS)
index_words(tuple({part for places in _PLACE_PARTS.values() for parts in places for part in parts}))
_PRINTING_COMMANDS: Final = frozenset(load_words("secret_places.commands"))
_WEAK = load_expression("exfiltration.weak")
_WEAK_WORDS: Final = (".env", ".npmrc", ".pypirc", ".kube/config", ".docker/config", ".pem")
_DUMP_SHELL = load_expression("exfiltration.dump_shell")
_DUMP_SHELL_WORDS: Final = ("env", "export -p", "declare -x", "set")
_DUMP_CODE = load_expression("exfiltration.dump_code")
_DUMP_CODE_WORDS: Final = load_words("exfiltration.dump_code")
_USES = load_expression("exfiltration.uses")
_SEND = load_expression("exfiltration.send")
_SEND_WORDS: Final = load_words("exfiltration.send_words")
_SEND_CALL = load_expression("exfiltration.send_call")
_SEND_CALL_WORDS: Final = load_words("exfiltration.send_call")
_HOME_SECRET = load_expression("exfiltration.home_secret")
_UPLOADS = load_expression("exfiltration.uploads")
_PIPED = load_expression("exfiltration.piped")
_READS = load_expression("exfiltration.reads")
_ENV_SECRET = load_expression("exfiltration.env_secret")
_TOOLS: Final = {"gh": "GITHUB_TOKEN", "gcloud": "GOOGLE_APPLICATION"}
"""Programs that print a token, and the variable that would hold it."""
_MAX_SCRIPT: Final = 20_000
_SHORT_SCRIPT: Final = 4_000
_NEAR: Final = 500
_BESIDE: Final = 1_200
_FAR: Final = 4_000
"""Farther apart in one file, a read and a send need not belong together."""
_READS_RAW = load_expression("exfiltration.reads_raw")
_URL_PATH = re.compile(r"(?:^|[\[,])\s*['\"`]/$")
"""A list of paths such as `'/.env'`, which a scanner of web sites requests."""
_EXCLUDES = re.compile(
    r"\w*(?:exclude|skip|ignore|deny|denied|block|secret|sensitive|redact|forbid|protect)\w*\s*(?::[^=\n]{1,40})?=\s*(?:\w+\()?[\[{(][^\]})]*$",
    re.IGNORECASE,
)
"""A list of what is left alone."""
_SHOWS = re.compile(r"\b(?:print\w*|echo|puts|log\w*|warn\w*|error|raise|throw|help|usage|die|exit)\b", re.IGNORECASE)
_PUBLISHES = re.compile(r"\bgh\s+(?:repo|gist)\s+create\b[^\n]{0,80}--public\b")
_FIXED_LOGIN = re.compile(r"://[^\s/:@$]*:(?!x-oauth|<|\{|your|token|pass)[\w-]{12,}@", re.IGNORECASE)
"""A login that is part of the address: the account of whoever wrote it, on any host."""
_IS_CONTENT = re.compile(r"tojson|credentials\b|trufflehog|gitleaks", re.IGNORECASE)
"""Not a path, but what would be read there."""
_AUTHENTICATES = re.compile(r"authori[sz]ation|bearer|api[-_]?key|dotenv|x-\w+-token|split\(|parse", re.IGNORECASE)
_TOOLS_ABROAD = re.compile(
    r"\b(?:nc|ncat|netcat)\s|@[\w.-]+:|\bgist\s+create\b|\bs3://|\b(?:dig|nslookup|host)\s|gethostbyname|create_connection"
    r"|[\w.+-]+@[\w-]+\.\w|dns\.|--mirror|\bftp_|-connect\s|\bIP\(|IO::Socket|TCPSocket|\bping\W|\bgit\s+commit\b|\brsync://|--public\b|\bhttp\.server\b"
)
_ABROAD_WITHOUT_URL = re.compile(rf"{_TOOLS_ABROAD.pattern}|HTTPS?Connection|\.sendall|\.request\(")
"""Without a host near it, a request of a long program can go anywhere."""
_BARE_HOST = load_expression("code.bare_host")
_CHAT_HOSTS: Final = frozenset(("discord.com", "discordapp.com", "hooks.slack.com", "api.telegram.org"))
_PROVIDERS: Final = load_word_table("exfiltration.providers")


_PROVIDER_WORDS: Final = (*(prefix.lower() for prefix in _PROVIDERS), "auth token", "auth print", '"auth"', "'auth'")
_SECRETS: Final[tuple[tuple["re.Pattern[str]", tuple[str, ...], SignStrength], ...]] = (
    (_STRONG, _STRONG_WORDS, "strong"),
    (_PLACES, _PLACE_WORDS, "strong"),
    (_HOME_SECRET, load_words("exfiltration.home_secret"), "strong"),
    (_WEAK, _WEAK_WORDS, "weak"),
    (_DUMP_SHELL, _DUMP_SHELL_WORDS, "strong"),
    (_DUMP_CODE, _DUMP_CODE_WORDS, "strong"),
)


class ExfiltrationSign(msgspec.Struct, frozen=True, kw_only=True):
    """One half of an exfiltration: reading a secret, or sending data."""

    kind: Literal["secret", "send"]
    strength: SignStrength
    file: str
    start: int
    line: int
    block: int
    """Identifies the fence, command or script it is in."""
    runs: bool
    """In a script or a command, not only in an example."""
    text: str
    foreign: bool
    """For a send: to a host that is neither local nor well known. For a secret: its content is read."""


def find_secrets(source: AuditedText) -> tuple[list[ExfiltrationSign], bool]:
    """Where code reads secrets; True if there were too many places to examine."""
    signs: list[ExfiltrationSign] = []
    exhausted = False
    is_program = source.content.kind == "script" and source.language not in ("shell", "powershell", "")
    for regex, needed, strength in _SECRETS:
        if regex is _DUMP_SHELL and is_program:
            continue
        matches = LineMatches(source, regex, _place_words(source) if regex is _PLACES else needed)
        exhausted |= matches.exhausted
        for start, _, match in matches.found[:MAX_SIGNS]:
            if regex is _DUMP_SHELL and not _is_shell(source, start):
                continue
            if not _USES.search(source.text[max(0, start - 80) : start]):
                signs += _make_sign(source, "secret", strength, start, match[0])
    return signs, exhausted


def _place_words(source: AuditedText) -> list[str]:
    """The words of places all parts of which are in the text: `hub` alone is no `.config/hub`."""
    present = words_in(source, _PLACE_WORDS)
    if 2 * len(source.text) + 64 * source.text.count("\n") >= MAX_EXAMINED:
        return present  # it may be too much to examine, and then says so
    return [word for word in present if any(all(map(source.has, parts)) for parts in _PLACE_PARTS[word])]


def find_sends(source: AuditedText) -> tuple[list[ExfiltrationSign], bool]:
    """Where code sends data; True if there were too many places to examine."""
    signs: list[ExfiltrationSign] = []
    exhausted = False
    for regex, words in ((_SEND, _SEND_WORDS), (_SEND_CALL, _SEND_CALL_WORDS)):
        matches = LineMatches(source, regex, words)
        exhausted |= matches.exhausted
        for start, _, match in matches.found[:MAX_SIGNS]:
            hosts = find_hosts(command_window(source, start)[1])
            if not (hosts and all(is_local_host(host) for host in hosts)):
                signs += _make_sign(source, "send", "strong", start, match[0])
    return signs or _find_addresses(source), exhausted


_ACTIVE_DATA: Final = frozenset(("ipynb", "html", "htm", "svg"))
"""Data that has code in it."""


def _find_addresses(source: AuditedText) -> list[ExfiltrationSign]:
    """Strangers' addresses in a short script that has no known way to send: its language may be unknown."""
    is_program = source.content.kind == "script" or file_extension(source.content.name) in _ACTIVE_DATA
    if not is_program or len(source.text) > _SHORT_SCRIPT or not _READS_RAW.search(source.text):
        return []
    return [
        sign
        for address in find_urls(source.text)[0]
        if not is_ordinary_host(address.host) and not _SHOWS.search(source.line_text_at(address.start)[1])
        for sign in _make_sign(source, "send", "strong", address.start, address.url)
    ]


def _is_shell(source: AuditedText, start: int) -> bool:
    role, language = source.role_at(start)
    return language in ("shell", "powershell", "") or role in ("command", "config", "inline")


def _make_sign(
    source: AuditedText, kind: Literal["secret", "send"], strength: SignStrength, start: int, text: str
) -> list[ExfiltrationSign]:
    """Empty if the text only mentions it."""
    role, language = source.role_at(start)
    begin, row = source.line_text_at(start)
    if role in PROSE_ROLES or is_warned_about(source.context_at(start), start - begin):
        return []
    before = row[: start - begin]
    if kind == "secret" and role == "script" and _URL_PATH.search(before) and "home" not in row.lower():
        return []
    if kind == "secret" and role == "script" and _EXCLUDES.search(source.text[max(0, start - _NEAR) : start]):
        return []
    if (
        kind == "secret"
        and role == "script"
        and language not in ("shell", "powershell")
        and not _DUMP_CODE.match(text)
        and _in_docstring(before, text)
    ):
        return []
    region = source.region_at(start)
    return [
        ExfiltrationSign(
            kind=kind,
            strength="strong" if strength == "weak" and _is_read_and_sent(source, start, before, row) else strength,
            file=source.content.entry.relative,
            start=start,
            line=source.line_at(start),
            block=region.start if region is not None else -1,
            runs=role in ("command", "script", "config"),
            text=text.strip()[:80],
            foreign=_sends_abroad(source, start, role) if kind == "send" else _is_read(source, start, text, row, role),
        )
    ]


def _is_read(source: AuditedText, start: int, text: str, row: str, role: RegionRole) -> bool:
    """Whether the content of the secret is read: in its line, or near it in a script that names it in a list first."""
    if "env" in text.lower() or _IS_CONTENT.search(text) or text.lower() in _PRINTING_COMMANDS or _READS.search(row):
        return True
    is_short = len(source.text) <= _SHORT_SCRIPT
    nearby = source.text if is_short else source.text[max(0, start - _BESIDE) : start + _BESIDE]
    return role in _PROGRAM_ROLES and bool(_READS.search(nearby))


def _is_read_and_sent(source: AuditedText, start: int, before: str, row: str) -> bool:
    """A file such as `.env` that is not loaded as settings, but read and handed to what sends it."""
    if _UPLOADS.search(before) or _PIPED.search(row):
        return True
    nearby = source.text[max(0, start - _NEAR) : start + _NEAR]
    is_settings = source.lower.startswith(".env", start)
    return (
        is_settings
        and bool(_READS_RAW.search(row))
        and not _AUTHENTICATES.search(nearby)
        and bool(_SEND.search(nearby))
    )


def _in_docstring(before: str, text: str) -> bool:
    """A path in a program is a string; without a quote or a call before it, it is prose."""
    return "(" not in text and not any(char in before for char in "\"'`(")


def _sends_abroad(source: AuditedText, start: int, role: RegionRole) -> bool:
    window = command_window(source, start)[1]
    if _PUBLISHES.search(window) or _FIXED_LOGIN.search(window):
        return True
    hosts = find_hosts(window)
    if not hosts and role in ("script", "config"):
        hosts = find_hosts(source.text) if len(source.text) <= _MAX_SCRIPT else ()
    if not hosts and role == "script" and _BARE_HOST.search(source.text[max(0, start - _NEAR) : start + _NEAR]):
        return True
    if not hosts and role == "script" and "smtp" in source.lower and _mails_stranger(source.text):
        return True
    if not hosts:
        is_long = role == "script" and len(source.text) > _MAX_SCRIPT
        return bool((_TOOLS_ABROAD if is_long else _ABROAD_WITHOUT_URL).search(window))
    return any(not is_ordinary_host(host) or host in _CHAT_HOSTS for host in hosts)


def _mails_stranger(code: str) -> bool:
    """Whether it names the recipient itself, on a host that nobody knows."""
    return any(not is_ordinary_host(host) for _, host in find_mail_hosts(code))


def is_secret_target(path: str) -> bool:
    return _STRONG.search(path) is not None or _WEAK.search(path) is not None


class ExfiltrationPair(NamedTuple):
    secret: ExfiltrationSign
    send: ExfiltrationSign
    severity: Literal["high", "medium"]


def pair_signs(signs: list[ExfiltrationSign], names_stranger: bool, is_small: bool) -> list[ExfiltrationPair]:
    """Matching reads and sends of one item, one pair per file that reads a secret. `names_stranger`: another script
    may hold the host that a send gets from a variable. `is_small`: files of a small item belong together."""
    sends = [
        msgspec.structs.replace(sign, foreign=sign.foreign or (names_stranger and "://" not in sign.text))
        for sign in signs
        if sign.kind == "send"
    ][: 2 * MAX_SIGNS]
    pairs: dict[str, ExfiltrationPair] = {}
    for secret in [sign for sign in signs if sign.kind == "secret" and sends][: 10 * MAX_SIGNS]:
        pair = _best_pair(secret, sends, names_stranger, is_small)
        known = pairs.get(secret.file)
        if pair is not None and (known is None or (known.severity == "medium" and pair.severity == "high")):
            pairs[secret.file] = pair
    return [pairs[file] for file in sorted(pairs)]


def _best_pair(
    secret: ExfiltrationSign, sends: list[ExfiltrationSign], reads_elsewhere: bool, is_small: bool
) -> ExfiltrationPair | None:
    same_block = [send for send in sends if send.file == secret.file and send.block == secret.block]
    abroad = [send for send in same_block if send.foreign]
    if secret.strength == "weak":
        same_line = [send for send in same_block if send.line == secret.line]
        return ExfiltrationPair(secret, same_line[0], "medium") if same_line else None
    if same_block:
        nearest = min(abroad or same_block, key=lambda send: abs(send.start - secret.start))
        is_close = abs(nearest.start - secret.start) <= _FAR
        is_certain = bool(abroad) and is_close and (secret.foreign or nearest.line == secret.line)
        return ExfiltrationPair(secret, nearest, "high" if is_certain else "medium")
    if not is_small:
        return None
    running = [send for send in sends if send.runs]
    if secret.runs and running and (secret.foreign or reads_elsewhere) and any(send.foreign for send in sends):
        return ExfiltrationPair(secret, next((send for send in running if send.foreign), running[0]), "high")
    return ExfiltrationPair(secret, sends[0], "medium") if secret.foreign else None


def find_leaked_credentials(source: AuditedText, addresses: list[FoundUrl]) -> list[RuleHit]:
    """A provider's credential in a command or script whose only hosts are not the provider's."""
    hits: list[RuleHit] = []
    if not addresses or not any(source.has(word) for word in _PROVIDER_WORDS):
        return hits
    external_hosts = [address.host for address in addresses if not is_local_host(address.host)]
    variables = LineMatches(source, _ENV_SECRET, _PROVIDER_WORDS).found[: 5 * MAX_SIGNS]
    sends = bool(variables) and len(LineMatches(source, _SEND, _SEND_WORDS).found) > 0
    for start, end, match in variables:
        tool = match["tool"]
        name = match["shell"] or match["python"] or match["get"] or match["node"] or _TOOLS[re.split(r"\W", tool)[0]]
        owners = next((hosts for prefix, hosts in _PROVIDERS.items() if name.startswith(prefix)), None)
        if owners is None:
            continue
        role, _ = source.role_at(start)
        if role in ("prose", "table", "script-comment", "frontmatter"):
            continue
        _, window = command_window(source, start)
        hosts = [host for host in find_hosts(window) if not is_local_host(host)]
        severity: Literal["high", "medium"] = "high" if hosts or tool else "medium"
        if not hosts and role == "script" and sends and len(source.text) <= _MAX_SCRIPT:
            hosts = external_hosts
        if hosts and not any(owner in host for owner in owners for host in hosts):
            hits.append(
                RuleHit(
                    rule="credential-to-stranger",
                    start=start,
                    end=end,
                    severity=severity,
                    confidence=None,
                    note=f"{name} sent to {hosts[0]}",
                )
            )
    return hits
