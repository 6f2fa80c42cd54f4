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
from kitbag.tools.base import Arguments, Tool, ToolContext, ToolOutput, error_output, load_description, text_output
from kitbag.tools.files.paths import number_of
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
    allowed_domains: Annotated[Domains, Meta(description="Only results from these.")] = ()
    blocked_domains: Annotated[Domains, Meta(description="No results from these.")] = ()


async def _search_web(arguments: WebSearchArguments, context: ToolContext) -> ToolOutput:
    query = " ".join(arguments.query.split())
    if len(query) < 2:
        return error_output("the query is empty", "Say what to search for.")
    where = ""
    try:
        allowed = tuple(map(_parse_domain, arguments.allowed_domains))
        blocked = tuple(map(_parse_domain, arguments.blocked_domains))
        backend, address, key = _choose_backend(context.library.settings)
        where = backend.title
        asked = backend.make_query(query, allowed, blocked, address, key)
        found = await backend.search(asked)
    except FetchError as error:
        fix = "The user's settings `search.backend` and `search.url` say where searches go."
        return error_output(f"the search did not reach {where}: {error.problem}", f"{error.fix} {fix}")
    except KitbagError as error:
        return error_output(error.problem, error.fix)
    return _render_output(_filter_results(found, allowed, blocked), asked)


def _parse_domain(written: str) -> str:
    """A host from what a model may write: with a scheme, a path or `*.` before it."""
    text = written.strip().lower().partition("://")[2] or written.strip().lower()
    text = text.partition("/")[0].removeprefix("*.")
    try:
        return normalize_host(text)
    except ValueError:
        raise KitbagError(f"{untrusted_line(written, 80)!r} is not a domain", "Write it as docs.python.org.") from None


def _choose_backend(settings: Settings) -> "tuple[SearchBackend, str, str]":
    """The backend, the user's URL if set, and the API key. Raises KitbagError."""
    from kitbag.tools.web.search_backends import BACKENDS

    wanted, url = str(settings.get("search.backend")), str(settings.get("search.url")).strip().rstrip("/")
    backend = next(one for one in BACKENDS if _is_selected(one, wanted, url))
    if not url and not backend.base_url:
        fix = "Set it with `kitbag config set search.url https://…`."
        raise KitbagError(f"{backend.title} has no address: the user's setting `search.url` is empty", fix)
    if not backend.key_variable:
        return backend, url, ""
    key = os.environ.get(backend.key_variable, "").strip()
    if not key:
        fix = f"The user must set {backend.key_variable}, or choose another with the setting `search.backend`."
        raise KitbagError(f"{backend.title} needs a key, and the environment has no {backend.key_variable}", fix)
    if not key.isascii() or not key.isprintable() or " " in key:
        raise KitbagError(f"{backend.key_variable} has characters in it that no key has", "The user must correct it.")
    return backend, url, key


def _is_selected(backend: "SearchBackend", wanted: str, url: str) -> bool:
    if wanted != "auto":
        return backend.name == wanted
    if url:
        return not backend.base_url
    if backend.key_variable:
        return bool(os.environ.get(backend.key_variable, "").strip())
    return bool(backend.base_url)


def _filter_results(
    found: "list[WebSearchResult]", allowed: tuple[str, ...], blocked: tuple[str, ...]
) -> "list[WebSearchResult]":
    """Valid results from wanted domains, without duplicates."""
    kept: dict[tuple[str, str], WebSearchResult] = {}
    for one in found:
        try:
            target = parse_url(one.url.strip())
        except FetchError:
            continue
        wanted = not allowed or _is_in_domains(target, allowed)
        if not wanted or _is_in_domains(target, blocked) or len(target.url) > MAX_URL_CHARS:
            continue
        place = (target.host.removeprefix("www."), target.path.rstrip("/"))
        kept.setdefault(place, one._replace(url=target.url))
        if len(kept) == MAX_RESULTS:
            break
    return list(kept.values())


def _is_in_domains(target: FetchTarget, domains: tuple[str, ...]) -> bool:
    return any(target.host == domain or target.host.endswith(f".{domain}") for domain in domains)


def _render_output(found: "list[WebSearchResult]", asked: "WebSearchQuery") -> ToolOutput:
    from kitbag.tools.web.html_tokens import html_text

    where = f" on {', '.join(map(display_host, asked.allowed))}" if asked.allowed else ""
    if not found:
        text = f"{asked.title} found nothing{where}. Try other words, or fewer."
        return text_output(text, f"nothing found by {asked.title}")
    rows: list[str] = []
    for number, one in enumerate(found, 1):
        title = untrusted_line(html_text(one.title[:_MAX_MARKUP_CHARS]), MAX_TITLE_CHARS) or "(no title)"
        snippet = untrusted_line(html_text(one.snippet[:_MAX_MARKUP_CHARS]), MAX_SNIPPET_CHARS)
        rows += [f"{number}. {title}", f"   {one.url}", *([f"   {snippet}"] if snippet else [])]
    text = untrusted_block("search-results", {"query": asked.query, "from": asked.title}, "\n".join(rows))
    return text_output(text, f"{number_of(len(found), 'result')} from {asked.title}")


WEB_SEARCH: Final[Tool[Any]] = Tool(
    "WebSearch", load_description("WebSearch"), WebSearchArguments, _search_web, read_only=True
)
