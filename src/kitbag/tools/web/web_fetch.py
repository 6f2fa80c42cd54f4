"""WebFetch: a page of the web, as Markdown. Only from the host that was allowed, and only through net.

Used by the loop, which asks for permission before. A redirect to another host is told and not followed, because that
host was not asked about. Pages are kept for a while, so that reading on costs nothing and reads the same text.
"""

import base64
import os
import re
import threading
import time
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from msgspec import Meta

from kitbag.messages import Image, Text
from kitbag.net.errors import FetchError
from kitbag.net.hosts import is_address, normal_host, shown_host
from kitbag.net.policy import HostPolicy, Limits
from kitbag.net.urls import Target, parse_target
from kitbag.permissions.rules.matching import host_of
from kitbag.processes.run_process import in_thread
from kitbag.tools.base import Arguments, Context, Outcome, Tool, answer, description, failure
from kitbag.tools.files.read import MOST_IMAGE_BYTES, amount, image_type
from kitbag.tools.web.untrusted_text import block, line

if TYPE_CHECKING:
    from kitbag.net.exchange import Route
    from kitbag.net.fetch import Fetched

LIMITS: Final = Limits()
KEPT_SECONDS: Final = 15 * 60
MOST_KEPT: Final = 16
MOST_KEPT_SIZE: Final = 16_000_000
_ERROR_CHARACTERS = 2_000
_LONGEST_LOCATION = 2_000
_HTML: Final = ("text/html", "application/xhtml+xml")
_LOOKS_HTML = re.compile(
    r"\s*(?:<!--.{0,2000}?-->\s*)?<(?:!doctype html|html|head|body)[\s>]", re.IGNORECASE | re.DOTALL
)
_NEXT_PAGES = re.compile(r'pages="(\d+)[-\d]*"')


class WebFetchArguments(Arguments, frozen=True):
    url: Annotated[str, Meta(min_length=1, max_length=8_192, description="Whole: https://host/path")]
    prompt: Annotated[str, Meta(max_length=10_000, description="What you look for in it.")] = ""
    offset: Annotated[int, Meta(ge=0, le=10**9, description="Characters to skip; pages of a PDF.")] = 0


class Got(NamedTuple):
    """What is at an address."""

    url: str
    status: int
    kind: str
    """As the server calls it, such as text/html."""
    title: str
    text: str
    cut: str
    """Why it is not whole, in words."""
    body: bytes = b""
    """Of what is no text."""
    retry_after: str = ""


class _Kept:
    """Pages that were read a short while ago; the oldest go first."""

    def __init__(self) -> None:
        self._pages: dict[str, tuple[float, Got]] = {}

    def find(self, url: str) -> Got | None:
        until, got = self._pages.get(url, (0.0, None))
        return got if until > time.monotonic() else None

    def keep(self, url: str, got: Got) -> None:
        self._pages.pop(url, None)
        self._pages[url] = (time.monotonic() + KEPT_SECONDS, got)
        while len(self._pages) > MOST_KEPT or self._size() > MOST_KEPT_SIZE:
            del self._pages[next(iter(self._pages))]

    def _size(self) -> int:
        return sum(len(got.text) + len(got.body) for _, got in self._pages.values())


class _WebFetch:
    def __init__(self, route: "Route | None", limits: Limits) -> None:
        self._route = route
        self._limits = limits
        self._kept = _Kept()

    async def __call__(self, arguments: WebFetchArguments, context: Context, /) -> Outcome:
        try:
            target = _target(arguments.url)
            private = context.permissions.private_places(context.library.settings.get("fetch.private"))
            policy = HostPolicy(allow=(target.host,), allow_private=private)
            policy.check(target)
            got = self._kept.find(target.url) or await self._get(target, policy)
        except FetchError as error:
            return _other_host(error) or failure(error.problem, error.fix)
        if got.status < 300 and not got.cut:
            self._kept.keep(target.url, got)
        return await in_thread(lambda stop: _outcome(got, arguments, stop))

    async def _get(self, target: Target, policy: HostPolicy) -> Got:
        fetched = await self._fetch(target, policy)
        return await in_thread(lambda stop: _understood(fetched, stop))

    async def _fetch(self, target: Target, policy: HostPolicy) -> "Fetched":
        """By https where nothing speaks against it; a host without is asked as it was written."""
        from kitbag.net.fetch import fetch

        if target.scheme == "http" and target.port == 80 and not policy.opens(target) and not is_address(target.host):
            secure = Target("https", target.host, 443, target.path)
            try:
                return await fetch(secure.url, policy=policy, limits=self._limits, route=self._route)
            except FetchError as error:
                if error.kind not in ("network", "redirect"):
                    raise
        return await fetch(target.url, policy=policy, limits=self._limits, route=self._route)


