"""Lists the models that a provider offers, with the endpoint and key that requests would use.

Follows no redirects, so the key goes nowhere else. Used by setup (runtime.connect_model).
"""

from typing import Final

from kitbag.models.local_servers import parse_model_list
from kitbag.models.model_selection import ModelSources, provider_endpoint

_SECONDS: Final = 8.0
_MOST_BYTES: Final = 8 << 20


async def list_models(provider: str, sources: ModelSources) -> list[str]:
    """Empty if the list is unavailable; the user can still type a name. Raises UsageError for a bad address."""
    import asyncio

    import httpx2

    endpoint = provider_endpoint(provider, sources)
    if not endpoint.address:
        return []
    key = sources.environment.get(endpoint.key_variable, "").strip() if endpoint.key_variable else ""
    if endpoint.protocol == "anthropic":
        from kitbag.models.adapters.anthropic import API_VERSION

        url = f"{endpoint.address}/v1/models?limit=1000"
        headers = {"anthropic-version": API_VERSION, **({"x-api-key": key} if key else {})}
    else:
        url, headers = f"{endpoint.address}/models", {"authorization": f"Bearer {key}"} if key else {}
    try:
        async with (
            asyncio.timeout(_SECONDS),
            httpx2.AsyncClient(timeout=_SECONDS, follow_redirects=False) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            if response.status_code != 200:
                return []
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _MOST_BYTES:
                    return []
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, UnicodeError):
        return []
    return parse_model_list(bytes(body))
