"""Detects what reaches an interpreter: pipelines into a shell, evaluated values, executed downloads, unpinned installs.

Used by examine_item; uses patterns.
"""

import itertools
import re
from typing import Final

from kitbag.audit.expressions import load_expression, load_words
from kitbag.audit.findings import Severity
from kitbag.audit.patterns import MAX_EXAMINED, LineMatch, LineMatches, RuleHit, ScanResult, command_window, deobfuscate
from kitbag.audit.regions import AuditedText
from kitbag.audit.urls import foreign_hosts

# The program at the end of a pipeline, after wrappers such as `sudo -E env A=1`.
_SINK = load_expression("shell_checks.sink")
_SHELL = re.compile(r"(?:ba|da|z|k|a|fi|c|tc)?sh")
_FETCH = load_expression("shell_checks.fetch")
_DECODE = load_expression("shell_checks.decode")
_DRAINED = re.compile(r"\$\(\s*cat|\bstdin\b|/dev/stdin|\{\}")
_SOMEWHERE = re.compile(r"://|\$[\w({]|\w\.\w{2,}/|\w\.(?:sh|py|com|io|dev|org|net|invalid|test)\b")
_NAMED_FILE = re.compile(r"\s*(?:-[\w-]+\s+)*[\w./~$\"'-]*\w\.\w+")
_ROW = re.compile(r"[^\n]+")
_DISGUISES: Final = ("''", '""', "\\s", "\\b", "\\c", "\\w")
_SEPARATOR = re.compile(r";|&&|\|\|")


def find_pipes_to_shell(source: AuditedText) -> ScanResult:
    """`curl ... | sh` and `... | base64 -d | sh`, of any length and after any wrapper."""
    hits: list[RuleHit] = []
    examined = 0
    if "|" not in source.text:
        return ScanResult(hits, [])
    for sink in _SINK.finditer(source.text):
        if not _reads_code(sink):
            continue
        begin, window = command_window(source, sink.start())
        if source.role_at(sink.start())[0] in ("inline", "table"):
            # Other code spans of the line are other commands.
            opened = window.rfind("`", 0, sink.start() - begin) + 1
            begin, window = begin + opened, window[opened:]
        examined += len(window) + 64
        if examined > MAX_EXAMINED:
            return ScanResult(hits, ["pipe-to-shell"])
        hits += _check_pipeline(source, sink.start(), sink.end(), _pipeline_before(window[: sink.start() - begin]))
    disguised = LineMatches(source, _ROW, _DISGUISES)
    for start, end, row in disguised.found:
        if "|" not in row[0]:
            continue
        plain = deobfuscate(row[0])
        if plain != row[0] and (sink := _SINK.search(plain)) is not None and _reads_code(sink):
            hits += _check_pipeline(source, start, end, _pipeline_before(plain[: sink.start()]))
    return ScanResult(hits, ["pipe-to-shell"] if disguised.exhausted else [])


def pipes_into_shell(command: str) -> bool:
    """Whether a command line feeds fetched or decoded text to an interpreter."""
    return any(
        _reads_code(sink)
        and (_FETCH.search(before := _pipeline_before(command[: sink.start()])) or _DECODE.search(before))
        for sink in _SINK.finditer(command.replace('"$SHELL"', "sh").replace("$SHELL", "sh"))
    )


def _check_pipeline(source: AuditedText, start: int, end: int, left: str) -> list[RuleHit]:
    left = left.replace("\\n", "\n")  # in a string of a program
    plain = deobfuscate(left)
    decodes = _DECODE.search(left) or _DECODE.search(plain)
    if not decodes and not _FETCH.search(plain):
        return []
    rule = "decode-to-shell" if decodes else "pipe-to-shell"
    if not _SOMEWHERE.search(left) and rule == "pipe-to-shell":
        note = "mentioned without a URL to fetch"
        return [RuleHit(rule=rule, start=start, end=end, severity="low", confidence="low", note=note, is_final=True)]
    return [RuleHit(rule=rule, start=start, end=end)]


def _reads_code(sink: "re.Match[str]") -> bool:
    """Whether the program runs what it reads from the pipe, instead of treating it as data."""
    program, rest = sink["program"], sink["rest"].strip()
    if program in ("source", "."):
        return "/dev/stdin" in rest or rest == "-" or (program == "source" and not rest)  # fish
    if "xargs" in sink["wrap"]:
        return rest.startswith("-c") or not rest
    if _SHELL.fullmatch(program):
        if rest.startswith("-c"):
            after = sink.end("program")
            return _DRAINED.search(sink.string[after : after + 80]) is not None
        return rest.startswith("-s") or " -s" in rest or not _NAMED_FILE.match(rest)
    return rest in ("", "-") or rest.startswith(("- ", "/dev/stdin")) or (rest[:2] in ("-c", "-e") and "stdin" in rest)


