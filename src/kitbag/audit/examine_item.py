"""One item, examined: each of its files is read once and shown to every detector, then all are seen together.

Used by run. Reads; never runs, never connects, follows no link.
"""

import hashlib
import os
import re
from typing import Final, NamedTuple

from kitbag.audit import encoded_text, exfiltration, hidden_text, patterns, persistence, shell_checks
from kitbag.audit.capability_checks import undeclared
from kitbag.audit.capability_manifest import Collector, Manifest
from kitbag.audit.declarations import Declared, declared_by, read_settings
from kitbag.audit.expressions import expression
from kitbag.audit.file_checks import Remark, check_content, check_entry
from kitbag.audit.file_content import Content, read
from kitbag.audit.findings import EXCERPT, Entry, Finding, Item, Unread, at_most, order
from kitbag.audit.regions import Source
from kitbag.audit.rules import rules
from kitbag.audit.severity import Judged, judge
from kitbag.audit.suppressions import find_suppressions, suppress
from kitbag.audit.urls import check_addresses, find_addresses
from kitbag.audit.warning_context import tells_to_act
from kitbag.library.plugins.fingerprint import acting_part
from kitbag.text.hidden_characters import for_terminal, one_line
from kitbag.text.reference_syntax import find_tokens

TEXT_BUDGET: Final = 200 << 20
"""Bytes of text that one audit looks at."""
_MOST_OF_A_RULE: Final = 20
_MOST_HITS: Final = 600
_FIXTURES = re.compile(r"(?:^|/)(?:tests?|__tests__|fixtures?|testdata|test-data|samples?|corpus)/", re.IGNORECASE)
_ABOUT_SECURITY = expression("examine.about_security")
_WORD = re.compile(r"[\w.-]+")


class FileRecord(NamedTuple):
    """One file as the lock file knows it."""

    path: str
    sha256: str
    size: int
    executable: bool
    acts: bool
    """A change of it is a change of what the item can do, not only of its prose."""


class Examined(NamedTuple):
    item: Item
    declared: Declared
    manifest: Manifest
    files: tuple[FileRecord, ...]
    findings: tuple[Finding, ...]
    """Suppressed ones too; worst first."""
    unread: tuple[Unread, ...]


class Budget:
    """What is left to read of all items together."""

    __slots__ = ("left",)

    def __init__(self, size: int = TEXT_BUDGET) -> None:
        self.left = size


def examine(item: Item, root: str, budget: Budget) -> Examined:
    return _Examination(item, root, budget).run()


