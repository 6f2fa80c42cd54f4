"""One reply from a model, through failures that pass: bounded, jittered retries that can be cancelled at any moment.

Used by the loop and by compaction. A reply that breaks off is never used as if it were whole; its text is kept for
the one who wants to show or store it.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing
from typing import Final, NamedTuple

from kitbag.events import Discarded, Event, Retrying, TextDelta, ThinkingDelta
from kitbag.models.provider import CallBegun, ModelError, Provider, Reply, Request, TextPiece, ThinkingPiece
from kitbag.store.fault_points import point

Emit = Callable[[Event], None]

LONGEST_WAIT: Final = 60.0
"""Of what a provider asks for, this much is given."""


class Patience(NamedTuple):
    attempts: int = 5
    first_wait: float = 1.0
    """Doubled with each attempt, and up to half of it taken off by chance."""


class BrokenReplyError(ModelError):
    """All attempts failed. `partial` is the text of the last one."""

    def __init__(self, cause: ModelError, partial: str) -> None:
        super().__init__(cause.kind, cause.problem, cause.fix, wait=cause.wait, status=cause.status)
        self.partial = partial


async def ask_model(
    provider: Provider,
    request: Request,
    emit: Emit,
    patience: Patience = Patience(),  # noqa: B008 - a NamedTuple can't be changed
    said: list[str] | None = None,
) -> Reply:
    """Raises BrokenReplyError. `said` is filled with the text as it comes, for the one who cancels this."""
    attempt = 1
    said = said if said is not None else []
    while True:
        said.clear()
        shown: list[Event] = []

        def show(event: Event, shown: list[Event] = shown) -> None:
            shown.append(event)
            emit(event)

        try:
            return await _one_attempt(provider, request, show, said)
        except ModelError as error:
            partial = "".join(said)
            if not error.may_pass or attempt >= patience.attempts:
                raise BrokenReplyError(error, partial) from error
            if shown:
                emit(Discarded(error.problem))
            wait = _wait(error, patience, attempt)
            emit(Retrying(attempt, wait, error.problem))
            await asyncio.sleep(wait)
            attempt += 1


async def _one_attempt(provider: Provider, request: Request, emit: Emit, said: list[str]) -> Reply:
    reply: Reply | None = None
    answers = False
    async with aclosing(provider.stream(request)) as pieces:
        async for piece in pieces:
            if not answers:
                answers = True
                point("request-sent")
            match piece:
                case TextPiece(text):
                    said.append(text)
                    emit(TextDelta(text))
                case ThinkingPiece(text):
                    emit(ThinkingDelta(text))
                case CallBegun():
                    pass
                case Reply():
                    reply = piece
    point("reply-received")
    if reply is None:
        raise ModelError("cut", f"the reply of {provider.name} ended before it was whole", "try again")
    return reply


def _wait(error: ModelError, patience: Patience, attempt: int) -> float:
    own = patience.first_wait * 2 ** (attempt - 1) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
    asked = error.wait if error.wait is not None and error.wait >= 0 else 0.0
    return min(max(own, asked), LONGEST_WAIT)
