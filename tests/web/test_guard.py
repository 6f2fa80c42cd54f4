"""What reaches no route (SECURITY D40-D42): requests for other hosts, from other sites, or without the token."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from starlette.routing import Mount, Route

from conftest import World
from kitbag.web.application import ROUTES
from kitbag.web.lazy_routes import LazyRoutes
from support.web_program import WebProgram, web_program


def list_routes() -> Iterator[tuple[str, Route]]:
    for route in ROUTES:
        if isinstance(route, Mount):
            assert isinstance(route.app, LazyRoutes)
            yield from ((route.path + inner.path, inner) for inner in route.app.load())
        else:
            yield route.path, route


PATHS = sorted(
    (re.sub(r"\{[^}]*\}", "x", path), sorted((route.methods or set()) - {"HEAD"})[0]) for path, route in list_routes()
)
API = [(path, method) for path, method in PATHS if path.startswith("/api/")]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebProgram]:
    world = World(tmp_path_factory.mktemp("guarded"))
    with web_program(world) as running:
        yield running


def send(client: httpx2.Client, path: str, method: str, **headers: str) -> httpx2.Response:
    given = {"content-type": "application/json"} if method == "POST" else {}
    return client.request(method, path, content=b"{}" if method == "POST" else None, headers={**given, **headers})


def test_every_kind_of_route_is_tried() -> None:
    assert {method for _, method in API} == {"GET", "POST"}
    assert ("/", "GET") in PATHS


def test_D40_another_host_name_reaches_no_route(program: WebProgram) -> None:
    with program.http() as client:
        for host in ("evil.com", "127.0.0.1.evil.com", "127.0.0.1", "[::1]", "127.0.0.1:1", "0.0.0.0"):
            for path, method in PATHS:
                assert send(client, path, method, host=host).status_code == 421, (host, method, path)


def test_D41_another_site_reaches_no_route(program: WebProgram) -> None:
    origins = ("http://evil.com", "null", "http://127.0.0.1:1", "https://127.0.0.1")
    headers = [{"origin": origin} for origin in origins] + [
        {"sec-fetch-site": site} for site in ("cross-site", "same-site")
    ]
    with program.http() as client:
        for header in headers:
            for path, method in PATHS:
                answer = send(client, path, method, **header)
                assert answer.status_code == 403, (header, method, path)
                assert "access-control-allow-origin" not in answer.headers


def test_D42_without_the_token_nothing_of_the_user_is_reached(program: WebProgram) -> None:
    given = ("Bearer", "Bearer wrong", "Basic eDp5", f"Bearer {program.token}x", program.token)
    with program.http(authorization="") as client:
        for path, method in API:
            assert send(client, path, method).status_code == 401, (method, path)
            assert send(client, f"{path}?token={program.token}", method).status_code == 401, (method, path)
            for authorization in given:
                answer = send(client, path, method, authorization=authorization)
                assert answer.status_code == 401, (authorization, method, path)


def test_D41_a_change_needs_json_and_post(program: WebProgram) -> None:
    with program.http() as client:
        for path in (path for path, method in API if method == "POST"):
            for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
                assert send(client, path, "POST", **{"content-type": kind}).status_code == 415, (kind, path)
            assert client.get(path).status_code in (404, 405), path
            for method in ("OPTIONS", "PUT", "DELETE", "PATCH", "TRACE"):
                answer = client.request(method, path)
                assert answer.status_code == 405, (method, path)
                assert "access-control-allow-origin" not in answer.headers


def test_D43_every_answer_has_the_security_headers(program: WebProgram) -> None:
    with program.http(**{"content-type": "application/json"}) as client:
        for path, method in PATHS:
            request = client.build_request(method, path, content=b"not json" if method == "POST" else None)
            answer = client.send(request, stream=True)
            answer.close()
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff", (method, path)
            assert answer.headers["referrer-policy"] == "no-referrer", (method, path)


def test_D42_the_token_is_in_no_log_and_no_argument(program: WebProgram) -> None:
    program.get(f"/api/sessions?q={program.token}")
    home = Path(program.environment["HOME"]) / ".kitbag"
    for path in home.rglob("*"):
        if path.is_file():
            assert program.token.encode() not in path.read_bytes(), path
    log = home / "web" / "access.log"
    assert "GET /api/sessions 200" in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert program.token.encode() not in process.read_bytes()
        except OSError:  # it ended
            continue


def test_D42_it_listens_on_loopback_only(program: WebProgram) -> None:
    port = int(program.base.rpartition(":")[2])
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    listening = [row[1].split(":")[0] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == port]
    assert listening == ["0100007F"]


def test_a_browser_is_opened_with_a_private_file_instead_of_the_token(world: World) -> None:
    seen = world.outside / "seen"
    opener = world.outside / "browser"
    opener.write_text(
        f'#!/bin/sh\necho "$1" > {seen}.tmp; stat -c %a "${{1#file://}}" >> {seen}.tmp; mv {seen}.tmp {seen}\n'
    )
    opener.chmod(0o700)
    world.env["BROWSER"] = f"{opener} %s"
    with web_program(world, opens=True) as running:
        from support.waiting import wait_until

        wait_until(seen.exists)
        url, mode = seen.read_text().split()
        assert running.token not in url
        assert mode == "600"
    assert not os.path.exists(url.removeprefix("file://"))


def test_listening_elsewhere_is_refused(world: World) -> None:
    done = world.run("web", "--no-open", "--host", "0.0.0.0")
    assert done.returncode == 2
    assert "--host" in done.stderr


def test_a_port_in_use_is_reported(world: World, program: WebProgram) -> None:
    port = program.base.rpartition(":")[2]
    done = world.run("web", "--no-open", "--port", port)
    assert done.returncode == 6
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
