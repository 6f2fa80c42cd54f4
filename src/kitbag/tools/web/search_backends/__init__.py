"""The search backends of WebSearch: one module each, with a function `search`.

To add one, write a module, a row of BACKENDS and a value of the setting `search.backend`. `request` has what all of
them need; web_search chooses a backend, filters its results and renders them.
"""

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Final, cast

import msgspec

from kitbag.tools.web.search_backends.request import WebSearchQuery, WebSearchResult

SearchFunction = Callable[[WebSearchQuery], Awaitable[list[WebSearchResult]]]
"""Returns results, best first; the caller filters and bounds them. Raises SearchError and FetchError."""


class SearchBackend(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    base_url: str = ""
    """Unless the setting `search.url` overrides it."""
    key_variable: str = ""
    """The environment variable with the API key; empty if none is needed."""

    def make_query(
        self, query: str, allowed: tuple[str, ...], blocked: tuple[str, ...], url: str, key: str
    ) -> WebSearchQuery:
        return WebSearchQuery(
            query=query,
            allowed=allowed,
            blocked=blocked,
            title=self.title,
            base_url=url or self.base_url,
            key=key,
            is_user_configured=bool(url),
        )

    def search(self, query: WebSearchQuery) -> Awaitable[list[WebSearchResult]]:
        module = import_module(f"{__name__}.{self.name}")
        return cast("SearchFunction", module.search)(query)


BACKENDS: Final = (
    SearchBackend(name="searxng", title="SearXNG"),
    SearchBackend(
        name="brave", title="Brave Search", base_url="https://api.search.brave.com", key_variable="BRAVE_API_KEY"
    ),
    SearchBackend(name="tavily", title="Tavily", base_url="https://api.tavily.com", key_variable="TAVILY_API_KEY"),
    SearchBackend(name="duckduckgo", title="DuckDuckGo", base_url="https://html.duckduckgo.com"),
)
"""In order of preference."""