def _target(url: str) -> Target:
    """Raises FetchError, also where the one that was asked about could be another host than the one that is fetched."""
    target = parse_target(url)
    asked, problem = host_of(url)
    if problem or normal_host(asked) != target.host:
        raise FetchError(
            f"The host of this URL can be read in two ways, {shown_host(target.host)} is one.",
            f"Write it as {target.url[:_LONGEST_LOCATION]}",
            "url",
        )
    return target


def _other_host(error: FetchError) -> Outcome | None:
    """Where the error is that a redirect leads to a host that was not asked about: where it leads."""
    last = error.redirects[-1] if error.redirects else None
    if last is None or error.kind != "policy":
        return None
    if len(last.url) > _LONGEST_LOCATION:
        return failure("The page redirects to another host, by a URL that is too long to show")
    host = shown_host(parse_target(last.url).host)
    text = (
        f"The page redirects ({last.status}) to another host, {host}, which was not asked about. Nothing was read. "
        f"If that is what you want, call WebFetch with this URL:\n{last.url}"
    )
    return answer(text, f"redirects to {host}")


def _understood(fetched: "Fetched", stop: threading.Event) -> Got:
    cut = f"its body {fetched.cut}" if fetched.cut else ""
    retry_after = next((value for name, value in fetched.headers if name == "retry-after"), "")
    got = Got(fetched.url, fetched.status, fetched.content_type, "", "", cut, retry_after=retry_after)
    if fetched.body.startswith(b"%PDF-") or image_type(fetched.body):
        return got._replace(body=fetched.body)
    text = _text(fetched)
    if text is None:
        return got._replace(body=fetched.body)
    if got.kind in _HTML or (not got.kind and _LOOKS_HTML.match(text)):
        from kitbag.tools.web.html_to_markdown import markdown_of

        page = markdown_of(text, fetched.url, stop)
        return got._replace(kind=got.kind or _HTML[0], title=page.title, text=page.text, cut=page.cut or cut)
    return got._replace(text=text.replace("\r\n", "\n"))


def _text(fetched: "Fetched") -> str | None:
    text = fetched.text
    if text is None:
        if fetched.content_type not in ("application/octet-stream", "binary/octet-stream") or b"\0" in fetched.body:
            return None
        try:
            return fetched.body.decode()
        except UnicodeDecodeError:
            return None
    if fetched.encoding == "utf-8" and "\ufffd" in text:
        said = any(name == "content-type" and "charset" in value.lower() for name, value in fetched.headers)
        unusual = len(text) - len(text.encode("ascii", "ignore"))
        if not said and 2 * text.count("\ufffd") > unusual:  # nobody said that it is UTF-8, and it is not
            return fetched.body.decode("cp1252", "replace")
    return text


def _outcome(got: Got, arguments: WebFetchArguments, stop: threading.Event) -> Outcome:
    if got.status >= 300:
        return _refusal(got)
    if got.body.startswith(b"%PDF-"):
        return _pdf(got, arguments.offset, stop)
    if got.body:
        return _binary(got)
    if not got.text.strip():
        why = f" ({got.cut})" if got.cut else "; it may be one that only a browser's scripts can show"
        return answer(f"{got.url} has no text{why}.", "no text", got.cut)
    if arguments.offset >= len(got.text):
        problem = f"the page has {len(got.text):,} characters, so there is nothing at offset {arguments.offset:,}"
        return failure(problem, "Use a smaller offset.")
    from kitbag.tools.web.excerpt import fitting, window

    shown = fitting(got.text, arguments.prompt) if not arguments.offset else window(got.text, arguments.offset)
    notes = [shown.note] if shown.note else []
    if got.cut:
        notes.append(f"The page is not whole: {got.cut}.")
    summary = f"{len(shown.text):,} characters of {line(got.url, 200)}"
    return answer(_page(got, shown.text, notes), summary, " ".join(notes))


