"""Parses URLs strictly and only once: what is checked is what is connected to.

Used by `fetch` for the first URL and for every redirect, and by permission rules for URLs that a model requests.
"""

import re
from typing import Final

import msgspec

from kitbag.net.errors import FetchError
from kitbag.net.hosts import display_host, normalize_host

PORTS: Final = {"http": 80, "https": 443}
MAX_URL_LENGTH: Final = 8192
_FORBIDDEN = "[\x00-\x20\x7f-\x9f\\\\\ud800-\udfff]"
_SCHEME = r"([A-Za-z][A-Za-z0-9+.-]{0,30}):(.*)"
_AUTHORITY = r"(\[[^\[\]]*\]|[^\[\]:]*)(?::([0-9]{0,5}))?"
_UNQUOTED = "/?:@!$&'()*+,;=-._~%[]"
_MAX_DISPLAY_LENGTH = 120


class FetchTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed URL."""

    scheme: str
    host: str
    """Normalized; an IPv6 address without brackets."""
    port: int
    path: str
    """With the query, in ASCII, as sent; without the fragment."""

    @property
    def authority(self) -> str:
        """As in a Host header: the port only if it is not the scheme's default."""
        return self._bracketed_host if self.port == PORTS[self.scheme] else self.host_port

    @property
    def host_port(self) -> str:
        """As in `allow_private` of the user's policy."""
        return f"{self._bracketed_host}:{self.port}"

    @property
    def _bracketed_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def display_url(self) -> str:
        """For messages: without the query, which may contain secrets."""
        port = "" if self.port == PORTS[self.scheme] else f":{self.port}"
        path = self.path.partition("?")[0]
        if len(path) > _MAX_DISPLAY_LENGTH:
            path = path[:_MAX_DISPLAY_LENGTH] + "..."
        return f"{self.scheme}://{display_host(self.host)}{port}{path}"


def parse_url(url: str) -> FetchTarget:
    """Raises FetchError, quoting nothing of the URL, unless it is clearly an http or https URL."""
    if len(url) > MAX_URL_LENGTH:
        raise _url_error(f"it is longer than {MAX_URL_LENGTH} characters")
    forbidden = re.search(_FORBIDDEN, url)
    if forbidden:
        what = "a backslash" if forbidden[0] == "\\" else f"the character U+{ord(forbidden[0]):04X}"
        raise _url_error(f"it contains {what}", "Percent-encode the character; a space is %20.")
    scheme, rest = _split_scheme(url)
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        raise _url_error("it contains a username", "Remove everything before the @; credentials are never sent.")
    host, port = _split_authority(authority, scheme)
    return FetchTarget(scheme=scheme, host=host, port=port, path=_ascii_path(rest[len(authority) :]))


def resolve_redirect(target: FetchTarget, location: str) -> FetchTarget:
    """The target of a Location header, checked like the first URL."""
    if re.fullmatch(_SCHEME, location) or re.search(_FORBIDDEN, location) or len(location) > MAX_URL_LENGTH:
        return parse_url(location)  # absolute, or invalid in a way that urljoin would hide
    import urllib.parse

    try:
        joined = urllib.parse.urljoin(target.url, location)
    except ValueError:
        raise _url_error("the redirect target is not a valid URL") from None
    return parse_url(joined)


def _url_error(problem: str, fix: str = "Use a complete URL, such as https://docs.python.org/3/.") -> FetchError:
    return FetchError(f"Cannot fetch this URL: {problem}.", fix, "url")


def _split_scheme(url: str) -> tuple[str, str]:
    match = re.fullmatch(_SCHEME, url)
    if match is None:
        raise _url_error("it has no scheme")
    scheme, rest = match[1].lower(), match[2]
    if scheme not in PORTS:
        raise _url_error(f"only http and https are supported, not {scheme}")
    if not rest.startswith("//"):
        raise _url_error(f"{scheme}: must be followed by // and a host")
    return scheme, rest[2:]


def _split_authority(authority: str, scheme: str) -> tuple[str, int]:
    match = re.fullmatch(_AUTHORITY, authority)
    if match is None:
        raise _url_error(
            "its host and port are ambiguous", "Put an IPv6 address in brackets; the port must be a number."
        )
    try:
        host = normalize_host(match[1])
    except ValueError as error:
        raise _url_error(str(error)) from None
    port = int(match[2]) if match[2] else PORTS[scheme]
    if not 0 < port < 65536:
        raise _url_error("its port is out of range")
    return host, port


def _ascii_path(rest: str) -> str:
    import urllib.parse

    path = urllib.parse.quote(rest.partition("#")[0], safe=_UNQUOTED)
    return path if path.startswith("/") else f"/{path}"
