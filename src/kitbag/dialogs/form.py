"""Questions to the user as values: a `Form`, its answer, and sequences of forms.

Used by approver, asker and the chat's own questions. Implemented by every UI, which draws a form in its own way and
sanitizes every text; a form knows nothing of terminals.
"""

from typing import NamedTuple

import msgspec

from kitbag.views.blocks import Block


class FormOption(NamedTuple):
    key: str
    """The letter or number that selects this option, unique in its form."""
    label: str
    note: str = ""


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the user. The blocks in `above` are shown first and stay in the scrollback."""

    prompt: str
    options: tuple[FormOption, ...] = ()
    above: tuple[Block, ...] = ()
    free_text_hint: str = ""
    """If not empty, free text is a valid answer; the hint says what to enter."""
    multiple: bool = False
    default: str = ""
    """Key of the preselected option. Without it, Enter alone selects nothing, so that nothing is allowed by
    accident."""
    initial_text: str = ""
    """Initial content of the free-text input."""
    secret: bool = False
    """The input is neither echoed nor stored."""
    cancel_effect: str = ""
    """Shown after the cancel key, as in "Esc is no". Empty: canceling has no special effect."""


class FormAnswer(NamedTuple):
    keys: tuple[str, ...] = ()
    text: str = ""
