"""Checks the model calls of a session: do sums agree with the provider, can every request be reproduced, and what broke
the provider's cache.

Used by `kitbag context check` and the web UI; uses context_summaries and context_diff.
"""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, Final, Literal

import msgspec

from kitbag.messages import Usage
from kitbag.runtime.context_calls import SessionContext, list_unknown
from kitbag.runtime.context_diff import diff_calls, seconds_between
from kitbag.runtime.context_summaries import CallSummary, summarize_calls
from kitbag.store.redaction import REDACTED
from kitbag.text.human_format import format_cost, format_count, format_duration

_MIN_CACHED: Final = 1_024
"""Tokens: providers cache no shorter prefix."""
_CACHE_SECONDS: Final = 300.0
"""How long a provider keeps an unused prefix at least."""
_MAX_DEVIATION: Final = 0.25
"""Of a call's residual from that of the other calls, as a share of the request."""
_MIN_DEVIATION: Final = 300
"""Tokens."""
_COST_TOLERANCE: Final = 0.01


class ContextFinding(msgspec.Struct, frozen=True, kw_only=True):
    severity: Literal["problem", "note"]
    code: Literal["bytes", "sum", "residual", "cost", "break", "cache", "unknown", "damaged"]
    call: int
    """0: of the whole session."""
    text: str

    def to_json(self) -> dict[str, Any]:
        return {"severity": self.severity, "code": self.code, "call": self.call, "text": self.text}


class ContextCheck(msgspec.Struct, frozen=True, kw_only=True):
    calls: int
    exact: int
    """Calls whose request is reproduced byte for byte, as far as the journal can tell."""
    counted: int
    estimated: int
    """Input tokens of all calls that the provider counted, by it and by Kitbag."""
    predicted: int
    reported: int
    """Cached tokens of these calls."""
    findings: tuple[ContextFinding, ...]

    @property
    def problems(self) -> list[ContextFinding]:
        return [finding for finding in self.findings if finding.severity == "problem"]

    def to_json(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "exact": self.exact,
            "counted": self.counted,
            "estimated": self.estimated,
            "predicted_cached": self.predicted,
            "reported_cached": self.reported,
            "problems": len(self.problems),
            "findings": [finding.to_json() for finding in self.findings],
        }


def check_calls(context: SessionContext) -> ContextCheck:
    summaries = summarize_calls(context)
    counted = [one for one in summaries if _is_counted(one)]
    uses_cache = any(one.call.usage.cache_read or one.call.usage.cache_write for one in counted)
    ratio = median([one.call.usage.total_input / one.tokens for one in counted] or [1.0])
    findings = list(_check_session(context))
    for one in summaries:
        findings += _check_request(context, one)
        if _is_counted(one) and not one.difference and one.call.tools is not None:
            findings += _check_counts(context, one, ratio)
        findings += _check_cache(context, one, uses_cache=uses_cache)
    return ContextCheck(
        calls=len(summaries),
        exact=sum(one.difference == 0 for one in summaries),
        counted=sum(one.call.usage.total_input for one in counted),
        estimated=sum(one.tokens for one in counted),
        predicted=sum(one.predicted or 0 for one in summaries),
        reported=sum(one.call.usage.cache_read for one in counted),
        findings=tuple(findings),
    )


def _is_counted(one: CallSummary) -> bool:
    return bool(one.call.usage.total_input and one.tokens)


def _check_session(context: SessionContext) -> Iterator[ContextFinding]:
    history = context.history
    for warning in history.session.warnings:
        yield ContextFinding(severity="problem", code="damaged", call=0, text=warning)
    totals = history.session.totals
    usage = sum((call.usage for call in history.calls), start=Usage())
    if history.origin is None and usage != totals.usage:
        text = f"the calls add up to {usage.total_input:,} input tokens, the session to {totals.usage.total_input:,}"
        yield ContextFinding(severity="problem", code="sum", call=0, text=text)


def _check_request(context: SessionContext, one: CallSummary) -> Iterator[ContextFinding]:
    call = one.call
    if one.difference:
        redacted = any(REDACTED in piece.text for piece in context.request_pieces(call))
        text = f"the request had {abs(one.difference):,} bytes {'more' if one.difference > 0 else 'less'} than the"
        text += " journal reproduces: it redacts secrets" if redacted else " journal reproduces"
        yield ContextFinding(severity="note" if redacted else "problem", code="bytes", call=call.number, text=text)
    elif call.tools is None:
        text = "; ".join(list_unknown(call))
        yield ContextFinding(severity="note", code="unknown", call=call.number, text=text)


def _check_counts(context: SessionContext, one: CallSummary, ratio: float) -> Iterator[ContextFinding]:
    call, expected = one.call, one.tokens * ratio
    if abs(call.usage.total_input - expected) > max(_MIN_DEVIATION, _MAX_DEVIATION * expected):
        counts = f"the provider counted {call.usage.total_input:,} tokens; {round(expected):,} were expected"
        text = f"unexplained residual: {counts} from its other counts"
        yield ContextFinding(severity="problem", code="residual", call=call.number, text=text)
    now = context.model_info(call).cost(call.usage)
    if now is not None and call.cost is not None and abs(now - call.cost) > max(_COST_TOLERANCE * call.cost, 1e-6):
        text = f"recorded as {format_cost(call.cost)}, and {format_cost(now)} at current prices"
        yield ContextFinding(severity="note", code="cost", call=call.number, text=text)


def _check_cache(context: SessionContext, one: CallSummary, *, uses_cache: bool) -> Iterator[ContextFinding]:
    if one.before is None:
        return
    number, reported = one.call.number, one.call.usage.cache_read
    if one.is_broken:
        diff = diff_calls(context, one.before, one.call)
        if (broken := diff.divergence) is not None:
            place = f"{broken.kind} {broken.name}".strip()
            again = format_count(max(one.tokens - diff.shared_tokens, 0), "token")
            where = f"the cache broke at byte {broken.offset:,}, in {place}"
            text = f"{where}: {broken.cause or 'unknown cause'}; {again} after it"
            severity = "note" if broken.cause else "problem"
            yield ContextFinding(severity=severity, code="break", call=number, text=text)
    if uses_cache and one.predicted is not None and one.predicted >= _MIN_CACHED and reported * 2 < one.predicted:
        counts = f"{reported:,} of {one.predicted:,} predicted tokens came from the provider's cache"
        seconds = seconds_between(one.before.at, one.call.at)
        expired = seconds > _CACHE_SECONDS
        why = f", {format_duration(seconds)} after the previous call" if expired else ""
        severity = "note" if expired else "problem"
        yield ContextFinding(severity=severity, code="cache", call=number, text=f"{counts}{why}")


def summarize_check(check: ContextCheck) -> Sequence[str]:
    """Lines for a person."""
    lines = [f"{check.exact} of {format_count(check.calls, 'call')} reproduced byte for byte"]
    if check.counted:
        residual = check.counted - check.estimated
        lines.append(
            f"{check.counted:,} input tokens counted by the provider, {check.estimated:,} estimated ({residual:+,})"
        )
        lines.append(f"{check.reported:,} tokens read from the provider's cache, {check.predicted:,} predicted")
    return lines
