"""Asks the user the model's questions (tool AskUser), one after another.

Used by the CLI and the chat, with a Dialog of their own. The model's text gets a block of its own, so that it can't
pass for ours. Leaving a question skips the rest; earlier answers count.
"""

import msgspec

from kitbag.dialogs.form import Dialog, Form, FormAnswer, FormOption, FormSequence
from kitbag.errors import KitbagError
from kitbag.permissions.approvals.approval import ApprovalAnswer, ApprovalRequest
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.tools.base import UserQuestion
from kitbag.views.blocks import VerbatimBlock, text_block


class DialogAsker:
    """Implements UserAsker."""

    def __init__(self, dialog: Dialog) -> None:
        self._dialog = dialog

    async def ask(self, questions: tuple[UserQuestion, ...]) -> tuple[str, ...]:
        """Raises KitbagError if there is no user to ask."""
        answers: list[str] = []
        for number, question in enumerate(questions, 1):
            try:
                answer = await self._dialog.run(_question_forms(question, number, len(questions)))
            except KitbagError:
                if not answers:
                    raise
                break  # the user is gone, as if they had left the question
            if answer is None:
                break
            answers.append(answer)
        return (*answers, *[""] * (len(questions) - len(answers)))


def _question_forms(question: UserQuestion, number: int, count: int) -> FormSequence[str | None]:
    form_answer = yield question_form(question, number, count)
    return format_answer(question, form_answer) if form_answer is not None else None


def answer_forms(request: ApprovalRequest) -> FormSequence[ApprovalAnswer | None]:
    """For the questions of a background agent. None: the user left all of them, and they stay. Raises
    msgspec.MsgspecError for a request that is none of AskUser."""
    from kitbag.tools.ask_user import parse_questions

    questions = parse_questions(request.arguments)
    answers: list[str] = []
    for number, question in enumerate(questions, 1):
        form = question_form(question, number, len(questions))
        asked_by = text_block(f"{request.asked_by}:", "dim")
        form_answer = yield msgspec.structs.replace(form, above=(asked_by, *form.above), cancel_effect="answer later")
        if form_answer is None:
            if not answers:
                return None
            break
        answers.append(format_answer(question, form_answer))
    return ApprovalAnswer(choice="allow", answers=(*answers, *[""] * (len(questions) - len(answers))))


def question_form(question: UserQuestion, number: int = 1, count: int = 1) -> Form:
    options = tuple(
        FormOption(key=str(index), label=collapse_whitespace(label), note=description if description.strip() else "")
        for index, (label, description) in enumerate(question.options, 1)
    )
    multiple = question.multi_select and bool(options)
    return Form(
        prompt="Your answer (one or more):" if multiple else "Your answer:",
        options=options,
        above=(text_block(_heading(question, number, count), "strong"), VerbatimBlock(question.text.strip())),
        free_text_hint="your own answer",
        multiple=multiple,
        cancel_effect="skip",
    )


def _heading(question: UserQuestion, number: int, count: int) -> str:
    """Says that the text that follows is the model's."""
    about = f" about {collapse_whitespace(question.header)}" if question.header.strip() else ""
    return f"The model asks{about}{f' ({number} of {count})' if count > 1 else ''}:"


def format_answer(question: UserQuestion, form_answer: FormAnswer) -> str:
    """The labels of the selected options and the free text."""
    labels = [collapse_whitespace(question.options[int(key) - 1][0]) for key in dict.fromkeys(form_answer.keys)]
    return "; ".join(part for part in (", ".join(labels), form_answer.text.strip()) if part)