def _page(got: Got, text: str, notes: list[str]) -> str:
    page = block("web-page", {"url": got.url, "type": got.kind, "title": got.title[:300]}, text)
    return "\n".join([page, f"[{' '.join(notes)}]"]) if notes else page


def _refusal(got: Got) -> Outcome:
    """The server answered with an error: its status, and the beginning of what it said."""
    from http.client import responses

    problem = f"{parse_target(got.url).shown} answered {got.status} {responses.get(got.status, '')}".rstrip()
    if got.status in (401, 403, 407):
        fix = "It wants a sign-in, or does not answer programs. Look for the same elsewhere."
    elif got.status in (404, 410):
        fix = "Check the URL, or search for where it is now."
    elif got.status in (429, 503):
        wait = f" in {got.retry_after} seconds" if got.retry_after.isdigit() else ""
        fix = f"Try again later{wait}, or look for the same elsewhere."
    else:
        fix = "Try another URL." if got.status < 500 else "Try again later, or look for the same elsewhere."
    failed = failure(problem, fix)
    said = got.text.strip()[:_ERROR_CHARACTERS]
    if not said:
        return failed
    return failed._replace(content=(*failed.content, Text(_page(got, said, []))))


def _binary(got: Got) -> Outcome:
    media_type, size = image_type(got.body), amount(len(got.body))
    where = line(parse_target(got.url).shown, 200)
    if not media_type:
        kind = f"{got.kind}, " if got.kind else ""
        fix = "WebFetch reads text, PDF and images. Download it with a command if it is needed."
        return failure(f"{where} is not text: {kind}{size}", fix)
    if got.cut or len(got.body) > MOST_IMAGE_BYTES:
        limit = f"images may have {amount(MOST_IMAGE_BYTES)}"
        return failure(f"{where} is an image of {size}{' or more' if got.cut else ''}; {limit}", "Use a smaller one.")
    image = Image(media_type, base64.b64encode(got.body).decode())
    return Outcome((image,), f"{where}, {media_type}, {size}")


def _pdf(got: Got, skipped: int, stop: threading.Event) -> Outcome:
    """The text of its pages. `offset` counts pages here."""
    from kitbag.tools.files.pdf_text import read_pdf

    if got.cut:
        return failure(f"the PDF did not come whole: {got.cut}", "Download it with a command if it is needed.")
    where = line(parse_target(got.url).shown, 200)
    pages = f"{skipped + 1}-" if skipped else ""
    with open(os.memfd_create("page"), "w+b") as file:
        file.write(got.body)
        file.seek(0)
        outcome = read_pdf(file.fileno(), where, pages, stop)
    if outcome.is_error:
        return outcome

    def in_our_words(text: str) -> str:
        return _NEXT_PAGES.sub(lambda found: f"offset={int(found[1]) - 1}", text)

    text = "\n".join(part.text for part in outcome.content if isinstance(part, Text))
    body, _, note = text.rpartition("\n") if outcome.cut and text.endswith("]") else (text, "", "")
    whole = _page(got, body, []) + (f"\n{in_our_words(note)}" if note else "")
    return Outcome((Text(whole),), outcome.summary, cut=in_our_words(outcome.cut))


def web_fetch(route: "Route | None" = None, limits: Limits = LIMITS) -> Tool[WebFetchArguments]:
    """One for each session: it keeps what it has read."""
    return Tool("WebFetch", description("WebFetch"), WebFetchArguments, _WebFetch(route, limits), reads_only=True)
