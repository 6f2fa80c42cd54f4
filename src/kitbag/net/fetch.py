"""Fetches one URL, whatever feature asks for it. Uses policy, guarded connections and the bounded body.

GET and HEAD only, nothing of the user's sent along: no cookies, no credentials, no Referer, no proxy from the
environment. Redirects are followed here, each through the same checks as the first URL. Nothing is tried twice,
no connection is used twice. `call` is for an interface that the user named, with a key of theirs: it follows none.
Importing this imports no HTTP library; fetching does.
"""

import time
from typing import Literal, NamedTuple

from kitbag.errors import UsageError
from kitbag.net.content import encoding_of, media_type, read_text
from kitbag.net.errors import FetchError, Redirect
from kitbag.net.policy import HostPolicy, Limits
from kitbag.net.urls import Target, parse_target, redirected

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kitbag.net.body import Body
    from kitbag.net.exchange import Exchange, Route, Sent

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
_DEFAULT_LIMITS = Limits()


class Timings(NamedTuple):
    head: float
    """Seconds until the last response began, redirects included."""
    total: float


class Fetched(NamedTuple):
    """What came back, whatever its status. All of it is data from outside: escape it before showing it."""

    url: str
    """Where it came from in the end, in one spelling."""
    status: int
    headers: tuple[tuple[str, str], ...]
    """The ones that say something about the body, names in lower case."""
    content_type: str
    """`text/html`, without parameters; empty when the server gave none that can be read."""
    encoding: str
    """Of the text; empty when the body is not text."""
    body: bytes
    redirects: tuple[Redirect, ...]
    cut: str
    """Why the body is not whole, as words after "its body"; empty when it is."""
    address: str
    """The IP address that answered; a proxy's when there is one."""
    timings: Timings

    def __repr__(self) -> str:
        # Event loops write the result of a task out, and logs may: a body is too long for that, a query too private.
        return f"<Fetched {self.status}, {len(self.body):,} bytes of {self.url.partition('?')[0]}>"

    @property
    def truncated(self) -> bool:
        return bool(self.cut)

    @property
    def text(self) -> str | None:
        """None when the body is not text."""
        return read_text(self.body, self.encoding, whole=not self.cut) if self.encoding else None


async def fetch(
    url: str,
    *,
    policy: HostPolicy,
    limits: Limits = _DEFAULT_LIMITS,
    method: Method = "GET",
    route: "Route | None" = None,
) -> Fetched:
    """Raises FetchError for all that goes wrong outside. Can be cancelled at any time."""
    if method not in ("GET", "HEAD"):
        raise UsageError("Only GET and HEAD are sent.", "Use a command for anything else; it can be asked about.")
    return await _travel(_Trip(policy, limits, method, route), url, limits)


async def call(
    url: str,
    *,
    policy: HostPolicy,
    headers: tuple[tuple[str, str], ...] = (),
    body: bytes | None = None,
    limits: Limits = _DEFAULT_LIMITS,
    route: "Route | None" = None,
) -> Fetched:
    """A POST if there is a body, else a GET. What is sent may be secret, so no redirect is followed."""
    from kitbag.net.exchange import Sent

    limits = limits._replace(redirects=0)
    method = "GET" if body is None else "POST"
    return await _travel(_Trip(policy, limits, method, route, Sent(headers, body)), url, limits)


async def _travel(trip: "_Trip", url: str, limits: Limits) -> Fetched:
    import anyio

    try:
        with anyio.move_on_after(limits.seconds) as time_limit:
            await trip.go(parse_target(url))
        if time_limit.cancelled_caught:
            trip.time_is_up()
        return trip.fetched()
    except FetchError as error:
        error.redirects = tuple(trip.redirects)
        raise


