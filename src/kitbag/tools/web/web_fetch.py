"""WebFetch: a web page as Markdown, only from the allowed host and only through net.

Used by the agent loop, which asks for permission first. A redirect to another host is reported and not followed,
because that host was not allowed. Pages are cached for a while, so that reading on is free and consistent.
"""

import base64
import os
import re
import threading
import time
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta, structs

from kitbag.messages import Image, Text
from kitbag.net.errors import FetchError
from kitbag.net.hosts import display_host, is_ip_address, normalize_host
from kitbag.net.policy import FetchLimits, HostPolicy
from kitbag.net.urls import FetchTarget, parse_url
from kitbag.permissions.rules.matching import parse_host
from kitbag.processes.run_process import run_in_thread
from kitbag.tools.base import Arguments, Tool, ToolContext, ToolOutput, error_output, load_description, text_output
from kitbag.tools.files.read import MAX_IMAGE_BYTES, format_size, image_type
from kitbag.tools.web.untrusted_text import untrusted_block, untrusted_line

if TYPE_CHECKING:
    from kitbag.net.exchange import NetworkRoute
    from kitbag.net.fetch import FetchResult

LIMITS: Final = FetchLimits()
CACHE_SECONDS: Final = 15 * 60
MAX_CACHED_PAGES: Final = 16
MAX_CACHED_SIZE: Final = 16_000_000
_MAX_ERROR_CHARS = 2_000
_MAX_LOCATION_CHARS = 2_000
_HTML: Final = ("text/html", "application/xhtml+xml")
_LOOKS_HTML = re.compile(
    r"\s*(?:<!--.{0,2000}?-->\s*)?<(?:!doctype html|html|head|body)[\s>]", re.IGNORECASE | re.DOTALL
)
_NEXT_PAGES = re.compile(r'pages="(\d+)[-\d]*"')


class WebFetchArguments(Arguments, frozen=True):
    url: Annotated[str, Meta(min_length=1, max_length=8_192)]
    prompt: Annotated[str, Meta(max_length=10_000)] = ""
    offset: Annotated[int, Meta(ge=0, le=10**9, description="Characters to skip; for a PDF, pages.")] = 0


class FetchedPage(msgspec.Struct, frozen=True, kw_only=True):
    """The content at a URL."""

    url: str
    status: int
    content_type: str
    """As the server says, such as text/html."""
    title: str
    text: str
    truncation: str
    """Why the page is incomplete."""
    body: bytes = b""
    """If it is not text."""
    retry_after: str = ""


class _PageCache:
    """Recently read pages; the oldest are evicted first."""

    def __init__(self) -> None:
        self._pages: dict[str, tuple[float, FetchedPage]] = {}

    def get(self, url: str) -> FetchedPage | None:
        until, page = self._pages.get(url, (0.0, None))
        return page if until > time.monotonic() else None

    def put(self, url: str, page: FetchedPage) -> None:
        self._pages.pop(url, None)
        self._pages[url] = (time.monotonic() + CACHE_SECONDS, page)
        while len(self._pages) > MAX_CACHED_PAGES or self._size() > MAX_CACHED_SIZE:
            del self._pages[next(iter(self._pages))]

    def _size(self) -> int:
        return sum(len(got.text) + len(got.body) for _, got in self._pages.values())


class _WebFetch:
    def __init__(self, route: "NetworkRoute | None", limits: FetchLimits) -> None:
        self._route = route
        self._limits = limits
        self._cache = _PageCache()

    async def __call__(self, arguments: WebFetchArguments, context: ToolContext, /) -> ToolOutput:
        try:
            target = _parse_url(arguments.url)
            private = context.permissions.private_hosts(context.library.settings.get("fetch.private"))
            policy = HostPolicy(
                allow=(target.host,), allow_private=private, reveals_secret=context.permissions.reveals_secret
            )
            policy.check(target)
            page = self._cache.get(target.url) or await self._get(target, policy)
        except FetchError as error:
            return _redirect_output(error) or error_output(error.problem, error.fix)
        if page.status < 300 and not page.truncation:
            self._cache.put(target.url, page)
        return await run_in_thread(lambda stop: _render_output(page, arguments, stop))

    async def _get(self, target: FetchTarget, policy: HostPolicy) -> FetchedPage:
        fetched = await self._fetch(target, policy)
        return await run_in_thread(lambda stop: _read_page(fetched, stop))

    async def _fetch(self, target: FetchTarget, policy: HostPolicy) -> "FetchResult":
        """By https if nothing prevents it; else as written."""
        from kitbag.net.fetch import fetch

        if (
            target.scheme == "http"
            and target.port == 80
            and not policy.allows_private(target)
            and not is_ip_address(target.host)
        ):
            secure = FetchTarget(scheme="https", host=target.host, port=443, path=target.path)
            try:
                return await fetch(secure.url, policy=policy, limits=self._limits, route=self._route)
            except FetchError as error:
                if error.kind not in ("network", "redirect"):
                    raise
        return await fetch(target.url, policy=policy, limits=self._limits, route=self._route)


