"""A SearXNG instance that the user names, which must have JSON among its formats. Used by web_search."""

from kitbag.tools.web.search_backends.request import (
    SearchError,
    WebSearchQuery,
    WebSearchResult,
    json_rows,
    results_from_rows,
    send_query,
)

_NO_JSON = "Its owner must add `json` to `search.formats` in its settings.yml."


async def search(query: WebSearchQuery) -> list[WebSearchResult]:
    try:
        answer = await send_query(query, "/search", {"q": query.query_text, "format": "json"})
    except SearchError as error:
        if "(403)" in error.problem:
            raise SearchError(f"{query.base_url} does not give its results as JSON (403)", _NO_JSON) from None
        raise
    if answer.content_type == "text/html":
        raise SearchError(f"{query.base_url} answered with a page and not with JSON", _NO_JSON)
    return results_from_rows(json_rows(answer, query, "results"), "url", "title", "content")
