"""What tests of the network share: servers, a fetch that may reach them, and a certificate."""

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kitbag.net.exchange import NetworkRoute
from kitbag.net.fetch import FetchResult, fetch_sync
from kitbag.net.policy import FetchLimits, HostPolicy
from support.servers import Answer, Everywhere, Get, Serve, Server
from support.waiting import TEST_TIMEOUT

MAKE_CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    " -subj /CN=docs.example -addext subjectAltName=DNS:docs.example"
)


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[Server] = []

    def start(
        answer: Answer | bytes = b"",
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        greeting: bytes = b"",
    ) -> Server:
        servers.append(Server(answer, tls, host, greeting))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def get() -> Get:
    """Fetches with every named server open to the policy and every name leading to this machine."""

    def fetch(
        url: str, *servers: Server, limits: FetchLimits | None = None, method: Any = "GET", **policy: Any
    ) -> FetchResult:
        names = ("docs.example", "other.example", "sub.docs.example", "127.0.0.1", "localhost")
        opened = [f"{name}:{server.port}" for server in servers for name in names]
        return fetch_sync(
            url,
            policy=HostPolicy(allow_private=opened, **policy),
            limits=limits or FetchLimits(total_timeout=TEST_TIMEOUT),
            method=method,
            route=NetworkRoute(resolver=Everywhere()),
        )

    return fetch


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for docs.example that signs itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [*MAKE_CERTIFICATE.split(), "-keyout", str(key), "-out", str(cert)],
        check=True,
        capture_output=True,
    )
    return cert, key
