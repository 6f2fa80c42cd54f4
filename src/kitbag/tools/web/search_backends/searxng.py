"""A SearXNG of the user's own or of somebody they trust, which must have JSON among its formats. Used by web_search."""

from kitbag.tools.web.search_backends.request import Asked, Found, SearchError, ask, found_in, rows

_NO_JSON = "Its owner must add `json` to `search.formats` in its settings.yml."


async def search(asked: Asked) -> list[Found]:
    try:
        answer = await ask(asked, "/search", {"q": asked.words, "format": "json"})
    except SearchError as error:
        if "(403)" in error.problem:
            raise SearchError(f"{asked.address} does not give its results as JSON (403)", _NO_JSON) from None
        raise
    if answer.content_type == "text/html":
        raise SearchError(f"{asked.address} answered with a page and not with JSON", _NO_JSON)
    return found_in(rows(answer, asked, "results"), "url", "title", "content")
