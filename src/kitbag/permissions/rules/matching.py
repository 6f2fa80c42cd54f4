"""Matches rules against one use of a tool: a command, a path, a URL, a name or a parameter.

Used by the decision modules and by `examples`; uses `path_patterns`. Allow rules match strictly, deny and ask rules
match loosely.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from kitbag.library.names import normalize_name, slugify
from kitbag.permissions.model import Effect, Workspace
from kitbag.permissions.rules.path_patterns import pattern_matches
from kitbag.permissions.rules.rule import PARAMETER, PermissionRule, PermissionRules, glob_matches
from kitbag.shell.unknown_text import UNKNOWN_TEXT
from kitbag.text.unicode_forms import compose, fold

_HOST: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*|\[[0-9a-f:.]+\]")


def prefix_matches(pattern: str, text: str) -> bool:
    """`ls *` and `ls:*` match `ls` and `ls -l` but not `lsof`; `ls*` matches them all."""
    if pattern.endswith((":*", " *")):
        start = pattern[:-2].rstrip()
        if "*" not in start:
            return text == start or text.startswith(f"{start} ")
        return glob_matches(start, text) or glob_matches(f"{start} *", text)
    return pattern == text or ("*" in pattern and glob_matches(pattern, text))


def allows_command(rule: PermissionRule, form: str | None, raw: str) -> bool:
    """`form`: the one form that may be allowed; None: only a rule for all of Bash allows it."""
    if rule.specifier is None:
        return True
    if form is None:
        return False
    if "*" not in rule.specifier:
        return rule.specifier in (form, raw)
    return prefix_matches(rule.specifier, form)


class CommandRules:
    """Deny or ask rules for Bash, compiled for matching against thousands of commands."""

    __slots__ = ("_exact", "_patterns", "_prefixes", "_rule_by_prefix", "for_all_commands")

    def __init__(self, rules: Iterable[PermissionRule]) -> None:
        self.for_all_commands: PermissionRule | None = None
        """A rule for all commands."""
        self._exact: dict[str, PermissionRule] = {}
        self._rule_by_prefix: dict[str, PermissionRule] = {}
        self._patterns: list[tuple[str, PermissionRule]] = []
        for rule in rules:
            pattern = compose(" ".join((rule.specifier or "").split()))
            if rule.specifier is None:
                self.for_all_commands = self.for_all_commands or rule
            elif "*" not in pattern:
                self._exact.setdefault(pattern, rule)
            elif pattern.endswith((":*", " *")) and "*" not in pattern[:-2]:
                start = pattern[:-2].rstrip()
                self._exact.setdefault(start, rule)
                self._rule_by_prefix.setdefault(f"{start} ", rule)
            else:
                self._patterns.append((pattern, rule))
        self._prefixes = tuple(self._rule_by_prefix)

    def first_match(self, forms: Iterable[str]) -> PermissionRule | None:
        """The first rule that matches any form of a command."""
        if self.for_all_commands is not None or not (self._exact or self._patterns):
            return self.for_all_commands
        for form in map(compose, forms):
            found = self._match_form(form)
            if found is None:
                first, blank, rest = form.partition(" ")
                if not first.islower():  # on case-insensitive file systems `CURL` runs curl
                    found = self._match_form(f"{first.lower()}{blank}{rest}")
            if found is not None:
                return found
        return None

    def first_possible_match(self, forms: Iterable[str]) -> PermissionRule | None:
        """The first rule that could match a form in which `UNKNOWN_TEXT` stands for any text."""
        for form in forms:
            known, unknown, _ = form.partition(UNKNOWN_TEXT)
            if not unknown:
                found = self._match_form(form)
            else:
                name, blank, rest = known.partition(" ")
                beginnings = (known, f"{name.lower()}{blank}{rest}")
                found = next((rule for start, rule in self._starts() if start.startswith(beginnings)), None)
            if found is not None:
                return found
        return None

    def _starts(self) -> Iterator[tuple[str, PermissionRule]]:
        """What the commands that a rule matches begin with."""
        yield from self._exact.items()
        yield from self._rule_by_prefix.items()
        yield from ((pattern.partition("*")[0], rule) for pattern, rule in self._patterns)

    @property
    def first_specific_rule(self) -> PermissionRule | None:
        """A rule that applies to some commands but not to others."""
        return next((rule for _, rule in self._starts()), None)

    def _match_form(self, form: str) -> PermissionRule | None:
        if form in self._exact:
            return self._exact[form]
        if form.startswith(self._prefixes):
            return next(rule for start, rule in self._rule_by_prefix.items() if form.startswith(start))
        return next((rule for pattern, rule in self._patterns if prefix_matches(pattern, form)), None)


def compiled_command_rules(rules: PermissionRules, effect: Effect) -> CommandRules:
    compiled = rules.compiled.get(effect)
    if not isinstance(compiled, CommandRules):
        compiled = rules.compiled[effect] = CommandRules(rules.for_tool(effect, "Bash"))
    return compiled


class RulePath(NamedTuple):
    """A path as rules see it."""

    spellings: tuple[str, ...]
    """Requested, resolved, and every link between them: absolute and normalized."""
    recursive: bool = False
    """Whether everything below it is included."""


def matches_path(rule: PermissionRule, path: RulePath, workspace: Workspace) -> bool:
    """To allow, all spellings must match; to deny or ask, one match is enough."""
    if rule.specifier is None:
        return True
    narrow = rule.effect == "allow"
    results = (
        pattern_matches(rule.specifier, narrow, rule.base, spelling, workspace, path.recursive)
        for spelling in path.spellings
    )
    return all(results) if narrow else any(results)


def matches_host(rule: PermissionRule, hosts: Iterable[str]) -> bool:
    """`hosts` are lower case without a trailing dot. An allow rule must match all of them."""
    if rule.specifier is None:
        return True
    if not rule.specifier.startswith("domain:"):
        return False
    pattern = normalize_host(rule.specifier[7:])
    narrow = rule.effect == "allow"
    results = [_host_matches(pattern, host, narrow) for host in hosts]
    return bool(results) and (all(results) if narrow else any(results))


def normalize_host(written: str) -> str:
    host = written.strip().rstrip(".").lower()
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        return host


def parse_host(url: str) -> tuple[str, str]:
    """The normalized host of a URL, or why the URL can't be fetched."""
    if not url.isprintable() or any(char in url for char in " \\"):
        return "", "the URL contains invalid characters"
    try:
        parts = urlsplit(url)
        written, port = parts.hostname or "", parts.port
    except ValueError:
        return "", "the URL cannot be parsed"
    if parts.scheme not in ("http", "https"):
        return "", "only http and https URLs can be fetched"
    if "@" in parts.netloc:
        return "", "the URL contains a username, which can disguise its host"
    host = f"[{written}]" if ":" in written else normalize_host(written)
    if not _HOST.fullmatch(host) or port == 0:
        return "", "the URL has no valid host"
    return host, ""


