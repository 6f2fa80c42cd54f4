"""A SearXNG instance that the user names, which must have JSON among its formats. Used by web_search."""

from kitbag.tools.web.search_backends.request import (
    SearchError,
    WebSearchQuery,
    WebSearchResult,
    json_rows,
    results_from_rows,
    send_query,
)

_NO_JSON = "Ask its operator to add `json` to `search.formats` in settings.yml."


async def search(query: WebSearchQuery) -> list[WebSearchResult]:
    try:
        answer = await send_query(query, "/search", {"q": query.query_text, "format": "json"})
    except SearchError as error:
        if "(403)" in error.problem:
            raise SearchError(f"{query.base_url} does not allow JSON results (403)", _NO_JSON) from None
        raise
    if answer.content_type == "text/html":
        raise SearchError(f"{query.base_url} returned a web page instead of JSON", _NO_JSON)
    return results_from_rows(json_rows(answer, query, "results"), "url", "title", "content")
