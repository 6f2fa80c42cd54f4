"""Turns a hit into a finding: how severe it is in its context, and its excerpt.

Less severe if a text only warns about it or quotes it, or if code only contains it as a string. Used by
examine_item; uses warning_context and printed_text.
"""

import re
from typing import Final, Literal, NamedTuple

import msgspec

from kitbag.audit.expressions import load_expression, load_words
from kitbag.audit.file_types import file_extension
from kitbag.audit.findings import MAX_EXCERPT, AuditFinding, Confidence, Severity, cap_severity
from kitbag.audit.patterns import RuleHit, command_window
from kitbag.audit.regions import AuditedText, TextContext
from kitbag.audit.rules import load_limits_alone, load_rules
from kitbag.audit.urls import names_only_known_hosts, only_known_installers
from kitbag.audit.warning_context import ORDERS, instructs_to_act, is_warned_about
from kitbag.text.hidden_characters import collapse_whitespace, escape_for_terminal

_LOOKBACK: Final = 3000
_PRINTER = re.compile(
    r"(?:^|[;&|({]|\bthen|\bdo|\belse|\bif|!)\s*(?:echo|printf|e?grep|rg|ack|\w*(?:log|warn|err|info|fail|usage|finding|report|msg|say|alert|print|check|grep)\w*)"
    r"\s[^;&|\"']*(?:\"[^\"]*\"\s*|'[^']*'\s*)*[^;&|\"']*$",
    re.IGNORECASE,
)
_HEREDOC = re.compile(r"^(?P<command>[^\n]*)<<-?\s*[\"']?(?P<end>\w+)[\"']?(?P<rest>[^\n]*)$", re.MULTILINE)


def is_printed(source: AuditedText, offset: int) -> bool:
    begin, row = source.line_text_at(offset)
    column = offset - begin
    quote = _open_quote(row[:column])
    if quote >= 0 and row[quote] == "'" and (called := _CALLED.match(row)) and _only_searches(source, called[1]):
        return True
    if quote >= 0 and _PRINTER.search(row[max(0, quote - 400) : quote]):
        # `echo "..." | sh` does more than print.
        closing = row.find(row[quote], column)
        return closing >= 0 and "|" not in row[closing:] and not row[closing:].lstrip("\"'").lstrip().startswith(">")
    return _in_help_text(source, offset, begin)


def _only_searches(source: AuditedText, name: str) -> bool:
    """Whether a shell function of the text does nothing with its arguments but search for them or print them."""
    if f"{name}()" not in source.text and f"{name} ()" not in source.text:
        return False
    opens = rf"^\s*(?:function\s+)?{re.escape(name)}\s*\(\)\s*\{{(?P<body>[^}}]{{1,400}})\}}"
    defined = re.search(opens, source.text, re.MULTILINE)
    body = defined["body"] if defined else ""
    return _SEARCHES.search(body) is not None and _HANDS_ON.search(body) is None


def _open_quote(before: str) -> int:
    """The offset of the quote that is open at the end; -1 if none is."""
    opened, at = -1, 0
    while at < len(before):
        char = before[at]
        if char == "\\" and (opened < 0 or before[opened] == '"'):
            at += 1
        elif char in "\"'":
            if opened < 0:
                opened = at
            elif before[opened] == char:
                opened = -1
        at += 1
    return opened


def _in_help_text(source: AuditedText, offset: int, begin: int) -> bool:
    """Inside a `cat <<EOF` that only prints."""
    before = source.text[max(0, begin - _LOOKBACK) : begin]
    opened = list(_HEREDOC.finditer(before))
    last = opened[-1] if opened else None
    if last is None or re.search(rf"^\s*{re.escape(last['end'])}\s*$", before[last.end() :], re.MULTILINE):
        return False
    line = last["command"] + last["rest"]
    return (
        last["command"].strip() == "cat"
        and "|" not in line
        and not re.search(r">\s*(?!&)", line)
        and "$(" not in source.text[begin:offset]
    )