def _parse_url(url: str) -> FetchTarget:
    """Raises FetchError, also if the approved host could differ from the fetched one."""
    target = parse_url(url)
    approved_host, problem = parse_host(url)
    if problem or normalize_host(approved_host) != target.host:
        raise FetchError(
            f"the host of this URL is ambiguous; it may be {display_host(target.host)}",
            f"Use {target.url[:_MAX_LOCATION_CHARS]}",
            "url",
        )
    return target


def _redirect_output(error: FetchError) -> ToolOutput | None:
    """The target, if the error is a redirect to a host that was not allowed."""
    last = error.redirects[-1] if error.redirects else None
    if last is None or error.kind != "policy":
        return None
    if len(last.url) > _MAX_LOCATION_CHARS:
        return error_output("the page redirects to another host with a URL that is too long to show")
    host = display_host(parse_url(last.url).host)
    text = (
        f"The page redirects ({last.status}) to another host, {host}, which is not approved. Nothing was read. "
        f"To follow the redirect, call WebFetch with this URL:\n{last.url}"
    )
    return text_output(text, f"redirects to {host}")


def _read_page(fetched: "FetchResult", stop: threading.Event) -> FetchedPage:
    truncation = f"its body {fetched.truncation_reason}" if fetched.truncation_reason else ""
    retry_after = next((value for name, value in fetched.headers if name == "retry-after"), "")
    page = FetchedPage(
        url=fetched.url,
        status=fetched.status,
        content_type=fetched.content_type,
        title="",
        text="",
        truncation=truncation,
        retry_after=retry_after,
    )
    if fetched.body.startswith(b"%PDF-") or image_type(fetched.body):
        return structs.replace(page, body=fetched.body)
    text = _decode_text(fetched)
    if text is None:
        return structs.replace(page, body=fetched.body)
    if page.content_type in _HTML or (not page.content_type and _LOOKS_HTML.match(text)):
        from kitbag.tools.web.html_to_markdown import html_to_markdown

        markdown = html_to_markdown(text, fetched.url, stop)
        return structs.replace(
            page,
            content_type=page.content_type or _HTML[0],
            title=markdown.title,
            text=markdown.text,
            truncation=markdown.truncation or truncation,
        )
    return structs.replace(page, text=text.replace("\r\n", "\n"))


def _decode_text(fetched: "FetchResult") -> str | None:
    text = fetched.text
    if text is None:
        if fetched.content_type not in ("application/octet-stream", "binary/octet-stream") or b"\0" in fetched.body:
            return None
        try:
            return fetched.body.decode()
        except UnicodeDecodeError:
            return None
    if fetched.encoding == "utf-8" and "\ufffd" in text:
        has_charset = any(name == "content-type" and "charset" in value.lower() for name, value in fetched.headers)
        unusual = len(text) - len(text.encode("ascii", "ignore"))
        if not has_charset and 2 * text.count("\ufffd") > unusual:  # no declared charset, and not UTF-8
            return fetched.body.decode("cp1252", "replace")
    return text


def _render_output(page: FetchedPage, arguments: WebFetchArguments, stop: threading.Event) -> ToolOutput:
    if page.status >= 300:
        return _http_error_output(page)
    if page.body.startswith(b"%PDF-"):
        return _pdf_output(page, arguments.offset, stop)
    if page.body:
        return _binary_output(page)
    if not page.text.strip():
        reason = f" ({page.truncation})" if page.truncation else "; it may require JavaScript"
        return text_output(f"{page.url} has no text{reason}.", "no text", page.truncation)
    if arguments.offset >= len(page.text):
        problem = f"offset {arguments.offset:,} is past the end of the page ({len(page.text):,} characters)"
        return error_output(problem, "Use a smaller offset.")
    from kitbag.tools.web.excerpt import excerpt_window, relevant_excerpt

    shown = (
        relevant_excerpt(page.text, arguments.prompt)
        if not arguments.offset
        else excerpt_window(page.text, arguments.offset)
    )
    notes = [shown.note] if shown.note else []
    if page.truncation:
        notes.append(f"The page is incomplete: {page.truncation}.")
    summary = f"{len(shown.text):,} characters of {untrusted_line(page.url, 200)}"
    return text_output(_page_block(page, shown.text, notes), summary, " ".join(notes))


