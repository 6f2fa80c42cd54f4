"""Examines one item: reads each file once, runs every detector on it, then checks all files together.

Used by run. Only reads; never runs anything, connects anywhere or follows links.
"""

import os
import re
from typing import Final

import msgspec

from kitbag.audit import (
    aliases,
    code_combinations,
    encoded_text,
    exfiltration,
    hidden_text,
    instructions,
    joined_strings,
    package_names,
    patterns,
    persistence,
    shell_checks,
    text_classifier,
)
from kitbag.audit.capability_checks import find_undeclared
from kitbag.audit.capability_manifest import CapabilityCollector, CapabilityManifest
from kitbag.audit.declarations import ItemDeclarations, read_declarations, read_settings_file
from kitbag.audit.expressions import load_expression, load_words
from kitbag.audit.file_checks import FileRemark, check_content, check_entry
from kitbag.audit.file_content import FileContent, read_content
from kitbag.audit.findings import (
    MAX_EXCERPT,
    AuditFile,
    AuditFinding,
    AuditItem,
    UnreadPath,
    cap_severity,
    finding_sort_key,
)
from kitbag.audit.fingerprints import add_fingerprints
from kitbag.audit.likeness import Resemblances
from kitbag.audit.regions import AuditedText
from kitbag.audit.rules import load_rules
from kitbag.audit.severity import ALONE, TEXT_RULES, RatedFinding, rate_hit
from kitbag.audit.suppressions import apply_suppressions, find_suppressions
from kitbag.audit.urls import (
    FoundUrl,
    check_urls,
    find_mail_hosts,
    find_urls,
    foreign_hosts,
    is_ordinary_host,
    with_scheme,
)
from kitbag.audit.vendors import is_own_host, name_words, names_above
from kitbag.audit.warning_context import instructs_to_act
from kitbag.library.plugins.fingerprint import active_content
from kitbag.text.hidden_characters import collapse_whitespace, escape_for_terminal
from kitbag.text.reference_syntax import find_references

TEXT_BUDGET: Final = 200 << 20
"""Bytes of text that one audit examines."""
_MAX_PER_RULE: Final = 20
_FEW_FILES: Final = 12
_MAX_HITS: Final = 600
_MAX_SCRIPT: Final = 20_000
_FIXTURES = load_expression("examine_item.fixtures")
_WORTH_HIDING: Final = frozenset(load_words("examine_item.worth_hiding"))
_HIDES: Final = frozenset(("concealment", "instruction-override"))
_DARES: Final = _HIDES | {"unasked-action"}
_HIDDEN: Final = frozenset(("secret-access", "encoded-blob"))
"""Ordinary in programs, unless the instructions beside them hide something."""
_FETCHING_RULES: Final = frozenset(("pipe-to-shell", "download-and-run", "remote-instructions"))
_OWN_RULES: Final = _FETCHING_RULES | {"agent-config-write"}
"""What the host that an item is named after may do."""
_DOCUMENTS = load_expression("examine_item.documents")
_CONTACTS = load_expression("examine_item.contacts")
_MANUALS = load_expression("examine_item.manuals")
_BUNDLED = load_expression("examine_item.bundled")
_RUNS_FILE = load_expression("examine_item.runs_file")
_READS_INPUT = re.compile(
    r"stdin|\$\(\s*cat\s*\)|\bcat\s*-(?!\w)|@-|readFileSync\(\s*0|tool_input|\bread\s+-r\b|\bcat\s*\|"
)
_ABOUT_SECURITY = load_expression("examine_item.about_security")