def _pipeline_before(before: str) -> str:
    """The pipeline up to the sink, including a group that feeds it."""
    if before.rstrip().endswith(("}", ")")):
        return before
    return _SEPARATOR.split(before)[-1]


# --- Fetched or decoded values that are evaluated later ---------------------------------------------------------------

_FETCHED = load_expression("shell_checks.fetched")
_FETCH_WORDS: Final = load_words("shell_checks.fetch_words")
_EVALUATED = load_expression("shell_checks.evaluated")
_ASSIGNED = re.compile(
    r"^[ \t]*(?:export |local |const |let |var |my )?\$?(?P<name>[A-Za-z_]\w{0,40}) ?:?=(?![=>]) ?"
    r"(?P<value>[^\n]{1,200})",
    re.MULTILINE,
)
_UNPACKED_NAMES = re.compile(r"\b(?:const|let|var)\s*[{\[]([^}\]=\n]{1,120})[}\]]\s*=\s*([^\n]{1,200})")
_NAME = re.compile(r"(?<![\w.\"'])[A-Za-z_]\w{0,40}(?!\w|\s*=[^=])")
_FIRST_NAME = re.compile(r"[\s\"'{(\[$&]{0,4}([A-Za-z_]\w{0,40})\b(?![\"']\])")
_EVALUATE_WORDS: Final = load_words("shell_checks.evaluate_words")
_IS_DECODED = re.compile(
    r"64|32|85|hex|atob|decompress|marshal|xxd|openssl|codecs|charcode|gzinflate|\.\w+[\"']", re.IGNORECASE
)
_MAX_MATCHES: Final = 500
_MAX_DERIVED: Final = 60
_TO_SHELL = re.compile(r"\|\s*(?:sudo\s+)?(?:ba|z|da|k)?sh\b")


def find_evaluated_values(source: AuditedText) -> ScanResult:
    """`code = requests.get(url).text` and later `exec(code)`, in any language, also through other names."""
    hits: list[RuleHit] = []
    fetched = LineMatches(source, _FETCHED, _FETCH_WORDS)
    if not fetched.found:
        return ScanResult(hits, ["pipe-to-shell"] if fetched.exhausted else [])
    evaluated = LineMatches(source, _EVALUATED, _EVALUATE_WORDS)
    decoded: dict[str, bool] = {}
    for _, _, match in fetched.found[:_MAX_MATCHES]:
        decoded.setdefault(match["name"], _IS_DECODED.search(match["value"]) is not None)
    _add_derived(source, decoded)
    for start, end, match in evaluated.found[:_MAX_MATCHES]:
        name = _evaluated_name(match, decoded)
        if name and source.role_at(start)[0] not in ("prose", "table"):
            rule = "decode-to-shell" if decoded[name] else "pipe-to-shell"
            note = f"`{name}` is {'decoded' if decoded[name] else 'fetched'} above"
            hits.append(RuleHit(rule=rule, start=start, end=end, severity=None, confidence="medium", note=note))
    return ScanResult(hits, ["pipe-to-shell"] if fetched.exhausted or evaluated.exhausted else [])


def _add_derived(source: AuditedText, decoded: dict[str, bool]) -> None:
    """Names that get their value from one of the names."""
    assigned = itertools.chain(
        (([match["name"]], match["value"]) for match in _ASSIGNED.finditer(source.text)),
        ((_NAME.findall(match[1]), match[2]) for match in _UNPACKED_NAMES.finditer(source.text)),
    )
    for names, value in itertools.islice(assigned, _MAX_MATCHES):
        if len(decoded) >= _MAX_DERIVED:
            return
        origin = next((name for name in _NAME.findall(value) if name in decoded), None)
        if origin is not None:
            decoded.update({name: decoded[origin] for name in names if name not in decoded})


