"""Web tools: WebFetch, WebSearch."""
