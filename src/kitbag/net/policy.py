"""Which hosts may be fetched, by the user's rules, and the limits of a fetch.

Used by `fetch` for the first URL and for every redirect.
"""

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from kitbag.errors import UsageError
from kitbag.net.addresses import IPAddress, classify_address, parse_address
from kitbag.net.errors import FetchError
from kitbag.net.hosts import display_host, host_matches, is_local_name, normalize_host_pattern
from kitbag.net.urls import FetchTarget, parse_url


class FetchLimits(msgspec.Struct, frozen=True, kw_only=True):
    total_timeout: float = 30
    """Seconds for everything: resolving, connecting, redirects and the body."""
    connect_timeout: float = 10
    idle_timeout: float = 15
    """Seconds without a single byte."""
    wire_bytes: int = 10 * 1024 * 1024
    """Of the body as sent, framing included."""
    body_bytes: int = 10 * 1024 * 1024
    """Of the decompressed body."""
    header_bytes: int = 64 * 1024
    headers: int = 200
    redirects: int = 5
    on_excess: Literal["cut", "refuse"] = "cut"
    """For a body that is too long, too slow or incomplete: truncate it and say so, or refuse it."""


class HostPolicy:
    """Which hosts the user's rules allow. An empty `allow` means every public host.

    `allow_private` allows individual non-public hosts, each as `host:port`. It must come from the user's own settings,
    never from a workspace, a model or a server.
    """

    __slots__ = ("allow", "allow_private", "deny", "reveals_secret")

    def __init__(
        self,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        allow_private: Iterable[str] = (),
        reveals_secret: Callable[[Iterable[str]], bool] = lambda _: False,
    ) -> None:
        """`reveals_secret`: whether texts contain a secret; such a URL is not fetched."""
        self.reveals_secret = reveals_secret
        self.allow = tuple(normalize_host_pattern(pattern) for pattern in allow)
        self.deny = tuple(normalize_host_pattern(pattern) for pattern in deny)
        self.allow_private = frozenset(_parse_host_port(text) for text in allow_private)

    def allows_private(self, target: FetchTarget) -> bool:
        return target.host_port in self.allow_private

    def check(self, target: FetchTarget) -> None:
        """Checks the URL and the host by name; its addresses are checked when connecting."""
        if self.reveals_secret((target.url,)):
            raise FetchError(
                "Cannot fetch this URL: it contains a secret of the user.", "Remove the secret from the URL.", "url"
            )
        host = display_host(target.host)
        for pattern in self.deny:
            if host_matches(pattern, target.host):
                raise FetchError(
                    f"Cannot fetch from {host}: {pattern} is denied.",
                    "Fetch from another host, or change the rule.",
                    "policy",
                )
        if self.allow and not any(host_matches(pattern, target.host) for pattern in self.allow):
            raise FetchError(
                f"Cannot fetch from {host}: allowed hosts are limited to {_list_some(self.allow)}.",
                "Add a rule that allows this host, or fetch from an allowed one.",
                "policy",
            )
        literal = parse_address(target.host)
        if literal is not None:
            self.check_address(target, literal)
        elif is_local_name(target.host) and not self.allows_private(target):
            raise not_public_error(target, "its name belongs to this machine or a local network")

    def check_address(self, target: FetchTarget, address: IPAddress) -> None:
        """Checks one address that the target resolves to. A host that is allowed by name may resolve to internal
        networks, but not to link-local and reserved addresses: those must be allowed by address."""
        address_class = classify_address(address)
        is_literal = parse_address(target.host) is not None
        if not address_class.reason or (self.allows_private(target) and (is_literal or address_class.can_be_allowed)):
            return
        raise not_public_error(
            target, address_class.reason if is_literal else f"its address {address} is {address_class.reason}"
        )


def not_public_error(target: FetchTarget, what: str) -> FetchError:
    return FetchError(
        f"Cannot fetch from {display_host(target.host)}: {what}.",
        f"Only public addresses are allowed. To allow this one, add {target.host_port} to `fetch.private` in your "
        f"settings.",
        "address",
    )


def _parse_host_port(text: str) -> str:
    try:
        target = parse_url(f"http://{text}")
    except FetchError as error:
        raise UsageError(f"{text[:80]!r} is not a valid host:port: {error.problem}", _HOST_PORT_FIX) from None
    if target.path != "/" or not text.endswith(f":{target.port}"):
        raise UsageError(f"{text[:80]!r} is not a valid host:port.", _HOST_PORT_FIX)
    return target.host_port


_HOST_PORT_FIX = "Write host:port, such as localhost:8000 or [::1]:8000."


def _list_some(patterns: tuple[str, ...]) -> str:
    return ", ".join(patterns[:3]) + (f" and {len(patterns) - 3} more" if len(patterns) > 3 else "")
