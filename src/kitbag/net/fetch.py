"""Fetches one URL, for every feature. Uses policy, exchange and the size-limited body.

GET and HEAD only, without cookies, credentials, Referer or the environment's proxy. Follows redirects, each with the
same checks as the first URL; never retries, never reuses a connection. `call_api` is for an API that the user
configured, with their key; it follows no redirects. Importing this imports no HTTP library; fetching does.
"""

import time
from typing import Literal, NamedTuple

import msgspec

from kitbag.errors import UsageError
from kitbag.net.content import decode_body, detect_encoding, parse_media_type
from kitbag.net.errors import FetchError, FetchRedirect
from kitbag.net.policy import FetchLimits, HostPolicy
from kitbag.net.urls import FetchTarget, parse_url, resolve_redirect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kitbag.net.body import ResponseBody
    from kitbag.net.exchange import HttpExchange, NetworkRoute, RequestPayload

Method = Literal["GET", "HEAD"]
_REDIRECTING = (301, 302, 303, 307, 308)
_KEPT_HEADERS = (
    "content-type",
    "content-length",
    "content-disposition",
    "content-language",
    "etag",
    "last-modified",
    "retry-after",
)
_HEADER_CHARACTERS = 1000
_DEFAULT_LIMITS = FetchLimits()


class Timings(NamedTuple):
    first_response: float
    """Seconds until the last response started, redirects included."""
    total: float


class FetchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The response, whatever its status. All of it is untrusted: escape it before showing it."""

    url: str
    """The final URL, normalized."""
    status: int
    headers: tuple[tuple[str, str], ...]
    """Headers that describe the body, with lowercase names."""
    content_type: str
    """`text/html`, without parameters; empty if missing or invalid."""
    encoding: str
    """Of the text; empty if the body is not text."""
    body: bytes
    redirects: tuple[FetchRedirect, ...]
    truncation_reason: str
    """Why the body is incomplete, to follow "its body"; empty if it is complete."""
    address: str
    """The IP address that answered; the proxy's if there is one."""
    timings: Timings

    def __repr__(self) -> str:
        # Event loops and logs may print a task's result: a body is too long for that, a query too private.
        return f"<Fetched {self.status}, {len(self.body):,} bytes of {self.url.partition('?')[0]}>"

    @property
    def truncated(self) -> bool:
        return bool(self.truncation_reason)

    @property
    def text(self) -> str | None:
        """None if the body is not text."""
        return decode_body(self.body, self.encoding, complete=not self.truncation_reason) if self.encoding else None


async def fetch(
    url: str,
    *,
    policy: HostPolicy,
    limits: FetchLimits = _DEFAULT_LIMITS,
    method: Method = "GET",
    route: "NetworkRoute | None" = None,
) -> FetchResult:
    """Raises FetchError for every external failure. Can be canceled at any time."""
    if method not in ("GET", "HEAD"):
        raise UsageError("Only GET and HEAD are supported.", "Use a shell command for other methods.")
    return await _run_fetch(_FetchState(policy, limits, method, route), url, limits)


async def call_api(
    url: str,
    *,
    policy: HostPolicy,
    headers: tuple[tuple[str, str], ...] = (),
    body: bytes | None = None,
    limits: FetchLimits = _DEFAULT_LIMITS,
    route: "NetworkRoute | None" = None,
) -> FetchResult:
    """A POST if there is a body, else a GET. Follows no redirect, because what is sent may be secret."""
    from kitbag.net.exchange import RequestPayload

    limits = msgspec.structs.replace(limits, redirects=0)
    method = "GET" if body is None else "POST"
    return await _run_fetch(_FetchState(policy, limits, method, route, RequestPayload(headers, body)), url, limits)


async def _run_fetch(state: "_FetchState", url: str, limits: FetchLimits) -> FetchResult:
    import anyio

    try:
        with anyio.move_on_after(limits.total_timeout) as time_limit:
            await state.run(parse_url(url))
        if time_limit.cancelled_caught:
            state.handle_timeout()
        return state.result()
    except FetchError as error:
        error.redirects = tuple(state.redirects)
        raise


