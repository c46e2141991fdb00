"""A provider that does as its script says: kind ``scripted``.

For tests, the demo and load tests: deterministic latencies, failures and byte-level faults. Nothing is
invented on the gateway's side of the wire: it is the provider of kind ``openai`` with a transport that
plays the script. The format is described in ``docs/scripted-provider.md`` and
:mod:`router.providers.script`. Knows no network.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import httpx

from router.catalog.catalog import Provider as ProviderEntry
from router.clock import Clock
from router.providers.credentials import NO_KEYS
from router.providers.openai_compatible import OpenAICompatibleProvider
from router.providers.script import Script
from router.providers.script_transport import ScriptedTransport, ScriptPlayer, Sleep

__all__ = ["ScriptedProvider"]

_NOWHERE = "http://scripted.invalid/v1"


class ScriptedProvider(OpenAICompatibleProvider):
    """Plays one script. ``player`` and ``transport`` can be looked at: requests begun, answers open."""

    def __init__(
        self, entry: ProviderEntry, script: Script, *, clock: Clock, sleep: Sleep = asyncio.sleep
    ) -> None:
        self.player = ScriptPlayer(script)
        self.transport = ScriptedTransport(self.player, sleep=sleep)
        super().__init__(
            replace(entry, base_url=_NOWHERE, needs_key=False),
            keys=NO_KEYS,
            client=httpx.AsyncClient(transport=self.transport, trust_env=False, timeout=httpx.Timeout(None)),
            clock=clock,
        )
