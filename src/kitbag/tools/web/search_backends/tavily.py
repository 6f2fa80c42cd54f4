"""Tavily, by its interface for programs: a POST of JSON with the key in a header. Used by web_search."""

from kitbag.tools.web.search_backends.request import Asked, Found, ask, found_in, rows


async def search(asked: Asked) -> list[Found]:
    given = {
        "query": asked.query[:400],
        "max_results": 20,
        "include_domains": list(asked.allowed),
        "exclude_domains": list(asked.blocked),
    }
    answer = await ask(asked, "/search", headers=[("Authorization", f"Bearer {asked.key}")], json=given)
    return found_in(rows(answer, asked, "results"), "url", "title", "content")
