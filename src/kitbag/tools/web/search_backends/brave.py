"""Brave Search's API: a GET with the key in a header, answered in JSON. Used by web_search."""

from kitbag.tools.web.search_backends.request import (
    WebSearchQuery,
    WebSearchResult,
    json_rows,
    results_from_rows,
    send_query,
)


async def search(query: WebSearchQuery) -> list[WebSearchResult]:
    params = {"q": query.query_text[:400], "count": "20"}
    answer = await send_query(query, "/res/v1/web/search", params, [("X-Subscription-Token", query.key)])
    return results_from_rows(json_rows(answer, query, "web", "results"), "url", "title", "description")
