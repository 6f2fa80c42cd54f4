"""Turns what a provider answers instead of a reply into a ModelError: status codes, error events, HTML pages, silence.

Messages name what came and quote a short cleaned excerpt, without the values of the request's headers. Used by wire,
adapters and pydantic_ai; uses retry_time.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec

from kitbag.models.http.post import TransportError
from kitbag.models.provider import FailureKind, ModelError
from kitbag.models.reply_limits import ReplyLimits
from kitbag.text.hidden_characters import collapse_whitespace

_MAX_MESSAGE: Final = 600
_MAX_EXCERPT: Final = 200
_MIN_SECRET: Final = 8
# Patterns, compiled when a reply fails.
_TOO_LONG = (
    r"(?i)context.{0,20}(?:length|window|limit)|too long|too many tokens|maximum.{0,20}tokens"
    r"|exceeds? .{0,40}(?:tokens|context)"
)
_QUOTA = r"(?i)quota|billing|credit|insufficient|spend|payment"
_NO_CREDIT = r"(?i)credit balance|insufficient (?:funds|balance|credits?)"
"""Some providers report this with status 400."""
_TRANSIENT = frozenset((204, 408, 409, 425, 500, 502, 503, 504))
_INVISIBLE = r"(?is)<(script|style|head|svg|title)\b.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)"
_TITLE = r"(?i)<title[^<>]*>([^<]*)"
_TAG = r"<[^<>]*>"
_HTML = r"(?i)\s*<(?:!doctype|html|head|body|title|\?xml|h1|p|div|center)\b"


class ApiEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Base URL and headers of a provider's API."""

    provider: str
    base_url: str
    headers: Mapping[str, str]
    limits: ReplyLimits = ReplyLimits()

    @property
    def is_local(self) -> bool:
        try:
            host = urlsplit(self.base_url).hostname or ""
        except ValueError:
            return False
        return host in ("localhost", "::1") or host.endswith(".localhost") or host.startswith("127.")

    @property
    def address(self) -> str:
        """The base URL without user, password, path and query."""
        return _origin(self.base_url) or "its URL"

    def clean_excerpt(self, text: str, max_chars: int = _MAX_EXCERPT) -> str:
        """The visible text of a response on one line, without the values of our own headers."""
        for value in self.headers.values():
            for secret in (value, value.removeprefix("Bearer ")):
                text = text.replace(secret, "[redacted]") if len(secret) >= _MIN_SECRET else text
        return shorten_message(visible_text(text), max_chars)


def _origin(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
        return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "") if parts.scheme else ""
    except ValueError:
        return ""


# Responses that are not a success


def status_error(endpoint: ApiEndpoint, status: int, headers: Mapping[str, str], body: str) -> ModelError:
    provider = endpoint.provider
    if 300 <= status < 400:
        target = shorten_message(_origin(headers.get("location", "")) or "another address", _MAX_EXCERPT)
        problem = f"{provider} redirects to {target} (status {status}); Kitbag does not follow redirects"
        return ModelError("bad-request", problem, _proxy_fix(endpoint), status=status)
    from kitbag.models.adapters.retry_time import parse_retry_time

    message = endpoint.clean_excerpt(extract_error_message(body), _MAX_MESSAGE)
    wait = parse_retry_time(headers)
    limited = wait is not None or any("ratelimit" in name for name in headers)
    kind = _classify_status(status, message, limited)
    name = "an HTML page with status" if is_html(body) else "status" if status < 300 else ""
    problem = f"{provider} returned {name} {status}".replace("  ", " ")
    if 200 <= status < 300:
        problem += " instead of a reply"
    problem += f": {message}" if message else ""
    return ModelError(kind, problem, _suggest_fix(kind, provider), retry_after=wait, status=status)


def error_in_reply(provider: str, error: object) -> ModelError:
    """For an error after status 200. `error`: the protocol's error object, or a text."""
    fields = cast("dict[str, Any]", error) if isinstance(error, dict) else {"message": str(error or "")}
    kind = " ".join(str(fields[name]) for name in ("type", "code") if fields.get(name))
    return _classify_error(provider, kind, str(fields.get("message") or ""))


def _classify_error(provider: str, kind: str, message: str) -> ModelError:
    lower = f"{kind} {message}".lower()
    if "insufficient_quota" in lower or "billing" in lower or re.search(_NO_CREDIT, message):
        failure: FailureKind = "spent"
    elif "overloaded" in lower or "rate" in lower.split("_") or "rate_limit" in lower:
        failure = "overloaded"
    elif re.search(_TOO_LONG, message) or "context_length" in lower or "request_too_large" in lower:
        failure = "too-long"
    elif "authentication" in lower or "permission" in lower or "invalid_api_key" in lower:
        failure = "auth"
    elif "invalid_request" in lower or "not_found" in lower or "invalid_prompt" in lower:
        failure = "bad-request"
    else:
        failure = "transient"
    problem = f"{provider} aborted the reply: {shorten_message(message or kind or 'no reason given')}"
    return ModelError(failure, problem, _suggest_fix(failure, provider))


