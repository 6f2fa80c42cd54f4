"""Tavily's API: a POST of JSON with the key in a header. Used by web_search."""

from kitbag.tools.web.search_backends.request import (
    WebSearchQuery,
    WebSearchResult,
    json_rows,
    results_from_rows,
    send_query,
)


async def search(query: WebSearchQuery) -> list[WebSearchResult]:
    body = {
        "query": query.query[:400],
        "max_results": 20,
        "include_domains": list(query.allowed),
        "exclude_domains": list(query.blocked),
    }
    answer = await send_query(query, "/search", headers=[("Authorization", f"Bearer {query.key}")], json=body)
    return results_from_rows(json_rows(answer, query, "results"), "url", "title", "content")
