"""The most memory this process ever held. Knows operating systems; nothing of models."""

from __future__ import annotations

import sys

__all__ = ["peak_rss_bytes"]


def peak_rss_bytes() -> int | None:
    """Peak resident set in bytes, mapped file pages included; ``None`` where the system does not tell."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Bytes on macOS, KiB elsewhere.
    return peak if sys.platform == "darwin" else peak * 1024
