"""What reaches an interpreter: pipelines that end in one, fetched values that are evaluated, downloads that are run.

Used by examine; uses patterns for the window around a place and addresses for whose host it is.
"""

import itertools
import re
from typing import Final

from kitbag.audit.expressions import expression, words
from kitbag.audit.patterns import EXAMINED, Hit, Places, Scan, command_window, undisguised
from kitbag.audit.regions import WRITTEN, Source

# The program at the end of a pipeline, behind wrappers such as `sudo -E env A=1`.
_SINK = expression("shell_checks.sink")
_SHELL = re.compile(r"(?:ba|da|z|k|a|fi|c|tc)?sh")
_FETCH = expression("shell_checks.fetch")
_DECODE = expression("shell_checks.decode")
_DRAINED = re.compile(r"\$\(\s*cat|\bstdin\b|/dev/stdin|\{\}")
_SOMEWHERE = re.compile(r"://|\$[\w({]|\w\.\w{2,}/|\w\.(?:sh|py|com|io|dev|org|net|invalid|test)\b")
_NAMED_FILE = re.compile(r"\s*(?:-[\w-]+\s+)*[\w./~$\"'-]*\w\.\w+")
_ROW = re.compile(r"[^\n]+")
_DISGUISES: Final = ("''", '""', "\\s", "\\b", "\\c", "\\w")
_SEPARATOR = re.compile(r";|&&|\|\|")


def pipelines(source: Source) -> Scan:
    """`curl ... | sh` and `... | base64 -d | sh`, at any length and behind any wrapper."""
    hits: list[Hit] = []
    examined = 0
    if "|" not in source.text:
        return Scan(hits, [])
    for sink in _SINK.finditer(source.text):
        if not _reads_code(sink):
            continue
        begin, window = command_window(source, sink.start())
        examined += len(window) + 64
        if examined > EXAMINED:
            return Scan(hits, ["pipe-to-shell"])
        hits += _hit(source, sink.start(), sink.end(), _left(window[: sink.start() - begin]))
    disguised = Places(source, _ROW, _DISGUISES)
    for start, end, row in disguised.found:
        plain = undisguised(row[0])
        if plain != row[0] and (sink := _SINK.search(plain)) is not None and _reads_code(sink):
            hits += _hit(source, start, end, _left(plain[: sink.start()]))
    return Scan(hits, ["pipe-to-shell"] if disguised.exhausted else [])


def _hit(source: Source, start: int, end: int, left: str) -> list[Hit]:
    plain = undisguised(left)
    decodes = _DECODE.search(left) or _DECODE.search(plain)
    if not decodes and not _FETCH.search(plain):
        return []
    rule = "decode-to-shell" if decodes else "pipe-to-shell"
    role, _ = source.role_at(start)
    if role in WRITTEN and not _SOMEWHERE.search(left) and rule == "pipe-to-shell":
        note = "named, without an address that it would fetch"
        return [Hit(rule, start, end, "low", "low", note, settled=True)]
    return [Hit(rule, start, end)]


def _reads_code(sink: "re.Match[str]") -> bool:
    """The program takes its code from the pipe, and not only data."""
    program, rest = sink["program"], sink["rest"].strip()
    if program in ("source", "."):
        return "/dev/stdin" in rest or rest == "-"
    if "xargs" in sink["wrap"]:
        return rest.startswith("-c") or not rest
    if _SHELL.fullmatch(program):
        if rest.startswith("-c"):
            return _DRAINED.search(rest) is not None
        return rest.startswith("-s") or " -s" in rest or not _NAMED_FILE.match(rest)
    return rest in ("", "-") or rest.startswith(("- ", "/dev/stdin")) or (rest[:2] in ("-c", "-e") and "stdin" in rest)


def _left(before: str) -> str:
    """The pipeline up to the sink; what stands in one group with it counts too."""
    if before.rstrip().endswith(("}", ")")):
        return before
    return _SEPARATOR.split(before)[-1]


# --- a value that was fetched or decoded, and is evaluated later -----------------------------------------------------

_FETCHED = expression("shell_checks.fetched")
_FETCH_WORDS: Final = words("shell_checks.fetch_words")
_EVALUATED = expression("shell_checks.evaluated")
_DERIVED = re.compile(
    r"^[ \t]*(?:const |let |var )?(?P<name>[A-Za-z_]\w{0,40}) ?= ?(?P<from>[A-Za-z_]\w{0,40})\b", re.MULTILINE
)
_EVALUATE_WORDS: Final = words("shell_checks.evaluate_words")
_IS_DECODED = re.compile(r"64|hex|atob|decompress|marshal")
_MOST: Final = 500
_TO_SHELL = re.compile(r"\|\s*(?:sudo\s+)?(?:ba|z|da|k)?sh\b")


