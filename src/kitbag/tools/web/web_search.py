"""WebSearch: titles, URLs and snippets, from the backend the user chose or one that needs no key.

Used by the agent loop, which asks for permission first. Keys come from the environment and the backend from the user's
own settings, never from a workspace. Results are filtered, bounded and delimited here.
"""

import os
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta

from kitbag.errors import KitbagError
from kitbag.net.errors import FetchError
from kitbag.net.hosts import display_host, normalize_host
from kitbag.net.urls import FetchTarget, parse_url
from kitbag.settings import Settings
from kitbag.text.human_format import format_count
from kitbag.tools.base import Arguments, Tool, ToolContext, ToolOutput, error_output, load_description, text_output
from kitbag.tools.web.untrusted_text import untrusted_block, untrusted_line

if TYPE_CHECKING:
    from kitbag.tools.web.search_backends import SearchBackend
    from kitbag.tools.web.search_backends.request import WebSearchQuery, WebSearchResult

MAX_RESULTS: Final = 10
MAX_TITLE_CHARS: Final = 200
MAX_SNIPPET_CHARS: Final = 500
MAX_URL_CHARS: Final = 1_000
_MAX_MARKUP_CHARS = 5_000

Domains = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=300)], ...], Meta(max_length=50)]


class WebSearchArguments(Arguments, frozen=True):
    query: Annotated[str, Meta(min_length=2, max_length=1_000)]
    allowed_domains: Domains = ()
    blocked_domains: Domains = ()


async def _search_web(arguments: WebSearchArguments, context: ToolContext) -> ToolOutput:
    query = " ".join(arguments.query.split())
    if len(query) < 2:
        return error_output("the query is empty", "Provide a search query.")
    where = ""
    try:
        allowed = tuple(map(_parse_domain, arguments.allowed_domains))
        blocked = tuple(map(_parse_domain, arguments.blocked_domains))
        backend, address, key = _choose_backend(context.library.settings)
        where = backend.title
        search_query = backend.make_query(query, allowed, blocked, address, key)
        results = await backend.search(search_query)
    except FetchError as error:
        fix = "The user can change the settings `search.backend` and `search.url`."
        return error_output(f"cannot reach {where}: {error.problem}", f"{error.fix} {fix}")
    except KitbagError as error:
        return error_output(error.problem, error.fix)
    return _render_output(_filter_results(results, allowed, blocked), search_query)


def _parse_domain(written: str) -> str:
    """A host from what a model may write: with a scheme, a path or `*.` before it."""
    text = written.strip().lower().partition("://")[2] or written.strip().lower()
    text = text.partition("/")[0].removeprefix("*.")
    try:
        return normalize_host(text)
    except ValueError:
        raise KitbagError(
            f"{untrusted_line(written, 80)!r} is not a domain", "Use a form such as docs.python.org."
        ) from None


def _choose_backend(settings: Settings) -> "tuple[SearchBackend, str, str]":
    """The backend, the user's URL if set, and the API key. Raises KitbagError."""
    from kitbag.tools.web.search_backends import BACKENDS

    backend_name, url = str(settings.get("search.backend")), str(settings.get("search.url")).strip().rstrip("/")
    backend = next(one for one in BACKENDS if _is_selected(one, backend_name, url))
    if not url and not backend.base_url:
        fix = "The user can set it with `kitbag config set search.url https://…`."
        raise KitbagError(f"{backend.title} has no URL: the setting `search.url` is empty", fix)
    if not backend.key_variable:
        return backend, url, ""
    key = os.environ.get(backend.key_variable, "").strip()
    if not key:
        fix = f"Ask the user to set {backend.key_variable}, or to set `search.backend` to another backend."
        raise KitbagError(f"{backend.title} needs an API key, and {backend.key_variable} is not set", fix)
    if not key.isascii() or not key.isprintable() or " " in key:
        raise KitbagError(f"{backend.key_variable} contains invalid characters", "Ask the user to fix it.")
    return backend, url, key


def _is_selected(backend: "SearchBackend", backend_name: str, url: str) -> bool:
    if backend_name != "auto":
        return backend.name == backend_name
    if url:
        return not backend.base_url
    if backend.key_variable:
        return bool(os.environ.get(backend.key_variable, "").strip())
    return bool(backend.base_url)


def _filter_results(
    results: "list[WebSearchResult]", allowed: tuple[str, ...], blocked: tuple[str, ...]
) -> "list[WebSearchResult]":
    """Valid results from wanted domains, without duplicates."""
    by_target: dict[tuple[str, str], WebSearchResult] = {}
    for result in results:
        try:
            target = parse_url(result.url.strip())
        except FetchError:
            continue
        is_allowed = not allowed or _is_in_domains(target, allowed)
        if not is_allowed or _is_in_domains(target, blocked) or len(target.url) > MAX_URL_CHARS:
            continue
        key = (target.host.removeprefix("www."), target.path.rstrip("/"))
        by_target.setdefault(key, result._replace(url=target.url))
        if len(by_target) == MAX_RESULTS:
            break
    return list(by_target.values())


def _is_in_domains(target: FetchTarget, domains: tuple[str, ...]) -> bool:
    return any(target.host == domain or target.host.endswith(f".{domain}") for domain in domains)


def _render_output(results: "list[WebSearchResult]", query: "WebSearchQuery") -> ToolOutput:
    from kitbag.tools.web.html_tokens import html_text

    where = f" on {', '.join(map(display_host, query.allowed))}" if query.allowed else ""
    if not results:
        text = f"{query.title} returned no results{where}. Try different or fewer keywords."
        return text_output(text, f"no results from {query.title}")
    rows: list[str] = []
    for number, result in enumerate(results, 1):
        title = untrusted_line(html_text(result.title[:_MAX_MARKUP_CHARS]), MAX_TITLE_CHARS) or "(no title)"
        snippet = untrusted_line(html_text(result.snippet[:_MAX_MARKUP_CHARS]), MAX_SNIPPET_CHARS)
        rows += [f"{number}. {title}", f"   {result.url}", *([f"   {snippet}"] if snippet else [])]
    text = untrusted_block("search-results", {"query": query.query, "from": query.title}, "\n".join(rows))
    return text_output(text, f"{format_count(len(results), 'result')} from {query.title}")


WEB_SEARCH: Final[Tool[Any]] = Tool(
    name="WebSearch",
    description=load_description("WebSearch"),
    arguments=WebSearchArguments,
    run=_search_web,
    read_only=True,
)
