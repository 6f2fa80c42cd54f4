"""Builds a SimpleCommand from each scanned command: forms for rules, kind, paths, network, uncertainties.

`analysis` calls `build_command` for every command of a text; permissions see only SimpleCommand.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from kitbag.shell.checks import CheckRun, find_check
from kitbag.shell.classification import OTHER, UNKNOWN_WORD, Classification
from kitbag.shell.command_table import classify, command_table, program_name, skip_options, uses_network
from kitbag.shell.expansions import ONE, STAR, TEXT, UNQUOTED, WORDS, has_marker
from kitbag.shell.interpreters import CommandInput, InterpretedCode, find_code
from kitbag.shell.pipelines import piped_words
from kitbag.shell.scan import ASSIGNMENT
from kitbag.shell.scan_model import ScannedCommand
from kitbag.shell.unknown_text import UNKNOWN_TEXT
from kitbag.shell.variables import MAX_ALTERNATIVES, VariableScope
from kitbag.shell.words import ShellWord, parse_word
from kitbag.shell.wrappers import UnwrappedCommand, unwrap
from kitbag.store.secret_names import is_secret_name

_MAX_FORM_CHARACTERS: Final = 200_000
"""Total characters of forms. Later forms are truncated, so that a thousand wrappers don't make a thousand long texts.
"""
_TRUNCATED_CHARACTERS: Final = 300
_MAX_WHOLE_SPANS: Final = 15
_MAX_WORDS: Final = 8
"""Words per form of a command nested deeper than `_MAX_WHOLE_SPANS`."""
_STANDARD_STREAMS: Final = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"})
_DESCRIPTOR = re.compile(r"[0-9]*-?")
_DEFAULT = re.compile(r"\$\{\w+(?:\[[^\]]*\])?:?[-=+?]([^{}]*)\}")
_PLAIN = re.compile(r"[\w.,:@+-]+", re.ASCII)
_EXPANSION_START = re.compile(r"[$`{]|[<>]\(")
_CONNECTION = re.compile(r"/+dev/+(?:tcp|udp)(?:/|$)")
# Builtins that evaluate their arguments: a subscript can run a command even inside single quotes.
_EVALUATING_BUILTINS: Final = frozenset(
    {
        "let", "test", "[", "[[", "printf", "read", "unset", "declare", "typeset", "local", "export", "readonly",
        "wait", "mapfile", "readarray", "getopts", "trap", "alias", "eval",
    }
)  # fmt: skip


class ShellRedirect(NamedTuple):
    operator: str
    target: str | None
    """None: known only at run time."""
    writes: bool


class SimpleCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One command that would run, at any depth."""

    raw: str
    words: tuple[str | None, ...]
    """Words after wrappers, without quotes; None for a word known only at run time."""
    expanded: tuple[tuple[str, ...], ...]
    """Every list of words that `words` can expand to, as templates; only `words` itself if all are known, and empty if
    it is unknown."""
    forms: tuple[str, ...]
    """Every text that deny and ask rules are matched against."""
    possible_forms: tuple[str, ...]
    """Texts that it may run: commands in which `UNKNOWN_TEXT` stands for what is known only at run time, and words of
    code for an interpreter. It needs approval if a deny or ask rule could match one of them."""
    allow_form: str | None
    """The one text that allow rules are matched against; None: only a rule for all of Bash may match."""
    assignments: tuple[tuple[str, str | None], ...]
    redirects: tuple[ShellRedirect, ...]
    kind: Literal["read", "edit", "other"]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    """Named paths as written (`~` is not expanded), relative to `directories`: templates of `expansions` that
    have no unknown text."""
    loads: tuple[str, ...]
    """Files of a workspace from which the program may run code."""
    reason: str
    """Why it is "other"; may be empty."""
    check: CheckRun | None
    """Set if it runs the project's own tests or linters."""
    network: bool
    shows_environment: bool
    """Whether it prints environment variables, like `jq -n env`. For `env` itself, look at its name."""
    directories: tuple[str, ...]
    """The working directories that it may have, relative to where the text starts (""), or absolute; empty: unknown."""
    uncertainties: tuple[str, ...]
    """Why it always needs approval, whatever the table says."""


