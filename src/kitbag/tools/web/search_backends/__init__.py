"""Where WebSearch gets its results from: one module for each, with one function, `search`.

A new one is such a module, a row of BACKENDS, and a word of the setting `search.backend`. What all of them need is in
`asking`; web_search chooses, filters and writes the answer.
"""

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Final, NamedTuple, cast

from kitbag.tools.web.search_backends.request import WebSearchQuery, WebSearchResult

SearchFunction = Callable[[WebSearchQuery], Awaitable[list[WebSearchResult]]]
"""Raises SearchError and FetchError. Gives what was found, the best first; the caller filters and bounds it."""


class SearchBackend(NamedTuple):
    name: str
    title: str
    base_url: str = ""
    """Unless the setting `search.url` names another."""
    key_variable: str = ""
    """Of the user's environment; empty where no key is needed."""

    def make_query(
        self, query: str, allowed: tuple[str, ...], blocked: tuple[str, ...], url: str, key: str
    ) -> WebSearchQuery:
        return WebSearchQuery(
            query, allowed, blocked, self.title, url or self.base_url, key, is_user_configured=bool(url)
        )

    def search(self, query: WebSearchQuery) -> Awaitable[list[WebSearchResult]]:
        module = import_module(f"{__name__}.{self.name}")
        return cast("SearchFunction", module.search)(query)


BACKENDS: Final = (
    SearchBackend("searxng", "SearXNG"),
    SearchBackend("brave", "Brave Search", "https://api.search.brave.com", "BRAVE_API_KEY"),
    SearchBackend("tavily", "Tavily", "https://api.tavily.com", "TAVILY_API_KEY"),
    SearchBackend("duckduckgo", "DuckDuckGo", "https://html.duckduckgo.com"),
)
"""In the order in which one is chosen."""
