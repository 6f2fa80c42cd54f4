"""DuckDuckGo, which needs no key: scrapes its page for browsers without scripts. Used by web_search.

The page is for people: after many searches it shows a CAPTCHA, which is reported and not bypassed.
"""

from urllib.parse import parse_qs, urlsplit

from kitbag.net.exchange import user_agent
from kitbag.tools.web.html_tokens import parse_attributes, tokenize
from kitbag.tools.web.search_backends.request import SearchError, WebSearchQuery, WebSearchResult, send_query

_TITLE_CLASSES = ("result__a", "result-link")
_SNIPPET_CLASSES = ("result__snippet", "result-snippet")
_CHALLENGE_SIGNS = ("anomaly-modal", "anomaly.js", "challenge-form", "g-recaptcha")
_FIX = (
    "Wait a few minutes. For regular use, ask the user to set BRAVE_API_KEY or TAVILY_API_KEY, or "
    "`search.url` to a SearXNG instance."
)


async def search(query: WebSearchQuery) -> list[WebSearchResult]:
    agent = ("User-Agent", f"Mozilla/5.0 (compatible; {user_agent()})")
    answer = await send_query(query, "/html/", {"q": query.query_text}, [agent])
    page = answer.text or ""
    found = parse_results(page)
    if not found:
        if answer.status == 202 or any(sign in page for sign in _CHALLENGE_SIGNS):
            raise SearchError("DuckDuckGo requires a CAPTCHA and is currently not answering searches", _FIX)
        if "no-results" not in page and "no results" not in page.lower():
            raise SearchError("DuckDuckGo returned a page that could not be parsed", _FIX)
    return found


def parse_results(page: str) -> list[WebSearchResult]:
    """Titles with URLs, each with the snippet that follows it, without ads."""
    found: list[WebSearchResult] = []
    texts: list[str] = []
    reading = ""
    """The element being read, a title or a snippet."""
    is_title = False
    address = ""
    for token in tokenize(page):
        if token.kind == "start" and not reading and "result" in token.raw:
            attributes = parse_attributes(token.raw)
            classes = attributes.get("class", "").split()
            is_title = any(name in classes for name in _TITLE_CLASSES)
            if is_title or any(name in classes for name in _SNIPPET_CLASSES):
                reading, texts, address = token.name, [], attributes.get("href", "")
        elif token.kind == "end" and token.name == reading:
            text = "".join(texts)
            if is_title:
                found.append(WebSearchResult(_target_url(address), text))
            elif found and not found[-1].snippet:
                found[-1] = found[-1]._replace(snippet=text)
            reading = ""
        elif token.kind == "text" and reading:
            texts.append(token.raw)
    return [one for one in found if one.url]


def _target_url(address: str) -> str:
    """The target of a DuckDuckGo redirect link; empty for an ad."""
    try:
        parts = urlsplit(address)
        if parts.path.endswith("/y.js") or "ad_domain" in parts.query:
            return ""
        if parts.path.rstrip("/") == "/l" and (parts.hostname or "duckduckgo.com").endswith("duckduckgo.com"):
            return parse_qs(parts.query).get("uddg", [""])[0]
    except ValueError:
        return ""
    return f"https:{address}" if address.startswith("//") else address