def _evaluated_name(match: "re.Match[str]", decoded: dict[str, bool]) -> str:
    """The fetched or decoded name that is run; empty if it is none."""
    argument = match["argument"]
    if match["whole"]:
        # The first argument only: the others are a namespace.
        return next((name for name in _NAME.findall(argument.split(",")[0]) if name in decoded), "")
    first = _FIRST_NAME.match(argument)
    if first is None or first[1] not in decoded:
        return ""
    prints = match["part"].startswith(("echo", "printf"))
    return first[1] if not prints or _TO_SHELL.search(argument) else ""


# --- Downloaded and decoded files that are run later ------------------------------------------------------------------

_SAVED = load_expression("shell_checks.saved")
_DECODED_FILE = load_expression("shell_checks.decoded_file")
_OUTPUT = re.compile(
    r"(?:-outfile|(?:^|\s)-\w*[oO](?=[\s=])|--output|--output-document)[= ]?\s*[\"']?"
    r"(?P<file>(?!http)[^\s\"';|&-][^\s\"';|&]*)"
    r"|>\s*[\"']?(?P<redirect>[^\s\"';|&>]+)",
    re.IGNORECASE,
)
_KEEPS_NAME = re.compile(r"^(?:wget|aria2c|start-bitstransfer)|\s-\w*O\b|--remote-name", re.IGNORECASE)
_UNPACKED = re.compile(
    r"\b(?:curl|wget)\s[^\n|]{0,200}https?://[^\n|]{0,200}\|\s*(?:sudo\s+)?tar\s[^\n]{0,60}?"
    r"(?:-C|--directory)[ =]?[\"']?(?P<folder>[^\s\"';|&]+)"
)
_URL_NAME = load_expression("shell_checks.url_name")
_CHECKED = load_expression("shell_checks.checked")
_LOOKAHEAD = 1500
_LONG_LINE: Final = 1000
_LONG_PROGRAM: Final = 40_000
_SAVE_WORDS: Final = (
    "curl",
    "wget",
    "urlretrieve",
    "iwr",
    "invoke-webrequest",
    "aria2c",
    "irm",
    "invoke-restmethod",
    "start-bitstransfer",
)


def find_executed_downloads(source: AuditedText) -> ScanResult:
    hits: list[RuleHit] = []
    matches = LineMatches(source, _SAVED, _SAVE_WORDS)
    for start, end, match in matches.found[:_MAX_MATCHES]:
        name = _saved_name(match)
        if not name or "://" not in match[0]:
            continue
        after = source.text[end if match["path"] else start : end + _LOOKAHEAD]
        if _runs_file(name, after):
            is_foreign = bool(foreign_hosts(match[0])) and not _CHECKED.search(after)
            severity: Severity = "high" if is_foreign else "medium"
            hits.append(RuleHit(rule="download-and-run", start=start, end=end, severity=severity))
    decoded = LineMatches(source, _DECODED_FILE, ("base64", "xxd", "openssl", "gunzip", "zcat"))
    for start, end, match in decoded.found[:_MAX_MATCHES]:
        if _runs_file(match["file"], source.text[end : end + _LOOKAHEAD]):
            note = f"decoded to {match['file']}, which runs below"
            hits.append(RuleHit(rule="decode-to-shell", start=start, end=end, note=note))
    for start, end, match in LineMatches(source, _UNPACKED, ("curl", "wget")).found[:_MAX_MATCHES]:
        if foreign_hosts(match[0]) and _runs_from(match["folder"], source.text[end : end + _LOOKAHEAD]):
            hits.append(RuleHit(rule="download-and-run", start=start, end=end, severity="high"))
    exhausted = matches.exhausted or decoded.exhausted or len(matches.found) > _MAX_MATCHES
    return ScanResult(hits + _find_program_drops(source), ["download-and-run"] if exhausted else [])


def _runs_from(folder: str, after: str) -> bool:
    """Whether a command starts a file of a directory."""
    starts = rf"^[ \t]*(?:sudo\s+|exec\s+|nohup\s+)?[\"']?{re.escape(folder)}/"
    return re.search(starts, after, re.MULTILINE) is not None