class BuiltCommand(msgspec.Struct, frozen=True, kw_only=True):
    part: SimpleCommand
    texts: tuple[str, ...]
    """Shell text that it runs."""
    hints: tuple[str, ...]
    """Words that may be shell text; commands found in them become forms of this part."""
    code: tuple[str, ...]
    """Code for an interpreter; commands found in it become possible forms of this part."""
    runs_unknown: bool
    """Runs a command or shell text from elsewhere, perhaps from other words of the text."""


class CommandForms:
    """Collects unique texts up to a total length."""

    __slots__ = ("_left", "_texts")

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._left = _MAX_FORM_CHARACTERS
        self._texts: dict[str, None] = {}
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        if len(text) > self._left:
            text = text[:_TRUNCATED_CHARACTERS]
        self._left -= len(text)
        if text:
            self._texts[text] = None

    def add_words(self, words: Sequence[ShellWord]) -> None:
        """The forms of one command: as written, without quotes, by base name, without options before a subcommand."""
        if not words:
            return
        self.add(" ".join(word.raw for word in words))
        values = [word.bare if word.value is None else word.value for word in words]
        if any(word.value != word.raw for word in words):
            self.add(" ".join(filter(None, values)))
        if words[0].value is None and "{" in words[0].raw:
            # Brace expansion turns `{curl,x}` into words, and `${x:-curl}` most likely expands to its default.
            self.add(" ".join([*re.split(r"[{},\s]+", values[0].strip("{}")), *values[1:]]))
            self.add(" ".join([parse_word(_DEFAULT.sub(r"\1", words[0].raw)).bare, *values[1:]]))
        base = values[0].rsplit("/", 1)[-1]
        if base != values[0]:
            self.add(" ".join([base, *values[1:]]))
        options = command_table().global_options.get(base)
        if options and len(values) > 1 and values[1].startswith("-"):
            place = skip_options(tuple(values), options, 1)
            # After an unknown option any word may be the subcommand.
            for at in range(1, len(values)) if place is None else (place,):
                self.add(" ".join([base, *values[at : at + _MAX_WORDS if place is None else None]]))

    def add_spans(self, words: Sequence[ShellWord], spans: Sequence[tuple[int, int]]) -> None:
        for number, (start, end) in enumerate(spans):
            self.add_words(words[start : end if number < _MAX_WHOLE_SPANS else min(end, start + _MAX_WORDS)])

    def texts(self) -> tuple[str, ...]:
        return tuple(self._texts)


def build_command(
    text: str,
    command: ScannedCommand,
    words: Sequence[ShellWord],
    directories: tuple[str, ...],
    scope: VariableScope,
    sources: Sequence[Sequence[str | None]] = (),
) -> BuiltCommand:
    """`sources`: the commands before it in its pipeline."""
    scope.secrets.clear()
    assignments = [_assignment(parse_word(text[start:end])) for start, end in command.assignments]
    values = tuple(word.value for word in words)
    unwrapped = unwrap(values)
    raw = text[command.start : command.end]
    forms = CommandForms((raw,))
    forms.add_spans(words, (*unwrapped.spans, *unwrapped.possible_spans))
    redirects, connects = _redirects(text, command, scope)
    safe_names = command_table().safe_names
    safe = all(safe_names.fullmatch(name) and _PLAIN.fullmatch(value or "") for name, value in assignments)
    variants = _variants(command, words, scope, unwrapped.innermost_start) if words else None
    classification = _classify(variants, values, unwrapped, safe, sources) if words else Classification(kind="read")
    if secret := _find_secret(text, command, scope):
        classification = Classification(kind="other", reason=f"uses ${secret}, which may hold a secret")
    elif classification.kind == "read" and _sets_unused_variable(text, values, [name for name, _ in assignments]):
        classification = _SETS_VARIABLE
    code = _find_code(text, command, words, unwrapped) if classification.kind == "other" else []
    hints = _find_hints(values, assignments, unwrapped)
    for name in ("env", "printenv") if classification.shows_environment else ():
        forms.add(name)
    part = SimpleCommand(
        raw=raw,
        words=values[unwrapped.innermost_start :],
        expanded=tuple(variants or ()),
        forms=forms.texts(),
        possible_forms=_possible_forms(words, unwrapped),
        allow_form=_allow_form(text, command, words, unwrapped, safe),
        assignments=tuple(assignments),
        redirects=redirects,
        kind=classification.kind,
        reads=classification.reads,
        writes=classification.writes,
        loads=classification.loads,
        reason=classification.reason or _reason(values, unwrapped),
        check=_find_check(values, unwrapped, safe) if classification.kind == "other" and not scope.secrets else None,
        network=connects or (classification.kind != "read" and _uses_network(values, unwrapped)),
        shows_environment=classification.shows_environment,
        directories=directories,
        uncertainties=(
            *_find_uncertainties(words, unwrapped, assignments, connects, len(hints) > len(unwrapped.hints)),
            *(uncertainty for one in code for uncertainty in one.uncertainties),
        ),
    )
    runs_unknown = any(unwrapped.words[start] is None for start, end in unwrapped.spans if start < end)
    return BuiltCommand(
        part=part,
        texts=unwrapped.shell_texts,
        hints=tuple(hints),
        code=tuple(text for one in code for text in one.texts),
        runs_unknown=unwrapped.reads_shell_text or runs_unknown or any(one.reads_input for one in code),
    )