def _host_matches(pattern: str, host: str, narrow: bool) -> bool:
    """`*.x.com` matches everything below x.com; elsewhere `*` stays within one label."""
    if not host:
        return False
    if pattern == "*":
        return True
    if pattern.startswith("*."):
        rest = pattern[2:]
        labels, host_labels = rest.split("."), host.split(".")
        below = len(host_labels) > len(labels) and _labels_match(labels, host_labels[-len(labels) :])
        return below or (not narrow and _host_matches(rest, host, narrow))
    labels, host_labels = pattern.split("."), host.split(".")
    if not narrow and len(host_labels) > len(labels):  # denying a host denies its subdomains
        host_labels = host_labels[-len(labels) :]
    return _labels_match(labels, host_labels)


def _labels_match(patterns: list[str], labels: list[str]) -> bool:
    return len(patterns) == len(labels) and all(glob_matches(*pair) for pair in zip(patterns, labels, strict=True))


def matches_name(rule: PermissionRule, name: str, arguments: str = "") -> bool:
    """Match the name of an agent or skill, and its arguments."""
    if rule.specifier is None:
        return True
    patterns = [part.strip() for part in rule.specifier.split(",")] if rule.tool == "Task" else [rule.specifier]
    whole = f"{name} {arguments}".strip()
    if rule.effect == "allow":
        return any(prefix_matches(compose(pattern), compose(whole)) for pattern in patterns)
    # Names are looked up in any case and spelling, with or without their plugin or team.
    last = name.replace("/", ":").rpartition(":")[2]
    texts = {*_spellings(name), *_spellings(last), *_spellings(whole), f"{normalize_name(last)} {arguments}".strip()}
    if any("*" not in pattern and slugify(pattern) and slugify(pattern) in texts for pattern in patterns):
        return True
    return any(prefix_matches(normalize_name(pattern), text) for pattern in patterns if pattern for text in texts)


def _spellings(name: str) -> tuple[str, str]:
    return normalize_name(name), slugify(name)


def matches_parameter(rule: PermissionRule, arguments: Mapping[str, object]) -> bool:
    """`Tool(parameter:value)` in deny and ask rules; compares scalars only, ignoring case."""
    if rule.effect == "allow" or rule.specifier is None:
        return False
    found = PARAMETER.fullmatch(rule.specifier)
    if found is None:
        return False
    pattern, parameter = fold(found[2].strip()), fold(found[1])
    for key, value in arguments.items():
        if fold(str(key)) == parameter:
            text = _scalar_text(value)
            if text is not None and glob_matches(pattern, fold(text)):
                return True
    return False


def _scalar_text(value: object) -> str | None:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None
