"""``roundhouse check``: every problem of a ``providers.yaml``, a line each. Starts nothing."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from router.catalog.load import load_catalog
from router.errors import ConfigurationError
from router.settings import find_configuration, read_provider_keys

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Check the file, or print its schema."""
    if options.schema:
        from router.catalog.schema import json_schema

        sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
        return 0
    path = find_configuration(Path(options.file) if options.file else None)
    try:
        catalog = load_catalog(path)
    except ConfigurationError as error:
        for problem in error.problems:
            sys.stderr.write(f"{problem}\n")
        count = len(error.problems)
        sys.stderr.write(f"{path}: {count} problem{'s' if count != 1 else ''}\n")
        return 1
    wanted = {name for one in catalog.providers.values() for name in one.key_env}
    keys = read_provider_keys(wanted)
    sys.stdout.write(
        f"{path}: {len(catalog.providers)} providers, {len(catalog.deployments)} candidates, "
        f"{len(catalog.entrypoints)} entrypoints, no problem; {len(keys)} of {len(wanted)} keys are set\n"
    )
    return 0