_CALLED = re.compile(r"\s*(\w+)\s")
_SEARCHES = re.compile(r"\b(?:[ef]?grep|rg|ag|ack)\s")
_HANDS_ON = re.compile(r"\b(?:eval|source|xargs|(?:ba|z|da|k)?sh|python\d?|perl|node)\b|(?:^|[;&|{\n])\s*[\"']?\$")
TEXT_RULES: Final = frozenset(
    ("concealment", "instruction-override", "unasked-action", "remote-instructions", "hidden-comment")
)
_SHELL_RULES: Final = frozenset(load_words("severity.shell_rules"))
_RUNS_TEXT = load_expression("severity.runs_text")
_RUN_WORDS: Final = load_words("severity.runs_text")
_EXPRESSION = re.compile(r"\\s|\\b|\\\||\.\*|\[\^|\(\?:|re\.compile|\\S|\.\+|regex", re.IGNORECASE)
_NEGATED = re.compile(
    r"\b(?:never|not|don'?t|don’t|cannot|can'?t|mustn'?t|shouldn'?t|refuse\w*|rather than|instead of)\b[^.!?]*$",
    re.IGNORECASE,
)
_DESCRIBED = re.compile(
    r"\b(?:instructions?|prompts?|attempts?|texts?|contents?|comments?|messages?|requests?|phrases?|patterns?|anything|skills?|files?|attacks?|pages?|lines?)"
    r"\s+(?:that|which|to|like|such\s+as|(?:asking|telling|instructing|trying|designed)\s+(?:\w+\s+){0,3}?to)\s+$",
    re.IGNORECASE,
)
"""`Instructions that override …`: the text mentions instructions, it gives none."""
_STARTS_NEGATED = re.compile(r"do\s+not|don|never|must|avoid|refrain|no\s", re.IGNORECASE)
_RUNS_ITSELF = re.compile(
    r"\b(?:exec|eval)\s*\(|\$\w+\s*\(|new\s+Function|\batob\(|vm\.run|\bfork\(|dup2|pty\.spawn|rmtree|b64decode|_0x|\b(?:source|include|dofile)\s*\("
)
_DATA_FORMATS: Final = frozenset(load_words("severity.data_formats"))
_LISTED_AS_BAD = re.compile(
    r"\b\w*(?:dangerous|blocked|denied|deny|forbidden|blacklist|denylist|blocklist|suspicious|malicious|banned|pattern)"
    r"\w*\s*(?::[^=\n]{1,40})?[:=]",
    re.IGNORECASE,
)
_RULE_KEYS = re.compile(r"^\s*(logsource|detection|languages|message):", re.MULTILINE)
_DENIED = re.compile(r"[\"'](?:deny|denied|blocked|forbidden)\w*[\"']\s*:\s*\[[^\]]*$", re.IGNORECASE)
_PLACEHOLDER_URL = re.compile(
    r"\bcurl\s+(?:-\S+\s+)*\.\.\./|(?:https?://|\bcurl\s+)(?:[<{\[$]|(?:some|mystery|random|unknown|untrusted|sketchy|malicious)[-.]?\w*\.\w|(?:your|my)[-_.]?\w|[\w.-]*\byour[-_]?\w)",
    re.IGNORECASE,
)


_TESTS_PORT = re.compile(
    r"(?:^|[\"'({;&|]|\b(?:do|then|if|!|until|while))\s*(?:(?:echo|:|true|cat\s*<\s*/dev/null)\s*)?(?:1?>|<)\s*"
    r"/dev/(?:tcp|udp)/[^\s/]+/[^\s/\"'();&|]+\s*(?:[\"')};]|&&|\|\||[12&]*>|$)",
    re.MULTILINE,
)
"""`echo > /dev/tcp/HOST/PORT`: nothing is sent, and nothing that is received is read."""
_GIVEN_TO_PROGRAM = re.compile(
    r"\becho\s+(?:-n\s+)?[\"']?[\w+/=-]{20,}[\"']?\s*\|\s*(?:python[\d.]*|node|ruby|perl|php)\s+[\w./-]*\w\.\w{1,4}\s*(?:[`|)]|$)"
)
_STARTS_MINER = re.compile(
    r"xmrig\S*\s+-|stratum\+\w+://\w|minerd\s+-|docker\s+run\b|--algo|--donate-level|\./\S*xmrig", re.IGNORECASE
)


