"""``GET /``: a page of a few links for whoever opens the port in a browser. Plain HTML, no script."""

from __future__ import annotations

from html import escape

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from router import __version__
from router.gateway import Gateway

__all__ = ["build_root_routes"]

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Roundhouse</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 42rem; margin: 3rem auto; padding: 0 1rem }}
code {{ font-family: ui-monospace, monospace }}
</style>
</head>
<body>
<h1>Roundhouse {version}</h1>
<p>One OpenAI-compatible port.
Point a client at <code>/v1</code> of this address and ask for one of these models:</p>
<ul>
{entrypoints}
</ul>
<ul>
<li><a href="/v1/models">/v1/models</a>: every entrypoint and candidate</li>
<li><a href="/health/dashboard">/health/dashboard</a>: how everybody does, as JSON</li>
<li><a href="/health/ready">/health/ready</a>, <a href="/health/live">/health/live</a>,
<a href="/metrics">/metrics</a>: for machines</li>
<li><a href="/openapi.json">/openapi.json</a>: the API</li>
</ul>
</body>
</html>
"""


def build_root_routes(gateway: Gateway) -> APIRouter:
    """Return the one route."""
    routes = APIRouter(include_in_schema=False)

    @routes.head("/", include_in_schema=False)
    @routes.get("/", response_class=HTMLResponse)
    async def root() -> HTMLResponse:
        """Show the links."""
        entrypoints = "\n".join(
            f"<li><code>{escape(one.name)}</code>: {escape(one.description)}</li>"
            for one in gateway.catalog.entrypoints.values()
        )
        return HTMLResponse(_PAGE.format(version=escape(__version__), entrypoints=entrypoints))

    return routes
