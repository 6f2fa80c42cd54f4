"""The real `kitbag` at a pseudo-terminal, in a world of its own."""

import contextlib
import sys
from collections.abc import Iterator

from conftest import World
from support.pseudo_terminal import PseudoTerminal

_ANSWERS_AT_ONCE = """
import sys
from kitbag.chat.terminal import forms
from kitbag.cli import main
forms.QUIET_SECONDS = 0.0
sys.argv[0] = "kitbag"
main()
"""
"""Without the time in which keys don't answer a question that has just appeared."""
_NOT_AT_A_TERMINAL = ("COLUMNS", "LINES", "NO_COLOR")


class Driven(PseudoTerminal):
    def __init__(self, world: World, *arguments: str, columns: int = 80, rows: int = 24, program: str = "") -> None:
        """`program`: Python code to run instead of `kitbag`."""
        command = [sys.executable, "-c", program or _ANSWERS_AT_ONCE]
        environment = {name: value for name, value in world.env.items() if name not in _NOT_AT_A_TERMINAL}
        environment["TERM"] = "xterm-256color"
        super().__init__([*command, *arguments], str(world.workspace), environment, columns, rows)


@contextlib.contextmanager
def chat(world: World, *arguments: str, columns: int = 80, rows: int = 24) -> Iterator[Driven]:
    """Ready to be typed into."""
    with Driven(world, *arguments, columns=columns, rows=rows) as driven:
        driven.until(lambda: any(line.startswith("> ") or line == ">" for line in driven.text().split("\n")))
        yield driven
