"""The placeholder for text of a command that is known only at run time.

Used by wrappers and parts, which build forms of commands with it, and by the rules that match them. A module of its
own, because rules are read at every start and commands are not analyzed then.
"""

from typing import Final

UNKNOWN_TEXT: Final = "\ufffc"
