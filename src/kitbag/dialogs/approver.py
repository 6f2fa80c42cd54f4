"""Asks the user to approve a tool call: what is shown, the choices, and what each answer means.

Used by the CLI and the chat, with a Dialog of their own. Enter alone never allows a call, and leaving the question
denies it and, in the chat, stops the turn. MCP and background tasks ask in other ways.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from kitbag.dialogs.change_preview import NO_PREVIEW, SHOWN_IN_DIFF, ChangePreview, preview_change
from kitbag.dialogs.form import Dialog, Form, FormAnswer, FormOption, FormSequence
from kitbag.errors import KitbagError, UsageError
from kitbag.permissions.approvals.approval import ApprovalAnswer, ApprovalRequest, approvable_checks
from kitbag.permissions.approvals.question_view import MAX_ARGUMENT_CHARACTERS, ApprovalView, build_approval_view
from kitbag.permissions.rules.rule import parse_rule
from kitbag.views.blocks import Block, DiffBlock, LinesBlock, Span, Tone, VerbatimBlock

_PLAIN_PATH: Final = re.compile(r"[\w./@+-]+", re.ASCII)
_CANCEL_SECONDS: Final = 2.0
_MAX_SUMMARY: Final = 160
_RULE_EXAMPLE: Final = "Bash(make test:*)"


class ApprovalStyle(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between UIs. The meaning of an answer does not."""

    asks_why: bool = False
    """After `no`, ask for a reason; otherwise that is a choice of its own."""
    leaving_interrupts: bool = False
    """Leaving the question also stops the turn."""
    left_reason: str = ""
    """The result for the model if the user leaves the question; empty: the same as after `no`."""


DEFAULT_STYLE: Final = ApprovalStyle()


class NotAnsweredError(KitbagError):
    """Not a denial: no user can answer."""


class DialogApprover:
    """Implements Approver."""

    one_at_a_time = True

    def __init__(
        self, dialog: Dialog, style: ApprovalStyle = DEFAULT_STYLE, on_leave: Callable[[], None] | None = None
    ) -> None:
        """`on_leave` asks for the turn to be canceled, if leaving interrupts."""
        self._dialog = dialog
        self._style = style
        self._on_leave = on_leave

    async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
        """Raises KitbagError if there is no user to ask."""
        answer = await self._dialog.run(approval_forms(question, self._style))
        if answer is None and self._dialog.no_user_reason:
            raise NotAnsweredError(self._dialog.no_user_reason)
        if answer is None and self._style.leaving_interrupts and self._on_leave is not None:
            self._on_leave()
            with contextlib.suppress(TimeoutError):  # a denial would let the model continue first
                await asyncio.wait_for(asyncio.Event().wait(), _CANCEL_SECONDS)
        return answer or ApprovalAnswer(choice="deny", reason=self._style.left_reason)


def approval_forms(
    question: ApprovalRequest, style: ApprovalStyle = DEFAULT_STYLE, *, can_allow: bool = True, can_wait: bool = False
) -> FormSequence[ApprovalAnswer | None]:
    """Asks until there is an answer; None if the user leaves. Without `can_allow` the call can only be denied.
    `can_wait`: a question that was left is asked again later."""
    form = approval_form(question, style, can_allow=can_allow, can_wait=can_wait)
    while True:
        form_answer = yield form
        if form_answer is None:
            return None
        if can_allow or not {"y", "s", "a", "r"} & {*form_answer.keys}:
            answer = yield from _complete_answer(question, style, form_answer, form.summary)
            if answer is not None:
                return answer
        # Ask again without repeating the blocks above, unless the user wants the full text.
        if "e" in form_answer.keys:
            above = _request_blocks(build_approval_view(question, max_characters=None))
            form = msgspec.structs.replace(form, above=above, summary="")
        else:
            form = msgspec.structs.replace(form, above=())


def approval_form(
    question: ApprovalRequest, style: ApprovalStyle = DEFAULT_STYLE, *, can_allow: bool = True, can_wait: bool = False
) -> Form:
    view = build_approval_view(question, MAX_ARGUMENT_CHARACTERS)
    changes = preview_change(question)
    options = [*(_allow_options(question) if can_allow else ()), FormOption(key="n", label="deny")]
    if not style.asks_why:
        options.append(FormOption(key="w", label="deny and give a reason", continues=True))
    if changes.diff or view != build_approval_view(question, max_characters=None):
        label = "show the exact arguments" if changes.diff else "show everything"
        options.append(FormOption(key="e", label=label, continues=True))
    return Form(
        prompt="Allow this tool call?" if can_allow else "This tool call can only be denied.",
        options=tuple(options),
        above=_request_blocks(view, changes),
        cancel_effect="answer later" if can_wait else "interrupt" if style.leaving_interrupts else "deny",
        summary=_summary(question, view),
    )


