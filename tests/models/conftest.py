"""Every adapter against a real server that speaks its protocol."""

from collections.abc import Callable
from typing import Literal

import pytest

from kitbag.models.adapters.anthropic import Anthropic
from kitbag.models.adapters.openai_chat import OpenAIChat
from kitbag.models.adapters.openai_responses import OpenAIResponses
from kitbag.models.adapters.wire import ApiEndpoint
from kitbag.models.provider import Provider
from kitbag.testing import ModelServer

Wire = Literal["anthropic", "chat", "responses"]


def adapter(wire: str, server: ModelServer, idle: float = 20.0) -> Provider:
    if wire == "anthropic":
        return Anthropic(
            ApiEndpoint(provider="anthropic", base_url=server.url, headers={"x-api-key": "k"}, idle_timeout=idle)
        )
    endpoint = ApiEndpoint(
        provider="openai", base_url=f"{server.url}/v1", headers={"authorization": "Bearer k"}, idle_timeout=idle
    )
    return OpenAIChat(endpoint) if wire == "chat" else OpenAIResponses(endpoint)


@pytest.fixture(params=["anthropic", "chat", "responses"])
def connect(request: pytest.FixtureRequest) -> Callable[..., Provider]:
    return lambda server, idle=20.0: adapter(request.param, server, idle)
