"""Tools for the web: WebFetch, WebSearch."""
