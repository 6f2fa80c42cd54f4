"""Slow, odd and hostile providers: the real program says what happens, ends, and keeps what has arrived."""

import json
from collections.abc import Iterator

import pytest

from conftest import World
from kitbag.testing import ModelServer
from models.test_endless_replies import TEXT, WORDS, endless, start
from support.headless import PROTOCOLS, answer, ask, point, script
from support.hostile_server import HostileServer, event, respond, stream


def settings(world: World, text: str) -> None:
    path = world.home / ".kitbag" / "settings.toml"
    world.write("~/.kitbag/settings.toml", (path.read_text() if path.exists() else "") + text)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_endless_reply_is_cut_and_user_and_model_are_told(world: World, protocol: str) -> None:
    with endless(protocol, *TEXT[protocol]) as server:
        point(world, server, protocol)  # type: ignore[arg-type]
        settings(world, "[limits]\nreply = 50000\n")
        found = answer(world, "Hi")
        assert len(server.requests) == 1
    assert (found["code"], found["status"]) == (7, "failed")
    assert 49_900 < len(found["result"]) <= 50_000
    assert found["result"].startswith(WORDS)
    assert found["error"] == "Kitbag cut the reply because it is longer than 50,000 characters"
    assert "limits.reply" in found["fix"]
    with ModelServer(script("Fine.")) as server:
        point(world, server, protocol)
        answer(world, "And?", "--continue")
        assert "[The reply was truncated here.]" in server.requests[0].raw.decode()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_provider_that_stalls_is_retried_once_and_each_step_is_reported(world: World, protocol: str) -> None:
    def stalls() -> Iterator[bytes | None]:
        yield start(protocol) + b"".join(TEXT[protocol])
        yield None

    with HostileServer(stream(stalls)) as server:
        point(world, server, protocol)  # type: ignore[arg-type]
        settings(world, "[timeouts]\nevent = 1\n")
        done = ask(world, "Hi")
        assert len(server.requests) == 2
    assert (done.returncode, done.stdout.rstrip()) == (7, WORDS.rstrip())
    assert "sent no data for 1 s; retrying in" in done.stderr
    assert "raise `timeouts.event`" in done.stderr


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_rate_limit_that_lasts_an_hour_ends_at_once_and_says_when_to_come_back(world: World, protocol: str) -> None:
    body = json.dumps({"error": {"message": "Slow down."}})
    with HostileServer(respond(body, "application/json", 429, retry_after="3600")) as server:
        point(world, server, protocol)  # type: ignore[arg-type]
        done = ask(world, "Hi")
        assert len(server.requests) == 1
    assert done.returncode == 7
    assert "returned 429: Slow down.; it accepts requests again at " in done.stderr
    assert "(in 1 h 00 min)" in done.stderr


def test_a_login_page_is_named_without_the_key_in_it(world: World) -> None:
    page = "<html><title>Sign in</title><body>test-key-anthropic</body></html>"
    with HostileServer(respond(page, "text/html")) as server:
        point(world, server)  # type: ignore[arg-type]
        done = ask(world, "Hi")
        assert len(server.requests) == 1
    assert done.returncode == 7
    assert "returned an HTML page instead of a reply: 'Sign in: [redacted]'" in done.stderr


def test_an_event_that_is_no_json_is_quoted(world: World) -> None:
    with HostileServer(respond(event("upstream timed out"))) as server:
        point(world, server)  # type: ignore[arg-type]
        found = answer(world, "Hi")
    assert found["code"] == 7
    assert "not valid JSON: 'upstream timed out'" in found["error"]
