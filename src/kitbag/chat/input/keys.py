"""What the keys of the terminal do, as /help lists it. Used by the terminal's and the plain UI."""

from typing import Final

TERMINAL_KEYS: Final[tuple[tuple[str, str], ...]] = (
    ("Enter", "send; while the agent is working, steer it: it gets the message after its running tool calls"),
    ("Tab", "while the agent is working: queue the message until the agent is done"),
    ("Alt-Enter", "insert a line break"),
    ("! prefix", "run a command in your shell, as in `!git status`"),
    ("Esc", "interrupt the agent and send pending messages; changes so far are kept"),
    ("Esc Esc", "at an empty prompt: rewind to an earlier message"),
    ("Ctrl-C", "interrupt the agent, or clear the input; press twice to exit"),
    ("Shift-Tab", "cycle the permission mode: default, acceptEdits, plan"),
    ("Ctrl-B", "move the running command or agent to the background"),
    ("Ctrl-O", "expand or collapse tool results and thinking"),
    ("Up", "take back the last pending message, or recall earlier input"),
    ("Ctrl-R", "search the input history"),
    ("Ctrl-V", "paste an image from the clipboard"),
    ("Ctrl-G", "edit the message in $EDITOR"),
)
