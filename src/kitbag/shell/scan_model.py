"""The result of scanning shell text, before classification.

Created by `scan`; read by `directories`, `parts` and `analysis`.
"""

from typing import NamedTuple

Span = tuple[int, int]


class ScannedRedirect(NamedTuple):
    operator: str
    target: Span


class ScanFrame:
    """An open construct that is read until it closes. A `list` frame holds commands."""

    # fmt: off
    __slots__ = (
        "body", "can_end", "cases", "closer", "command", "compound", "connector", "filled", "function", "heredocs",
        "loop", "loops", "mode", "number", "open", "outer", "quoted", "redirect", "subshell", "test", "timed",
        "word",
    )
    # fmt: on

    def __init__(self, mode: str, closer: str, number: int, outer: "ScanFrame | None") -> None:
        self.mode = mode
        self.closer = closer
        self.number = number
        self.outer = outer
        """The enclosing list frame."""
        self.subshell = False
        self.quoted = False
        """Inside double quotes, where a single quote is an ordinary character."""
        self.word = -1
        """Start of the current word; -1 between words."""
        self.command: ScannedCommand | None = None
        self.connector = ""
        """The operator before the next command."""
        self.filled = False
        """Whether there is a command since the last operator."""
        self.can_end = True
        """Whether the list may end here; not after `&&`."""
        self.compound = False
        """Whether it contains a loop, condition, group or function."""
        self.redirect = ""
        """The operator of a redirection that still needs its target."""
        self.test = False
        """Inside `[[ ]]`."""
        self.timed = False
        """After the word `time`."""
        self.loop = ""
        self.loops: list[ScannedLoop | None] = []
        """Loops whose `done` is still to come; None for those without a variable."""
        self.function = False
        """After the word `function`."""
        self.body = False
        """A function body must follow."""
        self.cases: list[str] = []
        self.heredocs: list[tuple[str, str, ScannedCommand]] = []
        self.open = ""
        """Open brackets in arithmetic."""


class ScannedLoop:
    """A `for` or `select` loop, which gives a variable each of its words."""

    __slots__ = ("body", "end", "frame", "name", "words")

    def __init__(self, name: str, at: int, frame: ScanFrame) -> None:
        self.name = name
        self.body = at
        """Where its words end."""
        self.end = at
        """Where its body ends."""
        self.frame = frame
        self.words: list[Span] | None = None
        """None: the positional parameters."""


class ScannedCommand:
    """One simple command as spans of the text."""

    # fmt: off
    __slots__ = (
        "after", "assignments", "connector", "end", "expands_input", "frame", "input", "redirects", "start",
        "unconditional", "words",
    )
    # fmt: on

    def __init__(self, start: int, frame: ScanFrame, connector: str) -> None:
        self.start = start
        self.end = start
        self.frame = frame
        self.connector = connector
        self.after = ""
        self.unconditional = not frame.compound and connector in ("", ";")
        """Runs whenever its list runs."""
        self.assignments: list[Span] = []
        self.words: list[Span] = []
        self.redirects: list[ScannedRedirect] = []
        self.input: list[str] = []
        """The bodies of its here documents."""
        self.expands_input = False
        """Whether one of them has expansions."""


class NestedText(NamedTuple):
    """Shell text inside shell text, scanned on its own."""

    text: str
    frame: ScanFrame | None


class ShellScan:
    # fmt: off
    __slots__ = (
        "ambiguities",
        "assigned",
        "backticks",
        "bodies",
        "commands",
        "evaluated",
        "frames",
        "has_functions",
        "loops",
        "nested",
        "uncertainties",
    )
    # fmt: on

    def __init__(self) -> None:
        self.commands: list[ScannedCommand] = []
        self.frames: list[ScanFrame] = []
        self.nested: list[NestedText] = []
        self.backticks: list[Span] = []
        self.bodies: list[Span] = []
        """Bodies of here documents with expansions."""
        self.ambiguities: list[str] = []
        """Why commands may have been missed or may not be commands."""
        self.uncertainties: list[str] = []
        """Expansions that may run or change something."""
        self.loops: list[ScannedLoop] = []
        self.assigned: set[str] = set()
        self.evaluated: set[str] = set()
        """Variables whose text is evaluated as arithmetic."""
        self.has_functions = False