def _runs_file(name: str, after: str) -> bool:
    base = re.escape(name.rsplit("/", 1)[-1])
    runs = re.compile(
        rf"(?:(?<![\w.-])(?:ba|z|da|k)?sh\s+(?:-\w+\s+)*|\bpython[\d.]*\s+|\bnode\s+|\bjava\s+-jar\s+|(?<!\S)\.\s+|\bsource\s+"
        rf"|\bchmod\s+\S+\s+|\bdpkg\s+-i\s+|\brpm\s+-\w+\s+|\bhdiutil\s+(?:attach|mount)\s+(?:-\w+\s+)*|\binstaller\s+-pkg\s+|\bos\.system\(\s*|\bsubprocess\.\w+\(\s*\[?\s*"
        rf"|\bos\.chmod\(\s*|\bstart-process\s+(?:-filepath\s+)?|\binvoke-item\s+|\bmsiexec\b[^\n]{{0,20}}\s|(?:^|\s)[&.]\s+|\bopen\s+(?:-\w\s+)?|\bxdg-open\s+|\bstart\s+|(?<![\w./])\./)[\"']?(?:[\w.~$/{{}}-]{{0,80}}/)?{base}(?![\w-])|(?:^|[;&|]\s*)(?:sudo\s+)?[\"']?[~/.$][\w.~$/{{}}-]{{0,80}}/{base}(?![\w-])",
        re.MULTILINE | re.IGNORECASE,
    )
    return runs.search(after) is not None


_DECODES = load_expression("shell_checks.decodes")
_DOWNLOADS = load_expression("shell_checks.downloads")
_WRITES_PROGRAM = load_expression("shell_checks.writes_program")
_MAKES_EXECUTABLE = load_expression("shell_checks.makes_executable")
_STARTS = load_expression("shell_checks.starts")
_DECODE_WORDS: Final = (
    ".decompress(",
    " ^ ",
    "sync(",
    "b64decode(",
    "unhexlify(",
    "fromhex(",
    "atob(",
    "base64'",
    'base64"',
    "'hex'",
    '"hex"',
)
_DOWNLOAD_WORDS: Final = (
    "urlretrieve",
    "requests.get",
    "httpx.",
    "urlopen",
    "https.get",
    "http.get",
    "fetch(",
    "axios",
    "got(",
    "got.stream",
    "downloadfile",
    "uri.open",
    "net::http",
    "iwr ",
    "invoke-webrequest",
    "start-bitstransfer",
    "curl",
    "wget",
    "openstream",
    "getstore",
    "copy(",
    "xmlhttp",
    "winhttprequest",
    "urldownloadtofile",
)
_START_WORDS: Final = (
    "os.system",
    "os.popen",
    "os.exec",
    "startfile",
    "subprocess",
    "popen",
    "exec",
    "spawn",
    "fork(",
    "start-process",
    "invoke-item",
    "kernel.",
    "& $",
    "command::new",
    "process",
    "system",
    "shell ",
    "wscript.shell",
    "shellexecute",
)
_EXECUTABLE_WORDS: Final = (
    "s_iexec",
    "s_ixusr",
    "s_irwxu",
    "chmod",
    "mode:",
    "+x",
    "setexecutable",
    "perm",
    ".exe",
    ".msi",
    ".bat",
    ".cmd",
    ".scr",
    "-jar",
    "createtempfile",
)
_WRITE_WORDS: Final = ("writefile", "open(", "writestream", "file.write", "path(")


def _find_program_drops(source: AuditedText) -> list[RuleHit]:
    """A program in another language that writes decoded or downloaded data to a file and starts it."""
    if source.content.kind != "script" or source.language == "shell":
        return []
    decoded = LineMatches(source, _DECODES, _DECODE_WORDS).found
    downloaded = LineMatches(source, _DOWNLOADS, _DOWNLOAD_WORDS).found
    if not (decoded or downloaded) or not LineMatches(source, _STARTS, _START_WORDS).found:
        return []
    executable = LineMatches(source, _MAKES_EXECUTABLE, _EXECUTABLE_WORDS).found
    written = executable + (LineMatches(source, _WRITES_PROGRAM, _WRITE_WORDS).found if decoded else [])
    if drop := _first_near(source, decoded, written):
        note = "written to a file and run"
        return [RuleHit(rule="decode-to-shell", start=drop.start, end=drop.end, note=note, is_compound=True)]
    drop = _first_near(source, downloaded, executable)
    if drop and not _CHECKED.search(source.text):
        severity: Severity = "high" if foreign_hosts(source.text) else "medium"
        hit = RuleHit(rule="download-and-run", start=drop.start, end=drop.end, severity=severity, is_compound=True)
        return [hit]
    return []


def _first_near(source: AuditedText, matches: list[LineMatch], others: list[LineMatch]) -> LineMatch | None:
    """The first match with one of the others close to it; in a large or bundled program most things are unrelated."""
    for one in matches:
        is_bundled = len(source.text) > _LONG_PROGRAM or len(source.line_text_at(one.start)[1]) > _LONG_LINE
        near = _LOOKAHEAD // 10 if is_bundled else _LOOKAHEAD
        if any(abs(one.start - other.start) <= near for other in others):
            return one
    return None


