"""Where WebSearch gets its results from: one module for each, with one function, `search`.

A new one is such a module, a row of BACKENDS, and a word of the setting `search.backend`. What all of them need is in
`asking`; web_search chooses, filters and writes the answer.
"""

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Final, NamedTuple, cast

from kitbag.tools.web.search_backends.request import Asked, Found

Search = Callable[[Asked], Awaitable[list[Found]]]
"""Raises SearchError and FetchError. Gives what was found, the best first; the caller filters and bounds it."""


class Backend(NamedTuple):
    name: str
    title: str
    address: str = ""
    """Unless the setting `search.url` names another."""
    key_variable: str = ""
    """Of the user's environment; empty where no key is needed."""

    def asked(self, query: str, allowed: tuple[str, ...], blocked: tuple[str, ...], url: str, key: str) -> Asked:
        return Asked(query, allowed, blocked, self.title, url or self.address, key, is_users=bool(url))

    def search(self, asked: Asked) -> Awaitable[list[Found]]:
        module = import_module(f"{__name__}.{self.name}")
        return cast("Search", module.search)(asked)


BACKENDS: Final = (
    Backend("searxng", "SearXNG"),
    Backend("brave", "Brave Search", "https://api.search.brave.com", "BRAVE_API_KEY"),
    Backend("tavily", "Tavily", "https://api.tavily.com", "TAVILY_API_KEY"),
    Backend("duckduckgo", "DuckDuckGo", "https://html.duckduckgo.com"),
)
"""In the order in which one is chosen."""