def fetch_sync(
    url: str,
    *,
    policy: HostPolicy,
    limits: FetchLimits = _DEFAULT_LIMITS,
    method: Method = "GET",
    route: "NetworkRoute | None" = None,
) -> FetchResult:
    """For synchronous code."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(fetch(url, policy=policy, limits=limits, method=method, route=route))
    raise UsageError("fetch_now cannot be called from a running event loop.", "Use `await fetch(...)` instead.")


class _FetchState:
    """The progress of one fetch, so that a timeout can end it anywhere."""

    __slots__ = (
        "_body",
        "_first_response_at",
        "_limits",
        "_method",
        "_payload",
        "_policy",
        "_response",
        "_route",
        "_started",
        "_target",
        "_truncation_reason",
        "redirects",
    )

    def __init__(
        self,
        policy: HostPolicy,
        limits: FetchLimits,
        method: str,
        route: "NetworkRoute | None",
        sent: "RequestPayload | None" = None,
    ) -> None:
        self.redirects: list[FetchRedirect] = []
        self._policy = policy
        self._limits = limits
        self._method = method
        self._route = route
        self._payload = sent
        self._started = self._first_response_at = time.monotonic()
        self._target: FetchTarget | None = None
        self._response: HttpExchange | None = None
        self._body: ResponseBody | None = None
        self._truncation_reason = ""

    async def run(self, target: FetchTarget) -> None:
        seen = {target.url}
        while True:
            location = await self._request(target)
            if location is None:
                return
            target = self._follow_redirect(target, location, seen)

    async def _request(self, target: FetchTarget) -> tuple[int, str] | None:
        """The status and Location of a redirect; None if the response is final and its body was read."""
        from kitbag.net.body import ResponseBody
        from kitbag.net.exchange import NetworkRoute, RequestPayload, open_exchange

        self._policy.check(target)
        self._target = target
        route, sent = self._route or NetworkRoute(), self._payload or RequestPayload()
        async with open_exchange(target, self._method, self._policy, self._limits, route, sent) as response:
            self._first_response_at = time.monotonic()
            if response.status in _REDIRECTING and response.values("location"):
                return response.status, _read_location(target, response.values("location"))
            self._response = response
            codings = b",".join(response.values("content-encoding")).decode("latin-1")
            self._body = ResponseBody(codings, self._limits.body_bytes)
            self._truncation_reason = await response.read_into(self._body)
        return None

    def _follow_redirect(self, target: FetchTarget, redirect: tuple[int, str], seen: set[str]) -> FetchTarget:
        status, location = redirect
        try:
            following = resolve_redirect(target, location)
        except FetchError as error:
            raise FetchError(
                f"{target.display_url} redirects to another URL. {error.problem}", error.fix, error.kind
            ) from error
        self.redirects.append(FetchRedirect(status, following.url, following.host != target.host))
        if len(self.redirects) > self._limits.redirects:
            most = self._limits.redirects
            raise _redirect_error(target, f"more than {most} redirects" if most else "redirects are disabled")
        if following.url in seen:
            raise _redirect_error(target, "it is a redirect loop")
        if (target.scheme, following.scheme) == ("https", "http"):
            raise _redirect_error(target, "it downgrades from https to http")
        if self._policy.allows_private(following) and not self._policy.allows_private(target):
            raise _redirect_error(
                target, f"a public host redirects to {following.host_port}, which is on your private network"
            )
        seen.add(following.url)
        return following

    def handle_timeout(self) -> None:
        self._truncation_reason = f"did not arrive within {self._limits.total_timeout:g} seconds"
        if self._body is None:
            source = self._target.display_url if self._target else "The URL"
            raise FetchError(
                f"{source} did not respond within {self._limits.total_timeout:g} seconds.",
                "Try again later, or fetch the page from another host.",
                "time",
            )

    def result(self) -> FetchResult:
        target, response, body = self._target, self._response, self._body
        assert target is not None and response is not None and body is not None  # noqa: PT018 - one fact
        if self._truncation_reason and self._limits.on_excess == "refuse":
            raise FetchError(
                f"The response from {target.display_url} was rejected: its body {self._truncation_reason}.",
                "Raise the limit, or fetch something smaller.",
                "limit",
            )
        content = bytes(body.content)
        headers = {name: value.decode("latin-1")[:_HEADER_CHARACTERS] for name, value in reversed(response.headers)}
        content_type = headers.get("content-type", "")
        return FetchResult(
            url=target.url,
            status=response.status,
            headers=tuple((name, headers[name]) for name in _KEPT_HEADERS if name in headers),
            content_type=parse_media_type(content_type),
            encoding=detect_encoding(content_type, content),
            body=content,
            redirects=tuple(self.redirects),
            truncation_reason=self._truncation_reason,
            address=response.peer,
            timings=Timings(self._first_response_at - self._started, time.monotonic() - self._started),
        )


def _read_location(target: FetchTarget, values: list[bytes]) -> str:
    """The target of a redirect; several identical headers count as one."""
    try:
        (location,) = {value.decode() for value in values}
    except ValueError:  # conflicting values, or bytes that are not text
        raise _redirect_error(target, "its Location header is missing or ambiguous") from None
    return location


def _redirect_error(target: FetchTarget, reason: str) -> FetchError:
    return FetchError(
        f"The redirect from {target.display_url} was not followed: {reason}.",
        "If you need that page, fetch its URL directly.",
        "redirect",
    )