def _saved_name(match: "re.Match[str]") -> str:
    if match["path"]:
        return match["path"]
    arguments = match["arguments"].split("|")[0]
    output = _OUTPUT.search(arguments)
    if output:
        return (output["file"] or output["redirect"] or "").strip()
    # The others print what they fetch.
    named = _URL_NAME.search(arguments) if _KEEPS_NAME.search(match[0]) else None
    return named["name"] if named else ""


# --- Packages without a pinned version --------------------------------------------------------------------------------

_INSTALL = load_expression("shell_checks.install")
_INSTALL_WORDS: Final = load_words("shell_checks.install_words")
_RUNNERS = frozenset(("npx", "bunx", "uvx", "pnpm dlx", "yarn dlx", "pipx run", "uv tool run", "npm exec"))
_TAKES_VALUE: Final = frozenset(load_words("shell_checks.takes_value"))


def find_unpinned_installs(source: AuditedText) -> ScanResult:
    hits: list[RuleHit] = []
    matches = LineMatches(source, _INSTALL, _INSTALL_WORDS)
    for start, end, match in matches.found[:_MAX_MATCHES]:
        package = _first_unpinned(match["tool"], match["rest"])
        if package:
            role, _ = source.role_at(start)
            runs = role in ("command", "script", "config")
            if role in ("prose", "script-comment") and match["tool"] in ("npx", "uvx", "bunx"):
                continue  # prose that mentions the tool
            note = f"unpinned: {package}"
            hits.append(
                RuleHit(
                    rule="unpinned-install",
                    start=start,
                    end=end,
                    severity="medium" if runs else "low",
                    confidence=None,
                    note=note,
                    is_final=True,
                )
            )
    return ScanResult(hits, ["unpinned-install"] if matches.exhausted or len(matches.found) > _MAX_MATCHES else [])


def find_installed_packages(source: AuditedText) -> list[tuple[int, int, str, str]]:
    """Start, end, tool and name of every package that a command installs or runs."""
    found: list[tuple[int, int, str, str]] = []
    for start, end, match in LineMatches(source, _INSTALL, _INSTALL_WORDS).found[:_MAX_MATCHES]:
        if source.role_at(start)[0] not in ("prose", "script-comment"):
            names = (
                re.split(r"[@=<>\[~!]", name, maxsplit=1)[0] for name in _package_words(match["tool"], match["rest"])
            )
            found += [(start, end, match["tool"], name) for name in names if name and _is_package(name)]
    return found


def find_unpinned_package(command: str) -> str:
    """The package that a command installs or runs without a pinned version; empty if there is none."""
    match = _INSTALL.search(command)
    return _first_unpinned(match["tool"], match["rest"]) if match else ""


def _first_unpinned(tool: str, rest: str) -> str:
    for package in _package_words(tool, rest):
        if not _is_package(package) or package.startswith((".", "/", "~", "$", "{", "<", "git+", "http")):
            continue
        if not _is_pinned(tool, package):
            return package
    return ""


def _package_words(tool: str, rest: str) -> list[str]:
    """The arguments that name packages; none if hashes are required."""
    # In JSON the arguments are a list after a key.
    arguments = [word for word in re.split(r"[\s\"',]+", re.sub(r"\"\w+\"\s*:\s*\[?", " ", rest)) if word]
    packages: list[str] = []
    skip = False
    for word in arguments:
        if skip:
            skip = False
            if word and tool in _RUNNERS:
                packages.append(word)
        elif word.startswith("#") or word in ("\\", "and", "or", "to", "then", "for"):
            break
        elif word.startswith("-"):
            if word == "--require-hashes":
                return []
            skip = word in _TAKES_VALUE
        else:
            packages.append(word)
            if tool in _RUNNERS:
                break
    return packages


def _is_package(word: str) -> bool:
    return re.fullmatch(r"@?[A-Za-z][\w./@~^=<>!\[\],*:+-]{0,120}", word) is not None and not word.endswith(
        (".txt", ".whl")
    )


def _is_pinned(tool: str, package: str) -> bool:
    if "pip" in tool or tool.startswith("uv"):
        return "==" in package or re.search(r"@v?\d", package) is not None
    if tool == "gem install":
        return ":" in package
    return re.search(r".@v?\d+\.\d+", package) is not None