def _summary(question: ApprovalRequest, view: ApprovalView) -> str:
    argument = view.arguments[0][1][0] if view.arguments else ""
    return f"{question.tool} {argument}".strip()[:_MAX_SUMMARY]


def _allow_options(question: ApprovalRequest) -> list[FormOption]:
    rule, checks = question.suggestion, sorted(approvable_checks(question.decision))
    only_checks = all(part.check for part in question.decision.parts if part.effect == "ask")
    again = "allow" if only_checks else "allow once; without asking again"
    options = [FormOption(key="y", label=f"{again} for this session: {', '.join(checks)}" if checks else "allow once")]
    if not checks:
        exactly = f"`{rule}`" if rule else "exactly this call"
        options.append(FormOption(key="s", label=f"allow {exactly} for this session"))
    if rule:
        options.append(FormOption(key="a", label=f"always allow `{rule}` (adds it to your settings)"))
    label = "allow and add another rule" if rule else "allow and add a rule"
    return [*options, FormOption(key="r", label=label, continues=True)]


def parse_answer(question: ApprovalRequest, form_answer: FormAnswer) -> ApprovalAnswer | None:
    """None: not an answer yet; the user wants more details, or must enter text."""
    text = form_answer.text.strip()
    match form_answer.keys:
        case ("y",):
            return ApprovalAnswer(choice="allow")
        case ("s",):
            return ApprovalAnswer(choice="allow", scope="session", rule=question.suggestion)
        case ("a",) if question.suggestion:
            return ApprovalAnswer(choice="allow", scope="rule", rule=question.suggestion)
        case ("r",) if text and not _rule_problem(text):
            return ApprovalAnswer(choice="allow", scope="rule", rule=text)
        case ("n",):
            return ApprovalAnswer(choice="deny", reason=text)
        case ("w",) if text:
            return ApprovalAnswer(choice="deny", reason=text)
        case _:
            return None


def _complete_answer(
    question: ApprovalRequest, style: ApprovalStyle, form_answer: FormAnswer, summary: str
) -> FormSequence[ApprovalAnswer | None]:
    """Asks for a rule or a reason in a second form, if the answer needs one. None: back to the question."""
    keys = form_answer.keys
    answer = parse_answer(question, form_answer)
    if keys == ("n",) and style.asks_why:
        text_answer = yield Form(prompt="Reason (optional):")
    elif answer is None and keys == ("r",):
        text_answer = yield from _rule_forms(question.suggestion or _exact_rule(question), summary)
    elif answer is None and keys == ("w",):
        text_answer = yield Form(
            prompt="Reason, or what to do instead:",
            free_text_hint="a message for the model",
            text_label="deny: ",
            cancel_effect="go back",
            summary=summary,
        )
    else:
        return answer
    return parse_answer(question, FormAnswer(keys, text_answer.text)) if text_answer is not None else None


def _rule_forms(text: str, summary: str) -> FormSequence[FormAnswer | None]:
    """Asks until the rule is valid; None if there is none."""
    prompt = "Rule to add to your settings:"
    while True:
        form_answer = yield Form(
            prompt=prompt,
            free_text_hint=f"a rule such as `{_RULE_EXAMPLE}`",
            initial_text=text,
            text_label="allow, rule added: ",
            accepts_text=lambda rule: bool(rule and not _rule_problem(rule)),
            cancel_effect="go back",
            summary=summary,
        )
        text = form_answer.text.strip() if form_answer is not None else ""
        problem = _rule_problem(text) if text else ""
        if not problem:
            return form_answer if text else None
        prompt = f"Not a valid rule: {problem}. Rule to add to your settings:"


def _exact_rule(question: ApprovalRequest) -> str:
    """A rule for exactly this command, to be edited; empty if there is none."""
    command = json.loads(question.arguments).get("command", "") if question.tool == "Bash" else ""
    is_plain = isinstance(command, str) and command.isprintable() and not set(command) & set("*()")
    rule = f"Bash({command})" if command and is_plain else ""
    return "" if not rule or _rule_problem(rule) else rule


def _rule_problem(text: str) -> str:
    """What is wrong with a rule that the user wrote, and the fix; empty if it is valid."""
    try:
        parse_rule(text, "allow", "", "user", "/")
    except UsageError as error:
        return f"{error.problem}; {error.fix}" if error.fix else error.problem
    return ""


# What is shown


def approval_blocks(question: ApprovalRequest) -> tuple[Block, ...]:
    """The whole request, with what Edit and Write would change as a diff."""
    return _request_blocks(build_approval_view(question, max_characters=None), preview_change(question))


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
    warnings = [f"the diff is incomplete: {changes.omitted}"] if changes.omitted else []
    warnings += view.warnings
    if warnings:
        blocks.append(_lines(["warnings:", *(f"  {warning}" for warning in warnings)], "warning"))
    return tuple(blocks)


def _lines(texts: Sequence[str], tone: Tone = "plain") -> LinesBlock:
    return LinesBlock(tuple((Span(text, tone),) for text in texts))
