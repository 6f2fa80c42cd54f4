"""Checks of an HTTP request that come before any route: Host, the browser's origin and the bearer token.

Used by the guards of mcp_server and web. A page of another site must reach no route, and DNS rebinding changes nothing,
because only known host names are accepted.
"""

import hmac
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

Headers = Mapping[bytes, Sequence[bytes]]
"""By name in lower case."""


class Rejection(NamedTuple):
    status: int
    reason: str


def group_headers(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    headers: dict[bytes, list[bytes]] = {}
    for name, value in raw:
        headers.setdefault(name.lower(), []).append(value)
    return headers


class RequestChecks:
    def __init__(self, hosts: frozenset[str], token: str) -> None:
        """`hosts`: values of the Host header, in lower case."""
        self._hosts = hosts
        self._origins = frozenset(f"http://{host}" for host in hosts)
        self._token = token.encode()

    def find_foreign(self, headers: Headers) -> Rejection | None:
        """Set if the request is for another host name or comes from another site."""
        hosts = headers.get(b"host", [])
        if len(hosts) != 1 or hosts[0].decode("latin-1").lower() not in self._hosts:
            return Rejection(421, "unknown host name")
        origins = headers.get(b"origin", [])
        if any(origin.decode("latin-1").lower() not in self._origins for origin in origins):
            return Rejection(403, "cross-site requests are not allowed")
        if any(site not in (b"same-origin", b"none") for site in headers.get(b"sec-fetch-site", [])):
            return Rejection(403, "cross-site requests are not allowed")
        return None

    def find_unauthorized(self, headers: Headers) -> Rejection | None:
        """Set if the token is missing or wrong. Compares in constant time."""
        authorization = headers.get(b"authorization", [])
        scheme, _, token = authorization[0].partition(b" ") if len(authorization) == 1 else (b"", b"", b"")
        same = hmac.compare_digest(token.strip(), self._token)
        return None if same and scheme.lower() == b"bearer" else Rejection(401, "missing or invalid token")


def is_json(headers: Headers) -> bool:
    kind = headers.get(b"content-type", [b""])[0].split(b";")[0].strip().lower()
    return kind == b"application/json"


def rejection_messages(rejection: Rejection) -> list[dict[str, object]]:
    """The ASGI messages that answer a rejected request."""
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"x-content-type-options", b"nosniff")]
    if rejection.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="kitbag"'))
    body = f"{rejection.reason}\n".encode()
    headers += [(b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    return [
        {"type": "http.response.start", "status": rejection.status, "headers": headers},
        {"type": "http.response.body", "body": body},
    ]
