"""Questions to the user as values: a `Form`, its answer, a sequence of forms, and the `Dialog` that asks them.

Used by approver, asker and the chat's own questions. Implemented by cli/terminal_dialog and chat/dialog, which draw
forms in their own ways and sanitize every text.
"""

from collections.abc import Callable, Generator
from typing import Generic, Protocol, TypeVar

import msgspec

from kitbag.views.blocks import Block, LinesBlock, Span, StyledLine

T = TypeVar("T")


class FormOption(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    """The letter or number that selects this option, unique in its form."""
    label: str
    note: str = ""
    preview: str = ""
    """Shown below the options while this one is marked, in a UI that redraws."""
    continues: bool = False
    """Another form follows, and this choice alone is no answer yet."""


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the user. The blocks in `above` are shown first and stay in the scrollback, unless the form
    has a summary."""

    prompt: str
    options: tuple[FormOption, ...] = ()
    above: tuple[Block, ...] = ()
    free_text_hint: str = ""
    """If not empty, free text is a valid answer; the hint says what to enter."""
    searchable: bool = False
    """A UI that redraws narrows the options while the user types, by words in label, note and preview; other UIs take
    the words as free text."""
    multiple: bool = False
    default: str = ""
    """Key of the preselected option. Without it, Enter alone selects nothing, so that nothing is allowed by
    accident."""
    initial_text: str = ""
    """Initial content of the free-text input."""
    text_label: str = ""
    """Stands before a free text in the line that stays and says what it means, as in "deny: "."""
    accepts_text: Callable[[str], bool] = bool
    """False: another form follows."""
    secret: bool = False
    """The input is neither echoed nor stored."""
    cancel_effect: str = ""
    """Shown after the cancel key, as in "Esc to deny". Empty: "cancel"."""
    summary: str = ""
    """If not empty, a UI that redraws shows `above` only while the form is open; one line with the summary and the
    answer stays."""


class FormAnswer(msgspec.Struct, frozen=True):
    keys: tuple[str, ...] = ()
    text: str = ""


def answer_block(form: Form, answer: FormAnswer | None) -> LinesBlock:
    """The answer as one line for the scrollback."""
    line = _answer_line(form, answer)
    return LinesBlock((line,), one_row=bool(form.summary))


def _answer_line(form: Form, answer: FormAnswer | None) -> StyledLine:
    prompt = " ".join((form.summary or form.prompt).split())
    head = (Span("? ", "accent"), Span(prompt[:200]), Span("  "))
    if answer is None:
        return (*head, Span("canceled", "dim"))
    labels = [option.label for option in form.options if option.key in answer.keys]
    if answer.text:
        labels.append("••••••" if form.secret else form.text_label + " ".join(answer.text.split())[:200])
    return (*head, Span(", ".join(labels) or "none", "strong"))


def continues(form: Form, answer: FormAnswer | None) -> bool:
    """Whether another form of the same question follows."""
    if answer is None:
        return form.cancel_effect == "go back"
    if not form.options and form.text_label:
        return not form.accepts_text(answer.text.strip())
    return any(option.continues and option.key in answer.keys for option in form.options)


class SequenceResult(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    value: T


FormSequence = Generator[Form, FormAnswer | None, T]
"""Forms that depend on earlier answers: yields one, is sent its answer (None: the user left it), returns a result."""


def next_step(forms: FormSequence[T], answer: FormAnswer | None = None) -> Form | SequenceResult[T]:
    """The next form, or the result. `answer` is that of the previous form; the first call has none."""
    try:
        return forms.send(answer)
    except StopIteration as end:
        return SequenceResult(value=end.value)


class Dialog(Protocol):
    """Where the user is asked: a terminal, the chat, a web page."""

    @property
    def no_user_reason(self) -> str:
        """Why no user can answer, in which case forms are shown and left at once; empty if one can."""
        ...

    async def run(self, forms: FormSequence[T]) -> T | None:
        """Asks the forms of one question. None: the user left all of them. Input from before the question does not
        answer it. Raises KitbagError if there is no user to ask. Canceling removes the form."""
        ...