class FileRecord(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One file as stored in the lock file."""

    path: str
    sha256: str
    size: int
    executable: bool
    acts: bool
    """Changing it changes what the item can do, not only its prose."""


class ExaminedItem(msgspec.Struct, frozen=True, kw_only=True):
    item: AuditItem
    declared: ItemDeclarations
    manifest: CapabilityManifest
    files: tuple[FileRecord, ...]
    findings: tuple[AuditFinding, ...]
    """Including suppressed ones; worst first."""
    unread: tuple[UnreadPath, ...]


class ReadBudget:
    """How much text may still be read, across all items."""

    __slots__ = ("left",)

    def __init__(self, size: int = TEXT_BUDGET) -> None:
        self.left = size


def examine_item(item: AuditItem, root: str, budget: ReadBudget) -> ExaminedItem:
    return _Examination(item, root, budget).run()


class _Examination:
    def __init__(self, item: AuditItem, root: str, budget: ReadBudget) -> None:
        self.item = item
        self.root = root
        self.budget = budget
        self.declared = read_declarations(item)
        self.collector = CapabilityCollector(item, root)
        self.findings: list[AuditFinding] = []
        self.files: list[FileRecord] = []
        self.unread: list[UnreadPath] = list(item.unread)
        self.partly_read: list[UnreadPath] = []
        """Files that already have a finding about being partly unread."""
        self.signs: list[exfiltration.ExfiltrationSign] = []
        self.sources: list[AuditedText] = []
        """Not yet searched for what sends data."""
        self.sign_lines: dict[str, list[tuple[int, str, int]]] = {}
        self.texts: list[tuple[str, str]] = []
        self.names_stranger = False
        """A script names a host that is neither local nor well known."""
        self.writes_to_stranger = False
        """The same of a mail address."""
        self.contact: tuple[str, int, FileRemark] | None = None
        """A host that the item contacts; worth a finding if there is no other."""
        self.resemblances = Resemblances()
        self.short_texts: list[tuple[FileContent, str]] = []
        self.is_about_security = _ABOUT_SECURITY.search(f"{self.declared.name} {self.declared.description}") is not None

    def run(self) -> ExaminedItem:
        for entry in self.item.files:
            self._add_remarks(entry.relative, 0, check_entry(entry, self.item.folder, self.root))
            if entry.kind == "link":
                self.collector.add_link(entry)
                if entry.relative == self.item.main_file:
                    self.unread.append(UnreadPath(self._location(entry.relative), "symbolic link; not followed"))
            elif entry.kind == "file":
                self._examine_file(entry)
        for line, remark in self.declared.remarks:
            self._add_remarks(self.item.main_file, line, [remark])
        if self.declared.prompt:
            # A YAML block starts on the line after its key; for TOML and JSON the line is approximate.
            tokens = find_references(self.declared.prompt).tokens
            self.collector.add_tokens(self.item.main_file, tokens, self.declared.prompt_line)
        self.collector.hooks += self.declared.hooks
        self.collector.servers += self.declared.servers
        self._check_across_files()
        self.unread += [
            UnreadPath(self._location(file), "too many commands, references or variables to list")
            for file in self.collector.truncated_files
        ]
        for path, reason in self.unread:
            self.findings.append(
                self._remark_finding(path, 0, FileRemark(rule="not-read", severity=None, excerpt=path, note=reason))
            )
        manifest = self.collector.finish(self._declared_tools(), self.declared.mode)
        self._add_remarks(self.item.main_file, 1, find_undeclared(self.declared, manifest, self.item, self._sends_data))
        if self.contact is not None and all(finding.severity == "info" for finding in self.findings):
            relative, line, remark = self.contact
            self._add_remarks(relative, line, [remark])
        findings = add_fingerprints(self._final_findings(), self.item.path)
        return ExaminedItem(
            item=self.item,
            declared=self.declared,
            manifest=manifest,
            files=tuple(self.files),
            findings=tuple(findings),
            unread=(*self.unread, *self.partly_read),
        )

    def _declared_tools(self) -> tuple[str, ...] | None:
        return None if self.declared.access.mode == "inherit" else self.declared.tools

    def _sends_data(self) -> bool:
        self._find_sends()
        return any(sign.kind == "send" for sign in self.signs)

    def _location(self, relative: str) -> str:
        """The path of an item's file as shown in findings."""
        path = os.path.join(os.path.relpath(self.item.folder, self.root), relative)
        return os.path.normpath(path)

    def _relative(self, location: str) -> str:
        """The path inside the item of a file that a finding shows."""
        return os.path.relpath(os.path.join(self.root, location), self.item.folder)

    def _add_remarks(self, relative: str, line: int, remarks: list[FileRemark]) -> None:
        self.findings += [self._remark_finding(self._location(relative), line, remark) for remark in remarks]

    def _remark_finding(self, file: str, line: int, remark: FileRemark) -> AuditFinding:
        rule = load_rules()[remark.rule]
        excerpt, note = (escape_for_terminal(collapse_whitespace(text)) for text in (remark.excerpt, remark.note))
        severity = remark.severity or rule.severity
        return AuditFinding(
            rule=rule.id,
            severity=severity,
            confidence=rule.confidence,
            file=file,
            line=line,
            excerpt=excerpt[: 2 * MAX_EXCERPT],
            note=note,
        )

    def _examine_file(self, entry: AuditFile) -> None:
        content = read_content(entry)
        remarks = check_content(content)
        self._add_remarks(entry.relative, 0, remarks)
        self.partly_read += [
            UnreadPath(self._location(entry.relative), r.note) for r in remarks if r.rule == "not-read"
        ]
        self.collector.add_content(content)
        acts = entry.executable or content.text is None or _acts(content)
        self.files.append(
            FileRecord(
                path=entry.relative, sha256=content.sha256, size=content.size, executable=entry.executable, acts=acts
            )
        )
        if content.text is None:
            return
        if self.budget.left <= 0:
            self.unread.append(
                UnreadPath(self._location(entry.relative), f"over the audit limit of {TEXT_BUDGET >> 20} MiB of text")
            )
            return
        self.budget.left -= len(content.data)
        settings = read_settings_file(content)
        if settings is not None:
            self.collector.hooks += settings.hooks
            self.collector.servers += settings.servers
            for line, remark in settings.remarks:
                self._add_remarks(entry.relative, line, [remark])
        self._examine_text(AuditedText(content, content.text))

    def _examine_text(self, source: AuditedText) -> None:
        relative = source.content.entry.relative
        addresses, too_many = find_urls(source.text)
        self.collector.add_text(source, addresses)
        if source.content.kind in ("script", "config"):
            self.names_stranger |= any(not is_ordinary_host(address.host) for address in addresses)
            if len(source.text) <= _MAX_SCRIPT:
                mails = find_mail_hosts(source.text)
                self.writes_to_stranger |= any(not is_ordinary_host(host) for _, host in mails)
        elif relative != self.item.main_file:
            self.short_texts.append((source.content, source.text))
        self._note_foreign_host(source, addresses)
        secrets, exhausted = exfiltration.find_secrets(source)
        self._add_signs(source, secrets)
        self.sources.append(source)
        is_read = source.content.kind == "markdown" or not self._is_inert(relative)
        likeness = text_classifier.classify(source.text) if is_read else None
        # Facts of prose take the most time, and hardly any attack resembles the others so little.
        is_ordinary = likeness is not None and text_classifier.is_ordinary(likeness)
        scans = [
            patterns.scan_patterns(source),
            shell_checks.find_pipes_to_shell(source),
            shell_checks.find_evaluated_values(source),
            shell_checks.find_executed_downloads(source),
            shell_checks.find_unpinned_installs(source),
            persistence.find_persistent_writes(source),
            patterns.ScanResult([], []) if is_ordinary else instructions.find_dangerous_instructions(source),
            code_combinations.find_dangerous_code(source),
            joined_strings.find_joined_code(source),
            aliases.find_alias_chains(source),
            hidden_text.find_hidden_characters(source),
            encoded_text.find_encoded_payloads(source),
            check_urls(source, addresses),
        ]
        hits = [hit for scan in scans for hit in scan.hits]
        if len(hits) > _MAX_HITS:
            self.unread.append(
                UnreadPath(self._location(relative), f"more than {_MAX_HITS:,} matches; the rest were not examined")
            )
            hits = hits[:_MAX_HITS]
        hits += (
            hidden_text.find_hidden_instructions(source)
            + hidden_text.find_mixed_words(source)
            + exfiltration.find_leaked_credentials(source, addresses)
            + package_names.find_imitated_packages(source)
        )
        exhausted_rules = {rule for scan in scans for rule in scan.exhausted}
        exhausted_rules |= {"secret-exfiltration"} if exhausted else set()
        exhausted_rules |= {"drop-host"} if too_many else set()
        if exhausted_rules:
            reason = f"too many matches to examine for {', '.join(sorted(exhausted_rules))}"
            self.unread.append(UnreadPath(self._location(relative), reason))
        self._rate_hits(source, hits, likeness)
        self.texts.append((relative, source.text))

    def _note_foreign_host(self, source: AuditedText, addresses: list[FoundUrl]) -> None:
        """The first host that is neither local nor well known, if it is contacted, not only linked to."""
        if self.contact is not None:
            return
        relative = source.content.entry.relative
        is_main = relative == self.item.main_file
        named = [(address.start, address.host) for address in addresses]
        if is_main:
            named += find_mail_hosts(source.text)
        for start, host in named:
            if is_ordinary_host(host):
                continue
            role, _ = source.role_at(start)
            row = source.line_text_at(start)[1]
            is_link = source.text[max(0, start - 2) : start] in ("](", "]<")
            if role in ("command", "script", "config", "shell") or _CONTACTS.search(row) or (is_main and not is_link):
                remark = FileRemark(rule="foreign-host", severity=None, excerpt=row[:MAX_EXCERPT], note=host)
                self.contact = relative, source.line_at(start), remark
                return

    def _add_signs(self, source: AuditedText, signs: list[exfiltration.ExfiltrationSign]) -> None:
        self.signs += signs
        for sign in signs:
            self.sign_lines.setdefault(sign.file, []).append(
                (sign.start, source.line_text_at(sign.start)[1], source.line_at(sign.start))
            )

    def _find_sends(self, files: set[str] | None = None) -> None:
        """Searches all texts or these files, once; only items with a secret or a promise need it."""
        searched = [one for one in self.sources if files is None or one.content.entry.relative in files]
        for source in searched:
            sends, exhausted = exfiltration.find_sends(source)
            self._add_signs(source, sends)
            if exhausted:
                reason = "too many matches to examine for secret-exfiltration"
                self.unread.append(UnreadPath(self._location(source.content.entry.relative), reason))
        self.sources = [] if files is None else [one for one in self.sources if one not in searched]

    def _rate_hits(
        self, source: AuditedText, hits: list[patterns.RuleHit], likeness: text_classifier.Likeness | None
    ) -> None:
        suppressions = find_suppressions(source)
        file = self._location(source.content.entry.relative)
        rated = [finding for hit in [*hits, *suppressions.hits] if (finding := rate_hit(source, hit, file)) is not None]
        findings = _distinct([self._adjust_for_example(finding) for finding in rated])
        if likeness is not None and not self._is_inert(source.content.entry.relative):
            remarks = self.resemblances.add(source, file, likeness)
            findings += [self._remark_finding(file, source.line_at(offset), remark) for offset, remark in remarks]
        findings, unused = apply_suppressions(findings, suppressions.valid)
        self.findings += findings
        for suppression in unused:
            hit = patterns.RuleHit(
                rule="suppression-unused",
                start=suppression.start,
                end=suppression.start,
                severity=None,
                confidence=None,
                note=suppression.rule,
                is_final=True,
            )
            finding = rate_hit(source, hit, file)
            self.findings += [finding.finding] if finding else []

    def _is_own_host(self, finding: AuditFinding) -> bool:
        """Whether what is fetched comes from the host that the item or its package is named after."""
        hosts = foreign_hosts(with_scheme(finding.excerpt))
        if not hosts:
            return False
        names = name_words(self.declared.name) | names_above(self.item.folder, self.root)
        return all(is_own_host(host, names) for host in hosts)

    def _adjust_for_example(self, rated: RatedFinding) -> AuditFinding:
        """Security guides and references quote commands; unless the text says to run one, that is not a use of it."""
        finding, context = rated.finding, rated.context
        if finding.severity == "high" and finding.rule in _OWN_RULES and self._is_own_host(finding):
            return msgspec.structs.replace(
                finding, severity="medium", confidence="low", note=finding.note or "from the host of its own name"
            )
        relative = self._relative(finding.file)
        is_quotable = (
            context.role in ("shell", "code", "inline", "prose", "table")
            or (context.role == "config" and finding.rule in TEXT_RULES)
            or (context.role == "comment" and relative != self.item.main_file)
        )
        is_example = context.role in ("shell", "code", "inline", "table")
        if (
            finding.severity == "high"
            and (
                self.is_about_security
                or _ABOUT_SECURITY.search(relative)
                or (is_example and relative != self.item.main_file)
            )
            and is_quotable
            and finding.rule != "hidden-characters"
            and (
                (self.is_about_security and rated.is_quoted)
                or (not instructs_to_act(context) and (is_example or not rated.is_order))
            )
        ):
            return msgspec.structs.replace(
                finding, severity="medium", confidence="low", note=finding.note or "an example, not an instruction"
            )
        return finding

    def _check_hook_programs(self) -> None:
        """A program that a hook starts gets every prompt and every call of a tool, and may send it away."""
        commands = " ".join(self.collector.hooks)
        if not commands:
            return
        names = name_words(self.declared.name) | names_above(self.item.folder, self.root)
        for source in self.sources:
            name = source.content.name
            if source.content.kind != "script" or name not in commands or not _READS_INPUT.search(source.text):
                continue
            sends = [sign for sign in exfiltration.find_sends(source)[0] if sign.foreign]
            if sends and not all(is_own_host(host, names) for host in foreign_hosts(source.text) or ("",)):
                relative = source.content.entry.relative
                begin, row = source.line_text_at(sends[0].start)
                note = "sends what the agent is asked and does"
                remark = FileRemark(rule="declared-hooks", severity="high", excerpt=row[:MAX_EXCERPT], note=note)
                self._add_remarks(relative, source.line_at(begin), [remark])

    def _check_across_files(self) -> None:
        """Checks that need all files of the item."""
        self._check_hook_programs()
        is_small = len(self.item.files) <= _FEW_FILES
        with_secrets = {sign.file for sign in self.signs if sign.kind == "secret"}
        if with_secrets:  # files of a large item are not paired
            self._find_sends(None if is_small else with_secrets)
        pairs = exfiltration.pair_signs(self.signs, self.names_stranger and is_small, is_small)
        for pair in pairs:
            row, line = self._sign_line(pair.secret)
            same_file = pair.send.file == pair.secret.file
            location = (
                f"line {self._sign_line(pair.send)[1]}"
                if same_file
                else f"{pair.send.file}:{self._sign_line(pair.send)[1]}"
            )
            note = f"{pair.secret.text}; sent: {location}"
            is_example = not pair.secret.runs and (self.is_about_security or pair.secret.file != self.item.main_file)
            severity = "medium" if is_example else pair.severity
            self._add_remarks(
                pair.secret.file,
                line,
                [FileRemark(rule="secret-exfiltration", severity=severity, excerpt=row, note=note)],
            )
        paired = {pair.secret.file for pair in pairs}
        for sign in self.signs:
            if sign.kind == "secret" and sign.strength == "strong" and sign.file not in paired:
                row, line = self._sign_line(sign)
                self._add_remarks(
                    sign.file, line, [FileRemark(rule="secret-access", severity=None, excerpt=row, note=sign.text)]
                )
        for file, hit, excerpt in instructions.find_split_instructions(self.short_texts):
            self._add_remarks(file, 1, [FileRemark(rule=hit.rule, severity="high", excerpt=excerpt, note=hit.note)])
        for reference in self.collector.references:
            if reference.leaves:
                secret = exfiltration.is_secret_target(reference.target)
                remark = FileRemark(
                    rule="reference-outside", severity="high" if secret else None, excerpt=f"@{reference.target}"
                )
                self._add_remarks(reference.file, reference.line, [remark])

    def _sign_line(self, sign: exfiltration.ExfiltrationSign) -> tuple[str, int]:
        for start, row, line in self.sign_lines.get(sign.file, []):
            if start == sign.start:
                return row[:MAX_EXCERPT], line
        return sign.text, 0

    def _final_findings(self) -> list[AuditFinding]:
        """Downgrades findings in unreferenced fixtures; limits how many of one rule are listed per file."""
        counts: dict[tuple[str, str], int] = {}
        kept: list[AuditFinding] = []
        # Two detectors may report the same line.
        distinct = {
            (f.rule, f.file, f.line, f.note or f.excerpt): f
            for f in sorted(self.findings, key=finding_sort_key, reverse=True)
        }
        for finding in sorted(distinct.values(), key=finding_sort_key):
            key = (finding.rule, finding.file)
            counts[key] = counts.get(key, 0) + 1
            if counts[key] <= _MAX_PER_RULE:
                kept.append(self._adjust_for_fixture(finding))
        more = {key: count - _MAX_PER_RULE for key, count in counts.items() if count > _MAX_PER_RULE}
        kept = self.resemblances.rate(
            self._rate_together(kept),
            together=len(self.item.files) <= _FEW_FILES,
            about_security=self.is_about_security,
            counts=lambda one: not one.suppressed and not self._is_inert(self._relative(one.file)),
        )
        last = {(finding.rule, finding.file): at for at, finding in enumerate(kept)}
        for key, count in more.items():
            kept[last[key]] = msgspec.structs.replace(kept[last[key]], note=f"and {count} more in this file")
        return sorted(kept, key=finding_sort_key)

    def _rate_together(self, findings: list[AuditFinding]) -> list[AuditFinding]:
        """What is ordinary on its own is part of an attack in an item that attacks otherwise; so is hiding."""
        active = [
            f
            for f in findings
            if f.severity in ("high", "medium")
            and (f.confidence != "low" or f.note.endswith(ALONE))
            and not self._is_inert(self._relative(f.file))
        ]
        is_small = len(self.item.files) <= _FEW_FILES
        hidden = {f.rule for f in findings if f.rule in _HIDDEN and not self._is_inert(self._relative(f.file))}
        if self.names_stranger or self.writes_to_stranger:
            hidden.add("foreign-host")

        deletions = {(f.file, f.line) for f in active if f.rule == "destructive-command" and f.note.endswith(ALONE)}

        def reason(finding: AuditFinding) -> str:
            if finding.rule == "destructive-command" and len(deletions) > 1 and not self.is_about_security:
                return "other deletions of everything"
            # Files of a large item, such as a plugin, need not have to do with each other.
            beside = [f for f in active if is_small or f.file == finding.file]
            acts = {f.rule for f in beside if f.rule in _WORTH_HIDING and not f.note.endswith(ALONE)}
            if finding.note.endswith(ALONE):
                others = {f.rule for f in beside if f.rule in _DARES or (f.rule in acts and f.severity == "high")}
            else:
                others = acts | (hidden if is_small else set[str]()) if finding.rule in _HIDES else set[str]()
            return min(others - {finding.rule}, default="")

        return [
            msgspec.structs.replace(f, severity="high", note=f"the item also has {why}")
            if f in active and f.severity == "medium" and (why := reason(f))
            else f
            for f in findings
        ]

    def _is_inert(self, relative: str) -> bool:
        """Whether neither an agent nor a program reads the file on its own. Documents of a skill are instructions."""
        kind, path = self.item.kind, relative
        if kind == "agent" and not self.declared.name:
            path = self.item.path  # a page that was taken for an agent
        elif relative == self.item.main_file:
            return _FIXTURES.search(relative) is not None
        places = [_FIXTURES, _DOCUMENTS, _BUNDLED] + ([] if kind == "skill" else [_MANUALS])
        return any(place.search(path) for place in places)

    def _is_started(self, name: str) -> bool:
        """Whether another file of the item runs a file of that name or tells the agent to follow it."""
        return any(
            match["name"] == name
            for file, text in self.texts
            if os.path.basename(file) != name and name in text
            for match in _RUNS_FILE.finditer(text)
        )

    def _adjust_for_fixture(self, finding: AuditFinding) -> AuditFinding:
        relative = self._relative(finding.file)
        if finding.severity != "high" or not self._is_inert(relative) or finding.rule == "hidden-characters":
            return finding
        if self._is_started(os.path.basename(relative)):
            return finding
        return msgspec.structs.replace(
            finding,
            severity=cap_severity("high", "medium"),
            confidence="low",
            note=finding.note or "in a test, a fixture or documentation that nothing runs",
        )


def _acts(content: FileContent) -> bool:
    if content.kind == "markdown":
        return False  # the manifest covers what prose can do
    return active_content(content.entry.relative, content.data) is not None


def _distinct(findings: list[AuditFinding]) -> list[AuditFinding]:
    """Keeps the worst finding of each rule per line."""
    best: dict[tuple[str, int], AuditFinding] = {}
    for finding in sorted(findings, key=finding_sort_key):
        best.setdefault((finding.rule, finding.line), finding)
    return sorted(best.values(), key=finding_sort_key)
