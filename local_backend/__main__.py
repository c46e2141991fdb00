"""``python -m local_backend``."""

from __future__ import annotations

import sys

from local_backend.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