def _find_hints(
    values: tuple[str | None, ...], assignments: Sequence[tuple[str, str | None]], unwrapped: UnwrappedCommand
) -> list[str]:
    """Texts in which there may be commands."""
    texts = [value for _, value in assignments]
    if values and values[0] in _EVALUATING_BUILTINS:
        texts += values
    return [*unwrapped.hints, *(text for text in texts if text is not None and _has_expansion(text))]


def _find_secret(text: str, command: ScannedCommand, scope: VariableScope) -> str:
    """The first variable with the name of a secret that the command uses, by name; empty if there is none."""
    for start, end in command.assignments:
        scope.alternatives(text[start:end].partition("=")[2], start, command.frame)
    return min(scope.secrets or (_secrets_in(command.input) if command.expands_input else ()), default="")


def _uses_network(values: tuple[str | None, ...], unwrapped: UnwrappedCommand) -> bool:
    spans = (*unwrapped.spans, *unwrapped.possible_spans)
    return any(uses_network(values[start : start + _MAX_WORDS]) for start, _ in spans)


def _find_code(
    text: str, command: ScannedCommand, words: Sequence[ShellWord], unwrapped: UnwrappedCommand
) -> list[InterpretedCode]:
    strings = [parse_word(text[start:end]) for operator, (start, end) in command.redirects if operator == "<<<"]
    given = CommandInput(
        (*command.input, *(word.bare for word in strings)),
        not command.expands_input and all(word.value is not None for word in strings),
    )
    return [find_code(words[start:end], unwrapped.words[start:end], given) for start, end in unwrapped.spans]


def _possible_forms(words: Sequence[ShellWord], unwrapped: UnwrappedCommand) -> tuple[str, ...]:
    """The commands at every level with `UNKNOWN_TEXT` where a word is not known."""
    texts = [
        unwrapped.templates.get(index, _template(words[index]) if value is None else value)
        for index, value in enumerate(unwrapped.words)
    ]
    forms = CommandForms()
    for start, end in unwrapped.spans[:_MAX_WHOLE_SPANS]:
        last = min(end, start + _MAX_WORDS)
        level = [texts[start].rsplit("/", 1)[-1], *texts[start + 1 : last]] if start < last else []
        level += [UNKNOWN_TEXT] if unwrapped.appends else []
        options = command_table().global_options.get(level[0]) if start < last else None
        if options:
            # Rules name the subcommand, without the options before it.
            place = skip_options(tuple(unwrapped.words[start:last]), options, 1)
            level = [level[0], *(level[place:] if place is not None else [UNKNOWN_TEXT])]
        if UNKNOWN_TEXT in (form := " ".join(level)):
            forms.add(form)
    return forms.texts()


def _template(word: ShellWord) -> str:
    """The text before the first expansion, and what may follow. A glob stands for files that exist: as written."""
    expansion = _EXPANSION_START.search(word.raw)
    return word.raw if expansion is None else parse_word(word.raw[: expansion.start()]).bare + UNKNOWN_TEXT


