"""The HTTP client that providers use, and the one place where its exceptions become ours.

Knows connections, pools and what can go wrong with them; not chats, keys or vendors.
"""

from __future__ import annotations

import socket
import ssl
from typing import Final

import httpx

from router.errors import (
    TimeoutPhase,
    UpstreamBrokenStream,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnreachable,
)

__all__ = ["SharedTls", "connect_problem", "make_client", "upstream_error"]

_KEPT_ALIVE: Final = 64
_KEPT_ALIVE_S: Final = 20.0
# The deadlines of an attempt are kept by whoever reads it; a default here only guards a caller that forgot.
_DEFAULT_TIMEOUT: Final = httpx.Timeout(30.0, read=None)


def make_client(
    *,
    transport: httpx.AsyncBaseTransport | None = None,
    trust_environment_proxies: bool = False,
    verify: ssl.SSLContext | bool = True,
) -> httpx.AsyncClient:
    """Build a client with its own pool: HTTP/1.1 kept alive, no redirects, no proxy from the environment.

    The number of connections is not bounded here (attempts are bounded by whoever admits requests), so that
    no request ever waits for a pool. ``transport`` replaces the network: respx only intercepts httpx's own
    transport, a test may hand in any other.
    """
    limits = httpx.Limits(
        max_connections=None, max_keepalive_connections=_KEPT_ALIVE, keepalive_expiry=_KEPT_ALIVE_S
    )
    return httpx.AsyncClient(
        transport=transport,
        limits=limits,
        timeout=_DEFAULT_TIMEOUT,
        follow_redirects=False,
        trust_env=trust_environment_proxies,
        http2=False,
        verify=verify,
    )


class SharedTls:
    """One TLS context for every client that is handed this: reading the certificates takes 20 ms."""

    __slots__ = ("_context",)

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context

    def context(self) -> ssl.SSLContext:
        """Return the context: certificates are checked, HTTP/1.1 is offered."""
        if self._context is None:
            self._context = httpx.create_ssl_context(trust_env=False)
            self._context.set_alpn_protocols(["http/1.1"])
        return self._context


def upstream_error(error: httpx.HTTPError | httpx.InvalidURL, *, answered: bool) -> UpstreamError:
    """Translate; the caller raises the result ``from`` the original.

    ``answered`` says whether the status line had arrived: a reset before it is
    :class:`UpstreamUnreachable`, after it :class:`UpstreamBrokenStream`.
    """
    detail = _detail(error)
    if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        return UpstreamTimeout(f"no connection in time{detail}", phase=TimeoutPhase.CONNECT)
    if isinstance(error, httpx.TimeoutException):
        phase = TimeoutPhase.STALL if answered else TimeoutPhase.FIRST_EVENT
        return UpstreamTimeout(f"the connection went quiet{detail}", phase=phase)
    if isinstance(error, httpx.ConnectError | httpx.ProxyError):
        return UpstreamUnreachable(f"{connect_problem(error)}{detail}")
    if isinstance(error, httpx.UnsupportedProtocol | httpx.InvalidURL):
        return UpstreamUnreachable(f"base_url cannot be used{detail}")
    if answered:
        return UpstreamBrokenStream(f"the connection broke within the answer{detail}")
    return UpstreamUnreachable(f"the connection broke before an answer{detail}")


def connect_problem(error: BaseException) -> str:
    """Say which step of connecting failed, found in the chain of causes."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, socket.gaierror):
            return "the host's name cannot be resolved"
        if isinstance(seen, ssl.SSLCertVerificationError):
            return "the certificate is not valid"
        if isinstance(seen, ssl.SSLError):
            return "TLS failed"
        if isinstance(seen, ConnectionRefusedError):
            return "the connection was refused"
        seen = seen.__cause__ or seen.__context__
    return "no connection"


def _detail(error: Exception) -> str:
    text = str(error).strip()
    return f" ({type(error).__name__}: {text})" if text else f" ({type(error).__name__})"
