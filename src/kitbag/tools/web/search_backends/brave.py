"""Brave Search, by its interface for programs: a GET with the key in a header, answered in JSON. Used by web_search."""

from kitbag.tools.web.search_backends.request import Asked, Found, ask, found_in, rows


async def search(asked: Asked) -> list[Found]:
    given = {"q": asked.words[:400], "count": "20"}
    answer = await ask(asked, "/res/v1/web/search", given, [("X-Subscription-Token", asked.key)])
    return found_in(rows(answer, asked, "web", "results"), "url", "title", "description")
