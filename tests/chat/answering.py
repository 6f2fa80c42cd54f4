"""A face that keeps what it is shown and answers forms from a list, as a person would who knows what is coming."""

from collections.abc import Callable, Sequence
from typing import Any

from kitbag.chat.configured_keys import list_keys
from kitbag.chat.ui import ChatStatus, ExitRequested, LiveState, Panel, Submitted, UserAction
from kitbag.dialogs.form import Form, FormAnswer
from kitbag.views.blocks import (
    Block,
    DiffBlock,
    FieldsBlock,
    LinesBlock,
    NoticeBlock,
    TableBlock,
    VerbatimBlock,
    text_block,
)

Answer = str | FormAnswer | None | Callable[[Form], FormAnswer | None]


class AnsweringFace:
    is_plain = True
    keeps_everything = False
    keys: tuple[tuple[str, str], ...] = list_keys()
    can_ask = True

    def __init__(self, *answers: Answer) -> None:
        """A text chooses the option with that key, or is written where the form has none; None leaves the form."""
        self.answers = list(answers)
        self.blocks: list[Block] = []
        self.forms: list[Form] = []
        self.redact: Callable[[str], str] = lambda text: text

    def show(self, *blocks: Block) -> None:
        self.blocks += blocks

    def hint(self, text: str) -> None:
        self.show(text_block(text))

    def unfold(self, expanded: Sequence[Block]) -> None:
        self.show(*expanded)

    def fold(self) -> None: ...

    async def copy(self, text: str) -> bool:
        self.copied = text
        return True

    def draw(self, live: LiveState, status: ChatStatus) -> None:
        del live, status

    async def next(self) -> UserAction:
        return ExitRequested()

    async def ask(self, form: Form) -> FormAnswer | None:
        self.forms.append(form)
        self.show(*form.above)
        assert self.answers, f"nobody has an answer to: {form.prompt}\n{self.seen()}"
        answer = self.answers.pop(0)
        if callable(answer):
            return answer(form)
        if not isinstance(answer, str):
            return answer
        keys = [option.key for option in form.options]
        if answer in keys:
            return FormAnswer((answer,))
        assert form.free_text_hint or form.secret, f"{answer!r} is none of {keys} in: {form.prompt}"
        return FormAnswer(text=answer)

    async def open(self, panel: Panel) -> bool:
        del panel
        return False

    def insert(self, *submissions: Submitted) -> None: ...

    def clear(self) -> None: ...

    async def close(self) -> None: ...

    def seen(self) -> str:
        """Everything that was shown, as text."""
        return "\n".join(text_of(block) for block in self.blocks)

    def everything(self) -> str:
        """With prompts, options and what already stood in lines."""
        return f"{self.seen()}\n{self.forms!r}"


def text_of(block: Block) -> str:
    match block:
        case LinesBlock():
            return "\n".join("".join(span.text for span in line) for line in block.lines)
        case VerbatimBlock():
            return "\n".join([block.title, *(f"│ {line}" for line in block.text.split("\n"))])
        case DiffBlock():
            return block.text
        case NoticeBlock():
            return f"{block.severity}: {block.text} {block.fix}"
        case TableBlock():
            return "\n".join("  ".join(row) for row in (block.headers, *block.rows))
        case FieldsBlock():
            return "\n".join(f"{label}  {value}" for label, value in block.pairs if value)
        case _:
            return repr(block)


def option(form: Form, key: str) -> Any:
    return next((one for one in form.options if one.key == key), None)
