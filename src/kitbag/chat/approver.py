"""Asks the user of the chat to approve a tool call.

Used by start for the agent's own calls and by commands/tasks for those of background tasks. The choices come from
permissions/approvals/choices. Enter alone never allows a call, and canceling denies it.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from kitbag.chat.change_preview import NO_PREVIEW, SHOWN_IN_DIFF, ChangePreview, preview_change
from kitbag.chat.ui import ChatUI, FlushEvents, no_flush
from kitbag.dialogs.form import Form, FormAnswer, FormOption
from kitbag.errors import KitbagError
from kitbag.permissions.approvals.approval import ApprovalAnswer, ApprovalRequest
from kitbag.permissions.approvals.choices import RULE_EXAMPLE, RULE_PROMPT, answer_options, is_truncated, rule_problem
from kitbag.permissions.approvals.question_view import MAX_ARGUMENT_CHARACTERS, ApprovalView, build_approval_view
from kitbag.views.blocks import Block, DiffBlock, LinesBlock, NoticeBlock, Span, Tone, VerbatimBlock

_PLAIN_PATH: Final = re.compile(r"[\w./@+-]+", re.ASCII)
_MAX_LINE_LENGTH: Final = 1_000
DENY_ON_CANCEL: Final = ApprovalAnswer("deny")
"""The run continues, and the model is told that the user denied the call."""


class NotAnsweredError(KitbagError):
    """Not a denial: no interactive terminal."""


class ChatApprover:
    """Implements Approver."""

    one_at_a_time = True

    def __init__(self, ui: ChatUI, flush: FlushEvents = no_flush) -> None:
        self._ui = ui
        self._flush = flush

    async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
        await self._flush()
        answer = await ask_approval(self._ui, question)
        if answer is None and not self._ui.can_ask:
            raise NotAnsweredError("the input is no terminal")
        return answer or DENY_ON_CANCEL


async def ask_approval(
    ui: ChatUI, question: ApprovalRequest, *, can_allow: bool = True, can_wait: bool = False
) -> ApprovalAnswer | None:
    """Runs the dialog up to an answer; None if the user cancels. Without `can_allow` the call can only be denied.
    `can_wait`: a canceled question is asked again later."""
    form = approval_form(question, can_allow=can_allow, can_wait=can_wait)
    while True:
        form_answer = await ui.ask(form)
        if form_answer is None:
            return None
        if can_allow or not {"y", "s", "r"} & {*form_answer.keys}:
            answer = parse_answer(question, form_answer) or await _ask_for_text(ui, question, form_answer)
            if answer is not None:
                return answer
        # Ask again without repeating the blocks above, unless the user wants the full text.
        form = msgspec.structs.replace(
            form,
            above=_request_blocks(build_approval_view(question, max_characters=None))
            if "e" in form_answer.keys
            else (),
        )


def approval_form(question: ApprovalRequest, *, can_allow: bool = True, can_wait: bool = False) -> Form:
    view = build_approval_view(question, MAX_ARGUMENT_CHARACTERS)
    changes = preview_change(question)
    choices = [choice for choice in answer_options(question) if can_allow or choice.key == "n"]
    options = [FormOption(choice.key, choice.label) for choice in choices]
    options.append(FormOption("w", "no, and tell it why"))
    if changes.diff or is_truncated(question):
        options.append(FormOption("e", "show exactly what it was asked for" if changes.diff else "show all of it"))
    prompt = "Allow it?" if can_allow else "It can only be denied."
    cancel_effect = "lets it wait" if can_wait else "is no"
    return Form(
        prompt=prompt, options=tuple(options), above=_request_blocks(view, changes), cancel_effect=cancel_effect
    )


def parse_answer(question: ApprovalRequest, form_answer: FormAnswer) -> ApprovalAnswer | None:
    """None: not an answer yet; the user wants more details, or must enter text."""
    text = form_answer.text.strip()
    match form_answer.keys:
        case ("y",):
            return ApprovalAnswer("allow")
        case ("s",):
            return ApprovalAnswer("allow", "session", question.suggestion)
        case ("r",) if text and not rule_problem(text):
            return ApprovalAnswer("allow", "rule", text)
        case ("n",):
            return ApprovalAnswer("deny", reason=text)
        case ("w",) if text:
            return ApprovalAnswer("deny", reason=text)
        case _:
            return None


async def _ask_for_text(ui: ChatUI, question: ApprovalRequest, form_answer: FormAnswer) -> ApprovalAnswer | None:
    """Asks for a rule or a reason in a second form. None: back to the question."""
    if form_answer.keys == ("r",):
        return await _ask_for_rule(ui, question)
    if form_answer.keys == ("w",):
        reason = await ui.ask(Form(prompt="Why not, or what to do instead:", free_text_hint="the model is told this"))
        return parse_answer(question, FormAnswer(("w",), reason.text)) if reason is not None else None
    return None


async def _ask_for_rule(ui: ChatUI, question: ApprovalRequest) -> ApprovalAnswer | None:
    text, above = question.suggestion, ()
    while True:
        form = Form(
            prompt=f"{RULE_PROMPT.capitalize()}:",
            above=above,
            free_text_hint=f"such as `{RULE_EXAMPLE}`",
            initial_text=text,
        )
        form_answer = await ui.ask(form)
        text = form_answer.text.strip() if form_answer is not None else ""
        if not text:
            return None
        problem = rule_problem(text)
        if not problem:
            return parse_answer(question, FormAnswer(("r",), text))
        above = (NoticeBlock("error", problem),)


def _is_in_diff(name: str, value: list[str]) -> bool:
    """Whether the diff shows the whole argument. Its header shows the path, but only plain characters are unambiguous
    there."""
    if name == "file_path":
        return len(value) == 1 and _PLAIN_PATH.fullmatch(value[0]) is not None
    return name.removesuffix(" (JSON)") in SHOWN_IN_DIFF


def _request_blocks(view: ApprovalView, changes: ChangePreview = NO_PREVIEW) -> tuple[Block, ...]:
    """Arguments get blocks of their own, so that no line of them passes for one of ours. A truncated diff replaces no
    argument: those are shown as well, with their beginning and end."""
    blocks: list[Block] = [_lines(view.header[:1], "strong"), _lines(view.header[1:])]
    for name, value in view.arguments:
        if not changes.diff or changes.omitted or not _is_in_diff(name, value):
            blocks.append(VerbatimBlock("\n".join(value), name, exact=True))
    if changes.diff:
        blocks.append(DiffBlock(changes.diff, exact=True))
    blocks.append(_lines(view.reasons, "dim"))
    warnings = [f"the diff does not show all of it: {changes.omitted}"] if changes.omitted else []
    warnings += view.warnings
    if warnings:
        blocks.append(_lines(["look out:", *(f"  {warning}" for warning in warnings)], "warning"))
    return tuple(blocks)


def _lines(texts: Sequence[str], tone: Tone = "plain") -> LinesBlock:
    """Splits long lines, which a UI would truncate: the end matters here, such as the target of a symbolic link."""
    parts = [text[at : at + _MAX_LINE_LENGTH] for text in texts for at in range(0, max(len(text), 1), _MAX_LINE_LENGTH)]
    return LinesBlock(tuple((Span(part, tone),) for part in parts))