def _page_block(page: FetchedPage, text: str, notes: list[str]) -> str:
    rendered = untrusted_block(
        "web-page", {"url": page.url, "type": page.content_type, "title": page.title[:300]}, text
    )
    return "\n".join([rendered, f"[{' '.join(notes)}]"]) if notes else rendered


def _http_error_output(page: FetchedPage) -> ToolOutput:
    """The server returned an error: its status and the start of its body."""
    from http.client import responses

    problem = f"{parse_url(page.url).display_url} returned {page.status} {responses.get(page.status, '')}".rstrip()
    if page.status in (401, 403, 407):
        fix = "It requires authentication or blocks automated access. Look for another source."
    elif page.status in (404, 410):
        fix = "Check the URL, or search for its new location."
    elif page.status in (429, 503):
        when = f"in {page.retry_after} seconds" if page.retry_after.isdigit() else "later"
        fix = f"Try again {when}, or look for another source."
    else:
        fix = "Try another URL." if page.status < 500 else "Try again later, or look for another source."
    failed = error_output(problem, fix)
    body_text = page.text.strip()[:_MAX_ERROR_CHARS]
    if not body_text:
        return failed
    return structs.replace(failed, content=(*failed.content, Text(_page_block(page, body_text, []))))


def _binary_output(page: FetchedPage) -> ToolOutput:
    media_type, size = image_type(page.body), format_size(len(page.body))
    where = untrusted_line(parse_url(page.url).display_url, 200)
    if not media_type:
        kind = f"{page.content_type}, " if page.content_type else ""
        fix = "WebFetch supports text, PDF and images. Download it with a command if you need it."
        return error_output(f"{where} is not text: {kind}{size}", fix)
    if page.truncation or len(page.body) > MAX_IMAGE_BYTES:
        limit = f"the maximum is {format_size(MAX_IMAGE_BYTES)}"
        return error_output(
            f"{where} is an image of {size}{' or more' if page.truncation else ''}; {limit}", "Use a smaller image."
        )
    image = Image(media_type=media_type, data=base64.b64encode(page.body).decode())
    return ToolOutput(content=(image,), summary=f"{where}, {media_type}, {size}")


def _pdf_output(page: FetchedPage, skipped: int, stop: threading.Event) -> ToolOutput:
    """The text of its pages. `offset` counts pages here."""
    from kitbag.tools.files.pdf_text import read_pdf

    if page.truncation:
        return error_output(f"the PDF is incomplete: {page.truncation}", "Download it with a command if you need it.")
    where = untrusted_line(parse_url(page.url).display_url, 200)
    pages = f"{skipped + 1}-" if skipped else ""
    with open(os.memfd_create("page"), "w+b") as file:
        file.write(page.body)
        file.seek(0)
        outcome = read_pdf(file.fileno(), where, pages, stop)
    if outcome.is_error:
        return outcome

    def in_our_words(text: str) -> str:
        return _NEXT_PAGES.sub(lambda found: f"offset={int(found[1]) - 1}", text)

    text = "\n".join(part.text for part in outcome.content if isinstance(part, Text))
    body, _, note = text.rpartition("\n") if outcome.truncation and text.endswith("]") else (text, "", "")
    page_text = _page_block(page, body, []) + (f"\n{in_our_words(note)}" if note else "")
    return ToolOutput(content=(Text(page_text),), summary=outcome.summary, truncation=in_our_words(outcome.truncation))


def make_web_fetch(route: "NetworkRoute | None" = None, limits: FetchLimits = LIMITS) -> Tool[WebFetchArguments]:
    """Create one per session, because it caches pages."""
    return Tool(
        name="WebFetch",
        description=load_description("WebFetch"),
        arguments=WebFetchArguments,
        run=_WebFetch(route, limits),
        read_only=True,
    )