class RatedFinding(NamedTuple):
    finding: AuditFinding
    context: TextContext
    offset: int
    is_quoted: bool
    """In a block quotation, or between quotation marks."""
    is_order: bool
    """Several statements of a paragraph make it an attack, not a word that a guide has to mention."""


def rate_hit(source: AuditedText, hit: RuleHit, file: str) -> RatedFinding | None:
    """None if the text says the opposite of what the rule is about."""
    rule = load_rules()[hit.rule]
    context = source.context_at(hit.start)
    begin, _ = source.line_text_at(hit.start)
    severity: Severity = hit.severity or rule.severity
    confidence: Confidence = hit.confidence or rule.confidence
    note = hit.note
    if hit.rule == "safety-off" and context.role not in ("command", "config") and not _is_attack(source, hit):
        severity = cap_severity(severity, "medium")  # ordinary in programs that start agents
    runs = hit.is_compound or context.role == "command"
    if severity == "high" and not runs and hit.rule in load_limits_alone() and not _is_attack(source, hit):
        severity, note = load_limits_alone()[hit.rule], note or ALONE
    if not hit.is_final:
        mitigation = _find_mitigation(source, hit, context, hit.start - begin)
        if mitigation == "none":
            return None
        if mitigation:
            limit, reason = mitigation
            confidence = "low"
            if cap_severity(severity, limit) != severity:
                severity, note = cap_severity(severity, limit), "; ".join(filter(None, (note, reason)))
        elif context.role == "comment" and hit.rule in TEXT_RULES:
            hit, severity, note = (
                msgspec.structs.replace(hit, rule="hidden-comment"),
                "high",
                f"{hit.rule}, in a comment",
            )
    excerpt = make_excerpt(context.line_text, hit.start - begin)
    matched_text = collapse_whitespace(source.text[hit.start : min(hit.end, hit.start + 1000)])
    finding = AuditFinding(
        rule=hit.rule,
        severity=severity,
        confidence=confidence,
        file=file,
        line=context.line,
        excerpt=excerpt,
        note=escape_for_terminal(collapse_whitespace(note)),
        fingerprint=matched_text,
    )
    line, column = context.line_text, hit.start - begin
    is_quoted = line.lstrip().startswith(">") or _is_quoted(line[:column].replace("`", ""))
    is_order = hit.is_compound and hit.rule in TEXT_RULES and context.role == "prose"
    return RatedFinding(finding, context, hit.start, is_quoted, is_order)


ALONE: Final = "ordinary on its own"
_ATTACKS = load_expression("severity.attacks")
_ATTACK_RANGE: Final = 400


def _is_attack(source: AuditedText, hit: RuleHit) -> bool:
    """Whether what is written, set or contacted there acts against the user."""
    if hit.rule == "safety-off":
        nearby = command_window(source, hit.start)[1]  # what else a program does is not done by that agent
    else:
        block = source.region_at(hit.start)  # other blocks of a document are other steps
        low, high = (block.start, block.end) if block else (0, len(source.text))
        nearby = source.text[max(low, hit.start - 250) : min(high, hit.end + _ATTACK_RANGE)]
    return any(not names_only_known_hosts(found[0]) for found in _ATTACKS.finditer(nearby))


_Mitigation = tuple[Severity, str] | Literal["", "none"]


