"""How a question of the model is headed, and what choosing options of it means, wherever it is put to the person.

Used by the terminal and the chat, each of which shows it in its own way.
"""

from collections.abc import Iterable

from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.tools.base import UserQuestion


def question_heading(question: UserQuestion, number: int, count: int) -> str:
    """It says whose words follow."""
    about = f", about {collapse_whitespace(question.header)}" if question.header.strip() else ""
    return f"The model asks{about}{f' ({number} of {count})' if count > 1 else ''}:"


def selected_labels(question: UserQuestion, numbers: Iterable[int]) -> str:
    """The answer that the model gets: what the options are called, counted from 1."""
    return ", ".join(collapse_whitespace(question.options[number - 1][0]) for number in dict.fromkeys(numbers))
