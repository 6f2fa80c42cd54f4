"""What a reading of shell text is made of, before anybody asks what a command does.

Made by `shell_scan`; read by `shell_directories`, `shell_parts` and `shell_analysis`.
"""

from typing import NamedTuple

Span = tuple[int, int]


class ScannedRedirect(NamedTuple):
    operator: str
    target: Span


class ScanFrame:
    """Something that was opened and is read until it is closed. A `list` frame holds commands."""

    # fmt: off
    __slots__ = (
        "body", "can_end", "cases", "closer", "command", "compound", "connector", "filled", "function", "heredocs",
        "loop", "mode", "number", "open", "outer", "quoted", "redirect", "subshell", "test", "timed",
        "word",
    )
    # fmt: on

    def __init__(self, mode: str, closer: str, number: int, outer: "ScanFrame | None") -> None:
        self.mode = mode
        self.closer = closer
        self.number = number
        self.outer = outer
        """The list frame around it."""
        self.subshell = False
        self.quoted = False
        """Inside double quotes, where a single quote is a character like any other."""
        self.word = -1
        """Where the word that is being read began."""
        self.command: ScannedCommand | None = None
        self.connector = ""
        """The operator before the next command."""
        self.filled = False
        """Whether a command stands since the last operator."""
        self.can_end = True
        """Whether the list may end here: not after `&&`."""
        self.compound = False
        """Whether a loop, condition, group or function stands in it."""
        self.redirect = ""
        """A redirection that waits for its target."""
        self.test = False
        """Inside `[[ ]]`."""
        self.timed = False
        """After the word `time`."""
        self.loop = ""
        self.function = False
        """After the word `function`."""
        self.body = False
        """A function's body has to follow."""
        self.cases: list[str] = []
        self.heredocs: list[tuple[str, str, ScannedCommand]] = []
        self.open = ""
        """Brackets that are open in arithmetic."""


class ScannedCommand:
    """One simple command as written: spans of the text."""

    __slots__ = ("after", "assignments", "connector", "end", "frame", "input", "redirects", "start", "words")

    def __init__(self, start: int, frame: ScanFrame, connector: str) -> None:
        self.start = start
        self.end = start
        self.frame = frame
        self.connector = connector
        self.after = ""
        self.assignments: list[Span] = []
        self.words: list[Span] = []
        self.redirects: list[ScannedRedirect] = []
        self.input: list[str] = []
        """The bodies of its here documents."""


class NestedText(NamedTuple):
    """Shell text inside shell text: it is read on its own."""

    text: str
    frame: ScanFrame | None


class ShellScan:
    # fmt: off
    __slots__ = (
        "assigned", "backticks", "bodies", "commands", "doubts", "evaluated", "frames", "has_functions", "nested",
        "unsure",
    )
    # fmt: on

    def __init__(self) -> None:
        self.commands: list[ScannedCommand] = []
        self.frames: list[ScanFrame] = []
        self.nested: list[NestedText] = []
        self.backticks: list[Span] = []
        self.bodies: list[Span] = []
        """Bodies of here documents in which expansions happen."""
        self.unsure: list[str] = []
        """Why there may be commands that were not found, or that are none."""
        self.doubts: list[str] = []
        """Expansions that may run or change something."""
        self.assigned: set[str] = set()
        self.evaluated: set[str] = set()
        """Variables whose text is evaluated as arithmetic."""
        self.has_functions = False