def _find_mitigation(source: AuditedText, hit: RuleHit, context: TextContext, column: int) -> _Mitigation:
    """The maximum severity in this context and why; "" if nothing mitigates it."""
    line = context.line_text
    if hit.rule in TEXT_RULES and (mitigation := _mitigate_instruction(source, hit, context, column)):
        return mitigation
    if is_warned_about(context, column):
        return "low", "described as harmful"
    if hit.rule in ("pipe-to-shell", "download-and-run") and (
        mitigation := _mitigate_fetch(source, hit, context, column)
    ):
        return mitigation
    if hit.rule == "encoded-payload" and _GIVEN_TO_PROGRAM.search(line):
        return "medium", "given to a program, which is audited itself"
    if hit.rule == "obfuscated-code" and context.role == "inline" and not instructs_to_act(context):
        return "medium", "shown, not run"
    if context.role == "config" and not hit.is_compound and _is_listing(line) and _is_detection_rule(source):
        return "medium", "what a detection rule searches for"
    if hit.rule == "reverse-shell" and not hit.is_compound and _TESTS_PORT.search(line):
        others = _TESTS_PORT.sub(" ", line)
        return "" if "/dev/tcp/" in others or "/dev/udp/" in others else ("low", "only tests a port")
    if hit.rule == "safety-off" and context.role in ("inline", "prose", "table", "frontmatter"):
        if instructs_to_act(context):
            return "" if hit.is_compound or _is_attack(source, hit) else ("medium", "mentioned")
        return "low", "mentioned"
    if hit.rule == "destructive-command" and context.role in ("inline", "prose", "table") and not hit.is_compound:
        return "medium", ALONE
    if hit.rule == "miner" and context.role in ("inline", "prose", "table"):
        if not _STARTS_MINER.search(line):
            return "low", "mentioned"
        if not instructs_to_act(context):
            return "medium", "mentioned"
    if hit.rule == "agent-config-write" and context.role == "frontmatter":
        return "medium", "described"
    if hit.rule in _SHELL_RULES and _is_listed_as_bad(source, hit, line[:column]):
        return "low", "in a list of what is forbidden"
    if hit.rule in _SHELL_RULES and context.language == "shell" and is_printed(source, hit.start):
        return "low", "printed or searched for, not run"
    if (
        context.role in ("script", "code")
        and not hit.is_compound
        and hit.rule in _SHELL_RULES
        and context.language not in ("shell", "powershell", "")
    ):
        return _mitigate_text_in_code(source, hit)
    is_data = file_extension(source.content.name) in _DATA_FORMATS
    is_value = context.role == "config" and is_data and not hit.is_compound
    if is_value and hit.rule in _SHELL_RULES and _is_listing(line):
        return "medium", "in a data file"
    return ""


def _mitigate_instruction(source: AuditedText, hit: RuleHit, context: TextContext, column: int) -> _Mitigation:
    """Instructions that a text forbids, mentions or quotes."""
    if not _STARTS_NEGATED.match(source.text, hit.start) and _NEGATED.search(_same_clause(source, hit.start)):
        return ("low", "described as harmful") if hit.rule == "instruction-override" else "none"
    if _DESCRIBED.search(_same_clause(source, hit.start)):
        return "medium", "mentions instructions"
    if context.role == "script-comment":
        return "medium", "in a script comment"
    if context.role not in ("comment", "config") and (_is_quoted(context.line_text[:column]) or context.role == "code"):
        return ("low" if is_warned_about(context, column) else "medium"), "quoted"
    return ""


def _mitigate_fetch(source: AuditedText, hit: RuleHit, context: TextContext, column: int) -> _Mitigation:
    """What is fetched from a well-known host, or from a placeholder."""
    command = command_window(source, hit.start)[1]
    is_cell = context.role == "table"
    if hit.rule == "pipe-to-shell":
        if only_known_installers(_cell_at(context.line_text, column) if is_cell else command):
            return "medium", "installer of a well-known project, but its content can change at any time"
        if names_only_known_hosts(command):
            return "medium", "from a well-known host, but its content can change at any time"
    return ("medium", "placeholder host") if _PLACEHOLDER_URL.search(command) else ""


def _is_detection_rule(source: AuditedText) -> bool:
    """Whether a data file is one that a scanner reads: Sigma, Semgrep."""
    found = {match[1] for match in _RULE_KEYS.finditer(source.text)}
    return found >= {"logsource", "detection"} or found >= {"languages", "message"}