class _Examination:
    def __init__(self, item: Item, root: str, budget: Budget) -> None:
        self.item = item
        self.root = root
        self.budget = budget
        self.declared = declared_by(item)
        self.collector = Collector(item, root)
        self.findings: list[Finding] = []
        self.files: list[FileRecord] = []
        self.unread: list[Unread] = list(item.unread)
        self.partly: list[Unread] = []
        """Files that a finding of their own speaks of."""
        self.signs: list[exfiltration.Sign] = []
        self.lines: dict[str, list[tuple[int, str, int]]] = {}
        self.named: dict[str, set[str]] = {}
        """Words of each text that are names of the item's other files."""
        self.names = {os.path.basename(entry.relative) for entry in item.entries}
        self.security = _ABOUT_SECURITY.search(f"{self.declared.name} {self.declared.description}") is not None

    def run(self) -> Examined:
        for entry in self.item.entries:
            self._remarks(entry.relative, 0, check_entry(entry, self.item.folder, self.root))
            if entry.kind == "link":
                self.collector.add_link(entry)
                if entry.relative == self.item.main:
                    self.unread.append(Unread(self._place(entry.relative), "a link, which is not followed"))
            elif entry.kind == "file":
                self._file(entry)
        for line, remark in self.declared.remarks:
            self._remarks(self.item.main, line, [remark])
        if self.declared.prompt:
            # A block in YAML begins on the line after its key; in TOML and JSON the line is as good as can be told.
            tokens = find_tokens(self.declared.prompt).tokens
            self.collector.add_tokens(self.item.main, tokens, self.declared.prompt_line)
        self.collector.hooks += self.declared.hooks
        self.collector.servers += self.declared.servers
        self._together()
        self.unread += [
            Unread(self._place(file), "more commands, references or variables than are listed")
            for file in self.collector.cut
        ]
        for path, reason in self.unread:
            self.findings.append(self._whole(path, 0, Remark("not-read", None, path, reason)))
        manifest = self.collector.finish(self._tools(), self.declared.mode)
        self._remarks(self.item.main, 1, undeclared(self.declared, manifest, self.item, self._sends()))
        findings = with_fingerprints(self._settled(), self.item.path)
        return Examined(
            self.item, self.declared, manifest, tuple(self.files), tuple(findings), (*self.unread, *self.partly)
        )

    def _tools(self) -> tuple[str, ...] | None:
        return None if self.declared.access.mode == "inherit" else self.declared.tools

    def _sends(self) -> bool:
        return any(sign.kind == "send" for sign in self.signs)

    def _place(self, relative: str) -> str:
        """A file of the item as findings name it."""
        path = os.path.join(os.path.relpath(self.item.folder, self.root), relative)
        return os.path.normpath(path)

    def _remarks(self, relative: str, line: int, remarks: list[Remark]) -> None:
        self.findings += [self._whole(self._place(relative), line, remark) for remark in remarks]

    def _whole(self, file: str, line: int, remark: Remark) -> Finding:
        rule = rules()[remark.rule]
        excerpt, note = (for_terminal(one_line(text)) for text in (remark.excerpt, remark.note))
        severity = remark.severity or rule.severity
        return Finding(rule.id, severity, rule.confidence, file, line, excerpt[: 2 * EXCERPT], note)

    def _file(self, entry: Entry) -> None:
        content = read(entry)
        remarks = check_content(content)
        self._remarks(entry.relative, 0, remarks)
        self.partly += [Unread(self._place(entry.relative), r.note) for r in remarks if r.rule == "not-read"]
        self.collector.add_content(content)
        acts = entry.executable or content.text is None or _acts(content)
        self.files.append(FileRecord(entry.relative, content.sha256, content.size, entry.executable, acts))
        if content.text is None:
            return
        if self.budget.left <= 0:
            self.unread.append(
                Unread(self._place(entry.relative), f"an audit reads at most {TEXT_BUDGET >> 20} MiB of text")
            )
            return
        self.budget.left -= len(content.data)
        settings = read_settings(content)
        if settings is not None:
            self.collector.hooks += settings.hooks
            self.collector.servers += settings.servers
            for line, remark in settings.remarks:
                self._remarks(entry.relative, line, [remark])
        self._text(Source(content, content.text))

    def _text(self, source: Source) -> None:
        relative = source.content.entry.relative
        addresses, too_many = find_addresses(source.text)
        self.collector.add_text(source, addresses)
        signs, exhausted = exfiltration.signs(source)
        self.signs += signs
        for sign in signs:
            self.lines.setdefault(relative, []).append(
                (sign.start, source.row_at(sign.start)[1], source.line_at(sign.start))
            )
        scans = [
            patterns.scan(source),
            shell_checks.pipelines(source),
            shell_checks.evaluated_values(source),
            shell_checks.downloads(source),
            shell_checks.installs(source),
            persistence.writes(source),
            hidden_text.hidden_characters(source),
            encoded_text.blobs(source),
            check_addresses(source, addresses),
        ]
        hits = [hit for scan in scans for hit in scan.hits]
        if len(hits) > _MOST_HITS:
            self.unread.append(
                Unread(self._place(relative), f"more than {_MOST_HITS:,} suspicious places; the rest was not judged")
            )
            hits = hits[:_MOST_HITS]
        hits += (
            hidden_text.comments(source)
            + hidden_text.mixed_words(source)
            + exfiltration.told_to_send(source)
            + exfiltration.stranger_hits(source, addresses)
        )
        stopped = {rule for scan in scans for rule in scan.exhausted}
        stopped |= {"secret-exfiltration"} if exhausted else set()
        stopped |= {"drop-host"} if too_many else set()
        if stopped:
            reason = f"more than can be examined for {', '.join(sorted(stopped))}"
            self.unread.append(Unread(self._place(relative), reason))
        self._judge(source, hits)
        self.named[relative] = self.names.intersection(_WORD.findall(source.text)) if len(self.names) > 1 else set()

    def _judge(self, source: Source, hits: list[patterns.Hit]) -> None:
        found = find_suppressions(source)
        file = self._place(source.content.entry.relative)
        judged = [made for hit in [*hits, *found.hits] if (made := judge(source, hit, file)) is not None]
        findings, unused = suppress(_distinct([self._in_context(made) for made in judged]), found.found)
        self.findings += findings
        for suppression in unused:
            hit = patterns.Hit(
                "suppression-unused", suppression.start, suppression.start, None, None, suppression.rule, True
            )
            made = judge(source, hit, file)
            self.findings += [made.finding] if made else []

    def _in_context(self, made: Judged) -> Finding:
        """A guide to security quotes what it is about; where nothing tells to run it, that is no use of it."""
        finding, spot = made.finding, made.spot
        quotes = spot.role in ("shell", "code", "inline", "prose", "table")
        if (
            finding.severity == "high"
            and self.security
            and quotes
            and finding.rule != "hidden-characters"
            and not tells_to_act(spot)
        ):
            return finding._replace(
                severity="medium", confidence="low", note=finding.note or "in a text about security"
            )
        return finding

    def _together(self) -> None:
        """What only shows in all files of the item."""
        pairs = exfiltration.pairs(self.signs)
        for pair in pairs:
            row, line = self._row(pair.secret)
            same = pair.send.file == pair.secret.file
            where = f"line {self._row(pair.send)[1]}" if same else f"{pair.send.file}:{self._row(pair.send)[1]}"
            note = f"{pair.secret.what}; sent: {where}"
            self._remarks(pair.secret.file, line, [Remark("secret-exfiltration", pair.severity, row, note)])
        paired = {pair.secret.file for pair in pairs}
        for sign in self.signs:
            if sign.kind == "secret" and sign.strength == "strong" and sign.file not in paired:
                row, line = self._row(sign)
                self._remarks(sign.file, line, [Remark("secret-access", None, row, sign.what)])
        for reference in self.collector.references:
            if reference.leaves:
                secret = exfiltration.is_secret(reference.target)
                remark = Remark("reference-outside", "high" if secret else None, f"@{reference.target}")
                self._remarks(reference.file, reference.line, [remark])

    def _row(self, sign: exfiltration.Sign) -> tuple[str, int]:
        for start, row, line in self.lines.get(sign.file, []):
            if start == sign.start:
                return row[:EXCERPT], line
        return sign.what, 0

    def _settled(self) -> list[Finding]:
        """Fixtures that nothing leads to are milder; of one rule in one file only so many are listed."""
        counts: dict[tuple[str, str], int] = {}
        kept: list[Finding] = []
        # What two detectors say of one line is said once.
        distinct = {
            (f.rule, f.file, f.line, f.note or f.excerpt): f for f in sorted(self.findings, key=order, reverse=True)
        }
        for finding in sorted(distinct.values(), key=order):
            key = (finding.rule, finding.file)
            counts[key] = counts.get(key, 0) + 1
            if counts[key] <= _MOST_OF_A_RULE:
                kept.append(self._as_fixture(finding))
        more = {key: count - _MOST_OF_A_RULE for key, count in counts.items() if count > _MOST_OF_A_RULE}
        last = {(finding.rule, finding.file): at for at, finding in enumerate(kept)}
        for key, count in more.items():
            kept[last[key]] = kept[last[key]]._replace(note=f"and {count} more in this file")
        return sorted(kept, key=order)

    def _as_fixture(self, finding: Finding) -> Finding:
        relative = os.path.relpath(os.path.join(self.root, finding.file), self.item.folder)
        if finding.severity != "high" or not _FIXTURES.search(relative) or finding.rule == "hidden-characters":
            return finding
        name = os.path.basename(relative)
        if any(name in words for file, words in self.named.items() if file != relative):
            return finding
        return finding._replace(
            severity=at_most("high", "medium"), confidence="low", note=finding.note or "in a fixture that nothing names"
        )


def _acts(content: Content) -> bool:
    if content.kind == "markdown":
        return False  # what prose can do is in the manifest
    return acting_part(content.entry.relative, content.data) is not None


def _distinct(findings: list[Finding]) -> list[Finding]:
    """Of one rule on one line the worst; and what another rule says better is left out."""
    best: dict[tuple[str, int], Finding] = {}
    for finding in sorted(findings, key=order):
        best.setdefault((finding.rule, finding.line), finding)
    return sorted(best.values(), key=order)


def with_fingerprints(findings: list[Finding], item: str) -> list[Finding]:
    """From the rule, the file and the text that was found: prose around it may change."""
    seen: dict[str, int] = {}
    made: list[Finding] = []
    for finding in findings:
        base = f"{finding.rule}\0{finding.file}\0{finding.fingerprint or finding.excerpt}"
        seen[base] = seen.get(base, 0) + 1
        digest = hashlib.sha256(f"{base}\0{seen[base]}".encode("utf-8", "backslashreplace")).hexdigest()[:24]
        made.append(finding._replace(item=item, fingerprint=digest))
    return made