def _assignment(word: ShellWord) -> tuple[str, str | None]:
    match = ASSIGNMENT.match(word.raw)
    assert match is not None
    name = match.group(1)
    plain = match.end() == len(name) + 1
    # An array, a subscript or `+=`: the value is unknown.
    value = parse_word(word.raw[match.end() :]) if plain else None
    return name, None if value is None else value.value


def _has_expansion(value: str) -> bool:
    return "$(" in value or "`" in value or "${" in value or "<(" in value


def _variants(
    command: ScannedCommand, words: Sequence[ShellWord], scope: VariableScope, start: int
) -> list[tuple[str, ...]] | None:
    """Every list of words, from `start` on, that the program may receive; None if there are too many to tell."""
    # Inside `[[ ]]` nothing is split or matched against files.
    keep = _NO_CHANGE if words[start].value != "[[" else _UNSPLIT
    variants: list[tuple[str, ...]] = [()]
    for word, (at, _) in zip(words[start:], command.words[start:], strict=True):
        choices = [(word.value,)] if word.value is not None else scope.alternatives(word.raw, at, command.frame)
        if choices is None or len(variants) * len(choices) > MAX_ALTERNATIVES:
            return None
        variants = [(*before, *(one.translate(keep) for one in choice)) for before in variants for choice in choices]
    scope.remaining -= len(variants) - 1
    return variants if scope.remaining >= 0 else None


_NO_CHANGE: Final[dict[int, str]] = {}
_UNSPLIT: Final = str.maketrans({WORDS: TEXT, STAR: TEXT, ONE: TEXT, UNQUOTED: ""})


def _classify(
    variants: Sequence[tuple[str, ...]] | None,
    values: tuple[str | None, ...],
    unwrapped: UnwrappedCommand,
    safe: bool,
    sources: Sequence[Sequence[str | None]],
) -> Classification:
    # The table knows which words of `find` run or write something.
    start = 0 if values[0] == "find" else unwrapped.allow_start
    if not safe or unwrapped.shell_texts or unwrapped.reads_shell_text:
        return OTHER
    if values[0] == "xargs" and len(unwrapped.spans) == 2:
        return _classify_piped(values, unwrapped.innermost_start, sources)
    if start is None or start != unwrapped.innermost_start:
        return OTHER
    if any(value is not None and value.endswith("xargs") for value in values[:start]):
        return OTHER  # it adds unknown words
    if variants is None:
        return classify(values[start:])
    found = [classify(variant) for variant in variants]
    weakest = max(found, key=lambda one: _STRICTEST_LAST.index(one.kind))
    return Classification(
        kind=weakest.kind,
        reason=weakest.reason,
        reads=tuple(dict.fromkeys(path for one in found for path in one.reads)),
        writes=tuple(dict.fromkeys(path for one in found for path in one.writes)),
        loads=tuple(dict.fromkeys(path for one in found for path in one.loads)),
        shows_environment=any(one.shows_environment for one in found),
    )


def _reason(values: tuple[str | None, ...], unwrapped: UnwrappedCommand) -> str:
    """Why the program needs approval, by its name; empty if nothing is known about it."""
    reasons = command_table().reasons
    for start in (0, unwrapped.innermost_start):
        name = values[start] if start < len(values) else None
        if name is not None and (reason := reasons.get(program_name(name))):
            return reason
        if name is not None and "/" in program_name(name):
            return "runs a program outside the system directories"
    return ""


def _find_check(values: tuple[str | None, ...], unwrapped: UnwrappedCommand, safe: bool) -> CheckRun | None:
    start = unwrapped.allow_start
    if not safe or start is None or unwrapped.shell_texts or unwrapped.reads_shell_text or unwrapped.uncertainties:
        return None
    if "xargs" in values[:start]:
        return None  # it adds unknown words
    return find_check(values[start:]) if len(values) > start else None


def _classify_piped(
    values: tuple[str | None, ...], start: int, sources: Sequence[Sequence[str | None]]
) -> Classification:
    """A command behind xargs, which adds words."""
    added = piped_words(values[:start], values[start:], sources)
    found = classify((*values[start:], *added)) if added else UNKNOWN_WORD
    return found if found.kind == "read" else UNKNOWN_WORD


_SETS_VARIABLE: Final = Classification(kind="other", reason="sets a variable for later commands")


