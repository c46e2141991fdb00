"""Prepares the checkout and becomes the command that was asked for.

Knows how a command is started and how a failure is told; not how anything is prepared.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from router.installation.checkout import Checkout
from router.installation.prepare import prepare
from router.installation.programs import Runner, run_logged
from router.installation.refusal import DISK_FULL, Refusal

__all__ = ["command_for", "start"]


def command_for(checkout: Checkout, arguments: Sequence[str]) -> list[str]:
    """Return the program and arguments for what a person typed after ``bootstrap.py``."""
    if arguments[0] == "test":
        return [str(checkout.python), "-m", "pytest", *arguments[1:]]
    # -P: a folder called router where the person happens to stand is not ours
    return [str(checkout.python), "-P", "-m", "router", *arguments]


def start(root: str, arguments: Sequence[str], environ: Mapping[str, str], run: Runner = run_logged) -> int:  # noqa: RET503 - execv never returns
    """Prepare, then replace this process by the command; return an exit status where that did not happen."""
    checkout = Checkout(Path(root), environ, run)
    try:
        prepare(checkout)
    except Refusal as refusal:
        return _fail(str(refusal))
    except KeyboardInterrupt:
        _fail("interrupted; the next start takes it up again")
        return 130
    except OSError as error:
        return _fail(DISK_FULL if error.errno == errno.ENOSPC else str(error))
    if arguments[0] == "test":
        os.chdir(checkout.root)
    command = command_for(checkout, arguments)
    if sys.platform == "win32":
        return subprocess.call(command)
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted


def _fail(sentence: str) -> int:
    sys.stderr.write(f"bootstrap: {sentence}\n")
    return 1
