"""Why a checkout cannot be made runnable, told in one sentence.

Knows what failing programs print; not who runs them.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["DISK_FULL", "Refusal", "explain"]

DISK_FULL = "The disk is full: free some space (about 1.2 GB is needed), then start again."
HASH_DIFFERS = (
    "A downloaded package is not the one that requirements.lock pins (its hash differs), so it was not "
    "installed: clear pip's cache (python3 -m pip cache purge) and check the package index or proxy in use."
)
INDEX_UNREACHABLE = (
    "The package index cannot be reached, and the first start needs it: check the network, the proxy or "
    "the mirror in pip's configuration, then start again."
)
UNWRITABLE = "A file cannot be written: check who owns the checkout with its .venv and build folders."
NO_WHEEL = "A pinned package has no wheel for this Python or machine: try Python 3.11, 3.12 or 3.13."

# What a failed program's output shows, and the sentence for it. The first match counts: pip also says that it
# found no version of a package when it merely could not ask.
_SIGNS = (
    (r"No space left on device|Errno 28\b|not enough space on the disk", DISK_FULL),
    (r"DO NOT MATCH THE HASHES|Hashes are required", HASH_DIFFERS),
    (
        (
            r"NewConnectionError|NameResolutionError|Failed to establish a new connection|ConnectTimeoutError"
            r"|ReadTimeoutError|ProxyError|Max retries exceeded|Connection (?:reset|refused)"
            r"|RemoteDisconnected|SSLError"
        ),
        INDEX_UNREACHABLE,
    ),
    (r"Permission denied|Errno 13\b|Read-only file system|Errno 30\b", UNWRITABLE),
    (r"No matching distribution found", NO_WHEEL),
)
_LINES_SHOWN = 15


class Refusal(Exception):
    """Nothing can be done: a sentence for a person, and a program's last lines where they help."""

    def __init__(self, sentence: str, output: str = "") -> None:
        super().__init__(sentence)
        lines = output.rstrip().splitlines()[-_LINES_SHOWN:]
        self.detail = "\n".join(f"    {line}" for line in lines)

    def __str__(self) -> str:
        """Return the sentence, and the lines below it."""
        return f"{self.args[0]}\n{self.detail}" if self.detail else str(self.args[0])


def explain(output: str, log: Path, otherwise: str) -> Refusal:
    """Return the refusal for a failed program by its ``output``; else ``otherwise`` with its last lines."""
    for sign, sentence in _SIGNS:
        if re.search(sign, output):
            return Refusal(f"{sentence} The log: {log}")
    return Refusal(f"{otherwise} The log: {log}", output)
