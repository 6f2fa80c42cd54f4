"""AskUser: questions of the model to the person, with options to choose from.

Used by the loop. Whoever shows them is a PersonAsker: the terminal, the web; where there is none the tool is not
advertised, and says so if it is called all the same. No answer is an answer, too.
"""

from typing import Annotated, Final

from msgspec import Meta

from kitbag.errors import KitbagError
from kitbag.text.hidden_characters import one_line, reveal_hidden
from kitbag.tools.base import Arguments, Context, Outcome, PersonQuestion, Tool, answer, description, failure

MOST_QUESTIONS: Final = 4
MOST_OPTIONS: Final = 10
_LONGEST_ANSWER: Final = 20_000
_INSTEAD: Final = "Decide yourself, and say in your answer what you assumed."
_NO_ANSWER: Final = "the user did not answer; decide yourself, and say what you assumed"


class Option(Arguments, frozen=True):
    label: Annotated[str, Meta(min_length=1, max_length=200, pattern=r"\S", description="1 to 5 words.")]
    description: Annotated[str, Meta(max_length=1_000, description="What it means, or costs.")] = ""


class Asked(Arguments, frozen=True):
    question: Annotated[str, Meta(min_length=1, max_length=2_000, pattern=r"\S")]
    header: Annotated[str, Meta(max_length=60, description="What it is about, in a word.")] = ""
    options: Annotated[tuple[Option, ...], Meta(max_length=MOST_OPTIONS)] = ()
    multiSelect: Annotated[bool, Meta(description="Several may be chosen.")] = False  # noqa: N815 - its name


class AskArguments(Arguments, frozen=True):
    questions: Annotated[list[Asked], Meta(min_length=1, max_length=MOST_QUESTIONS)]

    def __post_init__(self) -> None:
        """Raises ValueError, which becomes an error of the arguments."""
        for asked in self.questions:
            labels = [one_line(option.label).casefold() for option in asked.options]
            twice = next((label for label in labels if labels.count(label) > 1), "")
            if twice:
                raise ValueError(f"two options of one question are called {twice!r}")


async def _ask(arguments: AskArguments, context: Context) -> Outcome:
    if context.person is None:
        return failure("nobody can be asked in this run", _INSTEAD)
    questions = tuple(
        PersonQuestion(
            asked.question,
            asked.header,
            tuple((option.label, option.description) for option in asked.options),
            asked.multiSelect,
        )
        for asked in arguments.questions
    )
    try:
        answers = await context.person.ask(questions)
    except KitbagError as error:
        return failure(f"nobody can be asked: {error.problem}", _INSTEAD)
    given = [reveal_hidden(text).strip()[:_LONGEST_ANSWER] for text in (*answers, *[""] * len(questions))]
    pairs = list(zip(questions, given, strict=False))
    told = [f"{_plain(asked.text)}\n-> {text or _NO_ANSWER}" for asked, text in pairs]
    summary = "; ".join(one_line(text)[:100] or "no answer" for _, text in pairs)
    shown = "\n".join(f"{_plain(asked.text)}\n  {one_line(text) or '(no answer)'}" for asked, text in pairs)
    return answer("\n\n".join(told), summary)._replace(details=shown)


def _plain(text: str) -> str:
    return one_line(reveal_hidden(text))


ASK_USER = Tool("AskUser", description("AskUser"), AskArguments, _ask)
