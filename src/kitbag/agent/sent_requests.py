"""Records of a model request that its messages and prompt do not determine: the tool list and the size of the text.

The loop writes them with each reply; model_calls reads them. A tool list is stored once for all sessions, under the
hash of its content. The size tells later whether the request can be reproduced exactly.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kitbag.agent.context_ledger import count_message_bytes, count_request_bytes
from kitbag.messages import Message
from kitbag.models.provider import ModelRequest, ToolSpec
from kitbag.record_fields import RecordFields
from kitbag.store.journal import Journal

_STREAM_PREFIX: Final = "tools/"
_DIGEST_BYTES: Final = 12


class SentRequest(msgspec.Struct, frozen=True, kw_only=True):
    tools: str
    """The hash of the tool list; see `read_tools`."""
    bytes: int
    """Of the text, as context_ledger.count_request_bytes counts it."""


SENT_FIELDS: Final = RecordFields(SentRequest, "tools", "bytes")


class RequestRecorder:
    """Used by one loop. Counts only what was added since the last request."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._tools: tuple[ToolSpec, ...] | None = None
        self._digest = ""
        self._counted: tuple[Message, ...] = ()
        self._counted_bytes = 0
        self.last: dict[str, Any] = {}

    async def record(self, request: ModelRequest) -> dict[str, Any]:
        """The fields for the record of the reply; also in `last`."""
        if request.tools != self._tools:
            self._digest = await _store_tools(self._journal, request.tools)
            self._tools = request.tools
        prefix = count_request_bytes((block.text for block in request.system), request.tools, ())
        size = prefix + self._count_messages(request.messages)
        self.last = SENT_FIELDS.write(SentRequest(tools=self._digest, bytes=size))
        return self.last

    def _count_messages(self, messages: tuple[Message, ...]) -> int:
        if messages[: len(self._counted)] != self._counted:  # almost always by identity, so this is fast
            self._counted, self._counted_bytes = (), 0
        stable = messages[:-1]  # the last message may still grow
        self._counted_bytes += count_message_bytes(stable[len(self._counted) :])
        self._counted = stable
        return self._counted_bytes + count_message_bytes(messages[-1:])


async def _store_tools(journal: Journal, tools: Sequence[ToolSpec]) -> str:
    """Returns the hash. It is that of the redacted text, so that it tells nothing about a secret."""
    text = json.dumps([[spec.name, spec.description, spec.schema] for spec in tools])
    if journal.redactor.may_contain_secrets(text):
        text = journal.redactor.redact_text(text)
    digest = hashlib.sha256(text.encode()).digest()[:_DIGEST_BYTES].hex()
    stream = _STREAM_PREFIX + digest
    if journal.last(stream) is None:
        await journal.write_once(stream, stream, "tools", {"specs": text})
    return digest


def read_tools(journal: Journal, digest: str) -> tuple[ToolSpec, ...] | None:
    """None if the journal does not have the list, or it is damaged."""
    record = journal.last(_STREAM_PREFIX + digest) if digest else None
    if record is None:
        return None
    try:
        return tuple(
            ToolSpec(name=str(name), description=str(description), schema=dict(schema))
            for name, description, schema in json.loads(record.body["specs"])
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