def _classify_status(status: int, message: str, limited: bool) -> FailureKind:
    if status in (401, 403):
        return "auth"
    if status == 402 or (status == 400 and re.search(_NO_CREDIT, message)):
        return "spent"
    if status == 413 or (status == 400 and re.search(_TOO_LONG, message)):
        return "too-long"
    if status == 429:
        # Without a retry time it may be the account's limit, which waiting does not lift.
        return "overloaded" if limited and not re.search(_QUOTA, message) else "spent"
    if status == 529:
        return "overloaded"
    if status in _TRANSIENT or status > 504:
        return "transient"
    return "bad-request"


def _suggest_fix(kind: FailureKind, provider: str) -> str:
    return {
        "auth": f"check the API key for {provider} in your environment, or run `kitbag setup`",
        "spent": f"check the limits of your {provider} account; waiting may not help",
        "too-long": "start a new session, or choose a model with a larger context window",
        "bad-request": "check the model name (`kitbag models`) and its settings",
    }.get(kind, "retry")


# Responses with status 200 that are not a reply


def empty_response(endpoint: ApiEndpoint) -> ModelError:
    return ModelError("cut", f"{endpoint.provider} returned an empty response (status 200)", "retry")


def html_response(endpoint: ApiEndpoint, body: str) -> ModelError:
    excerpt = endpoint.clean_excerpt(body)
    problem = f"{endpoint.provider} returned an HTML page instead of a reply" + (f": {excerpt!r}" if excerpt else "")
    return ModelError("bad-request", problem, _proxy_fix(endpoint))


def unreadable_response(endpoint: ApiEndpoint, what: str, body: str) -> ModelError:
    """`what`: what came instead of an event stream."""
    excerpt = endpoint.clean_excerpt(body)
    problem = f"{endpoint.provider} returned {what} instead of a reply" + (f": {excerpt!r}" if excerpt else "")
    fix = f"check that {endpoint.address} speaks this protocol (`protocol` and `base_url` of the provider)"
    return ModelError("bad-request", problem, fix)


def compressed_response(endpoint: ApiEndpoint, encoding: str) -> ModelError:
    name = shorten_message(encoding, 40)
    problem = f"{endpoint.provider} sent a compressed response ({name}), which was not requested"
    return ModelError("bad-request", problem, _proxy_fix(endpoint))


def _proxy_fix(endpoint: ApiEndpoint) -> str:
    return f"check the base URL {endpoint.address}, and whether a proxy or a login page is in between"


# Connections


def transport_error(error: TransportError, endpoint: ApiEndpoint) -> ModelError:
    reason, provider = shorten_message(error.reason), endpoint.provider
    match error.kind:
        case "address":
            problem = f"{shorten_message(endpoint.base_url)} is not a valid URL"
            return ModelError("bad-request", problem, "fix the base URL")
        case "no-answer":
            return ModelError("unreachable", f"cannot reach {provider}: no response from {endpoint.address}")
        case "unreachable":
            problem = f"cannot reach {provider} at {endpoint.address}: {reason}"
            return ModelError("unreachable", problem, "check the URL and the network connection")
        case "certificate":
            problem = f"the certificate of {endpoint.address} is not valid: {reason}"
            return ModelError("bad-request", problem, "check the URL and this machine's CA certificates")
        case "broken":
            return ModelError("cut", f"the connection to {provider} was lost: {reason}", "retry")


# Text


def extract_error_message(body: str) -> str:
    """The provider's message in an error response body, on one line."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return shorten_message(visible_text(body))
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    error = fields.get("error", fields.get("detail", fields))
    if isinstance(error, dict):
        error = cast("dict[str, Any]", error).get("message", "")
    return shorten_message(error if isinstance(error, str) else body)


def is_html(text: str) -> bool:
    return re.match(_HTML, text) is not None


def visible_text(text: str) -> str:
    """An HTML page's title and text without markup; any other text unchanged."""
    if not is_html(text):
        return text
    import html

    title = re.search(_TITLE, text)
    body = html.unescape(re.sub(_TAG, " ", re.sub(_INVISIBLE, " ", text)))
    heading = collapse_whitespace(html.unescape(title[1])) if title else ""
    return f"{heading}: {collapse_whitespace(body)}".strip(": ")


def shorten_message(text: str, max_chars: int = _MAX_MESSAGE) -> str:
    line = collapse_whitespace(text)
    return line if len(line) <= max_chars else f"{line[:max_chars]}…"
