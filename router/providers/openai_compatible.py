"""Providers that speak OpenAI's chat-completions wire: kind ``openai``.

Knows where to send, with which key; the call itself is :mod:`router.providers.exchange`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

import httpx

from router.catalog.catalog import Deployment
from router.catalog.catalog import Provider as ProviderEntry
from router.chat.openai_wire import body_for
from router.chat.types import ChatEvent, ChatRequest
from router.clock import Clock
from router.providers.base import AttemptDeadlines, ProviderStatus
from router.providers.credentials import ProviderKeys
from router.providers.exchange import exchange
from router.providers.upstream_client import UpstreamCall, UpstreamClient

__all__ = ["OpenAICompatibleProvider", "chat_body", "chat_headers"]

_HEADERS: Final[Mapping[str, str]] = {
    "accept": "text/event-stream",
    # Compressed events would sit in a window of the upstream's compressor until it is full.
    "accept-encoding": "identity",
    "content-type": "application/json",
    "user-agent": "roundhouse",
}


def chat_headers(secret: str | None, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the headers of a chat call; ``extra`` wins, also over the authorisation."""
    headers = dict(_HEADERS)
    if secret is not None:
        headers["authorization"] = f"Bearer {secret}"
    for name, value in (extra or {}).items():
        headers[name.lower()] = value
    return headers


def chat_body(request: ChatRequest, deployment: Deployment) -> bytes:
    """Return the body for a deployment: always streamed, usage asked for, never longer than it can answer."""
    return body_for(
        request,
        deployment.upstream_model,
        include_usage=True,
        max_output_tokens=deployment.max_output_tokens,
    )


class OpenAICompatibleProvider:
    """One account at an upstream of OpenAI's wire. The client is this provider's own, and closed with it."""

    def __init__(
        self,
        entry: ProviderEntry,
        *,
        keys: ProviderKeys,
        client: UpstreamClient | httpx.AsyncClient,
        clock: Clock,
    ) -> None:
        if not entry.base_url:
            raise ValueError(f"provider {entry.name}: the kind {entry.kind} needs a base_url")
        self._entry = entry
        self._url = f"{entry.base_url.rstrip('/')}/chat/completions"
        self._keys = keys
        self._client = client
        self._clock = clock

    def __repr__(self) -> str:
        return f"OpenAICompatibleProvider({self._entry.name}, {self._url}, {self._keys!r})"

    def stream(
        self,
        request: ChatRequest,
        deployment: Deployment,
        deadlines: AttemptDeadlines,
        *,
        key_label: str | None = None,
    ) -> AsyncIterator[ChatEvent]:
        """See :class:`~router.providers.base.Provider`."""
        call = UpstreamCall(
            url=self._url,
            headers=chat_headers(self._keys.secret(key_label), self._entry.headers),
            body=chat_body(request, deployment),
            keys=self._keys,
        )
        return exchange(self._client, call, deadlines, self._clock)

    def status(self) -> ProviderStatus:
        """See :class:`~router.providers.base.Provider`."""
        if self._entry.needs_key and not self._keys:
            wanted = " or ".join(self._entry.key_env) or "a key"
            return ProviderStatus(configured=False, ready=False, detail=f"no key: set {wanted}")
        return ProviderStatus(configured=True, ready=True)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()
