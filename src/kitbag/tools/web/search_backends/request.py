"""The query and results of a search backend, and the HTTP request to its server, with error messages.

Used by every backend and by web_search. Uses net.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlencode

import msgspec

from kitbag.errors import KitbagError
from kitbag.net.fetch import FetchResult, call_api
from kitbag.net.policy import FetchLimits, HostPolicy
from kitbag.net.urls import parse_url

LIMITS: Final = FetchLimits(total_timeout=20, wire_bytes=4 << 20, body_bytes=4 << 20)


class SearchError(KitbagError):
    """A failed search: the problem, and what the user or the model can do."""


class WebSearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    query: str
    allowed: tuple[str, ...]
    """Domains; empty: all."""
    blocked: tuple[str, ...]
    title: str
    """The name of the backend."""
    base_url: str
    """Of the server, without a trailing slash."""
    key: str
    is_user_configured: bool
    """Whether the user's settings name the URL, which may then be a private address."""

    @property
    def query_text(self) -> str:
        """The query with `site:` operators, which most engines support; results are filtered anyway."""
        sites = " OR ".join(f"site:{domain}" for domain in self.allowed[:5])
        sites = f"({sites})" if len(self.allowed) > 1 else sites
        return " ".join(filter(None, (self.query, sites, *(f"-site:{domain}" for domain in self.blocked[:5]))))


class WebSearchResult(NamedTuple):
    url: str
    title: str
    """May contain HTML."""
    snippet: str = ""


async def send_query(
    query: WebSearchQuery,
    path: str,
    params: dict[str, str] | None = None,
    headers: Sequence[tuple[str, str]] = (),
    json: object = None,
) -> FetchResult:
    """A GET with `params` in its query string, or a POST of `json`. Raises SearchError for an error status."""
    url = f"{query.base_url}{path}" + (f"?{urlencode(params)}" if params else "")
    target = parse_url(url)
    policy = HostPolicy(allow=(target.host,), allow_private=(target.host_port,) if query.is_user_configured else ())
    body = None if json is None else msgspec.json.encode(json)
    content_type = (("Content-Type", "application/json"),) if body is not None else ()
    answer = await call_api(url, policy=policy, headers=(*headers, *content_type), body=body, limits=LIMITS)
    _check_status(answer, query)
    return answer


def _check_status(answer: FetchResult, query: WebSearchQuery) -> None:
    status = answer.status
    if status < 300:
        return
    if status in (429, 432, 433):
        wait = next((value for name, value in answer.headers if name == "retry-after" and value.isdigit()), "")
        when = f"in {wait} seconds" if wait else "later"
        raise SearchError(f"{query.title} rate limit reached ({status})", f"Try again {when}, {_CHOOSE_ANOTHER}")
    if status in (401, 403, 422) and query.key:
        fix = f"Ask the user to check the key and its permissions, {_CHOOSE_ANOTHER}"
        raise SearchError(f"{query.title} rejected the API key ({status})", fix)
    if status >= 500:
        raise SearchError(f"{query.title} is unavailable ({status})", f"Try again later, {_CHOOSE_ANOTHER}")
    raise SearchError(f"{query.title} rejected the search ({status})", f"Use fewer, simpler words, {_CHOOSE_ANOTHER}")


_CHOOSE_ANOTHER: Final = "or ask the user to set `search.backend` to another backend."


def json_rows(answer: FetchResult, query: WebSearchQuery, *keys: str) -> list[dict[str, Any]]:
    """The list of objects at a path in the JSON; other items are omitted."""
    if answer.truncation_reason:
        raise SearchError(
            f"the response from {query.title} {answer.truncation_reason}", f"Try again, {_CHOOSE_ANOTHER}"
        )
    try:
        value: Any = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise SearchError(f"{query.title} did not return JSON", f"Check its URL, {_CHOOSE_ANOTHER}") from None
    for key in keys:
        value = cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None
    listed = cast("list[Any]", value) if isinstance(value, list) else []
    return [row for row in listed if isinstance(row, dict)]


def results_from_rows(listed: list[dict[str, Any]], url: str, title: str, snippet: str) -> list[WebSearchResult]:
    """Rows as results, by field names."""

    def text(row: dict[str, Any], key: str) -> str:
        value = row.get(key)
        return value if isinstance(value, str) else ""

    return [WebSearchResult(text(row, url), text(row, title), text(row, snippet)) for row in listed if text(row, url)]