def _sets_unused_variable(text: str, values: Sequence[str | None], assigned: Sequence[str]) -> bool:
    """Whether a command sets a variable that the text does not use: it may be meant for something else."""
    is_read = values[:1] == ("read",)
    names = values[1:] if is_read else () if values else assigned
    identifiers = [name for name in names if name is not None and name.isidentifier()]
    if is_read and not identifiers:
        return True
    return not all(re.search(rf"\$\{{?#?{name}\b", text) for name in identifiers)


_STRICTEST_LAST: Final = ("read", "edit", "other")
_NAMED_VARIABLE = re.compile(r"(?<!\\)\$\{?([A-Za-z_]\w*)", re.ASCII)


def _secrets_in(bodies: Sequence[str]) -> set[str]:
    """Names of secrets that here documents use."""
    return {name for body in bodies for name in _NAMED_VARIABLE.findall(body) if is_secret_name(name)}


def _allow_form(
    text: str, command: ScannedCommand, words: Sequence[ShellWord], unwrapped: UnwrappedCommand, safe: bool
) -> str | None:
    before = [text[start:end] for start, end in command.assignments]
    if not words:
        return " ".join(before) or None
    start = unwrapped.allow_start
    if start is None or words[start].value is None:
        return None
    if not safe:
        start = 0
    else:
        before = []
    return " ".join([*before, *(word.raw for word in words[start:])])


def _redirects(text: str, command: ScannedCommand, scope: VariableScope) -> tuple[tuple[ShellRedirect, ...], bool]:
    """Redirects to files, and whether one of them opens a network connection."""
    found: list[ShellRedirect] = []
    connects = False
    for operator, target in _redirect_targets(text, command, scope):
        if operator == "<<<" or (operator in (">&", "<&") and target is not None and _DESCRIPTOR.fullmatch(target)):
            continue
        if target in _STANDARD_STREAMS:
            continue
        connects = connects or (target is not None and _CONNECTION.match(target) is not None)
        found.append(ShellRedirect(operator, target, operator not in ("<", "<&")))
    return tuple(found), connects


def _redirect_targets(text: str, command: ScannedCommand, scope: VariableScope) -> Iterator[tuple[str, str | None]]:
    for operator, (start, end) in command.redirects:
        value = parse_word(text[start:end]).value
        choices = None if value is not None else scope.alternatives(text[start:end], start, command.frame)
        if choices is None or any(len(choice) != 1 or has_marker(choice[0]) for choice in choices):
            yield operator, value
        else:
            yield from ((operator, choice[0]) for choice in choices)


def _find_uncertainties(
    words: Sequence[ShellWord],
    unwrapped: UnwrappedCommand,
    assignments: Sequence[tuple[str, str | None]],
    connects: bool,
    evaluates: bool,
) -> tuple[str, ...]:
    uncertainties = list(unwrapped.uncertainties)
    for name, _ in assignments:
        if command_table().dangerous_names.fullmatch(name) and not command_table().safe_names.fullmatch(name):
            uncertainties.append(f"sets {name}, which affects other programs")
    if connects:
        uncertainties.append("redirection opens a network connection")
    if evaluates:
        uncertainties.append("quoted text that may be executed later")
    for start, end in unwrapped.spans:
        values = unwrapped.words[start : min(end, start + _MAX_WORDS)]
        if values and values[0] is None:
            uncertainties.append("command name is only known at run time")
        elif values and _hides_subcommand(values):
            uncertainties.append("subcommand is only known at run time")
    if any(_hides_launched_command(word, before) for before, word in zip(("", *words), words, strict=False)):
        uncertainties.append("runs a command that is only known at run time")
    return tuple(dict.fromkeys(uncertainties))


def _hides_launched_command(word: ShellWord, before: ShellWord | str) -> bool:
    """`tar --to-command="$X"`, `git difftool --extcmd "$X"`."""
    names = command_table().launching_options
    return word.value is None and (
        word.raw.partition("=")[0] in names or (not isinstance(before, str) and before.value in names)
    )


def _hides_subcommand(words: tuple[str | None, ...]) -> bool:
    options = command_table().global_options.get((words[0] or "").rsplit("/", 1)[-1])
    if not options:
        return False
    for word in words[1:]:
        if word is None:
            return True
        if not word.startswith("-"):
            return False
    return False