def _is_listed_as_bad(source: AuditedText, hit: RuleHit, before: str) -> bool:
    """In a string such as `BLOCKED="rm -rf /"` or `"deny": ["Bash(rm -rf /)"]`, which nothing runs."""
    quote = _open_quote(before)
    if quote < 0 or "$(" in before:
        return False
    if _LISTED_AS_BAD.search(before[:quote]) and not _RUNS_TEXT.search(before):
        return True
    return _DENIED.search(source.text[max(0, hit.start - _LOOKBACK) : hit.start]) is not None


def _is_quoted(before: str) -> bool:
    """Whether a quotation is open at the end of the text."""
    if any(before.count(mark) % 2 for mark in '`"'):
        return True
    pairs = ("‘’", "«»", "„“") if "„" in before else ("‘’", "«»", "“”")
    if any(before.count(left) > before.count(right) for left, right in pairs):
        return True
    return re.search(r"(?:^|[\s(:,])'[^']{0,60}$", before) is not None


def _mitigate_text_in_code(source: AuditedText, hit: RuleHit) -> _Mitigation:
    """A command line inside a program is a string until something runs it."""
    start = max(0, hit.start - 300)
    nearby = source.text[start : hit.end + 300]
    runs_itself = _RUNS_ITSELF.search(source.text[hit.start : hit.end])
    if _EXPRESSION.search(source.text[hit.start if runs_itself else max(0, hit.start - 40) : hit.end]):
        return "low", "in a search pattern"
    if hit.rule in ("startup-write", "agent-config-write", "git-hook-write", "drop-host"):
        return ""
    line = source.line_text_at(hit.start)[1]
    if _LISTED_AS_BAD.search(line) and not _RUNS_TEXT.search(line):
        return "low", "in a list of what is forbidden"
    if runs_itself:
        return ""
    before = source.text[hit.start - 200 if hit.start > 200 else 0 : hit.start].rpartition("\n")[2]
    quote = _open_quote(before)
    if quote >= 0 and _NEGATED.search(before[quote:]) and not any(word in line.lower() for word in _RUN_WORDS):
        return "low", "described as harmful"
    if _RUNS_TEXT.search(nearby):
        return ""
    if any(source.has(word) for word in _RUN_WORDS):
        return "medium", "string in a program"
    return "low", "string in a program that runs no commands"


def _cell_at(row: str, column: int) -> str:
    """The cell of a table row around a column; `\\|` does not end it."""
    ends = [match.start() for match in re.finditer(r"(?<!\\)\|", row)]
    begin = max((at for at in ends if at < column), default=0)
    return row[begin : min((at for at in ends if at > column), default=len(row))]


def _is_listing(row: str) -> bool:
    """Not the value of a key that is run."""
    return (
        re.search(
            r"\"(?:\w*(?:[cC]ommand|[sS]cript|[hH]ook|[iI]nstall)s?|args|run|exec|prepare|start|test|build|cmd|statusLine|program|entry[pP]oint)\""
            r"|^\s*-?\s*(?:\w*command|run|\w*script|shell|exec\w*|cmd|entry(?:point)?|program|\w*_file|line(?:infile)?)\s*[:=]"
            r"|\bprogram\s+'|^\s*(?:\.(?:shell|system)|\\!)\s|\bxp_cmdshell\b|<string>|\blineinfile\b|\bauthorized_key\b",
            row,
            re.IGNORECASE,
        )
        is None
    )


def _same_clause(source: AuditedText, start: int) -> str:
    """The clause before the hit: all of `Never delete anything`, but not `do not worry` of `do not worry, and run`."""
    before = ORDERS.sub(" ", source.text[max(0, start - 120) : start])
    return re.split(r"[.!?,;:]\s|\n\s*\n|\n\s*[-*|#\d]|\b(?:and|then|but|just)\b", before)[-1]


def make_excerpt(line: str, column: int) -> str:
    """One line around a position, safe to show."""
    start = max(0, column - 50) if len(line) > MAX_EXCERPT else 0
    part = line[start : start + 4 * MAX_EXCERPT]
    excerpt = escape_for_terminal(collapse_whitespace(part))
    if len(excerpt) > MAX_EXCERPT:
        excerpt = excerpt[: MAX_EXCERPT - 1] + "…"
    return ("…" if start else "") + excerpt
