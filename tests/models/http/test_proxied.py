"""Where the environment names a proxy, requests go through it and not around."""

import asyncio

import pytest

from kitbag.messages import user_message
from kitbag.models.adapters.anthropic import Anthropic
from kitbag.models.adapters.api_errors import ApiEndpoint
from kitbag.models.provider import ModelError, ModelReply, ModelRequest
from kitbag.testing import ModelServer, Rule, Script, Step


def ask(url: str) -> list[object]:
    async def go() -> list[object]:
        adapter = Anthropic(ApiEndpoint(provider="anthropic", base_url=url, headers={"x-api-key": "k"}))
        try:
            return [
                piece
                async for piece in adapter.stream(ModelRequest(model="m", system=(), messages=(user_message("hi"),)))
            ]
        finally:
            await adapter.close()

    return asyncio.run(go())


def test_a_proxy_gets_the_request_for_the_other_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer(Script([Rule([Step(text="Through.")])])) as proxy:
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        reply = ask("http://models.example")[-1]
        assert isinstance(reply, ModelReply)
        assert reply.message.text == "Through."
        assert proxy.requests[0].path == "http://models.example/v1/messages"


def test_a_proxy_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer(Script([Rule([])])) as proxy:
        address = proxy.url
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", address)
    with pytest.raises(ModelError) as caught:
        ask("http://models.example")
    assert caught.value.kind == "unreachable"
