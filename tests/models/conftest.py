"""Every adapter against a real server that speaks its protocol."""

from collections.abc import Callable
from typing import Literal

import pytest

from kitbag.models.adapters.anthropic import Anthropic
from kitbag.models.adapters.api_errors import ApiEndpoint
from kitbag.models.adapters.openai_chat import OpenAIChat
from kitbag.models.adapters.openai_responses import OpenAIResponses
from kitbag.models.provider import Provider
from kitbag.models.reply_limits import ReplyLimits
from kitbag.testing import ModelServer
from support.hostile_server import HostileServer

Wire = Literal["anthropic", "chat", "responses"]


def adapter(
    wire: str, server: ModelServer | HostileServer, idle: float = 20.0, limits: ReplyLimits | None = None
) -> Provider:
    limits = limits or ReplyLimits(first_byte=idle, first_byte_local=idle, event=idle)
    if wire == "anthropic":
        headers = {"x-api-key": "test-key-anthropic"}
        return Anthropic(ApiEndpoint(provider="anthropic", base_url=server.url, headers=headers, limits=limits))
    headers = {"authorization": "Bearer test-key-openai"}
    endpoint = ApiEndpoint(provider="openai", base_url=f"{server.url}/v1", headers=headers, limits=limits)
    return OpenAIChat(endpoint) if wire == "chat" else OpenAIResponses(endpoint)


@pytest.fixture(params=["anthropic", "chat", "responses"])
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def connect(wire: str) -> Callable[..., Provider]:
    return lambda server, idle=20.0, limits=None: adapter(wire, server, idle, limits)
