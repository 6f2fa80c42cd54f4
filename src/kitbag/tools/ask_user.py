"""AskUser: the model asks the user questions, with options to choose from.

Used by the agent loop. A UserAsker (dialogs/asker) shows the questions. Without one the tool is not
advertised and fails if called. The user may leave a question unanswered.
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, structs

from kitbag.errors import KitbagError
from kitbag.text.hidden_characters import collapse_whitespace, reveal_hidden
from kitbag.tools.base import (
    Arguments,
    Tool,
    ToolContext,
    ToolOutput,
    UserQuestion,
    error_output,
    load_description,
    text_output,
)

MAX_QUESTIONS: Final = 4
MAX_OPTIONS: Final = 10
_MAX_ANSWER_CHARS: Final = 20_000
_FIX: Final = "Decide yourself and state your assumptions in your answer."
_NO_ANSWER: Final = "no answer from the user; decide yourself and state your assumptions"


class QuestionOption(Arguments, frozen=True):
    label: Annotated[str, Meta(min_length=1, max_length=200, pattern=r"\S", description="1 to 5 words.")]
    description: Annotated[str, Meta(max_length=1_000, description="Meaning and trade-offs.")] = ""


class QuestionArguments(Arguments, frozen=True):
    question: Annotated[str, Meta(min_length=1, max_length=2_000, pattern=r"\S")]
    header: Annotated[str, Meta(max_length=60, description="Topic, one word.")] = ""
    options: Annotated[tuple[QuestionOption, ...], Meta(max_length=MAX_OPTIONS)] = ()
    multiSelect: Annotated[bool, Meta(description="Allow several answers.")] = False  # noqa: N815 - its name


class AskUserArguments(Arguments, frozen=True):
    questions: Annotated[list[QuestionArguments], Meta(min_length=1, max_length=MAX_QUESTIONS)]

    def __post_init__(self) -> None:
        """Raises ValueError, which msgspec reports as an argument error."""
        for asked in self.questions:
            labels = [collapse_whitespace(option.label).casefold() for option in asked.options]
            twice = next((label for label in labels if labels.count(label) > 1), "")
            if twice:
                raise ValueError(f"duplicate option {twice!r} in one question")


async def _ask_user(arguments: AskUserArguments, context: ToolContext) -> ToolOutput:
    if context.asker is None:
        return error_output("cannot ask the user: this run is not interactive", _FIX)
    questions = _user_questions(arguments)
    try:
        answers = await context.asker.ask(questions)
    except KitbagError as error:
        return error_output(f"could not ask the user: {error.problem}", _FIX)
    replies = [reveal_hidden(text).strip()[:_MAX_ANSWER_CHARS] for text in (*answers, *[""] * len(questions))]
    pairs = list(zip(questions, replies, strict=False))
    blocks = [f"{_visible_line(asked.text)}\n-> {text or _NO_ANSWER}" for asked, text in pairs]
    summary = "; ".join(collapse_whitespace(text)[:100] or "no answer" for _, text in pairs)
    shown = "\n".join(
        f"{_visible_line(asked.text)}\n  {collapse_whitespace(text) or '(no answer)'}" for asked, text in pairs
    )
    return structs.replace(text_output("\n\n".join(blocks), summary), details=shown)


def _user_questions(arguments: AskUserArguments) -> tuple[UserQuestion, ...]:
    return tuple(
        UserQuestion(
            text=asked.question,
            header=asked.header,
            options=tuple((option.label, option.description) for option in asked.options),
            multi_select=asked.multiSelect,
        )
        for asked in arguments.questions
    )


def questions_to_arguments(questions: tuple[UserQuestion, ...]) -> dict[str, Any]:
    """For a store; `parse_questions` reads it."""
    return {
        "questions": [
            {
                "question": asked.text,
                "header": asked.header,
                "options": [{"label": label, "description": description} for label, description in asked.options],
                "multiSelect": asked.multi_select,
            }
            for asked in questions
        ]
    }


def parse_questions(arguments: str) -> tuple[UserQuestion, ...]:
    """From JSON. Raises msgspec.MsgspecError."""
    return _user_questions(msgspec.json.decode(arguments, type=AskUserArguments))


def _visible_line(text: str) -> str:
    return collapse_whitespace(reveal_hidden(text))


ASK_USER = Tool(name="AskUser", description=load_description("AskUser"), arguments=AskUserArguments, run=_ask_user)