def evaluated_values(source: Source) -> Scan:
    """`code = requests.get(url).text` and later `exec(code)`; the same in JavaScript and shell."""
    hits: list[Hit] = []
    fetched = Places(source, _FETCHED, _FETCH_WORDS)
    decoded: dict[str, bool] = {}
    for _, _, match in fetched.found[:_MOST]:
        decoded.setdefault(match["name"], _IS_DECODED.search(match["value"]) is not None)
    if not decoded:
        return Scan(hits, ["pipe-to-shell"] if fetched.exhausted else [])
    for match in itertools.islice(_DERIVED.finditer(source.text), _MOST):
        if match["from"] in decoded:
            decoded.setdefault(match["name"], decoded[match["from"]])
    evaluated = Places(source, _EVALUATED, _EVALUATE_WORDS)
    for start, end, match in evaluated.found[:_MOST]:
        name = match["name"]
        prints = match[0].lstrip().startswith(("echo", "printf"))
        if name in decoded and (not prints or _TO_SHELL.search(match["after"])):
            rule = "decode-to-shell" if decoded[name] else "pipe-to-shell"
            note = f"`{name}` was {'decoded' if decoded[name] else 'fetched'} further up"
            hits.append(Hit(rule, start, end, None, "medium", note))
    return Scan(hits, ["pipe-to-shell"] if fetched.exhausted or evaluated.exhausted else [])


# --- a file that was downloaded, and is run later --------------------------------------------------------------------

_SAVED = expression("shell_checks.saved")
_OUTPUT = re.compile(
    r"(?:(?:^|\s)-\w*[oO]|--output|--output-document|-outfile)[= ]?\s*[\"']?(?P<file>(?!http)[^\s\"';|&-][^\s\"';|&]*)"
    r"|>\s*[\"']?(?P<redirect>[^\s\"';|&>]+)",
    re.IGNORECASE,
)
_URL_NAME = expression("shell_checks.url_name")
_FAR = 1500


def downloads(source: Source) -> Scan:
    hits: list[Hit] = []
    places = Places(source, _SAVED, ("curl", "wget", "urlretrieve", "iwr", "invoke-webrequest", "aria2c"))
    for start, end, match in places.found[:_MOST]:
        name = _saved_name(match)
        if not name or "://" not in match[0]:
            continue
        after = source.text[end if match["path"] else start : end + _FAR]
        base = re.escape(name.rsplit("/", 1)[-1])
        runs = re.compile(
            rf"(?:(?<![\w.-])(?:ba|z|da|k)?sh\s+(?:-\w+\s+)*|\bpython[\d.]*\s+|\bnode\s+|\bjava\s+-jar\s+|(?<!\S)\.\s+|\bsource\s+"
            rf"|\bchmod\s+\S+\s+|\bdpkg\s+-i\s+|\brpm\s+-\w+\s+|\binstaller\s+-pkg\s+|\bos\.system\(\s*|\bsubprocess\.\w+\(\s*\[?\s*"
            rf"|\bos\.chmod\(\s*|\./)[\"']?(?:[\w.~$/{{}}-]{{0,80}}/)?{base}(?![\w-])|(?:^|[;&|]\s*)(?:sudo\s+)?[\"']?[~/.$][\w.~$/{{}}-]{{0,80}}/{base}(?![\w-])",
            re.MULTILINE,
        )
        if runs.search(after):
            hits.append(Hit("download-and-run", start, end))
    return Scan(hits, ["download-and-run"] if places.exhausted or len(places.found) > _MOST else [])


def _saved_name(match: "re.Match[str]") -> str:
    if match["path"]:
        return match["path"]
    arguments = match["arguments"].split("|")[0]
    output = _OUTPUT.search(arguments)
    if output:
        return (output["file"] or output["redirect"] or "").strip()
    named = _URL_NAME.search(arguments)
    return named["name"] if named else ""


# --- packages in whatever version there is ---------------------------------------------------------------------------

_INSTALL = expression("shell_checks.install")
_INSTALL_WORDS: Final = words("shell_checks.install_words")
_RUNNERS = frozenset(("npx", "bunx", "uvx", "pnpm dlx", "yarn dlx", "pipx run", "uv tool run", "npm exec"))
_TAKES_VALUE: Final = frozenset(words("shell_checks.takes_value"))


def installs(source: Source) -> Scan:
    hits: list[Hit] = []
    places = Places(source, _INSTALL, _INSTALL_WORDS)
    for start, end, match in places.found[:_MOST]:
        loose = _unpinned(match["tool"], match["rest"])
        if loose:
            role, _ = source.role_at(start)
            runs = role in ("command", "script", "config")
            if role in ("prose", "remark") and match["tool"] in ("npx", "uvx", "bunx"):
                continue  # the tool is spoken of
            note = f"no version: {loose}"
            hits.append(Hit("unpinned-install", start, end, "medium" if runs else "low", None, note, True))
    return Scan(hits, ["unpinned-install"] if places.exhausted or len(places.found) > _MOST else [])


def loose_package(command: str) -> str:
    """The package that a command installs or runs in whatever version there is; empty when there is none."""
    match = _INSTALL.search(command)
    return _unpinned(match["tool"], match["rest"]) if match else ""


def _unpinned(tool: str, rest: str) -> str:
    # In JSON the arguments stand in a list, behind a key.
    found = [word for word in re.split(r"[\s\"',]+", re.sub(r"\"\w+\"\s*:\s*\[?", " ", rest)) if word]
    packages: list[str] = []
    skip = False
    for word in found:
        if skip:
            skip = False
            if word and tool in _RUNNERS:
                packages.append(word)
        elif word.startswith("#") or word in ("\\", "and", "or", "to", "then", "for"):
            break
        elif word.startswith("-"):
            if word == "--require-hashes":
                return ""
            skip = word in _TAKES_VALUE
        else:
            packages.append(word)
            if tool in _RUNNERS:
                break
    for package in packages:
        if not _is_package(package) or package.startswith((".", "/", "~", "$", "{", "<", "git+", "http")):
            continue
        if not _is_pinned(tool, package):
            return package
    return ""


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
