"""``python -m router``: the same as ``roundhouse``."""

from __future__ import annotations

import sys

from router.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