def fetch_now(
    url: str,
    *,
    policy: HostPolicy,
    limits: Limits = _DEFAULT_LIMITS,
    method: Method = "GET",
    route: "Route | None" = None,
) -> Fetched:
    """For code that is not asynchronous."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(fetch(url, policy=policy, limits=limits, method=method, route=route))
    raise UsageError("fetch_now would block the event loop it is called in.", "Await fetch instead.")


class _Trip:
    """One fetch under way: what is known of it so far, so that a limit can end it anywhere."""

    __slots__ = (
        "_body",
        "_cut",
        "_head_at",
        "_limits",
        "_method",
        "_policy",
        "_response",
        "_route",
        "_sent",
        "_started",
        "_target",
        "redirects",
    )

    def __init__(
        self, policy: HostPolicy, limits: Limits, method: str, route: "Route | None", sent: "Sent | None" = None
    ) -> None:
        self.redirects: list[Redirect] = []
        self._policy = policy
        self._limits = limits
        self._method = method
        self._route = route
        self._sent = sent
        self._started = self._head_at = time.monotonic()
        self._target: Target | None = None
        self._response: Exchange | None = None
        self._body: Body | None = None
        self._cut = ""

    async def go(self, target: Target) -> None:
        seen = {target.url}
        while True:
            location = await self._request(target)
            if location is None:
                return
            target = self._follow(target, location, seen)

    async def _request(self, target: Target) -> tuple[int, str] | None:
        """The status and Location of a redirect; None when the response is the last one, and read."""
        from kitbag.net.body import Body
        from kitbag.net.exchange import Route, Sent, exchange

        self._policy.check(target)
        self._target = target
        way, sent = self._route or Route(), self._sent or Sent()
        async with exchange(target, self._method, self._policy, self._limits, way, sent) as response:
            self._head_at = time.monotonic()
            if response.status in _REDIRECTING and response.values("location"):
                return response.status, _location(target, response.values("location"))
            self._response = response
            codings = b",".join(response.values("content-encoding")).decode("latin-1")
            self._body = Body(codings, self._limits.body_bytes)
            self._cut = await response.read_into(self._body)
        return None

    def _follow(self, target: Target, found: tuple[int, str], seen: set[str]) -> Target:
        status, location = found
        try:
            following = redirected(target, location)
        except FetchError as error:
            raise FetchError(f"{target.shown} leads on. {error.problem}", error.fix, error.kind) from error
        self.redirects.append(Redirect(status, following.url, following.host != target.host))
        if len(self.redirects) > self._limits.redirects:
            most = self._limits.redirects
            raise _not_followed(target, f"after {most} redirects it leads on" if most else "none is here")
        if following.url in seen:
            raise _not_followed(target, "it leads in a circle")
        if (target.scheme, following.scheme) == ("https", "http"):
            raise _not_followed(target, "it leads from https to http")
        if self._policy.opens(following) and not self._policy.opens(target):
            raise _not_followed(target, f"a public host leads to {following.place}, which is only open to you")
        seen.add(following.url)
        return following

    def time_is_up(self) -> None:
        self._cut = f"did not come whole in {self._limits.seconds:g} seconds"
        if self._body is None:
            where = self._target.shown if self._target else "The URL"
            raise FetchError(
                f"{where} did not answer in {self._limits.seconds:g} seconds.",
                "Try again later, or fetch the page from another place.",
                "time",
            )

    def fetched(self) -> Fetched:
        target, response, body = self._target, self._response, self._body
        assert target is not None and response is not None and body is not None  # noqa: PT018 - one fact
        if self._cut and self._limits.over == "refuse":
            raise FetchError(
                f"What {target.shown} sent was not taken: its body {self._cut}.",
                "Raise the limit if that much is meant, or fetch something smaller.",
                "limit",
            )
        content = bytes(body.content)
        kept = {name: value.decode("latin-1")[:_HEADER_CHARACTERS] for name, value in reversed(response.headers)}
        content_type = kept.get("content-type", "")
        return Fetched(
            url=target.url,
            status=response.status,
            headers=tuple((name, kept[name]) for name in _KEPT_HEADERS if name in kept),
            content_type=media_type(content_type),
            encoding=encoding_of(content_type, content),
            body=content,
            redirects=tuple(self.redirects),
            cut=self._cut,
            address=response.peer,
            timings=Timings(self._head_at - self._started, time.monotonic() - self._started),
        )


def _location(target: Target, values: list[bytes]) -> str:
    """One place, whatever is said twice."""
    try:
        (location,) = {value.decode() for value in values}
    except ValueError:  # several different ones, or bytes that are no text
        raise _not_followed(target, "it does not say clearly where it leads") from None
    return location


def _not_followed(target: Target, why: str) -> FetchError:
    return FetchError(
        f"The redirect of {target.shown} was not followed: {why}.",
        "If that page is meant, fetch it by its own URL.",
        "redirect",
    )
