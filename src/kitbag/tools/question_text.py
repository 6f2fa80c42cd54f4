"""The heading of a model's question and the answer that selected options stand for.

Used by the terminal and the chat, which show questions in their own ways.
"""

from collections.abc import Iterable

from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.tools.base import UserQuestion


def question_heading(question: UserQuestion, number: int, count: int) -> str:
    """Says that the text that follows is the model's."""
    about = f", about {collapse_whitespace(question.header)}" if question.header.strip() else ""
    return f"The model asks{about}{f' ({number} of {count})' if count > 1 else ''}:"


def selected_labels(question: UserQuestion, numbers: Iterable[int]) -> str:
    """The answer for the model: the labels of the selected options, numbered from 1."""
    return ", ".join(collapse_whitespace(question.options[number - 1][0]) for number in dict.fromkeys(numbers))
