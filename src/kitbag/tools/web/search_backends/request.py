"""What a search back end is given and gives back, and how it asks its server: through net, with the words for failures.

Used by every back end and by web_search.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlencode

import msgspec

from kitbag.errors import KitbagError
from kitbag.net.fetch import Fetched, call
from kitbag.net.policy import HostPolicy, Limits
from kitbag.net.urls import parse_target

LIMITS: Final = Limits(seconds=20, wire_bytes=4 << 20, body_bytes=4 << 20)


class SearchError(KitbagError):
    """A search that came to nothing: what is wrong, and what a person or the model can do."""


class Asked(NamedTuple):
    query: str
    allowed: tuple[str, ...]
    """Domains; empty: all."""
    blocked: tuple[str, ...]
    title: str
    """What the back end is called."""
    address: str
    """Of the server, without a slash at its end."""
    key: str
    is_users: bool
    """Whether the user's settings name the address, so that it may be a private one."""

    @property
    def words(self) -> str:
        """The query with the domains in it, as most engines read them; they are filtered afterwards in any case."""
        sites = " OR ".join(f"site:{domain}" for domain in self.allowed[:5])
        sites = f"({sites})" if len(self.allowed) > 1 else sites
        return " ".join(filter(None, (self.query, sites, *(f"-site:{domain}" for domain in self.blocked[:5]))))


class Found(NamedTuple):
    url: str
    title: str
    """May have HTML in it."""
    snippet: str = ""


async def ask(
    asked: Asked,
    path: str,
    given: dict[str, str] | None = None,
    headers: Sequence[tuple[str, str]] = (),
    json: object = None,
) -> Fetched:
    """A GET with `given` in its query, or a POST of `json`. A status that means failure is a SearchError."""
    url = f"{asked.address}{path}" + (f"?{urlencode(given)}" if given else "")
    target = parse_target(url)
    policy = HostPolicy(allow=(target.host,), allow_private=(target.place,) if asked.is_users else ())
    body = None if json is None else msgspec.json.encode(json)
    more = (("Content-Type", "application/json"),) if body is not None else ()
    answer = await call(url, policy=policy, headers=(*headers, *more), body=body, limits=LIMITS)
    _check(answer, asked)
    return answer


def _check(answer: Fetched, asked: Asked) -> None:
    status = answer.status
    if status < 300:
        return
    if status in (429, 432, 433):
        wait = next((value for name, value in answer.headers if name == "retry-after" and value.isdigit()), "")
        when = f"in {wait} seconds" if wait else "later"
        raise SearchError(f"{asked.title} takes no more searches for now ({status})", f"Try again {when}, {_OTHER}")
    if status in (401, 403, 422) and asked.key:
        fix = f"Tell the user to check the key, and what it may be used for; {_OTHER}"
        raise SearchError(f"{asked.title} refused the key ({status})", fix)
    if status >= 500:
        raise SearchError(f"{asked.title} is out of order ({status})", f"Try again later, {_OTHER}")
    raise SearchError(f"{asked.title} refused the search ({status})", f"Use fewer and plainer words, {_OTHER}")


_OTHER: Final = "or have the user choose another with the setting `search.backend`."


def rows(answer: Fetched, asked: Asked, *keys: str) -> list[dict[str, Any]]:
    """The list of objects at a place in JSON; what is not an object is left out."""
    if answer.cut:
        raise SearchError(f"The answer of {asked.title} {answer.cut}", f"Try again, {_OTHER}")
    try:
        value: Any = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise SearchError(f"{asked.title} did not answer with JSON", f"Check its address, {_OTHER}") from None
    for key in keys:
        value = cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None
    listed = cast("list[Any]", value) if isinstance(value, list) else []
    return [row for row in listed if isinstance(row, dict)]


def found_in(listed: list[dict[str, Any]], url: str, title: str, snippet: str) -> list[Found]:
    """Rows as results, by the names of their fields."""

    def text(row: dict[str, Any], key: str) -> str:
        value = row.get(key)
        return value if isinstance(value, str) else ""

    return [Found(text(row, url), text(row, title), text(row, snippet)) for row in listed if text(row, url)]
