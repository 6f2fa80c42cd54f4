"""What goes wrong when something is fetched. Raised by every module of this package, shown by whoever fetches.

No text here holds a query, a password or anything a server sent: those may be secrets or terminal sequences.
"""

from typing import Literal, NamedTuple

from kitbag.errors import KitbagError

FetchErrorKind = Literal["url", "policy", "address", "network", "certificate", "time", "limit", "redirect", "response"]
"""What was in the way: the URL itself, the user's rules, where it leads, or how the other side answers."""


class FetchRedirect(NamedTuple):
    """One step of the way from the URL that was asked for to the one that answered."""

    status: int
    url: str
    """Where it led, whole: the query is in it."""
    is_cross_host: bool


class FetchError(KitbagError):
    def __init__(self, problem: str, fix: str, kind: FetchErrorKind) -> None:
        super().__init__(problem, fix)
        self.kind: FetchErrorKind = kind
        self.redirects: tuple[FetchRedirect, ...] = ()
        """The steps before this happened; the last one is the one that was refused, if a redirect was."""
