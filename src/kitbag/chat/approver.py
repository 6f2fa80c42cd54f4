"""Asks the user of the chat to approve a tool call.

Used by start for the agent's own calls and by commands/tasks for those of background tasks. The choices come from
permissions/approvals/choices. Enter alone never allows a call, and canceling denies it.
"""

import re
from collections.abc import Sequence
from typing import Final

from kitbag.chat.change_preview import NO_PREVIEW, SHOWN_IN_DIFF, ChangePreview, preview_change
from kitbag.chat.ui import ChatUI, FlushEvents, Form, FormAnswer, FormOption, no_flush
from kitbag.errors import KitbagError
from kitbag.permissions.approvals.approval import ApprovalAnswer, ApprovalRequest
from kitbag.permissions.approvals.choices import RULE_EXAMPLE, RULE_PROMPT, answer_options, is_truncated, rule_problem
from kitbag.permissions.approvals.question_view import MAX_ARGUMENT_CHARACTERS, ApprovalView, build_approval_view
from kitbag.views.blocks import Block, DiffBlock, LinesBlock, NoticeBlock, Span, Tone, VerbatimBlock

_PLAIN_PATH: Final = re.compile(r"[\w./@+-]+", re.ASCII)
_LONGEST: Final = 1_000
DENY_ON_CANCEL: Final = ApprovalAnswer("deny")
"""The run continues, and the model is told that the user denied the call."""


class NotAnsweredError(KitbagError):
    """Not a denial: no interactive terminal."""


class ChatApprover:
    """Implements Approver."""

    one_at_a_time = True

    def __init__(self, ui: ChatUI, flush: FlushEvents = no_flush) -> None:
        self._face = ui
        self._shown = flush

    async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
        await self._shown()
        answer = await ask_approval(self._face, question)
        if answer is None and not self._face.can_ask:
            raise NotAnsweredError("the input is no terminal")
        return answer or DENY_ON_CANCEL


async def ask_approval(
    ui: ChatUI, question: ApprovalRequest, *, can_allow: bool = True, can_wait: bool = False
) -> ApprovalAnswer | None:
    """Runs the dialog up to an answer; None if the user cancels. Without `can_allow` the call can only be denied.
    `can_wait`: a canceled question is asked again later."""
    form = approval_form(question, can_allow=can_allow, can_wait=can_wait)
    while True:
        filled = await ui.ask(form)
        if filled is None:
            return None
        if can_allow or not {"y", "s", "r"} & {*filled.keys}:
            answer = parse_answer(question, filled) or await _answer_in_words(ui, question, filled)
            if answer is not None:
                return answer
        # Ask again without repeating the blocks above, unless the user wants the full text.
        form = form._replace(
            above=_above(build_approval_view(question, max_characters=None)) if "e" in filled.keys else ()
        )


def approval_form(question: ApprovalRequest, *, can_allow: bool = True, can_wait: bool = False) -> Form:
    found = build_approval_view(question, MAX_ARGUMENT_CHARACTERS)
    changes = preview_change(question)
    offered = [choice for choice in answer_options(question) if can_allow or choice.key == "n"]
    options = [FormOption(choice.key, choice.label) for choice in offered]
    options.append(FormOption("w", "no, and tell it why"))
    if changes.diff or is_truncated(question):
        options.append(FormOption("e", "show exactly what it was asked for" if changes.diff else "show all of it"))
    prompt = "Allow it?" if can_allow else "It can only be denied."
    leaving = "lets it wait" if can_wait else "is no"
    return Form(prompt, tuple(options), _above(found, changes), cancel_effect=leaving)


def parse_answer(question: ApprovalRequest, filled: FormAnswer) -> ApprovalAnswer | None:
    """None: not an answer yet; the user wants more details, or must enter text."""
    text = filled.text.strip()
    match filled.keys:
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


async def _answer_in_words(face: ChatUI, question: ApprovalRequest, filled: FormAnswer) -> ApprovalAnswer | None:
    """Asks for a rule or a reason in a second form. None: back to the question."""
    if filled.keys == ("r",):
        return await _ask_for_rule(face, question)
    if filled.keys == ("w",):
        reason = await face.ask(Form("Why not, or what to do instead:", free_text_hint="the model is told this"))
        return parse_answer(question, FormAnswer(("w",), reason.text)) if reason is not None else None
    return None


async def _ask_for_rule(face: ChatUI, question: ApprovalRequest) -> ApprovalAnswer | None:
    text, above = question.suggestion, ()
    while True:
        form = Form(
            f"{RULE_PROMPT.capitalize()}:", above=above, free_text_hint=f"such as `{RULE_EXAMPLE}`", initial_text=text
        )
        filled = await face.ask(form)
        text = filled.text.strip() if filled is not None else ""
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


def _above(found: ApprovalView, changes: ChangePreview = NO_PREVIEW) -> tuple[Block, ...]:
    """Arguments get blocks of their own, so that no line of them passes for one of ours. A truncated diff replaces no
    argument: those are shown as well, with their beginning and end."""
    blocks: list[Block] = [_lines(found.header[:1], "strong"), _lines(found.header[1:])]
    for name, value in found.arguments:
        if not changes.diff or changes.omitted or not _is_in_diff(name, value):
            blocks.append(VerbatimBlock("\n".join(value), name, exact=True))
    if changes.diff:
        blocks.append(DiffBlock(changes.diff, exact=True))
    blocks.append(_lines(found.reasons, "dim"))
    warnings = [f"the diff does not show all of it: {changes.omitted}"] if changes.omitted else []
    warnings += found.warnings
    if warnings:
        blocks.append(_lines(["look out:", *(f"  {warning}" for warning in warnings)], "warning"))
    return tuple(blocks)


def _lines(texts: Sequence[str], tone: Tone = "plain") -> LinesBlock:
    """Splits long lines, which a UI would truncate: the end matters here, such as the target of a symbolic link."""
    pieces = [text[at : at + _LONGEST] for text in texts for at in range(0, max(len(text), 1), _LONGEST)]
    return LinesBlock(tuple((Span(piece, tone),) for piece in pieces))
