"""Errors of a fetch. Raised by every module of this package, shown by the caller.

No message contains a query, a password or anything a server sent: those may be secrets or terminal sequences.
"""

from typing import Literal, NamedTuple

from kitbag.errors import KitbagError

FetchErrorKind = Literal["url", "policy", "address", "network", "certificate", "time", "limit", "redirect", "response"]
"""What failed: the URL itself, the user's rules, the address it leads to, or the server's response."""


class FetchRedirect(NamedTuple):
    """One redirect between the requested URL and the final one."""

    status: int
    url: str
    """The full target URL, including its query."""
    is_cross_host: bool


class FetchError(KitbagError):
    def __init__(self, problem: str, fix: str, kind: FetchErrorKind) -> None:
        super().__init__(problem, fix)
        self.kind: FetchErrorKind = kind
        self.redirects: tuple[FetchRedirect, ...] = ()
        """The redirects before the error; if one was refused, it is the last."""
