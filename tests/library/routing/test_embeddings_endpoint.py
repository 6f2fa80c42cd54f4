"""Vectors from a server with the OpenAI embeddings protocol, on loopback: what is sent, and servers that fail."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from conftest import World
from kitbag.library.routing.skill_search import get_search_index, search_skills
from kitbag.library.routing.vectors import embeddings_endpoint, text_vectors
from support.waiting import TEST_TIMEOUT


def embed(text: str) -> list[float]:
    """Feline and cat mean one thing, engine and motor another."""
    return [2.0 * ("feline" in text or "cat" in text), 2.0 * ("engine" in text or "motor" in text), 0.1]


def answer(texts: list[str]) -> bytes:
    rows = [{"object": "embedding", "index": at, "embedding": embed(text)} for at, text in enumerate(texts)]
    return json.dumps({"object": "list", "data": rows[::-1], "model": "m"}).encode()


class EmbeddingsServer:
    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, Any]]] = []
        """Path, authorization and body."""
        self.answer: Callable[[list[str]], bytes] = answer
        self.status = 200
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append((self.path, self.headers.get("Authorization", ""), body))
                data = outer.answer(body["input"])
                self.send_response(outer.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingsServer]:
    monkeypatch.setattr(text_vectors, "_encoders", {})
    monkeypatch.setattr(embeddings_endpoint, "_MESSAGE_SECONDS", TEST_TIMEOUT)
    started = EmbeddingsServer()
    yield started
    started.http.shutdown()
    started.http.server_close()


@pytest.fixture
def library(world: World, server: EmbeddingsServer) -> World:
    world.write("~/.kitbag/settings.toml", f'[routing]\nvectors = "{server.url}/"\nembedding_model = "m"\n')
    world.skill(".kitbag/skills", "pets", description="feline")
    world.skill(".kitbag/skills", "cars", description="engine")
    return world


def found(world: World, message: str) -> list[str]:
    registry = world.registry()
    get_search_index(registry, TEST_TIMEOUT)
    return [hit.skill.name for hit in search_skills(registry, message) if hit.skill.root.scope != "built-in"]


def test_a_skill_is_found_by_the_vectors_of_a_server(
    library: World, server: EmbeddingsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KITBAG_EMBEDDINGS_KEY", "secret-of-mine")
    assert found(library, "motor")[0] == "cars"
    assert {(path, key, body["model"]) for path, key, body in server.requests} == {
        ("/v1/embeddings", "Bearer secret-of-mine", "m")
    }
    assert [body["input"] for _, _, body in server.requests][-1] == ["motor"]
    before = len(server.requests)
    assert found(library, "cat")[0] == "pets"
    assert len(server.requests) == before + 1  # the vectors of skills are cached


def test_without_a_key_none_is_sent(library: World, server: EmbeddingsServer) -> None:
    assert found(library, "motor")[0] == "cars"
    assert {key for _, key, _ in server.requests} == {""}


@pytest.mark.parametrize(
    "bad",
    [
        b"", b"<html>", b"{}", b'{"data": []}', b'{"data": [{"index": 0, "embedding": []}]}',
        b'{"data": [{"index": 0, "embedding": "AAAA"}]}', b'{"data": [{"index": 0, "embedding": [0, 0, 0]}]}',
        b'{"data": [{"index": 0, "embedding": [1, 2]}, {"index": 1, "embedding": [1]}]}', b"\xff\xfe", b"[" * 100_000,
        b'{"data": [{"index": 0, "embedding": [1e200, 0, 0]}]}', b'{"data": [{"index": 0, "embedding": [NaN, 0, 1]}]}',
        b'{"data": [{"index": 0, "embedding": [1e400, 0, 1]}]}',
    ],
    ids=range(13),
)  # fmt: skip
def test_answers_that_are_no_vectors_are_left_out(library: World, server: EmbeddingsServer, bad: bytes) -> None:
    server.answer = lambda _: bad
    assert found(library, "motor") == []
    assert found(library, "feline") == ["pets"]


@pytest.mark.parametrize("status", [301, 401, 429, 500])
def test_an_error_of_the_server_stops_no_message(library: World, server: EmbeddingsServer, status: int) -> None:
    server.status = status
    assert found(library, "feline") == ["pets"]


def test_after_a_failure_messages_do_without_for_a_while(library: World, server: EmbeddingsServer) -> None:
    assert found(library, "motor")[0] == "cars"
    server.status = 500
    assert found(library, "motor") == []
    asked = len(server.requests)
    assert found(library, "motor") == []
    assert len(server.requests) == asked


def test_a_server_that_does_not_answer_stops_no_message(
    library: World, server: EmbeddingsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(library, "motor")[0] == "cars"
    monkeypatch.setattr(embeddings_endpoint, "_MESSAGE_SECONDS", 0.05)
    release = threading.Event()
    server.answer = lambda texts: (release.wait(TEST_TIMEOUT) and answer(texts)) or b""
    try:
        assert found(library, "feline") == ["pets"]
    finally:
        release.set()


def test_a_project_can_not_name_a_server(world: World, server: EmbeddingsServer) -> None:
    world.skill(".kitbag/skills", "cars", description="engine")
    world.write(".kitbag/settings.toml", f'[routing]\nvectors = "{server.url}"\n')
    assert found(world, "engine") == ["cars"]
    assert server.requests == []
